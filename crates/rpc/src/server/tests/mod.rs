//! The server against raw bytes: what a stock client sends, and what no client should send.

mod garbage;
mod hostile;
mod secure;
mod wrapped;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hayloft_wire::frame;
use hayloft_wire::proto::rpc::{
    IpcConnectionContext, RequestHeader, RpcErrorCode, RpcKind, RpcOperation, RpcRequestHeader,
    RpcResponseHeader, RpcSasl, RpcStatus, SaslAuth, SaslState, UserInformation,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use hayloft_wire::rpc::names;

use super::fault::{RpcFault, java};
use super::negotiation::{Caller, RpcCall};
use super::{Limits, Service, serve};

/// Answers `echo` with its request, `sleep` after a while, and refuses the rest.
struct Echo;

impl Service for Echo {
    async fn authorize(&self, caller: &Caller) -> Result<(), String> {
        match (&caller.real_user, &caller.user) {
            (Some(real), Some(user)) if real != "gateway" => {
                Err(format!("User: {real} is not allowed to impersonate {user}"))
            }
            _ => Ok(()),
        }
    }

    async fn call(&self, call: RpcCall) -> Result<Bytes, RpcFault> {
        match (call.protocol.as_str(), call.method.as_str()) {
            ("test.Protocol", "echo") => {
                let mut out = BytesMut::new();
                hayloft_wire::varint::write_u64(&mut out, call.request.len() as u64);
                out.extend_from_slice(&call.request);
                Ok(out.freeze())
            }
            ("test.Protocol", "sleep") => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(Bytes::from_static(&[0]))
            }
            ("test.Protocol", "panic") => panic!("a bug of the service"),
            ("test.Protocol", "who") => Err(RpcFault::io(format!(
                "{:?}/{:?}",
                call.caller.user, call.caller.real_user
            ))),
            ("test.Protocol", method) => Err(RpcFault::no_such_method(&call.protocol, method)),
            (protocol, _) => Err(RpcFault::no_such_protocol(protocol)),
        }
    }
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    running: AbortOnDropHandle<()>,
}

async fn start(limits: Limits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let running = AbortOnDropHandle::new(tokio::spawn(serve(listener, Echo, limits, stop.clone())));
    Server {
        address,
        stop,
        running,
    }
}

impl Server {
    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.expect("listening"))
    }

    /// A connection on which calls can start.
    async fn client(&self) -> Client {
        let mut client = self.connect().await;
        client.send(b"hrpc\x09\x00\x00").await;
        client.send(&context(Some("alice"), None)).await;
        client
    }
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("the server reads");
    }

    async fn call(&mut self, id: i32, method: &str, body: &[u8]) {
        self.send(&call(id, "test.Protocol", method, body)).await;
    }

    /// The next frame: its header and what follows. `None` when the server closed.
    async fn answer(&mut self) -> Option<(RpcResponseHeader, Bytes)> {
        let length = self.0.read_i32().await.ok()?;
        let mut bytes = vec![0; usize::try_from(length).expect("positive")];
        self.0.read_exact(&mut bytes).await.expect("a whole frame");
        let mut bytes = Bytes::from(bytes);
        let header = frame::decode_part(&mut bytes, 1 << 16).expect("a response header");
        Some((header, bytes))
    }

    async fn fault(&mut self) -> (i32, String, String) {
        let (header, _) = self.answer().await.expect("an answer");
        (
            header.error_detail.unwrap_or_default(),
            header.exception_class_name.unwrap_or_default(),
            header.error_msg.unwrap_or_default(),
        )
    }

    async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _reset = self.0.read_to_end(&mut bytes).await;
        bytes
    }
}

fn request_header(id: i32) -> RpcRequestHeader {
    RpcRequestHeader {
        rpc_kind: Some(RpcKind::RpcProtocolBuffer as i32),
        rpc_op: Some(RpcOperation::RpcFinalPacket as i32),
        call_id: id,
        client_id: Bytes::from_static(&[7; 16]),
        retry_count: Some(0),
        ..RpcRequestHeader::default()
    }
}

