//! Whether the node serves: blocks that it had before are read from it, and one is written to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hayloft_client::{
    BlockRange, CreateFile, FileClient, FileReader, FileWriter, LinkLimits, NodeLink, NodeStream,
    RangeStream,
};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::security::Token;

use super::clients::{clients, told, wait_for, wait_until};
use super::host::SwapHost;
use super::view::{LiveNode, transfer_address};

/// Blocks that are read.
pub const READ: usize = 20;
/// Bytes that are read of each.
const READ_MAX: u64 = 4 << 20;
/// For a connection, and for each answer of the node.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes of the largest packet.
const PACKET_MAX: u32 = 16 << 20;
/// Files that are written before it is given up: a NameNode may choose another node, also where
/// several have one address.
const WRITES: u32 = 20;
/// For those of a name service.
const WRITE_WITHIN: Duration = Duration::from_secs(120);
const WRITTEN: &[u8] = b"written by `hayloft swap` to see whether the node takes a block\n";

/// A replica on a directory.
#[derive(Debug)]
pub struct OldBlock {
    meta: PathBuf,
    of: ExtendedBlock,
}

/// Blocks on the directories, spread over them and over name services; at most [`READ`].
pub fn blocks_on(volumes: &[PathBuf]) -> Vec<OldBlock> {
    let each = READ.div_ceil(volumes.len().max(1));
    let mut all = Vec::new();
    for volume in volumes {
        let mut found = Vec::new();
        for (pool, dir) in pools(volume) {
            let (mut of_pool, mut seen) = (Vec::new(), 0);
            folders(&dir, 2, &mut |folder| {
                of_pool.extend(blocks_in(folder, &pool).take(each).enumerate());
                seen += 1;
                seen < each
            });
            // The first of each folder, then the second ones.
            of_pool.sort_by_key(|(rank, _)| *rank);
            found.extend(of_pool.into_iter().map(|(_, block)| block).enumerate());
        }
        // And so with pools.
        found.sort_by_key(|(rank, _)| *rank);
        all.extend(found.into_iter().take(each).map(|(_, block)| block));
    }
    all.truncate(READ);
    all
}

fn entries(dir: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|of| Some((of.file_name().into_string().ok()?, of.path())))
}

fn pools(volume: &Path) -> impl Iterator<Item = (PoolId, PathBuf)> + use<> {
    entries(&volume.join("current")).filter_map(|(name, path)| {
        let pool = name.starts_with("BP-").then(|| PoolId::new(&name).ok())??;
        Some((pool, path.join("current/finalized")))
    })
}

/// Visits the folders of finalized blocks while `more` says so; tells whether it still does.
fn folders(dir: &Path, depth: usize, more: &mut impl FnMut(&Path) -> bool) -> bool {
    if depth == 0 {
        return more(dir);
    }
    entries(dir).all(|(_, below)| folders(&below, depth - 1, more))
}

fn blocks_in<'a>(folder: &Path, pool: &'a PoolId) -> impl Iterator<Item = OldBlock> + use<'a> {
    let folder = folder.to_owned();
    entries(&folder).filter_map(move |(name, meta)| {
        let (id, stamp) = name
            .strip_prefix("blk_")?
            .strip_suffix(".meta")?
            .rsplit_once('_')?;
        let bytes = fs::metadata(folder.join(format!("blk_{id}"))).ok()?.len();
        let block = Block::new(id.parse().ok()?, stamp.parse().ok()?, bytes);
        let of = ExtendedBlock::new(pool.clone(), block);
        (bytes > 0).then_some(OldBlock { meta, of })
    })
}

/// Reads blocks from the node, verified by their checksums; gives how many, and their bytes. Those
/// that were deleted meanwhile are none.
///
/// # Errors
/// In words: the first block that does not come.
pub fn read(node: &LiveNode, blocks: &[OldBlock]) -> Result<(usize, u64), String> {
    wait_for(async {
        let (mut count, mut bytes) = (0, 0);
        for block in blocks {
            let read = tokio::time::timeout(SILENCE * 2, read_one(node, &block.of)).await;
            match read.unwrap_or_else(|_| Err("the node is silent".to_owned())) {
                Ok(of) => (count, bytes) = (count + 1, bytes + of),
                Err(_) if !block.meta.exists() => {}
                Err(why) => return Err(format!("block {}: {why}", block.of.block.id)),
            }
        }
        Ok((count, bytes))
    })
}

async fn read_one(node: &LiveNode, block: &ExtendedBlock) -> Result<u64, String> {
    let address: SocketAddr = node
        .transfer
        .parse()
        .map_err(|_| format!("{:?} is no address", node.transfer))?;
    let stream = tokio::net::TcpStream::connect(address);
    let stream = stream.await.map_err(|error| error.to_string())?;
    let limits = LinkLimits {
        read: Some(SILENCE),
        write: Some(SILENCE),
        packet: PACKET_MAX,
    };
    let link = NodeLink::over(NodeStream::Plain(stream), node.transfer.clone(), limits);
    let range = BlockRange {
        block: block.clone(),
        token: Token::default(),
        from: 0,
        end: block.block.num_bytes.min(READ_MAX),
    };
    let told = |trouble: hayloft_client::NodeTrouble| trouble.reason;
    let mut stream = RangeStream::open(link, "hayloft-swap", range)
        .await
        .map_err(told)?;
    let mut bytes = 0;
    while let Some(some) = stream.next().await.map_err(told)? {
        bytes += some.len() as u64;
    }
    Ok(bytes)
}

