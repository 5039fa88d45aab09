//! The ports of a node.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hayloft_io::locks::lock;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::{TcpListener, lookup_host};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::StartError;
use crate::http::{Policy, Tls, WebFilters, WebPorts};
use crate::ipc::ServicePolicy;
use crate::xceiver::{DomainListener, NoListener, path_of};
use hayloft_conf::{Configuration, HostPort, Key, SharedConfig, keys};

/// How long ports may stay in use. A process that was killed keeps its ports until its memory is
/// freed, which takes seconds when that is many gigabytes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(100);

/// Ports that were opened before the process gave up root. None is listened on until its node is
/// ready: until then clients are refused, and do not wait.
#[derive(Debug, Default)]
pub struct OpenedPorts(Mutex<Vec<(HostPort, OwnedFd)>>);

impl OpenedPorts {
    /// Opens every port that this configuration names a number for. Waits a moment for a
    /// predecessor that still holds one, and starts no thread.
    ///
    /// # Errors
    /// The configuration cannot be used, or a port cannot be opened.
    pub fn open(config: &Configuration) -> Result<Self, StartError> {
        let nodes = config.virtual_nodes()?;
        let alone = nodes.is_empty().then_some(config);
        let of_nodes = nodes.iter().map(|node| &node.config);
        let until = Instant::now() + PATIENCE;
        let mut opened = Vec::new();
        for config in alone.into_iter().chain(of_nodes) {
            let policy = Policy::of(config).map_err(StartError::Web)?;
            for (is_served, key) in [
                (true, &keys::DATANODE_ADDRESS),
                (true, &keys::DATANODE_IPC_ADDRESS),
                (policy.plain, &keys::DATANODE_HTTP_ADDRESS),
                (policy.tls, &keys::DATANODE_HTTPS_ADDRESS),
            ] {
                let address = config.get(key);
                if is_served && address.port != 0 {
                    let socket = open_until(until, &address);
                    opened.push((address.clone(), socket.map_err(refused(key, &address))?));
                }
            }
        }
        Ok(Self(Mutex::new(opened)))
    }

    fn take(&self, address: &HostPort) -> Option<OwnedFd> {
        let mut all = lock(&self.0);
        let found = all.iter().position(|(opened, _)| opened == address)?;
        Some(all.swap_remove(found).1)
    }
}

fn open_until(until: Instant, address: &HostPort) -> io::Result<OwnedFd> {
    let first = (address.host.as_str(), address.port)
        .to_socket_addrs()?
        .next();
    let first = first.ok_or_else(no_address)?;
    loop {
        match open(first) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(AGAIN);
            }
            opened => return opened,
        }
    }
}

fn no_address() -> io::Error {
    io::Error::other("the name has no address")
}

/// The ports, all listening.
pub(super) struct Bound {
    pub(super) xfer: TcpListener,
    pub(super) xfer_addr: SocketAddr,
    /// The socket for clients of this host, beside the port for transfers.
    pub(super) domain: Option<DomainListener>,
    pub(super) ipc: TcpListener,
    pub(super) ipc_addr: SocketAddr,
    /// Who may use that port.
    pub(super) ipc_policy: Option<ServicePolicy>,
    pub(super) web: WebPorts,
    /// What stands before its pages.
    pub(super) web_filters: Arc<WebFilters>,
    /// Ports that the web is served on; 0: it is not.
    pub(super) http_port: u16,
    pub(super) https_port: u16,
}

