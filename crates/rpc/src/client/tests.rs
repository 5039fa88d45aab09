//! The client against a tiny server that speaks just enough of the protocol.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hayloft_wire::frame;
use hayloft_wire::proto::datanode::{ErrorReportRequest, ErrorReportResponse};
use hayloft_wire::proto::hdfs_server::{NamespaceInfo, VersionRequest, VersionResponse};
use hayloft_wire::proto::rpc::{
    IpcConnectionContext, RequestHeader, RpcErrorCode, RpcRequestHeader, RpcResponseHeader,
    RpcStatus,
};
use hayloft_wire::rpc::CLIENT_ID_BYTES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection_tasks::Shared;
use super::{RpcClient, RpcConnection, RpcError, RpcOptions};
use crate::DATANODE_PROTOCOL;

/// A request as the server saw it.
struct Seen {
    header: RpcRequestHeader,
    method: Option<RequestHeader>,
    rest: Bytes,
}

async fn accept(listener: &TcpListener) -> (TcpStream, IpcConnectionContext) {
    let (mut stream, _) = listener.accept().await.expect("accept");
    let mut magic = [0; 7];
    stream
        .read_exact(&mut magic)
        .await
        .expect("connection header");
    assert_eq!(&magic, b"hrpc\x09\x00\x00");
    let mut seen = receive(&mut stream).await.expect("context");
    assert_eq!(seen.header.call_id, -3);
    let context = frame::decode_part(&mut seen.rest, 1 << 16).expect("context");
    (stream, context)
}

async fn receive(stream: &mut TcpStream) -> Option<Seen> {
    let len = stream.read_u32().await.ok()?;
    let mut body = vec![0; usize::try_from(len).expect("fits")];
    stream.read_exact(&mut body).await.ok()?;
    let mut rest = Bytes::from(body);
    let header: RpcRequestHeader = frame::decode_part(&mut rest, 1 << 16).expect("header");
    let method =
        (header.call_id >= 0).then(|| frame::decode_part(&mut rest, 1 << 16).expect("method"));
    Some(Seen {
        header,
        method,
        rest,
    })
}

/// What a connection to `peer` shares.
pub(super) fn shared(peer: SocketAddr) -> Shared {
    Shared {
        address: "test".to_owned(),
        peer,
        client_id: [7; CLIENT_ID_BYTES],
        options: RpcOptions::default(),
        next_call_id: AtomicI32::new(0),
        pending: Mutex::new(Ok(HashMap::new())),
        calls: Semaphore::new(1),
        started: Instant::now(),
        heard_ms: AtomicU64::new(0),
        closed: CancellationToken::new(),
    }
}

/// The frame of an exception that ends the connection.
pub(super) fn refusal(call: i32, class: &str, message: &str) -> Bytes {
    let header = RpcResponseHeader {
        call_id: call.cast_unsigned(),
        status: RpcStatus::Fatal.into(),
        exception_class_name: Some(class.to_owned()),
        error_msg: Some(message.to_owned()),
        ..RpcResponseHeader::default()
    };
    let mut body = BytesMut::new();
    frame::encode_delimited(&header, &mut body);
    let mut out = BytesMut::new();
    out.put_u32(u32::try_from(body.len()).expect("short"));
    out.extend_from_slice(&body);
    out.freeze()
}

async fn answer(stream: &mut TcpStream, header: RpcResponseHeader, body: Option<&VersionResponse>) {
    let mut out = BytesMut::new();
    frame::encode_delimited(&header, &mut out);
    if let Some(body) = body {
        frame::encode_delimited(body, &mut out);
    }
    let mut framed = BytesMut::new();
    framed.put_u32(u32::try_from(out.len()).expect("short"));
    framed.extend_from_slice(&out);
    stream.write_all(&framed).await.expect("answer");
}

fn success(call_id: i32) -> RpcResponseHeader {
    RpcResponseHeader {
        call_id: call_id.cast_unsigned(),
        status: RpcStatus::Success.into(),
        ..RpcResponseHeader::default()
    }
}

