//! `lockkeeper migrate check`: all that can be looked at before anything is followed, and the plan with its addresses.
//!
//! *Owns* the findings and the words of the plan. *Invariants*: nothing is changed anywhere; a finding says what was
//! seen and by whom, and what could not be seen is said to be unknown. *Never* promises what only following shows:
//! digests, clocks, sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::place::{WhereFlags, ZooKeeper, access_of, configuration, parsed, zookeeper};
use crate::cli::admin;
use crate::cli::client::Client;
use crate::cli::flags::{Access, AdminAccess, AdminFlags, OutputFlag};
use crate::cli::output::{Failure, Said};
use crate::config::{HostPort, Membership, ServerSpec};

/// Port of ZooKeeper's AdminServer unless it is configured.
const ADMIN_PORT: u16 = 8080;
/// How long ZooKeeper's AdminServer may take.
const ADMIN_MAX: Duration = Duration::from_secs(2);
/// Limits that clients notice: by the key of each in ZooKeeper's answers and in those of Lockkeeper.
const LIMITS: [(&str, &str, &str); 3] = [
    ("configuration", "min_session_timeout", "minSessionTimeout"),
    ("configuration", "max_session_timeout", "maxSessionTimeout"),
    ("system_properties", "jute.maxbuffer", "jute.maxbuffer"),
];

/// Flags of `lockkeeper migrate check`.
#[derive(Debug, Args)]
pub(crate) struct CheckFlags {
    #[command(flatten)]
    pub(super) place: WhereFlags,
    /// ZooKeeper's AdminServers [default: port 8080 of each server, where one answers]
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    zookeeper_admin: Vec<HostPort>,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Meaning of a finding for the migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// Nothing stands against it.
    Good,
    /// Something to know; nothing stands against it.
    Note,
    /// A reason for which it would fail.
    Bad,
}

impl Means {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Bad => "no",
        }
    }
}

#[derive(Debug, Default)]
struct Findings(Vec<(Means, String)>);

impl Findings {
    fn good(&mut self, words: impl Into<String>) {
        self.0.push((Means::Good, words.into()));
    }

    fn note(&mut self, words: impl Into<String>) {
        self.0.push((Means::Note, words.into()));
    }

    fn bad(&mut self, words: impl Into<String>) {
        self.0.push((Means::Bad, words.into()));
    }
}

/// A server of this ensemble, as it tells of itself.
#[derive(Debug)]
struct Own {
    admin: HostPort,
    overview: Value,
    properties: Value,
}

impl Own {
    fn name(&self) -> String {
        format!("server {} ({})", self.overview["server"], self.admin)
    }
}

/// Runs the command.
pub(super) fn run(flags: &CheckFlags) -> Result<Said, Failure> {
    let access = flags.admin.access().map_err(Failure::usage)?;
    let mut findings = Findings::default();
    let place = zookeeper(&flags.place);
    let own = own_servers(&access, &mut findings);
    let hosts = match &place {
        Ok(place) => {
            look_at_zookeeper(place, &flags.place, &mut findings);
            reached(&access, &own, &place.quorum, &mut findings);
            look_at_admin_servers(flags, place, &own, &mut findings)
        }
        Err(failure) => {
            findings.bad(failure.text.clone());
            Vec::new()
        }
    };
    let is_good = findings.0.iter().all(|(means, _)| *means != Means::Bad);
    let mut text = String::new();
    for (means, words) in &findings.0 {
        text += &format!("{:<5} {words}\n", means.name());
    }
    let shown = |(means, words): &(Means, String)| json!({ "means": means.name(), "text": words });
    let json = json!({
        "ready": is_good,
        "findings": findings.0.iter().map(shown).collect::<Vec<_>>(),
    });
    match place {
        Ok(place) if is_good => {
            text += &plan(&place, &flags.place, &own, &hosts);
            Ok(Said { text, json })
        }
        _ => Err(Failure::refused(format!("not ready to follow\n{}", text.trim_end()))),
    }
}

