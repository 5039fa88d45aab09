//! A client of the domain socket that does what no stock client would.

use bytes::BytesMut;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::suite::expect;
use hayloft_wire::frame;
use hayloft_wire::limits::MAX_OP_RESPONSE_BYTES;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::schema::WireMessage;
use hayloft_wire::transfer::{self, BlockOpResponse, OpMessage, Status};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Bit of a valid slot, and bytes from slot to slot.
const VALID: u64 = 1 << 63;
const SLOT: u64 = 64;
/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

fn io(doing: &str) -> impl FnOnce(std::io::Error) -> TestkitError {
    let doing = doing.to_owned();
    move |error| TestkitError::Expectation(format!("{doing}: {error}"))
}

/// A connection to the domain socket.
pub struct Local(pub UnixStream);

impl Local {
    pub fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).map_err(io("connecting to the domain socket"))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(io("setting a limit"))?;
        Ok(Self(stream))
    }

    /// Sends a request and takes its answer.
    pub fn ask<M: OpMessage, A: WireMessage>(&mut self, request: &M) -> Result<A> {
        ask_on(&mut self.0, request)
    }

    /// The descriptors that come next.
    pub fn descriptors(&self) -> Result<Vec<OwnedFd>> {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut byte)];
        let got = recvmsg(&self.0, &mut into, &mut with, RecvFlags::CMSG_CLOEXEC);
        let got = got.map_err(|error| io("receiving descriptors")(error.into()))?;
        expect(got.bytes == 1, || "the node closed the connection".into())?;
        let mut fds = Vec::new();
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                fds.extend(some);
            }
        }
        Ok(fds)
    }

    /// Asks for the files of a block; the answer, and the files if there are any.
    pub fn files(
        &mut self,
        request: &pb::OpRequestShortCircuitAccess,
    ) -> Result<(BlockOpResponse, Vec<File>)> {
        let answer: BlockOpResponse = self.ask(request)?;
        if answer.outcome() != Status::Success {
            return Ok((answer, Vec::new()));
        }
        let files = self.descriptors()?.into_iter().map(File::from).collect();
        self.0.write_all(&[0]).map_err(io("sending the receipt"))?;
        Ok((answer, files))
    }
}

/// As [`Local::ask`], over TCP.
pub fn ask_over_tcp<M: OpMessage, A: WireMessage>(xfer: &str, request: &M) -> Result<A> {
    let mut stream = TcpStream::connect(xfer).map_err(io("connecting"))?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .map_err(io("setting a limit"))?;
    ask_on(&mut stream, request)
}

/// Reads no byte behind the answer: descriptors may come with the next.
fn ask_on<M: OpMessage, A: WireMessage>(
    stream: &mut (impl Read + Write),
    request: &M,
) -> Result<A> {
    let mut bytes = BytesMut::new();
    transfer::encode_request(request, &mut bytes);
    stream.write_all(&bytes).map_err(io("sending a request"))?;
    bytes.clear();
    loop {
        let mut byte = [0];
        stream
            .read_exact(&mut byte)
            .map_err(io("waiting for an answer"))?;
        bytes.extend(byte);
        let answer = frame::decode_delimited(&mut bytes, MAX_OP_RESPONSE_BYTES);
        let answer = answer.map_err(|e| TestkitError::Expectation(format!("an answer: {e}")))?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
    }
}

/// A segment of shared memory, from its client's side.
pub struct Shared {
    pub file: File,
    id: pb::ShortCircuitShmId,
    _socket: Local,
}

impl Shared {
    pub fn at(path: &Path) -> Result<Self> {
        let mut socket = Local::connect(path)?;
        let request = pb::ShortCircuitShmRequest {
            client_name: "local".to_owned(),
            trace_info: None,
        };
        let answer: pb::ShortCircuitShmResponse = socket.ask(&request)?;
        let text = format!("{answer:?}");
        let id = answer.id.ok_or(TestkitError::Expectation(text))?;
        let fd = socket.descriptors()?.pop();
        let fd = fd.ok_or_else(|| TestkitError::Expectation("no descriptor came".into()))?;
        Ok(Self {
            file: fd.into(),
            id,
            _socket: socket,
        })
    }

    /// Names a slot.
    pub fn slot(&self, index: i32) -> pb::ShortCircuitShmSlot {
        pb::ShortCircuitShmSlot {
            shm_id: self.id.clone(),
            slot_idx: index,
        }
    }

    /// Marks a slot as valid, and names it.
    pub fn take(&self, index: u32) -> Result<pb::ShortCircuitShmSlot> {
        let at = u64::from(index) * SLOT;
        self.file
            .write_all_at(&VALID.to_ne_bytes(), at)
            .map_err(io("marking a slot"))?;
        Ok(self.slot(i32::try_from(index).unwrap_or(-1)))
    }

    /// Whether a slot is still marked as valid.
    pub fn is_valid(&self, index: u32) -> Result<bool> {
        let mut word = [0; 8];
        self.file
            .read_exact_at(&mut word, u64::from(index) * SLOT)
            .map_err(io("looking at a slot"))?;
        Ok(u64::from_ne_bytes(word) & VALID != 0)
    }
}
