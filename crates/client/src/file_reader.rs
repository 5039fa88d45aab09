//! A range of a file, in order, from replicas that can be read.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::LocatedBlock;
use tracing::debug;

use super::FileClient;
use super::block_range::{BlockRange, RangeStream};
use super::error::FileError;
use super::group_reader::{GroupReader, striped};
use super::locate_blocks::{FileBlocks, report_bad};
use super::node_link::{NodeTrouble, Target};

/// Nodes are asked for a block again after all of them failed, or too many of a group, so often.
const ROUNDS_MAX: u32 = 3;
/// Pause before that, times the number of the round.
const PAUSE: Duration = Duration::from_secs(1);

/// What is being read.
enum Current {
    Replica(Box<OneReplica>),
    Group(Box<GroupReader>),
}

/// A replica of a block, and what a report of it would say.
struct OneReplica {
    stream: RangeStream,
    target: Target,
    block: ExtendedBlock,
}

/// A file that is being read.
pub struct FileReader {
    client: FileClient,
    path: String,
    blocks: FileBlocks,
    at: u64,
    end: u64,
    current: Option<Current>,
    /// Nodes that failed with the block at `at`, by uuid.
    failed: HashSet<String>,
    /// How often all of them did.
    rounds: u32,
    /// Why the last node, or group, could not be read.
    last_trouble: Option<String>,
}

impl FileReader {
    /// Opens the file to read at most `length` bytes from `offset` on.
    ///
    /// # Errors
    /// `BeyondEnd` for an offset behind the end, and what the NameNode says.
    pub async fn open(
        client: FileClient,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Self, FileError> {
        let blocks = FileBlocks::find(&client, path, offset).await?;
        let left = blocks.length.checked_sub(offset);
        let left = left.ok_or(FileError::BeyondEnd)?;
        let end = offset + length.map_or(left, |length| length.min(left));
        Ok(Self {
            client,
            path: path.to_owned(),
            blocks,
            at: offset,
            end,
            current: None,
            failed: HashSet::new(),
            rounds: 0,
            last_trouble: None,
        })
    }

    /// Bytes that are left to read.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.end - self.at
    }

    /// The next bytes, some of them; `None` at the end.
    ///
    /// # Errors
    /// `BlockMissing`: no replica of a block can be read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FileError> {
        while self.at < self.end {
            if self.current.is_none() {
                self.begin().await?;
            }
            let next = match &mut self.current {
                Some(Current::Group(group)) => match group.next(&self.client).await {
                    Err(FileError::BlockMissing(why)) => {
                        let block = group.block.clone();
                        self.current = None;
                        self.next_round(&block, &why).await?;
                        continue;
                    }
                    next => next?,
                },
                Some(Current::Replica(replica)) => match replica.stream.next().await {
                    Ok(next) => next,
                    Err(trouble) => {
                        let OneReplica { target, block, .. } = &**replica;
                        let (target, block) = (target.clone(), block.clone());
                        self.give_up(target, &block, trouble).await;
                        continue;
                    }
                },
                None => continue,
            };
            let Some(bytes) = next else {
                self.current = None;
                self.failed.clear();
                continue;
            };
            self.at += bytes.len() as u64;
            self.rounds = 0;
            return Ok(Some(bytes));
        }
        Ok(None)
    }

    /// Opens what holds the byte at `at`.
    async fn begin(&mut self) -> Result<(), FileError> {
        let known = self.blocks.block_at(self.at).cloned();
        let located = match known {
            Some(located) => located,
            None => self.locate_again().await?,
        };
        let block = ExtendedBlock::try_from(&located.b).map_err(FileError::failed)?;
        let from = self.at - located.offset;
        let end = (self.end - located.offset).min(block.block.num_bytes);
        if let Some(policy) = striped(self.blocks.located.ec_policy.as_ref()) {
            let group = GroupReader::new(policy, &located, block, from..end)?;
            self.current = Some(Current::Group(Box::new(group)));
            return Ok(());
        }
        for target in Target::all_of(&located) {
            let uuid = &target.node.id.datanode_uuid;
            if self.failed.contains(uuid) {
                continue;
            }
            let range = BlockRange {
                block: block.clone(),
                token: located.block_token.clone(),
                from,
                end,
            };
            match self.client.read_range(&target.node.id, range).await {
                Ok(stream) => {
                    let replica = OneReplica {
                        stream,
                        target,
                        block,
                    };
                    self.current = Some(Current::Replica(Box::new(replica)));
                    return Ok(());
                }
                Err(trouble) => {
                    debug!(%trouble, %block, "a replica cannot be read, another one is tried");
                    self.failed.insert(uuid.clone());
                    self.last_trouble = Some(trouble.to_string());
                }
            }
        }
        let why = self.last_trouble.take();
        let why = why.as_deref().unwrap_or("no node has it");
        self.next_round(&block, why).await
    }

    /// Waits and asks the NameNode anew, after no node could be read, or too few.
    async fn next_round(&mut self, block: &ExtendedBlock, why: &str) -> Result<(), FileError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            let text = format!("Could not obtain block: {block} file={} ({why})", self.path);
            return Err(FileError::BlockMissing(text));
        }
        debug!(why, %block, "a block cannot be read, the NameNode is asked for its nodes again");
        tokio::time::sleep(PAUSE * self.rounds).await;
        self.failed.clear();
        self.locate_again().await.map(|_| ())
    }

    /// Asks for the blocks from here on. What can be read of the file stays as it was at first.
    async fn locate_again(&mut self) -> Result<LocatedBlock, FileError> {
        let (path, at) = (&self.path, self.at);
        let id = |blocks: &FileBlocks| blocks.block_at(at).map(|found| found.b.block_id);
        let before = id(&self.blocks);
        self.blocks = FileBlocks::find(&self.client, path, at).await?;
        let found = self.blocks.block_at(at).cloned().ok_or_else(|| {
            FileError::failed(format_args!("{path} has become shorter than {at} bytes"))
        })?;
        // Another file may have this name by now: its bytes do not belong behind those given out.
        if before.is_some_and(|before| before != found.b.block_id) {
            let text = format_args!("Blocklist for {path} has changed!");
            return Err(FileError::failed(text));
        }
        Ok(found)
    }

    /// Leaves a node that failed in the middle.
    async fn give_up(&mut self, target: Target, block: &ExtendedBlock, trouble: NodeTrouble) {
        debug!(%trouble, "a replica cannot be read on, another one is tried");
        self.current = None;
        self.failed.insert(target.node.id.datanode_uuid.clone());
        self.last_trouble = Some(trouble.to_string());
        if trouble.corrupt {
            report_bad(&self.client, block, target).await;
        }
    }
}
