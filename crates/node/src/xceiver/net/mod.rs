//! Connections, their threads and their limits.
//!
//! - `conn`: a data transfer connection: timeouts on every wait, messages in, bytes out
//! - `conn_of_host`: connections over domain sockets, which can be passed descriptors
//! - `connect_to_node`: the client side: connections to other nodes
//! - `domain_listener`: a domain socket that clients of this host connect to
//! - `domain_path`: whether others than the node could put a socket of theirs in its place
//! - `handshake`: the handshake (SASL) of connections to this node
//! - `loopback_congestion`: connections that do not leave the host are not paced
//! - `protected_socket`: a socket with what protects its bytes
//! - `read_vectored`: reading from a socket into several pieces
//! - `sent_by_kernel`: bytes that the kernel takes from elsewhere to a connection's socket
//! - `silence_limit`: how long a connection may be silent
//! - `stream`: the socket of a connection: plain, protected, or of a process on this host
//! - `thread_of_its_own`: a thread for one connection, which may wait for a disk
//! - `threads`: the threads that connections are served by
//! - `throttle`: bandwidth limits: token buckets whose rate can change while they are waited on

pub mod conn;
pub mod conn_of_host;
pub mod connect_to_node;
pub mod domain_listener;
pub mod domain_path;
pub mod handshake;
pub mod loopback_congestion;
pub mod protected_socket;
pub mod read_vectored;
pub mod sent_by_kernel;
pub mod silence_limit;
pub mod stream;
pub mod thread_of_its_own;
pub mod threads;
pub mod throttle;
