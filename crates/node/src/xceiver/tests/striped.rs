//! A striped group spread over nodes, for the tests of what is done with its lost blocks.

use bytes::Bytes;
use hayloft_coder::Coder;
use hayloft_wire::ids::{Block, ExtendedBlock};
use hayloft_wire::proto::hdfs::{
    BlockEcReconstructionInfo, DatanodeInfo, DatanodeInfos, EcSchema, ErasureCodingPolicy,
    StorageType, StorageTypes, StorageUuids,
};

use super::client::{Pipeline, read};
use super::node::Node;
use super::{pattern, pool};
use hayloft_client::stripe::{self, Stripe};

/// Generation stamp of every group.
const STAMP: u64 = 1001;

/// A group with the bytes of all its internal blocks.
pub struct Group {
    pub block: ExtendedBlock,
    pub policy: ErasureCodingPolicy,
    pub stripe: Stripe,
    /// As long as they are; empty ones are stored nowhere.
    pub internal: Vec<Vec<u8>>,
}

/// A policy with small cells.
pub fn policy(codec: &str, data: u32, parity: u32, cell: u32) -> ErasureCodingPolicy {
    ErasureCodingPolicy {
        id: 70,
        schema: Some(EcSchema {
            codec_name: codec.to_owned(),
            data_units: data,
            parity_units: parity,
            ..EcSchema::default()
        }),
        cell_size: Some(cell),
        ..ErasureCodingPolicy::default()
    }
}

impl Group {
    /// A group with this id, of `len` data bytes.
    pub fn new(id: i64, policy: ErasureCodingPolicy, len: usize) -> Self {
        let stripe = Stripe::of(&policy).expect("possible");
        let codec = stripe::codec(&policy).expect("known");
        let coder = Coder::new(codec, stripe.data, stripe.parity).expect("possible");
        let cell = usize::try_from(stripe.cell).expect("small");
        let mut data = vec![Vec::new(); stripe.data];
        for (at, bytes) in pattern(len).chunks(cell).enumerate() {
            data[at % stripe.data].extend_from_slice(bytes);
        }
        let longest = data[0].len();
        let padded: Vec<Vec<u8>> = data
            .iter()
            .map(|unit| {
                let mut unit = unit.clone();
                unit.resize(longest, 0);
                unit
            })
            .collect();
        let mut parity = vec![vec![0; longest]; stripe.parity];
        let inputs: Vec<&[u8]> = padded.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        coder.encode(&inputs, &mut outputs).expect("fits");
        data.extend(parity);
        let block = ExtendedBlock::new(pool(), Block::new(id, STAMP, len as u64));
        Self {
            block,
            policy,
            stripe,
            internal: data,
        }
    }

    pub fn internal_block(&self, index: usize) -> ExtendedBlock {
        self.stripe.internal_block(&self.block, index)
    }

    /// Stores internal block `index` at `node`.
    pub async fn store(&self, index: usize, node: &Node) {
        let bytes = &self.internal[index];
        if !bytes.is_empty() {
            let id = self.internal_block(index).block.id;
            let mut pipeline = Pipeline::create(id, STAMP, &[node]).await;
            pipeline.write(bytes, 65_024, 1).await;
            pipeline.close(1).await;
        }
    }

    /// The NameNode's order to rebuild what is neither among `sources` nor `excluded`, at
    /// `targets`.
    pub fn order(
        &self,
        sources: &[(usize, DatanodeInfo)],
        targets: &[DatanodeInfo],
        excluded: &[u8],
    ) -> BlockEcReconstructionInfo {
        let with_data = |(index, _): &&(usize, DatanodeInfo)| !self.internal[*index].is_empty();
        let sources: Vec<_> = sources.iter().filter(with_data).collect();
        let index = |index: usize| u8::try_from(index).expect("few");
        BlockEcReconstructionInfo {
            block: (&self.block).into(),
            source_dn_infos: infos(sources.iter().map(|(_, node)| node.clone())),
            target_dn_infos: infos(targets.iter().cloned()),
            target_storage_uuids: StorageUuids {
                storage_uuids: vec![String::new(); targets.len()],
            },
            target_storage_types: StorageTypes {
                storage_types: vec![StorageType::Disk.into(); targets.len()],
            },
            live_block_indices: sources.iter().map(|&&(i, _)| index(i)).collect(),
            ec_policy: self.policy.clone(),
            exclude_reconstructed_indices: Some(Bytes::copy_from_slice(excluded)),
        }
    }

    /// Waits until `node` has internal block `index`, and compares.
    pub async fn check(&self, index: usize, node: &Node) {
        let block = self.internal_block(index);
        let bytes = &self.internal[index];
        node.until_received(block.block.id, bytes.len() as u64)
            .await;
        let found = read(node, &block, 0, bytes.len() as u64).await;
        let found = found.expect("it can be read");
        assert!(found == *bytes, "internal block {index} of {}", self.block);
    }
}

pub fn infos(nodes: impl Iterator<Item = DatanodeInfo>) -> DatanodeInfos {
    DatanodeInfos {
        datanodes: nodes.collect(),
    }
}
