//! A TCP relay that can hold back what passes through it: a network that stalls.

use crate::error::{Result, TestkitError};
use crate::ports;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Passes connections to its port on to another address until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    switches: Arc<Switches>,
}

#[derive(Debug, Default)]
struct Switches {
    held: AtomicBool,
    over: AtomicBool,
}

impl Switches {
    /// Waits while held; whether to go on.
    fn pass(&self) -> bool {
        while self.held.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        !self.over.load(Ordering::Relaxed)
    }
}

impl Relay {
    /// Listens on a free local port and passes everything on to `target`.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn to(target: SocketAddr) -> Result<Self> {
        let address = ports::local(ports::free()?);
        let listener = TcpListener::bind(address)
            .map_err(|e| TestkitError::Talk(format!("listening on {address}: {e}")))?;
        let switches = Arc::new(Switches::default());
        let of_listener = Arc::clone(&switches);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if !of_listener.pass() {
                    return;
                }
                if let Ok(server) = TcpStream::connect(target) {
                    join(&client, &server, &of_listener);
                }
            }
        });
        Ok(Self { address, switches })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops passing bytes on (connections stay open), or goes on with what was held back.
    pub fn hold(&self, held: bool) {
        self.switches.held.store(held, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.switches.over.store(true, Ordering::Relaxed);
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn join(client: &TcpStream, server: &TcpStream, switches: &Arc<Switches>) {
    for (from, to) in [(client, server), (server, client)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
            return;
        };
        let switches = Arc::clone(switches);
        thread::spawn(move || copy(from, to, &switches));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, switches: &Switches) {
    let mut buffer = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !switches.pass() || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_unless_held() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let relay = Relay::to(server.local_addr().expect("bound")).expect("listens");
        let mut client = TcpStream::connect(relay.address()).expect("connects");
        let (mut accepted, _) = server.accept().expect("passed on");
        client.write_all(b"ab").expect("sent");
        let mut two = [0; 2];
        accepted.read_exact(&mut two).expect("arrives");
        relay.hold(true);
        client.write_all(b"cd").expect("sent");
        let limit = Some(Duration::from_millis(200));
        accepted.set_read_timeout(limit).expect("set");
        assert!(accepted.read_exact(&mut two).is_err(), "held back");
        relay.hold(false);
        accepted.set_read_timeout(None).expect("set");
        accepted.read_exact(&mut two).expect("arrives in the end");
        assert_eq!(&two, b"cd");
    }
}
