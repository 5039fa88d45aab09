//! A file that is being written: its lease, its blocks, its end.

use std::time::Duration;

use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::proto::client as pb;
use hayloft_wire::proto::datatransfer::Checksum;
use hayloft_wire::proto::hdfs::{ChecksumType, DatanodeInfo, ExtendedBlock, LocatedBlock};
use hayloft_wire::proto::namespace::HdfsFileStatus;
use tokio::task::JoinHandle;
use tracing::debug;

use super::block_writer::BlockWriter;
use super::error::FileError;
use super::group_reader::striped;
use super::group_writer::GroupWriter;
use super::{FileClient, Repeat};

/// Half of the time after which another client may take the lease.
const RENEW_EVERY: Duration = Duration::from_secs(30);
/// A NameNode may wait for reports of nodes; it is asked again so often, and twice as long apart
/// each time.
const LOCATE_ATTEMPTS: u32 = 9;
const LOCATE_PAUSE: Duration = Duration::from_millis(400);
const LOCATE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Bit of `AppendRequest.flag`.
const APPEND: u32 = 4;

/// What a new file shall be.
#[derive(Clone, Debug, Default)]
pub(crate) struct CreateFile {
    pub(crate) permission: u32,
    /// Before the umask.
    pub(crate) unmasked: Option<u32>,
    /// Bits: 1 create, 2 overwrite, 4 append, 16 lazy persist, 32 new block, 128 replicate.
    pub(crate) flags: u32,
    pub(crate) create_parent: bool,
    pub(crate) replication: u32,
    pub(crate) block_size: u64,
    /// Each block is on its medium before the next one begins.
    pub(crate) sync_blocks: bool,
    pub(crate) no_local_write: bool,
    pub(crate) ignore_locality: bool,
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
    async fn of(client: &FileClient, wanted: &CreateFile) -> Result<Self, FileError> {
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

/// Blocks of either kind.
enum Blocks {
    Replicated(Box<BlockWriter>),
    Striped(Box<GroupWriter>),
}

/// A file that is being written. Dropped without [`close`](Self::close) it stays open until its
/// lease ends.
pub(crate) struct FileWriter {
    file: OpenFile,
    blocks: Blocks,
    lease: JoinHandle<()>,
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        self.lease.abort();
    }
}

impl FileWriter {
    /// Creates a file.
    ///
    /// # Errors
    /// What the NameNode says.
    pub(crate) async fn create(
        client: FileClient,
        path: &str,
        wanted: &CreateFile,
    ) -> Result<Self, FileError> {
        let request = pb::CreateRequest {
            src: path.to_owned(),
            masked: pb::FsPermission {
                perm: wanted.permission,
            },
            client_name: client.name.clone(),
            create_flag: wanted.flags,
            create_parent: wanted.create_parent,
            replication: wanted.replication,
            block_size: wanted.block_size,
            unmasked: wanted.unmasked.map(|perm| pb::FsPermission { perm }),
            ..pb::CreateRequest::default()
        };
        // Before the file is there, so that a failure leaves none behind.
        let form = Form::of(&client, wanted).await?;
        let answer: pb::CreateResponse = client
            .namenodes
            .call("create", &request, Repeat::OnlyUnsent)
            .await?;
        Self::open_or_end(client, path, answer.fs, form, None).await
    }

    /// Opens a file to write at its end.
    ///
    /// # Errors
    /// What the NameNode says.
    pub(crate) async fn append(client: FileClient, path: &str) -> Result<Self, FileError> {
        let request = pb::AppendRequest {
            src: path.to_owned(),
            client_name: client.name.clone(),
            flag: Some(APPEND),
        };
        let form = Form::of(&client, &CreateFile::default()).await?;
        let answer: pb::AppendResponse = client
            .namenodes
            .call("append", &request, Repeat::OnlyUnsent)
            .await?;
        Self::open_or_end(client, path, answer.stat, form, answer.block).await
    }

