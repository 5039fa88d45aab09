//! One checksum for a file, from those that nodes compute of its blocks.

use hayloft_wire::checksum::Md5OfCrcs;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::{
    BlockChecksumOptions, BlockChecksumType, ChecksumType, DatanodeInfos, ErasureCodingPolicy,
    LocatedBlock,
};
use hayloft_wire::transfer;
use tracing::debug;

use super::FileClient;
use super::error::FileError;
use super::group_reader::striped;
use super::locate_blocks::locate;
use super::node_link::{NodeLink, NodeTrouble};

/// Bytes of an MD5.
const MD5_BYTES: usize = 16;
/// Size of the first buffer in which Apache's client collects the MD5s; it doubles, and its unused
/// end is digested as well.
const JAVA_BUFFER_MIN: usize = 32;

/// MD5 of the MD5s of the CRCs of each block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChecksum {
    /// Bytes of a chunk.
    bytes_per_crc: u32,
    /// Of a block; 0 where there is at most one.
    crc_per_block: u64,
    /// `None` without a block.
    kind: Option<ChecksumType>,
    md5: [u8; MD5_BYTES],
}

impl FileChecksum {
    /// The bytes that Java writes of it, without its name.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.bytes_per_crc.to_be_bytes().to_vec();
        out.extend(self.crc_per_block.to_be_bytes());
        out.extend(self.md5);
        out
    }

    /// Java's name of its algorithm.
    #[must_use]
    pub fn algorithm(&self) -> String {
        let kind = match self.kind {
            Some(ChecksumType::Crc32c) => "CRC32C",
            Some(ChecksumType::Null) => "NULL",
            Some(ChecksumType::Crc32) | None => "CRC32",
        };
        let (blocks, chunk) = (self.crc_per_block, self.bytes_per_crc);
        format!("MD5-of-{blocks}MD5-of-{chunk}{kind}")
    }

    /// Asks the nodes of a whole file for it.
    ///
    /// # Errors
    /// It is being written, or a block has no node that can tell.
    pub async fn of(client: &FileClient, path: &str) -> Result<Self, FileError> {
        let located = locate(client, path, 0, i64::MAX.cast_unsigned()).await?;
        if located.under_construction {
            let text = format!("Fail to get checksum, since file {path} is under construction.");
            return Err(FileError::Failed(text));
        }
        let mut sums = Sums::default();
        for block in &located.blocks {
            let policy = striped(located.ec_policy.as_ref());
            let answer = block_checksum(client, path, block, policy).await?;
            sums.add(path, &answer)?;
        }
        Ok(sums.finish())
    }
}

/// Checksums of blocks as they come.
#[derive(Default)]
struct Sums {
    md5s: Vec<u8>,
    first: Option<(u32, u64, ChecksumType)>,
}

impl Sums {
    fn add(&mut self, path: &str, answer: &pb::OpBlockChecksumResponse) -> Result<(), FileError> {
        if answer.block_checksum.len() != MD5_BYTES {
            let len = answer.block_checksum.len();
            return Err(FileError::failed(format_args!(
                "a block of {path} has a checksum of {len} bytes"
            )));
        }
        let kind = answer.crc_type();
        let seen = (answer.bytes_per_crc, answer.crc_per_block, kind);
        match self.first {
            None => self.first = Some(seen),
            Some((chunk, ..)) if chunk != seen.0 => {
                return Err(FileError::failed(format_args!(
                    "Byte-per-checksum not matched: bpc={} but bytesPerCRC={chunk}",
                    seen.0
                )));
            }
            Some((_, _, of_first)) if of_first != kind => {
                return Err(FileError::failed(format_args!(
                    "blocks of {path} have checksums of different kinds"
                )));
            }
            Some(_) => {}
        }
        self.md5s.extend_from_slice(&answer.block_checksum);
        Ok(())
    }

