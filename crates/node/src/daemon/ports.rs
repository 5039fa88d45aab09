//! The ports of a node.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::StartError;
use crate::http::{Policy, Tls, WebFilters, WebPorts};
use crate::ipc::ServicePolicy;
use hayloft_conf::{HostPort, Key, SharedConfig, keys};

/// How long ports may stay in use. A process that was killed keeps its ports until its memory is
/// freed, which takes seconds when that is many gigabytes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(100);

/// The ports, all listening.
pub(super) struct Bound {
    pub(super) xfer: TcpListener,
    pub(super) xfer_addr: SocketAddr,
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
        shutdown: &CancellationToken,
    ) -> Result<Self, StartError> {
        let mut wait = Wait {
            until: Instant::now() + PATIENCE,
            said: false,
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
        let filters = WebFilters::of(config).await.map_err(StartError::Web)?;
        Ok(Self {
            xfer,
            xfer_addr,
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
    shutdown: &'a CancellationToken,
}

impl Wait<'_> {
    /// Waits for the next attempt; false when there is none.
    async fn again(&mut self, address: &HostPort) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        if !std::mem::replace(&mut self.said, true) {
            info!(%address, "the port is in use; trying for {PATIENCE:?}, in case a node that was \
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
        match bind(&address, backlog).await {
            Ok(bound) => return Ok(bound),
            Err(error) if error.kind() == ErrorKind::AddrInUse && wait.again(&address).await => {}
            Err(source) => {
                return Err(StartError::Listen {
                    key: key.name(),
                    address: address.to_string(),
                    source,
                });
            }
        }
    }
}

async fn bind(address: &HostPort, backlog: u32) -> std::io::Result<(TcpListener, SocketAddr)> {
    let addr = lookup_host((address.host.as_str(), address.port))
        .await?
        .next()
        .ok_or_else(|| std::io::Error::other("the name has no address"))?;
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted node takes its port back while old connections linger.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    let listener = socket.listen(backlog)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayloft_conf::Configuration;

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
        let bind = Bound::new(&config, &shutdown);
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
