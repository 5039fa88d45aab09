//! Whether the node serves: blocks that it had before are read from it, and one is written to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_client::{
    BlockRange, ClientSettings, CreateFile, FileClient, FileTransfer, FileUser, FileWriter,
    LinkLimits, NameNodeGroup, NodeLink, NodeStream, RangeStream, StripeRoom, Turns,
};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::security::Token;
use tokio_util::sync::CancellationToken;

use super::ask::{self, LiveNode};
use super::host::SwapHost;

/// Blocks that are read.
pub const READ: usize = 20;
/// Bytes that are read of each.
const READ_MAX: u64 = 4 << 20;
/// For a connection, and for each answer of the node.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes of the largest packet.
const PACKET_MAX: u32 = 16 << 20;
/// Files of the first try, and of a second one: where several nodes have one address, its NameNode
/// may choose another.
const WRITES: [u32; 2] = [1, 19];
/// Apache's node counts anew on its web port every 10 s.
const COUNTED_WITHIN: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(500);
const WRITTEN: &[u8] = b"written by `hayloft swap` to see whether the node takes a block\n";

/// A replica on a directory.
#[derive(Debug)]
pub struct OldBlock {
    meta: PathBuf,
    of: ExtendedBlock,
}

/// Blocks on the directories, spread over them; at most [`READ`].
pub fn blocks_on(volumes: &[PathBuf]) -> Vec<OldBlock> {
    let each = READ.div_ceil(volumes.len().max(1));
    let mut all = Vec::new();
    for volume in volumes {
        let (mut found, mut seen) = (Vec::new(), 0);
        for (pool, dir) in pools(volume) {
            folders(&dir, 2, &mut |folder| {
                found.extend(blocks_in(folder, &pool).take(each).enumerate());
                seen += 1;
                seen < each
            });
        }
        // The first of each folder, then the second ones.
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
    runtime()?.block_on(async {
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

/// Writes files until the node has a block of one, and deletes them.
///
/// # Errors
/// In words.
pub fn write(host: &SwapHost, node: &LiveNode) -> Result<(), String> {
    let before = ask::counts(&node.web)?.blocks_written;
    let mut number = 0;
    for count in WRITES {
        for _ in 0..count {
            number += 1;
            let path = format!("/tmp/.hayloft-swap-{}-{number}", std::process::id());
            runtime()?.block_on(write_one(host, &path))?;
        }
        let began = Instant::now();
        while began.elapsed() < COUNTED_WITHIN {
            if ask::counts(&node.web)?.blocks_written > before {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }
    Err(format!(
        "{number} blocks were written, and none came to this node"
    ))
}

async fn write_one(host: &SwapHost, path: &str) -> Result<(), String> {
    let client = client_of(host)?;
    let wanted = CreateFile {
        permission: 0o600,
        flags: 1 | 2,
        create_parent: true,
        replication: 1,
        block_size: 1 << 20,
        ..CreateFile::default()
    };
    let told = |error: hayloft_client::FileError| error.message();
    let mut writer = FileWriter::create(client.clone(), path, &wanted)
        .await
        .map_err(told)?;
    let written = match writer.write(WRITTEN).await {
        Ok(()) => writer.close().await,
        Err(error) => Err(error),
    };
    let deleted = client.delete(path).await;
    written.and(deleted).map_err(told)
}

/// The first name service, as the user who runs the node.
fn client_of(host: &SwapHost) -> Result<FileClient, String> {
    let services = hayloft_conf::namenodes(&host.config).map_err(|error| error.to_string())?;
    let service = services.first().ok_or("no NameNode is configured")?;
    let addresses = service.namenodes.iter().map(|of| of.rpc.to_string());
    let user = std::env::var("HADOOP_USER_NAME")
        .ok()
        .filter(|user| !user.is_empty());
    let caller = FileUser {
        user: user.unwrap_or_else(|| host.user.clone()),
        ..FileUser::default()
    };
    let transfer = FileTransfer::new(CancellationToken::new());
    Ok(FileClient::new(
        &NameNodeGroup::new(addresses.collect()),
        Arc::new(ClientSettings::new(&host.config, None)),
        caller,
        StripeRoom::new(Arc::new(Turns::new(1)), transfer),
    ))
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    built.map_err(|error| error.to_string())
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
        let first = &found[0].of;
        assert_eq!(first.block.generation_stamp, 1001);
        assert_eq!((first.block.num_bytes, first.pool.as_str()), (1, "BP-1"));
    }
}
