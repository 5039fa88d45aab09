//! On whose behalf an operation runs.

use std::fmt;

/// The class of a request; a disk's scheduler keeps a bounded queue per class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum IoClass {
    /// A client is writing and waits for its acknowledgement.
    ClientWrite,
    /// A client is reading.
    ClientRead,
    /// Copies between nodes that restore redundancy.
    Replication,
    /// Copies between nodes or volumes that even out use.
    Balancer,
    /// Checks that no client waits for.
    Scan,
    /// Removal of data.
    Delete,
}

impl IoClass {
    /// How many classes there are.
    pub const COUNT: usize = 6;

    /// Every class, in the order of its discriminant.
    pub const ALL: [Self; Self::COUNT] = [
        Self::ClientWrite,
        Self::ClientRead,
        Self::Replication,
        Self::Balancer,
        Self::Scan,
        Self::Delete,
    ];

    /// Position in [`IoClass::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether no client waits for it: served apart, so that it can never delay a client.
    #[must_use]
    pub fn is_background(self) -> bool {
        matches!(self, Self::Balancer | Self::Scan | Self::Delete)
    }

    /// The label in metrics and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientWrite => "client-write",
            Self::ClientRead => "client-read",
            Self::Replication => "replication",
            Self::Balancer => "balancer",
            Self::Scan => "scan",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for IoClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
