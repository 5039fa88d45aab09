//! The connection or the file of a sink.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hayloft_conf::{HostPort, SinkTarget};
use hayloft_io::locks::lock;
use hayloft_rpc::client::addresses_of;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::lines::Lines;

/// A server is connected to and has taken a snapshot within this time.
const WITHIN: Duration = Duration::from_secs(10);
/// A connection is dead when the server's kernel has not taken what was sent for so long. Without
/// this limit the kernel takes snapshots for a quarter of an hour that no server gets.
const UNTAKEN: Duration = Duration::from_secs(30);

/// Where a sink's lines go. It is opened when there is something to send, and anew after an error.
pub(super) struct Outlet {
    target: SinkTarget,
    open: Option<Open>,
    /// When snapshots were sent that a connection loses if it dies; at most those of [`UNTAKEN`].
    in_doubt: Vec<Instant>,
    /// Those that connections lost.
    lost: u64,
}

enum Open {
    Tcp(TcpStream),
    Udp(UdpSocket),
    File(Arc<File>),
}

impl Outlet {
    pub(super) fn new(target: SinkTarget) -> Self {
        Self {
            target,
            open: None,
            in_doubt: Vec::new(),
            lost: 0,
        }
    }

    /// Snapshots that connections which died may have lost since the last call, though they were
    /// sent.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn connection_died(&mut self) {
        self.lost += self.in_doubt.len() as u64;
        self.in_doubt.clear();
    }

    /// The connection lives, so what was sent longer ago than it bears was taken.
    fn forget_taken(&mut self) {
        self.in_doubt.retain(|at| at.elapsed() <= UNTAKEN);
    }

    /// As if all had been sent so long before.
    #[cfg(test)]
    pub(super) fn age(&mut self, by: Duration) {
        self.in_doubt.iter_mut().for_each(|at| *at -= by);
    }

    /// Sends all the lines. After an error, and when this is dropped half-way, it is closed.
    pub(super) async fn send(&mut self, lines: Lines) -> io::Result<()> {
        if let SinkTarget::File(path) = self.target.clone() {
            let open = self.open.take();
            // Without a limit of time: a disk that hangs would take a thread each time.
            let written = tokio::task::spawn_blocking(move || {
                let file = match open {
                    Some(Open::File(file)) => file,
                    _ => Arc::new(opened(path.as_deref())?),
                };
                (&*file).write_all(lines.concat().as_bytes())?;
                Ok::<_, io::Error>(file)
            });
            let file = written.await.map_err(io::Error::other)??;
            self.open = Some(Open::File(file));
            return Ok(());
        }
        let sent = timeout(WITHIN, self.send_over_network(lines)).await;
        let late = || format!("it did not take metrics within {} s", WITHIN.as_secs());
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, late());
        let sent = sent.map_err(late).flatten();
        if sent.is_err() {
            self.connection_died();
        }
        sent
    }

    async fn send_over_network(&mut self, lines: Lines) -> io::Result<()> {
        let known = match self.open.take() {
            Some(Open::Tcp(stream)) => self.still_open(stream).map(Open::Tcp),
            other => other,
        };
        let mut open = match (known, &self.target) {
            (Some(open), _) => open,
            (None, SinkTarget::StatsD { server, .. }) => Open::Udp(to_statsd(server).await?),
            (None, SinkTarget::Graphite { server, .. }) => {
                let found = addresses_of(&server.to_string()).await?;
                let stream = TcpStream::connect(&found[..]).await?;
                let limit = u32::try_from(UNTAKEN.as_millis()).unwrap_or(u32::MAX);
                rustix::net::sockopt::set_tcp_user_timeout(&stream, limit)?;
                Open::Tcp(stream)
            }
            (None, SinkTarget::File(_)) => return Ok(()),
        };
        match &mut open {
            Open::Tcp(stream) => {
                stream.write_all(lines.concat().as_bytes()).await?;
                self.in_doubt.push(Instant::now());
            }
            Open::Udp(socket) => {
                for line in lines {
                    socket.send(line.as_bytes()).await?;
                }
            }
            Open::File(_) => {}
        }
        self.open = Some(open);
        Ok(())
    }

    /// The connection unless the other side has closed it: what is written then would be lost.
    fn still_open(&mut self, stream: TcpStream) -> Option<TcpStream> {
        match stream.try_read(&mut [0]) {
            // It took what was sent before.
            Ok(0) => self.in_doubt.clear(),
            Ok(_) => {
                self.forget_taken();
                return Some(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.forget_taken();
                return Some(stream);
            }
            Err(_) => self.connection_died(),
        }
        None
    }
}

/// A socket for datagrams to the server, which says when there is none.
async fn to_statsd(server: &HostPort) -> io::Result<UdpSocket> {
    let found = addresses_of(&server.to_string()).await?;
    let none = || io::Error::other("its name has no address");
    let address = found.first().ok_or_else(none)?;
    let any = if address.is_ipv6() {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// The file, emptied once in the life of this process, whose virtual nodes all write to it;
/// standard output when there is none.
fn opened(path: Option<&Path>) -> io::Result<File> {
    static BEGUN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let Some(path) = path else {
        return Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    };
    // A pipe that has no reader is an error at once: nothing would end the wait for one.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = File::options();
    options.create(true).append(true).custom_flags(flags);
    let file = options.open(path)?;
    // A slow reader is waited for: half a line would be lost, and the next begin in its midst.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    // What is no file has no length: a terminal or a pipe.
    if file.metadata()?.is_file() && lock(&BEGUN).insert(path.to_owned()) {
        file.set_len(0)?;
    }
    Ok(file)
}
