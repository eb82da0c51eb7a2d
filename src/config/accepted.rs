//! The table of keys without effect: accepted and listed, warned about, or refused by name.
//!
//! Owns the reasons. Invariants: a key that asks for protection which is not there is refused, save
//! the few that clients' test suites always write (those warn); a key of ZooKeeper's own parser is
//! still checked for its form, as ZooKeeper does. Families (`ssl.*`) catch what has no entry of its
//! own.

use super::Config;
use super::key::{Effect, Form, Key};
use super::servers::Role;

/// Every key that is known and does nothing here.
pub static ACCEPTED: [Key; 78] = [
    // --- keys that ZooKeeper's parser checks
    limit("initLimit", ENSEMBLE, |config, ticks| config.raw.init_limit = Some(ticks)),
    limit("syncLimit", SYNC_LIMIT, |config, ticks| config.raw.sync_limit = Some(ticks)),
    whole("connectToLearnerMasterLimit", ENSEMBLE),
    whole("observerMasterPort", ENSEMBLE),
    whole("quorum.cnxn.threads.size", ENSEMBLE),
    whole("multiAddress.reachabilityCheckTimeoutMs", ENSEMBLE),
    switch("quorumListenOnAllIPs", ENSEMBLE),
    switch("syncEnabled", ENSEMBLE),
    switch("multiAddress.enabled", ENSEMBLE),
    switch("multiAddress.reachabilityCheckEnabled", ENSEMBLE),
    Key::without_effect(
        "electionAlg",
        Effect::Ignored,
        Form::Number { min: 3, max: 3, set: |_, _| {} },
        "elections are Raft's",
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
        "the role is what the server lines say; one that differs is warned of",
    ),
    switch(
        "localSessionsUpgradingEnabled",
        "only read-only mode has local sessions, and those are never upgraded",
    ),
    whole("autopurge.snapRetainCount", PURGE),
    any("autopurge.purgeInterval", PURGE),
    switch("jvm.pause.monitor", JVM),
    whole("jvm.pause.warn-threshold.ms", JVM),
    whole("jvm.pause.info-threshold.ms", JVM),
    whole("jvm.pause.sleep.time.ms", JVM),
    switch("portUnification", QUORUM_TLS),
    switch("sslQuorumReloadCertFiles", QUORUM_TLS),
    // --- durability
    Key::without_effect(
        "forceSync",
        Effect::Ignored,
        Form::YesNo { set: |config, on| config.raw.force_sync_off = !on },
        "every write is on disk before it is acknowledged; there is no way to switch that off",
    ),
    any("snapCount", IMAGES),
    any("snapSizeLimitInKb", IMAGES),
    any("txnLogSizeLimitInKb", LOG),
    any("preAllocSize", LOG),
    any("flushDelay", LOG),
    any("maxWriteQueuePollTime", LOG),
    any("maxBatchSize", LOG),
    any("commitLogCount", LOG),
    any("digest.enabled", "images and log entries always carry checksums and a state digest"),
    any("closeSessionTxn.enabled", "closing a session always names what it deletes"),
    any("serializeLastProcessedZxid.enabled", "images always hold the last zxid"),
    any("snapshot.compression.method", "images are not compressed"),
    any("snapshot.trust.empty", EMPTY),
    any("db.autocreate", EMPTY),
    any("emulate353TTLNodes", "TTL znodes have ZooKeeper's present form only"),
    // --- flow control and threads
    any("largeRequestMaxBytes", FLOW),
    any("largeRequestThreshold", FLOW),
    any("request_throttle_*", FLOW),
    any("throttled_op_wait_time", FLOW),
    any("connection_throttle_*", FLOW),
    any("maxResponseCacheSize", CACHE),
    any("maxGetChildrenResponseCacheSize", CACHE),
    any("nio.numSelectorThreads", THREADS),
    any("nio.numWorkerThreads", THREADS),
    any("nio.directBufferBytes", THREADS),
    any("commitProcessor.*", THREADS),
    any("serverCnxnFactory", "there is one network layer"),
    any("watchManagerName", WATCHES),
    any("watcherClean*", WATCHES),
    any("jute.maxbuffer.extrasize", "records are bounded by the frame they come in"),
    // --- the admin server and metrics
    any("admin.idleTimeout", "the HTTP server has its own fixed timeouts"),
    any("admin.portUnification", "the HTTP port has no TLS yet"),
    any("admin.snapshot.*", NO_SNAPSHOT),
    any("admin.restore.*", NO_SNAPSHOT),
    any("admin.rateLimiterIntervalInMS", NO_SNAPSHOT),
    any("metricsProvider.*", "the metrics port has no such setting"),
    any("audit.impl.class", "there is one audit log: lockkeeper.auditLog"),
    // --- between servers
    any("leaderServes", ENSEMBLE),
    any("leader.*", ENSEMBLE),
    any("observer.*", ENSEMBLE),
    any("cnxTimeout", ENSEMBLE),
    any("quorumCnxnTimeoutMs", ENSEMBLE),
    any("tcpKeepAlive", ENSEMBLE),
    any("electionPortBindRetry", ENSEMBLE),
    // --- authentication that is not there, in settings that ask for nothing by themselves
    any("quorum.auth.*", "SASL between servers is not offered"),
    any("enforce.auth.schemes", "used with enforce.auth.enabled only"),
    any("allowSaslFailedClients", SASL),
    any("sasl.*", SASL),
    any("kerberos.*", SASL),
    any("java.security.auth.login.config", SASL),
    any("X509AuthenticationProvider.*", "the x509 scheme is not offered"),
    any("IPAuthenticationProvider.*", "ip ids are the connection's own address"),
    any("fips-mode", "there is no TLS yet"),
    any("client.*", "there is no TLS yet"),
    any("ssl.authProvider", "there is no TLS yet"),
    any("superUser*", "the x509 and sasl schemes are not offered"),
];

