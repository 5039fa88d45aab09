//! Connections that have to begin with a handshake (SASL), and those that do not do so.

use bytes::{Bytes, BytesMut};
use hayloft_client::{NodeCredential, NodeStream, Protected, TransferProtection, prove_to_node};
use hayloft_conf::Configuration;
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::ids::StorageType;
use hayloft_wire::packet::PacketParser;
use hayloft_wire::proto::hdfs_server::ExportedBlockKeys;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Stage};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::{Settings, transfer_block};
use super::client::{Client, Pipeline, read_request, write_request};
use super::node::Node;
use super::tokens::{keys, made_with, settings};
use super::{block, crc32c, pattern, pool};
use crate::namenode::Targets;
use crate::security::{Access, BlockTokens, DataEncryptionKey};

/// Data of a block, more than several protected messages hold.
const LEN: usize = 1_000_000;

const KERBEROS: (&str, &str) = ("hadoop.security.authentication", "kerberos");
pub(super) const ENCRYPT: (&str, &str) = ("dfs.encrypt.data.transfer", "true");
const AES: (&str, &str) = (
    "dfs.encrypt.data.transfer.cipher.suites",
    "AES/CTR/NoPadding",
);

fn quality(names: &'static str) -> (&'static str, &'static str) {
    ("dfs.data.transfer.protection", names)
}

pub(super) fn protection(properties: &[(&str, &str)]) -> TransferProtection {
    let config = Configuration::from_properties(properties.iter().copied());
    TransferProtection::from_config(&config.expect("valid"))
}

pub(super) async fn node(keys: &ExportedBlockKeys, properties: &[(&str, &str)]) -> Node {
    let settings = Settings {
        protection: protection(properties),
        ..Settings::default()
    };
    Node::with_tokens_and(keys, settings).await
}

pub(super) fn token(id: i64, mode: AccessMode) -> Token {
    made_with(&keys(1, 600_000), id, Access::to(mode))
}

/// A client's side of a handshake as the holder of `token`, or of a key where that is asked for.
pub(super) async fn prove(
    node: &Node,
    properties: &[(&str, &str)],
    token: &Token,
) -> std::io::Result<NodeStream> {
    let (stream, proved) = handshake(node, properties, token).await?;
    Ok(NodeStream::over(stream, proved))
}

/// A key of encrypted data transfer, and how its holder is called.
pub(super) fn encryption_key() -> (String, DataEncryptionKey) {
    let tokens = BlockTokens::new(settings());
    let taken = tokens.take_keys(&pool(), &keys(1, 600_000), true);
    taken.expect("few");
    let key = tokens.data_encryption_key(&pool()).expect("a key");
    (key.user(), key)
}

/// As [`prove`], with the socket itself behind it.
async fn handshake(
    node: &Node,
    properties: &[(&str, &str)],
    token: &Token,
) -> std::io::Result<(TcpStream, Option<Protected>)> {
    let port = u16::try_from(node.id.xfer_port).expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let protection = protection(properties);
    let proved = if properties.contains(&ENCRYPT) {
        let (user, key) = encryption_key();
        let credential = NodeCredential::EncryptionKey {
            user: &user,
            key: key.key.expose(),
        };
        prove_to_node(&mut stream, &protection, credential).await?
    } else {
        let credential = NodeCredential::BlockToken(token);
        prove_to_node(&mut stream, &protection, credential).await?
    };
    Ok((stream, proved))
}

/// A client whose bytes go through a handshake.
async fn client(node: &Node, properties: &[(&str, &str)], token: &Token) -> Client {
    let mut proved = prove(node, properties, token).await.expect("proved");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let (mut clear, _) = listener.accept().await.expect("the client comes");
        let _ended = tokio::io::copy_bidirectional(&mut clear, &mut proved).await;
    });
    Client {
        stream: TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("it listens"),
        inbox: BytesMut::new(),
    }
}

async fn read(node: &Node, properties: &[(&str, &str)], id: i64) -> Vec<u8> {
    let token = token(id, AccessMode::Read);
    let mut client = client(node, properties, &token).await;
    let mut request = read_request(&block(id, 1001), 0, LEN as u64, true);
    request.header.base_header.token = Some(token);
    client.request(&request).await;
    client.response().await.expect("answered");
    client.packets(crc32c(), 0).await.expect("all of it")
}

