//! A relay to the NameNode that says where new blocks go: the crate hdfs-native has no favored
//! nodes, and all peers live under one NameNode.
//!
//! Everything passes as it came, but for `addBlock`, whose message gets the nodes appended.

use bytes::{BufMut as _, Bytes, BytesMut};
use hayloft_wire::rpc::{CONNECTION_HEADER_BYTES, IncomingFrame, decode_frame, parse_request};
use std::io::{Error, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of a request, at most: a client that writes sends small ones.
const FRAME_MAX: usize = 1 << 20;
/// Number of `favoredNodes` in the message of `addBlock`.
const FAVORED_NODES: u32 = 6;

/// Passes connections on to `namenode` until it is dropped; new blocks go to `nodes`
/// (`host:port`).
pub(super) async fn serve(listener: TcpListener, namenode: String, nodes: Vec<String>) {
    let mut favored = BytesMut::new();
    prost::encoding::string::encode_repeated(FAVORED_NODES, &nodes, &mut favored);
    let favored = favored.freeze();
    while let Ok((client, _)) = listener.accept().await {
        // A client whose connection closes says so itself.
        let Ok(server) = TcpStream::connect(&namenode).await else {
            continue;
        };
        let _unless_slower = client.set_nodelay(true).and(server.set_nodelay(true));
        let (from_client, mut to_client) = client.into_split();
        let (mut from_server, to_server) = server.into_split();
        tokio::spawn(requests(from_client, to_server, favored.clone()));
        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, favored: Bytes) -> Result<()> {
    let mut header = [0; CONNECTION_HEADER_BYTES];
    from.read_exact(&mut header).await?;
    to.write_all(&header).await?;
    let mut held = BytesMut::new();
    loop {
        while let Some(frame) = decode_frame(&mut held, FRAME_MAX).map_err(Error::other)? {
            to.write_all(&passed(&frame, &favored)).await?;
        }
        if from.read_buf(&mut held).await? == 0 {
            return to.shutdown().await;
        }
    }
}

/// The frame with its length, as it is passed on.
fn passed(frame: &Bytes, favored: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(frame.len() + favored.len() + 16);
    let message = match parse_request(frame.clone()) {
        Ok(IncomingFrame::Call(call)) if call.request.method_name == "addBlock" => call.message,
        _ => {
            out.put_slice(&length(frame.len()));
            out.put_slice(frame);
            return out;
        }
    };
    let before = frame.len() - message.len() - prost::length_delimiter_len(message.len());
    let longer = message.len() + favored.len();
    out.put_slice(&length(
        before + prost::length_delimiter_len(longer) + longer,
    ));
    out.put_slice(&frame[..before]);
    prost::encode_length_delimiter(longer, &mut out).expect("the buffer grows");
    out.put_slice(&message);
    out.put_slice(favored);
    out
}

fn length(bytes: usize) -> [u8; 4] {
    let bytes = u32::try_from(bytes).expect("two frames at most");
    bytes.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayloft_wire::frame;
    use hayloft_wire::proto::client::{AddBlockRequest, DeleteRequest};
    use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
    use hayloft_wire::rpc::{CLIENT_ID_BYTES, call_header, encode_call};

    fn relayed(method: &str, message: &impl prost::Message) -> (Bytes, Bytes) {
        let header = call_header(7, [3; CLIENT_ID_BYTES], 0);
        let sent = encode_call(&header, CLIENT_NAMENODE_PROTOCOL, method, message);
        let mut favored = BytesMut::new();
        let nodes = ["127.0.0.1:9866".to_owned()];
        prost::encoding::string::encode_repeated(FAVORED_NODES, &nodes, &mut favored);
        let whole = decode_frame(&mut BytesMut::from(&sent[..]), FRAME_MAX);
        let whole = whole.expect("a frame").expect("all of it");
        (sent, passed(&whole, &favored).freeze())
    }

    #[test]
    fn add_block_gets_its_nodes() {
        let request = AddBlockRequest {
            // Long enough that its length needs another byte with the nodes.
            src: "/a".repeat(58),
            client_name: "c".into(),
            ..AddBlockRequest::default()
        };
        let (_, out) = relayed("addBlock", &request);
        let frame = decode_frame(&mut BytesMut::from(&out[..]), FRAME_MAX);
        let frame = frame.expect("a frame").expect("all of it");
        let Ok(IncomingFrame::Call(call)) = parse_request(frame) else {
            panic!("no call");
        };
        assert_eq!(call.header.call_id, 7);
        let read: AddBlockRequest = frame::decode(call.message).expect("a message");
        assert_eq!(read.favored_nodes, ["127.0.0.1:9866"]);
        assert_eq!(read.src, request.src);
    }

    #[test]
    fn everything_else_passes_as_it_came() {
        let request = DeleteRequest {
            src: "/a".into(),
            recursive: true,
        };
        let (sent, out) = relayed("delete", &request);
        assert_eq!(sent, out);
    }
}
