//! The keys of what servers are to each other and to their clients as an ensemble.
//!
//! *Owns* their entries of the table. *Never* looks at several keys together: `ensemble.rs` and the draft do.

use super::key::Key;
use super::values::{optional_path, u32_of};

/// Longest time that may be added to session timeouts, ms.
const SESSION_EXPIRY_GRACE_MS_MAX: i64 = 3_600_000;
const AS_ZOOKEEPER: &str = "zookeeper";
const LINEARIZABLE: &str = "linearizable";

/// The section's keys.
pub(super) static KEYS: [Key; 9] = [
    Key::effective(
        "standaloneEnabled",
        "true",
        |c| c.standalone_enabled.to_string(),
        "With true one participant is a single server. With false it is an ensemble of one, which \
         others can join, and there must be server lines.",
    )
    .switch(|c, on| c.standalone_enabled = on),
    Key::effective(
        "quorumListenOnAllIPs",
        "false",
        |c| c.quorum_listen_on_all_ips.to_string(),
        "Listen for the other servers at all addresses of this machine, at the ports of the own server \
         line. With false at the addresses of the own line; where its name is that of a loopback address on \
         this machine alone (Debian's `127.0.1.1`), or of none of its addresses, at all of them all the same, \
         with a warning.",
    )
    .switch(|c, on| c.quorum_listen_on_all_ips = on),
    Key::effective(
        "multiAddress.enabled",
        "true",
        |c| c.multi_address.to_string(),
        "A server line may have several addresses: all are listened at, and tried in turn. With false such a line \
         is refused, in the file and by `reconfig`, as ZooKeeper does; there false is the default.",
    )
    .switch(|c, on| c.multi_address = on)
    .on_leader("`reconfig`"),
    Key::effective(
        "reconfigEnabled",
        "false",
        |c| c.reconfig_enabled.to_string(),
        "Allow the operation `reconfig` and `lockkeeper member`, and write the server lines to \
         dynamicConfigFile when they change. In an ensemble the leader allows the operation or refuses it, \
         whichever server is asked; each server writes its own file. A single server answers `unimplemented`.",
    )
    .switch(|c, on| c.reconfig_enabled = on)
    .on_leader("the operation"),
    Key::effective(
        "readonlymode.enabled",
        "false",
        |c| c.read_only_mode_enabled.to_string(),
        "A server of an ensemble that has no leader serves reads to clients that ask for read-only \
         mode, with sessions that only it knows. Adds `isro` to the words that are answered.",
    )
    .switch(|c, on| c.read_only_mode_enabled = on)
    .or_else("false"),
    Key::effective(
        "lockkeeper.reads",
        "zookeeper",
        |c| if c.linearizable_reads { LINEARIZABLE } else { AS_ZOOKEEPER }.to_string(),
        "What reads of this server's clients see. `zookeeper`: its own tree, never behind the \
         session's own writes and never backwards, but perhaps behind other servers. \
         `linearizable`: everything that was acknowledged to any client before the read began; each \
         batch of reads then costs a round trip to the leader and from it to a majority, and \
         without a leader there are no reads.",
    )
    .text("zookeeper or linearizable", |c, text| {
        c.linearizable_reads = match text {
            AS_ZOOKEEPER => false,
            LINEARIZABLE => true,
            _ => return Err(format!("`{text}` is neither {AS_ZOOKEEPER} nor {LINEARIZABLE}")),
        };
        Ok(())
    }),
    Key::effective(
        "lockkeeper.sessionExpiryGraceMillis",
        "0",
        |c| c.session_expiry_grace_ms.to_string(),
        "How much longer than its timeout a session lives that is not heard from, ms. A client that \
         measures its own timeout has then given up its locks before another client gets them. \
         Closing a session is not delayed.",
    )
    .number(0, SESSION_EXPIRY_GRACE_MS_MAX, |c, n| c.session_expiry_grace_ms = u32_of(n))
    .on_leader(""),
    Key::effective(
        "lockkeeper.computedSessionPasswords",
        "false",
        |c| c.computed_session_passwords.to_string(),
        "Sessions that are opened at this server get the password that ZooKeeper computes of their id, so that \
         `lockkeeper export --zookeeper` keeps them. Off, because a client that knows the id of a session can compute \
         such a password, and take the session over: ids are in znodes, logs and the console. An earlier release \
         stops at the entry of such a session: all servers have to know the key before one of them has it.",
    )
    .switch(|c, on| c.computed_session_passwords = on),
    Key::effective(
        "dynamicConfigFile",
        "",
        |c| c.dynamic_config_file.clone().unwrap_or_default(),
        "File with the server lines, which must then not be in this one. With reconfigEnabled a \
         server writes one beside its configuration file whenever the membership changes, and \
         names it here.",
    )
    .text("a path, or nothing", |c, text| {
        optional_path(text)?;
        c.dynamic_config_file = (!text.is_empty()).then(|| text.to_string());
        Ok(())
    }),
];
