//! A store from its start to its stop: directories that it opens, block pools that come and go,
//! disks that are put in and taken out, upgrades.

pub mod hot_swap;
pub mod pool;
pub mod shutdown;
pub mod startup;
pub mod upgrade;
pub mod whose_directories;