fn framed(parts: &[Bytes]) -> Bytes {
    let mut out = BytesMut::new();
    let length: usize = parts.iter().map(Bytes::len).sum();
    out.put_u32(u32::try_from(length).expect("small"));
    for part in parts {
        out.extend_from_slice(part);
    }
    out.freeze()
}

fn context(user: Option<&str>, real: Option<&str>) -> Bytes {
    let context = IpcConnectionContext {
        user_info: Some(UserInformation {
            effective_user: user.map(str::to_owned),
            real_user: real.map(str::to_owned),
        }),
        protocol: Some("test.Protocol".to_owned()),
    };
    framed(&[
        frame::delimited(&request_header(-3)),
        frame::delimited(&context),
    ])
}

fn call(id: i32, protocol: &str, method: &str, body: &[u8]) -> Bytes {
    let header = RequestHeader {
        method_name: method.to_owned(),
        declaring_class_protocol_name: protocol.to_owned(),
        client_protocol_version: 1,
    };
    let mut message = BytesMut::new();
    hayloft_wire::varint::write_u64(&mut message, body.len() as u64);
    message.extend_from_slice(body);
    framed(&[
        frame::delimited(&request_header(id)),
        frame::delimited(&header),
        message.freeze(),
    ])
}

fn sasl(state: SaslState, method: Option<&str>) -> Bytes {
    let message = RpcSasl {
        state: state as i32,
        auths: method
            .map(|method| SaslAuth {
                method: method.to_owned(),
                ..SaslAuth::default()
            })
            .into_iter()
            .collect(),
        ..RpcSasl::default()
    };
    framed(&[
        frame::delimited(&request_header(-33)),
        frame::delimited(&message),
    ])
}

#[tokio::test]
async fn answers_calls_and_ignores_pings() {
    let server = start(Limits::default()).await;
    let mut client = server.client().await;
    client
        .send(&framed(&[frame::delimited(&request_header(-4))]))
        .await;
    client.call(5, "echo", b"hello").await;
    let (header, body) = client.answer().await.expect("an answer");
    assert_eq!(header.call_id, 5);
    assert_eq!(header.status, RpcStatus::Success as i32);
    assert_eq!(header.client_id.as_deref(), Some(&[7; 16][..]));
    assert_eq!(&body[..], b"\x05hello");
}

#[tokio::test]
async fn calls_overtake_each_other() {
    let server = start(Limits::default()).await;
    let mut client = server.client().await;
    client.call(1, "sleep", b"").await;
    client.call(2, "echo", b"").await;
    assert_eq!(client.answer().await.expect("an answer").0.call_id, 2);
    assert_eq!(client.answer().await.expect("an answer").0.call_id, 1);
}

