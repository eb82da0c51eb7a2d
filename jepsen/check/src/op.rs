//! What a client can ask and be told, as plain values.
//!
//! *Owns* the calls, their answers, Stat and the error codes. Nothing of the server under test is
//! used: a mistake in its types must not hide in the checks. Names are those of ZooKeeper's protocol.

/// What is stored in a znode: none at all is not the same as nothing.
pub type Data = Option<Vec<u8>>;

/// Identity of a connection: scheme and id, such as `digest` and `u:Jq7w...`.
pub type Identity = (String, String);

/// An error code of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub i32);

/// Names of error codes, as `KeeperException` has them, in the form of the audit log.
const CODES: &[(Code, &str)] = &[
    (Code::OK, "Ok"),
    (Code::RUNTIME_INCONSISTENCY, "RuntimeInconsistency"),
    (Code::MARSHALLING, "MarshallingError"),
    (Code::UNIMPLEMENTED, "Unimplemented"),
    (Code::BAD_ARGUMENTS, "BadArguments"),
    (Code(-13), "NewConfigNoQuorum"),
    (Code(-14), "ReconfigInProgress"),
    (Code::NO_NODE, "NoNode"),
    (Code::NO_AUTH, "NoAuth"),
    (Code::BAD_VERSION, "BadVersion"),
    (Code::NO_CHILDREN_FOR_EPHEMERALS, "NoChildrenForEphemerals"),
    (Code::NODE_EXISTS, "NodeExists"),
    (Code::NOT_EMPTY, "NotEmpty"),
    (Code::SESSION_EXPIRED, "SessionExpired"),
    (Code::INVALID_ACL, "InvalidACL"),
    (Code(-115), "AuthFailed"),
    (Code::SESSION_MOVED, "SessionMoved"),
    (Code(-119), "NotReadOnly"),
    (Code(-120), "EphemeralOnLocalSession"),
    (Code::NO_WATCHER, "NoWatcher"),
    (Code(-123), "ReconfigDisabled"),
    (Code(-124), "SessionClosedRequireSaslAuth"),
    (Code::QUOTA_EXCEEDED, "QuotaExceeded"),
    (Code(-127), "ThrottledOp"),
];

impl Code {
    pub const OK: Code = Code(0);
    pub const RUNTIME_INCONSISTENCY: Code = Code(-2);
    pub const MARSHALLING: Code = Code(-5);
    pub const UNIMPLEMENTED: Code = Code(-6);
    pub const BAD_ARGUMENTS: Code = Code(-8);
    pub const NO_NODE: Code = Code(-101);
    pub const NO_AUTH: Code = Code(-102);
    pub const BAD_VERSION: Code = Code(-103);
    pub const NO_CHILDREN_FOR_EPHEMERALS: Code = Code(-108);
    pub const NODE_EXISTS: Code = Code(-110);
    pub const NOT_EMPTY: Code = Code(-111);
    pub const SESSION_EXPIRED: Code = Code(-112);
    pub const INVALID_ACL: Code = Code(-114);
    pub const SESSION_MOVED: Code = Code(-118);
    pub const NO_WATCHER: Code = Code(-121);
    pub const QUOTA_EXCEEDED: Code = Code(-125);

    /// Its name, if it has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        CODES.iter().find(|(code, _)| *code == self).map(|(_, name)| *name)
    }

    /// The code of a name, written small or large.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Code> {
        CODES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(code, _)| *code)
    }

    /// Whether the znodes decide it, so that the model can say whether it is due. The other codes
    /// speak of the session, the connection, a quota or the ensemble.
    #[must_use]
    pub fn is_of_the_znodes(self) -> bool {
        const OF_THE_ZNODES: [Code; 8] = [
            Code::BAD_ARGUMENTS,
            Code::NO_NODE,
            Code::NO_AUTH,
            Code::BAD_VERSION,
            Code::NO_CHILDREN_FOR_EPHEMERALS,
            Code::NODE_EXISTS,
            Code::NOT_EMPTY,
            Code::INVALID_ACL,
        ];
        OF_THE_ZNODES.contains(&self)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// What is known of a znode beside its data. Times are milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

/// An entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    pub perms: i32,
    pub scheme: String,
    pub id: String,
}

impl Acl {
    pub const READ: i32 = 1;
    pub const WRITE: i32 = 2;
    pub const CREATE: i32 = 4;
    pub const DELETE: i32 = 8;
    pub const ADMIN: i32 = 16;
    pub const ALL: i32 = 31;

    /// Everything for everybody.
    #[must_use]
    pub fn open() -> Vec<Acl> {
        vec![Acl { perms: Acl::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }]
    }
}

/// The opcode of a create: it decides the kind of znode and what is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOp {
    /// 1: the path is answered.
    Create,
    /// 15: path and Stat.
    Create2,
    /// 19: a container.
    Container,
    /// 21: a znode with a time to live.
    Ttl,
}

/// The flags of a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Persistent,
    Ephemeral,
    PersistentSequential,
    EphemeralSequential,
    Container,
    PersistentWithTtl,
    PersistentSequentialWithTtl,
}

