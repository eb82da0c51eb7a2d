//! The table of keys without effect: accepted and listed, warned about, or refused by name.
//!
//! Owns the reasons: each says what the key does in ZooKeeper 3.9 and why nothing follows from it here, and
//! was checked against ZooKeeper's sources. Invariants: a key that asks for protection which is not there is
//! refused, save the few that clients' test suites always write (those warn); one that decides where a server
//! listens, whom it reaches or whom it serves is never ignored without a warning; a key of ZooKeeper's own
//! parser is still checked for its form, as ZooKeeper does. Families (`ssl.*`) catch what has no entry of its
//! own. Every key of ZooKeeper 3.9 is in this table or in `table.rs`: what is in neither is a mistake.

use super::Config;
use super::key::{Effect, Form, Key};
use super::servers::Role;

/// Every key that is known and does nothing here.
pub(super) static ACCEPTED: [Key; 102] = [
    // --- keys that ZooKeeper's parser checks
    limit(
        "initLimit",
        "how many ticks a server may take to connect and to catch up; here it may take as long as it needs",
        |config, ticks| config.raw.init_limit = Some(ticks),
    ),
    limit(
        "syncLimit",
        "how far a follower may lag; Raft sends it what it lacks, however far. So many ticks are the \
         default of lockkeeper.diskStallMillis",
        |config, ticks| config.raw.sync_limit = Some(ticks),
    ),
    whole(
        "connectToLearnerMasterLimit",
        "how many ticks a server tries to reach the leader before it looks for another one; here each \
         server tries each other for ever",
    ),
    whole("quorum.cnxn.threads.size", "threads for SASL between servers, which is not offered"),
    whole("multiAddress.reachabilityCheckTimeoutMs", REACHABILITY),
    switch("multiAddress.reachabilityCheckEnabled", REACHABILITY),
    switch("syncEnabled", OBSERVER_DISK),
    Key::without_effect(
        "electionAlg",
        Effect::Ignored,
        Form::Number { min: 3, max: 3, set: |_, _| {} },
        "elections are Raft's; ZooKeeper has one kind left, too",
    ),
    Key::without_effect(
        "peerType",
        Effect::Ignored,
        Form::Text {
            limits: "participant or observer",
            set: |config, text| {
                config.raw.peer_type = Some(Role::parse(text)?);
                Ok(())
            },
        },
        "the role is what the server lines say, as in ZooKeeper; one that differs is warned of",
    ),
    switch(
        "localSessionsUpgradingEnabled",
        "only read-only mode has local sessions, and those are never upgraded",
    ),
    whole("autopurge.snapRetainCount", PURGE),
    any("autopurge.purgeInterval", PURGE),
    switch("jvm.pause.monitor", JVM),
    long("jvm.pause.warn-threshold.ms", JVM),
    long("jvm.pause.info-threshold.ms", JVM),
    long("jvm.pause.sleep.time.ms", JVM),
    switch("sslQuorumReloadCertFiles", "changed files of keys and certificates are always used"),
    any(
        "ssl.quorum.allowReverseDnsLookup",
        "names of addresses are not looked up: see ssl.quorum.hostnameVerification",
    ),
    any("ssl.quorum.sslProvider", "there is one implementation of TLS"),
    // --- durability
    Key::without_effect(
        "forceSync",
        Effect::Ignored,
        Form::YesNo { set: |config, on| config.raw.force_sync_off = !on },
        "every write is on disk before it is acknowledged; there is no way to switch that off",
    )
    .or_else("yes"),
    any("snapCount", IMAGES),
    any("snapSizeLimitInKb", IMAGES),
    any("snapshotSizeFactor", IMAGES),
    any("txnLogSizeLimitInKb", LOG),
    any("preAllocSize", LOG),
    any("flushDelay", LOG),
    any("maxWriteQueuePollTime", LOG),
    any("maxBatchSize", LOG),
    any(
        "commitLogCount",
        "entries that a follower lacks come from the log on disk, as far as it goes",
    ),
    any(
        "digest.enabled",
        "a digest of the tree in ZooKeeper's snapshots and log; here entries and images always have \
         checksums, and images a digest of the state",
    ),
    any("closeSessionTxn.enabled", "closing a session always names what it deletes"),
    any("serializeLastProcessedZxid.enabled", "images always hold the last zxid"),
    any("snapshot.compression.method", "images are not compressed"),
    any("snapshot.trust.empty", "for ZooKeeper's own logs without a snapshot, which are not read"),
    any("emulate353TTLNodes", "TTL znodes have ZooKeeper's present form only"),
    // --- flow control and threads
    any("largeRequestMaxBytes", FLOW),
    any("largeRequestThreshold", FLOW),
    any("request_throttle_*", FLOW),
    any("request_throttler.*", FLOW),
    any("request_stale_*", "a request whose client has gone is carried out all the same"),
    any("throttled_op_wait_time", FLOW),
    any(
        "connection_throttle_*",
        "new connections are admitted at lockkeeper.admissionRate, and none is refused for it",
    ),
    any("maxResponseCacheSize", CACHE),
    any("maxGetChildrenResponseCacheSize", CACHE),
    any("nio.*", THREADS),
    any("netty.*", THREADS),
    any("commitProcessor.*", THREADS),
    any("intBufferStartingSizeBytes", THREADS),
    any("bitHashCacheSize", WATCHES),
    any("maxInProcessingDeadWatchers", WATCHES),
    any("serverCnxnFactory", "there is one network layer"),
    any("watchManagerName", WATCHES),
    any("watcherClean*", WATCHES),
    any("jute.maxbuffer.extrasize", "records are bounded by the frame they come in"),
    // --- the admin server, metrics, logs
    any("admin.idleTimeout", "the HTTP server has its own fixed timeouts"),
    any("admin.httpVersion", "the HTTP server speaks HTTP/1.1"),
    any("admin.snapshot.intervalInMS", SNAPSHOT_PAUSE),
    any("admin.restore.*", NO_RESTORE),
    any("admin.rateLimiterIntervalInMS", SNAPSHOT_PAUSE),
    any("metricsProvider.*", "of the threads and the JVM of ZooKeeper's provider: there are none"),
    any("pathStats.*", "figures for each path are not kept"),
    any("messageTracker.*", "messages between servers are not kept to be logged"),
    any("jmx.*", JVM),
    any("audit.impl.class", "there is one audit log: lockkeeper.auditLog"),
    // --- between servers
    any("leader.*", "how ZooKeeper's leader connects and sends; Raft's has limits of its own"),
    any(
        "follower.*",
        "how ZooKeeper's follower sends; requests go to the leader in batches at once",
    ),
    any("learner.*", "how ZooKeeper's followers send and close; here no sending waits for another"),
    Key::without_effect(
        "leaderServes",
        Effect::Ignored,
        Form::Text {
            limits: "any text",
            set: |config, text| {
                config.raw.leader_serves_not = text == "no";
                Ok(())
            },
        },
        "with `no` ZooKeeper's leader takes no clients; here it serves them as every server does, and \
         `no` is warned of",
    ),
    any("observer.syncEnabled", OBSERVER_DISK),
    any(
        "observer.*",
        "when an observer connects again; here each server tries each other for ever",
    ),
    any("observerMaster.*", "observers are sent everything by the leader"),
    any("leaderConnectDelayDuringRetryMs", "links are tried again after a pause of their own"),
    any(
        "forceSnapshotSync",
        "a server is sent an image only if the log no longer has what it lacks",
    ),
    any(
        "forward_learner_requests_to_commit_processor_disabled",
        "requests of followers' clients have one way through the leader",
    ),
    any(
        "fastleader.*",
        "pauses of ZooKeeper's election; Raft's timeouts do not depend on the configuration",
    ),
    any("cnxTimeout", ELECTION_LINKS),
    any("quorumCnxnTimeoutMs", ELECTION_LINKS),
    any("tcpKeepAlive", ELECTION_LINKS),
    any(
        "electionPortBindRetry",
        "the election port is not bound. A port for the other servers that is taken ends the start of a new \
         server; a member tries again for ever, and is not ready meanwhile",
    ),
    // --- authentication that is not there, in settings that ask for nothing by themselves
    any("quorum.auth.*", "names of SASL between servers, which quorum.auth.enableSasl asks for"),
    any("sasl.*", "a setting of clients, or of Java's Kerberos"),
    any("kerberos.*", KERBEROS),
    any("security.*", KERBEROS),
    any("requireKerberosConfig", KERBEROS),
    any("kinit", KERBEROS),
    any("jaasLoginRenew", NOT_READ),
    any(
        "IPAuthenticationProvider.*",
        "a header of HTTP that ZooKeeper's admin server may trust; ip ids are the connection's own address",
    ),
    any("fips-mode", "a mode of Java's cryptography"),
    any("client.certReload", "certificates are read again by a restart only, yet"),
    any(
        "ssl.hostnameVerification",
        "of connections that a server opens: those to other servers go by ssl.quorum.hostnameVerification",
    ),
    any(
        "ssl.allowReverseDnsLookup",
        "addresses of clients are not compared with their certificates",
    ),
    any("ssl.sslProvider", "there is one"),
    // --- what files have, and ZooKeeper 3.9 does not read
    any("traceFile", NOT_READ),
    any("requestTraceFile", NOT_READ),
    any("clientCnxnSocket", CLIENTS),
    any("serverCnxnSocket", NOT_READ),
    any("request.timeout", CLIENTS),
    any("disableAutoWatchReset", CLIENTS),
    any("maxTimeToWaitForEpoch", NOT_READ),
    any("adminPort", NOT_READ),
    any("test.*", "for ZooKeeper's own tests"),
    any("testingonly.*", "for ZooKeeper's own tests"),
];

