//! Where the blocks of a file are, and how long it is, also while another client writes it.

use std::time::Duration;

use hayloft_rpc::{CLIENT_DATANODE_PROTOCOL, RpcClient, RpcError};
use hayloft_wire::ids;
use hayloft_wire::proto::client::{
    GetBlockLocationsRequest, GetBlockLocationsResponse, LocatedBlocks, ReportBadReplicasRequest,
    ReportBadReplicasResponse,
};
use hayloft_wire::proto::clientdatanode::{
    GetReplicaVisibleLengthRequest, GetReplicaVisibleLengthResponse,
};
use hayloft_wire::proto::hdfs::{DatanodeId, LocatedBlock};
use tracing::debug;

use super::error::FileError;
use super::node_link::Target;
use super::{FileClient, Repeat};

/// Bytes whose blocks are asked for at a time: ten blocks of the usual size, as Java clients do.
const AHEAD_BYTES: u64 = 10 * (128 << 20);
/// The length of a block whose nodes the NameNode does not know yet is asked for so often, and so
/// far apart.
const LENGTH_ATTEMPTS: u32 = 4;
const LENGTH_PAUSE: Duration = Duration::from_secs(4);

/// Blocks of a part of a file.
#[derive(Clone, Debug)]
pub(super) struct FileBlocks {
    pub(super) located: LocatedBlocks,
    /// The block that is being written, with the bytes of it that can be read.
    pub(super) tail: Option<LocatedBlock>,
    /// Bytes that can be read of the file.
    pub(super) length: u64,
}

impl FileBlocks {
    /// Of the part that begins at `offset`.
    ///
    /// # Errors
    /// There is no such file, or the caller may not read it, or nodes do not answer.
    pub(super) async fn find(
        client: &FileClient,
        path: &str,
        offset: u64,
    ) -> Result<Self, FileError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let located = locate(client, path, offset, AHEAD_BYTES).await?;
            let open = !located.is_last_block_complete;
            let Some(mut tail) = located.last_block.clone().filter(|_| open) else {
                let length = located.file_length;
                return Ok(Self {
                    located,
                    tail: None,
                    length,
                });
            };
            let readable = if tail.locs.is_empty() {
                // Nodes have yet to report it, or there is nothing in it.
                (tail.b.num_bytes() == 0).then_some(0)
            } else {
                Some(visible_length(client, &tail).await?)
            };
            if let Some(readable) = readable {
                tail.b.num_bytes = Some(readable);
                tail.offset = located.file_length;
                let length = located.file_length.checked_add(readable);
                return Ok(Self {
                    length: length.unwrap_or(located.file_length),
                    tail: Some(tail),
                    located,
                });
            }
            if attempt == LENGTH_ATTEMPTS {
                let text = "Could not obtain the last block locations.";
                return Err(FileError::failed(text));
            }
            tokio::time::sleep(LENGTH_PAUSE).await;
        }
    }

    /// The block that holds the byte at `at`, if it is known.
    pub(super) fn block_at(&self, at: u64) -> Option<&LocatedBlock> {
        let holds = |block: &&LocatedBlock| {
            at.checked_sub(block.offset)
                .is_some_and(|within| within < block.b.num_bytes())
        };
        if at >= self.located.file_length {
            return self.tail.as_ref().filter(holds);
        }
        self.located.blocks.iter().find(holds)
    }
}

/// Asks the NameNode for the blocks of a range.
pub(super) async fn locate(
    client: &FileClient,
    path: &str,
    offset: u64,
    length: u64,
) -> Result<LocatedBlocks, FileError> {
    let request = GetBlockLocationsRequest {
        src: path.to_owned(),
        offset,
        length,
    };
    let answer: GetBlockLocationsResponse = client
        .namenodes
        .call("getBlockLocations", &request, Repeat::Harmless)
        .await?;
    let located = answer
        .locations
        .ok_or_else(|| FileError::NotFound(format!("File does not exist: {path}")))?;
    if located.file_encryption_info.is_some() {
        let text = format!("{path} is in an encryption zone, which this node cannot read yet");
        return Err(FileError::NotAllowed(text));
    }
    Ok(located)
}

