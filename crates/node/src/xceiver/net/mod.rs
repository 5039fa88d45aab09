//! Connections, their threads and their limits.

pub mod conn;
pub mod loopback_congestion;
pub mod patience;
pub mod peer;
pub mod threads;
pub mod throttle;
