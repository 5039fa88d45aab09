//! Block pools that come and go.
//!
//! - `add_remove`: adding and removing block pools
//! - `duplicates`: two replicas of one block, on two volumes or on one, that are found when a
//!   volume is read
//! - `version_again`: the VERSION of a pool on a volume
//! - `volume_joins`: the part of a block pool on a volume that joins it

pub mod add_remove;
pub mod duplicates;
pub mod version_again;
pub mod volume_joins;
