//! BLOCK_GROUP_CHECKSUM: one checksum for a striped block group, from those of its data blocks.

use std::time::Duration;

use bytes::Bytes;
use hayloft_wire::checksum::{ChecksumKind, CompositeCrc, Md5OfCrcs};
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::{BlockChecksumOptions, BlockChecksumType, ChecksumType};
use hayloft_wire::transfer::{self, BlockOpResponse, BlockRequest, Status};

use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::peer;
use crate::xceiver::stats::Activity;

/// Size of the first buffer in which Apache's collects the MD5s; it doubles, and its unused end is
/// digested as well.
const JAVA_BUFFER_MIN: usize = 32;

/// Sizes of a group, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    data_units: u32,
    cell: u64,
}

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
    let shape = shape(message)?;
    let options = message.block_checksum_options.clone().unwrap_or_default();
    let mut parts = Vec::new();
    let mut covered = 0;
    for index in 0..shape.data_units {
        if covered >= message.requested_num_bytes {
            break;
        }
        let len = internal_len(message.requested_num_bytes, shape, index);
        let part = ask(x, group, message, shape, index, len, &options).await?;
        covered += len;
        parts.push(part);
    }
    let first = parts
        .first()
        .ok_or_else(|| XferError::Refused(format!("a checksum of nothing of {group}")))?;
    let crc_type = same_kind(&parts)?;
    let block_checksum = match options.block_checksum_type() {
        BlockChecksumType::Md5crc => md5_of_md5s(&parts),
        BlockChecksumType::CompositeCrc => {
            weave(&parts, ChecksumKind::from(crc_type), shape, covered)?
        }
    };
    Ok(pb::OpBlockChecksumResponse {
        bytes_per_crc: first.bytes_per_crc,
        crc_per_block: first.crc_per_block,
        block_checksum: Bytes::from(block_checksum),
        crc_type: Some(crc_type.into()),
        block_checksum_options: Some(options.clone()),
    })
}

fn shape(message: &pb::OpBlockGroupChecksum) -> Result<Shape, XferError> {
    let policy = &message.ec_policy;
    let named = policy
        .schema
        .as_ref()
        .map(|schema| schema.data_units)
        .zip(policy.cell_size);
    // Policies that ship with Hadoop travel as their id alone.
    let (data_units, cell) = named.or(well_known(policy.id)).ok_or_else(|| {
        XferError::Refused(format!(
            "erasure coding policy {} is not known here and came without its schema",
            policy.id
        ))
    })?;
    if data_units == 0 || data_units > 16 || cell == 0 {
        return Err(XferError::Refused(format!(
            "a block group of {data_units} data units with cells of {cell} bytes"
        )));
    }
    Ok(Shape {
        data_units,
        cell: u64::from(cell),
    })
}

/// Data units and cell size of Hadoop's own policies.
fn well_known(id: u32) -> Option<(u32, u32)> {
    const CELL: u32 = 1 << 20;
    let data_units = match id {
        1 | 3 => 6,
        2 => 3,
        4 => 2,
        5 => 10,
        _ => return None,
    };
    Some((data_units, CELL))
}

/// Bytes of the first `data_len` bytes of a group that lie in its data block `index`.
fn internal_len(data_len: u64, shape: Shape, index: u32) -> u64 {
    let stripe = shape.cell * u64::from(shape.data_units);
    let in_last = data_len % stripe;
    let before = u64::from(index) * shape.cell;
    data_len / stripe * shape.cell + in_last.saturating_sub(before).min(shape.cell)
}

