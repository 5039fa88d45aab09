//! What stands between the engine and its server, and may change or cut what the server says.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

const PASS: u8 = 0;
const GARBLE: u8 = 1;
const CUT: u8 = 2;

/// Passes bytes on both ways, for as long as the process runs.
pub struct Between {
    pub socket: PathBuf,
    next: Arc<AtomicU8>,
    connections: Arc<AtomicUsize>,
}

impl Between {
    /// For the server at `server`, with a socket in `dir`.
    pub fn new(dir: &Path, server: &Path) -> Self {
        let socket = dir.join("between");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let between = Self {
            socket,
            next: Arc::default(),
            connections: Arc::default(),
        };
        let (next, count) = (Arc::clone(&between.next), Arc::clone(&between.connections));
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = UnixStream::connect(&server) else {
                    continue;
                };
                let (from, to) = (both(&client), both(&server));
                let next = Arc::clone(&next);
                std::thread::spawn(move || pass(from.0, to.0, &AtomicU8::new(PASS)));
                std::thread::spawn(move || pass(to.1, from.1, &next));
            }
        });
        between
    }

    /// The server's next words become others.
    pub fn garble(&self) {
        self.next.store(GARBLE, Ordering::Relaxed);
    }

    /// In the middle of the server's next words the connection ends.
    pub fn cut(&self) {
        self.next.store(CUT, Ordering::Relaxed);
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn both(stream: &UnixStream) -> (UnixStream, UnixStream) {
    let copy = || stream.try_clone().expect("a descriptor");
    (copy(), copy())
}

fn pass(mut from: UnixStream, mut to: UnixStream, next: &AtomicU8) {
    let mut bytes = vec![0; 256 << 10];
    while let Ok(n) = from.read(&mut bytes) {
        let mut said = &mut bytes[..n];
        let what = next.swap(PASS, Ordering::Relaxed);
        match what {
            GARBLE => said.fill(0x55),
            CUT => said = &mut said[..n / 2],
            _ => {}
        }
        if n == 0 || to.write_all(said).is_err() || what == CUT {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
