//! Experiments of the papers, one file each: what it asks, its set-up, what it measures.

pub mod domains;
pub mod durability;
pub mod netblock;
pub mod pages;
pub mod scaling;
