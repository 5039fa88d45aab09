//! What all NameNode services of one node share.

use std::sync::{Arc, OnceLock};

use hayloft_store::StartOption;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::held_pools::HeldPools;
use super::inventory::Inventory;
use super::work::{NodeLoad, NodeWork};
use crate::activity::NodeActivity;
use crate::identity::Identity;
use crate::outliers::OutlierReports;
use crate::security::BlockTokens;
use hayloft_conf::SharedConfig;

/// The node, as its NameNode services see it.
pub(super) struct NodeSide {
    pub(super) store: Arc<dyn Inventory>,
    pub(super) config: SharedConfig,
    pub(super) identity: Identity,
    pub(super) start: StartOption,
    pub(super) shutdown: CancellationToken,
    pub(super) tasks: TaskTracker,
    /// Where calls and orders are counted.
    pub(super) activity: Arc<NodeActivity>,
    /// Filled by what NameNodes hand out.
    pub(super) tokens: BlockTokens,
    /// Each has one name service.
    pub(super) pools: HeldPools,
    /// Set before the first service starts.
    pub(super) work: OnceLock<Arc<dyn NodeWork>>,
}

impl NodeSide {
    pub(super) fn outliers(&self) -> OutlierReports {
        self.work
            .get()
            .map(|work| work.outliers())
            .unwrap_or_default()
    }

    pub(super) fn load(&self) -> NodeLoad {
        self.work.get().map(|work| work.load()).unwrap_or_default()
    }
}