    /// Takes over a file that the NameNode has opened; one that cannot be written is ended as it
    /// is, or no client could write it until its lease ends.
    async fn open_or_end(
        client: FileClient,
        path: &str,
        status: Option<HdfsFileStatus>,
        form: Form,
        last: Option<LocatedBlock>,
    ) -> Result<Self, FileError> {
        let file_id = status.as_ref().and_then(|status| status.file_id);
        let end = last.as_ref().map(|last| last.b.clone());
        let error = match Self::open(client.clone(), path, status, form, last) {
            Ok(writer) => return Ok(writer),
            Err(error) => error,
        };
        if let Err(failed) = complete(&client, path, file_id, end).await {
            debug!(error = %failed, path, "a file that is not written on could not be ended");
        }
        Err(error)
    }

    fn open(
        client: FileClient,
        path: &str,
        status: Option<HdfsFileStatus>,
        form: Form,
        last: Option<LocatedBlock>,
    ) -> Result<Self, FileError> {
        let status = status
            .ok_or_else(|| FileError::failed(format_args!("{path} was opened without status")))?;
        if status.file_encryption_info.is_some() {
            let text = format!("{path} is in an encryption zone, which this node cannot write yet");
            return Err(FileError::NotAllowed(text));
        }
        let file = OpenFile {
            path: path.to_owned(),
            file_id: status.file_id,
            block_size: status.blocksize(),
            replication: usize::try_from(status.block_replication()).unwrap_or(1),
            form,
            client,
        };
        if file.block_size == 0 {
            return Err(FileError::failed(format_args!(
                "{path} has blocks of no size"
            )));
        }
        let blocks = match striped(status.ec_policy.as_ref()) {
            Some(policy) => {
                let writer = GroupWriter::new(&file, policy)?;
                Blocks::Striped(Box::new(writer))
            }
            None => Blocks::Replicated(Box::new(BlockWriter::new(&file, last))),
        };
        let namespaces = status.namespace.into_iter().collect();
        Ok(Self {
            lease: keep_lease(file.client.clone(), namespaces),
            blocks,
            file,
        })
    }

    /// Writes `data` behind what was written. Waits while too much is on its way.
    ///
    /// # Errors
    /// Too many nodes failed, or the NameNode refuses; then only [`close`](Self::close) is left.
    pub(crate) async fn write(&mut self, data: &[u8]) -> Result<(), FileError> {
        match &mut self.blocks {
            Blocks::Replicated(writer) => writer.write(&self.file, data).await,
            Blocks::Striped(writer) => writer.write(&self.file, data).await,
        }
    }

    /// Tells nodes that the writer is still there, when it has nothing to write for long.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) async fn keep_alive(&mut self) -> Result<(), FileError> {
        match &mut self.blocks {
            Blocks::Replicated(writer) => writer.keep_alive(&self.file).await,
            Blocks::Striped(writer) => writer.keep_alive(&self.file).await,
        }
    }

    /// Ends the last block and the file.
    ///
    /// # Errors
    /// As [`write`](Self::write), and when the last block has too few replicas for long.
    pub(crate) async fn close(mut self) -> Result<(), FileError> {
        let last = match &mut self.blocks {
            Blocks::Replicated(writer) => writer.finish(&self.file).await?,
            Blocks::Striped(writer) => writer.finish(&self.file).await?,
        };
        let OpenFile { client, path, .. } = &self.file;
        complete(client, path, self.file.file_id, last).await
    }
}

/// Renews the lease until the writer is dropped.
fn keep_lease(client: FileClient, namespaces: Vec<String>) -> JoinHandle<()> {
    let request = pb::RenewLeaseRequest {
        client_name: client.name.clone(),
        namespaces,
    };
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let renewed = client.namenodes.call::<_, pb::RenewLeaseResponse>(
                "renewLease",
                &request,
                Repeat::Harmless,
            );
            if let Err(error) = renewed.await {
                debug!(%error, "a lease could not be renewed, it is tried again");
            }
        }
    })
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
async fn complete(
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
