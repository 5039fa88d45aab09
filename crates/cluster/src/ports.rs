//! Ports chosen at run time that stay ours while a process is down.

use crate::error::{ClusterError, Result};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::Mutex;

/// Below the kernel's usual ephemeral range (32768 and up), so that an outgoing connection cannot
/// take the port of a node that is being restarted.
const FIRST: u16 = 12_000;
/// Ports of one process stand together in blocks, which no other process uses meanwhile.
const BLOCK: u16 = 50;
/// How many blocks there are; they end at 32,000.
const BLOCKS: u16 = 400;

static OURS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

struct Block {
    first: u16,
    used: u16,
    /// Its name is taken as long as this process lives, and with it the block.
    _claim: UnixListener,
}

/// A port on 127.0.0.1 on which nothing listens now, and that no other call gets as long as this
/// process lives, in this process or in another: a node that is down for a while keeps its port.
///
/// # Errors
/// [`ClusterError::Missing`] when no port in the range is free.
pub fn free() -> Result<u16> {
    let mut ours = OURS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        if let Some(block) = ours.last_mut() {
            while block.used < BLOCK {
                let port = block.first + block.used;
                block.used += 1;
                if TcpListener::bind(local(port)).is_ok() {
                    return Ok(port);
                }
            }
        }
        let block = claim().ok_or_else(|| ClusterError::Missing {
            what: format!("a free port from {FIRST} on, on 127.0.0.1"),
            todo: "stop other clusters on this machine".into(),
        })?;
        ours.push(block);
    }
}

/// Takes a block by a name that only one socket of a network namespace can have. The kernel gives
/// the name back when the process ends, however it ends.
fn claim() -> Option<Block> {
    // Processes that start one after the other begin far apart.
    let start = u64::from(std::process::id()) * 2_654_435_761;
    (0..u64::from(BLOCKS)).find_map(|step| {
        let number = u16::try_from((start + step) % u64::from(BLOCKS)).ok()?;
        let first = FIRST + number * BLOCK;
        let name = UnixAddress::from_abstract_name(format!("hayloft-ports-{first}")).ok()?;
        Some(Block {
            first,
            used: 0,
            _claim: UnixListener::bind_addr(&name).ok()?,
        })
    })
}

/// The port on the loop-back address.
#[must_use]
pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_is_claimed_twice() {
        let claimed: Vec<Block> = (0..5).filter_map(|_| claim()).collect();
        let mut firsts: Vec<u16> = claimed.iter().map(|block| block.first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 5);
        assert!(
            firsts
                .iter()
                .all(|first| (FIRST..=32_000 - BLOCK).contains(first))
        );
    }

    #[test]
    fn a_port_is_given_once() {
        let mut ports: Vec<u16> = (0..2 * BLOCK).filter_map(|_| free().ok()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), usize::from(2 * BLOCK));
    }
}
