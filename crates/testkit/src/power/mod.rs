//! Nodes that are killed or lose their power or their disk, and what is left of what they
//! acknowledged.
//!
//! - `check`: what is left of what was acknowledged
//! - `disk`: a disk whose power can be cut: a file system on a loop device over a file
//! - `rig`: a cluster of nodes on disks whose power can be cut, and its rounds
//! - `tally`: sums over rounds: how much was acknowledged
//! - `writers`: stock clients that write until the event, and what was acknowledged to them when
//!
//! - [`disk`]: disks whose power can be cut, that fill up, that fail;
//! - [`writers`]: stock clients that write, and what was acknowledged to them when;
//! - [`check`]: what of it can be read afterwards, and what the NameNode counts on;
//! - [`rig`]: a cluster of nodes on such disks, one replica of everything, and its rounds;
//! - [`tally`]: the sums.
//!
//! The suite `power` and the experiment `durability` are made of these.

pub mod check;
pub mod disk;
pub mod rig;
pub mod tally;
pub mod writers;

pub use disk::{FileSystem, PowerDisk};
pub use rig::{Event, Rig, Round};
pub use tally::{Count, PowerTally};
