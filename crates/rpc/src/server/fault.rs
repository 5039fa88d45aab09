//! Refusals and failures as a Hadoop RPC caller sees them.
//!
//! A stock caller decides by three things: the status, the numeric detail, and the class name of
//! the Java exception. The status `ERROR` keeps the connection, `FATAL` ends it. From the class
//! name the caller rebuilds the exception. The class names here are therefore protocol, not
//! decoration.

use std::borrow::Cow;

use hayloft_wire::rpc::{RpcErrorCode, names};

/// Java classes that only this server names; the common ones are in [`names`].
pub mod java {
    /// The user may not act for another one, or may not connect at all.
    pub const AUTHORIZATION: &str = "org.apache.hadoop.security.authorize.AuthorizationException";
    /// The connection cannot go on.
    pub const FATAL: &str = "org.apache.hadoop.ipc.Server$FatalRpcServerException";
    /// The connection was opened in a way that is not understood.
    pub const IPC: &str = "org.apache.hadoop.ipc.IpcException";
    /// The SASL exchange is out of order.
    pub const SASL: &str = "javax.security.sasl.SaslException";
}

/// What a caller gets instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct RpcFault {
    /// Java class of the exception that the caller rebuilds.
    pub class: Cow<'static, str>,
    /// Message of the exception; callers show its first line.
    pub message: String,
    /// Number of the reason; from `FatalUnknown` on it ends the connection.
    pub code: RpcErrorCode,
}

impl RpcFault {
    /// A failure of the called method: the connection goes on.
    pub fn application(class: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            class: class.into(),
            message: message.into(),
            code: RpcErrorCode::ErrorApplication,
        }
    }

    /// A plain `IOException` of the called method.
    pub fn io(message: impl Into<String>) -> Self {
        Self::application(names::IO_EXCEPTION, message)
    }

    /// A feature that this node does not have (yet).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::application(names::UNSUPPORTED_OPERATION, message)
    }

    /// The caller may not do this.
    pub fn access_denied(message: impl Into<String>) -> Self {
        Self::application(names::ACCESS_CONTROL_EXCEPTION, message)
    }

    /// The connection cannot go on.
    pub fn fatal(
        code: RpcErrorCode,
        class: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            class: class.into(),
            message: message.into(),
            code,
        }
    }

    /// A header or frame out of order: the connection cannot go on.
    pub fn invalid_header(message: impl Into<String>) -> Self {
        Self::fatal(RpcErrorCode::FatalInvalidRpcHeader, java::FATAL, message)
    }

    /// The protocol is not served on this port.
    #[must_use]
    pub fn no_such_protocol(protocol: &str) -> Self {
        Self {
            class: names::RPC_NO_SUCH_PROTOCOL.into(),
            message: format!("Unknown protocol: {protocol}"),
            code: RpcErrorCode::ErrorNoSuchProtocol,
        }
    }

    /// The protocol is served, but in another version.
    #[must_use]
    pub fn version_mismatch(protocol: &str, client: u64, server: u64) -> Self {
        Self {
            class: names::RPC_VERSION_MISMATCH.into(),
            message: format!(
                "Protocol {protocol} version mismatch. (client = {client}, server = {server})"
            ),
            code: RpcErrorCode::ErrorRpcVersionMismatch,
        }
    }

    /// The protocol has no such method.
    #[must_use]
    pub fn no_such_method(protocol: &str, method: &str) -> Self {
        Self {
            class: names::RPC_NO_SUCH_METHOD.into(),
            message: format!("Unknown method {method} called on {protocol} protocol."),
            code: RpcErrorCode::ErrorNoSuchMethod,
        }
    }

    /// Whether the call named nothing that this port serves.
    #[must_use]
    pub fn is_unknown_method(&self) -> bool {
        matches!(
            self.code,
            RpcErrorCode::ErrorNoSuchMethod
                | RpcErrorCode::ErrorNoSuchProtocol
                | RpcErrorCode::ErrorRpcVersionMismatch
        )
    }

    /// Whether the connection ends with this fault.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.code >= RpcErrorCode::FatalUnknown
    }
}
