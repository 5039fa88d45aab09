//! The fuzzing targets, which are tests of hayloft-wire as well.

#[path = "../../crates/wire/tests/fuzz/targets/mod.rs"]
mod targets;

pub use targets::*;
