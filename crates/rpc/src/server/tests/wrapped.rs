//! Frames inside `WRAP` messages: in which pieces they come, what they cost, how long they may
//! take.

use std::sync::Arc;

use hayloft_wire::rpc::encode_sasl_request;
use tokio::time::{sleep, timeout};

use super::*;
use crate::security::tests::Plain;
use crate::server::Shared;
use crate::server::received_frames::{End, Reader};

/// Longest frame of these tests, bytes, and all that may be under way.
const FRAME: usize = 300 << 10;
/// What a client may send in a message without a share of the budget, bytes.
const PIECE: usize = 66 << 10;
const LIMIT: Duration = Duration::from_secs(20);

fn port(patience: Duration) -> Arc<Shared<Echo>> {
    let limits = Limits {
        frame_bytes: FRAME + (8 << 10),
        receive_bytes: 0,
        patience,
        ..Limits::default()
    };
    Arc::new(Shared::new(
        Echo,
        limits,
        CancellationToken::new(),
        Arc::default(),
    ))
}

/// A client, and the reader of what it sends.
async fn connection(port: &Shared<Echo>) -> (TcpStream, Reader<'_, Echo>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let client = TcpStream::connect(address).await.expect("listening");
    let (stream, _) = listener.accept().await.expect("a client");
    let (read, _write) = stream.into_split();
    let mut reader = Reader::new(port, read, CancellationToken::new());
    reader.unwrap_with(Plain::wrapping(PIECE));
    (client, reader)
}

/// A frame with its length.
fn framed(size: usize) -> Vec<u8> {
    let mut frame = i32::try_from(size).unwrap().to_be_bytes().to_vec();
    frame.resize(4 + size, 7);
    frame
}

fn wrap(bytes: &[u8]) -> Bytes {
    encode_sasl_request(&RpcSasl::step(SaslState::Wrap, bytes.to_vec()))
}

/// The sizes of the frames in these messages, or why the connection ends.
async fn received(messages: &[&[u8]], frames: usize) -> Result<Vec<usize>, End> {
    let port = port(LIMIT);
    let (mut client, mut reader) = connection(&port).await;
    let messages: Vec<Bytes> = messages.iter().map(|message| wrap(message)).collect();
    let sending = tokio::spawn(async move {
        for message in messages {
            let _refused = client.write_all(&message).await;
        }
        client
    });
    let mut sizes = Vec::new();
    for _ in 0..frames {
        sizes.push(reader.frame(LIMIT, || false).await?.bytes.len());
    }
    let _client = sending.await;
    Ok(sizes)
}

#[tokio::test]
async fn frames_come_in_the_pieces_that_clients_send() {
    let (small, large) = (framed(100), framed(120 << 10));
    let two = [small.as_slice(), &framed(50)].concat();
    // Hadoop 2 sends the length of a large call by itself, Hadoop 3 the whole.
    let (length, rest) = large.split_at(4);
    let messages = [length, rest, &large, &two, b"", &small[..3], &small[3..]];
    let sizes = received(&messages, 5).await.expect("frames");
    assert_eq!(sizes, [120 << 10, 120 << 10, 100, 50, 100]);
    for odd in [
        [large.as_slice(), &small].concat(),
        large[..100 << 10].to_vec(),
    ] {
        let refused = received(&[&odd], 1).await;
        assert!(matches!(refused, Err(End::Unwrapped(_))), "{refused:?}");
    }
    let begun = &large[..10];
    let beyond = [&large[10..], &large].concat();
    let refused = received(&[begun, &beyond], 1).await;
    assert!(matches!(refused, Err(End::Unwrapped(_))), "{refused:?}");
}

#[tokio::test]
async fn large_frames_in_pieces_do_not_wait_for_each_other() {
    let port = port(LIMIT);
    let (mut one, mut first) = connection(&port).await;
    let (mut other, mut second) = connection(&port).await;
    let frame = framed(FRAME);
    let sending = async {
        for piece in frame.chunks(PIECE - 1000) {
            one.write_all(&wrap(piece)).await.expect("it is read");
            other.write_all(&wrap(piece)).await.expect("it is read");
            sleep(Duration::from_millis(10)).await;
        }
    };
    let both = async {
        tokio::join!(
            async { first.frame(LIMIT, || false).await.map(drop) },
            async { second.frame(LIMIT, || false).await.map(drop) },
            sending
        )
    };
    let (one, other, ()) = timeout(LIMIT / 2, both)
        .await
        .expect("neither waits for ever");
    assert!(one.is_ok() && other.is_ok());
}

#[tokio::test]
async fn a_frame_in_small_pieces_has_its_share_and_no_more_time_than_another() {
    let port = port(Duration::from_millis(300));
    let (mut client, mut reader) = connection(&port).await;
    let all = port.budget.available_permits();
    let frame = framed(100 << 10);
    let trickling = async {
        client
            .write_all(&wrap(&frame[..40 << 10]))
            .await
            .expect("it is read");
        sleep(Duration::from_millis(100)).await;
        assert!(port.budget.available_permits() <= all - 100);
        loop {
            client
                .write_all(&wrap(&frame[..1]))
                .await
                .expect("it is read");
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        end = reader.frame(LIMIT, || false) => {
            let end = end.map(|frame| frame.bytes.len());
            assert!(matches!(end, Err(End::Slow(_))), "{end:?}");
        }
        () = trickling => {}
        () = sleep(LIMIT / 2) => panic!("it is held for ever"),
    }
    assert_eq!(port.budget.available_permits(), all);
}
