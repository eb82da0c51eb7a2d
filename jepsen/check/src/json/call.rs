//! Calls and answers as JSON: the fields `f` and `value` of a line.

use serde_json::{Map, Value, json};

use super::fields::{self, Fault, Fields, acl_value, data_value, hex, stat_value};
use crate::op::{Acl, Answer, Call, Code, Create, CreateOp, Mode, SetWatches};

const CREATES: [(CreateOp, &str); 4] = [
    (CreateOp::Create, "create"),
    (CreateOp::Create2, "create2"),
    (CreateOp::Container, "createContainer"),
    (CreateOp::Ttl, "createTTL"),
];

/// The name of a call, as the field `f` and audit logs have it.
pub fn name(call: &Call) -> &str {
    match call {
        Call::Connect { .. } => "connect",
        Call::Close => "closeSession",
        Call::Ping => "ping",
        Call::Create(create) => {
            CREATES.iter().find(|(op, _)| *op == create.op).expect("all are in the table").1
        }
        Call::Delete { .. } => "delete",
        Call::SetData { .. } => "setData",
        Call::SetAcl { .. } => "setACL",
        Call::Check { .. } => "check",
        Call::Multi(_) => "multi",
        Call::Exists { .. } => "exists",
        Call::GetData { .. } => "getData",
        Call::GetAcl { .. } => "getACL",
        Call::GetChildren { stat: false, .. } => "getChildren",
        Call::GetChildren { stat: true, .. } => "getChildren2",
        Call::AllChildrenNumber { .. } => "getAllChildrenNumber",
        Call::Ephemerals { .. } => "getEphemerals",
        Call::MultiRead(_) => "multiRead",
        Call::Sync { .. } => "sync",
        Call::SetWatches(_) => "setWatches",
        Call::AddWatch { .. } => "addWatch",
        Call::RemoveWatches { .. } => "removeWatches",
        Call::Other(name) => name,
    }
}

/// Reads the arguments of a call.
pub fn call(f: &str, value: &Value) -> Result<Call, Fault> {
    let none = Map::new();
    let fields = if value.is_null() { Fields(&none) } else { Fields::of(value, "value")? };
    if let Some((op, _)) = CREATES.iter().find(|(_, name)| *name == f) {
        return create(*op, fields).map(Call::Create);
    }
    let path = || fields.text("path");
    let watch = || fields.flag("watch");
    let version = || fields.int_or("version", -1);
    Ok(match f {
        "connect" => Call::Connect {
            session: fields.long_or("session", 0)?,
            timeout_ms: fields.int("timeout")?,
            last_zxid: fields.long_or("lastZxid", 0)?,
        },
        "closeSession" => Call::Close,
        "ping" => Call::Ping,
        "delete" => Call::Delete { path: path()?, version: version()? },
        "setData" => {
            Call::SetData { path: path()?, data: fields.data("data")?, version: version()? }
        }
        "setACL" => {
            let acl = fields.acl("acl")?.ok_or("acl is missing")?;
            Call::SetAcl { path: path()?, acl, version: version()? }
        }
        "check" => Call::Check { path: path()?, version: version()? },
        "multi" => Call::Multi(parts(fields, Call::is_write)?),
        "exists" => Call::Exists { path: path()?, watch: watch()? },
        "getData" => Call::GetData { path: path()?, watch: watch()? },
        "getACL" => Call::GetAcl { path: path()? },
        "getChildren" => Call::GetChildren { path: path()?, watch: watch()?, stat: false },
        "getChildren2" => Call::GetChildren { path: path()?, watch: watch()?, stat: true },
        "getAllChildrenNumber" => Call::AllChildrenNumber { path: path()? },
        "getEphemerals" => Call::Ephemerals { prefix: fields.text("prefix")? },
        "multiRead" => Call::MultiRead(parts(fields, Call::is_read)?),
        "sync" => Call::Sync { path: path()? },
        "setWatches" => Call::SetWatches(SetWatches {
            relative_zxid: fields.long("relativeZxid")?,
            data: fields.texts("data")?,
            exist: fields.texts("exist")?,
            child: fields.texts("child")?,
            persistent: fields.texts("persistent")?,
            recursive: fields.texts("recursive")?,
        }),
        "addWatch" => Call::AddWatch { path: path()?, recursive: fields.flag("recursive")? },
        "removeWatches" => Call::RemoveWatches { path: path()?, kind: fields.int("kind")? },
        "reconfig" => Call::Other(f.to_owned()),
        _ => return Err(format!("f is no operation: {f}")),
    })
}

