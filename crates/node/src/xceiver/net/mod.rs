//! Connections, their threads and their limits.

pub mod conn;
pub mod connect_to_node;
pub mod loopback_congestion;
pub mod silence_limit;
pub mod threads;
pub mod throttle;
