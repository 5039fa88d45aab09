//! Messages of a SASL exchange, whose server has proved nothing until its end.

use bytes::BytesMut;
use hayloft_wire::frame;
use hayloft_wire::rpc::{
    self as wire, AuthProtocol, CALL_SASL, ConnectionHeader, RemoteError, RpcSasl, SaslAuth,
    SaslState,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::RpcError;
use super::connection_tasks::{Shared, read_frame};
use crate::log_limit::words;

/// Begins the connection, and asks the server what it offers.
pub(super) async fn negotiate(
    stream: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
) -> Result<(), RpcError> {
    let header = ConnectionHeader {
        service_class: 0,
        auth: AuthProtocol::Sasl,
    };
    let mut first = BytesMut::from(&header.encode()[..]);
    first.extend_from_slice(&wire::encode_sasl_request(&RpcSasl {
        state: SaslState::Negotiate.into(),
        ..RpcSasl::default()
    }));
    write(stream, shared, &first).await
}

/// Takes one of the offers, with the first token of its mechanism.
pub(super) async fn initiate(
    stream: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    offer: SaslAuth,
    token: Vec<u8>,
) -> Result<(), RpcError> {
    let initiate = RpcSasl {
        auths: vec![offer],
        ..RpcSasl::step(SaslState::Initiate, token)
    };
    send(stream, shared, &initiate).await
}

pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    message: &RpcSasl,
) -> Result<(), RpcError> {
    write(stream, shared, &wire::encode_sasl_request(message)).await
}

async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    bytes: &[u8],
) -> Result<(), RpcError> {
    let sent = stream.write_all(bytes).await;
    sent.map_err(|error| shared.lost(error))
}

/// The next message, of at most `bytes_max`. `refusal` says what an exception of the server
/// comes to.
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    shared: &Shared,
    bytes_max: usize,
    refusal: impl FnOnce(RemoteError) -> RpcError,
) -> Result<RpcSasl, RpcError> {
    let bytes = read_frame(stream, shared, bytes_max).await?;
    let response = wire::parse_response(bytes).map_err(|error| shared.malformed(error))?;
    let id = response.call_id();
    let body = response.outcome.map_err(refusal)?;
    if id != CALL_SASL {
        return Err(shared.malformed(format!("call {id} inside the exchange of SASL")));
    }
    frame::decode(body).map_err(|error| shared.malformed(error))
}

/// The first line of what an exception says.
pub(super) fn first_line(error: &RemoteError) -> String {
    words(error.message.lines().next().unwrap_or_default())
}

/// All that a server of Java tells a caller whose ticket it does not believe.
const NOT_BELIEVED: &str = "GSS initiate failed";
const LOOK_FOR: &str = ": its log says why. Where it speaks of clock skew, or of a ticket that is \
    not yet valid, correct the clocks of this host, of the KDC and of that server (chrony or ntpd)";

/// An exception as a reason for the log, and not as one of a NameNode.
pub(super) fn refused_with(shared: &Shared, error: &RemoteError) -> RpcError {
    let (class, line) = (words(&error.class_name), first_line(error));
    let hint = match line.starts_with(NOT_BELIEVED) {
        true => LOOK_FOR,
        false => "",
    };
    refused(shared, format!("it refuses with {class}: {line}{hint}"))
}

/// The ways that a server offers, for messages.
pub(super) fn offered_methods(offers: &[SaslAuth]) -> String {
    let methods: Vec<_> = offers.iter().map(|auth| auth.method.as_str()).collect();
    if methods.is_empty() {
        return "nothing".to_owned();
    }
    words(&methods.join(", "))
}

pub(super) fn refused(shared: &Shared, reason: impl ToString) -> RpcError {
    RpcError::Unproven {
        address: shared.address.clone(),
        reason: reason.to_string(),
    }
}
