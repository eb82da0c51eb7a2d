//! A client's write, decided against the znodes.
//!
//! *Owns* which call of the tree each request is. *Invariant*: the same tree, context and request give the same result
//! and events. *Never* looks at a session: its owner was checked before.

use bytes::Bytes;

use super::members::{self, Asked};
use crate::proto::request::{CreateKind, Request, Undecodable};
use crate::proto::{ErrorCode, Response};
use crate::tree::{Context, Event, Tree};

/// Decides a client's write.
pub(super) fn write(
    tree: &mut Tree,
    context: &Context<'_>,
    request: Result<Request, Undecodable>,
    events: &mut Vec<Event>,
) -> Result<Response, ErrorCode> {
    match request {
        Err(_) => Err(ErrorCode::Marshalling),
        Ok(Request::Create(create)) => {
            let created = tree.create(context, &create, events)?;
            Ok(match create.kind {
                CreateKind::Create => Response::Path(created.path),
                CreateKind::Create2 | CreateKind::Container | CreateKind::Ttl => {
                    Response::PathStat(created.path, created.stat)
                }
            })
        }
        Ok(Request::Delete { path, version }) => {
            tree.delete(context, &path, version, events).map(|()| Response::Empty)
        }
        Ok(Request::SetData { path, data, version }) => {
            tree.set_data(context, &path, data.as_deref(), version, events).map(Response::Stat)
        }
        Ok(Request::SetAcl { path, acl, version }) => {
            tree.set_acl(context, &path, acl.as_deref(), version).map(Response::Stat)
        }
        Ok(Request::Reconfig { joining, leaving, members, version }) => {
            let (joining, leaving) = (joining.as_ref(), leaving.as_ref());
            let asked = Asked { joining, leaving, members: members.as_ref() };
            reconfig(tree, context, asked, version, events)
        }
        // One that waited for another ensemble's word when this one began to decide.
        Ok(Request::Sync { path }) => Ok(Response::Echo(path)),
        Ok(Request::Multi(ops)) => Ok(Response::Multi(match tree.multi(context, &ops, events) {
            Ok(results) | Err(results) => results,
        })),
        // Reads are never proposed; in an entry, they are as malformed as noise.
        Ok(_) => Err(ErrorCode::Marshalling),
    }
}

/// Changes the members of the ensemble. A client that may not is told nothing else.
fn reconfig(
    tree: &mut Tree,
    context: &Context<'_>,
    asked: Asked<'_>,
    version: i64,
    events: &mut Vec<Event>,
) -> Result<Response, ErrorCode> {
    let text = tree.config_text();
    let is_refused = tree.config_refuses(context.asker());
    if text.is_empty() {
        // A server on its own has no members.
        let told = if is_refused { ErrorCode::NoAuth } else { ErrorCode::Unimplemented };
        return Err(told);
    }
    if version != -1 && version != members::version(text) {
        return Err(ErrorCode::BadVersion);
    }
    let changed = members::change(&members::parse(text), asked);
    // In ZooKeeper's order: a client that may not do it is told what makes no sense in it.
    if is_refused && !matches!(changed, Err(ErrorCode::BadArguments | ErrorCode::Marshalling)) {
        return Err(ErrorCode::NoAuth);
    }
    let changed = changed?;
    let text = members::text(&changed, context.zxid);
    let stat = tree.set_config(context, Some(context.asker()), &text, events)?;
    Ok(Response::Data(Some(Bytes::from(text)), stat))
}
