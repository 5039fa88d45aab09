//! Trying a cluster out: copy a directory in, read it back, compare every byte, search a text.
//!
//! Everything goes through stock programs: `FsShell` and the MapReduce `grep` example.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crc_fast::{CrcAlgorithm, Digest};
use hayloft_lab::hadoop::{Hadoop, class};
use serde::Serialize;

use super::launch::{self, Launcher};
use super::state::{Cluster, Copied, CopiedFile};
use crate::error::CliError;
use crate::progress::{Step, megabytes, rate, say};

/// Everything of the tour is below this.
const ROOT: &str = "/hayloft";
const EXAMPLES: &str = "org.apache.hadoop.examples.ExampleDriver";
/// Directories inside directories.
const DEPTH_MAX: usize = 64;
/// Files that one tour copies, at most.
const FILES_MAX: usize = 200_000;
const BUFFER_BYTES: usize = 1 << 20;

/// What to copy in.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    /// Name below [`ROOT`].
    name: String,
    /// Relative path and length of each file.
    files: Vec<(String, u64)>,
}

/// Finds and checks what shall be copied: `given`, or the directory of Hadoop's own jars.
pub fn source(given: Option<&Path>, hadoop: &Hadoop) -> Result<Source, CliError> {
    let (path, name) = match given {
        Some(path) => {
            let path = path
                .canonicalize()
                .map_err(CliError::file("read what --put names", path))?;
            let name = path
                .file_name()
                .map_or_else(|| "root".into(), |name| name.to_string_lossy().into_owned());
            (path, name)
        }
        None => (jar_directory(hadoop)?, "hadoop-jars".to_owned()),
    };
    if path
        .to_string_lossy()
        .contains(['*', '?', '[', ']', '{', '}', '\\', '%'])
    {
        return Err(CliError::new(
            "the stock shell would expand this path",
            path.display().to_string(),
            "choose one without *?[]{}\\%",
        ));
    }
    let mut files = Vec::new();
    if path.is_dir() {
        walk(&path, "", 0, &mut files)?;
    } else {
        let metadata = path.metadata().map_err(CliError::file("read", &path))?;
        files.push((String::new(), metadata.len()));
    }
    if files.is_empty() {
        return Err(CliError::new(
            "there are no files to copy",
            path.display().to_string(),
            "name another directory with --put",
        ));
    }
    files.sort();
    Ok(Source { path, name, files })
}

fn jar_directory(hadoop: &Hadoop) -> Result<PathBuf, CliError> {
    let is_common = |jar: &&PathBuf| {
        jar.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("hadoop-common-"))
    };
    let jar = hadoop
        .jars()
        .iter()
        .find(is_common)
        .and_then(|jar| jar.parent());
    jar.map(Path::to_path_buf).ok_or_else(|| {
        CliError::new(
            "Hadoop's jars not found",
            "",
            "name what to copy with --put",
        )
    })
}

fn walk(
    dir: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<(String, u64)>,
) -> Result<(), CliError> {
    let refuse = |what: &str, path: &Path| {
        CliError::new(
            what,
            path.display().to_string(),
            "name another directory with --put",
        )
    };
    if depth > DEPTH_MAX {
        return Err(refuse("directories too deep: a link to itself?", dir));
    }
    let entries = std::fs::read_dir(dir).map_err(CliError::file("list", dir))?;
    for entry in entries {
        let entry = entry.map_err(CliError::file("list", dir))?;
        let path = entry.path();
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            return Err(refuse("a file name is not UTF-8", &path));
        };
        if name.contains(':') {
            return Err(refuse("HDFS allows no ':' in names", &path));
        }
        // The stock shell takes these for its own checksum files and leaves them out.
        if name.starts_with('.') && name.ends_with(".crc") {
            continue;
        }
        let metadata = path.metadata().map_err(CliError::file("read", &path))?;
        let relative = format!("{prefix}{name}");
        if metadata.is_dir() {
            walk(&path, &format!("{relative}/"), depth + 1, files)?;
        } else if metadata.is_file() {
            files.push((relative, metadata.len()));
        } else {
            return Err(refuse("neither a file nor a directory", &path));
        }
        if files.len() > FILES_MAX {
            return Err(refuse("more files than a tour copies", dir));
        }
    }
    Ok(())
}

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