async fn write(nodes: &[&Node], properties: &[(&str, &str)], id: i64, data: &[u8]) {
    let token = token(id, AccessMode::Write);
    let stage = Stage::PipelineSetupCreate;
    let mut request = write_request(&block(id, 1001), nodes, stage, crc32c());
    request.header.base_header.token = Some(token.clone());
    let mut client = client(nodes[0], properties, &token).await;
    client.request(&request).await;
    client.response().await.expect("answered");
    let mut pipeline = Pipeline {
        client,
        checksum: crc32c(),
        offset: 0,
        seqno: 0,
    };
    for piece in data.chunks(65_024) {
        pipeline.send(piece, false).await;
    }
    for seqno in 0..pipeline.seqno {
        pipeline.acked(seqno, nodes.len()).await;
    }
    pipeline.close(nodes.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_written_read_and_copied_with_every_protection() {
    let rc4 = ("dfs.encrypt.data.transfer.algorithm", "rc4");
    let long = ("dfs.encrypt.data.transfer.cipher.key.bitlength", "256");
    for properties in [
        &[KERBEROS, quality("authentication")][..],
        &[KERBEROS, quality("integrity")],
        &[KERBEROS, quality("privacy")],
        &[KERBEROS, quality("privacy,authentication"), AES],
        &[ENCRYPT],
        &[ENCRYPT, rc4],
        &[ENCRYPT, AES, long],
    ] {
        let keys = keys(1, 600_000);
        let first = node(&keys, properties).await;
        let (second, third) = (node(&keys, properties).await, node(&keys, properties).await);
        let data = pattern(LEN);
        write(&[&first, &second], properties, 1, &data).await;
        let mut wanted = block(1, 1001);
        wanted.block.num_bytes = LEN as u64;
        let targets = Targets {
            nodes: vec![third.info()],
            types: vec![StorageType::Disk.into()],
            storage_ids: vec!["DS-any".to_owned()],
        };
        let copied = transfer_block(&second.x, &wanted, targets).await;
        copied.expect("sent");
        for node in [&first, &second, &third] {
            node.until_received(1, LEN as u64).await;
            assert!(read(node, properties, 1).await == data, "{properties:?}");
        }
    }
}

/// The Go client loses what is before the end of a message where a packet goes on behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_ends_where_a_packet_does() {
    let properties = &[KERBEROS, quality("privacy")][..];
    let node = node(&keys(1, 600_000), properties).await;
    let data = pattern(LEN);
    write(&[&node], properties, 1, &data).await;
    let token = token(1, AccessMode::Read);
    let (mut stream, proved) = handshake(&node, properties, &token).await.expect("proved");
    let (mut out, mut into) = proved.expect("protected");
    let mut request = read_request(&block(1, 1001), 0, LEN as u64, true);
    request.header.base_header.token = Some(token);
    let (mut plain, mut sealed) = (BytesMut::new(), BytesMut::new());
    transfer::encode_request(&request, &mut plain);
    out.seal(&[&plain], &mut sealed);
    stream.write_all(&sealed).await.expect("taken");
    let parser = PacketParser::default();
    let (mut answered, mut read, mut last) = (false, Vec::new(), false);
    while !last {
        let len = stream.read_u32().await.expect("a message");
        let mut raw = BytesMut::from(&len.to_be_bytes()[..]);
        raw.resize(4 + len as usize, 0);
        stream.read_exact(&mut raw[4..]).await.expect("all of it");
        let mut opened = BytesMut::new();
        into.open(&mut raw, &mut opened).expect("sealed");
        if !answered {
            let response = transfer::decode_response(&mut opened).expect("one");
            answered = response.is_some();
        }
        while let Some(packet) = parser.parse(&mut opened).expect("a packet") {
            read.extend_from_slice(&packet.data);
            last = packet.header.last_packet_in_block;
        }
        assert!(opened.is_empty(), "a packet goes on behind its message");
    }
    assert!(read == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_good_token_or_key_hears_why() {
    let privacy = &[KERBEROS, quality("privacy")][..];
    let node_keys = keys(1, 600_000);
    let protected = node(&node_keys, privacy).await;
    let good = token(1, AccessMode::Read);
    let mut altered = good.clone();
    altered.password = Bytes::copy_from_slice(&[0; 20]);
    let mut other = good.clone();
    let mut bytes = other.identifier.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    other.identifier = bytes.into();
    let expired = made_with(&keys(1, 0), 1, Access::to(AccessMode::Read));
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let weak = &[KERBEROS, quality("authentication,integrity")][..];
    let mismatch = "Mismatched response";
    for (what, properties, token, told) in [
        ("its password altered", privacy, &altered, mismatch),
        ("its identifier altered", privacy, &other, ""),
        ("expired", privacy, &expired, "expired"),
        ("none", privacy, &Token::default(), ""),
        ("less protection", weak, &good, "no common protection"),
        (
            "a key instead of a token",
            &[ENCRYPT],
            &good,
            "no identifier",
        ),
    ] {
        let refused = prove(&protected, properties, token).await;
        let refused = refused.expect_err(what).to_string();
        assert!(refused.contains(told), "{what}: {refused}");
    }
    assert!(prove(&protected, privacy, &good).await.is_ok());
    // Keys of another cluster.
    let encrypted = node(&keys(9, 600_000), &[ENCRYPT]).await;
    let refused = prove(&encrypted, &[ENCRYPT], &good).await;
    let refused = refused.expect_err("forged").to_string();
    assert!(refused.contains(mismatch), "{refused}");
    let refused = prove(&encrypted, privacy, &good).await;
    assert!(refused.is_err(), "a token instead of a key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_says_which_protection_its_holder_has() {
    let both = &[KERBEROS, quality("authentication,privacy")][..];
    let node = node(&keys(1, 600_000), both).await;
    let tokens = BlockTokens::new(settings());
    let taken = tokens.take_keys(&pool(), &keys(1, 600_000), true);
    taken.expect("few");
    let of_privacy = |secret: &'static [u8]| {
        let mut identifier = hayloft_wire::block_token::BlockTokenIdentifier::decode(
            &token(1, AccessMode::Read).identifier,
        )
        .expect("an identifier");
        identifier.handshake_secret = Bytes::from_static(secret);
        let identifier = identifier.encode_protobuf();
        let known = tokens.token_password(&identifier).expect("a key");
        Token {
            password: Bytes::copy_from_slice(known.password.expose()),
            identifier,
            ..Token::default()
        }
    };
    let token = of_privacy(b"auth-conf");
    // The client would rather have less.
    let proved = prove(&node, both, &token).await.expect("proved");
    assert!(matches!(proved, NodeStream::Protected(_)));
    let weak = &[KERBEROS, quality("authentication")][..];
    assert!(prove(&node, weak, &token).await.is_err());
    // A protection that the node does not have.
    assert!(prove(&node, both, &of_privacy(b"auth-int")).await.is_err());
}

/// Whether the node closes the connection within two seconds, while `piece` is sent over and over.
async fn is_closed(mut stream: TcpStream, piece: &[u8]) -> bool {
    let began = std::time::Instant::now();
    while began.elapsed().as_secs() < 2 {
        let sent = stream.write_all(piece).await;
        let pause = std::time::Duration::from_millis(50);
        let read = tokio::time::timeout(pause, stream.read(&mut [0; 16])).await;
        if sent.is_err() || read.is_ok_and(|read| !read.is_ok_and(|bytes| bytes > 0)) {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_a_token_holds_neither_connections_nor_memory() {
    let privacy = &[KERBEROS, quality("privacy")][..];
    let settings = Settings {
        protection: protection(privacy),
        read_timeout: std::time::Duration::from_millis(300),
        ..Settings::default()
    };
    let node = Node::with_tokens_and(&keys(1, 600_000), settings).await;
    let token = token(1, AccessMode::Read);
    let begin = async |length: u32| {
        let (mut stream, _) = handshake(&node, privacy, &token).await.expect("proved");
        let sent = stream.write_all(&length.to_be_bytes()).await;
        sent.expect("it listens");
        stream
    };
    // A message that comes byte by byte, and empty ones.
    assert!(is_closed(begin(1000).await, b"x").await);
    assert!(is_closed(begin(0).await, &[0; 4]).await);
    let before = node.x.memory().in_use();
    let long = begin(8 << 20).await;
    let held = || node.x.memory().in_use() >= before + (8 << 20);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !held() {
        assert!(std::time::Instant::now() < until, "the message is counted");
        tokio::task::yield_now().await;
    }
    drop(long);
    let taken = node
        .x
        .memory()
        .try_acquire(node.x.memory().budget() - (4 << 20));
    assert!(taken.is_ok());
    assert!(is_closed(begin(8 << 20).await, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_clear_is_not_answered() {
    for properties in [&[KERBEROS, quality("privacy")][..], &[ENCRYPT]] {
        let node = node(&keys(1, 600_000), properties).await;
        let mut client = Client::connect(&node).await;
        let mut request = read_request(&block(1, 1001), 0, 1, true);
        request.header.base_header.token = Some(token(1, AccessMode::Read));
        client.request(&request).await;
        assert!(client.rest().await.is_empty());
    }
}
