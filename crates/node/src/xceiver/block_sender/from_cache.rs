//! Packets whose data the kernel takes from the page cache (sendfile), on threads of the disk.
//!
//! A page may leave the page cache after the reader asked whether it is there. A sendfile then
//! waits for the device, on a slow or hung disk for long. The connections of the calling thread
//! would wait with it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use hayloft_wire::checksum::DataChecksum;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// A packet, or what is left of it.
pub struct CachedPacket {
    /// Prefix and checksums, and what precedes the packet.
    pub head: Bytes,
    /// Bytes of checksums at the end of the head.
    pub sums: usize,
    /// Bytes of data behind them.
    pub data: usize,
}

/// Why sending stopped.
pub enum SendStopped {
    /// Everything is in the socket.
    Sent,
    /// The socket has no room.
    Full,
    /// The first packet's data differs from its checksums; nothing of it was sent.
    Damaged,
    /// The file gives no more of the first packet's data: it was cut, or cannot be read.
    Short,
    /// The connection broke.
    Broken(io::Error),
}

/// Packets that lie one after the other in the file.
pub struct Sending {
    pub socket: Arc<OwnedFd>,
    pub packets: VecDeque<CachedPacket>,
    /// Where the data of the first one, or what is left of it, begins in the file.
    pub offset: u64,
    /// Each packet is compared with its checksums before anything of it is sent.
    pub check: Option<PacketCheck>,
}

/// How packets are compared with their checksums.
pub struct PacketCheck {
    pub checksum: DataChecksum,
    /// The first packet was compared.
    pub passed: bool,
    /// What is compared, small enough for the processor's cache.
    pub scratch: Vec<u8>,
}

impl Sending {
    /// Sends what the socket has room for. Blocks while a page of `file` has to be read.
    pub fn run(&mut self, file: BorrowedFd<'_>) -> SendStopped {
        while let Some(packet) = self.packets.front_mut() {
            if let Some(check) = &mut self.check
                && !check.passed
            {
                check.passed = true;
                if !check.matches(packet, file, self.offset) {
                    return SendStopped::Damaged;
                }
            }
            let sent = if packet.head.is_empty() {
                rustix::fs::sendfile(&self.socket, file, Some(&mut self.offset), packet.data)
            } else {
                let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                rustix::net::send(&self.socket, &packet.head, flags)
            };
            match sent {
                Ok(n) if !packet.head.is_empty() => packet.head.advance(n),
                Ok(0) | Err(Errno::IO) => return SendStopped::Short,
                Ok(n) => packet.data -= n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return SendStopped::Full,
                Err(error) => return SendStopped::Broken(error.into()),
            }
            if packet.head.is_empty() && packet.data == 0 {
                self.next();
            }
        }
        SendStopped::Sent
    }

    /// Lets go of the first packet.
    fn next(&mut self) -> Option<CachedPacket> {
        if let Some(check) = &mut self.check {
            check.passed = false;
        }
        self.packets.pop_front()
    }

    /// Takes the rest of the first packet, and where its data begins.
    pub fn take_first(&mut self) -> Option<(u64, CachedPacket)> {
        let packet = self.next()?;
        let from = self.offset;
        self.offset += packet.data as u64;
        Some((from, packet))
    }
}

impl PacketCheck {
    /// Whether the packet's data at `offset` of `file` fits its checksums. Where it cannot be read,
    /// sending will say so.
    fn matches(&mut self, packet: &CachedPacket, file: BorrowedFd<'_>, offset: u64) -> bool {
        self.scratch.resize(packet.data, 0);
        let mut filled = 0;
        while filled < packet.data {
            let rest = &mut self.scratch[filled..];
            match rustix::io::pread(file, rest, offset + filled as u64) {
                Ok(0) => return true,
                Ok(n) => filled += n,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
        let sums = &packet.head[packet.head.len() - packet.sums..];
        self.checksum.verify(&self.scratch, sums).is_ok()
    }
}
