//! What copies of this program were told, and what they left.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{
    AlignedBuf, Disk, DiskConfig, Engine, EngineConfig, EngineFile, IoClass, OpenMode, engine_for,
};

pub const CLASS: IoClass = IoClass::ClientWrite;

/// Least and most bytes of files, by number.
pub type Told = BTreeMap<u64, (usize, usize)>;

/// Numbers that differ by seed.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `below`.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

/// The engine called `name`, for `dir`.
pub fn engine(name: &str, dir: &Path) -> Arc<dyn Engine> {
    let disk = Disk::for_path(dir, &DiskConfig::default()).expect("a disk");
    let choice = engine_for(name, dir, &EngineConfig::new(disk));
    choice.unwrap_or_else(|e| panic!("{e}")).engine
}

/// Bytes of file `id` from `at` on: each place of each file has its own.
fn content(id: u64, at: usize, len: usize) -> Vec<u8> {
    let word = |at: usize| (id << 32 | (at / 8) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (at..at + len)
        .map(|at| word(at).to_le_bytes()[at % 8] | 1)
        .collect()
}

/// Where file `id` is.
pub fn path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("blk_{id}"))
}

/// Says that file `id` has `len` bytes at least, that were acknowledged, and `most` at most.
pub fn tell(id: u64, len: usize, most: usize) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{id} {len} {most}").expect("the parent reads");
    out.flush().expect("the parent reads");
}

/// Writes bytes of file `id`.
pub async fn write(file: &Arc<dyn EngineFile>, id: u64, at: usize, len: usize) {
    let bytes = Bytes::from(content(id, at, len));
    let written = file.write_at(vec![bytes], at as u64).await;
    written.result.expect("writes");
}

/// What a copy says on its output, until it ends.
pub fn listen(out: impl Read, mut each: impl FnMut()) -> Told {
    let mut told = Told::new();
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        each();
        let numbers: Vec<usize> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        if let [id, least, most] = numbers[..] {
            told.insert(id as u64, (least, most));
        }
    }
    told
}

async fn read(engine: &Arc<dyn Engine>, path: &Path) -> Vec<u8> {
    let file = engine.open(path, OpenMode::ReadOnly, CLASS).await;
    let file = file.unwrap_or_else(|e| panic!("{e}"));
    let len = usize::try_from(file.length().await.expect("has one")).expect("small");
    let done = file.read_at(AlignedBuf::unpooled(len.max(1)), 0, len).await;
    assert_eq!(done.result.expect("reads"), len);
    done.buf.as_slice().to_vec()
}

/// Compares all files with what was acknowledged of them, and removes most.
pub async fn check(name: &str, dir: &Path, told: &mut Told, seed: u64) {
    let engine = engine(name, dir);
    let meta = engine.meta(CLASS);
    let aside = dir.join("aside");
    let mut dice = Dice(seed * 31 + 7);
    if aside.exists() {
        // Killed between two names: only one file can be without its own.
        let known = told.iter().filter(|(_, (_, most))| *most != usize::MAX);
        let missing: Vec<u64> = known.map(|(id, _)| *id).collect();
        let missing: Vec<u64> = missing
            .into_iter()
            .filter(|id| !path(dir, *id).exists())
            .collect();
        assert!(missing.len() <= 1, "{missing:?}");
        match missing.first() {
            Some(id) => fs::rename(&aside, path(dir, *id)).expect("renames"),
            None => meta.unlink(&aside).await.expect("removes"),
        }
    }
    let mut kept = BTreeMap::new();
    for (id, (least, most)) in std::mem::take(told) {
        let at = path(dir, id);
        if most == usize::MAX && !at.exists() {
            continue;
        }
        let there = read(&engine, &at).await;
        assert!(
            least <= there.len(),
            "{id}: {} of {least} bytes",
            there.len()
        );
        assert!(there.len() <= most, "{id}: {} bytes of {most}", there.len());
        // Beyond what was acknowledged, a write was under way.
        let sure = if most == usize::MAX {
            there.len()
        } else {
            least
        };
        assert!(there[..sure] == content(id, 0, sure), "{id}: other bytes");
        if dice.roll(4) == 0 && kept.len() < 5 {
            kept.insert(id, (there.len(), there.len()));
        } else {
            meta.unlink(&at).await.expect("removes");
        }
    }
    // Files that the copy had not told of yet.
    for entry in fs::read_dir(dir).expect("lists") {
        let entry = entry.expect("lists");
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name.strip_prefix("blk_").and_then(|id| id.parse().ok());
        if id.is_some_and(|id: u64| !kept.contains_key(&id)) {
            meta.unlink(&entry.path()).await.expect("removes");
        }
    }
    *told = kept;
}