impl Bound {
    /// Listens on all ports; waits a moment for a predecessor that still holds them.
    pub(super) async fn new(
        config: &SharedConfig,
        opened: &OpenedPorts,
        shutdown: &CancellationToken,
    ) -> Result<Self, StartError> {
        let mut wait = Wait {
            until: Instant::now() + PATIENCE,
            said: false,
            opened,
            shutdown,
        };
        let (xfer, xfer_addr) = listen(config, &keys::DATANODE_ADDRESS, &mut wait).await?;
        let (ipc, ipc_addr) = listen(config, &keys::DATANODE_IPC_ADDRESS, &mut wait).await?;
        let ipc_policy = ServicePolicy::load(config).await;
        let ipc_policy = ipc_policy.map_err(StartError::Policy)?;
        let policy = Policy::of(&config.current()).map_err(StartError::Web)?;
        let mut web = WebPorts::default();
        let (mut http_port, mut https_port) = (0, 0);
        if policy.plain {
            let (http, addr) = listen(config, &keys::DATANODE_HTTP_ADDRESS, &mut wait).await?;
            web.plain = Some(http);
            http_port = addr.port();
        }
        if policy.tls {
            let tls = Tls::new(&config.current()).map_err(StartError::Web)?;
            let (https, addr) = listen(config, &keys::DATANODE_HTTPS_ADDRESS, &mut wait).await?;
            web.tls = Some((https, Arc::new(tls)));
            https_port = addr.port();
        }
        let domain = listen_at_path(config, xfer_addr.port(), &mut wait).await?;
        let filters = WebFilters::of(config).await.map_err(StartError::Web)?;
        Ok(Self {
            xfer,
            xfer_addr,
            domain,
            ipc,
            ipc_addr,
            ipc_policy,
            web,
            web_filters: Arc::new(filters),
            http_port,
            https_port,
        })
    }
}

/// The time that the ports have together.
struct Wait<'a> {
    until: Instant,
    said: bool,
    opened: &'a OpenedPorts,
    shutdown: &'a CancellationToken,
}

impl Wait<'_> {
    /// Waits for the next attempt; false when there is none.
    async fn again(&mut self, address: &impl Display) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        if !std::mem::replace(&mut self.said, true) {
            info!(%address, "this is in use; trying for {PATIENCE:?}, in case a node that was \
                stopped still frees it");
        }
        tokio::select! {
            () = self.shutdown.cancelled() => false,
            () = tokio::time::sleep(AGAIN) => true,
        }
    }
}

async fn listen(
    config: &SharedConfig,
    key: &'static Key<HostPort>,
    wait: &mut Wait<'_>,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let address = config.get(key);
    let backlog = config.get(&keys::IPC_LISTEN_QUEUE);
    loop {
        match bind(&address, backlog, wait.opened).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && wait.again(&address).await => {}
            bound => return bound.map_err(refused(key, &address)),
        }
    }
}

fn refused(
    key: &'static Key<HostPort>,
    address: &HostPort,
) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Listen {
        key: key.name(),
        address: address.to_string(),
        source,
    }
}

/// The domain socket, where the configuration has one.
async fn listen_at_path(
    config: &SharedConfig,
    port: u16,
    wait: &mut Wait<'_>,
) -> Result<Option<DomainListener>, StartError> {
    let Some(path) = config.current().domain_socket() else {
        return Ok(None);
    };
    let path = path_of(&path, port);
    loop {
        match DomainListener::bind(&path) {
            Ok(listener) => return Ok(Some(listener)),
            Err(NoListener::InUse) if wait.again(&path.display()).await => {}
            Err(source) => {
                let path = path.display().to_string();
                return Err(StartError::DomainSocket { path, source });
            }
        }
    }
}

/// The refusal of virtual nodes that would have one domain socket: `configs` are all of them.
pub(super) fn one_socket_of_two<'a>(
    configs: impl Iterator<Item = &'a SharedConfig>,
) -> Option<StartError> {
    let paths = configs.filter_map(|config| config.current().domain_socket());
    let mut known = HashSet::new();
    let same = paths
        .filter(|path| !path.contains("_PORT"))
        .find(|path| !known.insert(path.clone()))?;
    let source = NoListener::Shared;
    Some(StartError::DomainSocket { path: same, source })
}

