//! Connections, their threads and their limits.
//!
//! - `conn`: a data transfer connection: timeouts on every wait, messages in, bytes out
//! - `connect_to_node`: the client side: connections to other nodes
//! - `handshake`: the handshake (SASL) of connections to this node
//! - `loopback_congestion`: connections that do not leave the host are not paced
//! - `silence_limit`: how long a connection may be silent
//! - `stream`: the socket of a connection, plain or protected
//! - `threads`: the threads that connections are served by
//! - `throttle`: bandwidth limits: token buckets whose rate can change while they are waited on

pub mod conn;
pub mod connect_to_node;
pub mod handshake;
pub mod loopback_congestion;
pub mod silence_limit;
pub mod stream;
pub mod threads;
pub mod throttle;
