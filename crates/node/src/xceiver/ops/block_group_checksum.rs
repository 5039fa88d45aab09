//! BLOCK_GROUP_CHECKSUM: one checksum for a striped block group, from those of its data blocks.
//! That of a data block without a node that answers is computed from what the other blocks decode
//! to.

use std::time::Duration;

use bytes::Bytes;
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::checksum::{ChecksumKind, CompositeCrc, Md5OfCrcs};
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::{
    BlockChecksumOptions, BlockChecksumType, ChecksumType, ErasureCodingPolicy,
};
use hayloft_wire::transfer::{self, BlockOpResponse, BlockRequest, Status};

use crate::security::Access;
use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::connect_to_node::{self, NodeForBlock};
use crate::xceiver::reconstruction::{InternalReplica, StripedGroup, checksum_of_lost};
use crate::xceiver::stats::Activity;
use hayloft_client::stripe::{self, Stripe};

/// Size of the first buffer in which Apache's collects the MD5s; it doubles, and its unused end is
/// digested as well.
const JAVA_BUFFER_MIN: usize = 32;

/// Serves one checksum.
///
/// # Errors
/// The connection is closed; the client asks another node of the group.
pub async fn group_checksum(
    x: &Xceivers,
    conn: &mut Conn,
    request: BlockRequest<pb::OpBlockGroupChecksum>,
) -> Result<AfterOperation, XferError> {
    let BlockRequest { block, message } = request;
    x.wait_ready(&block.pool).await?;
    let _reader = x.stats().enter(Activity::Reader);
    match compute(x, &block, &message).await {
        Ok(checksum) => {
            let response = BlockOpResponse {
                checksum_response: Some(checksum),
                ..BlockOpResponse::success()
            };
            conn.write_message(&response).await?;
            Ok(AfterOperation::Close)
        }
        Err(error) => {
            let text = format!(
                "blockGroupChecksum {block} received exception {}",
                crate::xceiver::ops::read_block::java_text(&error)
            );
            conn.write_message(&BlockOpResponse::error(Status::Error, text))
                .await?;
            Err(error)
        }
    }
}

async fn compute(
    x: &Xceivers,
    group: &ExtendedBlock,
    message: &pb::OpBlockGroupChecksum,
) -> Result<pb::OpBlockChecksumResponse, XferError> {
    let mut request = GroupRequest::new(x, group, message)?;
    let stripe = request.stripe;
    let mut parts = Vec::new();
    let mut covered = 0;
    for index in 0..stripe.data {
        if covered >= message.requested_num_bytes {
            break;
        }
        let len = stripe.internal_len(message.requested_num_bytes, index);
        parts.push(request.part(index, len).await?);
        covered += len;
    }
    let first = parts
        .first()
        .ok_or_else(|| XferError::Refused(format!("a checksum of nothing of {group}")))?;
    let crc_type = same_kind(&parts)?;
    let options = message.block_checksum_options.clone().unwrap_or_default();
    let block_checksum = match options.block_checksum_type() {
        BlockChecksumType::Md5crc => md5_of_md5s(&parts),
        BlockChecksumType::CompositeCrc => {
            weave(&parts, ChecksumKind::from(crc_type), stripe, covered)?
        }
    };
    Ok(pb::OpBlockChecksumResponse {
        bytes_per_crc: first.bytes_per_crc,
        crc_per_block: first.crc_per_block,
        block_checksum: Bytes::from(block_checksum),
        crc_type: Some(crc_type.into()),
        block_checksum_options: Some(options),
    })
}

/// A checksum of a group that is being put together.
struct GroupRequest<'a> {
    x: &'a Xceivers,
    group: &'a ExtendedBlock,
    stripe: Stripe,
    policy: &'a ErasureCodingPolicy,
    /// Internal blocks with their nodes; one whose node gave no answer is taken out.
    replicas: Vec<InternalReplica>,
    /// What is asked of the node of each internal block.
    options: BlockChecksumOptions,
}