fn failure(call_id: i32, status: RpcStatus) -> RpcResponseHeader {
    RpcResponseHeader {
        status: status.into(),
        exception_class_name: Some("org.apache.hadoop.ipc.StandbyException".to_owned()),
        error_msg: Some("not active\n\tat Some.java:1".to_owned()),
        error_detail: Some(RpcErrorCode::ErrorApplication.into()),
        ..success(call_id)
    }
}

fn version(build: &str) -> VersionResponse {
    VersionResponse {
        info: NamespaceInfo {
            build_version: build.to_owned(),
            ..NamespaceInfo::default()
        },
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    (listener, address)
}

fn options() -> RpcOptions {
    RpcOptions {
        user: "alice".to_owned(),
        call_timeout: Some(Duration::from_secs(5)),
        ..RpcOptions::default()
    }
}

async fn ask(client: &RpcClient) -> Result<VersionResponse, RpcError> {
    client.call("versionRequest", &VersionRequest {}).await
}

#[tokio::test]
async fn answers_in_any_order_reach_their_calls() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        let (mut stream, context) = accept(&listener).await;
        assert_eq!(context.protocol.as_deref(), Some(DATANODE_PROTOCOL.name));
        let user = context.user_info.expect("a user");
        assert_eq!(user.effective_user.as_deref(), Some("alice"));
        assert_eq!(user.real_user.as_deref(), Some("proxy"));
        let mut calls = Vec::new();
        for _ in 0..20 {
            let seen = receive(&mut stream).await.expect("request");
            let method = seen.method.expect("method");
            assert_eq!(method.method_name, "versionRequest");
            assert_eq!(method.client_protocol_version, 1);
            assert_eq!(seen.header.client_id.len(), 16);
            calls.push(seen.header.call_id);
        }
        for call_id in calls.into_iter().rev() {
            answer(
                &mut stream,
                success(call_id),
                Some(&version(&call_id.to_string())),
            )
            .await;
        }
        stream
    });
    let options = RpcOptions {
        real_user: Some("proxy".to_owned()),
        ..options()
    };
    let client = Arc::new(RpcClient::new(address, DATANODE_PROTOCOL, options));
    client.connection().await.expect("connects");
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { ask(&client).await })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(
            call.await
                .expect("task")
                .expect("answer")
                .info
                .build_version,
        );
    }
    answers.sort_by_key(|id| id.parse::<u32>().expect("number"));
    answers.dedup();
    assert_eq!(answers.len(), 20);
    drop(server.await.expect("server"));
}

#[tokio::test]
async fn an_exception_keeps_the_connection_and_a_fatal_one_ends_it() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        for status in [RpcStatus::Error, RpcStatus::Fatal] {
            let seen = receive(&mut stream).await.expect("request");
            answer(&mut stream, failure(seen.header.call_id, status), None).await;
        }
        let (mut stream, _) = accept(&listener).await;
        let seen = receive(&mut stream).await.expect("request");
        answer(
            &mut stream,
            success(seen.header.call_id),
            Some(&version("again")),
        )
        .await;
        receive(&mut stream).await;
    });
    let client = RpcClient::new(address, DATANODE_PROTOCOL, options());
    let error = ask(&client).await.expect_err("exception");
    assert!(error.is_standby());
    assert_eq!(
        error.remote_class(),
        Some("org.apache.hadoop.ipc.StandbyException")
    );
    assert_eq!(
        error.brief(),
        "org.apache.hadoop.ipc.StandbyException: not active"
    );
    let connection = client.connection().await.expect("the same");
    assert!(ask(&client).await.expect_err("fatal").is_standby());
    assert!(connection.is_closed());
    assert_eq!(
        ask(&client)
            .await
            .expect("new connection")
            .info
            .build_version,
        "again"
    );
}

#[tokio::test]
async fn a_lost_connection_fails_every_call_in_flight() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        for _ in 0..3 {
            receive(&mut stream).await;
        }
    });
    let client = RpcClient::new(address, DATANODE_PROTOCOL, options());
    let (a, b, c) = tokio::join!(ask(&client), ask(&client), ask(&client));
    for result in [a, b, c] {
        assert!(matches!(result, Err(RpcError::Lost { .. })));
    }
}

