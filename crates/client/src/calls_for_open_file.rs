//! A file that is open for writing, as its NameNode knows it: what its blocks have in common, and
//! the calls that give it blocks and end it.

use std::time::Duration;

use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::proto::client as pb;
use hayloft_wire::proto::datatransfer::Checksum;
use hayloft_wire::proto::hdfs::{ChecksumType, DatanodeInfo, ExtendedBlock, LocatedBlock};

use super::error::FileError;
use super::{FileClient, Repeat};

/// A NameNode may wait for reports of nodes; it is asked again so often, and twice as long apart
/// each time.
const LOCATE_ATTEMPTS: u32 = 9;
const LOCATE_PAUSE: Duration = Duration::from_millis(400);
const LOCATE_PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a new file shall be.
#[derive(Clone, Debug, Default)]
pub struct CreateFile {
    /// Bits of its permission.
    pub permission: u32,
    /// Bits of its permission before the umask.
    pub unmasked: Option<u32>,
    /// Bits: 1 create, 2 overwrite, 4 append, 16 lazy persist, 32 new block, 128 replicate.
    pub flags: u32,
    /// Whether directories above it are created.
    pub create_parent: bool,
    /// How many replicas each block shall have.
    pub replication: u32,
    /// Bytes of a block.
    pub block_size: u64,
    /// Each block is on its medium before the next one begins.
    pub sync_blocks: bool,
    /// The NameNode shall choose other nodes than the writer's own.
    pub no_local_write: bool,
    /// The NameNode shall not prefer nodes near the writer.
    pub ignore_locality: bool,
}

/// What blocks of an open file have in common.
pub(super) struct OpenFile {
    pub(super) client: FileClient,
    pub(super) path: String,
    pub(super) file_id: Option<u64>,
    pub(super) block_size: u64,
    pub(super) replication: usize,
    pub(super) form: Form,
}

/// How a file is written, whatever its NameNode says of it.
pub(super) struct Form {
    pub(super) checksum: DataChecksum,
    /// Bytes of a packet with all that belongs to it.
    pub(super) packet_bytes: usize,
    pub(super) sync_blocks: bool,
    place_flags: Vec<i32>,
}

impl Form {
    /// What is wanted, and what the cluster takes where nothing is said.
    pub(super) async fn of(client: &FileClient, wanted: &CreateFile) -> Result<Self, FileError> {
        let defaults = client.namenodes.defaults().await?;
        let kind = match defaults.checksum_type.map(ChecksumType::try_from) {
            Some(Ok(kind)) => kind,
            _ => ChecksumType::Crc32,
        };
        let checksum = DataChecksum::try_from(&Checksum {
            r#type: kind.into(),
            bytes_per_checksum: defaults.bytes_per_checksum,
        });
        let mut place_flags: Vec<i32> = Vec::new();
        if wanted.no_local_write {
            place_flags.push(pb::AddBlockFlag::NoLocalWrite.into());
        }
        if wanted.ignore_locality {
            place_flags.push(pb::AddBlockFlag::IgnoreClientLocality.into());
        }
        Ok(Self {
            checksum: checksum.map_err(FileError::failed)?,
            packet_bytes: usize::try_from(defaults.write_packet_size).unwrap_or(0),
            sync_blocks: wanted.sync_blocks,
            place_flags,
        })
    }
}

impl OpenFile {
    /// A new block behind `previous`, on other nodes than `excluded`.
    pub(super) async fn add_block(
        &self,
        previous: Option<ExtendedBlock>,
        excluded: &[DatanodeInfo],
    ) -> Result<LocatedBlock, FileError> {
        let request = pb::AddBlockRequest {
            src: self.path.clone(),
            client_name: self.client.name.clone(),
            previous,
            exclude_nodes: excluded.to_vec(),
            file_id: self.file_id,
            favored_nodes: Vec::new(),
            flags: self.form.place_flags.clone(),
        };
        let mut pause = LOCATE_PAUSE;
        let mut attempt = 1;
        loop {
            let answer = self
                .client
                .namenodes
                .call::<_, pb::AddBlockResponse>("addBlock", &request, Repeat::Harmless)
                .await;
            match answer {
                Ok(answer) => return Ok(answer.block),
                Err(FileError::Remote { class, .. })
                    if attempt < LOCATE_ATTEMPTS
                        && class.ends_with(".NotReplicatedYetException") =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LOCATE_PAUSE_MAX);
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives a block up that no node has.
    pub(super) async fn abandon(&self, block: &ExtendedBlock) -> Result<(), FileError> {
        let request = pb::AbandonBlockRequest {
            b: block.clone(),
            src: self.path.clone(),
            holder: self.client.name.clone(),
            file_id: self.file_id,
        };
        let _: pb::AbandonBlockResponse = self
            .client
            .namenodes
            .call("abandonBlock", &request, Repeat::Harmless)
            .await?;
        Ok(())
    }

    /// A new generation stamp for a pipeline that is set up anew.
    pub(super) async fn new_stamp(&self, block: &ExtendedBlock) -> Result<LocatedBlock, FileError> {
        let request = pb::UpdateBlockForPipelineRequest {
            block: block.clone(),
            client_name: self.client.name.clone(),
        };
        let answer: pb::UpdateBlockForPipelineResponse = self
            .client
            .namenodes
            .call("updateBlockForPipeline", &request, Repeat::Harmless)
            .await?;
        Ok(answer.block)
    }
}

/// Ends a file behind its last block, once the NameNode knows enough replicas of that.
pub(super) async fn complete(
    client: &FileClient,
    path: &str,
    file_id: Option<u64>,
    last: Option<ExtendedBlock>,
) -> Result<(), FileError> {
    let request = pb::CompleteRequest {
        src: path.to_owned(),
        client_name: client.name.clone(),
        last,
        file_id,
    };
    let mut pause = LOCATE_PAUSE;
    for _ in 0..LOCATE_ATTEMPTS {
        let answer: pb::CompleteResponse = client
            .namenodes
            .call("complete", &request, Repeat::Harmless)
            .await?;
        if answer.result {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOCATE_PAUSE_MAX);
    }
    Err(FileError::failed(format_args!(
        "Unable to close file because the last block of {path} does not have enough number of \
         replicas."
    )))
}
