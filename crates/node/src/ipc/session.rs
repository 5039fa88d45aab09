//! What a connection has agreed on so far, without the socket: header, SASL exchange, connection
//! context, then calls. Bytes of a whole frame go in, what to do about them comes out.

use std::net::SocketAddr;

use bytes::Bytes;
use hayloft_wire::frame;
use hayloft_wire::proto::rpc::{
    IpcConnectionContext, RequestHeader, RpcErrorCode, RpcKind, RpcOperation, RpcRequestHeader,
    RpcSasl, SaslAuth, SaslState,
};

use super::fault::{RpcFault, java};
use super::reply::{self, CALL_CONTEXT, CALL_INVALID, CALL_PING, CALL_SASL, CallRef};

/// Bytes of the connection header.
pub(super) const HEADER_LEN: usize = 7;
/// First bytes of every Hadoop RPC connection.
const MAGIC: &[u8; 4] = b"hrpc";
/// Auth byte of the header: the context follows at once.
const AUTH_NONE: i8 = 0;
/// Auth byte of the header: a SASL exchange comes first.
const AUTH_SASL: i8 = -33;
/// Header parts of a call are small; nothing else may pass as one.
const HEADER_LIMIT: usize = 64 << 10;

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User the calls are made as; `None` when the client did not say.
    pub user: Option<String>,
    /// User that really connected, when it acts for another one.
    pub real_user: Option<String>,
    /// Where the connection comes from.
    pub address: SocketAddr,
}

/// One call, not yet carried out.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who is calling.
    pub caller: Caller,
    /// Name of the protocol's Java interface.
    pub protocol: String,
    /// Version of the protocol that the client speaks.
    pub version: u64,
    /// Method of the protocol.
    pub method: String,
    /// The encoded request message, without its length.
    pub request: Bytes,
}

/// What the 7 bytes of a connection header ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Our protocol; `sasl` says whether a SASL exchange comes first.
    Rpc { sasl: bool },
    /// A web browser or a health check.
    Http,
    /// Another magic or another version of the RPC framing.
    Mismatch { version: i8 },
    /// An authentication protocol that does not exist.
    UnknownAuth { auth: i8 },
}

impl Header {
    pub(super) fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        if bytes.starts_with(b"GET ") {
            return Self::Http;
        }
        let version = bytes[4].cast_signed();
        if !bytes.starts_with(MAGIC) || version != reply::RPC_VERSION.cast_signed() {
            return Self::Mismatch { version };
        }
        match bytes[6].cast_signed() {
            AUTH_NONE => Self::Rpc { sasl: false },
            AUTH_SASL => Self::Rpc { sasl: true },
            auth => Self::UnknownAuth { auth },
        }
    }

    /// Last words to a client that cannot be served; `None` to close in silence.
    pub(super) fn refusal(self) -> Option<Bytes> {
        match self {
            Self::Rpc { .. } => None,
            Self::Http => Some(Bytes::from_static(reply::HTTP_REFUSAL)),
            Self::Mismatch { version } => reply::version_mismatch(version),
            Self::UnknownAuth { auth } => Some(reply::failure(
                &CallRef::out_of_band(CALL_SASL),
                &RpcFault::fatal(
                    RpcErrorCode::FatalUnauthorized,
                    java::IPC,
                    format!("Unknown auth protocol:{auth}"),
                ),
            )),
        }
    }
}

/// What to do about a frame.
#[derive(Debug)]
pub(super) enum Action {
    /// Nothing: a ping, or a step that has no answer.
    Nothing,
    /// Send this.
    Reply(Bytes),
    /// Carry out a call and answer it.
    Call(CallRef, Call),
    /// Ask whether this caller may connect, then [`Session::admit`] or [`Session::reject`].
    Authorize(Caller),
    /// Send this and close: the client broke the protocol or may not connect.
    Close(Bytes, RpcFault),
}

