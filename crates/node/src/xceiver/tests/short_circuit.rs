//! Clients of this host, which read replicas by themselves.

use std::os::unix::fs::FileExt as _;

use bytes::BytesMut;
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::frame;
use hayloft_wire::ids::StorageType;
use hayloft_wire::limits::MAX_OP_RESPONSE_BYTES;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::transfer::{BlockOpResponse, Stage, Status};

use super::super::{Settings, XceiverShared};
use super::client::{Client, Pipeline, read_on, write_request};
use super::local_client::{Local, Shared, VALID, beside_tcp, request, start};
use super::node::Node;
use super::tokens::{self, made_with};
use super::{block, crc32c, pattern};
use crate::security::Access;

async fn put(node: &Node, id: i64, data: &[u8]) {
    let mut pipeline = Pipeline::create(id, 1001, &[node]).await;
    pipeline.write(data, 51_200, 1).await;
    pipeline.close(1).await;
}

/// Descriptors of block files of a node that this process has.
fn open_block_files(node: &Node) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("linux");
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter(|to| {
            to.starts_with(
                node.dir
                    .path()
                    .join("v0/current/BP-7-127.0.0.1-1700000000000"),
            )
        })
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_written_and_read_over_the_domain_socket() {
    let node = start().await;
    let data = pattern(3_000_000);
    let stage = Stage::PipelineSetupCreate;
    let request = write_request(&block(1, 1001), &[&node], stage, crc32c());
    let client = Local::connect(&node).await.0;
    let pipeline = Pipeline::set_up_on(client, &request).await;
    let mut pipeline = pipeline.expect("the pipeline is set up");
    pipeline.write(&data, 51_200, 1).await;
    pipeline.close(1).await;
    let mut client = Local::connect(&node).await.0;
    for sums in [true, false] {
        let read = read_on(&mut client, &block(1, 1001), 0, 3_000_000, sums).await;
        assert!(read == Ok(data.clone()), "sums {sums}");
    }
    let read = read_on(&mut client, &block(1, 1001), 1_000_001, 77, true).await;
    assert_eq!(read, Ok(data[1_000_001..1_000_078].to_vec()));
    client.send(b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(client.rest().await.is_empty(), "nonsense ends this one");
    let mut next = Local::connect(&node).await.0;
    assert!(
        read_on(&mut next, &block(1, 1001), 0, 7, true)
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_both_files_for_nothing_but_reading() {
    let node = start().await;
    let data = pattern(100_000);
    put(&node, 1, &data).await;
    let before = open_block_files(&node);
    let mut client = Local::connect(&node).await;
    let mut without = request(1, None);
    without.supports_receipt_verification = None;
    for request in [request(1, None), without] {
        let [file, meta] = client.files(&request).await;
        let mut read = vec![0; data.len()];
        file.read_exact_at(&mut read, 0).expect("reads");
        assert!(read == data);
        let sums = data.len().div_ceil(512) * 4 + 7;
        assert_eq!(meta.metadata().expect("open").len(), sums as u64);
        for file in [&file, &meta] {
            let flags = rustix::fs::fcntl_getfl(file).expect("open");
            let other = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::RWMODE;
            assert!(!flags.intersects(other), "{flags:?}");
            assert!(file.set_len(0).is_err());
        }
    }
    node.until("the node has none of them", |node| {
        open_block_files(node) == before
    })
    .await;
    let read = read_on(&mut client.0, &block(1, 1001), 5, 6, true).await;
    assert_eq!(read, Ok(data[5..11].to_vec()), "the connection goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_words_of_apaches_node() {
    let node = start().await;
    put(&node, 1, &pattern(1000)).await;
    let mut client = Local::connect(&node).await;
    let mut old = request(1, None);
    old.max_version = 0;
    let answer = client.ask(&old).await;
    assert_eq!(answer.outcome(), Status::ErrorUnsupported);
    assert_eq!(answer.short_circuit_access_version, Some(1));
    let mut later = request(1, None);
    later.header.block.generation_stamp = 1002;
    let mut other_pool = request(1, None);
    other_pool.header.block.pool_id = "BP-other".to_owned();
    for (request, outcome, version, says) in [
        (
            request(9, None),
            Status::Error,
            None,
            "No data exists for block ",
        ),
        (later, Status::Error, None, "gen stamp"),
        (other_pool, Status::ErrorUnsupported, Some(1), "Not ready"),
    ] {
        let answer = client.ask(&request).await;
        assert_eq!(answer.outcome(), outcome, "{answer:?}");
        assert_eq!(answer.short_circuit_access_version, version);
        assert!(answer.message().contains(says), "{answer:?}");
    }
    let open = Pipeline::create(2, 1001, &[&node]).await;
    let answer = client.ask(&request(2, None)).await;
    assert_eq!(answer.outcome(), Status::ErrorUnsupported, "it is written");
    assert_eq!(answer.short_circuit_access_version, Some(1));
    drop(open);
    drop(client.files(&request(1, None)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_taken_once_valid_and_within_its_segment() {
    let node = start().await;
    put(&node, 1, &pattern(1000)).await;
    let shared = Shared::of(&node).await;
    let mut client = Local::connect(&node).await;
    let id = shared.hex();
    drop(client.files(&request(1, Some(shared.take(7)))).await);
    let unknown = pb::ShortCircuitShmSlot {
        shm_id: pb::ShortCircuitShmId { hi: -1, lo: 2 },
        slot_idx: 0,
    };
    let nowhere = "there is no shared memory segment registered with shmId \
        ffffffffffffffff0000000000000002";
    for (slot, says) in [
        (
            shared.slot(-1),
            format!("RegisteredShm({id}): invalid negative slot index -1"),
        ),
        (
            shared.slot(128),
            format!("RegisteredShm({id}): invalid slot index 128"),
        ),
        (
            shared.slot(i32::MAX),
            format!("RegisteredShm({id}): invalid slot index {}", i32::MAX),
        ),
        (
            shared.slot(7),
            format!("RegisteredShm({id}): slot 7 is already in use."),
        ),
        (
            shared.slot(8),
            format!("RegisteredShm({id}): slot 8 is not marked as valid."),
        ),
        (unknown.clone(), nowhere.to_owned()),
    ] {
        let answer = client.ask(&request(1, Some(slot))).await;
        assert_eq!(
            (answer.outcome(), answer.message()),
            (Status::Error, says.as_str())
        );
        assert_eq!(answer.short_circuit_access_version, None);
    }
    for (slot, says) in [
        (unknown, nowhere),
        (
            shared.slot(8),
            "tried to unregister slot 8, which was not registered.",
        ),
        (
            shared.slot(-3),
            "tried to unregister slot -3, which was not registered.",
        ),
        (
            shared.slot(4000),
            "tried to unregister slot 4000, which was not registered.",
        ),
    ] {
        let answer = client.release(slot).await;
        assert_eq!(answer, (Status::ErrorInvalid, says.to_owned()));
    }
    assert_eq!(shared.word(7), VALID, "never anchorable");
    let answer = client.release(shared.slot(7)).await;
    assert_eq!(answer, (Status::Success, String::new()));
    assert_eq!(shared.word(7), 0);
    // A refused block gives its slot back.
    let answer = client.ask(&request(9, Some(shared.take(127)))).await;
    assert_eq!(answer.outcome(), Status::Error);
    drop(client.files(&request(1, Some(shared.take(127)))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_hears_of_changes_and_harms_none_but_itself() {
    let node = Node::with(
        Settings::default(),
        &[StorageType::Disk, StorageType::Archive],
    )
    .await;
    let node = beside_tcp(node);
    let shared = Shared::of(&node).await;
    let mut client = Local::connect(&node).await;
    let mut kept = Vec::new();
    for id in 1..=4 {
        put(&node, id, &pattern(1000)).await;
        let slot = shared.take(id.cast_unsigned());
        kept.push(client.files(&request(id, Some(slot))).await);
    }
    for len in [0, 100, 1 << 20] {
        assert!(shared.file.set_len(len).is_err(), "{len}");
    }
    let gone = block(1, 1001).block;
    let deleted = node.store.invalidate(&super::pool(), &[gone]).await;
    deleted.expect("deletes");
    let moved = node
        .store
        .move_block(&block(2, 1001), StorageType::Archive, None)
        .await;
    moved.expect("moves");
    let words = [1, 2, 3, 4].map(|slot| shared.word(slot));
    assert_eq!(words, [0, 0, VALID, VALID]);
    let [data, _] = &kept[0];
    let mut read = vec![0; 1000];
    data.read_exact_at(&mut read, 0)
        .expect("what it has it has");
    assert!(read == pattern(1000));
    // Anything in any slot.
    shared.file.write_all_at(&[0xFF; 8192], 0).expect("its own");
    let gone = block(3, 1001).block;
    let deleted = node.store.invalidate(&super::pool(), &[gone]).await;
    deleted.expect("deletes");
    // The replica is not there, and so not cached either: no other bit is the node's.
    assert_eq!(shared.word(3), !(VALID | (1 << 62)));
    drop(client.files(&request(4, Some(shared.take(9)))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_lives_as_long_as_its_socket_says_nothing() {
    let node = start().await;
    put(&node, 1, &pattern(1000)).await;
    let mut client = Local::connect(&node).await;
    for speaks in [true, false] {
        let mut shared = Shared::of(&node).await;
        drop(client.files(&request(1, Some(shared.take(0)))).await);
        assert_eq!(node.x.segments().len(), 1);
        let (slot, file) = (shared.slot(0), shared.file.try_clone().expect("duplicates"));
        if speaks {
            shared.socket.0.send(b"x").await;
        } else {
            drop(shared);
        }
        node.until("freed", |node| node.x.segments().len() == 0)
            .await;
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 0)
            .expect("the client's still");
        assert_eq!(u64::from_ne_bytes(word), 0, "invalid");
        let (status, text) = client.release(slot).await;
        assert_eq!(status, Status::ErrorInvalid, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_vanish_leave_no_slot_and_no_descriptor() {
    let node = start().await;
    put(&node, 1, &pattern(1000)).await;
    let before = open_block_files(&node);
    let shared = Shared::of(&node).await;
    for at in 0..100 {
        let mut client = Local::connect(&node).await;
        let request = request(1, Some(shared.take(0)));
        client.0.request(&request).await;
        match at % 3 {
            0 => {}
            1 => drop(client.message::<BlockOpResponse>().await),
            _ => {
                client.message::<BlockOpResponse>().await;
                client.descriptors().await;
            }
        }
        drop(client); // It says nothing of a receipt.
        node.until("the slot is given back", |_| shared.word(0) == 0)
            .await;
    }
    node.until("closed", |node| open_block_files(node) == before)
        .await;
    drop(
        Local::connect(&node)
            .await
            .files(&request(1, Some(shared.take(0))))
            .await,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tcp_no_descriptor_is_passed_and_the_connection_stays() {
    let node = start().await;
    put(&node, 1, &pattern(1000)).await;
    let shared = Shared::of(&node).await;
    let mut client = Client::connect(&node).await;
    client.request(&request(1, Some(shared.take(0)))).await;
    let answer = client.response().await.expect("answered");
    let says = "You cannot pass file descriptors over anything but a UNIX domain socket.";
    assert_eq!((answer.outcome(), answer.message()), (Status::Error, says));
    let asks = pb::ShortCircuitShmRequest {
        client_name: "client".to_owned(),
        trace_info: None,
    };
    client.request(&asks).await;
    let decode = |buf: &mut BytesMut| frame::decode_delimited(buf, MAX_OP_RESPONSE_BYTES);
    let answer: Option<pb::ShortCircuitShmResponse> = client.read(decode).await;
    let answer = answer.expect("answered");
    assert_eq!(answer.status, i32::from(Status::ErrorInvalid));
    assert!(
        answer
            .error()
            .contains("must request a shared memory segment"),
        "{answer:?}"
    );
    assert!(
        read_on(&mut client, &block(1, 1001), 0, 9, true)
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_socket_has_no_slots_to_release() {
    let node = Node::start().await;
    let mut client = Client::connect(&node).await;
    let request = pb::ReleaseShortCircuitAccessRequest {
        slot_id: pb::ShortCircuitShmSlot {
            shm_id: pb::ShortCircuitShmId { hi: 1, lo: 2 },
            slot_idx: 3,
        },
        trace_info: None,
    };
    client.request(&request).await;
    let decode = |buf: &mut BytesMut| frame::decode_delimited(buf, MAX_OP_RESPONSE_BYTES);
    let answer: Option<pb::ReleaseShortCircuitAccessResponse> = client.read(decode).await;
    let answer = answer.expect("answered");
    assert_eq!(answer.status, i32::from(Status::ErrorUnsupported));
    assert_eq!(answer.error(), "unsupported operation");
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_are_given_for_a_token_to_read() {
    let keys = tokens::keys(3, 600_000);
    let node = beside_tcp(Node::with_tokens(&keys).await);
    let mut ask = request(1, None);
    for mode in [None, Some(AccessMode::Write)] {
        let token = mode.map(|mode| made_with(&keys, 1, Access::to(mode)));
        ask.header.token = Some(token.unwrap_or_default());
        let answer = Local::connect(&node).await.ask(&ask).await;
        assert_eq!(answer.outcome(), Status::ErrorAccessToken, "{mode:?}");
    }
    ask.header.token = Some(made_with(&keys, 1, Access::to(AccessMode::Read)));
    let answer = Local::connect(&node).await.ask(&ask).await;
    assert!(answer.message().contains("No data exists"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_segments_are_open_than_allowed() {
    let store = hayloft_store::StoreShared::new(64 << 20);
    let process = (store, XceiverShared::new(32 << 20));
    process.1.limit_connections(8);
    let node = beside_tcp(Node::sibling(&process, Settings::default()).await);
    let (_one, two) = (Shared::of(&node).await, Shared::of(&node).await);
    let mut third = Local::connect(&node).await;
    let answer = third.ask_for_segment().await;
    assert_eq!(answer.status, i32::from(Status::ErrorUnsupported));
    assert!(answer.error().contains("as many"), "{answer:?}");
    drop(two);
    node.until("one is free", |node| node.x.segments().len() == 1)
        .await;
    let answer = third.ask_for_segment().await;
    assert_eq!(answer.status, i32::from(Status::Success));
}

/// In a process of its own, which may open few files.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of the next"]
async fn asks_for_a_segment_without_descriptors() {
    let node = start().await;
    let mut client = Local::connect(&node).await;
    // Once it is served it takes no more descriptors.
    let answer = client.ask(&request(9, None)).await;
    assert_eq!(answer.outcome(), Status::Error);
    let more = || std::fs::File::open("/dev/null").ok();
    let all: Vec<_> = std::iter::from_fn(more).collect();
    let answer = client.ask_for_segment().await;
    drop(all);
    assert_eq!(answer.status, i32::from(Status::ErrorUnsupported));
    assert!(answer.error().contains("Failed to create"), "{answer:?}");
}

/// After any other answer a stock client asks again without pause.
#[test]
fn without_descriptors_clients_are_told_to_go_on_without_segments() {
    let program = std::env::current_exe().expect("this program");
    let test = "xceiver::tests::short_circuit::asks_for_a_segment_without_descriptors";
    let ran = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 200 && exec \"$@\"", "sh"])
        .arg(program)
        .args(["--exact", test, "--ignored"])
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}
