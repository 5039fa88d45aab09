//! A striped group, and what is left of it.

use hayloft_coder::Codec;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::proto::security::Token;

use hayloft_client::stripe::Stripe;

/// A replica of an internal block, on some node.
#[derive(Clone, Debug)]
pub struct InternalReplica {
    /// Index of the block in its group.
    pub index: usize,
    /// The node that should have it.
    pub node: DatanodeInfo,
    /// What its node asks a reader for.
    pub token: Token,
}

impl InternalReplica {
    /// One that is read without a token.
    #[must_use]
    pub fn new(index: usize, node: DatanodeInfo) -> Self {
        Self {
            index,
            node,
            token: Token::default(),
        }
    }
}

/// A striped group whose lost blocks are made up from those that are left.
#[derive(Clone, Debug)]
pub struct StripedGroup {
    /// Its id is that of the group, its length that of the group's data.
    pub(super) block: ExtendedBlock,
    pub(super) stripe: Stripe,
    pub(super) codec: Codec,
    /// What is left. An internal block may have several replicas.
    pub(super) replicas: Vec<InternalReplica>,
}

impl StripedGroup {
    /// Puts one together. The caller has checked that indices are below the width of `stripe`.
    pub(crate) fn new(
        block: ExtendedBlock,
        stripe: Stripe,
        codec: Codec,
        replicas: Vec<InternalReplica>,
    ) -> Self {
        Self {
            block,
            stripe,
            codec,
            replicas,
        }
    }

    /// Bytes of internal block `index`.
    pub(super) fn internal_len(&self, index: usize) -> u64 {
        self.stripe.internal_len(self.block.block.num_bytes, index)
    }

    /// Whether internal block `index` has no data: its bytes are zeros, and no node has it.
    pub(super) fn is_empty(&self, index: usize) -> bool {
        self.internal_len(index) == 0
    }

    /// Whether a replica of internal block `index` is left.
    pub(super) fn has(&self, index: usize) -> bool {
        self.replicas.iter().any(|replica| replica.index == index)
    }

    /// How many internal blocks have to be read. Data blocks without data need not be.
    pub(super) fn sources_needed(&self) -> usize {
        let data = 0..self.stripe.data;
        data.filter(|&index| !self.is_empty(index)).count()
    }

    /// Internal blocks that can be read.
    pub(super) fn left(&self) -> usize {
        let all = 0..self.stripe.width();
        all.filter(|&index| self.has(index) && !self.is_empty(index))
            .count()
    }
}