/// Asks each server of this ensemble what it is.
fn own_servers(access: &AdminAccess, findings: &mut Findings) -> Vec<Own> {
    let mut found: Vec<Own> = Vec::new();
    for server in &access.servers {
        let one = AdminAccess { servers: vec![server.clone()], ..access.clone() };
        let ask = |target: &str| {
            admin::fetch(&one, target).map_err(|error| error.to_string()).and_then(parsed)
        };
        let asked = ask("/overview")
            .and_then(|overview| Ok((overview, ask("/commands/system_properties")?)))
            .and_then(|(overview, properties)| Ok((overview, properties, ask("/migration")?)));
        let (overview, properties, migration) = match asked {
            Ok(answers) => answers,
            Err(why) => {
                findings.bad(format!("{server}: {why}"));
                continue;
            }
        };
        let own = Own { admin: server.clone(), overview, properties };
        let name = own.name();
        let state = migration["state"].as_str().unwrap_or_default();
        if state == "none" && migration["is_unused"] == Value::Bool(false) {
            findings.bad(format!(
                "{name} has znodes or sessions of its own: only an ensemble that was never written to can follow"
            ));
        } else if !matches!(state, "none" | "aborted" | "stopped") {
            findings.bad(format!(
                "{name} is in a migration already, which is {state}: lockkeeper migrate status"
            ));
        } else if own.overview["serving"] == Value::Bool(true) || state != "none" {
            findings.good(format!("{name} runs and can follow"));
        } else {
            findings.bad(format!("{name} does not serve: its /readyz says why"));
        }
        found.push(own);
    }
    check_members(&found, findings);
    found
}

/// Finds whether all servers of this ensemble were asked, and clients find each.
fn check_members(own: &[Own], findings: &mut Findings) {
    let Some(first) = own.first() else { return };
    let members = first.overview["members"].as_array().cloned().unwrap_or_default();
    let asked: BTreeSet<u64> =
        own.iter().filter_map(|one| one.overview["server"].as_u64()).collect();
    for member in &members {
        let id = member["server"].as_u64().unwrap_or_default();
        if !asked.contains(&id) {
            findings.bad(format!(
                "server {id} of this ensemble was not asked: name all of them by --admin"
            ));
        }
        if member["client"].is_null() {
            findings.bad(format!(
                "the line of server {id} names no address for clients: as nothing was written here, stop all servers \
                 of this ensemble, end its line with ;<client port> in every zoo.cfg, and start them with empty data \
                 directories"
            ));
        }
    }
    if members.iter().any(|member| member["client"].as_str().is_some_and(is_everywhere)) {
        findings.note(
            "a server line of this ensemble names 0.0.0.0 for clients: they are sent to the line's own host there",
        );
    }
    let differs = |key: &str| own.iter().any(|one| one.overview[key] != first.overview[key]);
    if differs("version") {
        findings.bad("the servers of this ensemble are of different releases");
    }
    let times = || own.iter().filter_map(|one| one.overview["time_ms"].as_i64());
    let apart = times().max().zip(times().min()).map_or(0, |(last, first)| last - first);
    if apart > 10_000 {
        findings.bad(format!("the clocks of this ensemble's servers are {} s apart", apart / 1000));
    }
}

fn is_everywhere(address: &str) -> bool {
    address.starts_with("0.0.0.0:")
}

/// Finds whether the addresses of ZooKeeper are those of one ensemble, and of which.
fn look_at_zookeeper(place: &ZooKeeper, flags: &WhereFlags, findings: &mut Findings) {
    let mut texts = BTreeSet::new();
    for server in &place.clients {
        let access = Access { servers: vec![server.clone()], ..access_of(flags, Vec::new()) };
        match Client::connect(&access) {
            Ok(client) => {
                if let Ok(text) = configuration(&client) {
                    texts.insert(text);
                }
                client.close();
            }
            Err(error) => findings.bad(format!("--from {server}: {error}")),
        }
    }
    if texts.len() > 1 {
        findings.bad(
            "the addresses of --from have different /zookeeper/config: they belong to more than one ensemble, or one \
             is being changed",
        );
    }
    let ids: Vec<String> = place.members.servers.iter().map(|spec| spec.id.to_string()).collect();
    findings.good(format!(
        "ZooKeeper has the servers {} with the quorum ports {}; this ensemble joins them as server {}",
        ids.join(", "),
        place.quorum.join(", "),
        place.server_id
    ));
    if texts.iter().any(|text| Membership::has_groups(text)) {
        findings.note("ZooKeeper votes by groups and weights: `migrate finish` asks that all its servers are stopped");
    }
}

