//! What a damaged replica should have, for one reader of it.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{AlignedBuf, IoClass};
use hayloft_store::StorageInfo;
use hayloft_store::inside::{Damage, StoreState};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;
use tokio::sync::OnceCell;
use tracing::debug;

use super::Parity;
use super::decode::UnitReader;
use super::rewrite_damaged::heal;

/// Decodes ranges of one replica that its group has all of. Opens nothing before it is asked.
#[derive(Debug)]
pub struct UnitMender {
    parity: Arc<Parity>,
    store: Arc<StoreState>,
    block: ExtendedBlock,
    storage: StorageInfo,
    unit: OnceCell<UnitReader>,
}

impl UnitMender {
    /// Of a finalized replica with all of `block`; `None` when no group has it.
    pub fn of(
        parity: &Arc<Parity>,
        store: &Arc<StoreState>,
        block: &ExtendedBlock,
        storage: &StorageInfo,
    ) -> Option<Box<Self>> {
        let (id, len) = (block.block.id, block.block.num_bytes);
        let covered = parity.covers(&block.pool, id, &storage.id, len);
        covered.is_some().then(|| {
            Box::new(Self {
                parity: Arc::clone(parity),
                store: Arc::clone(store),
                block: block.clone(),
                storage: storage.clone(),
                unit: OnceCell::new(),
            })
        })
    }

    async fn unit(&self) -> Option<&UnitReader> {
        let parity = &self.parity;
        let open = || async {
            let id = self.block.block.id;
            let cover = parity
                .table()
                .cover(&self.block.pool, id, &self.storage.id)?;
            let whole = cover.1 == self.block.block.num_bytes;
            let opened = UnitReader::open(parity, cover.0, IoClass::ClientRead);
            if whole { opened.await.ok() } else { None }
        };
        let opened = self
            .unit
            .get_or_try_init(|| async { open().await.ok_or(()) });
        opened.await.ok()
    }

    /// A range of the data, decoded into `buf`; `None` when it cannot be.
    pub async fn data(&self, mut buf: AlignedBuf, offset: u64, len: usize) -> Option<AlignedBuf> {
        let end = offset.checked_add(len as u64)?;
        let into = buf.as_mut_capacity().get_mut(..len)?;
        match self.unit().await?.read(offset..end, into).await {
            Ok(n) if n == len => {
                buf.set_len(len);
                Some(buf)
            }
            Ok(_) => None,
            Err(error) => {
                let block = &self.block;
                debug!(%block, %error, "a range that cannot be read cannot be decoded either");
                None
            }
        }
    }

    /// The checksums of `count` chunks from number `first` on, as they were when the group was
    /// encoded; `None` when the replica has others than `checksum`.
    pub async fn sums(&self, checksum: DataChecksum, first: u64, count: u64) -> Option<Bytes> {
        let sums = self.unit().await?.sums();
        let same = sums.checksum() == checksum;
        sums.of_chunks(first, count).filter(|_| same)
    }

    /// The replica is to be mended.
    pub fn found(&self, damage: Damage) {
        heal(
            &self.parity,
            &self.store,
            self.block.clone(),
            self.storage.clone(),
            damage,
        );
    }
}