    fn finish(mut self) -> FileChecksum {
        let blocks = self.md5s.len() / MD5_BYTES;
        let size = self.md5s.len().next_power_of_two().max(JAVA_BUFFER_MIN);
        self.md5s.resize(size, 0);
        let mut md5 = Md5OfCrcs::default();
        md5.update(&self.md5s);
        let (bytes_per_crc, crc_per_block) = self.first.map_or((0, 0), |(c, b, _)| (c, b));
        FileChecksum {
            bytes_per_crc,
            crc_per_block: if blocks > 1 { crc_per_block } else { 0 },
            kind: self.first.map(|(_, _, kind)| kind),
            md5: md5.finish(),
        }
    }
}

/// Asks the nodes of a block, one after the other.
async fn block_checksum(
    client: &FileClient,
    path: &str,
    located: &LocatedBlock,
    policy: Option<&ErasureCodingPolicy>,
) -> Result<pb::OpBlockChecksumResponse, FileError> {
    let block = ExtendedBlock::try_from(&located.b).map_err(FileError::failed)?;
    let mut why = None;
    for node in &located.locs {
        let asked = async {
            let token = &located.block_token;
            let mut link = NodeLink::connect(client, &node.id, 0, token).await?;
            match policy {
                None => link.checksum(&of_block(&block, located)).await,
                Some(policy) => link.checksum(&of_group(&block, located, policy)).await,
            }
        };
        match asked.await {
            Ok(answer) => return Ok(answer),
            Err(trouble) => {
                debug!(%trouble, %block, "no checksum, another node is asked");
                why = Some(trouble);
            }
        }
    }
    let why = why.map_or_else(
        || "no node has it".to_owned(),
        |t: NodeTrouble| t.to_string(),
    );
    Err(FileError::failed(format_args!(
        "Fail to get block checksum for {block} of {path}: {why}"
    )))
}

fn options() -> BlockChecksumOptions {
    BlockChecksumOptions {
        block_checksum_type: Some(BlockChecksumType::Md5crc.into()),
        stripe_length: None,
    }
}

fn of_block(block: &ExtendedBlock, located: &LocatedBlock) -> pb::OpBlockChecksum {
    pb::OpBlockChecksum {
        header: transfer::base_header(block, located.block_token.clone()),
        block_checksum_options: Some(options()),
    }
}

fn of_group(
    block: &ExtendedBlock,
    located: &LocatedBlock,
    policy: &ErasureCodingPolicy,
) -> pb::OpBlockGroupChecksum {
    let indices = located.block_indices.clone().unwrap_or_default();
    pb::OpBlockGroupChecksum {
        header: transfer::base_header(block, located.block_token.clone()),
        datanodes: DatanodeInfos {
            datanodes: located.locs.clone(),
        },
        block_tokens: located.block_tokens.clone(),
        ec_policy: policy.clone(),
        block_indices: indices.iter().map(|&index| index.into()).collect(),
        requested_num_bytes: block.block.num_bytes,
        block_checksum_options: Some(options()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_bytes_has_apache_s_checksum() {
        let empty = Sums::default().finish();
        assert_eq!(empty.algorithm(), "MD5-of-0MD5-of-0CRC32");
        let hex: String = empty.bytes().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "00000000000000000000000070bc8f4b72a86921468bf8e8441dce51"
        );
    }

    #[test]
    fn blocks_that_do_not_fit_together_have_none() {
        let answer = |chunk, kind: ChecksumType, len| pb::OpBlockChecksumResponse {
            bytes_per_crc: chunk,
            crc_per_block: 7,
            block_checksum: vec![1; len].into(),
            crc_type: Some(kind.into()),
            ..pb::OpBlockChecksumResponse::default()
        };
        let mut sums = Sums::default();
        sums.add("/f", &answer(512, ChecksumType::Crc32c, 16))
            .expect("the first");
        for (chunk, kind, len) in [
            (512, ChecksumType::Crc32, 16),
            (4096, ChecksumType::Crc32c, 16),
            (512, ChecksumType::Crc32c, 4),
        ] {
            sums.add("/f", &answer(chunk, kind, len))
                .expect_err("another kind");
        }
        sums.add("/f", &answer(512, ChecksumType::Crc32c, 16))
            .expect("as the first");
        assert_eq!(sums.finish().algorithm(), "MD5-of-7MD5-of-512CRC32C");
    }
}
