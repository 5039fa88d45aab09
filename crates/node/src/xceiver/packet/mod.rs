//! Packets as they come in.

pub mod in_place;
pub mod receiver;
