//! Connections that do not leave the host are not paced.
//!
//! A congestion control that paces (BBR) lets every segment of 64 KiB wait for a timer, also where
//! no network is between the two ends. Those timers cost more than moving the bytes does
//! (docs/decisions/0012). Where one is the system's default, connections within the host use Reno,
//! which every Linux has and lets every process choose. Connections to other hosts keep what the
//! operator chose.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;

use hayloft_io::Means;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};

use hayloft_rpc::LogLimit;

/// A congestion control without pacing.
const UNPACED: &str = "reno";

/// Whether the congestion control of this name paces what is sent: `bbr` and its later versions.
fn paces(name: &str) -> bool {
    name.starts_with("bbr")
}

/// Whether the two ends of a connection are on this host.
fn within_host(local: IpAddr, peer: IpAddr) -> bool {
    let (local, peer) = (local.to_canonical(), peer.to_canonical());
    local == peer || (local.is_loopback() && peer.is_loopback())
}

/// What connections to other hosts are given back.
#[derive(Debug, Default)]
pub struct Pacing {
    /// The system's choice where it paces.
    default: Option<String>,
}

/// Refusals are said now and then, whichever connection they are of: each one that we open has a
/// [`Pacing`] of its own.
static REFUSALS: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);

impl Pacing {
    /// Has accepted connections begin unpaced, when the system paces and `wanted`. It has to be the
    /// listening socket: one that began paced keeps its timers, whatever it is told later.
    pub fn of_listener(listener: &TcpListener, wanted: bool) -> Self {
        let default = wanted.then(|| begin_unpaced(listener)).flatten();
        if let Some(name) = &default {
            tracing::info!(
                system = name,
                "connections within this host use the congestion control {UNPACED}: \
                 what the system uses paces also where there is no network \
                 (hayloft.transfer.local.unpaced)"
            );
        }
        Self { default }
    }

    /// Gives a connection with another host the system's congestion control. To be called before
    /// data is sent.
    pub fn settle(&self, stream: &TcpStream) {
        if self.default.is_none() {
            return; // Most systems: not a system call for it.
        }
        let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else {
            return; // Gone already.
        };
        if !within_host(local.ip(), peer.ip()) {
            self.give_back(stream);
        }
    }

    fn give_back(&self, stream: &TcpStream) {
        let Some(default) = &self.default else { return };
        if let Err(error) = sockopt::set_tcp_congestion(stream, default)
            && let Some(skipped) = REFUSALS.may_log()
        {
            tracing::warn!(
                %error,
                skipped,
                "a connection with another host uses the congestion control {UNPACED}: {default} \
                    was refused; \
                 allow it in net.ipv4.tcp_allowed_congestion_control or set \
                 hayloft.transfer.local.unpaced to false"
            );
        }
    }
}

/// The name of the socket's congestion control when that paces and was replaced.
fn begin_unpaced(socket: impl std::os::fd::AsFd) -> Option<String> {
    let name = sockopt::tcp_congestion(&socket).ok()?;
    (paces(&name) && sockopt::set_tcp_congestion(&socket, UNPACED).is_ok()).then_some(name)
}

/// Attempts of a process that lacks something, and the pause between them: two seconds.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Connects to the first address of `host` that answers, without pacing when that is within this
/// host and `unpaced`, from the address `local` of this host if that is given. While this process
/// lacks what it takes it tries again for a moment: the other node would be blamed.
///
/// # Errors
/// The name is unknown, or no address of it takes the connection: the last one's error.
pub async fn connect(
    host: &str,
    port: u16,
    unpaced: bool,
    local: Option<IpAddr>,
) -> io::Result<TcpStream> {
    for _ in 1..ATTEMPTS {
        let error = match connect_once(host, port, unpaced, local).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let Some(means) = Means::lacking(&error) else {
            return Err(error);
        };
        means.note();
        tokio::time::sleep(PAUSE).await;
    }
    connect_once(host, port, unpaced, local).await
}

async fn connect_once(
    host: &str,
    port: u16,
    unpaced: bool,
    local: Option<IpAddr>,
) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("the name has no address");
    for address in lookup_host((host, port)).await? {
        match connect_to(address, unpaced, local).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn connect_to(
    address: SocketAddr,
    unpaced: bool,
    local: Option<IpAddr>,
) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Before it is known where the address is: the other way round comes too late.
    let pacing = Pacing {
        default: unpaced.then(|| begin_unpaced(&socket)).flatten(),
    };
    if let Some(local) = local {
        hayloft_rpc::bind_to(&socket, local)?;
    }
    let stream = socket.connect(address).await?;
    pacing.settle(&stream);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener whose connections are paced, as by a system with that default; `None` where this
    /// system has none.
    async fn paced_listener() -> Option<TcpListener> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        if let Err(error) = sockopt::set_tcp_congestion(&listener, "bbr") {
            eprintln!("skipped: this system does not let us choose bbr ({error})");
            return None;
        }
        Some(listener)
    }

    /// An accepted connection, and what the listener was made to say of it; `None` where nothing
    /// paces.
    async fn accepted(wanted: bool) -> Option<(Pacing, TcpStream)> {
        let listener = paced_listener().await?;
        let pacing = Pacing::of_listener(&listener, wanted);
        let address = listener.local_addr().expect("bound");
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        peer.expect("connected");
        Some((pacing, accepted.expect("accepted").0))
    }

    fn congestion(stream: &TcpStream) -> String {
        sockopt::tcp_congestion(stream).expect("a socket")
    }

    #[tokio::test]
    async fn accepted_connections_within_the_host_are_unpaced_where_that_is_wanted() {
        for (wanted, congestion_then) in [(true, UNPACED), (false, "bbr")] {
            let Some((pacing, stream)) = accepted(wanted).await else {
                return;
            };
            pacing.settle(&stream);
            assert_eq!(congestion(&stream), congestion_then);
        }
    }

    #[tokio::test]
    async fn connections_with_other_hosts_get_the_systems_choice_back() {
        let Some((pacing, stream)) = accepted(true).await else {
            return;
        };
        pacing.give_back(&stream);
        assert_eq!(congestion(&stream), "bbr");
    }

    #[tokio::test]
    async fn our_own_connections_within_the_host_are_unpaced() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let stream = connect("localhost", port, true, None)
            .await
            .expect("connected");
        let name = congestion(&stream);
        assert!(!paces(&name), "{name}");
    }

    #[tokio::test]
    async fn a_connection_comes_from_the_address_that_is_given() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let local = "127.0.0.7".parse().ok();
        let connected = connect("127.0.0.1", port, true, local).await;
        let stream = connected.expect("connected");
        assert_eq!(stream.local_addr().ok().map(|addr| addr.ip()), local);
    }

    #[tokio::test]
    async fn an_address_without_a_listener_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        assert!(connect("127.0.0.1", port, true, None).await.is_err());
    }

    #[test]
    fn the_same_address_or_two_of_the_loopback_are_one_host() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (local, peer, same) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", true),
            ("::ffff:127.0.0.1", "127.0.0.1", true),
            ("::1", "::1", true),
            ("10.0.0.5", "10.0.0.5", true),
            ("10.0.0.5", "10.0.0.6", false),
            ("fe80::1", "fe80::2", false),
            ("10.0.0.5", "127.0.0.1", false),
        ] {
            assert_eq!(within_host(ip(local), ip(peer)), same, "{local} {peer}");
        }
    }
}