impl Mode {
    /// All of them, with the names that histories use.
    pub const ALL: [(Mode, &'static str); 7] = [
        (Mode::Persistent, "persistent"),
        (Mode::Ephemeral, "ephemeral"),
        (Mode::PersistentSequential, "persistent_sequential"),
        (Mode::EphemeralSequential, "ephemeral_sequential"),
        (Mode::Container, "container"),
        (Mode::PersistentWithTtl, "persistent_with_ttl"),
        (Mode::PersistentSequentialWithTtl, "persistent_sequential_with_ttl"),
    ];

    /// The session's end is the znode's.
    #[must_use]
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Mode::Ephemeral | Mode::EphemeralSequential)
    }

    /// The server completes the name.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            Mode::PersistentSequential
                | Mode::EphemeralSequential
                | Mode::PersistentSequentialWithTtl
        )
    }

    /// It asks for a time to live.
    #[must_use]
    pub fn has_ttl(self) -> bool {
        matches!(self, Mode::PersistentWithTtl | Mode::PersistentSequentialWithTtl)
    }
}

/// A create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    pub op: CreateOp,
    pub path: String,
    pub data: Data,
    pub acl: Vec<Acl>,
    pub mode: Mode,
    /// Milliseconds; 0 where there is none.
    pub ttl_ms: i64,
}

/// A part of a multi or multiRead.
pub type Part = Call;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Opens a session (`session` 0) or attaches to one.
    Connect {
        session: i64,
        timeout_ms: i32,
        last_zxid: i64,
    },
    Close,
    Ping,
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Data,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    /// Only as a part of a multi.
    Check {
        path: String,
        version: i32,
    },
    Multi(Vec<Part>),
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetAcl {
        path: String,
    },
    /// With `stat` it is getChildren2.
    GetChildren {
        path: String,
        watch: bool,
        stat: bool,
    },
    AllChildrenNumber {
        path: String,
    },
    Ephemerals {
        prefix: String,
    },
    MultiRead(Vec<Part>),
    Sync {
        path: String,
    },
    SetWatches(SetWatches),
    /// `recursive` is mode 1.
    AddWatch {
        path: String,
        recursive: bool,
    },
    /// `kind` is the WatcherType of the wire, 1 to 5.
    RemoveWatches {
        path: String,
        kind: i32,
    },
    /// Something that takes a zxid and whose effect is not judged (reconfig).
    Other(String),
}

/// The watches that a client brings along when it connects anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetWatches {
    pub relative_zxid: i64,
    pub data: Vec<String>,
    pub exist: Vec<String>,
    pub child: Vec<String>,
    pub persistent: Vec<String>,
    pub recursive: Vec<String>,
}

impl Call {
    /// Whether it is a transaction: it takes a zxid of its own, also when it fails.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Call::Create(_)
            | Call::Delete { .. }
            | Call::SetData { .. }
            | Call::SetAcl { .. }
            | Call::Check { .. }
            | Call::Multi(_)
            | Call::Close
            | Call::Other(_) => true,
            Call::Connect { .. }
            | Call::Ping
            | Call::Exists { .. }
            | Call::GetData { .. }
            | Call::GetAcl { .. }
            | Call::GetChildren { .. }
            | Call::AllChildrenNumber { .. }
            | Call::Ephemerals { .. }
            | Call::MultiRead(_)
            | Call::Sync { .. }
            | Call::SetWatches(_)
            | Call::AddWatch { .. }
            | Call::RemoveWatches { .. } => false,
        }
    }

    /// Whether it shows znodes.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Call::Exists { .. }
                | Call::GetData { .. }
                | Call::GetAcl { .. }
                | Call::GetChildren { .. }
                | Call::AllChildrenNumber { .. }
                | Call::Ephemerals { .. }
                | Call::MultiRead(_)
        )
    }

    /// The path that it names, if it names one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Call::Create(create) => Some(&create.path),
            Call::Delete { path, .. }
            | Call::SetData { path, .. }
            | Call::SetAcl { path, .. }
            | Call::Check { path, .. }
            | Call::Exists { path, .. }
            | Call::GetData { path, .. }
            | Call::GetAcl { path }
            | Call::GetChildren { path, .. }
            | Call::AllChildrenNumber { path }
            | Call::Sync { path }
            | Call::AddWatch { path, .. }
            | Call::RemoveWatches { path, .. } => Some(path),
            Call::Ephemerals { prefix } => Some(prefix),
            Call::Connect { .. }
            | Call::Close
            | Call::Ping
            | Call::Multi(_)
            | Call::MultiRead(_)
            | Call::SetWatches(_)
            | Call::Other(_) => None,
        }
    }

    /// All paths that it names.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Call::Multi(parts) | Call::MultiRead(parts) => {
                parts.iter().filter_map(Call::path).collect()
            }
            other => other.path().into_iter().collect(),
        }
    }
}

/// What a client is told when a call succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing beyond that it was done.
    Done,
    /// A session: its id and the timeout that holds.
    Session {
        session: i64,
        timeout_ms: i32,
    },
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    Data(Data, Stat),
    Acl(Vec<Acl>, Stat),
    /// Names of children in any order, and the Stat if it was asked for.
    Children(Vec<String>, Option<Stat>),
    Number(i32),
    /// In any order.
    Paths(Vec<String>),
    /// One result for each part of a multi or multiRead.
    Parts(Vec<Result<Answer, Code>>),
}
