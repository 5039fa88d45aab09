//! The `hayloft` command.
fn main() {}