/// One search.
#[derive(Debug, Serialize)]
pub struct Search {
    text: String,
    word: String,
    matches: u64,
    seconds: f64,
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
                "MapReduce   skipped: this Hadoop has no hadoop-mapreduce-examples jar"
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
    cluster: &mut Cluster,
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
    cluster: &Cluster,
    source: &Source,
) -> Result<(Copied, Transfer), CliError> {
    let bytes = source.files.iter().map(|(_, bytes)| bytes).sum();
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
        files.push(file);
    }
    std::fs::write(&local, listing).map_err(CliError::file("write", &local))?;
    shell.fs(&["-mkdir", "-p", ROOT], None)?;
    // What an interrupted run left there is not on record.
    shell.fs(&["-rm", "-r", "-f", "-skipTrash", &target], None)?;
    let step = Step::bytes(format!("copying {} in", source.path.display()), bytes);
    let used_before = used(cluster);
    let replication = u64::from(cluster.replication.max(1));
    let progress = || used(cluster).saturating_sub(used_before) / replication;
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
fn free_target(cluster: &Cluster, name: &str) -> String {
    let taken = |target: &str| cluster.copied.iter().any(|copied| copied.target == target);
    let numbered = (2..).map(|n| format!("{ROOT}/{name}-{n}"));
    std::iter::once(format!("{ROOT}/{name}"))
        .chain(numbered)
        .find(|target| !taken(target))
        .unwrap_or_default()
}

/// The list of files that is kept beside a copy.
fn listing_of(target: &str) -> String {
    format!("{target}.files.txt")
}

fn read_back(
    shell: &Shell<'_, '_>,
    copied: &Copied,
    original: Option<&Path>,
) -> Result<Transfer, CliError> {
    let local = shell.scratch("read-back");
    remove(&local)?;
    let bytes = copied.bytes();
    let step = Step::bytes(format!("reading {} back", copied.target), bytes);
    shell.fs(
        &["-get", &copied.target, &local.display().to_string()],
        Some((&step, &|| size_of(&local))),
    )?;
    let took = step.done(&megabytes(bytes));
    let step = Step::spinner("comparing every byte");
    compare(copied, &local, original)?;
    step.done("equal");
    remove(&local)?;
    Ok(Transfer::new(copied.files.len(), bytes, took))
}

/// Each file must have the bytes of the original, or, in later runs, their length and checksum.
fn compare(copied: &Copied, local: &Path, original: Option<&Path>) -> Result<(), CliError> {
    let wrong = |what: &str, file: &CopiedFile| {
        let place = format!("{}/{}", copied.target, file.path);
        CliError::new(
            what,
            place,
            "keep the state directory and report this: it must not happen",
        )
        .finding()
    };
    let mut found = Vec::new();
    if local.is_dir() {
        walk(local, "", 0, &mut found)?;
    } else {
        found.push((String::new(), size_of(local)));
    }
    if found.len() != copied.files.len() {
        let what = format!(
            "{} files came back, {} went in",
            found.len(),
            copied.files.len()
        );
        return Err(CliError::new(
            what,
            copied.target.clone(),
            "keep the state directory and report this",
        )
        .finding());
    }
    for file in &copied.files {
        let path = local.join(&file.path);
        if !path.is_file() {
            return Err(wrong("a file did not come back", file));
        }
        if describe(&path, file.path.clone())? != *file {
            return Err(wrong("a file came back changed", file));
        }
        if let Some(original) = original
            && !same_bytes(&original.join(&file.path), &path)?
        {
            return Err(wrong("a file came back with other bytes", file));
        }
    }
    Ok(())
}

fn describe(path: &Path, name: String) -> Result<CopiedFile, CliError> {
    let mut file = File::open(path).map_err(CliError::file("read", path))?;
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0_u64;
    loop {
        let count = file
            .read(&mut buffer)
            .map_err(CliError::file("read", path))?;
        if count == 0 {
            break;
        }
        digest.update(&buffer[..count]);
        bytes += count as u64;
    }
    Ok(CopiedFile {
        path: name,
        bytes,
        crc64: digest.finalize(),
    })
}

