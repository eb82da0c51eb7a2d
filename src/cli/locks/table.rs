//! Locks and sessions as people read them.
//!
//! *Owns* the text. *Invariants*: what is not known is shown as `?`, what is not there as `-`; a field
//! that a server does not send is not known; nothing that a client has written commands the terminal.

use serde_json::Value;

/// `/locks` as text.
pub(super) fn locks(answer: &Value) -> String {
    let mut out = String::new();
    let locks = elements(answer, "locks");
    for lock in locks {
        out += &lock_text(lock);
        out.push('\n');
    }
    if locks.is_empty() {
        out += &format!("no locks at or below {}\n", text(answer, "prefix"));
    }
    out + &remarks(answer)
}

fn lock_text(lock: &Value) -> String {
    let name = lock["name"].as_str().map(|name| format!(" [{}]", clean(name))).unwrap_or_default();
    let dialects: Vec<String> =
        elements(lock, "dialects").iter().filter_map(Value::as_str).map(clean).collect();
    let limit = lock["limit"].as_u64().map(|limit| format!(" of {limit}")).unwrap_or_default();
    let mut out = format!(
        "{}{name}  {}{limit} ({})\n",
        text(lock, "path"),
        text(lock, "kind"),
        dialects.join(", ")
    );
    let mut rows = Vec::new();
    for (word, list) in [("holds", "holders"), ("waits", "waiters")] {
        rows.extend(elements(lock, list).iter().map(|place| place_row(word, place)));
    }
    out += &aligned(&rows);
    if let Some(hidden @ 1..) = lock["hidden"].as_u64() {
        out += &format!("  {hidden} more are not shown\n");
    }
    for finding in elements(lock, "findings") {
        out += &format!("  ! {}: {}\n", text(finding, "kind"), text(finding, "text"));
        for node in elements(finding, "nodes").iter().filter_map(Value::as_str) {
            out += &format!("      {}\n", clean(node));
        }
    }
    out
}

fn place_row(word: &str, place: &Value) -> Vec<String> {
    let mode = match place["mode"].as_str() {
        Some(mode @ ("read" | "write")) => format!("{word} ({mode})"),
        _ => word.to_owned(),
    };
    let node = text(place, "node");
    let last = node.rsplit('/').next().unwrap_or(&node).to_owned();
    let tail =
        if word == "holds" { format!("token {}", number(place, "token")) } else { watched(place) };
    let asked =
        if place["asked_to_release"] == Value::Bool(true) { " (asked to release)" } else { "" };
    vec![
        mode,
        place["identity"].as_str().map_or_else(|| "-".to_owned(), clean) + asked,
        client(place),
        since(word, place),
        last,
        tail,
    ]
}

/// How long it has held the lock, or waited for it. Of a holder perhaps only the age of its znode is
/// known, which is more.
fn since(word: &str, place: &Value) -> String {
    match place["held_ms"].is_u64() {
        true => duration(&place["held_ms"]),
        false if word == "holds" => format!("<{}", duration(&place["age_ms"])),
        false => duration(&place["age_ms"]),
    }
}

/// What a waiter watches, by the last components of the paths.
fn watched(place: &Value) -> String {
    let Some(watches) = place["watches"].as_array() else { return "watches ?".to_owned() };
    let shown: Vec<String> = watches
        .iter()
        .map(|watch| {
            let path = text(watch, "path");
            match watch["kind"].as_str() {
                Some("data") => path.rsplit('/').next().unwrap_or(&path).to_owned(),
                _ => format!("{path} ({})", text(watch, "kind")),
            }
        })
        .collect();
    if shown.is_empty() {
        "watches nothing".to_owned()
    } else {
        format!("watches {}", shown.join(", "))
    }
}

/// Where a client is.
fn client(shown: &Value) -> String {
    match shown["client"].as_str() {
        Some("connected") => {
            let server = match shown["server"].as_u64() {
                // A server that runs alone has no number.
                Some(0) | None => String::new(),
                Some(server) => format!(" at server {server}"),
            };
            format!("{}{server}", text(shown, "remote"))
        }
        Some("disconnected") => match shown["expires_in_ms"].as_u64() {
            Some(_) => format!("not connected, ends in {}", duration(&shown["expires_in_ms"])),
            None => "not connected".to_owned(),
        },
        Some("elsewhere") => "at ZooKeeper, or gone".to_owned(),
        Some("none") => "no session".to_owned(),
        Some(_) | None => "?".to_owned(),
    }
}