fn create(op: CreateOp, fields: Fields<'_>) -> Result<Create, Fault> {
    let mode = match fields.maybe_text("mode")? {
        None => Mode::Persistent,
        Some(named) => {
            let known = Mode::ALL.iter().find(|(_, name)| *name == named);
            known.ok_or_else(|| format!("mode is none: {named}"))?.0
        }
    };
    Ok(Create {
        op,
        path: fields.text("path")?,
        data: fields.data("data")?,
        acl: fields.acl("acl")?.unwrap_or_else(Acl::open),
        mode,
        ttl_ms: fields.long_or("ttl", 0)?,
    })
}

/// Parts are of the one kind or the other, and have no parts themselves.
fn parts(fields: Fields<'_>, fits: fn(&Call) -> bool) -> Result<Vec<Call>, Fault> {
    let part = |value: &Value| {
        let part = Fields::of(value, "a part")?;
        let f = part.text("f")?;
        if f == "multi" || f == "multiRead" {
            return Err(format!("{f} cannot be a part"));
        }
        let read = call(&f, part.maybe("value").unwrap_or(&Value::Null))?;
        if fits(&read) { Ok(read) } else { Err(format!("{f} cannot be a part of this")) }
    };
    fields.list("ops")?.iter().map(part).collect()
}

/// The arguments of a call as JSON.
pub fn call_value(call: &Call) -> Value {
    match call {
        Call::Connect { session, timeout_ms, last_zxid } => {
            json!({"session": hex(*session), "timeout": timeout_ms, "lastZxid": last_zxid})
        }
        Call::Close | Call::Ping | Call::Other(_) => Value::Null,
        Call::Create(create) => create_value(create),
        Call::Delete { path, version } | Call::Check { path, version } => {
            json!({"path": path, "version": version})
        }
        Call::SetData { path, data, version } => {
            json!({"path": path, "data": data_value(data), "version": version})
        }
        Call::SetAcl { path, acl, version } => {
            json!({"path": path, "acl": acl_value(acl), "version": version})
        }
        Call::Multi(parts) | Call::MultiRead(parts) => {
            let part = |part: &Call| json!({"f": name(part), "value": call_value(part)});
            json!({"ops": parts.iter().map(part).collect::<Value>()})
        }
        Call::Exists { path, watch }
        | Call::GetData { path, watch }
        | Call::GetChildren { path, watch, .. } => json!({"path": path, "watch": watch}),
        Call::GetAcl { path } | Call::AllChildrenNumber { path } | Call::Sync { path } => {
            json!({"path": path})
        }
        Call::Ephemerals { prefix } => json!({"prefix": prefix}),
        Call::SetWatches(watches) => json!({
            "relativeZxid": watches.relative_zxid, "data": watches.data, "exist": watches.exist,
            "child": watches.child, "persistent": watches.persistent,
            "recursive": watches.recursive,
        }),
        Call::AddWatch { path, recursive } => json!({"path": path, "recursive": recursive}),
        Call::RemoveWatches { path, kind } => json!({"path": path, "kind": kind}),
    }
}

fn create_value(create: &Create) -> Value {
    let mode = Mode::ALL.iter().find(|(mode, _)| *mode == create.mode).expect("all are there").1;
    let mut value = json!({"path": create.path, "data": data_value(&create.data), "mode": mode});
    if create.acl != Acl::open() {
        value["acl"] = acl_value(&create.acl);
    }
    if create.ttl_ms != 0 {
        value["ttl"] = json!(create.ttl_ms);
    }
    value
}