/// State of one connection after its header.
#[derive(Debug)]
pub(super) struct Session {
    address: SocketAddr,
    /// A SASL exchange was announced and is not over.
    sasl_pending: bool,
    negotiate_sent: bool,
    caller: Option<Caller>,
}

impl Session {
    pub(super) fn new(address: SocketAddr, sasl: bool) -> Self {
        Self {
            address,
            sasl_pending: sasl,
            negotiate_sent: false,
            caller: None,
        }
    }

    /// Whether the connection context has come.
    pub(super) fn established(&self) -> bool {
        self.caller.is_some()
    }

    /// Calls are accepted from now on.
    pub(super) fn admit(&mut self, caller: Caller) {
        self.caller = Some(caller);
    }

    /// Last words to a caller that may not connect.
    pub(super) fn reject(why: String) -> Action {
        let fault = unauthorized(java::AUTHORIZATION, why);
        let call = CallRef::out_of_band(CALL_CONTEXT);
        Action::Close(reply::failure(&call, &fault), fault)
    }

    pub(super) fn on_frame(&mut self, mut bytes: Bytes) -> Action {
        let header = match frame::decode_part::<RpcRequestHeader>(&mut bytes, HEADER_LIMIT) {
            Ok(header) => header,
            Err(error) => {
                let fault =
                    RpcFault::undecodable(format!("Error decoding RpcRequestHeaderProto: {error}"));
                let call = CallRef::out_of_band(CALL_INVALID);
                return Action::Close(reply::failure(&call, &fault), fault);
            }
        };
        let call = CallRef {
            call_id: header.call_id,
            retry_count: header.retry_count(),
            client_id: header.client_id.clone(),
        };
        match self.dispatch(&header, &call, bytes) {
            Ok(action) => action,
            Err(fault) => {
                let frame = reply::failure(&call, &fault);
                if fault.is_fatal() {
                    Action::Close(frame, fault)
                } else {
                    Action::Reply(frame)
                }
            }
        }
    }

    fn dispatch(
        &mut self,
        header: &RpcRequestHeader,
        call: &CallRef,
        mut body: Bytes,
    ) -> Result<Action, RpcFault> {
        check_operation(header)?;
        match header.call_id {
            0.. => {
                let Some(caller) = &self.caller else {
                    return Err(RpcFault::invalid_header(
                        "Connection context not established",
                    ));
                };
                read_call(header, caller, body).map(|read| Action::Call(call.clone(), read))
            }
            CALL_CONTEXT => {
                if self.sasl_pending {
                    return Err(RpcFault::invalid_header(
                        "Connection header sent during SASL negotiation",
                    ));
                }
                self.on_context(&mut body).map(Action::Authorize)
            }
            CALL_SASL => {
                if !self.sasl_pending {
                    return Err(RpcFault::invalid_header(
                        "SASL protocol not requested by client",
                    ));
                }
                let message =
                    frame::decode_part::<RpcSasl>(&mut body, HEADER_LIMIT).map_err(|error| {
                        RpcFault::undecodable(format!("Error decoding RpcSaslProto: {error}"))
                    })?;
                self.on_sasl(&message)
            }
            CALL_PING => Ok(Action::Nothing),
            other => Err(RpcFault::invalid_header(format!(
                "Unknown out of band call #{other}"
            ))),
        }
    }

