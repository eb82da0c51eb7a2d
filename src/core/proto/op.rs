//! Opcodes. Reproduces `ZooDefs.OpCode`.

/// What a request asks for: every opcode that a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum OpCode {
    Create = 1,
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetAcl = 6,
    SetAcl = 7,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    GetChildren2 = 12,
    Check = 13,
    Multi = 14,
    Create2 = 15,
    Reconfig = 16,
    CheckWatches = 17,
    RemoveWatches = 18,
    CreateContainer = 19,
    DeleteContainer = 20,
    CreateTtl = 21,
    MultiRead = 22,
    Auth = 100,
    SetWatches = 101,
    Sasl = 102,
    GetEphemerals = 103,
    GetAllChildrenNumber = 104,
    SetWatches2 = 105,
    AddWatch = 106,
    WhoAmI = 107,
    CreateSession = -10,
    CloseSession = -11,
}

impl OpCode {
    /// Every opcode, in numeric order of the wire.
    pub const ALL: [Self; 31] = [
        Self::Create,
        Self::Delete,
        Self::Exists,
        Self::GetData,
        Self::SetData,
        Self::GetAcl,
        Self::SetAcl,
        Self::GetChildren,
        Self::Sync,
        Self::Ping,
        Self::GetChildren2,
        Self::Check,
        Self::Multi,
        Self::Create2,
        Self::Reconfig,
        Self::CheckWatches,
        Self::RemoveWatches,
        Self::CreateContainer,
        Self::DeleteContainer,
        Self::CreateTtl,
        Self::MultiRead,
        Self::Auth,
        Self::SetWatches,
        Self::Sasl,
        Self::GetEphemerals,
        Self::GetAllChildrenNumber,
        Self::SetWatches2,
        Self::AddWatch,
        Self::WhoAmI,
        Self::CreateSession,
        Self::CloseSession,
    ];

    /// The opcode of a number, if it is one.
    #[must_use]
    pub fn from_wire(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as i32 == number)
    }

    /// The four letters that `cons` shows for the last operation of a connection.
    /// Reproduces `Request.op2String` as shown by the `cons` word.
    #[must_use]
    pub fn four_letters(self) -> &'static str {
        match self {
            Self::Create | Self::Create2 | Self::CreateContainer | Self::CreateTtl => "CREA",
            Self::Delete | Self::DeleteContainer => "DELE",
            Self::Exists => "EXIS",
            Self::GetData => "GETD",
            Self::SetData => "SETD",
            Self::GetAcl => "GETA",
            Self::SetAcl => "SETA",
            Self::GetChildren | Self::GetChildren2 => "GETC",
            Self::Sync => "SYNC",
            Self::Ping => "PING",
            Self::Check => "CHEC",
            Self::Multi => "MULT",
            Self::Reconfig => "RECO",
            Self::CheckWatches => "CHKW",
            Self::RemoveWatches => "REMW",
            Self::MultiRead => "MLTR",
            Self::Auth | Self::Sasl => "NA",
            Self::SetWatches => "SETW",
            Self::GetEphemerals => "GETE",
            Self::GetAllChildrenNumber => "GETACN",
            Self::SetWatches2 => "STW2",
            Self::AddWatch => "ADDW",
            Self::WhoAmI => "HOMI",
            Self::CreateSession => "SESS",
            Self::CloseSession => "CLOS",
        }
    }
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
