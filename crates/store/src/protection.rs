//! What the store asks of what protects its finalized replicas against failing disks.
//!
//! The store knows this trait and no implementation: the daemon puts both together. A store without
//! protection makes none of these calls. With it, one call is made where a replica is opened,
//! finalized or deleted; packets that are read cost none.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hayloft_io::{AlignedBuf, Engine, EngineFile};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{ExtendedBlock, PoolId, StorageType};

use crate::error::StoreError;
use crate::replica::LiveReplica;
use crate::replica::block_pool::Pool;
use crate::replica::degraded::DecodedAs;
use crate::types::StorageInfo;
use crate::volume::Volume;

/// What is known of a replica that is to be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its files are not there, or differ: it is told when it cannot be mended.
    Certain,
    /// An error: the block scanner looks at it then, so that a good replica is not reported.
    Suspected,
}

/// What is about to happen to the data file of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaChange {
    /// It leaves its place.
    Gone,
    /// It is cut.
    Cut {
        /// Bytes that stay.
        len: u64,
    },
}

/// A whole replica that is decoded.
#[derive(Debug)]
pub struct DecodedFiles {
    /// Its data.
    pub data: Arc<dyn EngineFile>,
    /// Its checksums, as in a meta file.
    pub meta: Arc<dyn EngineFile>,
    /// How the data is checksummed.
    pub checksum: DataChecksum,
}

/// Protects finalized replicas on the volumes of all stores of a process, and decodes what a disk
/// has lost. `S` is the state of a store, which lies above this file.
pub trait Protection<S>: fmt::Debug + Send + Sync {
    /// Whether it can protect what an engine stores.
    ///
    /// # Errors
    /// A sentence for the operator says why it cannot.
    fn suits(&self, engine: &dyn Engine) -> Result<(), String>;

    /// The part of so many free bytes that protection takes when the rest is filled with replicas.
    fn share_of(&self, free: u64) -> u64;

    /// A store has opened its volumes, which take part from now on.
    ///
    /// # Errors
    /// `Incompatible` when the volumes lie on too few disks.
    fn store_opened<'a>(&'a self, store: &'a Arc<S>) -> BoxFuture<'a, Result<(), StoreError>>;

    /// A store stops: what lies on its healthy volumes serves other stores of the process.
    fn store_ended(&self, store: &S);

    /// The replicas of a pool are in the map, those of a volume that joined too.
    fn pool_loaded<'a>(&'a self, store: &'a Arc<S>, pool: &'a Arc<Pool>) -> BoxFuture<'a, ()>;

    /// The directories of a pool are removed for good.
    fn pool_removed<'a>(&'a self, store: &'a Arc<S>, pool: &'a PoolId) -> BoxFuture<'a, ()>;

    /// Whether nothing would be lost with a volume.
    fn can_do_without(&self, store: &S, volume: &Volume) -> bool;

    /// A volume has failed, and its replicas leave the map next: those that can be decoded become
    /// degraded ones.
    fn volume_failed(&self, store: &Arc<S>, volume: &Volume);

    /// A volume was taken out on purpose, with its replicas.
    fn volume_left(&self, volume: &Volume);

    /// A client writes `data` to a live replica: what of it is to stay in memory once it is
    /// written, if anything.
    fn keep_written(&self, live: &LiveReplica, data: &[Bytes]) -> Option<Vec<Bytes>>;

    /// A live replica has got `data`, which was to stay in memory, at `offset`.
    fn written(&self, live: &LiveReplica, offset: u64, data: &[Bytes]);

    /// A replica was finalized with `len` bytes.
    fn finalized(&self, live: &LiveReplica, len: u64);

    /// Before the file `data` of block `id` on a volume changes. The caller has the right to the
    /// block.
    fn before_change<'a>(
        &'a self,
        store: &'a Arc<S>,
        pool: &'a PoolId,
        at: (i64, &'a Arc<Volume>),
        data: PathBuf,
        change: ReplicaChange,
    ) -> BoxFuture<'a, ()>;

    /// Gives up what is kept of deleted replicas on volumes of type `kind` until there is `enough`
    /// room. Asks `enough` only after something was given up, or while it waited.
    fn make_room<'a>(
        &'a self,
        store: &'a S,
        kind: StorageType,
        enough: &'a mut (dyn FnMut() -> bool + Send),
    ) -> BoxFuture<'a, ()>;

    /// The unit that has all `len` bytes of a replica on a storage, if one has.
    fn covers(&self, pool: &PoolId, id: i64, storage: &str, len: u64) -> Option<DecodedAs>;

    /// A unit as files that are decoded when they are read.
    ///
    /// # Errors
    /// Too much of what it is decoded from is lost, or cannot be read.
    fn decode(&self, unit: DecodedAs) -> BoxFuture<'_, Result<DecodedFiles, StoreError>>;

    /// What decodes ranges of a finalized replica for one reader; `None` when not all of `block`
    /// is protected.
    fn mender(
        &self,
        store: &Arc<S>,
        block: &ExtendedBlock,
        storage: &StorageInfo,
    ) -> Option<Box<dyn Mender>>;

    /// Mends a damaged replica in the background, or tells the node of it.
    fn heal(&self, store: &Arc<S>, block: ExtendedBlock, storage: StorageInfo, damage: Damage);

    /// Mends a damaged replica for a caller who waits for it; whether it did.
    fn heal_now<'a>(&'a self, store: &'a Arc<S>, block: &'a ExtendedBlock) -> BoxFuture<'a, bool>;

    /// Rebuilds the degraded replica of a block, if there is one, before a task changes it.
    ///
    /// # Errors
    /// `OutOfSpace`, or of reading what it is decoded from.
    fn rebuild_first<'a>(
        &'a self,
        store: &'a Arc<S>,
        block: &'a ExtendedBlock,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// A degraded replica is wanted no more.
    fn drop_degraded(&self, unit: DecodedAs);

    /// Reads what it has on a volume with errors, resting after each file as many times as long as
    /// that took; how many were bad.
    fn search_units<'a>(&'a self, volume: &'a Volume, rests: u32) -> BoxFuture<'a, usize>;
}

/// Decodes ranges of one replica for one reader. Opens nothing before it is asked.
pub trait Mender: fmt::Debug + Send + Sync {
    /// A range of the data, decoded into `buf`; `None` when it cannot be.
    fn data(&self, buf: AlignedBuf, offset: u64, len: usize) -> BoxFuture<'_, Option<AlignedBuf>>;

    /// The checksums of `count` chunks from number `first` on, as they were when the replica was
    /// protected; `None` when the replica has others than `checksum`.
    fn sums(&self, checksum: DataChecksum, first: u64, count: u64) -> BoxFuture<'_, Option<Bytes>>;

    /// The replica is to be mended.
    fn found(&self, damage: Damage);
}