#[tokio::test]
async fn more_calls_than_handlers_wait_their_turn() {
    let limits = Limits {
        handlers: 2,
        queue: 3,
        calls_per_connection: 2,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut client = server.client().await;
    for id in 0..50 {
        client.call(id, "echo", &[9; 100]).await;
    }
    let mut seen = Vec::new();
    for _ in 0..50 {
        seen.push(client.answer().await.expect("an answer").0.call_id);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn refuses_what_it_does_not_serve_and_goes_on() {
    let server = start(Limits::default()).await;
    let mut client = server.client().await;
    client.call(1, "nonsense", b"").await;
    assert_eq!(
        client.fault().await,
        (
            RpcErrorCode::ErrorNoSuchMethod as i32,
            names::RPC_NO_SUCH_METHOD.to_owned(),
            "Unknown method nonsense called on test.Protocol protocol.".to_owned()
        )
    );
    client.send(&call(2, "other.Protocol", "echo", b"")).await;
    assert_eq!(
        client.fault().await,
        (
            RpcErrorCode::ErrorNoSuchProtocol as i32,
            names::RPC_NO_SUCH_PROTOCOL.to_owned(),
            "Unknown protocol: other.Protocol".to_owned()
        )
    );
    client.call(3, "panic", b"").await;
    assert_eq!(client.fault().await.1, names::IO_EXCEPTION);
    client.call(4, "echo", b"").await;
    assert_eq!(client.answer().await.expect("an answer").0.call_id, 4);
}

#[tokio::test]
async fn sasl_clients_are_offered_simple() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    client.send(b"hrpc\x09\x00\xdf").await;
    client.send(&sasl(SaslState::Negotiate, None)).await;
    let (header, mut body) = client.answer().await.expect("an answer");
    assert_eq!(header.call_id.cast_signed(), -33);
    let offer: RpcSasl = frame::decode_part(&mut body, 1 << 16).expect("a SASL message");
    assert_eq!(offer.state, SaslState::Negotiate as i32);
    assert_eq!(offer.auths[0].method, "SIMPLE");
    client
        .send(&sasl(SaslState::Initiate, Some("SIMPLE")))
        .await;
    client.send(&context(Some("bob"), None)).await;
    client.call(1, "who", b"").await;
    assert_eq!(client.fault().await.2, "Some(\"bob\")/None");
}

#[tokio::test]
async fn a_sasl_client_may_start_with_simple_or_with_a_wrong_guess() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    client.send(b"hrpc\x09\x00\xdf").await;
    client
        .send(&sasl(SaslState::Initiate, Some("KERBEROS")))
        .await;
    let (_, mut body) = client.answer().await.expect("an answer");
    let offer: RpcSasl = frame::decode_part(&mut body, 1 << 16).expect("a SASL message");
    assert_eq!(offer.state, SaslState::Negotiate as i32);
    client
        .send(&sasl(SaslState::Initiate, Some("KERBEROS")))
        .await;
    let (code, class, message) = client.fault().await;
    assert_eq!(code, RpcErrorCode::FatalUnauthorized as i32);
    assert_eq!(class, names::ACCESS_CONTROL_EXCEPTION);
    assert!(message.contains("Available:[SIMPLE]"), "{message}");
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn users_act_for_others_only_when_allowed() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    client.send(b"hrpc\x09\x00\x00").await;
    client.send(&context(Some("alice"), Some("mallory"))).await;
    let (code, class, message) = client.fault().await;
    assert_eq!(code, RpcErrorCode::FatalUnauthorized as i32);
    assert_eq!(class, java::AUTHORIZATION);
    assert_eq!(message, "User: mallory is not allowed to impersonate alice");
    let mut client = server.connect().await;
    client.send(b"hrpc\x09\x00\x00").await;
    client.send(&context(Some("alice"), Some("gateway"))).await;
    client.call(1, "who", b"").await;
    assert_eq!(client.fault().await.2, "Some(\"alice\")/Some(\"gateway\")");
}

#[tokio::test]
async fn tells_browsers_and_old_clients_what_they_met() {
    let server = start(Limits::default()).await;
    let mut browser = server.connect().await;
    browser.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(
        browser
            .rest()
            .await
            .starts_with(b"HTTP/1.1 404 Not Found\r\n")
    );

    let mut newer = server.connect().await;
    newer.send(b"hrpc\x0a\x00\x00").await;
    let (code, class, message) = newer.fault().await;
    assert_eq!(code, RpcErrorCode::FatalVersionMismatch as i32);
    assert_eq!(class, names::RPC_VERSION_MISMATCH);
    assert_eq!(
        message,
        "Server IPC version 9 cannot communicate with client version 10"
    );

    let mut older = server.connect().await;
    older.send(b"hrpc\x04\x00\x00").await;
    let bytes = older.rest().await;
    assert_eq!(&bytes[..8], &[0xff; 8]);

    let mut stranger = server.connect().await;
    stranger.send(b"\x00\x00\x00\x00\x00\x00\x00").await;
    assert!(stranger.rest().await.is_empty());

    let mut unknown_auth = server.connect().await;
    unknown_auth.send(b"hrpc\x09\x00\x11").await;
    assert_eq!(unknown_auth.fault().await.2, "Unknown auth protocol:17");
}

#[tokio::test]
async fn stopping_lets_calls_under_way_finish() {
    let mut server = start(Limits::default()).await;
    let mut client = server.client().await;
    client.call(1, "sleep", b"").await;
    client.call(2, "echo", b"").await;
    client.answer().await.expect("the second call has come");
    server.stop.cancel();
    assert_eq!(client.answer().await.expect("an answer").0.call_id, 1);
    assert!(client.answer().await.is_none());
    (&mut server.running).await.expect("ends by itself");
}
