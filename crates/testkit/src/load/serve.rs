//! A node without a NameNode: store and data transfer port in one process, for profiling.

use crate::error::{Result, TestkitError};
use hayloft_conf::Configuration;
use hayloft_node::security::{BlockTokens, TokenSettings};
use hayloft_node::store_config::store_config;
use hayloft_node::xceiver::{NameNodeLink, Settings, Throttles, XceiverStats, Xceivers, serve};
use hayloft_store::{PoolSpec, StartOption, StorageInfo, Store};
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The one volume; created when it does not exist.
    pub dir: PathBuf,
    /// Name of the engine; the configuration's default without one.
    pub engine: Option<String>,
    /// The one block pool.
    pub pool: PoolId,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where to write the address that it listens on.
    pub port_file: Option<PathBuf>,
    /// Configuration keys as in `hdfs-site.xml`.
    pub define: Vec<(String, String)>,
}

/// A NameNode side that is always ready and ignores what it is told.
struct Alone(DatanodeId, BlockTokens);

impl NameNodeLink for Alone {
    fn receiving(&self, _: &ExtendedBlock, _: &StorageInfo) {}
    fn received(&self, _: &ExtendedBlock, _: &StorageInfo, _: Option<&str>) {}
    fn wait_told<'a>(
        &'a self,
        _: &'a ExtendedBlock,
        _: Duration,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::ready(()))
    }
    fn bad_block(&self, block: &ExtendedBlock, _: &StorageInfo) {
        eprintln!("hayloft-load: warning: block {} is corrupt", block.block.id);
    }
    fn remote_bad_block(&self, _: &DatanodeInfo, _: &ExtendedBlock) {}
    fn wait_ready<'a>(
        &'a self,
        _: &'a PoolId,
        _: Duration,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(true))
    }
    fn identity(&self, _: &PoolId) -> Option<DatanodeId> {
        Some(self.0.clone())
    }
    fn block_tokens(&self) -> &BlockTokens {
        &self.1
    }
    fn is_slow(&self, _: &PoolId) -> bool {
        false
    }
}

/// Serves until SIGTERM or SIGINT, then stops in order.
///
/// # Errors
/// When the configuration, the directory or the port cannot be used.
pub fn run(options: ServeOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("hayloft-net")
        .enable_all()
        .build()
        .map_err(|error| TestkitError::Talk(format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(run_until_signalled(options));
    runtime.shutdown_background();
    outcome
}

async fn run_until_signalled(options: ServeOptions) -> Result<()> {
    let talk = |what: &'static str| {
        move |error: &dyn std::fmt::Display| TestkitError::Talk(format!("{what}: {error}"))
    };
    let mut properties = vec![(
        "dfs.datanode.data.dir".to_owned(),
        options.dir.display().to_string(),
    )];
    if let Some(engine) = &options.engine {
        properties.push(("hayloft.io.engine".to_owned(), engine.clone()));
    }
    properties.extend(options.define);
    let config = Configuration::from_properties(properties)
        .map_err(|error| talk("configuration")(&error))?;
    let wanted = store_config(&config);
    let (events, mut news) = mpsc::channel(64);
    let store = Store::open(wanted, events)
        .await
        .map_err(|error| talk("opening the volume")(&error))?;
    tokio::spawn(async move { while news.recv().await.is_some() {} });
    let spec = PoolSpec {
        pool: options.pool,
        cluster_id: "CID-load".to_owned(),
        namespace_id: 1,
        ctime: 0,
    };
    store
        .add_pool(spec, StartOption::Regular)
        .await
        .map_err(|error| talk("opening the block pool")(&error))?;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| talk("listening")(&error))?;
    let address = listener
        .local_addr()
        .map_err(|error| talk("listening")(&error))?;
    let stop = CancellationToken::new();
    let id = DatanodeId {
        ip_addr: address.ip().to_string(),
        host_name: address.ip().to_string(),
        datanode_uuid: store.datanode_uuid(),
        xfer_port: address.port().into(),
        ..DatanodeId::default()
    };
    let tokens = BlockTokens::new(TokenSettings::from_config(&config));
    // The first to say decides.
    let _ = tokens.agree(false);
    let xceivers = Xceivers::new(
        store.clone(),
        Arc::new(Alone(id, tokens)),
        Arc::new(XceiverStats::default()),
        Arc::new(Throttles::of(&config)),
        Settings::from_config(&config),
        stop.clone(),
    );
    let serving = tokio::spawn(serve(xceivers, listener));
    if let Some(file) = &options.port_file {
        // Renamed into place: a process that waits for it never reads half an address.
        let partial = file.with_extension("partial");
        std::fs::write(&partial, format!("{address}\n"))
            .and_then(|()| std::fs::rename(&partial, file))
            .map_err(TestkitError::file("writing", file))?;
    }
    println!("{address}");
    signalled().await.map_err(|error| talk("signals")(&error))?;
    stop.cancel();
    let _ = serving.await;
    store.shutdown().await;
    Ok(())
}

async fn signalled() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
