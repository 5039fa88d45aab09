//! Placeholder; the crate's map goes here.
