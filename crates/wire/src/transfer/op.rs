//! Codes of the operations.

/// Code of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "Hadoop's own names")]
pub enum Op {
    WriteBlock = 80,
    ReadBlock = 81,
    ReadMetadata = 82,
    ReplaceBlock = 83,
    CopyBlock = 84,
    BlockChecksum = 85,
    TransferBlock = 86,
    RequestShortCircuitFds = 87,
    ReleaseShortCircuitFds = 88,
    RequestShortCircuitShm = 89,
    BlockGroupChecksum = 90,
    Custom = 127,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 12] = [
        Op::WriteBlock,
        Op::ReadBlock,
        Op::ReadMetadata,
        Op::ReplaceBlock,
        Op::CopyBlock,
        Op::BlockChecksum,
        Op::TransferBlock,
        Op::RequestShortCircuitFds,
        Op::ReleaseShortCircuitFds,
        Op::RequestShortCircuitShm,
        Op::BlockGroupChecksum,
        Op::Custom,
    ];

    /// Code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Operation of a code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Op::ALL.into_iter().find(|op| op.code() == code)
    }

    /// Hadoop's name of the operation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Op::WriteBlock => "WRITE_BLOCK",
            Op::ReadBlock => "READ_BLOCK",
            Op::ReadMetadata => "READ_METADATA",
            Op::ReplaceBlock => "REPLACE_BLOCK",
            Op::CopyBlock => "COPY_BLOCK",
            Op::BlockChecksum => "BLOCK_CHECKSUM",
            Op::TransferBlock => "TRANSFER_BLOCK",
            Op::RequestShortCircuitFds => "REQUEST_SHORT_CIRCUIT_FDS",
            Op::ReleaseShortCircuitFds => "RELEASE_SHORT_CIRCUIT_FDS",
            Op::RequestShortCircuitShm => "REQUEST_SHORT_CIRCUIT_SHM",
            Op::BlockGroupChecksum => "BLOCK_GROUP_CHECKSUM",
            Op::Custom => "CUSTOM",
        }
    }
}
