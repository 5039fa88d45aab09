//! Hadoop RPC, client side.
//!
//! | module | what it is |
//! |---|---|
//! | `authenticate` | the SASL exchange with Kerberos |
//! | [`connection`] | one TCP connection with many calls in flight; it never reconnects |
//! | `connection_tasks` | its writer and reader |
//! | `prove_by_token` | the SASL exchange of one who holds a token |
//! | `sasl_messages` | the messages of both exchanges |
//! | `options` | its user, and limits of time and of size |
//! | [`reconnecting`] | one address: connects when a call needs it, and again after a loss |
//! | [`error`] | what a call can end with |
//! | [`user`] | whom we say we are |
//!
//! Requests and answers are framed as in Hadoop's `ProtobufRpcEngine2` over RPC version 9. Without
//! [`RpcOptions::security`] the authentication is SIMPLE, which a Hadoop client announces as "none"
//! in the connection header. With it, SASL and Kerberos come first, and SASL with a token likewise
//! where [`RpcOptions::token`] is one.

mod authenticate;
pub mod connection;
mod connection_tasks;
pub mod error;
mod options;
mod prove_by_token;
pub mod reconnecting;
mod sasl_messages;
pub mod user;

#[cfg(test)]
mod tests;

pub use connection::{RpcConnection, bind_to};
pub use error::RpcError;
pub use options::RpcOptions;
pub use reconnecting::{RpcClient, addresses_of};
pub use user::current_user;

use hayloft_wire::rpc::{RemoteError, names};

/// An exception of the server as an error of ours, and whether it ends the connection.
fn remote_error(error: RemoteError) -> (RpcError, bool) {
    let fatal = error.is_fatal;
    let class = match error.class_name {
        class if class.is_empty() => names::IO_EXCEPTION.to_owned(),
        class => class,
    };
    let remote = RpcError::Remote {
        class,
        message: error.message,
        code: error.detail,
    };
    (remote, fatal)
}