fn same_bytes(left: &Path, right: &Path) -> Result<bool, CliError> {
    let open = |path: &Path| File::open(path).map_err(CliError::file("read", path));
    let (mut a, mut b) = (open(left)?, open(right)?);
    let (mut from_a, mut from_b) = (
        Vec::with_capacity(BUFFER_BYTES),
        Vec::with_capacity(BUFFER_BYTES),
    );
    loop {
        from_a.clear();
        from_b.clear();
        a.by_ref()
            .take(BUFFER_BYTES as u64)
            .read_to_end(&mut from_a)
            .map_err(CliError::file("read", left))?;
        b.by_ref()
            .take(BUFFER_BYTES as u64)
            .read_to_end(&mut from_b)
            .map_err(CliError::file("read", right))?;
        if from_a != from_b {
            return Ok(false);
        }
        if from_a.is_empty() {
            return Ok(true);
        }
    }
}

/// Runs the stock `grep` example over a text of the copy, and checks its count with our own.
fn search(shell: &Shell<'_, '_>, copied: &Copied) -> Result<Option<Search>, CliError> {
    let has_examples = |jar: &PathBuf| jar.to_string_lossy().contains("hadoop-mapreduce-examples");
    if !shell.launcher.hadoop.jars().iter().any(has_examples) {
        return Ok(None);
    }
    let is_text = |file: &&CopiedFile| {
        let name = file.path.to_ascii_lowercase();
        (1..64 << 20).contains(&file.bytes)
            && [".txt", ".md", ".log", ".csv", ".xml", ".html"]
                .iter()
                .any(|end| name.ends_with(end))
    };
    let text = match copied
        .files
        .iter()
        .filter(is_text)
        .max_by_key(|file| file.bytes)
    {
        Some(file) => format!("{}/{}", copied.target, file.path),
        None => listing_of(&copied.target),
    };
    let local = shell.scratch("text");
    remove(&local)?;
    shell.fs(&["-get", &text, &local.display().to_string()], None)?;
    let contents = std::fs::read(&local).map_err(CliError::file("read", &local))?;
    remove(&local)?;
    let Some((word, expected)) = frequent_word(&contents) else {
        return Ok(None);
    };
    let output = format!("{ROOT}/grep-output");
    shell.fs(&["-rm", "-r", "-f", "-skipTrash", &output], None)?;
    let step = Step::spinner(format!("searching {text} for '{word}' with MapReduce"));
    shell.run(
        "grep",
        EXAMPLES,
        &["grep", &text, &output, &word],
        Some((&step, &|| 0)),
    )?;
    let took = step.done("");
    let part = shell.scratch("grep-result");
    remove(&part)?;
    shell.fs(&["-getmerge", &output, &part.display().to_string()], None)?;
    let result = std::fs::read_to_string(&part).map_err(CliError::file("read", &part))?;
    remove(&part)?;
    let matches = result
        .split_ascii_whitespace()
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(0);
    if matches != expected {
        let what = format!("MapReduce found '{word}' {matches} times, {expected} are there");
        return Err(CliError::new(
            what,
            text,
            format!("see {}", shell.launcher.state.logs().display()),
        )
        .finding());
    }
    Ok(Some(Search {
        text,
        word,
        matches,
        seconds: took.as_secs_f64(),
    }))
}

