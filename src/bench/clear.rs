//! Before and after a run: whether the servers are there, and taking away what was made.

use super::plan::Plan;
use super::session::{self, Session};
use super::{Fault, wire};

/// Whether a session can be had at each of the plan's servers.
///
/// # Errors
/// It cannot.
pub fn reach(plan: &Plan) -> Result<(), Fault> {
    plan.addrs.iter().try_for_each(|addr| Session::open_as(*addr, &plan.access)?.close())
}

/// Deletes the znode of the run's room with everything below it, and the root if nothing else is
/// there. What another has deleted meanwhile is no fault.
///
/// # Errors
/// No server answers, or one refuses.
pub fn clear(plan: &Plan) -> Result<(), Fault> {
    let mut session = Session::open_as(plan.addrs[0], &plan.access)?;
    if session.call(wire::children(&plan.room_path(), false))?.err == wire::NO_NODE {
        return session.close();
    }
    let mut paths = vec![plan.room_path()];
    let mut listed = 0;
    while listed < paths.len() {
        // Level by level, so that whatever is below a znode comes after it.
        let level = listed..paths.len();
        listed = paths.len();
        let requests: Vec<(String, Vec<u8>)> =
            paths[level].iter().map(|path| (path.clone(), wire::children(path, false))).collect();
        session.call_all(requests, |path, answer| {
            session::gone(&format!("list {path}"), answer)?;
            if answer.err == 0 {
                let below = below(&path, &answer.body);
                paths.extend(below.ok_or_else(|| Fault::wrong("a list is cut short"))?);
            }
            Ok(())
        })?;
    }
    let requests = paths.iter().rev().map(|path| (path.clone(), wire::delete(path)));
    session.call_all(requests, |path, answer| session::gone(&format!("delete {path}"), answer))?;
    // Somebody else's if it cannot be deleted.
    session.call(wire::delete(&plan.root))?;
    session.close()
}

/// The paths that a list of children stands for.
fn below(path: &str, body: &[u8]) -> Option<Vec<String>> {
    wire::names(body)?
        .map(|name| Some(format!("{path}/{}", std::str::from_utf8(name?).ok()?)))
        .collect()
}
