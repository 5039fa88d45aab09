//! A data transfer service over a real store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hayloft_io::decorators::Faults;
use hayloft_store::{
    PoolSpec, StartOption, StorageInfo, Store, StoreConfig, StoreEvent, StoreShared, VolumeConfig,
};
use hayloft_wire::ids::{ExtendedBlock, PoolId, StorageType};
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use hayloft_wire::proto::hdfs_server::ExportedBlockKeys;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::super::{
    NameNodeLink, Settings, Throttles, XceiverShared, XceiverStats, Xceivers, serve,
};
use super::{pool, tokens};
use crate::security::BlockTokens;

/// What a node said to its NameNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Receiving(ExtendedBlock),
    Received {
        block: ExtendedBlock,
        hint: Option<String>,
    },
    /// Asked to wait until the block is reported, at most so long.
    Waits(ExtendedBlock, Duration),
    Bad(ExtendedBlock),
    RemoteBad {
        source: String,
        block: ExtendedBlock,
    },
}

/// Takes notes.
pub struct Notes {
    id: DatanodeId,
    said: Mutex<Vec<Said>>,
    pub tokens: BlockTokens,
    /// What [`NameNodeLink::is_slow`] says.
    pub slow: AtomicBool,
    /// Closed: the NameNode takes no report.
    pub hears: watch::Sender<bool>,
    /// False: the pool is not registered. Its receivers are the requests that wait for that.
    pub ready: watch::Sender<bool>,
}

impl Notes {
    fn note(&self, said: Said) {
        self.said.lock().expect("no panic holds it").push(said);
    }
}

impl NameNodeLink for Notes {
    fn receiving(&self, block: &ExtendedBlock, _: &StorageInfo) {
        self.note(Said::Receiving(block.clone()));
    }
    fn received(&self, block: &ExtendedBlock, _: &StorageInfo, hint: Option<&str>) {
        self.note(Said::Received {
            block: block.clone(),
            hint: hint.map(str::to_owned),
        });
    }
    fn wait_told<'a>(&'a self, block: &'a ExtendedBlock, limit: Duration) -> BoxFuture<'a, ()> {
        let mut hears = self.hears.subscribe();
        self.note(Said::Waits(block.clone(), limit));
        Box::pin(async move {
            let heard = hears.wait_for(|hears| *hears);
            let _ = tokio::time::timeout(limit, heard).await;
        })
    }
    fn bad_block(&self, block: &ExtendedBlock, _: &StorageInfo) {
        self.note(Said::Bad(block.clone()));
    }
    fn remote_bad_block(&self, source: &DatanodeInfo, block: &ExtendedBlock) {
        self.note(Said::RemoteBad {
            source: source.id.datanode_uuid.clone(),
            block: block.clone(),
        });
    }
    fn wait_ready<'a>(&'a self, pool: &'a PoolId, _: Duration) -> BoxFuture<'a, bool> {
        let mut ready = self.ready.subscribe();
        Box::pin(
            async move { *pool == super::pool() && ready.wait_for(|ready| *ready).await.is_ok() },
        )
    }
    fn identity(&self, _: &PoolId) -> Option<DatanodeId> {
        Some(self.id.clone())
    }
    fn block_tokens(&self) -> &BlockTokens {
        &self.tokens
    }
    fn is_slow(&self, _: &PoolId) -> bool {
        self.slow.load(Ordering::Relaxed)
    }
}

/// A running service.
pub struct Node {
    pub x: Xceivers,
    pub store: Store,
    pub notes: Arc<Notes>,
    pub id: DatanodeId,
    pub dir: TempDir,
    shutdown: CancellationToken,
    _events: mpsc::Receiver<StoreEvent>,
}

impl Node {
    /// A node with one DISK volume and Apache's defaults.
    pub async fn start() -> Self {
        Self::with(Settings::default(), &[StorageType::Disk]).await
    }

    pub async fn with(settings: Settings, volumes: &[StorageType]) -> Self {
        Self::with_engine("posix", settings, volumes).await
    }

    /// A node whose volumes use the engine with this name; `NAME cached` with what clients read
    /// through the page cache.
    pub async fn with_engine(engine: &str, settings: Settings, volumes: &[StorageType]) -> Self {
        Self::beside(None, (engine, None), settings, volumes)
            .await
            .without_tokens()
    }

    /// A node whose one volume obeys the rules.
    pub async fn with_faults(faults: &Arc<Faults>) -> Self {
        let engine = ("posix", Some(Arc::clone(faults)));
        Self::beside(None, engine, Settings::default(), &[StorageType::Disk])
            .await
            .without_tokens()
    }

    /// A node that may keep so many bytes of replicas in memory.
    pub async fn with_memory(bytes: u64, settings: Settings, volumes: &[StorageType]) -> Self {
        let disks = StoreShared::alone(8 << 20).with_locked_memory(bytes, 1);
        let process = (disks, XceiverShared::new(settings.reading_memory));
        let node = Self::beside(Some(&process), ("posix", None), settings, volumes).await;
        node.without_tokens()
    }