async fn bind(
    address: &HostPort,
    backlog: u32,
    opened: &OpenedPorts,
) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = match opened.take(address) {
        Some(socket) => socket,
        None => {
            let mut all = lookup_host((address.host.as_str(), address.port)).await?;
            open(all.next().ok_or_else(no_address)?)?
        }
    };
    rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let listener = TcpListener::from_std(socket.into())?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// A socket of this address, which does not listen yet.
fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address.is_ipv4() {
        true => AddressFamily::INET,
        false => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // A restarted node takes its port back while old connections linger.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    const XFER: &str = "dfs.datanode.address";
    const IPC: &str = "dfs.datanode.ipc.address";
    const HTTP: &str = "dfs.datanode.http.address";

    /// Starts to bind while another listener holds the port of `key`, which goes after `held`.
    async fn bind_while_held(key: &str, held: Duration) -> Result<Bound, StartError> {
        let holder = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let taken = holder.local_addr().expect("bound").to_string();
        let others = [XFER, IPC, HTTP].into_iter().filter(|other| *other != key);
        let mut properties = vec![(key, taken.as_str())];
        properties.extend(others.map(|other| (other, "127.0.0.1:0")));
        let config = Configuration::from_properties(properties).expect("valid");
        let release = async move {
            tokio::time::sleep(held).await;
            drop(holder);
        };
        let (config, shutdown) = (SharedConfig::new(config), CancellationToken::new());
        let opened = OpenedPorts::default();
        let bind = Bound::new(&config, &opened, &shutdown);
        tokio::select! {
            bound = bind => bound,
            () = async { release.await; std::future::pending().await } => unreachable!("pending"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ports_that_a_predecessor_holds_for_a_moment_are_waited_for() {
        for key in [XFER, IPC, HTTP] {
            let began = Instant::now();
            let bound = bind_while_held(key, Duration::from_secs(8)).await;
            bound.expect("is free in time");
            assert!(began.elapsed() < PATIENCE, "{key}");
        }
    }

    #[tokio::test]
    async fn ports_that_were_opened_before_are_taken_and_refuse_until_they_are() {
        let free = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("bound").to_string()
        };
        let [xfer, ipc] = [free(), free()];
        let all = [(XFER, &*xfer), (IPC, &*ipc), (HTTP, "127.0.0.1:0")];
        let config = Configuration::from_properties(all).expect("valid");
        let opened = OpenedPorts::open(&config).expect("free");
        assert_eq!(lock(&opened.0).len(), 2, "one may be any");
        let refused = TcpStream::connect(&xfer)
            .await
            .expect_err("nothing listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let (config, shutdown) = (SharedConfig::new(config), CancellationToken::new());
        let bound = Bound::new(&config, &opened, &shutdown).await;
        let bound = bound.expect("listens");
        assert_eq!(lock(&opened.0).len(), 0);
        let named = [bound.xfer_addr.to_string(), bound.ipc_addr.to_string()];
        assert_eq!(named, [xfer.clone(), ipc]);
        TcpStream::connect(&xfer).await.expect("it listens");
    }

    #[test]
    fn a_port_that_cannot_be_opened_before_is_named() {
        // Of a network that is for documents alone.
        let config = Configuration::from_properties([(XFER, "192.0.2.1:9866")]).expect("valid");
        let said = OpenedPorts::open(&config)
            .expect_err("not here")
            .to_string();
        assert!(
            said.contains(XFER) && said.contains("192.0.2.1:9866"),
            "{said}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_stays_in_use_ends_the_start() {
        for key in [XFER, IPC, HTTP] {
            let began = Instant::now();
            let error = bind_while_held(key, Duration::from_secs(60)).await;
            let said = error.err().expect("in use").to_string();
            assert!(said.contains(key) && said.contains("in use"), "{said}");
            let took = began.elapsed();
            assert!(took >= PATIENCE && took < PATIENCE + Duration::from_secs(1));
        }
    }
}