/// Reads the answer to a call.
pub fn answer(call: &Call, value: &Value) -> Result<Answer, Fault> {
    let fields = || Fields::of(value, "value");
    Ok(match call {
        Call::Connect { .. } => Answer::Session {
            session: fields()?.long("session")?,
            timeout_ms: fields()?.int("timeout")?,
        },
        Call::Create(create) if create.op == CreateOp::Create => {
            Answer::Path(fields::text(value).ok_or("value is no path")?)
        }
        Call::Create(_) => Answer::PathStat(fields()?.text("path")?, fields()?.stat("stat")?),
        Call::SetData { .. } | Call::SetAcl { .. } | Call::Exists { .. } => {
            Answer::Stat(fields::stat(value)?)
        }
        Call::GetData { .. } => Answer::Data(fields()?.data("data")?, fields()?.stat("stat")?),
        Call::GetAcl { .. } => {
            let acl = fields()?.acl("acl")?.ok_or("acl is missing")?;
            Answer::Acl(acl, fields()?.stat("stat")?)
        }
        Call::GetChildren { stat, .. } => {
            fields()?.need("children")?;
            let names = fields()?.texts("children")?;
            let stat = if *stat { Some(fields()?.stat("stat")?) } else { None };
            Answer::Children(names, stat)
        }
        Call::AllChildrenNumber { .. } => {
            let number = fields::long(value).and_then(|number| i32::try_from(number).ok());
            Answer::Number(number.ok_or("value is no number of 32 bits")?)
        }
        Call::Ephemerals { .. } => Answer::Paths(fields()?.texts("paths")?),
        Call::Multi(parts) | Call::MultiRead(parts) => {
            let results = value.as_array().ok_or("value is no list of results")?;
            if results.len() != parts.len() {
                let (said, asked) = (results.len(), parts.len());
                return Err(format!("value has {said} results, {asked} were asked for"));
            }
            let pairs = parts.iter().zip(results);
            let results = pairs.map(|(part, result)| part_result(part, result));
            Answer::Parts(results.collect::<Result<_, _>>()?)
        }
        Call::Close
        | Call::Ping
        | Call::Delete { .. }
        | Call::Check { .. }
        | Call::Sync { .. }
        | Call::SetWatches(_)
        | Call::AddWatch { .. }
        | Call::RemoveWatches { .. }
        | Call::Other(_) => Answer::Done,
    })
}

fn part_result(part: &Call, value: &Value) -> Result<Result<Answer, Code>, Fault> {
    let fields = Fields::of(value, "a result")?;
    if let Some(error) = fields.maybe("error") {
        return code(error).map(Err);
    }
    let value = fields.0.get("ok").ok_or("a result is neither ok nor error")?;
    answer(part, value).map(Ok)
}

/// Reads an error code: its name, or its number.
pub fn code(value: &Value) -> Result<Code, Fault> {
    let number = || fields::long(value).and_then(|number| i32::try_from(number).ok()).map(Code);
    let known = value.as_str().and_then(Code::from_name).or_else(number);
    known.ok_or_else(|| format!("error is no code: {value}"))
}

/// An error code as JSON.
pub fn code_value(code: Code) -> Value {
    code.name().map_or_else(|| json!(code.0), |name| json!(name))
}

/// An answer as JSON.
pub fn answer_value(answer: &Answer) -> Value {
    match answer {
        Answer::Done => Value::Null,
        Answer::Session { session, timeout_ms } => {
            json!({"session": hex(*session), "timeout": timeout_ms})
        }
        Answer::Path(path) => json!(path),
        Answer::PathStat(path, stat) => json!({"path": path, "stat": stat_value(stat)}),
        Answer::Stat(stat) => stat_value(stat),
        Answer::Data(data, stat) => json!({"data": data_value(data), "stat": stat_value(stat)}),
        Answer::Acl(acl, stat) => json!({"acl": acl_value(acl), "stat": stat_value(stat)}),
        Answer::Children(names, None) => json!({"children": names}),
        Answer::Children(names, Some(stat)) => {
            json!({"children": names, "stat": stat_value(stat)})
        }
        Answer::Number(number) => json!(number),
        Answer::Paths(paths) => json!({"paths": paths}),
        Answer::Parts(results) => results
            .iter()
            .map(|result| match result {
                Ok(answer) => json!({"ok": answer_value(answer)}),
                Err(code) => json!({"error": code_value(*code)}),
            })
            .collect(),
    }
}
