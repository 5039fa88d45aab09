//! What the store asks of its protection, done by parity groups.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hayloft_io::{AlignedBuf, Engine, IoClass};
use hayloft_parity::{MemberChange, PARITY_DIR};
use hayloft_store::inside::{
    Damage, DecodedAs, DecodedFiles, LiveReplica, Mender, Pool, Protection, ReplicaChange,
    StoreState, Volume,
};
use hayloft_store::{StorageInfo, StoreError};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{ExtendedBlock, PoolId, StorageType};
use tracing::warn;

use super::degraded::{decoded_as, unit_from};
use super::mend_for_reader::UnitMender;
use super::{
    Parity, ParityConfig, ParityStatus, degraded, dissolve, found_at_start, kept_of_deleted,
    rebuild, replica_changes, rewrite_damaged, rounds, unattended, unreadable_units,
};

/// Parity groups over the volumes of all stores of a process. Clones are the same.
#[derive(Clone, Debug)]
pub struct ParityProtection(pub(crate) Arc<Parity>);

impl ParityProtection {
    /// Without groups. It waits until it knows what all of so many stores have.
    #[must_use]
    pub fn new(config: ParityConfig, stores: usize) -> Self {
        Self(Arc::new(Parity::new(config, stores)))
    }

    /// What there is of parity now.
    #[must_use]
    pub fn status(&self) -> ParityStatus {
        self.0.status()
    }
}

/// Whether a volume has been part of parity before.
async fn has_groups(store: &StoreState) -> bool {
    for volume in store.volumes() {
        let meta = volume.meta(IoClass::ClientRead);
        if matches!(meta.is_dir(&volume.root.join(PARITY_DIR)).await, Ok(true)) {
            return true;
        }
    }
    false
}

async fn store_opened(parity: &Arc<Parity>, store: &Arc<StoreState>) -> Result<(), StoreError> {
    if let Err(error) = parity.check_disks(store) {
        if !has_groups(store).await {
            return Err(error);
        }
        // Dead disks were taken out of the configuration: what is left can be served.
        warn!(%error, "groups of earlier disks are there: new ones are smaller until then");
    }
    parity.join(store);
    if !parity.config.interval.is_zero() {
        rounds::start(parity);
    }
    Ok(())
}

impl Protection<StoreState> for ParityProtection {
    fn suits(&self, engine: &dyn Engine) -> Result<(), String> {
        match engine.capabilities().stubs {
            false => Ok(()),
            true => Err(format!(
                "hayloft.parity has no effect on the devices of {}: turn it off, or use \
                 another engine",
                engine.name()
            )),
        }
    }

    fn share_of(&self, free: u64) -> u64 {
        self.0.config.shape.share_of(free)
    }

    fn store_opened<'a>(
        &'a self,
        store: &'a Arc<StoreState>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        store_opened(&self.0, store).boxed()
    }

    fn store_ended(&self, store: &StoreState) {
        unattended::store_ended(&self.0, store);
    }

    fn pool_loaded<'a>(
        &'a self,
        store: &'a Arc<StoreState>,
        pool: &'a Arc<Pool>,
    ) -> BoxFuture<'a, ()> {
        found_at_start::pool_loaded(&self.0, store, pool).boxed()
    }

    fn pool_removed<'a>(
        &'a self,
        store: &'a Arc<StoreState>,
        pool: &'a PoolId,
    ) -> BoxFuture<'a, ()> {
        dissolve::pool_removed(&self.0, store, pool).boxed()
    }

    fn can_do_without(&self, store: &StoreState, volume: &Volume) -> bool {
        degraded::can_do_without(&self.0, store, volume)
    }

    fn volume_failed(&self, store: &Arc<StoreState>, volume: &Volume) {
        degraded::keep_serving(&self.0, store, volume);
    }

    fn volume_left(&self, volume: &Volume) {
        degraded::volume_left(&self.0, volume);
    }

    fn keep_written(&self, live: &LiveReplica, data: &[Bytes]) -> Option<Vec<Bytes>> {
        replica_changes::note_write(&self.0);
        replica_changes::keep_written(&self.0, live, data)
    }

    fn written(&self, live: &LiveReplica, offset: u64, data: &[Bytes]) {
        replica_changes::written(&self.0, live, offset, data);
    }

    fn finalized(&self, live: &LiveReplica, len: u64) {
        replica_changes::finalized(&self.0, live, len);
    }

    fn before_change<'a>(
        &'a self,
        store: &'a Arc<StoreState>,
        pool: &'a PoolId,
        at: (i64, &'a Arc<Volume>),
        data: PathBuf,
        change: ReplicaChange,
    ) -> BoxFuture<'a, ()> {
        let change = match change {
            ReplicaChange::Gone => MemberChange::Gone,
            ReplicaChange::Cut { len } => MemberChange::Cut { len },
        };
        replica_changes::before_change(&self.0, store, pool, at, data, change).boxed()
    }

    fn make_room<'a>(
        &'a self,
        store: &'a StoreState,
        kind: StorageType,
        enough: &'a mut (dyn FnMut() -> bool + Send),
    ) -> BoxFuture<'a, ()> {
        kept_of_deleted::make_room(&self.0, store, kind, enough).boxed()
    }

    fn covers(&self, pool: &PoolId, id: i64, storage: &str, len: u64) -> Option<DecodedAs> {
        self.0.covers(pool, id, storage, len).map(decoded_as)
    }

    fn decode(&self, unit: DecodedAs) -> BoxFuture<'_, Result<DecodedFiles, StoreError>> {
        degraded::decode(&self.0, unit_from(unit)).boxed()
    }

    fn mender(
        &self,
        store: &Arc<StoreState>,
        block: &ExtendedBlock,
        storage: &StorageInfo,
    ) -> Option<Box<dyn Mender>> {
        let mender = UnitMender::of(&self.0, store, block, storage)?;
        Some(mender)
    }

    fn heal(
        &self,
        store: &Arc<StoreState>,
        block: ExtendedBlock,
        storage: StorageInfo,
        damage: Damage,
    ) {
        rewrite_damaged::heal(&self.0, store, block, storage, damage);
    }

    fn heal_now<'a>(
        &'a self,
        store: &'a Arc<StoreState>,
        block: &'a ExtendedBlock,
    ) -> BoxFuture<'a, bool> {
        rewrite_damaged::heal_now(&self.0, store, block).boxed()
    }

    fn rebuild_first<'a>(
        &'a self,
        store: &'a Arc<StoreState>,
        block: &'a ExtendedBlock,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        rebuild::rebuild_first(&self.0, store, block).boxed()
    }

    fn drop_degraded(&self, unit: DecodedAs) {
        self.0.drop_member(unit_from(unit));
    }

    fn search_units<'a>(&'a self, volume: &'a Volume, rests: u32) -> BoxFuture<'a, usize> {
        unreadable_units::search_units(&self.0, volume, rests).boxed()
    }
}

impl Mender for UnitMender {
    fn data(&self, buf: AlignedBuf, offset: u64, len: usize) -> BoxFuture<'_, Option<AlignedBuf>> {
        self.data(buf, offset, len).boxed()
    }

    fn sums(&self, checksum: DataChecksum, first: u64, count: u64) -> BoxFuture<'_, Option<Bytes>> {
        self.sums(checksum, first, count).boxed()
    }

    fn found(&self, damage: Damage) {
        self.found(damage);
    }
}
