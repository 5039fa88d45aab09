//! A node that lies in what it sends of a block.

use std::time::Duration;

use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, PoolId};
use hayloft_wire::limits::MAX_PACKET_BYTES;
use hayloft_wire::packet::{PacketHeader, encode_packet};
use hayloft_wire::transfer::BlockOpResponse;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::node_link::LinkLimits;
use crate::node_stream::NodeStream;

const LEN: u64 = 3000;

fn checksum() -> DataChecksum {
    DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid")
}

fn content() -> Vec<u8> {
    let byte = |at| u8::try_from(at % 251).expect("less than 251");
    (0..LEN).map(byte).collect()
}

/// A packet of the block's bytes from `at` on, which says that it begins at `claims`.
fn packet(at: usize, len: usize, claims: u64, out: &mut bytes::BytesMut) {
    let data = &content()[at..at + len];
    let mut sums = Vec::new();
    checksum().compute(data, &mut sums);
    let header = PacketHeader {
        offset_in_block: claims,
        seqno: 0,
        last_packet_in_block: len == 0,
        data_len: u32::try_from(len).expect("small"),
        sync_block: false,
    };
    encode_packet(&header, &sums, data, out);
}

/// What is read of bytes `from` to `end` when a node answers with a chunk offset and then `bytes`.
async fn read(from: u64, end: u64, first: u64, bytes: Vec<u8>) -> Result<Vec<u8>, NodeTrouble> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client");
        let _ = socket.read(&mut [0; 1000]).await;
        let response = BlockOpResponse::read(checksum(), first);
        let mut out = frame::delimited(&response).to_vec();
        out.extend(bytes);
        // In pieces, as they come.
        for piece in out.chunks(700) {
            let _ = socket.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = socket.shutdown().await;
        let _ = socket.read(&mut [0; 100]).await;
    });
    let pool = PoolId::new("BP-1-127.0.0.1-1").expect("valid");
    let range = BlockRange {
        block: ExtendedBlock::new(pool, Block::new(1, 1001, LEN)),
        token: Token::default(),
        from,
        end,
    };
    let at = ("127.0.0.1", port);
    let socket = TcpStream::connect(at).await.expect("connected");
    let within = Some(Duration::from_secs(60));
    let limits = LinkLimits {
        read: within,
        write: within,
        packet: MAX_PACKET_BYTES,
    };
    let link = NodeLink::over(
        NodeStream::over(socket, None),
        format!("127.0.0.1:{port}"),
        limits,
    );
    let mut stream = RangeStream::open(link, "DFSClient_1", range).await?;
    let mut all = Vec::new();
    while let Some(bytes) = stream.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

/// The block in three packets and its end.
fn honest() -> Vec<u8> {
    let mut out = bytes::BytesMut::new();
    for (at, len) in [(0, 1024), (1024, 1024), (2048, 952), (3000, 0)] {
        packet(at, len, at as u64, &mut out);
    }
    out.to_vec()
}

#[tokio::test]
async fn ranges_are_cut_out_of_whole_chunks() {
    for (from, end) in [(0, LEN), (5, 2900), (511, 513), (0, 1), (1, 1024)] {
        let all = read(from, end, 0, honest()).await.expect("honest");
        let wanted = &content()[usize::try_from(from).unwrap()..usize::try_from(end).unwrap()];
        // A range may end before what is sent; then the rest is left.
        assert_eq!(all, wanted, "{from} to {end}");
    }
}

#[tokio::test]
async fn lies_are_noticed() {
    let lies = |make: fn(&mut bytes::BytesMut)| {
        let mut out = bytes::BytesMut::new();
        make(&mut out);
        out.to_vec()
    };
    for (name, bytes) in [
        (
            "it ends too soon",
            lies(|out| {
                packet(0, 1024, 0, out);
                packet(3000, 0, 1024, out);
            }),
        ),
        ("it closes", lies(|out| packet(0, 1024, 0, out))),
        ("a gap", lies(|out| packet(1024, 1024, 1024, out))),
        (
            "twice the same",
            lies(|out| {
                packet(0, 1024, 0, out);
                packet(0, 1024, 0, out);
            }),
        ),
        (
            "too few checksums",
            lies(|out| {
                let header = PacketHeader {
                    data_len: 1024,
                    ..PacketHeader::default()
                };
                encode_packet(&header, &[0; 4], &[0; 1024], out);
            }),
        ),
        (
            "a length beyond all limits",
            lies(|out| {
                out.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0, 25]);
            }),
        ),
        ("garbage", vec![0xAA; 5000]),
    ] {
        let trouble = read(0, LEN, 0, bytes).await.expect_err(name);
        assert!(!trouble.corrupt, "{name}: {trouble}");
    }
    let mut flipped = honest();
    let at = flipped.len() - 500;
    flipped[at] ^= 1;
    let trouble = read(0, LEN, 0, flipped).await.expect_err("a flipped byte");
    assert!(trouble.corrupt, "{trouble}");
    for first in [0, 512, 1031, u64::MAX] {
        let trouble = read(1030, LEN, first, honest()).await;
        trouble.expect_err("a beginning in another chunk");
    }
}
