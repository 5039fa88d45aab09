//! Calls to the NameNodes of one namespace: the active one is found, and found again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hayloft_rpc::{Protocol, RpcClient, RpcError, RpcOptions};
use hayloft_wire::proto::client::{
    FsServerDefaults, GetServerDefaultsRequest, GetServerDefaultsResponse,
};
use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
use hayloft_wire::schema::WireMessage;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::FileError;

const PROTOCOL: Protocol = CLIENT_NAMENODE_PROTOCOL;
/// Calls that are made for one that a user asked for.
const ATTEMPTS_MAX: u32 = 10;
/// Pause after all NameNodes were asked; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A cluster's defaults are asked for again after this time, as Java clients do.
const DEFAULTS_LAST: Duration = Duration::from_secs(60 * 60);

/// Whether a call may be made again when its answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It does no harm.
    Harmless,
    /// Only when no NameNode can have carried it out.
    OnlyUnsent,
}

/// The NameNodes of one namespace; clones share what is known of them.
#[derive(Clone, Debug)]
pub struct NameNodeGroup {
    addresses: Vec<String>,
    known: Arc<Known>,
}

/// What is known of a group.
#[derive(Debug, Default)]
struct Known {
    /// Which was active last.
    active: AtomicUsize,
    /// The cluster's defaults, and when it told them.
    defaults: Mutex<Option<(Instant, FsServerDefaults)>>,
}

impl NameNodeGroup {
    /// Makes a group of these addresses ("host:port"), at least one.
    #[must_use]
    pub fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            known: Arc::default(),
        }
    }

    pub(super) fn calls(&self, options: &RpcOptions) -> NameNodeCalls {
        let client = |address: &String| RpcClient::new(address, PROTOCOL, options.clone());
        NameNodeCalls {
            clients: self.addresses.iter().map(client).collect(),
            known: Arc::clone(&self.known),
        }
    }
}

/// Connections to the NameNodes of a group as one user.
#[derive(Clone, Debug)]
pub(super) struct NameNodeCalls {
    clients: Vec<RpcClient>,
    known: Arc<Known>,
}

/// What to do after a call failed.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Ask the next NameNode.
    Other,
    /// Ask the same one again, later.
    Same,
    GiveUp,
}

fn next(error: &RpcError, repeat: Repeat, several: bool) -> Next {
    match error {
        RpcError::Remote { .. } => {
            let elsewhere = error.is_standby() || error.is_remote("ObserverRetryOnActiveException");
            match (elsewhere, error.is_remote("RetriableException")) {
                (true, _) if several => Next::Other,
                (_, true) => Next::Same,
                _ => Next::GiveUp,
            }
        }
        RpcError::Connect { .. } => Next::Other,
        RpcError::Lost { .. } | RpcError::Timeout { .. } if repeat == Repeat::Harmless => {
            Next::Other
        }
        _ => Next::GiveUp,
    }
}

impl NameNodeCalls {
    /// What the cluster takes where a client says nothing.
    pub(super) async fn defaults(&self) -> Result<FsServerDefaults, FileError> {
        if let Some((at, defaults)) = &*self.known.defaults.lock().await
            && at.elapsed() < DEFAULTS_LAST
        {
            return Ok(defaults.clone());
        }
        // Not held during the call: others may ask beside it.
        let request = GetServerDefaultsRequest {};
        let answer: GetServerDefaultsResponse = self
            .call("getServerDefaults", &request, Repeat::Harmless)
            .await?;
        let told = (Instant::now(), answer.server_defaults.clone());
        *self.known.defaults.lock().await = Some(told);
        Ok(answer.server_defaults)
    }

    /// The NameNode that answered last.
    pub(super) fn answering(&self) -> Option<&str> {
        let index = self.known.active.load(Ordering::Relaxed) % self.clients.len().max(1);
        Some(self.clients.get(index)?.address())
    }

    /// Calls `method` of the active NameNode.
    ///
    /// # Errors
    /// What the NameNode answers, or that none answers.
    pub(super) async fn call<Req, Resp>(
        &self,
        method: &'static str,
        request: &Req,
        repeat: Repeat,
    ) -> Result<Resp, FileError>
    where
        Req: prost::Message,
        Resp: WireMessage,
    {
        let count = self.clients.len();
        let mut pause = PAUSE;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let index = self.known.active.load(Ordering::Relaxed) % count.max(1);
            let Some(client) = self.clients.get(index) else {
                return Err(FileError::failed("no NameNode is configured"));
            };
            let error = match client.call(method, request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let next = next(&error, repeat, count > 1);
            if next == Next::GiveUp || attempt >= ATTEMPTS_MAX {
                return Err(error.into());
            }
            if next == Next::Other {
                // Another call may have moved on already.
                let _ = self.known.active.compare_exchange(
                    index,
                    (index + 1) % count,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
            let all_asked = usize::try_from(attempt).unwrap_or(0) % count == 0;
            if next == Next::Same || all_asked {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(class: &str) -> RpcError {
        RpcError::Remote {
            class: class.into(),
            message: String::new(),
            code: None,
        }
    }

    #[test]
    fn a_standby_or_lost_namenode_is_left_for_the_other() {
        let of = |error: &RpcError, repeat| next(error, repeat, true);
        let standby = remote("org.apache.hadoop.ipc.StandbyException");
        assert_eq!(of(&standby, Repeat::OnlyUnsent), Next::Other);
        assert_eq!(next(&standby, Repeat::Harmless, false), Next::GiveUp);
        let retry = remote("org.apache.hadoop.ipc.RetriableException");
        assert_eq!(of(&retry, Repeat::OnlyUnsent), Next::Same);
        let no = remote("java.io.FileNotFoundException");
        assert_eq!(of(&no, Repeat::Harmless), Next::GiveUp);
        let lost = RpcError::Lost {
            address: String::new(),
            reason: String::new(),
        };
        assert_eq!(of(&lost, Repeat::Harmless), Next::Other);
        assert_eq!(of(&lost, Repeat::OnlyUnsent), Next::GiveUp);
        let connect = RpcError::Connect {
            address: String::new(),
            reason: String::new(),
        };
        assert_eq!(of(&connect, Repeat::OnlyUnsent), Next::Other);
    }
}