/// Asks the node of one data block for its checksum.
async fn ask(
    x: &Xceivers,
    group: &ExtendedBlock,
    message: &pb::OpBlockGroupChecksum,
    shape: Shape,
    index: u32,
    len: u64,
    options: &BlockChecksumOptions,
) -> Result<pb::OpBlockChecksumResponse, XferError> {
    let missing = |why: &str| {
        XferError::Refused(format!(
            "data block {index} of {group} {why}, and this datanode cannot reconstruct missing \
                blocks for a checksum yet"
        ))
    };
    let at = message
        .block_indices
        .iter()
        .position(|&i| i == index)
        .ok_or_else(|| missing("has no live node"))?;
    let node = message
        .datanodes
        .datanodes
        .get(at)
        .ok_or_else(|| missing("has no live node"))?;
    let mut block = group.clone();
    block.block.id = block.block.id.saturating_add(i64::from(index));
    block.block.num_bytes = len;
    let composite = options.block_checksum_type() == BlockChecksumType::CompositeCrc;
    let options = if composite {
        BlockChecksumOptions {
            block_checksum_type: Some(BlockChecksumType::CompositeCrc.into()),
            stripe_length: Some(shape.cell),
        }
    } else {
        options.clone()
    };
    let request = pb::OpBlockChecksum {
        header: transfer::base_header(
            &block,
            message.block_tokens.get(at).cloned().unwrap_or_default(),
        ),
        block_checksum_options: Some(options),
    };
    let answer = ask_node(x, &node.id, &request)
        .await
        .map_err(|error| missing(&format!("cannot be asked ({error})")))?;
    if answer
        .block_checksum_options
        .as_ref()
        .is_some_and(|o| o.block_checksum_type() == BlockChecksumType::CompositeCrc)
        != composite
    {
        return Err(XferError::protocol(
            node.id.xfer_addr(),
            "another kind of block checksum was answered than was asked for",
        ));
    }
    Ok(answer)
}

async fn ask_node(
    x: &Xceivers,
    node: &hayloft_wire::proto::hdfs::DatanodeId,
    request: &pb::OpBlockChecksum,
) -> Result<pb::OpBlockChecksumResponse, XferError> {
    let settings = x.settings();
    let limit =
        (!settings.group_checksum_timeout.is_zero()).then_some(settings.group_checksum_timeout);
    // A client waits for the whole group: a host that is gone must not take the time that a
    // pipeline would have.
    let connecting = peer::connect(&settings, node, 1);
    let mut conn = tokio::time::timeout(limit.unwrap_or(Duration::MAX), connecting)
        .await
        .map_err(|_| XferError::remote(node.xfer_addr(), "does not take connections"))??;
    conn.set_limits(limit, settings.downstream_write_timeout(1));
    peer::request(&conn, request).await?;
    let response = peer::response(&mut conn).await?;
    peer::expect_success(&node.xfer_addr(), &response)?;
    response
        .checksum_response
        .ok_or_else(|| XferError::protocol(node.xfer_addr(), "success without a checksum"))
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
    shape: Shape,
    len: u64,
) -> Result<Vec<u8>, XferError> {
    let mut cells: Vec<_> = parts
        .iter()
        .map(|part| part.block_checksum.as_chunks::<4>().0.iter())
        .collect();
    let chunk = u32::try_from(shape.cell)
        .map_err(|_| XferError::Refused("a cell of 4 GiB or more".to_owned()))?;
    let mut crc = CompositeCrc::new(kind, chunk, None);
    let mut left = len;
    let mut index = 0;
    while left > 0 {
        let of_block = index % shape.data_units as usize;
        let cell = cells
            .get_mut(of_block)
            .and_then(Iterator::next)
            .ok_or_else(|| {
                XferError::Refused(format!(
                    "data block {of_block} answered with fewer cells than it has"
                ))
            })?;
        let piece = shape.cell.min(left);
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
    fn internal_lengths_add_up() {
        let shape = Shape {
            data_units: 6,
            cell: 1024,
        };
        assert_eq!(internal_len(1, shape, 0), 1);
        assert_eq!(internal_len(1, shape, 1), 0);
        assert_eq!(internal_len(6 * 1024 + 1500, shape, 0), 2048);
        assert_eq!(internal_len(6 * 1024 + 1500, shape, 1), 1024 + 476);
        assert_eq!(internal_len(6 * 1024 + 1500, shape, 2), 1024);
    }

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
            units in 1u32..5,
        ) {
            let shape = Shape { data_units: units, cell: 64 };
            let kind = ChecksumKind::Crc32c;
            let mut sums = vec![Vec::new(); units as usize];
            for (at, cell) in data.chunks(64).enumerate() {
                sums[at % units as usize].extend_from_slice(&kind.crc(cell).to_be_bytes());
            }
            let parts: Vec<_> = sums
                .into_iter()
                .map(|sums| pb::OpBlockChecksumResponse {
                    block_checksum: Bytes::from(sums),
                    ..Default::default()
                })
                .collect();
            let woven = weave(&parts, kind, shape, data.len() as u64).expect("whole");
            prop_assert_eq!(woven, kind.crc(&data).to_be_bytes().to_vec());
            let total: u64 = (0..units).map(|i| internal_len(data.len() as u64, shape, i)).sum();
            prop_assert_eq!(total, data.len() as u64);
        }
    }
}
