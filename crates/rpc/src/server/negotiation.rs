//! What a connection has agreed on so far, without the socket: header, SASL exchange, connection
//! context, then calls. Bytes of a whole frame go in, what to do about them comes out.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::rpc::{
    self, BadRequest, CALL_CONTEXT, CALL_SASL, CONNECTION_HEADER_BYTES, IncomingFrame,
    IpcConnectionContext, MAGIC, RPC_VERSION, RpcErrorCode, RpcRequestHeader, RpcSasl, SaslAuth,
    SaslState, names,
};

use super::exchange::{Proven, RpcServerSecurity};
use super::fault::{RpcFault, java};
use super::response_frames;
use super::tokens::{self, RpcTokens, TokenChallenge};
use crate::log_limit::words;
use hayloft_wire::proto::rpc::UserInformation;

/// Auth byte of the header: the context follows at once.
const AUTH_NONE: i8 = 0;
/// Auth byte of the header: a SASL exchange comes first.
const AUTH_SASL: i8 = -33;

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User the calls are made as; `None` when the client did not say.
    pub user: Option<String>,
    /// User that really connected, when it acts for another one.
    pub real_user: Option<String>,
    /// Java interface that the connection was opened for; `None` when the client did not say.
    pub protocol: Option<String>,
    /// The block token that the caller proved to hold, and by which alone it is known.
    pub token: Option<Arc<BlockTokenIdentifier>>,
    /// Where the connection comes from.
    pub address: SocketAddr,
}

