//! Where a process runs, and whether it outlives the program that started it.

use crate::error::{ClusterError, Result};
use crate::process::Spawn;
use crate::wait::{self, Seen};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Where a process runs: on this host, or in a network namespace that stands for another one.
#[derive(Clone, Debug)]
pub struct Place {
    /// The network namespace by its name in `/run/netns`; none is this host.
    namespace: Option<String>,
    /// The address at which it answers.
    address: Ipv4Addr,
    /// Whether it outlives the program that started it.
    stays: bool,
}

impl Place {
    /// This host's loop-back address; the process dies with its parent.
    #[must_use]
    pub fn local() -> Self {
        Self {
            namespace: None,
            address: Ipv4Addr::LOCALHOST,
            stays: false,
        }
    }

    /// This host at another loop-back address (127.0.0.0/8), as if it was another host's.
    #[must_use]
    pub fn local_at(address: Ipv4Addr) -> Self {
        Self {
            address,
            ..Self::local()
        }
    }

    /// A host that is a network namespace and has this address.
    #[must_use]
    pub fn namespace(name: impl Into<String>, address: Ipv4Addr) -> Self {
        Self {
            namespace: Some(name.into()),
            address,
            stays: false,
        }
    }

    /// With processes that outlive the program that started them, or do not.
    #[must_use]
    pub fn staying(mut self, stays: bool) -> Self {
        self.stays = stays;
        self
    }

    /// The address of its processes.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A port of it.
    #[must_use]
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.address, port))
    }

    /// What starts the same process here.
    #[must_use]
    pub fn put(&self, mut spawn: Spawn) -> Spawn {
        if let Some(namespace) = &self.namespace {
            spawn.argv = inside(namespace, spawn.argv);
        }
        spawn.detached = self.stays;
        spawn
    }

    /// Runs `work` with sockets that belong to this place.
    ///
    /// # Errors
    /// As [`within`].
    pub fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match &self.namespace {
            Some(namespace) => within(namespace, work),
            None => work(),
        }
    }

    /// Waits until a process here accepts connections on `port`; `alive` may end the wait with an
    /// error.
    ///
    /// # Errors
    /// On timeout, or what `alive` reports.
    pub fn wait_open(
        &self,
        port: u16,
        limit: Duration,
        alive: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.wait_open_at(self.at(port), limit, alive)
    }

    /// As [`wait_open`](Self::wait_open), at any address that is reached from here.
    ///
    /// # Errors
    /// As [`wait_open`](Self::wait_open).
    pub fn wait_open_at(
        &self,
        address: SocketAddr,
        limit: Duration,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        wait::until(&format!("a listener on {address}"), limit, || {
            alive()?;
            let tried = self.within(move || {
                let tried = TcpStream::connect_timeout(&address, Duration::from_secs(1));
                tried.map_err(|error| ClusterError::Talk(error.to_string()))
            });
            Ok(match tried {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }
}

/// Puts a command line into a namespace.
#[must_use]
pub fn inside(namespace: &str, argv: Vec<String>) -> Vec<String> {
    let mut all = vec![
        "nsenter".to_owned(),
        format!("--net=/run/netns/{namespace}"),
        "--".to_owned(),
    ];
    all.extend(argv);
    all
}

/// Runs `work` on a thread inside a namespace: sockets that it opens belong to that host.
///
/// # Errors
/// When the namespace is gone, or what `work` returns.
pub fn within<T: Send + 'static>(
    namespace: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let path = format!("/run/netns/{namespace}");
    let entered = move || {
        let file = std::fs::File::open(&path).map_err(ClusterError::file("opening", &path))?;
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind)
            .map_err(|e| ClusterError::Talk(format!("entering namespace {path}: {e}")))?;
        work()
    };
    std::thread::spawn(entered)
        .join()
        .map_err(|_| ClusterError::Talk("a thread in a namespace panicked".into()))?
}
