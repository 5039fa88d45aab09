//! A file that is being written: its lease, its blocks, its end.

use std::time::Duration;

use hayloft_wire::proto::client as pb;
use hayloft_wire::proto::file_status::{FsPermission, HdfsFileStatus};
use hayloft_wire::proto::hdfs::LocatedBlock;
use tokio::task::JoinHandle;
use tracing::debug;

use super::block_writer::BlockWriter;
use super::calls_for_open_file::{CreateFile, Form, OpenFile, complete};
use super::error::FileError;
use super::group_reader::striped;
use super::group_writer::GroupWriter;
use super::{FileClient, Repeat};

/// Half of the time after which another client may take the lease.
const RENEW_EVERY: Duration = Duration::from_secs(30);
/// Bit of `AppendRequest.flag`.
const APPEND: u32 = 4;

/// Blocks of either kind.
enum Blocks {
    Replicated(Box<BlockWriter>),
    Striped(Box<GroupWriter>),
}

/// A file that is being written. Dropped without [`close`](Self::close) it stays open until its
/// lease ends.
pub struct FileWriter {
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
    pub async fn create(
        client: FileClient,
        path: &str,
        wanted: &CreateFile,
    ) -> Result<Self, FileError> {
        let request = pb::CreateRequest {
            src: path.to_owned(),
            masked: FsPermission {
                perm: wanted.permission,
            },
            client_name: client.name.clone(),
            create_flag: wanted.flags,
            create_parent: wanted.create_parent,
            replication: wanted.replication,
            block_size: wanted.block_size,
            unmasked: wanted.unmasked.map(|perm| FsPermission { perm }),
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
    pub async fn append(client: FileClient, path: &str) -> Result<Self, FileError> {
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
    pub async fn write(&mut self, data: &[u8]) -> Result<(), FileError> {
        match &mut self.blocks {
            Blocks::Replicated(writer) => writer.write(&self.file, data).await,
            Blocks::Striped(writer) => writer.write(&self.file, data).await,
        }
    }

    /// Tells nodes that the writer is still there, when it has nothing to write for long.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn keep_alive(&mut self) -> Result<(), FileError> {
        match &mut self.blocks {
            Blocks::Replicated(writer) => writer.keep_alive(&self.file).await,
            Blocks::Striped(writer) => writer.keep_alive(&self.file).await,
        }
    }

    /// Ends the last block and the file.
    ///
    /// # Errors
    /// As [`write`](Self::write), and when the last block has too few replicas for long.
    pub async fn close(mut self) -> Result<(), FileError> {
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
