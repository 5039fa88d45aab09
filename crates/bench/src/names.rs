//! The load client towards a real NameNode: files and blocks allocated as a stock client would.

use hayloft_rpc::RpcOptions;
use hayloft_testkit::blocking_rpc::BlockingRpc;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{Data, LatencyTally, LoadPlace, LoadSettings, write_block};
use hayloft_wire::ids::{Block, ExtendedBlock};
use hayloft_wire::proto::client as pb;
use hayloft_wire::proto::file_status::FsPermission;
use hayloft_wire::proto::hdfs::ExtendedBlock as WireBlock;
use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
use std::time::{Duration, Instant};

/// `rw-r--r--`.
const PERMISSION: u32 = 0o644;
/// Create, overwrite.
const CREATE_FLAG: u32 = 1 | 2;
/// Pause before the NameNode is asked again whether a block has its replicas. Stock clients wait
/// 400 ms, which would hide how soon a node reports.
const AGAIN: Duration = Duration::from_millis(2);
/// A replica is reported sooner, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// A NameNode as clients see it.
#[derive(Debug)]
pub struct NameNodeClient {
    rpc: BlockingRpc,
}

/// What a file shall be.
#[derive(Clone, Debug)]
pub struct FileSpec {
    /// Its path.
    pub path: String,
    /// Its length, bytes.
    pub len: u64,
    /// Its block size, bytes.
    pub block_bytes: u64,
    /// `host:port` of the nodes that shall hold all of it; as many replicas are made.
    pub nodes: Vec<String>,
}

impl NameNodeClient {
    /// A client of the NameNode at `address` (`host:port`).
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn new(address: &str) -> Result<Self> {
        let options = RpcOptions::default();
        let rpc = BlockingRpc::new("NameNode", address, CLIENT_NAMENODE_PROTOCOL, options)?;
        Ok(Self { rpc })
    }

    /// Writes a file: one block after the other, as the NameNode allocates them. Where its blocks
    /// are comes back. Files of one directory are written by one client, as a log's are.
    ///
    /// # Errors
    /// When the NameNode or a node refuses, or the NameNode chose other nodes than were asked for.
    pub fn write(
        &self,
        spec: &FileSpec,
        settings: &LoadSettings,
        data: &Data,
        tally: &mut LatencyTally,
    ) -> Result<Vec<LoadPlace>> {
        let directory = spec
            .path
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory);
        let client = format!("hayloft-bench{}", directory.replace('/', "-"));
        let _: pb::CreateResponse = self.rpc.call(
            "create",
            &pb::CreateRequest {
                src: spec.path.clone(),
                masked: FsPermission { perm: PERMISSION },
                client_name: client.clone(),
                create_flag: CREATE_FLAG,
                create_parent: true,
                replication: u32::try_from(spec.nodes.len()).unwrap_or(1),
                block_size: spec.block_bytes,
                ..pb::CreateRequest::default()
            },
        )?;
        let mut places = Vec::new();
        let mut previous = None;
        let mut left = spec.len;
        while left > 0 {
            let len = left.min(spec.block_bytes);
            let place = self.add_block(spec, &client, previous, len)?;
            write_block(settings, data, &place, tally)?;
            previous = Some(WireBlock::from(&place.block));
            places.push(place);
            left -= len;
        }
        self.complete(spec, &client, previous)?;
        Ok(places)
    }

    fn add_block(
        &self,
        spec: &FileSpec,
        client: &str,
        previous: Option<WireBlock>,
        len: u64,
    ) -> Result<LoadPlace> {
        let request = pb::AddBlockRequest {
            src: spec.path.clone(),
            client_name: client.to_owned(),
            previous,
            favored_nodes: spec.nodes.clone(),
            ..pb::AddBlockRequest::default()
        };
        // The NameNode wants the previous block reported before it allocates the next.
        let located = self.patiently(|| {
            match self
                .rpc
                .call::<_, pb::AddBlockResponse>("addBlock", &request)
            {
                Err(error) if error.to_string().contains("NotReplicatedYet") => Ok(None),
                other => other.map(|answer| Some(answer.block)),
            }
        })?;
        let wrong = |what: String| TestkitError::Talk(format!("{}: {what}", spec.path));
        let block = ExtendedBlock::try_from(&located.b).map_err(|e| wrong(e.to_string()))?;
        let chosen = located.locs.iter().map(|node| node.id.xfer_addr());
        let mut chosen: Vec<String> = chosen.collect();
        let mut wanted = spec.nodes.clone();
        chosen.sort();
        wanted.sort();
        if chosen != wanted {
            return Err(wrong(format!("is on {chosen:?}, not on {wanted:?}")));
        }
        let number = Block::new(block.block.id, block.block.generation_stamp, len);
        Ok(LoadPlace {
            block: ExtendedBlock::new(block.pool, number),
            len,
            nodes: located.locs,
            storage_ids: located.storage_ids,
            client: client.to_owned(),
        })
    }

    fn complete(&self, spec: &FileSpec, client: &str, last: Option<WireBlock>) -> Result<()> {
        let request = pb::CompleteRequest {
            src: spec.path.clone(),
            client_name: client.to_owned(),
            last,
            file_id: None,
        };
        self.patiently(|| {
            let answer: pb::CompleteResponse = self.rpc.call("complete", &request)?;
            Ok(answer.result.then_some(()))
        })
    }

    fn patiently<T>(&self, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let began = Instant::now();
        loop {
            if let Some(done) = attempt()? {
                return Ok(done);
            }
            if began.elapsed() > PATIENCE {
                return Err(TestkitError::Timeout {
                    what: "a block to be reported".into(),
                    waited: began.elapsed(),
                    last: format!("the NameNode at {} has not seen it", self.rpc.address()),
                });
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// The nodes (`host:port`) of each block of a file.
    ///
    /// # Errors
    /// When the NameNode refuses.
    pub fn locations(&self, path: &str) -> Result<Vec<Vec<String>>> {
        let request = pb::GetBlockLocationsRequest {
            src: path.to_owned(),
            offset: 0,
            length: i64::MAX.cast_unsigned(),
        };
        let answer: pb::GetBlockLocationsResponse = self.rpc.call("getBlockLocations", &request)?;
        let blocks = answer.locations.map(|all| all.blocks).unwrap_or_default();
        let nodes = blocks.iter().map(|block| {
            let nodes = block.locs.iter().map(|node| node.id.xfer_addr());
            nodes.collect()
        });
        Ok(nodes.collect())
    }

    /// Deletes a file or a directory with all that is in it.
    ///
    /// # Errors
    /// When the NameNode refuses.
    pub fn delete(&self, path: &str) -> Result<()> {
        let request = pb::DeleteRequest {
            src: path.to_owned(),
            recursive: true,
        };
        self.rpc
            .call::<_, pb::DeleteResponse>("delete", &request)
            .map(drop)
    }
}
