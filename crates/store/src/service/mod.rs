//! A store from its start to its stop: directories that it opens, block pools that come and go,
//! disks that are put in and taken out, upgrades.
//!
//! - `hot_swap`: taking volumes out of use and putting others in while the node runs
//! - `pool`: block pools that come and go
//! - `shutdown`: a clean stop: writers end, what is known is saved for the next start, locks go
//! - `startup`: start-up: volumes that can be used, and the identity of the node
//! - `upgrade`: rolling upgrades and what earlier upgrades left behind
//! - `whose_directories`: what lies in the configured directories, before anything is written to
//!   any of them

pub mod hot_swap;
pub mod pool;
pub mod shutdown;
pub mod startup;
pub mod upgrade;
pub mod whose_directories;