    /// A virtual node of the process that the others with these are of.
    pub async fn sibling(process: &(StoreShared, XceiverShared), settings: Settings) -> Self {
        let volumes = [StorageType::Disk];
        let node = Self::beside(Some(process), ("posix", None), settings, &volumes).await;
        process.1.introduce(&node.store);
        node.without_tokens()
    }

    /// A node whose NameNode has block tokens on, with these keys.
    pub async fn with_tokens(keys: &ExportedBlockKeys) -> Self {
        Self::with_tokens_and(keys, Settings::default()).await
    }

    pub async fn with_tokens_and(keys: &ExportedBlockKeys, settings: Settings) -> Self {
        let engine = ("posix", None);
        let node = Self::beside(None, engine, settings, &[StorageType::Disk]).await;
        let tokens = &node.notes.tokens;
        tokens.agree(true).expect("the first to say");
        tokens
            .take_keys(&pool(), keys, true)
            .expect("within limits");
        node
    }

    fn without_tokens(self) -> Self {
        let tokens = &self.notes.tokens;
        tokens.agree(false).expect("the first to say");
        self
    }

    async fn beside(
        process: Option<&(StoreShared, XceiverShared)>,
        (engine, faults): (&str, Option<Arc<Faults>>),
        settings: Settings,
        volumes: &[StorageType],
    ) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let (engine, cached) = engine.split_once(' ').unwrap_or((engine, ""));
        let volumes = volumes
            .iter()
            .enumerate()
            .map(|(i, &storage_type)| VolumeConfig {
                storage_type,
                engine: engine.to_owned(),
                ..VolumeConfig::new(dir.path().join(format!("v{i}")))
            })
            .collect();
        let (tell, events) = mpsc::channel(64);
        let config = StoreConfig {
            volumes,
            cache_client_reads: cached == "cached",
            faults: faults.map(|faults| (dir.path().join("v0"), faults)),
            ..StoreConfig::default()
        };
        let store = match process {
            Some((disks, _)) => Store::open_sharing(config, tell, disks.clone(), None).await,
            None => Store::open(config, tell).await,
        };
        let store = store.expect("a new store opens");
        let alone = || XceiverShared::new(settings.reading_memory);
        let shared = process.map_or_else(alone, |(_, shared)| shared.clone());
        let spec = PoolSpec {
            pool: pool(),
            cluster_id: "CID-test".to_owned(),
            namespace_id: 7,
            ctime: 0,
        };
        store
            .add_pool(spec, StartOption::Regular)
            .await
            .expect("a new pool is formatted");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let id = DatanodeId {
            ip_addr: "127.0.0.1".to_owned(),
            host_name: "localhost".to_owned(),
            datanode_uuid: store.datanode_uuid(),
            xfer_port: port.into(),
            ..DatanodeId::default()
        };
        let notes = Arc::new(Notes {
            id: id.clone(),
            said: Mutex::default(),
            tokens: BlockTokens::new(tokens::settings()),
            slow: AtomicBool::new(false),
            hears: watch::Sender::new(true),
            ready: watch::Sender::new(true),
        });
        let shutdown = CancellationToken::new();
        let x = Xceivers::sharing(
            store.clone(),
            notes.clone(),
            Arc::new(XceiverStats::default()),
            Arc::new(Throttles::new(100 << 20, 0, 0, 0, 100)),
            settings,
            shutdown.clone(),
            shared,
        );
        tokio::spawn(serve(x.clone(), listener));
        Self {
            x,
            store,
            notes,
            id,
            dir,
            shutdown,
            _events: events,
        }
    }

    /// As other nodes and clients know it.
    pub fn info(&self) -> DatanodeInfo {
        DatanodeInfo {
            id: self.id.clone(),
            ..DatanodeInfo::default()
        }
    }

    /// The one file below the volumes with this name. It is looked for again for a while: one that
    /// is moved may be in neither place while these are listed.
    pub fn file(&self, name: &str) -> std::path::PathBuf {
        for _ in 0..100 {
            if let Some(path) = self.find(name) {
                return path;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("no file {name}");
    }

    fn find(&self, name: &str) -> Option<std::path::PathBuf> {
        let mut directories = vec![self.dir.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.file_name().is_some_and(|found| found == name) {
                    return Some(path);
                }
            }
        }
        None
    }

    /// Everything that was said so far.
    pub fn said(&self) -> Vec<Said> {
        self.notes.said.lock().expect("no panic holds it").clone()
    }

    /// Stops serving, as far as sockets tell: like a killed process.
    pub fn kill(&self) {
        self.shutdown.cancel();
    }

    /// Waits until `condition` holds.
    pub async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..500 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}; said {:?}", self.said());
    }

    /// Waits until the node told that it has the block in full.
    pub async fn until_received(&self, id: i64, len: u64) {
        self.until("received", |node| {
            node.said().iter().any(|said| {
                matches!(said, Said::Received { block, .. }
                    if block.block.id == id && block.block.num_bytes == len)
            })
        })
        .await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
