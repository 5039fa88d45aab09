//! What the commands of `hayloft` and `hayloft-lab` print.
//!
//! - `output`: what is printed, and the one place where a reader that has left ends the command
//! - `progress`: what is shown while something takes time
//! - `size`: sizes on the command line and in what it prints: `64MiB`, `20GiB`
//!
//! [`output`] prints and bears readers that have left, [`progress`] shows what takes time,
//! [`size`] reads and shows sizes.

#[macro_use]
pub mod output;

pub mod progress;
pub mod size;
