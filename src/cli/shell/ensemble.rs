//! The verbs about the ensemble: config, reconfig. (`lockkeeper member` does the same with more care.)

use std::fs;

use super::failure::Failure;
use super::given::Given;
use super::output::{Answer, Watch};
use super::state::{Outcome, Shell};
use super::znodes::data;
use crate::config::Membership;
use crate::proto::{Request, Text};
use crate::tree::path::CONFIG;

pub(super) fn config(shell: &mut Shell, given: &Given) -> Outcome {
    let watch = given.has('w');
    // Whatever the user's root is.
    let request = Request::GetData { path: Text::from_static(CONFIG), watch };
    let (config, stat) = data(shell.znodes()?.ask(CONFIG, &request)?)?;
    let config = String::from_utf8_lossy(&config.unwrap_or_default()).into_owned();
    let answer = Answer::default().field("config", config.as_str());
    let answer = if given.has('c') {
        let connect = connect_string(&config).map_err(Failure::refused)?;
        answer.line(&connect).field("connect", connect)
    } else {
        answer.line(&config)
    };
    Ok(answer.stat(&stat, given.has('s')).watch(Watch::once(watch)))
}

/// The version, and where clients connect.
fn connect_string(config: &str) -> Result<String, String> {
    let members = Membership::parse(config)?;
    if members.servers.is_empty() {
        return Err("this server runs on its own: it has no members".to_string());
    }
    let clients = members.servers.iter().filter_map(|server| server.client.as_ref());
    let clients: Vec<String> = clients.map(ToString::to_string).collect();
    Ok(format!("{:x} {}", members.version, clients.join(",")))
}

pub(super) fn reconfig(shell: &mut Shell, given: &Given) -> Outcome {
    let [joining, leaving, members, file] =
        ["add", "remove", "members", "file"].map(|name| given.value(name));
    let changes = joining.is_some() || leaving.is_some();
    let replaces = members.is_some() || file.is_some();
    if changes == replaces || (members.is_some() && file.is_some()) {
        return Err(Failure::usage(
            "reconfig: expected -add and -remove, or -members, or -file, and no mixture",
        ));
    }
    let version = match given.value("v") {
        None => -1,
        Some(text) => i64::from_str_radix(text, 16).map_err(|_| {
            Failure::usage(format!(
                "-v: `{text}` is no version, which `config` shows in hexadecimal"
            ))
        })?,
    };
    let text = |value: Option<&str>| value.map(|value| Text::from(value.to_lowercase()));
    let members = match file {
        Some(file) => Some(Text::from(servers_of(file)?)),
        None => text(members),
    };
    let request =
        Request::Reconfig { joining: text(joining), leaving: text(leaving), members, version };
    let (config, stat) = data(shell.znodes()?.ask(CONFIG, &request)?)?;
    let config = String::from_utf8_lossy(&config.unwrap_or_default()).into_owned();
    let answer = Answer::default().line(format!("Committed new configuration:\n{config}"));
    Ok(answer.field("config", config).stat(&stat, given.has('s')))
}

/// The server lines of a file.
fn servers_of(file: &str) -> Result<String, Failure> {
    let wrong = |reason: String| Failure::usage(format!("{file}: {reason}"));
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("server."));
    let members = Membership::parse(&lines.collect::<Vec<_>>().join("\n")).map_err(wrong)?;
    if members.servers.is_empty() {
        return Err(wrong("there is no line server.N=...".to_string()));
    }
    let lines = members.servers.iter().map(|spec| format!("server.{}={spec}", spec.id));
    Ok(lines.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connect_string_has_the_clients_addresses_behind_the_version() {
        let config =
            "server.1=a:1:2:participant;a:2181\nserver.2=b:1:2;[::1]:2182\nversion=10000000a";
        assert_eq!(connect_string(config).unwrap(), "10000000a a:2181,[::1]:2182");
        assert!(connect_string("").is_err());
        assert!(connect_string("nonsense").is_err());
    }
}