/// The most frequent word of at least four ASCII letters, and how often it occurs anywhere.
fn frequent_word(text: &[u8]) -> Option<(String, u64)> {
    let mut counts: std::collections::BTreeMap<&[u8], u64> = std::collections::BTreeMap::new();
    let sample = &text[..text.len().min(4 << 20)];
    for word in sample
        .split(|byte| !byte.is_ascii_alphabetic())
        .filter(|word| (4..=32).contains(&word.len()))
    {
        *counts.entry(word).or_default() += 1;
    }
    let (word, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let mut occurrences = 0;
    let mut at = 0;
    // As a regular expression finds them: from left to right, not overlapping.
    while at + word.len() <= text.len() {
        if &text[at..at + word.len()] == word {
            occurrences += 1;
            at += word.len();
        } else {
            at += 1;
        }
    }
    Some((String::from_utf8_lossy(word).into_owned(), occurrences))
}

type Progress<'a> = Option<(&'a Step, &'a dyn Fn() -> u64)>;

/// Stock client programs, one JVM each.
struct Shell<'a, 'b> {
    launcher: &'a Launcher<'b>,
}

impl Shell<'_, '_> {
    fn fs(&self, args: &[&str], progress: Progress<'_>) -> Result<(), CliError> {
        self.run("fs", class::FS_SHELL, args, progress)
    }

    fn run(
        &self,
        name: &str,
        main: &str,
        args: &[&str],
        progress: Progress<'_>,
    ) -> Result<(), CliError> {
        let spawn = self
            .launcher
            .hadoop
            .java(name, &self.launcher.client_jvm(), main, args);
        // The log tells about this run only.
        let _ = std::fs::remove_file(&spawn.log);
        let mut process = spawn.start()?;
        let status = loop {
            match process.wait(Duration::from_millis(200)) {
                Ok(status) => break status,
                Err(_) => {
                    if let Some((step, position)) = progress {
                        step.at(position());
                    }
                }
            }
        };
        if status.success() {
            return Ok(());
        }
        Err(CliError::from(
            process.error(format!("{} ended with {status}", args.join(" "))),
        ))
    }

    /// A local path for passing use.
    fn scratch(&self, name: &str) -> PathBuf {
        let dir = self.launcher.state.path().join("scratch");
        if let Err(error) = std::fs::create_dir_all(&dir) {
            say(&format!("cannot create {}: {error}", dir.display()));
        }
        dir.join(name)
    }
}

fn used(cluster: &Cluster) -> u64 {
    launch::namesystem(cluster)
        .ok()
        .and_then(|counts| counts["CapacityUsed"].as_u64())
        .unwrap_or(0)
}

/// Bytes of a file or of everything below a directory that may be growing.
fn size_of(path: &Path) -> u64 {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| size_of(&entry.path())).sum()
        }
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}

fn remove(path: &Path) -> Result<(), CliError> {
    let removed = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CliError::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_as_a_regular_expression_finds_them() {
        assert_eq!(
            frequent_word(b"jarjar jarjar xjarjarjarjarx a b c"),
            Some(("jarjar".into(), 4))
        );
        assert_eq!(frequent_word(b"a b 123"), None);
    }

    #[test]
    fn comparison_sees_every_kind_of_difference() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (original, copy) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&original, &copy] {
            std::fs::create_dir_all(root.join("sub")).expect("created");
            std::fs::write(root.join("sub/x"), b"some bytes").expect("written");
            std::fs::write(root.join("y"), b"").expect("written");
        }
        let files = ["sub/x", "y"]
            .map(|name| describe(&original.join(name), name.into()).expect("readable"));
        let copied = Copied {
            source: original.clone(),
            target: "/t".into(),
            files: files.to_vec(),
        };
        compare(&copied, &copy, Some(&original)).expect("equal");
        compare(&copied, &copy, None).expect("equal");
        std::fs::write(copy.join("sub/x"), b"some bytez").expect("written");
        assert!(
            compare(&copied, &copy, None)
                .unwrap_err()
                .to_string()
                .contains("/t/sub/x")
        );
        std::fs::write(copy.join("sub/x"), b"some bytes").expect("written");
        std::fs::write(copy.join("z"), b"more").expect("written");
        assert!(
            compare(&copied, &copy, None)
                .unwrap_err()
                .to_string()
                .contains("3 files")
        );
        std::fs::remove_file(copy.join("z")).expect("removed");
        std::fs::rename(copy.join("y"), copy.join("yy")).expect("renamed");
        assert!(compare(&copied, &copy, None).is_err());
    }

    #[test]
    fn what_hdfs_cannot_hold_is_refused_before_anything_starts() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("a:b"), b"x").expect("written");
        let mut files = Vec::new();
        assert!(
            walk(dir.path(), "", 0, &mut files)
                .unwrap_err()
                .to_string()
                .contains("':'")
        );
    }
}