/// Keys that ask for something that is not there, and are written too often to be refused.
pub(super) static WARNED: [Key; 8] = [
    warned(
        "observerMasterPort",
        Form::Number { min: i32::MIN as i64, max: i32::MAX as i64, set: |_, _| {} },
        "this port is not opened: observers connect to the first port of the server lines, as all servers do",
    ),
    warned(
        "localSessionsEnabled",
        SWITCH,
        "local sessions are not offered, except in read-only mode: every session is global",
    ),
    warned("ssl.*", ANY, "this key of TLS is not offered"),
    warned("ssl.quorum.*", ANY, "this key of TLS is not offered"),
    warned(
        "java.security.auth.login.config",
        ANY,
        "a property of the JVM, which ZooKeeper does not read from this file: give the file with the users to \
         lockkeeper.jaasFile",
    ),
    warned(
        "requireClientAuthScheme",
        ANY,
        "ZooKeeper 3.9 does not read it either: clients that do not authenticate are served. What was meant is \
         probably enforce.auth.enabled=true with enforce.auth.schemes",
    ),
    warned("ensembleAuthName", ANY, "clients that expect another ensemble are not turned away"),
    warned("audit.enable", ANY, "ZooKeeper's audit log is not offered; see lockkeeper.auditLog"),
];

