//! Blocks that no client wrote: their files are made on the volumes of a node, and what a
//! NameNode knows of them is put into its image by Hadoop's own tool. A client makes 500 a second,
//! this as many as the disk can.

use crate::cluster::Cluster;
use crate::driver::Driver;
use crate::error::{Result, TestkitError, expect};
use crate::hadoop::{Jvm, class};
use bytes::BufMut as _;
use hayloft_store::subdir;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of each block: what many of them cost is in their number.
pub const BLOCK_BYTES: u32 = 512;
/// Blocks of a file.
const BLOCKS_OF_FILE: u64 = 1000;
/// Heap of the tool, MiB; it holds a file at a time.
const TOOL_HEAP: u32 = 512;
/// Longest that the tool may take.
const TOOL_LIMIT: Duration = Duration::from_secs(300);

/// What tells new blocks from those that were there before.
#[derive(Debug)]
struct BlocksBefore {
    /// The last id that was given out.
    id: u64,
    /// The generation stamp of the new ones, which no other has.
    generation_stamp: u64,
}

/// The number that an element of an image has, and the element.
fn number(xml: &str, name: &str) -> Result<(u64, String)> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let text = xml
        .split_once(&open)
        .and_then(|(_, rest)| rest.split_once(&close))
        .map_or("", |(text, _)| text);
    let number = text
        .parse()
        .map_err(|_| TestkitError::Talk(format!("the image has no {name}")))?;
    Ok((number, format!("{open}{text}{close}")))
}

/// An image as text with `count` blocks more, in files of the directory `name` of the root; and
/// what was before them.
fn with_blocks(xml: &str, name: &str, count: u64) -> Result<(String, BlocksBefore)> {
    let (block, block_text) = number(xml, "lastAllocatedBlockId")?;
    let (inode, inode_text) = number(xml, "lastInodeId")?;
    let (inodes, inodes_text) = number(xml, "numInodes")?;
    let (stamp, stamp_text) = number(xml, "genstampV2")?;
    // The first inode of an image is its root.
    let (root, _) = number(xml, "id")?;
    let files = count.div_ceil(BLOCKS_OF_FILE);
    let directory = inode + 1;
    let mut made = format!(
        "<inode><id>{directory}</id><type>DIRECTORY</type><name>{name}</name><mtime>0</mtime>\
         <permission>root:supergroup:0755</permission><nsquota>-1</nsquota><dsquota>-1</dsquota>\
         </inode>\n"
    );
    let mut listed = format!(
        "<directory><parent>{root}</parent><child>{directory}</child></directory>\n\
         <directory><parent>{directory}</parent>"
    );
    for file in 0..files {
        let id = directory + 1 + file;
        let _ = write!(
            made,
            "<inode><id>{id}</id><type>FILE</type><name>f{file:06}</name>\
             <replication>1</replication><mtime>0</mtime><atime>0</atime>\
             <preferredBlockSize>{BLOCK_BYTES}</preferredBlockSize>\
             <permission>root:supergroup:0644</permission><blocks>"
        );
        for nth in file * BLOCKS_OF_FILE..count.min((file + 1) * BLOCKS_OF_FILE) {
            let _ = write!(
                made,
                "<block><id>{}</id><genstamp>{}</genstamp>\
                 <numBytes>{BLOCK_BYTES}</numBytes></block>",
                block + 1 + nth,
                stamp + 1
            );
        }
        made.push_str("</blocks></inode>\n");
        let _ = write!(listed, "<child>{id}</child>");
    }
    listed.push_str("</directory>\n");
    let to = |of: &str, from: u64, to: u64| of.replace(&from.to_string(), &to.to_string());
    let mut text = xml.to_owned();
    for (from, to) in [
        (&stamp_text, to(&stamp_text, stamp, stamp + 1)),
        (&block_text, to(&block_text, block, block + count)),
        (&inode_text, to(&inode_text, inode, directory + files)),
        (&inodes_text, to(&inodes_text, inodes, inodes + 1 + files)),
    ] {
        text = text.replacen(from, &to, 1);
    }
    for (end, more) in [
        ("</INodeSection>", made),
        ("</INodeDirectorySection>", listed),
    ] {
        expect(text.contains(end), || format!("the image has no {end}"))?;
        text = text.replacen(end, &format!("{more}{end}"), 1);
    }
    let before = BlocksBefore {
        id: block,
        generation_stamp: stamp + 1,
    };
    Ok((text, before))
}

/// The newest image in a directory.
fn newest_image(dir: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).map_err(TestkitError::file("listing", dir))?;
    let images = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("fsimage_") && !name.contains('.')
    });
    let newest = images.max();
    newest.ok_or_else(|| TestkitError::Talk(format!("{} has no image", dir.display())))
}