/// Tells the NameNode of a corrupt replica. That it hears it is not needed to read on.
pub(super) async fn report_bad(client: &FileClient, block: &ids::ExtendedBlock, target: Target) {
    // Nothing but this replica: lists that are longer than `locs` a NameNode does not take.
    let bad = LocatedBlock {
        b: block.into(),
        locs: vec![target.node],
        storage_types: vec![target.storage_type],
        storage_ids: vec![target.storage_id],
        ..LocatedBlock::default()
    };
    let request = ReportBadReplicasRequest { blocks: vec![bad] };
    let report = client.namenodes.call::<_, ReportBadReplicasResponse>(
        "reportBadBlocks",
        &request,
        Repeat::Harmless,
    );
    if let Err(error) = report.await {
        debug!(%error, %block, "a corrupt replica could not be reported");
    }
}

/// Bytes that can be read of a block that is being written.
async fn visible_length(client: &FileClient, block: &LocatedBlock) -> Result<u64, FileError> {
    let mut unknown = 0;
    let mut reason = String::new();
    for node in &block.locs {
        match ask_length(client, &node.id, block).await {
            Ok(length) => return Ok(length),
            Err(error) if error.is_remote("ReplicaNotFoundException") => unknown += 1,
            Err(error) => reason = error.brief(),
        }
    }
    if unknown == block.locs.len() {
        // The pipeline is only being set up.
        return Ok(0);
    }
    let block = &block.b;
    let (id, stamp) = (block.block_id.cast_signed(), block.generation_stamp);
    Err(FileError::failed(format_args!(
        "Cannot obtain block length for blk_{id}_{stamp}: {reason}"
    )))
}

async fn ask_length(
    client: &FileClient,
    node: &DatanodeId,
    block: &LocatedBlock,
) -> Result<u64, RpcError> {
    let settings = &client.settings;
    let host = if settings.use_hostname {
        &node.host_name
    } else {
        &node.ip_addr
    };
    let address = if host.contains(':') {
        format!("[{host}]:{}", node.ipc_port)
    } else {
        format!("{host}:{}", node.ipc_port)
    };
    let mut options = settings.rpc_as(&client.caller);
    options.connect_timeout = options.connect_timeout.min(settings.socket_timeout);
    options.call_timeout = Some(settings.socket_timeout);
    // The NameNode has let the caller in; DataNodes have no list of proxies of their own.
    options.real_user = None;
    // Where blocks have tokens, nodes know callers by that of the block.
    let token = &block.block_token;
    options.token = (!token.identifier.is_empty()).then(|| settings.proof(token));
    let rpc = RpcClient::new(address, CLIENT_DATANODE_PROTOCOL, options);
    let request = GetReplicaVisibleLengthRequest {
        block: block.b.clone(),
    };
    let answer: GetReplicaVisibleLengthResponse =
        rpc.call("getReplicaVisibleLength", &request).await?;
    rpc.disconnect().await;
    Ok(answer.length)
}

#[cfg(test)]
mod tests {
    use hayloft_wire::proto::hdfs::ExtendedBlock;

    use super::*;

    fn block(offset: u64, len: u64) -> LocatedBlock {
        LocatedBlock {
            offset,
            b: ExtendedBlock {
                num_bytes: Some(len),
                ..ExtendedBlock::default()
            },
            ..LocatedBlock::default()
        }
    }

    #[test]
    fn bytes_are_found_in_blocks_and_in_the_tail() {
        let blocks = FileBlocks {
            located: LocatedBlocks {
                file_length: 30,
                // The last one is being written; its length here is not what can be read.
                blocks: vec![block(0, 20), block(20, 10), block(30, 0)],
                ..LocatedBlocks::default()
            },
            tail: Some(block(30, 5)),
            length: 35,
        };
        let of = |at| blocks.block_at(at).map(|block| block.offset);
        assert_eq!(
            [0, 19, 20, 29, 30, 34].map(of),
            [0, 0, 20, 20, 30, 30].map(Some)
        );
        assert_eq!([of(35), of(u64::MAX)], [None, None]);
        let closed = FileBlocks {
            tail: None,
            length: 30,
            ..blocks
        };
        assert!(closed.block_at(30).is_none());
    }
}