/// The lines are judged together, in `groups.rs`.
const ONE_VOTE: &str = "hierarchical quorums are not offered: every server has one vote. One group of all participants \
                        with equal weights decides as no groups do, and is taken";

/// Keys that ask for protection or for other quorums than there are: starting without them would
/// be worse than not starting.
pub(super) static REFUSED: [Key; 14] = [
    refused(
        "ssl.crl",
        SWITCH,
        "revocation lists are not fetched; give their file to lockkeeper.ssl.crlFile",
    ),
    refused(
        "ssl.ocsp",
        SWITCH,
        "nothing is fetched to judge a certificate; see lockkeeper.ssl.crlFile",
    ),
    refused(
        "ssl.clientHostnameVerification",
        SWITCH,
        "addresses of clients are not compared with their certificates",
    ),
    refused("ssl.context.supplier.class", ANY, "it is a class of Java"),
    refused("ssl.authProvider", ANY, "the one provider is x509, and is there by itself"),
    refused(
        "ssl.quorum.crl",
        SWITCH,
        "revocation lists are not fetched; give their file to lockkeeper.ssl.quorum.crlFile",
    ),
    refused(
        "ssl.quorum.ocsp",
        SWITCH,
        "nothing is fetched to judge a certificate; see lockkeeper.ssl.quorum.crlFile",
    ),
    refused("ssl.quorum.context.supplier.class", ANY, "it is a class of Java"),
    refused("quorum.auth.enableSasl", SWITCH, PEER_SASL),
    refused("quorum.auth.serverRequireSasl", SWITCH, PEER_SASL),
    refused("quorum.auth.learnerRequireSasl", SWITCH, PEER_SASL),
    refused("oraclePath", ANY, "two servers with an oracle are not offered"),
    refused("group.N", ANY, ONE_VOTE),
    refused("weight.N", ANY, ONE_VOTE),
];

