//! Refusals and failures as a Hadoop RPC caller sees them.
//!
//! A stock caller decides by three things: the status (`ERROR` keeps the connection, `FATAL` ends
//! it), the numeric detail, and the class name of the Java exception, from which it rebuilds the
//! exception. The class names here are therefore protocol, not decoration.

use std::borrow::Cow;

use hayloft_wire::proto::rpc::{RpcErrorCode, RpcStatus};

/// Java classes that callers know by name.
pub mod java {
    /// Anything that has no class of its own.
    pub const IO: &str = "java.io.IOException";
    /// A feature that is not there.
    pub const UNSUPPORTED: &str = "java.lang.UnsupportedOperationException";
    /// The caller may not do this.
    pub const ACCESS_CONTROL: &str = "org.apache.hadoop.security.AccessControlException";
    /// The user may not act for another one, or may not connect at all.
    pub const AUTHORIZATION: &str = "org.apache.hadoop.security.authorize.AuthorizationException";
    /// Try the same call again later.
    pub const RETRIABLE: &str = "org.apache.hadoop.ipc.RetriableException";
    /// No replica of the block here.
    pub const REPLICA_NOT_FOUND: &str =
        "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException";
    /// The disk balancer refuses.
    pub const DISK_BALANCER: &str =
        "org.apache.hadoop.hdfs.server.diskbalancer.DiskBalancerException";
    /// The server itself refuses the call.
    pub const RPC_SERVER: &str = "org.apache.hadoop.ipc.RpcServerException";
    /// No such protocol on this port.
    pub const NO_SUCH_PROTOCOL: &str = "org.apache.hadoop.ipc.RpcNoSuchProtocolException";
    /// No such method in the protocol.
    pub const NO_SUCH_METHOD: &str = "org.apache.hadoop.ipc.RpcNoSuchMethodException";
    /// Protocol or RPC version that is not spoken here.
    pub const VERSION_MISMATCH: &str = "org.apache.hadoop.ipc.RPC$VersionMismatch";
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
        Self::application(java::IO, message)
    }

    /// A feature that this node does not have (yet).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::application(java::UNSUPPORTED, message)
    }

    /// The caller may not do this.
    pub fn access_denied(message: impl Into<String>) -> Self {
        Self::application(java::ACCESS_CONTROL, message)
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

    /// A message that cannot be decoded: the connection cannot go on.
    pub fn undecodable(message: impl Into<String>) -> Self {
        Self::fatal(
            RpcErrorCode::FatalDeserializingRequest,
            java::FATAL,
            message,
        )
    }

    /// The protocol is not served on this port.
    #[must_use]
    pub fn no_such_protocol(protocol: &str) -> Self {
        Self {
            class: java::NO_SUCH_PROTOCOL.into(),
            message: format!("Unknown protocol: {protocol}"),
            code: RpcErrorCode::ErrorNoSuchProtocol,
        }
    }

    /// The protocol is served, but in another version.
    #[must_use]
    pub fn version_mismatch(protocol: &str, client: u64, server: u64) -> Self {
        Self {
            class: java::VERSION_MISMATCH.into(),
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
            class: java::NO_SUCH_METHOD.into(),
            message: format!("Unknown method {method} called on {protocol} protocol."),
            code: RpcErrorCode::ErrorNoSuchMethod,
        }
    }

    /// Whether the connection ends with this fault.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.code >= RpcErrorCode::FatalUnknown
    }

    /// Status that goes with the reason.
    #[must_use]
    pub fn status(&self) -> RpcStatus {
        if self.is_fatal() {
            RpcStatus::Fatal
        } else {
            RpcStatus::Error
        }
    }
}