/// `/sessions` as text.
pub(super) fn sessions(answer: &Value) -> String {
    let sessions = elements(answer, "sessions");
    let heads = ["session", "client", "heard", "timeout", "ends in", "ephemerals", "watches"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(sessions.iter().map(|session| {
        let is_connected = session["client"] == "connected";
        vec![
            text(session, "session"),
            client(session),
            if is_connected { duration(&session["heard_ms"]) } else { "-".to_owned() },
            duration(&session["timeout_ms"]),
            duration(&session["expires_in_ms"]),
            number(session, "ephemerals"),
            if is_connected { number(session, "watches") } else { "-".to_owned() },
        ]
    }));
    let table = if sessions.is_empty() { "no sessions\n".to_owned() } else { aligned(&rows) };
    table.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>()
        + &remarks(answer)
}

/// What limits an answer.
fn remarks(answer: &Value) -> String {
    let silent: Vec<String> = elements(answer, "servers")
        .iter()
        .filter(|server| server["answered"] == Value::Bool(false))
        .map(|server| number(server, "server"))
        .collect();
    let mut out = String::new();
    if !silent.is_empty() {
        let servers = if silent.len() == 1 { "server" } else { "servers" };
        out += &format!(
            "{servers} {} did not answer: what is at them is not known\n",
            silent.join(", ")
        );
    }
    if answer["serving"] == Value::Bool(false) {
        out += "this server does not serve clients, for lack of a leader: this may be old\n";
    }
    if answer["cut"] == Value::Bool(true) {
        out +=
            "this is not all: there is more than one answer may hold; a longer PREFIX shows less\n";
    }
    out
}

/// Rows with columns below each other, indented.
fn aligned(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width - cell.chars().count();
            line += &format!("  {cell}{}", " ".repeat(padding));
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn elements<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().map_or_else(|| "?".to_owned(), clean)
}

fn number(value: &Value, key: &str) -> String {
    value[key].as_i64().map_or_else(|| "?".to_owned(), |number| number.to_string())
}

/// Paths may hold what a terminal takes for a command.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn duration(milliseconds: &Value) -> String {
    let Some(ms) = milliseconds.as_u64() else { return "?".to_owned() };
    match ms / 1000 {
        0 => format!("{ms} ms"),
        seconds @ 1..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds @ 3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lock_is_a_few_lines() {
        let place = |node: &str, watches: Value| {
            json!({
                "node": node, "mode": "exclusive", "token": 7, "age_ms": 61_000, "held_ms": null,
                "identity": "me",
                "client": "connected", "server": 2, "remote": "10.0.0.1:5", "watches": watches,
            })
        };
        let lock = json!({
            "path": "/p", "kind": "mutex", "dialects": ["kazoo"],
            "holders": [place("/p/a__lock__0000000001", json!([]))],
            "waiters": [
                place("/p/b__lock__0000000002", json!([{"path": "/p/a__lock__0000000001", "kind": "data"}])),
            ],
            "findings": [{ "kind": "herd", "text": "so it is", "nodes": ["/p/\u{1b}"] }],
        });
        let servers = json!([{"server": 2, "answered": true}, {"server": 3, "answered": false}]);
        let answer = json!({ "locks": [lock], "servers": servers, "cut": false });
        assert_eq!(
            locks(&answer),
            "/p  mutex (kazoo)\n\
            \x20 holds  me  10.0.0.1:5 at server 2  <1 min 1 s  a__lock__0000000001  token 7\n\
            \x20 waits  me  10.0.0.1:5 at server 2  1 min 1 s   b__lock__0000000002  watches a__lock__0000000001\n\
            \x20 ! herd: so it is\n\
            \x20     /p/ \n\
            \n\
            server 3 did not answer: what is at them is not known\n"
        );
    }

    #[test]
    fn what_is_not_known_is_a_question_mark() {
        let session = json!({ "session": "0x1", "client": "unknown", "timeout_ms": 4000 });
        let shown = sessions(&json!({ "sessions": [session] }));
        let line = shown.lines().nth(1).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["0x1", "?", "-", "4.0", "s", "?", "?", "-"]
        );
        assert_eq!(locks(&json!({ "prefix": "/x", "locks": [] })), "no locks at or below /x\n");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        for (ms, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (59_999, "59.9 s"),
            (3_599_999, "59 min 59 s"),
            (86_399_999, "23 h 59 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(&json!(ms)), shown);
        }
    }
}
