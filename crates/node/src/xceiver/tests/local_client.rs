//! A client of the domain socket, from its own side.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use bytes::BytesMut;
use hayloft_wire::frame;
use hayloft_wire::limits::MAX_OP_RESPONSE_BYTES;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::security::Token;
use hayloft_wire::schema::WireMessage;
use hayloft_wire::transfer::{self, BlockOpResponse, Status};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::UnixStream;

use super::super::net::domain_listener::DomainListener;
use super::super::serve_domain;
use super::block;
use super::client::Client;
use super::node::Node;

/// Bit of a valid slot, and words from slot to slot.
pub const VALID: u64 = 1 << 63;
const SLOT: u64 = 64;

/// A connection to the domain socket of a node.
pub struct Local(pub Client<UnixStream>);

/// A segment of shared memory, from its client's side.
pub struct Shared {
    pub id: pb::ShortCircuitShmId,
    pub file: File,
    /// What keeps it.
    pub socket: Local,
}

pub fn path_of(node: &Node) -> std::path::PathBuf {
    node.dir.path().join("dn.sock")
}

/// Serves a node at a domain socket too.
pub fn beside_tcp(node: Node) -> Node {
    let listener = DomainListener::bind_unchecked(&path_of(&node)).expect("listens");
    tokio::spawn(serve_domain(node.x.clone(), listener));
    node
}

pub async fn start() -> Node {
    beside_tcp(Node::start().await)
}

impl Local {
    pub async fn connect(node: &Node) -> Self {
        let stream = UnixStream::connect(path_of(node)).await.expect("listens");
        let inbox = BytesMut::new();
        Self(Client { stream, inbox })
    }

    /// Reads a message and no byte behind it: descriptors may come with the next.
    pub async fn message<M: WireMessage>(&mut self) -> M {
        let mut bytes = BytesMut::new();
        loop {
            let byte = self.0.stream.read_u8();
            let byte = tokio::time::timeout(Duration::from_secs(20), byte).await;
            bytes.extend([byte.expect("answered in time").expect("answered")]);
            let message = frame::decode_delimited(&mut bytes, MAX_OP_RESPONSE_BYTES);
            if let Some(message) = message.expect("makes sense") {
                return message;
            }
        }
    }

    /// The byte that comes with descriptors, and these.
    pub async fn descriptors(&mut self) -> (u8, Vec<OwnedFd>) {
        let stream = &self.0.stream;
        let received = stream.async_io(Interest::READABLE, || {
            let mut byte = [0];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut with = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut byte)];
            let got = recvmsg(stream, &mut into, &mut with, RecvFlags::CMSG_CLOEXEC)?;
            assert_eq!(got.bytes, 1, "the node closed the connection");
            let mut fds = Vec::new();
            for message in with.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    fds.extend(some);
                }
            }
            Ok((byte[0], fds))
        });
        received.await.expect("received")
    }

    /// Asks for the files of a block.
    pub async fn ask(&mut self, request: &pb::OpRequestShortCircuitAccess) -> BlockOpResponse {
        self.0.request(request).await;
        self.message().await
    }

    /// The files of a block, which have to be given.
    pub async fn files(&mut self, request: &pb::OpRequestShortCircuitAccess) -> [File; 2] {
        let answer = self.ask(request).await;
        assert_eq!(answer.outcome(), Status::Success, "{answer:?}");
        assert_eq!(answer.short_circuit_access_version, Some(1));
        let (byte, fds) = self.descriptors().await;
        let wants = request.supports_receipt_verification == Some(true);
        assert_eq!(byte, u8::from(wants));
        if wants {
            self.0.send(&[0]).await;
        }
        let files: Vec<File> = fds.into_iter().map(File::from).collect();
        files.try_into().expect("data and meta file")
    }

    pub async fn release(&mut self, slot: pb::ShortCircuitShmSlot) -> (Status, String) {
        let request = pb::ReleaseShortCircuitAccessRequest {
            slot_id: slot,
            trace_info: None,
        };
        self.0.request(&request).await;
        let answer: pb::ReleaseShortCircuitAccessResponse = self.message().await;
        let text = answer.error.unwrap_or_default();
        (Status::from_wire(answer.status), text)
    }

    pub async fn ask_for_segment(&mut self) -> pb::ShortCircuitShmResponse {
        let request = pb::ShortCircuitShmRequest {
            client_name: "client".to_owned(),
            trace_info: None,
        };
        self.0.request(&request).await;
        self.message().await
    }
}

impl Shared {
    pub async fn of(node: &Node) -> Self {
        let mut socket = Local::connect(node).await;
        let answer = socket.ask_for_segment().await;
        assert_eq!(answer.status, i32::from(Status::Success), "{answer:?}");
        let (byte, mut fds) = socket.descriptors().await;
        assert_eq!((byte, fds.len()), (0, 1));
        Self {
            id: answer.id.expect("named"),
            file: File::from(fds.remove(0)),
            socket,
        }
    }

    pub fn slot(&self, index: i32) -> pb::ShortCircuitShmSlot {
        pb::ShortCircuitShmSlot {
            shm_id: self.id.clone(),
            slot_idx: index,
        }
    }

    pub fn word(&self, index: u64) -> u64 {
        let mut word = [0; 8];
        let read = self.file.read_exact_at(&mut word, index * SLOT);
        read.expect("is there");
        u64::from_ne_bytes(word)
    }

    /// Marks a slot as valid; it is named then.
    pub fn take(&self, index: u64) -> pb::ShortCircuitShmSlot {
        let written = self.file.write_all_at(&VALID.to_ne_bytes(), index * SLOT);
        written.expect("is there");
        self.slot(i32::try_from(index).expect("few"))
    }

    pub fn hex(&self) -> String {
        format!("{:016x}{:016x}", self.id.hi, self.id.lo)
    }
}

pub fn request(id: i64, slot: Option<pb::ShortCircuitShmSlot>) -> pb::OpRequestShortCircuitAccess {
    pb::OpRequestShortCircuitAccess {
        header: transfer::base_header(&block(id, 1001), Token::default()),
        max_version: 1,
        slot_id: slot,
        supports_receipt_verification: Some(true),
    }
}