const fn any(name: &'static str, why: &'static str) -> Key {
    Key::without_effect(name, Effect::Ignored, ANY, why)
}

const fn whole(name: &'static str, why: &'static str) -> Key {
    let form = Form::Number { min: i32::MIN as i64, max: i32::MAX as i64, set: |_, _| {} };
    Key::without_effect(name, Effect::Ignored, form, why)
}

/// ZooKeeper reads these as 64-bit integers.
const fn long(name: &'static str, why: &'static str) -> Key {
    let form = Form::Number { min: -i64::MAX, max: i64::MAX, set: |_, _| {} };
    Key::without_effect(name, Effect::Ignored, form, why)
}

const fn limit(name: &'static str, why: &'static str, set: fn(&mut Config, i64)) -> Key {
    let form = Form::Number { min: i32::MIN as i64, max: i32::MAX as i64, set };
    Key::without_effect(name, Effect::Ignored, form, why)
}

const fn switch(name: &'static str, why: &'static str) -> Key {
    Key::without_effect(name, Effect::Ignored, SWITCH, why)
}

const fn warned(name: &'static str, form: Form, why: &'static str) -> Key {
    Key::without_effect(name, Effect::Warned, form, why)
}

const fn refused(name: &'static str, form: Form, why: &'static str) -> Key {
    Key::without_effect(name, Effect::Refused, form, why)
}

const ANY: Form = Form::Text { limits: "any text", set: |_, _| Ok(()) };
const SWITCH: Form = Form::Switch { set: |_, _| {} };
const REACHABILITY: &str = "pings before an address is tried; here the addresses are tried in turn";
const OBSERVER_DISK: &str = "whether observers keep their data on disk: every server does, unless it is \
                             started with --in-memory";
const ELECTION_LINKS: &str = "of ZooKeeper's election connections; here one link carries all, with \
                              heartbeats, and is cut when they stop";
const PURGE: &str = "the server deletes what its images and log no longer need by itself";
const JVM: &str = "there is no JVM";
const IMAGES: &str =
    "when ZooKeeper writes snapshots; images are written by lockkeeper.imageLogBytes";
const LOG: &str = "the log batches, preallocates and cuts by its own rules";
const FLOW: &str = "flow control is globalOutstandingLimit and bounded queues";
const CACHE: &str = "replies are not cached";
const THREADS: &str = "the server chooses its threads and buffers itself";
const WATCHES: &str = "there is one watch table";
const SNAPSHOT_PAUSE: &str =
    "the command snapshot is answered every 0.3 s, as ZooKeeper does it unless told otherwise";
const NO_RESTORE: &str = "the command restore is not offered: `lockkeeper snapshot restore`";
const KERBEROS: &str = "a setting of Java's Kerberos: here that is MIT's, which reads krb5.conf";
const PEER_SASL: &str = "SASL between servers is not offered; lockkeeper.peerSecretFile with a secret that all servers \
     share takes its place";
const NOT_READ: &str = "ZooKeeper 3.9 does not read it either";
const CLIENTS: &str = "a setting of clients: no server reads it";

/// Classes that stand for what is there without them.
const BUILT_IN: [&str; 3] = [
    "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    "org.apache.zookeeper.server.auth.DigestAuthenticationProvider",
    "org.apache.zookeeper.server.auth.IPAuthenticationProvider",
];

/// Whether this value of a key asks for no more than there is in any case.
pub(super) fn is_built_in(name: &str, value: &str) -> bool {
    match name {
        "ssl.authProvider" => value == "x509",
        _ => name.starts_with("authProvider.") && BUILT_IN.contains(&value),
    }
}
