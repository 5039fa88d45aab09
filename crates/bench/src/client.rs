//! Who does what is measured.

use serde::{Deserialize, Serialize};

/// Who does it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Client {
    /// The stock Java client.
    #[serde(rename = "java")]
    Java,
    /// The crate hdfs-native.
    #[serde(rename = "hdfs-native")]
    HdfsNative,
    /// The load client of the test kit, which no user has: it shows limits. Runs of earlier
    /// versions call it `native`.
    #[serde(rename = "load", alias = "native")]
    Load,
    /// No HDFS client takes part.
    #[serde(rename = "none")]
    #[default]
    None,
}

impl Client {
    /// Those that users have.
    pub const OF_USERS: [Self; 2] = [Self::Java, Self::HdfsNative];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::HdfsNative => "hdfs-native",
            Self::Load => "load",
            Self::None => "-",
        }
    }

    /// Whether users have it.
    #[must_use]
    pub fn is_of_users(self) -> bool {
        Self::OF_USERS.contains(&self)
    }
}
