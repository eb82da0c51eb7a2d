//! Opcodes: the one place that knows their numbers and what follows from them. Reproduces `ZooDefs.OpCode`.
//!
//! *Owns* [`OpCode`] and [`RequestClass`]. A new opcode is a row here and a request in `request.rs`. Whether a request
//! goes into the log, waits for a quorum or may be asked of a server without one follows from its class and is decided
//! where that is done.

macro_rules! opcodes {
    ($($op:ident = $number:literal, $letters:literal, $class:ident, $answer:ident;)+) => {
        /// What a request asks for: every opcode that a client may send.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        #[allow(missing_docs)]
        pub enum OpCode {
            $($op = $number,)+
        }

        impl OpCode {
            /// Every opcode, in numeric order of the wire.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$op),+];

            /// The four letters that `cons` shows for the last operation of a connection.
            /// Reproduces `Request.op2String` as shown by the `cons` word.
            #[must_use]
            pub fn four_letters(self) -> &'static str {
                match self {
                    $(Self::$op => $letters,)+
                }
            }

            /// Its class; no request has one that is not a client's to send.
            pub(super) fn class(self) -> RequestClass {
                match self {
                    $(Self::$op => RequestClass::$class,)+
                }
            }

            /// Form of the body of a successful answer.
            pub(super) fn answer(self) -> Form {
                match self {
                    $(Self::$op => Form::$answer,)+
                }
            }
        }
    };
}

opcodes! {
    Create = 1, "CREA", Write, Path;
    Delete = 2, "DELE", Write, Empty;
    Exists = 3, "EXIS", Read, Stat;
    GetData = 4, "GETD", Read, Data;
    SetData = 5, "SETD", Write, Stat;
    GetAcl = 6, "GETA", Read, Acl;
    SetAcl = 7, "SETA", Write, Stat;
    GetChildren = 8, "GETC", Read, Names;
    Sync = 9, "SYNC", Sync, Echo;
    Ping = 11, "PING", Connection, Empty;
    GetChildren2 = 12, "GETC", Read, NamesStat;
    Check = 13, "CHEC", Write, Empty;
    Multi = 14, "MULT", Write, Multi;
    Create2 = 15, "CREA", Write, PathStat;
    Reconfig = 16, "RECO", Reconfig, Data;
    CheckWatches = 17, "CHKW", Watch, Empty;
    RemoveWatches = 18, "REMW", Watch, Empty;
    CreateContainer = 19, "CREA", Write, PathStat;
    DeleteContainer = 20, "DELE", Write, Empty;
    CreateTtl = 21, "CREA", Write, PathStat;
    MultiRead = 22, "MLTR", Read, Multi;
    Auth = 100, "NA", Auth, Empty;
    SetWatches = 101, "SETW", Watch, Empty;
    Sasl = 102, "NA", Auth, Token;
    GetEphemerals = 103, "GETE", Read, Names;
    GetAllChildrenNumber = 104, "GETACN", Read, Number;
    SetWatches2 = 105, "STW2", Watch, Empty;
    AddWatch = 106, "ADDW", Watch, Number;
    WhoAmI = 107, "HOMI", Connection, Identities;
    CreateSession = -10, "SESS", Write, Empty;
    CloseSession = -11, "CLOS", CloseSession, Empty;
}

impl OpCode {
    /// The opcode of a number, if it is one.
    #[must_use]
    pub fn from_wire(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as i32 == number)
    }
}

/// What a server has to do for a request, as far as it depends on nothing but its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// It changes znodes, and is decided in the log: creates, `delete`, `setData`, `setACL`, `multi`.
    Write,
    /// It reads znodes, perhaps with a watch left: `exists`, `getData`, `getACL`, `getChildren`,
    /// `getEphemerals`, `getAllChildrenNumber`, `multiRead`.
    Read,
    /// `sync`: all that was acknowledged before it is visible after it.
    Sync,
    /// `reconfig`: it changes the members, and is decided in the log where that is offered.
    Reconfig,
    /// It changes or looks at the watches of its connection, and reads no znode for its reply:
    /// `addWatch`, `checkWatches`, `removeWatches`, `setWatches`.
    Watch,
    /// It proves who the client is: `auth`, `sasl`. It is executed when it arrives, outside of the order.
    Auth,
    /// It asks only the connection: `ping`, `whoAmI`.
    Connection,
    /// `closeSession`: it ends the session in the log, and the connection with it.
    CloseSession,
}

/// Form of the body of a successful answer: the variant of `Response` that it is read as.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Empty,
    Path,
    PathStat,
    Stat,
    Data,
    Acl,
    Names,
    NamesStat,
    Echo,
    Number,
    Multi,
    Identities,
    Token,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_an_opcode_finds_it_and_no_other_does() {
        for op in OpCode::ALL {
            assert_eq!(OpCode::from_wire(op as i32), Some(op));
        }
        for number in [0, 10, -1, 23, 99, 108, 999, i32::MIN, i32::MAX] {
            assert_eq!(OpCode::from_wire(number), None, "{number}");
        }
    }
}
