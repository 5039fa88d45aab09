//! Clients that break the rules, or take their time.

use super::*;

#[tokio::test]
async fn bad_frames_end_the_connection_only() {
    let server = start(Limits::default()).await;
    let mut good = server.client().await;
    let garbage: &[&[u8]] = &[
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03\xff\xff\xff",
        b"\x00\x00\x00\x05\x04\x00\x00\x00\x00",
    ];
    for bytes in garbage {
        let mut client = server.client().await;
        client.send(bytes).await;
        client.rest().await;
    }
    let mut early = server.connect().await;
    early.send(b"hrpc\x09\x00\x00").await;
    early.send(&call(1, "test.Protocol", "echo", b"")).await;
    assert_eq!(early.fault().await.2, "Connection context not established");
    assert!(early.answer().await.is_none());
    good.call(1, "echo", b"").await;
    assert_eq!(good.answer().await.expect("an answer").0.call_id, 1);
}

#[tokio::test]
async fn pings_keep_no_connection_of_whom_nothing_is_known() {
    let limits = Limits {
        patience: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut client = server.connect().await;
    client.send(b"hrpc\x09\x00\x00").await;
    let ping = framed(&[frame::delimited(&request_header(-4))]);
    let pinging = async {
        while client.0.write_all(&ping).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), pinging).await;
    assert!(ended.is_ok());
}

#[tokio::test]
async fn slow_and_silent_clients_are_let_go() {
    let limits = Limits {
        patience: Duration::from_millis(100),
        idle: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut half_header = server.connect().await;
    half_header.send(b"hrp").await;
    let mut no_context = server.connect().await;
    no_context.send(b"hrpc\x09\x00\x00").await;
    let mut half_frame = server.client().await;
    half_frame.send(b"\x00\x00\x10\x00abc").await;
    let mut idle = server.client().await;
    for client in [
        &mut half_header,
        &mut no_context,
        &mut half_frame,
        &mut idle,
    ] {
        let ended = tokio::time::timeout(Duration::from_secs(10), client.rest()).await;
        assert!(ended.is_ok());
    }
    // A call that takes longer than the idle time keeps its connection.
    let mut busy = server.client().await;
    busy.call(1, "sleep", b"").await;
    assert_eq!(busy.answer().await.expect("an answer").0.call_id, 1);
}

#[tokio::test]
async fn too_many_connections_do_not_hurt_the_first_ones() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut first = server.client().await;
    let second = server.client().await;
    first.call(1, "echo", b"").await;
    first.answer().await.expect("an answer");
    let mut third = server.connect().await;
    assert!(third.rest().await.is_empty());
    drop(second);
    first.call(2, "echo", b"").await;
    assert_eq!(first.answer().await.expect("an answer").0.call_id, 2);
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_let_go() {
    let limits = Limits {
        write_timeout: Duration::from_millis(200),
        calls_per_connection: 4,
        queue: 4,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut deaf = server.client().await;
    let big = vec![1; 1 << 20];
    // It asks for more than all buffers hold, and is cut off instead of being queued for.
    // How much they hold, the machine says: tens of MiB where sockets may grow so far.
    let cut_off = async {
        for id in 0.. {
            let frame = call(id, "test.Protocol", "echo", &big);
            if deaf.0.write_all(&frame).await.is_err() {
                break;
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(30), cut_off).await;
    assert!(refused.is_ok());
    let mut good = server.client().await;
    good.call(1, "echo", b"").await;
    assert_eq!(good.answer().await.expect("an answer").0.call_id, 1);
}