#[tokio::test]
async fn a_silent_server_costs_one_timeout_and_the_connection() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let mut pings = 0;
        while let Some(seen) = receive(&mut stream).await {
            pings += usize::from(seen.header.call_id == -4);
        }
        pings
    });
    let options = RpcOptions {
        call_timeout: Some(Duration::from_millis(300)),
        ping_interval: Some(Duration::from_millis(100)),
        ..options()
    };
    let client = RpcClient::new(address, DATANODE_PROTOCOL, options);
    let connection = client.connection().await.expect("connects");
    assert!(matches!(ask(&client).await, Err(RpcError::Timeout { .. })));
    assert!(connection.is_closed());
    assert!(server.await.expect("server") >= 1);
}

#[tokio::test]
async fn a_lying_length_ends_the_connection_without_the_memory() {
    for (len, limit) in [(u32::MAX, 1 << 20), (1 << 26, 1 << 27)] {
        let (listener, address) = listen().await;
        tokio::spawn(async move {
            let (mut stream, _) = accept(&listener).await;
            receive(&mut stream).await;
            stream.write_all(&len.to_be_bytes()).await.expect("length");
            stream.write_all(b"short").await.expect("body");
        });
        let options = RpcOptions {
            response_max_bytes: limit,
            ..options()
        };
        let client = RpcClient::new(address, DATANODE_PROTOCOL, options);
        let error = ask(&client).await.expect_err("nonsense");
        assert!(
            matches!(error, RpcError::Malformed { .. } | RpcError::Lost { .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn garbage_and_answers_to_no_call_do_no_harm() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let seen = receive(&mut stream).await.expect("request");
        answer(&mut stream, success(99), Some(&version("of no call"))).await;
        answer(
            &mut stream,
            success(seen.header.call_id),
            Some(&version("mine")),
        )
        .await;
        receive(&mut stream).await.expect("request");
        stream
            .write_all(b"\x00\x00\x00\x04\xff\xff\xff\xff")
            .await
            .expect("garbage");
        receive(&mut stream).await;
    });
    let client = RpcClient::new(address, DATANODE_PROTOCOL, options());
    assert_eq!(
        ask(&client).await.expect("answer").info.build_version,
        "mine"
    );
    assert!(matches!(
        ask(&client).await,
        Err(RpcError::Malformed { .. })
    ));
}

#[tokio::test]
async fn an_oversized_request_stays_here() {
    let (listener, address) = listen().await;
    let peer = listener.local_addr().expect("address");
    let options = RpcOptions {
        request_max_bytes: 1000,
        ..options()
    };
    let connection = RpcConnection::connect(&address, peer, DATANODE_PROTOCOL, options)
        .await
        .expect("connects");
    let request = ErrorReportRequest {
        msg: "x".repeat(2000),
        ..ErrorReportRequest::default()
    };
    let result: Result<ErrorReportResponse, _> = connection
        .call(DATANODE_PROTOCOL, "errorReport", &request)
        .await;
    assert!(matches!(result, Err(RpcError::TooLarge { .. })));
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_port_without_a_listener_is_told_as_such() {
    let (listener, address) = listen().await;
    drop(listener);
    let client = RpcClient::new(address, DATANODE_PROTOCOL, options());
    let error = ask(&client).await.expect_err("refused");
    assert!(matches!(error, RpcError::Connect { .. }));
}

#[tokio::test]
async fn a_connection_comes_from_the_address_that_is_asked_for() {
    let (listener, address) = listen().await;
    for (local, seen) in [(None, "127.0.0.1"), (Some("127.0.0.9"), "127.0.0.9")] {
        let options = RpcOptions {
            local: local.map(|text| text.parse().expect("an address")),
            ..options()
        };
        let client = RpcClient::new(address.clone(), DATANODE_PROTOCOL, options);
        client.connection().await.expect("connects");
        let (_stream, peer) = listener.accept().await.expect("accepts");
        assert_eq!(peer.ip().to_string(), seen);
    }
    // One that is not of this host (TEST-NET-1) is named.
    let options = RpcOptions {
        local: Some("192.0.2.7".parse().expect("an address")),
        ..options()
    };
    let client = RpcClient::new(address, DATANODE_PROTOCOL, options);
    let error = client
        .connection()
        .await
        .map(drop)
        .expect_err("no such address");
    assert!(error.to_string().contains("from 192.0.2.7"), "{error}");
}
