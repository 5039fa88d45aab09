//! The RPC server of the node.

mod connection;
pub mod fault;
mod reply;
mod server;
#[cfg(test)]
mod server_tests;
mod session;

pub use session::{Call, Caller};
