//! What kind of device a disk is.

use serde::{Deserialize, Serialize};

/// What kind of device the disk behaves like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Media {
    /// Short runs between seeks are much slower than long ones: a hard disk.
    Rotating,
    /// Short runs are nearly as fast as long ones.
    Flash,
}