impl<'a> GroupRequest<'a> {
    fn new(
        x: &'a Xceivers,
        group: &'a ExtendedBlock,
        message: &'a pb::OpBlockGroupChecksum,
    ) -> Result<Self, XferError> {
        let policy = &message.ec_policy;
        let stripe = Stripe::of(policy).ok_or_else(|| {
            XferError::Refused(format!(
                "erasure coding policy {} is not known here and came without its schema",
                policy.id
            ))
        })?;
        let nodes = message.datanodes.datanodes.iter();
        let replicas = nodes
            .zip(&message.block_indices)
            .enumerate()
            .map(|(at, (node, &index))| InternalReplica {
                index: usize::try_from(index).unwrap_or(usize::MAX),
                node: node.clone(),
                token: message.block_tokens.get(at).cloned().unwrap_or_default(),
            })
            .filter(|replica| replica.index < stripe.width());
        let asked = message.block_checksum_options.clone().unwrap_or_default();
        let options = match asked.block_checksum_type() {
            BlockChecksumType::CompositeCrc => BlockChecksumOptions {
                block_checksum_type: Some(BlockChecksumType::CompositeCrc.into()),
                stripe_length: Some(stripe.cell),
            },
            BlockChecksumType::Md5crc => asked,
        };
        Ok(Self {
            x,
            group,
            stripe,
            policy,
            replicas: replicas.collect(),
            options,
        })
    }

    /// The checksum of the first `len` bytes of data block `index`: its node's, or made up from the
    /// other blocks.
    async fn part(
        &mut self,
        index: usize,
        len: u64,
    ) -> Result<pb::OpBlockChecksumResponse, XferError> {
        let mut why = "has no live node".to_owned();
        while let Some(at) = self.replicas.iter().position(|r| r.index == index) {
            match self.ask(&self.replicas[at], len).await {
                Ok(part) => return Ok(part),
                Err(error) => {
                    why = format!("cannot be asked for ({error})");
                    self.replicas.remove(at);
                }
            }
        }
        tracing::info!(group = %self.group, "data block {index} {why}: its checksum is made up \
            from the other blocks");
        let made_up = self.make_up(index, len).await;
        made_up.map_err(|error| {
            XferError::Refused(format!(
                "data block {index} of {} {why}, and it cannot be reconstructed: {error}",
                self.group
            ))
        })
    }

    /// Asks a node for the checksum of its internal block.
    async fn ask(
        &self,
        replica: &InternalReplica,
        len: u64,
    ) -> Result<pb::OpBlockChecksumResponse, XferError> {
        let mut block = self.stripe.internal_block(self.group, replica.index);
        block.block.num_bytes = len;
        let request = pb::OpBlockChecksum {
            header: transfer::base_header(&block, replica.token.clone()),
            block_checksum_options: Some(self.options.clone()),
        };
        let to = NodeForBlock {
            node: &replica.node.id,
            pool: &block.pool,
            token: &replica.token,
        };
        let answer = ask_node(self.x, to, &request).await?;
        let answered = answer.block_checksum_options.as_ref();
        let composite = |options: &BlockChecksumOptions| {
            options.block_checksum_type() == BlockChecksumType::CompositeCrc
        };
        if answered.is_some_and(composite) != composite(&self.options) {
            return Err(XferError::protocol(
                replica.node.id.xfer_addr(),
                "another kind of block checksum was answered than was asked for",
            ));
        }
        Ok(answer)
    }

    /// Whether the client may read an internal block: its request's token is for another one.
    fn may_read(&self, replica: &InternalReplica) -> bool {
        let block = self.stripe.internal_block(self.group, replica.index);
        let tokens = self.x.link().block_tokens();
        let read = Access::to(AccessMode::Read);
        tokens.check(Some(&replica.token), &block, &read).is_ok()
    }

    /// Decodes data block `index` from the others that the client may read, for its checksum only.
    async fn make_up(
        &self,
        index: usize,
        len: u64,
    ) -> Result<pb::OpBlockChecksumResponse, XferError> {
        let codec = stripe::codec(self.policy).ok_or_else(|| {
            let policy = self.policy.id;
            XferError::Refused(format!("the code of policy {policy} is not known here"))
        })?;
        let mut replicas = self.replicas.clone();
        replicas.retain(|replica| self.may_read(replica));
        let group = StripedGroup::new(self.group.clone(), self.stripe, codec, replicas);
        let lost = checksum_of_lost(self.x, &group, index, len, &self.options).await?;
        Ok(pb::OpBlockChecksumResponse {
            bytes_per_crc: lost.checksum.bytes_per_checksum(),
            crc_per_block: lost.chunks,
            block_checksum: lost.block_checksum.into(),
            crc_type: Some(ChecksumType::from(lost.checksum.kind()).into()),
            block_checksum_options: Some(self.options.clone()),
        })
    }
}