/// One call, not yet carried out.
#[derive(Clone, Debug)]
pub struct RpcCall {
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
    pub(super) fn parse(bytes: &[u8; CONNECTION_HEADER_BYTES]) -> Self {
        if bytes.starts_with(b"GET ") {
            return Self::Http;
        }
        let version = bytes[4].cast_signed();
        if !bytes.starts_with(&MAGIC) || version != RPC_VERSION.cast_signed() {
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
            Self::Http => Some(Bytes::from_static(response_frames::HTTP_REFUSAL)),
            Self::Mismatch { version } => response_frames::version_mismatch(version),
            Self::UnknownAuth { auth } => Some(response_frames::failure(
                &response_frames::out_of_band(CALL_SASL),
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
    Call(Box<RpcRequestHeader>, RpcCall),
    /// Go on with the exchange of Kerberos, with this token of the client; `anew` begins it.
    Exchange {
        /// Whether this is the client's first token.
        anew: bool,
        /// The token.
        token: Bytes,
    },
    /// The caller has proved who it is: send this, then go on as agreed.
    Believe(Box<Proven>, Bytes),
    /// Ask whether this caller may connect, then [`Session::admit`] or [`Session::reject`].
    Authorize(Caller),
    /// Send this and close: the client broke the protocol or may not connect.
    Close(Bytes, RpcFault),
}

/// State of one connection after its header.
#[derive(Debug)]
pub(super) struct Session {
    address: SocketAddr,
    /// With Kerberos, callers have to prove who they are.
    security: Option<Arc<RpcServerSecurity>>,
    /// Callers may prove to hold a token.
    tokens: Option<RpcTokens>,
    /// What was asked of one who may.
    challenge: Option<TokenChallenge>,
    /// An exchange has begun.
    exchanging: bool,
    proven: Option<Proven>,
    /// A SASL exchange was announced and is not over.
    sasl_pending: bool,
    negotiate_sent: bool,
    caller: Option<Caller>,
}

impl Session {
    pub(super) fn new(
        address: SocketAddr,
        sasl: bool,
        security: Option<Arc<RpcServerSecurity>>,
        tokens: Option<RpcTokens>,
    ) -> Self {
        Self {
            address,
            security,
            tokens,
            challenge: None,
            exchanging: false,
            proven: None,
            sasl_pending: sasl,
            negotiate_sent: false,
            caller: None,
        }
    }

    /// Whether the connection context has come.
    pub(super) fn established(&self) -> bool {
        self.caller.is_some()
    }

    /// The client has proved who it is: its context may come.
    pub(super) fn prove(&mut self, proven: Proven) {
        self.sasl_pending = false;
        self.proven = Some(proven);
    }

    /// Last words to a client that opened without SASL where it has to prove who it is.
    pub(super) fn unproven(&self) -> Option<(Bytes, RpcFault)> {
        let security = self.security.as_ref().filter(|_| !self.sasl_pending)?;
        let fault = not_enabled("SIMPLE", &security.available());
        let call = response_frames::out_of_band(CALL_SASL);
        Some((response_frames::failure(&call, &fault), fault))
    }

    /// Calls are accepted from now on.
    pub(super) fn admit(&mut self, caller: Caller) {
        self.caller = Some(caller);
    }

    /// Last words to a caller that may not connect.
    pub(super) fn reject(why: String) -> Action {
        let fault = unauthorized(java::AUTHORIZATION, why);
        Action::Close(
            response_frames::failure(&response_frames::out_of_band(CALL_CONTEXT), &fault),
            fault,
        )
    }

    /// What to do about the frame `bytes` (without its length).
    pub(super) fn on_frame(&mut self, bytes: Bytes) -> Action {
        let (header, outcome) = match rpc::parse_request(bytes) {
            Ok(IncomingFrame::Ping) => return Action::Nothing,
            Ok(IncomingFrame::Context(context)) => (
                response_frames::out_of_band(CALL_CONTEXT),
                self.on_context(context),
            ),
            Ok(IncomingFrame::Sasl(header, message)) => (*header, self.on_sasl(message)),
            Ok(IncomingFrame::Call(call)) => {
                let header = call.header.clone();
                let outcome = self.on_call(*call);
                (header, outcome)
            }
            Err(BadRequest { header, error }) => {
                let header = header.map_or_else(
                    || response_frames::out_of_band(response_frames::CALL_UNKNOWN),
                    |h| *h,
                );
                let fault = RpcFault::fatal(error.code(), java::FATAL, error.to_string());
                (header, Err(fault))
            }
        };
        outcome
            .unwrap_or_else(|fault| Action::Close(response_frames::failure(&header, &fault), fault))
    }

    fn on_call(&self, call: rpc::IncomingCall) -> Result<Action, RpcFault> {
        let Some(caller) = &self.caller else {
            return Err(RpcFault::invalid_header(
                "Connection context not established",
            ));
        };
        let wanted = RpcCall {
            caller: caller.clone(),
            protocol: call.request.declaring_class_protocol_name,
            version: call.request.client_protocol_version,
            method: call.request.method_name,
            request: call.message,
        };
        Ok(Action::Call(Box::new(call.header), wanted))
    }

    /// One step of the SASL exchange. Without Kerberos only SIMPLE is on offer, so an exchange is
    /// either "what do you have" followed by "then SIMPLE", or SIMPLE at once. The choice of SIMPLE
    /// has no answer: the client goes on with its context.
    fn on_sasl(&mut self, message: RpcSasl) -> Result<Action, RpcFault> {
        if !self.sasl_pending {
            return Err(RpcFault::invalid_header(
                "SASL protocol not requested by client",
            ));
        }
        match SaslState::try_from(message.state) {
            Ok(SaslState::Negotiate) if self.negotiate_sent => Err(unauthorized(
                names::ACCESS_CONTROL_EXCEPTION,
                "Client already attempted negotiation",
            )),
            Ok(SaslState::Negotiate) => Ok(self.negotiate()),
            // Each exchange reads the keytab, and its steps are counted.
            Ok(SaslState::Initiate) if self.exchanging => Err(unauthorized(
                java::SASL,
                "Client has begun an exchange already",
            )),
            Ok(SaslState::Initiate) => self.initiate(message),
            Ok(SaslState::Response) if self.exchanging => exchange(false, message.token),
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

    /// The client chose one of the ways on offer, or guessed.
    fn initiate(&mut self, message: RpcSasl) -> Result<Action, RpcFault> {
        if let ([auth], Some(challenge)) = (message.auths.as_slice(), self.challenge.take())
            && *auth == tokens::auth()
        {
            let (proven, proof) = challenge.verify(&message.token.unwrap_or_default())?;
            let last = RpcSasl::step(SaslState::Success, proof);
            let last = rpc::encode_sasl_response(&last);
            return Ok(Action::Believe(Box::new(proven), last));
        }
        let offers = self.offers();
        match message.auths.as_slice() {
            [auth] if self.security.is_none() && auth.method == "SIMPLE" => {
                self.sasl_pending = false;
                Ok(Action::Nothing)
            }
            [auth] if self.security.is_some() && offers.contains(auth) => {
                self.exchanging = true;
                exchange(true, message.token)
            }
            [auth] if self.negotiate_sent => {
                let security = self.security.as_ref();
                let available = security.map_or("[SIMPLE]".to_owned(), |s| s.available());
                Err(not_enabled(&words(&auth.method), &available))
            }
            // A guess of the client that does not fit: tell it what there is.
            [_] => Ok(self.negotiate()),
            _ => Err(unauthorized(java::SASL, "Client mechanism is malformed")),
        }
    }

    fn offers(&self) -> Vec<SaslAuth> {
        self.security.as_ref().map_or_else(
            || {
                vec![SaslAuth {
                    method: "SIMPLE".to_owned(),
                    ..SaslAuth::default()
                }]
            },
            |security| security.offers(),
        )
    }

    fn negotiate(&mut self) -> Action {
        self.negotiate_sent = true;
        let mut offers = self.offers();
        if let Some(tokens) = &self.tokens {
            let (challenge, offered) = TokenChallenge::new(tokens.clone());
            self.challenge = Some(challenge);
            offers.insert(0, offered);
        }
        Action::Reply(rpc::encode_sasl_response(&RpcSasl::offer(offers)))
    }

    fn on_context(&self, context: IpcConnectionContext) -> Result<Action, RpcFault> {
        if self.sasl_pending {
            return Err(RpcFault::invalid_header(
                "Connection header sent during SASL negotiation",
            ));
        }
        if let (Some(security), None) = (&self.security, &self.proven) {
            return Err(not_enabled("SIMPLE", &security.available()));
        }
        if self.caller.is_some() {
            return Err(RpcFault::invalid_header(
                "Connection context already processed",
            ));
        }
        let users = context.user_info.unwrap_or_default();
        let token = self.proven.as_ref().and_then(|proven| proven.token.clone());
        let other = |user: &&String| self.proven.as_ref().is_some_and(|p| p.principal != **user);
        if let (Some(_), Some(user)) = (&token, users.effective_user.as_ref().filter(other)) {
            // As with Apache's, a token is good for its own user alone.
            return Err(unauthorized(
                names::ACCESS_CONTROL_EXCEPTION,
                format!(
                    "Authenticated user doesn't match what the client claims to be ({})",
                    words(user)
                ),
            ));
        }
        let users = match &self.proven {
            None => users,
            // A client acts as whom it proved to be, or for whom its context names.
            Some(proven) => UserInformation {
                effective_user: users
                    .effective_user
                    .or_else(|| Some(proven.principal.clone())),
                real_user: Some(proven.principal.clone()),
            },
        };
        let (user, real_user) = match (users.effective_user, users.real_user) {
            (Some(effective), Some(real)) if effective != real => (Some(effective), Some(real)),
            (effective, real) => (effective.or(real), None),
        };
        Ok(Action::Authorize(Caller {
            user,
            real_user,
            protocol: context.protocol,
            token,
            address: self.address,
        }))
    }
}

/// The next token of the client's.
fn exchange(anew: bool, token: Option<Bytes>) -> Result<Action, RpcFault> {
    let token = token.ok_or_else(|| unauthorized(java::SASL, "Client did not send a token"))?;
    Ok(Action::Exchange { anew, token })
}

fn not_enabled(method: &str, available: &str) -> RpcFault {
    unauthorized(
        names::ACCESS_CONTROL_EXCEPTION,
        format!("{method} authentication is not enabled.  Available:{available}"),
    )
}

fn unauthorized(class: &'static str, message: impl Into<String>) -> RpcFault {
    RpcFault::fatal(RpcErrorCode::FatalUnauthorized, class, message)
}