/// Finds whether each server of this ensemble reaches each of ZooKeeper's: any may come to lead.
fn reached(access: &AdminAccess, own: &[Own], quorum: &[String], findings: &mut Findings) {
    for one in own {
        let only = AdminAccess { servers: vec![one.admin.clone()], ..access.clone() };
        let target = format!("/migration/check?quorum={}", quorum.join(","));
        let answer = admin::change(&only, &target).map_err(|error| error.to_string());
        let name = one.name();
        let ports = match answer.and_then(parsed) {
            Ok(json) => json["ports"].as_array().cloned().unwrap_or_default(),
            Err(why) => {
                findings.bad(format!("{name} does not look at ZooKeeper's ports: {why}"));
                continue;
            }
        };
        if ports.len() != quorum.len() {
            findings
                .bad(format!("{name} has not looked at all of ZooKeeper's ports: it is stopping"));
            continue;
        }
        let at = |port: &Value| port["at"].as_str().unwrap_or_default().to_owned();
        let of = |state: &str| {
            ports.iter().filter(|port| port["state"] == state).map(at).collect::<Vec<_>>()
        };
        let unseen: Vec<&Value> = ports.iter().filter(|port| port["state"] == "unseen").collect();
        for port in &unseen {
            findings.bad(format!(
                "{name} cannot reach {}: {}",
                at(port),
                port["why"].as_str().unwrap_or_default()
            ));
        }
        match of("open").as_slice() {
            [] => findings.bad(format!(
                "{name} finds no leader of ZooKeeper: nothing listens at {}",
                of("closed").join(", ")
            )),
            open if unseen.is_empty() => findings.good(format!(
                "{name} reaches all quorum ports; the leader is at {}",
                open.join(", ")
            )),
            _ => {}
        }
    }
}

/// Asks ZooKeeper's AdminServers. Returns the machines whose ports for clients they do not tell.
fn look_at_admin_servers(
    flags: &CheckFlags,
    place: &ZooKeeper,
    own: &[Own],
    findings: &mut Findings,
) -> Vec<String> {
    let hosts = place.hosts();
    let named = flags.zookeeper_admin.clone();
    let likely = hosts.iter().filter_map(|host| HostPort::new(host, ADMIN_PORT).ok());
    let asked: Vec<HostPort> = if named.is_empty() { likely.collect() } else { named };
    let mut unknown: Vec<String> = hosts;
    for admin in asked {
        let access = AdminAccess {
            servers: vec![admin.clone()],
            token: None,
            tls: None,
            patience: Duration::ZERO,
            answer_max: ADMIN_MAX,
        };
        let ask = |command: &str| {
            let answer = admin::fetch(&access, &format!("/commands/{command}"));
            answer.map_err(|error| error.to_string()).and_then(parsed)
        };
        match ask("initial_configuration") {
            Ok(json) if json["initial_configuration"].is_string() => {
                unknown.retain(|host| *host != admin.host);
            }
            Ok(_) | Err(_) if flags.zookeeper_admin.is_empty() => {}
            Ok(_) => {
                findings.note(format!("the AdminServer at {admin} does not show its configuration"))
            }
            Err(why) => findings.bad(format!("the AdminServer at {admin}: {why}")),
        }
        for (command, theirs, ours) in LIMITS {
            let Ok(json) = ask(command) else { continue };
            let number = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
            let Some(at_zookeeper) = number(&json[theirs]) else { continue };
            for one in own {
                let here = number(&one.properties[ours]);
                if here.is_some_and(|here| here != at_zookeeper) {
                    findings.note(format!(
                        "{ours} is {at_zookeeper} at {admin} and {} at {}",
                        here.unwrap_or_default(),
                        one.name()
                    ));
                }
            }
        }
    }
    if !unknown.is_empty() {
        findings.note(format!(
            "no AdminServer says at which ports {} takes clients, secure ones too: the cutover will ask for \
             them by --ports",
            unknown.join(", ")
        ));
    }
    unknown
}