async fn ask_node(
    x: &Xceivers,
    to: NodeForBlock<'_>,
    request: &pb::OpBlockChecksum,
) -> Result<pb::OpBlockChecksumResponse, XferError> {
    let settings = x.settings();
    let limit =
        (!settings.group_checksum_timeout.is_zero()).then_some(settings.group_checksum_timeout);
    // A client waits for the whole group: a host that is gone must not take the time that a
    // pipeline would have.
    let connecting = connect_to_node::link(x, &settings, to, limit);
    let mut link = tokio::time::timeout(limit.unwrap_or(Duration::MAX), connecting)
        .await
        .map_err(|_| XferError::remote(to.node.xfer_addr(), "does not take connections"))??;
    Ok(link.checksum(request).await?)
}

/// All data blocks have to be checksummed alike.
fn same_kind(parts: &[pb::OpBlockChecksumResponse]) -> Result<ChecksumType, XferError> {
    let first = &parts[0];
    for part in parts {
        if part.bytes_per_crc != first.bytes_per_crc || part.crc_type() != first.crc_type() {
            return Err(XferError::Refused(format!(
                "the data blocks of a group differ in their checksums: {:?} of {} bytes and {:?} \
                    of {} bytes",
                first.crc_type(),
                first.bytes_per_crc,
                part.crc_type(),
                part.bytes_per_crc
            )));
        }
    }
    Ok(first.crc_type())
}

/// MD5 of the blocks' MD5s, followed by the zeros at the end of the buffer in which Apache's
/// collects them. Answers of both have to be equal.
fn md5_of_md5s(parts: &[pb::OpBlockChecksumResponse]) -> Vec<u8> {
    let mut bytes: Vec<u8> = parts
        .iter()
        .flat_map(|part| part.block_checksum.iter().copied())
        .collect();
    bytes.resize(bytes.len().next_power_of_two().max(JAVA_BUFFER_MIN), 0);
    let mut md5 = Md5OfCrcs::default();
    md5.update(&bytes);
    md5.finish().to_vec()
}

/// Joins the CRCs of the cells in the order of the file.
fn weave(
    parts: &[pb::OpBlockChecksumResponse],
    kind: ChecksumKind,
    stripe: Stripe,
    len: u64,
) -> Result<Vec<u8>, XferError> {
    let mut cells: Vec<_> = parts
        .iter()
        .map(|part| part.block_checksum.as_chunks::<4>().0.iter())
        .collect();
    let chunk = u32::try_from(stripe.cell)
        .map_err(|_| XferError::Refused("a cell of 4 GiB or more".to_owned()))?;
    let mut crc = CompositeCrc::new(kind, chunk, None);
    let mut left = len;
    let mut index = 0;
    while left > 0 {
        let of_block = index % stripe.data;
        let cell = cells
            .get_mut(of_block)
            .and_then(Iterator::next)
            .ok_or_else(|| {
                XferError::Refused(format!(
                    "data block {of_block} answered with fewer cells than it has"
                ))
            })?;
        let piece = stripe.cell.min(left);
        crc.update(u32::from_be_bytes(*cell), piece)
            .map_err(|e| XferError::Refused(e.to_string()))?;
        left -= piece;
        index += 1;
    }
    Ok(crc.finish())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn md5s_are_padded_like_javas_buffer() {
        let part = |byte| pb::OpBlockChecksumResponse {
            block_checksum: Bytes::from(vec![byte; 16]),
            ..Default::default()
        };
        let mut expected = Md5OfCrcs::default();
        expected.update(&[&[1_u8; 16][..], &[2; 16], &[3; 16], &[0; 16]].concat());
        assert_eq!(md5_of_md5s(&[part(1), part(2), part(3)]), expected.finish());
    }

    proptest! {
        #[test]
        fn woven_cells_are_the_crc_of_the_file(
            data in prop::collection::vec(any::<u8>(), 1..2000),
            units in 1usize..5,
        ) {
            let stripe = Stripe { data: units, parity: 1, cell: 64 };
            let kind = ChecksumKind::Crc32c;
            let mut sums = vec![Vec::new(); units];
            for (at, cell) in data.chunks(64).enumerate() {
                sums[at % units].extend_from_slice(&kind.crc(cell).to_be_bytes());
            }
            let parts: Vec<_> = sums
                .into_iter()
                .map(|sums| pb::OpBlockChecksumResponse {
                    block_checksum: Bytes::from(sums),
                    ..Default::default()
                })
                .collect();
            let woven = weave(&parts, kind, stripe, data.len() as u64).expect("whole");
            prop_assert_eq!(woven, kind.crc(&data).to_be_bytes().to_vec());
        }
    }
}
