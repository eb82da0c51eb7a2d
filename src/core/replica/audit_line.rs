//! A line of the audit log.

/// Audit record of one applied transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// Log index of the entry that held it.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// The transaction's zxid.
    pub zxid: i64,
    /// Leader's clock in milliseconds since the epoch.
    pub time_ms: i64,
    /// Session it belongs to.
    pub session: i64,
    /// The client's xid, 0 for the server's own transactions.
    pub cxid: i32,
    /// Name of the operation.
    pub op: &'static str,
    /// Path it concerned (of the created znode, if it was created), if one.
    pub path: Option<String>,
    /// `ok` or ZooKeeper's name of the error.
    pub result: &'static str,
    /// Digest of the state after it.
    pub digest: u128,
}
