//! A socket with what protects its bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Mutex;

use bytes::{Buf as _, BufMut, BytesMut};
use hayloft_client::Protected;
use hayloft_io::locks::lock;
use hayloft_io::{AlignedBuf, BufferPool};
use hayloft_sasl::{ProtectedIn, ProtectedOut};
use tokio::net::TcpStream;

use super::read_vectored::{read_vectored, would_block};

/// Bytes taken from the socket at a time.
const RECEIVE: usize = 64 << 10;

/// Bytes that become one protected message, at most.
const SEAL: usize = 128 << 10;

/// Longer protected messages need room in the memory of transfers until they are complete. Stock
/// clients and nodes send shorter ones, unless their packets are larger than usual.
const LONG: usize = SEAL + (64 << 10);

/// A socket with what protects its bytes. One task may read while another one writes.
#[derive(Debug)]
pub struct ProtectedSocket {
    tcp: TcpStream,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

#[derive(Debug)]
struct Incoming {
    layer: ProtectedIn,
    /// What came and is not complete.
    raw: BytesMut,
    /// What was opened and not taken.
    opened: BytesMut,
    /// The memory of transfers, and what a long message that comes has of it.
    memory: BufferPool,
    held: Option<AlignedBuf>,
}

#[derive(Debug)]
struct Outgoing {
    layer: ProtectedOut,
    /// What was sealed and did not fit into the socket.
    sealed: BytesMut,
    /// Bytes in there, before they were sealed, that their sender does not count as sent. It comes
    /// back with them until they are.
    untold: usize,
}

impl ProtectedSocket {
    /// The socket behind a handshake, and what that agreed on.
    pub fn new(tcp: TcpStream, (out, into): Protected, memory: &BufferPool) -> Self {
        Self {
            tcp,
            incoming: Mutex::new(Incoming {
                layer: into,
                raw: BytesMut::new(),
                opened: BytesMut::new(),
                memory: memory.clone(),
                held: None,
            }),
            outgoing: Mutex::new(Outgoing {
                layer: out,
                sealed: BytesMut::new(),
                untold: 0,
            }),
        }
    }

    /// The same on the runtime that this is called in, which looks after it from now on.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn settle_here(self) -> io::Result<Self> {
        let tcp = TcpStream::from_std(self.tcp.into_std()?)?;
        Ok(Self { tcp, ..self })
    }

    /// The socket itself.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Whether what is sent goes as messages, each of which comes whole or not at all.
    pub fn in_messages(&self) -> bool {
        matches!(lock(&self.outgoing).layer, ProtectedOut::Messages(_))
    }

    /// Whether something was opened and not read.
    pub fn has_opened(&self) -> bool {
        !lock(&self.incoming).opened.is_empty()
    }

    /// Reads what is there; 0 at the end of the stream.
    pub fn read(&self, into: &mut impl BufMut) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        if !incoming.receive(&self.tcp)? {
            return Ok(0);
        }
        let now = incoming.opened.len().min(into.remaining_mut());
        into.put_slice(&incoming.take(now));
        Ok(now)
    }

    /// Reads into several pieces.
    pub fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        if incoming.opened.is_empty()
            && let ProtectedIn::Bytes(cipher) = &mut incoming.layer
        {
            // Each byte has its place on the wire: they are opened where they are wanted.
            let came = read_vectored(&self.tcp, into)?;
            let mut left = came;
            for piece in into {
                let now = left.min(piece.len());
                cipher.apply(&mut piece[..now]);
                left -= now;
            }
            return Ok(came);
        }
        if !incoming.receive(&self.tcp)? {
            return Ok(0);
        }
        let mut taken = 0;
        for piece in into {
            let now = incoming.opened.len().min(piece.len());
            piece[..now].copy_from_slice(&incoming.take(now));
            taken += now;
        }
        Ok(taken)
    }

    /// What comes next is not what was refused before.
    pub fn begin_write(&self) {
        lock(&self.outgoing).untold = 0;
    }

    /// Drops memory that nothing is in.
    pub fn shrink(&self) {
        let mut outgoing = lock(&self.outgoing);
        if outgoing.sealed.is_empty() {
            outgoing.sealed = BytesMut::new();
        }
    }

    /// Sends what fits.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = lock(&self.outgoing);
        outgoing.drain(&self.tcp)?;
        if outgoing.untold == 0 {
            let mut room = SEAL;
            let pieces = slices.iter().map(|slice| {
                let piece = &slice[..slice.len().min(room)];
                room -= piece.len();
                piece
            });
            let parts: Vec<&[u8]> = pieces.filter(|piece| !piece.is_empty()).collect();
            let outgoing = &mut *outgoing;
            outgoing.layer.seal(&parts, &mut outgoing.sealed);
            outgoing.untold = SEAL - room;
            outgoing.drain(&self.tcp)?;
        }
        Ok(std::mem::take(&mut outgoing.untold))
    }
}

impl Incoming {
    /// Has something opened, or says that the stream is at its end. A read that completes no
    /// message is refused as one of nothing: empty messages hold no thread.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        if !self.opened.is_empty() {
            return Ok(true);
        }
        self.raw.reserve(RECEIVE);
        match tcp.try_read_buf(&mut (&mut self.raw).limit(RECEIVE)) {
            Ok(0) if self.raw.is_empty() => return Ok(false),
            // An end within a message was not the other side's.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) => {
                if self.raw.is_empty() {
                    self.raw = BytesMut::new(); // An idle connection holds no memory.
                }
                return Err(error);
            }
        }
        let opening = self.layer.open(&mut self.raw, &mut self.opened);
        opening.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.hold_room()?;
        match self.opened.is_empty() {
            true => would_block(),
            false => Ok(true),
        }
    }

    /// A peer that announces long messages takes no memory that others have.
    fn hold_room(&mut self) -> io::Result<()> {
        let announced = self.layer.announced(&self.raw);
        if announced <= LONG {
            self.held = None;
        } else if self.held.is_none() {
            let room = self.memory.try_acquire(announced).ok().flatten();
            self.held = Some(room.ok_or_else(|| {
                let text =
                    format!("there is no memory for a protected message of {announced} bytes");
                io::Error::new(io::ErrorKind::OutOfMemory, text)
            })?);
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> BytesMut {
        let taken = self.opened.split_to(len);
        if self.opened.is_empty() {
            self.opened = BytesMut::new();
        }
        taken
    }
}

impl Outgoing {
    /// Sends what was sealed.
    fn drain(&mut self, tcp: &TcpStream) -> io::Result<()> {
        while !self.sealed.is_empty() {
            match tcp.try_write(&self.sealed) {
                Ok(sent) => self.sealed.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