/// Gives the one node of a cluster `count` blocks in files of the directory `name` of the root,
/// spread evenly over its volumes. The node does not run then and the NameNode is in safe mode
/// until it does; lists of replicas that a clean stop left say nothing of the new ones.
///
/// # Errors
/// When the NameNode does not save or take its image, or a file cannot be written.
pub fn make_blocks(cluster: &mut Cluster, driver: &Driver, name: &str, count: u64) -> Result<()> {
    driver.dfsadmin(&["-safemode", "enter"])?;
    driver.dfsadmin(&["-saveNamespace"])?;
    cluster.node(0).stop()?;
    let pool = cluster.namenode_bean(0, "NameNodeInfo")?["BlockPoolId"].clone();
    let pool = pool.as_str().unwrap_or_default().to_owned();
    cluster.namenode(0).stop()?;
    let image = newest_image(&cluster.namenode(0).name_dir().join("current"))?;
    let dir = cluster.dir().to_owned();
    let [before, after] = ["image.xml", "image-with-blocks.xml"].map(|file| dir.join(file));
    let jvm = Jvm::small(&cluster.client_conf_dir(), &dir, TOOL_HEAP);
    let tool = |way: &str, from: &Path, to: &Path| {
        let (from, to) = (from.display().to_string(), to.display().to_string());
        let arguments = ["-p", way, "-i", &from, "-o", &to];
        let hadoop = cluster.hadoop();
        hadoop.run("image", &jvm, class::IMAGE_VIEWER, &arguments, TOOL_LIMIT)
    };
    tool("XML", &image, &before)?;
    let xml = fs::read_to_string(&before).map_err(TestkitError::file("reading", &before))?;
    let (xml, last) = with_blocks(&xml, name, count)?;
    fs::write(&after, xml).map_err(TestkitError::file("writing", &after))?;
    tool("ReverseXML", &after, &image)?;
    let volumes: Vec<PathBuf> = cluster.node(0).volumes().map(Path::to_owned).collect();
    make_files(&volumes, &pool, &last, count)?;
    cluster.namenode(0).start(&[])
}

/// The files of the blocks behind the last one, each volume's by a thread of its own.
fn make_files(volumes: &[PathBuf], pool: &str, last: &BlocksBefore, count: u64) -> Result<()> {
    let data = vec![b'h'; BLOCK_BYTES as usize];
    let checksum = DataChecksum::new(ChecksumKind::Crc32c, BLOCK_BYTES)
        .map_err(|error| TestkitError::Talk(error.to_string()))?;
    let mut meta = Vec::new();
    meta.put_slice(&checksum.encode_meta_header());
    checksum.compute(&data, &mut meta);
    let of_volume = |nth: u64, volume: &Path| -> Result<()> {
        let finalized = volume.join("current").join(pool).join("current/finalized");
        for at in (nth..count).step_by(volumes.len()) {
            let id = last.id + 1 + at;
            let dir = finalized.join(subdir(id.cast_signed()));
            let path = dir.join(format!("blk_{id}"));
            let mut written = fs::write(&path, &data);
            if written.is_err() {
                fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
                written = fs::write(&path, &data);
            }
            written.map_err(TestkitError::file("writing", &path))?;
            let path = dir.join(format!("blk_{id}_{}.meta", last.generation_stamp));
            fs::write(&path, &meta).map_err(TestkitError::file("writing", &path))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let of_volume = &of_volume;
        let threads: Vec<_> = (0..)
            .zip(volumes)
            .map(|(nth, volume)| scope.spawn(move || of_volume(nth, volume)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let panicked = |_| TestkitError::Talk("a thread that makes blocks panicked".into());
            thread.join().map_err(panicked)?
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "<fsimage><NameSection><genstampV2>1007</genstampV2>\
        <lastAllocatedBlockId>1073741824</lastAllocatedBlockId></NameSection>\
        <INodeSection><lastInodeId>16390</lastInodeId><numInodes>1</numInodes>\
        <inode><id>16385</id><type>DIRECTORY</type></inode>\n</INodeSection>\
        <INodeDirectorySection></INodeDirectorySection></fsimage>";

    #[test]
    fn an_image_gets_each_block_once_and_counts_them() {
        let (text, last) = with_blocks(EMPTY, "blocks", 2001).expect("it is an image");
        assert_eq!((last.id, last.generation_stamp), (1_073_741_824, 1008));
        for (part, times) in [
            ("<genstampV2>1008</genstampV2>", 1),
            ("<lastAllocatedBlockId>1073743825</lastAllocatedBlockId>", 1),
            (
                "<lastInodeId>16394</lastInodeId><numInodes>5</numInodes>",
                1,
            ),
            ("<numBytes>512</numBytes>", 2001),
            ("<id>1073741825</id><genstamp>1008</genstamp>", 1),
            ("<id>1073743825</id><genstamp>1008</genstamp>", 1),
            ("<parent>16385</parent><child>16391</child>", 1),
            (
                "<child>16392</child><child>16393</child><child>16394</child>",
                1,
            ),
        ] {
            assert_eq!(text.matches(part).count(), times, "{part}");
        }
        let (ids, _) = with_blocks(EMPTY, "blocks", 1000).expect("it is an image");
        assert!(ids.contains("<numInodes>3<"), "one file, not two");
        let error = with_blocks("<id>1</id>", "blocks", 1).expect_err("no image");
        assert!(
            error.to_string().contains("lastAllocatedBlockId"),
            "{error}"
        );
    }

    #[test]
    fn files_are_spread_over_volumes_and_fit_each_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let volumes: Vec<_> = (0..3).map(|n| dir.path().join(format!("v{n}"))).collect();
        let last = BlocksBefore {
            id: 255,
            generation_stamp: 1001,
        };
        make_files(&volumes, "BP-1", &last, 7).expect("made");
        let folder = |n: usize| volumes[n].join("current/BP-1/current/finalized/subdir0/subdir1");
        let count = |n: usize| fs::read_dir(folder(n)).expect("there").count();
        assert_eq!([count(0), count(1), count(2)], [6, 4, 4]);
        let data = fs::read(folder(0).join("blk_256")).expect("data");
        let meta = fs::read(folder(0).join("blk_256_1001.meta")).expect("meta");
        let checksum = DataChecksum::decode_meta_header(&meta).expect("a header");
        assert_eq!(data.len(), 512);
        assert_eq!(checksum.verify(&data, &meta[7..]), Ok(()));
    }
}
