//! Apache's on-disk layout -57: names, places and small files, as pure functions.
//!
//! - `dirs`: directories of the layout: how they are made, and the stamps in their names
//! - `names`: names of files and directories, and where they lie
//! - `properties`: Java's Properties files, as far as VERSION files need them
//!   (`java.util.Properties`)
//! - `replica_cache`: the `replicas` file of a clean stop
//! - `used_cache`: the `dfsUsed` file: bytes used and when that was true, as text
//! - `version`: VERSION files of volumes and pools
//!
//! ```text
//! DIR/in_use.lock                                    record lock, `pid@host`
//! DIR/current/VERSION                                identity of the volume
//! DIR/current/BP-x/current/VERSION                   identity of the pool
//! DIR/current/BP-x/current/finalized/subdirA/subdirB/blk_ID, blk_ID_GS.meta
//! DIR/current/BP-x/current/rbw/blk_ID, blk_ID_GS.meta
//! DIR/current/BP-x/current/{lazypersist/, dfsUsed, replicas}
//! DIR/current/BP-x/{tmp/, trash/, previous/, scanner.cursor, RollingUpgradeInProgress}
//! ```

pub mod dirs;
pub mod names;
pub mod properties;
pub mod replica_cache;
pub mod used_cache;
pub mod version;

/// The layout that is written and the only one that is read.
pub const LAYOUT_VERSION: i32 = -57;

/// Layout version of a volume whose data files are stubs. Apache's DataNode refuses it: it would
/// read zeros.
pub const STUB_LAYOUT_VERSION: i32 = -1057;

#[cfg(test)]
mod golden_tests;
