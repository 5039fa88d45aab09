//! Trying a cluster out: copy a directory in, read it back, compare every byte, search a text.
//!
//! - `compare`: whether what came back is what went in, byte by byte
//! - `search`: the stock MapReduce `grep` example over a text, its count checked with our own
//! - `shell`: stock client programs, one JVM each, and local files of passing use
//! - `source`: what to copy in: found, listed and checked before anything starts
//!
//! Everything goes through stock programs: `FsShell` and the MapReduce `grep` example.

mod compare;
mod search;
mod shell;
mod source;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hayloft_console::progress::{ProgressStep, megabytes, rate};
use serde::Serialize;

use self::compare::{compare, describe};
use self::search::{Search, search};
use self::shell::{ROOT, Shell, listing_of, remove, size_of};
pub use self::source::{Source, source};
use super::start_processes::{self, Launcher};
use super::state_directory::{Copied, StateDir, StoredCluster};
use crate::error::CliError;

/// One timed copy.
#[derive(Debug, Serialize)]
pub struct Transfer {
    files: usize,
    bytes: u64,
    seconds: f64,
    mb_per_s: f64,
}

impl Transfer {
    fn new(files: usize, bytes: u64, took: Duration) -> Self {
        Self {
            files,
            bytes,
            seconds: took.as_secs_f64(),
            mb_per_s: rate(bytes, took),
        }
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            files,
            bytes,
            seconds,
            mb_per_s,
        } = self;
        write!(
            f,
            "{files} files, {} in {seconds:.1} s, {mb_per_s:.1} MB/s",
            megabytes(*bytes)
        )
    }
}

/// What a tour did. Times include the start of each stock program's JVM.
#[derive(Debug, Serialize)]
pub struct Tour {
    source: PathBuf,
    target: String,
    /// `None` when an earlier run copied it in.
    copied_in: Option<Transfer>,
    read_back: Transfer,
    every_byte_equal: bool,
    search: Option<Search>,
}

impl fmt::Display for Tour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.copied_in {
            Some(copied) => writeln!(
                f,
                "copied in   {copied} ({} to {})",
                self.source.display(),
                self.target
            )?,
            None => writeln!(f, "found       {} as an earlier run left it", self.target)?,
        }
        writeln!(f, "read back   {}; every byte is equal", self.read_back)?;
        match &self.search {
            Some(search) => writeln!(
                f,
                "MapReduce   found '{}' {} times in {} in {:.1} s, as counted here",
                search.word, search.matches, search.text, search.seconds
            )?,
            None => writeln!(
                f,
                "MapReduce   skipped: it needs the jar hadoop-mapreduce-examples, and with \
                 Kerberos Hadoop's native library"
            )?,
        }
        writeln!(
            f,
            "(times of the stock FsShell and MapReduce programs, the start of their JVMs included)"
        )
    }
}

/// Copies `source` in unless an earlier run did, reads it back, compares, and searches a text.
pub fn run(
    launcher: &Launcher<'_>,
    cluster: &mut StoredCluster,
    source: Source,
) -> Result<Tour, CliError> {
    let shell = Shell { launcher };
    let earlier = cluster
        .copied
        .iter()
        .find(|copied| copied.source == source.path)
        .cloned();
    let (copied, copied_in) = match earlier {
        Some(copied) => (copied, None),
        None => {
            let (copied, transfer) = copy_in(&shell, cluster, &source)?;
            cluster.copied.push(copied.clone());
            launcher.state.save(cluster)?;
            (copied, Some(transfer))
        }
    };
    let original = copied_in.is_some().then_some(source.path.as_path());
    let read_back = read_back(&shell, &copied, original)?;
    let search = search(&shell, &copied)?;
    Ok(Tour {
        source: copied.source,
        target: copied.target,
        copied_in,
        read_back,
        every_byte_equal: true,
        search,
    })
}

fn copy_in(
    shell: &Shell<'_, '_>,
    cluster: &StoredCluster,
    source: &Source,
) -> Result<(Copied, Transfer), CliError> {
    let bytes = source.files.iter().map(|(_, bytes)| bytes).sum();
    let step = ProgressStep::bytes(format!("checksumming {}", source.path.display()), bytes);
    let mut done = 0;
    let target = free_target(cluster, &source.name);
    let local = shell.scratch("FILES.txt");
    let mut files = Vec::with_capacity(source.files.len());
    let mut listing = String::new();
    for (path, _) in &source.files {
        let file = describe(&source.path.join(path), path.clone())?;
        listing.push_str(&format!(
            "{} bytes {} checksum {:016x}\n",
            file.path, file.bytes, file.crc64
        ));
        done += file.bytes;
        step.at(done);
        files.push(file);
    }
    step.done(&megabytes(bytes));
    std::fs::write(&local, listing).map_err(CliError::file("write", &local))?;
    shell.fs(&["-mkdir", "-p", ROOT], None)?;
    // What an interrupted run left there is not on record.
    shell.fs(&["-rm", "-r", "-f", "-skipTrash", &target], None)?;
    let step = ProgressStep::bytes(format!("copying {} in", source.path.display()), bytes);
    let used = || used(shell.launcher.state, cluster);
    let used_before = used();
    let replication = u64::from(cluster.replication.max(1));
    let progress = || used().saturating_sub(used_before) / replication;
    let path = as_uri_path(&source.path);
    shell.fs(&["-put", &path, &target], Some((&step, &progress)))?;
    let took = step.done(&megabytes(bytes));
    shell.fs(
        &[
            "-put",
            "-f",
            &local.display().to_string(),
            &listing_of(&target),
        ],
        None,
    )?;
    let transfer = Transfer::new(files.len(), bytes, took);
    Ok((
        Copied {
            source: source.path.clone(),
            target,
            files,
        },
        transfer,
    ))
}

/// A local source as the stock shell wants it: as the path of a URI.
fn as_uri_path(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let text = path.display().to_string();
    let encoded = text.bytes().map(|byte| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    encoded.collect()
}

/// A name below [`ROOT`] that no other copy has.
fn free_target(cluster: &StoredCluster, name: &str) -> String {
    let taken = |target: &str| cluster.copied.iter().any(|copied| copied.target == target);
    let numbered = (2..).map(|n| format!("{ROOT}/{name}-{n}"));
    std::iter::once(format!("{ROOT}/{name}"))
        .chain(numbered)
        .find(|target| !taken(target))
        .unwrap_or_default()
}

fn read_back(
    shell: &Shell<'_, '_>,
    copied: &Copied,
    original: Option<&Path>,
) -> Result<Transfer, CliError> {
    let local = shell.scratch("read-back");
    remove(&local)?;
    let bytes = copied.bytes();
    let step = ProgressStep::bytes(format!("reading {} back", copied.target), bytes);
    shell.fs(
        &["-get", &copied.target, &local.display().to_string()],
        Some((&step, &|| size_of(&local))),
    )?;
    let took = step.done(&megabytes(bytes));
    let step = ProgressStep::spinner("comparing every byte");
    compare(copied, &local, original)?;
    step.done("equal");
    remove(&local)?;
    Ok(Transfer::new(copied.files.len(), bytes, took))
}

fn used(state: &StateDir, cluster: &StoredCluster) -> u64 {
    start_processes::namesystem(state, cluster)
        .ok()
        .and_then(|counts| counts["CapacityUsed"].as_u64())
        .unwrap_or(0)
}