/// The steps, with the addresses of both.
fn plan(place: &ZooKeeper, flags: &WhereFlags, own: &[Own], unknown: &[String]) -> String {
    let admins: Vec<String> = own.iter().map(|one| one.admin.to_string()).collect();
    let admins = admins.join(",");
    let members = own.first().and_then(|one| one.overview["members"].as_array().cloned());
    let client = |member: Value| {
        let (address, client) =
            (member["address"].as_str()?.to_owned(), member["client"].as_str()?.to_owned());
        let port = client.rsplit_once(':')?.1.to_owned();
        Some(if is_everywhere(&client) { format!("{address}:{port}") } else { client })
    };
    let ours: Vec<String> = members.unwrap_or_default().into_iter().filter_map(client).collect();
    let ours = if ours.is_empty() {
        own.iter()
            .filter_map(|one| Some(one.overview["client_address"].as_str()?.to_owned()))
            .collect()
    } else {
        ours
    };
    let theirs: Vec<String> = place.clients.iter().map(ToString::to_string).collect();
    let quorum =
        flags.quorum.as_ref().map_or(String::new(), |quorum| format!(" --quorum {quorum}"));
    let ports: String = unknown.iter().map(|host| format!(" --ports {host}=<its ports>")).collect();
    format!(
        "\nplan (docs/MIGRATION.md has each step, and its way back)\n\
         1. lockkeeper migrate follow --from {from}{quorum} --server-id {id} --admin {admins}\n\
         2. give every client both ensembles, and restart it (Curator with its EnsembleTracker: the first alone):\n   \
         {ours},{from}\n\
         3. close ZooKeeper's ports to clients on {hosts}, secure ones too\n\
         4. lockkeeper migrate cutover{ports} --admin {admins}\n\
         5. stop ZooKeeper on {hosts}, keep it from starting, and leave its addresses out of the clients:\n   {ours}\n\
         6. lockkeeper migrate finish --admin {admins}\n\
         back, until step 4: give the clients both again, open ZooKeeper's ports, and then\n   \
         lockkeeper migrate abort --admin {admins}\n",
        from = theirs.join(","),
        id = place.server_id,
        hosts = place.hosts().join(", "),
        ours = ours.join(","),
    )
}

impl ZooKeeper {
    /// Names of its machines.
    fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = Vec::new();
        let of_lines = self.members.servers.iter().flat_map(|spec: &ServerSpec| &spec.addresses);
        let quorum = self.quorum.iter().filter_map(|at| Some(at.rsplit_once(':')?.0.to_owned()));
        for host in of_lines.map(|address| address.host.clone()).chain(quorum) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(server: u64, more: &Value) -> Own {
        let mut overview = json!({
            "server": server, "version": "1", "time_ms": 0,
            "members": [{ "server": 1, "client": "lk1:2181" }, { "server": 2, "client": "lk2:2181" }],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            overview[key] = value.clone();
        }
        let admin = HostPort::new("lk", 8080).expect("it is one");
        Own { admin, overview, properties: Value::Null }
    }

    #[test]
    fn what_would_fail_behind_the_first_step_is_found_before_it() {
        let found = |own: &[Own]| {
            let mut findings = Findings::default();
            check_members(own, &mut findings);
            findings.0
        };
        let none = json!({});
        assert_eq!(found(&[own(1, &none), own(2, &none)]), []);
        let nameless = json!({ "members": [{ "server": 1, "client": null }] });
        for (servers, words) in [
            (vec![own(1, &none)], "server 2 of this ensemble was not asked"),
            (vec![own(1, &nameless)], "names no address for clients"),
            (vec![own(1, &none), own(2, &json!({ "version": "2" }))], "different releases"),
            (vec![own(1, &none), own(2, &json!({ "time_ms": 60_000 }))], "60 s apart"),
        ] {
            let found = found(&servers);
            assert!(
                matches!(&found[..], [(Means::Bad, said)] if said.contains(words)),
                "{found:?} for {words}"
            );
        }
    }
}