/// Keys that ask for something that is not there, and are written too often to be refused.
pub static WARNED: [Key; 8] = [
    warned(
        "secureClientPort",
        Form::Number { min: 0, max: u16::MAX as i64, set: |_, _| {} },
        "there is no TLS yet: this port is not opened",
    ),
    warned("secureClientPortAddress", ANY, "there is no TLS yet: nothing listens there"),
    warned(
        "localSessionsEnabled",
        SWITCH,
        "local sessions are not offered, except in read-only mode: every session is global",
    ),
    warned("ssl.*", ANY, "there is no TLS yet: connections are not encrypted"),
    warned(
        "authProvider.*",
        ANY,
        "authentication plugins are not offered; world, ip, digest and super are built in",
    ),
    warned("ensembleAuthName", ANY, "clients that expect another ensemble are not turned away"),
    warned("audit.enable", ANY, "ZooKeeper's audit log is not offered; see lockkeeper.auditLog"),
    warned("metricsProvider.httpsPort", ANY, "metrics are offered without TLS only"),
];

/// Keys that ask for protection or for other quorums than there are: starting without them would
/// be worse than not starting.
pub static REFUSED: [Key; 11] = [
    refused("sslQuorum", SWITCH, "TLS between servers is not offered"),
    refused("quorum.auth.enableSasl", SWITCH, "SASL between servers is not offered"),
    refused("quorum.auth.serverRequireSasl", SWITCH, "SASL between servers is not offered"),
    refused("quorum.auth.learnerRequireSasl", SWITCH, "SASL between servers is not offered"),
    refused("enforce.auth.enabled", SWITCH, "clients cannot be forced to authenticate yet"),
    refused("sessionRequireClientSASLAuth", SWITCH, "SASL is not offered"),
    refused("admin.forceHttps", SWITCH, "the HTTP port has no TLS yet"),
    refused("admin.needClientAuth", SWITCH, "the HTTP port has no TLS yet"),
    refused("oraclePath", ANY, "two servers with an oracle are not offered"),
    refused("group.N", ANY, "hierarchical quorums are not offered: every server has one vote"),
    refused("weight.N", ANY, "hierarchical quorums are not offered: every server has one vote"),
];

const fn any(name: &'static str, why: &'static str) -> Key {
    Key::without_effect(name, Effect::Ignored, ANY, why)
}

const fn whole(name: &'static str, why: &'static str) -> Key {
    let form = Form::Number { min: i32::MIN as i64, max: i32::MAX as i64, set: |_, _| {} };
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

const ENSEMBLE: &str = "a setting between the servers of an ensemble; Raft has its own";
const SYNC_LIMIT: &str =
    "Raft has limits of its own; so many ticks are the default of lockkeeper.diskStallMillis";
const PURGE: &str = "the server deletes what its images and log no longer need by itself";
const JVM: &str = "there is no JVM";
const QUORUM_TLS: &str = "TLS between servers is not offered";
const IMAGES: &str = "images are written by lockkeeper.imageLogBytes";
const LOG: &str = "the log batches, preallocates and cuts by its own rules";
const EMPTY: &str = "an empty tree is never served where data was or may be";
const FLOW: &str = "flow control is globalOutstandingLimit and bounded queues";
const CACHE: &str = "replies are not cached";
const THREADS: &str = "the server chooses its threads and buffers itself";
const WATCHES: &str = "there is one watch table";
const NO_SNAPSHOT: &str = "the commands snapshot and restore are not offered yet";
const SASL: &str = "SASL is not offered yet";