    /// One step of the SASL exchange. Only SIMPLE is on offer here, so an exchange is either
    /// "what do you have" followed by "then SIMPLE", or SIMPLE at once; the choice of SIMPLE has no
    /// answer, the client goes on with its context.
    fn on_sasl(&mut self, message: &RpcSasl) -> Result<Action, RpcFault> {
        match SaslState::try_from(message.state) {
            Ok(SaslState::Negotiate) if self.negotiate_sent => Err(unauthorized(
                java::ACCESS_CONTROL,
                "Client already attempted negotiation",
            )),
            Ok(SaslState::Negotiate) => Ok(self.negotiate()),
            Ok(SaslState::Initiate) => match message.auths.as_slice() {
                [auth] if auth.method == "SIMPLE" => {
                    self.sasl_pending = false;
                    Ok(Action::Nothing)
                }
                [auth] if self.negotiate_sent => Err(unauthorized(
                    java::ACCESS_CONTROL,
                    format!(
                        "{} authentication is not enabled.  Available:[SIMPLE]",
                        auth.method
                    ),
                )),
                // A guess of the client that does not fit: tell it what there is.
                [_] => Ok(self.negotiate()),
                _ => Err(unauthorized(java::SASL, "Client mechanism is malformed")),
            },
            Ok(SaslState::Wrap) => Err(RpcFault::invalid_header("Server is not wrapping data")),
            Ok(state) => Err(unauthorized(
                java::SASL,
                format!("Client sent unsupported state {state:?}"),
            )),
            Err(_) => Err(unauthorized(
                java::SASL,
                format!("Client sent unsupported state {}", message.state),
            )),
        }
    }

    fn negotiate(&mut self) -> Action {
        self.negotiate_sent = true;
        Action::Reply(reply::sasl(&RpcSasl {
            state: SaslState::Negotiate as i32,
            auths: vec![SaslAuth {
                method: "SIMPLE".to_owned(),
                mechanism: String::new(),
                ..SaslAuth::default()
            }],
            ..RpcSasl::default()
        }))
    }

    fn on_context(&self, body: &mut Bytes) -> Result<Caller, RpcFault> {
        if self.caller.is_some() {
            return Err(RpcFault::invalid_header(
                "Connection context already processed",
            ));
        }
        let context =
            frame::decode_part::<IpcConnectionContext>(body, HEADER_LIMIT).map_err(|error| {
                RpcFault::undecodable(format!("Error decoding IpcConnectionContextProto: {error}"))
            })?;
        let users = context.user_info.unwrap_or_default();
        let (user, real_user) = match (users.effective_user, users.real_user) {
            (Some(effective), Some(real)) if effective != real => (Some(effective), Some(real)),
            (effective, real) => (effective.or(real), None),
        };
        Ok(Caller {
            user,
            real_user,
            address: self.address,
        })
    }
}

fn unauthorized(class: &'static str, message: impl Into<String>) -> RpcFault {
    RpcFault::fatal(RpcErrorCode::FatalUnauthorized, class, message)
}

fn check_operation(header: &RpcRequestHeader) -> Result<(), RpcFault> {
    match header.rpc_op {
        None => Err(RpcFault::invalid_header(
            " IPC Server: No rpc op in rpcRequestHeader",
        )),
        Some(op) if op != RpcOperation::RpcFinalPacket as i32 => Err(RpcFault::invalid_header(
            format!("IPC Server does not implement rpc header operation{op}"),
        )),
        Some(_) if header.rpc_kind.is_none() => Err(RpcFault::invalid_header(
            " IPC Server: No rpc kind in rpcRequestHeader",
        )),
        Some(_) => Ok(()),
    }
}

fn read_call(
    header: &RpcRequestHeader,
    caller: &Caller,
    mut body: Bytes,
) -> Result<Call, RpcFault> {
    if header.rpc_kind != Some(RpcKind::RpcProtocolBuffer as i32) {
        return Err(RpcFault::invalid_header(format!(
            "Unknown rpc kind in rpc header{}",
            header.rpc_kind.unwrap_or_default()
        )));
    }
    let unreadable = |error| {
        RpcFault::undecodable(format!(
            "IPC server unable to read call parameters: {error}"
        ))
    };
    let request =
        frame::decode_part::<RequestHeader>(&mut body, HEADER_LIMIT).map_err(unreadable)?;
    let limit = body.len();
    let message = frame::take_part(&mut body, limit, "request").map_err(unreadable)?;
    Ok(Call {
        caller: caller.clone(),
        protocol: request.declaring_class_protocol_name,
        version: request.client_protocol_version,
        method: request.method_name,
        request: message,
    })
}
