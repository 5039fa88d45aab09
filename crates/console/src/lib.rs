//! What the commands of `hayloft` and `hayloft-lab` print.
//!
//! [`output`] prints and bears readers that have left, [`progress`] shows what takes time,
//! [`size`] reads and shows sizes.

#[macro_use]
pub mod output;

pub mod progress;
pub mod size;