/// Whether files may be made in each name service: one is made without a block, and deleted. Where
/// that is refused the node need not be stopped for it.
///
/// # Errors
/// In words.
pub fn may_write(host: &SwapHost, until: Instant) -> Result<String, String> {
    wait_until(until, async {
        for (service, client) in clients(host).await? {
            let made = async {
                let path = path_of(0);
                find_active(&client).await?;
                let made = FileWriter::create(client.clone(), &path, &file()).await;
                drop(made.map_err(told)?);
                client.delete(&path).await.map_err(told)
            };
            made.await.map_err(|why| format!("{service}: {why}"))?;
        }
        Ok("files may be made".to_owned())
    })
}

/// In each name service writes files until the node has the block of one, reads that one, and
/// deletes them all. Tells how many name services there are.
///
/// # Errors
/// In words.
pub fn write(host: &SwapHost, node: &LiveNode) -> Result<usize, String> {
    wait_for(async {
        let clients = clients(host).await?;
        for (service, client) in &clients {
            let written = tokio::time::timeout(WRITE_WITHIN, write_to(client, node)).await;
            let late = || format!("not done within {} s", WRITE_WITHIN.as_secs());
            let written = written.unwrap_or_else(|_| Err(late()));
            written.map_err(|why| format!("{service}: {why}"))?;
        }
        Ok(clients.len())
    })
}

fn path_of(number: u32) -> String {
    format!("/tmp/.hayloft-swap-{}-{number}", std::process::id())
}

/// A file of one small block.
fn file() -> CreateFile {
    CreateFile {
        permission: 0o600,
        flags: 1 | 2,
        create_parent: true,
        replication: 1,
        block_size: 1 << 20,
        ..CreateFile::default()
    }
}

/// Has the client know the active NameNode: it asks no other one to make a file where one hangs.
async fn find_active(client: &FileClient) -> Result<(), String> {
    client.missing_blocks().await.map(drop).map_err(told)
}

async fn write_to(client: &FileClient, node: &LiveNode) -> Result<(), String> {
    find_active(client).await?;
    for number in 1..=WRITES {
        let path = path_of(number);
        let written = write_one(client, &path, node).await;
        let deleted = client.delete(&path).await.map_err(told);
        if written? {
            return deleted;
        }
        deleted?;
    }
    Err(format!(
        "{WRITES} blocks were written, and none came to this node"
    ))
}

/// Whether the block came to the node, which then gave it back.
async fn write_one(client: &FileClient, path: &str, node: &LiveNode) -> Result<bool, String> {
    let mut writer = FileWriter::create(client.clone(), path, &file())
        .await
        .map_err(told)?;
    writer.write(WRITTEN).await.map_err(told)?;
    writer.close().await.map_err(told)?;
    let nodes = client.nodes_of_first_block(path).await.map_err(told)?;
    if !nodes.iter().any(|id| transfer_address(id) == node.transfer) {
        return Ok(false);
    }
    let mut reader = FileReader::open(client.clone(), path, 0, None)
        .await
        .map_err(told)?;
    let mut read = Vec::new();
    while let Some(bytes) = reader.next().await.map_err(told)? {
        read.extend_from_slice(&bytes);
    }
    match read == WRITTEN {
        true => Ok(true),
        false => Err(format!("{path} came back with other bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_from_all_directories_and_folders() {
        let dir = tempfile::tempdir().expect("a directory");
        let volumes = [dir.path().join("a"), dir.path().join("b")];
        for volume in &volumes {
            for folder in 0..10 {
                let place = format!("current/BP-1/current/finalized/subdir0/subdir{folder}");
                let place = volume.join(place);
                fs::create_dir_all(&place).expect("made");
                for block in 0..5 {
                    let id = folder * 10 + block;
                    fs::write(place.join(format!("blk_{id}")), "x").expect("written");
                    fs::write(place.join(format!("blk_{id}_1001.meta")), "").expect("written");
                }
            }
        }
        let found = blocks_on(&volumes);
        assert_eq!(found.len(), READ);
        let folders: std::collections::BTreeSet<_> =
            found.iter().map(|old| old.of.block.id / 10).collect();
        assert_eq!(
            folders.len(),
            10,
            "one of each folder, ten of each directory"
        );
        let few = [volumes[0].join("current/BP-1/current/finalized/subdir0")];
        assert!(blocks_on(&few).is_empty(), "no directory of a node");
        let place = dir
            .path()
            .join("c/current/BP-1/current/finalized/subdir0/subdir0");
        fs::create_dir_all(&place).expect("made");
        for id in 0..30 {
            fs::write(place.join(format!("blk_{id}")), "x").expect("written");
            fs::write(place.join(format!("blk_{id}_1001.meta")), "").expect("written");
        }
        assert_eq!(
            blocks_on(&[dir.path().join("c")]).len(),
            READ,
            "of one folder"
        );
        // Another name service, with few blocks, and after the other in the listing or before it.
        for name in ["BP-0", "BP-2"] {
            let current = volumes[0].join("current");
            let place = current.join(name).join("current/finalized/subdir0/subdir0");
            fs::create_dir_all(&place).expect("made");
            fs::write(place.join("blk_77"), "x").expect("written");
            fs::write(place.join("blk_77_1001.meta"), "").expect("written");
        }
        let of = |name: &str| {
            let all = blocks_on(&volumes);
            all.iter()
                .filter(|old| old.of.pool.as_str() == name)
                .count()
        };
        assert_eq!((of("BP-0"), of("BP-1"), of("BP-2")), (1, 18, 1));
        let first = &found[0].of;
        assert_eq!(first.block.generation_stamp, 1001);
        assert_eq!((first.block.num_bytes, first.pool.as_str()), (1, "BP-1"));
    }
}
