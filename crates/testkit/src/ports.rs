//! Ports chosen at run time that stay ours while a process is down.

use crate::error::{Result, TestkitError};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

/// Below the kernel's usual ephemeral range (32768 and up), so that an outgoing connection cannot
/// take the port of a node that is being restarted.
const FIRST: u16 = 12_000;
/// One past the last.
const END: u16 = 32_000;

static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port on 127.0.0.1 on which nothing listens now and that no other call in this process got.
///
/// The search starts at a place derived from the process id: two test processes rarely meet.
///
/// # Errors
/// [`TestkitError::Missing`] when no port in the range is free.
pub fn free() -> Result<u16> {
    let mut taken = TAKEN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let span = u32::from(END - FIRST);
    let start = std::process::id().wrapping_mul(2_654_435_761) % span;
    for step in 0..span {
        let offset = u16::try_from((start + step) % span).expect("span fits in u16");
        let port = FIRST + offset;
        if !taken.contains(&port) && TcpListener::bind(local(port)).is_ok() {
            taken.insert(port);
            return Ok(port);
        }
    }
    Err(TestkitError::Missing {
        what: format!("a free port in {FIRST}..{END} on 127.0.0.1"),
        todo: "stop other clusters on this machine".into(),
    })
}

/// The port on the loop-back address.
#[must_use]
pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
