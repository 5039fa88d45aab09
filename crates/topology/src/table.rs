//! The files that NameNodes read: a table of racks, a file of failure domains, a script.
//!
//! | file | read by |
//! |---|---|
//! | `FILE` | `net.topology.table.file.name` of `TableMapping`, `hayloft.topology.file` |
//! | `FILE.domains` | `hayloft.placement.domains.file` |
//! | `FILE.sh` | `net.topology.script.file.name`; it looks into `FILE` |
//!
//! Lines of other nodes stay: several nodes may keep one file on a shared mount, one at a time by
//! a lock on `FILE.lock`. Each file is replaced as a whole.

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::keys::NodeKeys;
use crate::name::{RackPath, SafeName};
use crate::place::KnownPlace;
use crate::replaced_file::{may_replace, present, replace, resolved};

/// How long another node may hold the lock.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
const HEAD: &str = "# Written by hayloft topology, which keeps the lines of other nodes.\n";
/// What all files have that are written here.
const MARK: &str = "# Written by hayloft topology";
const SOURCE_MARK: &str = ": found by ";

/// Why a table was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The system refused something.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error("{0} was locked for 10 s: another node writes, or hangs")]
    Locked(PathBuf),
    /// The file is not a table.
    #[error("{0}")]
    Unusable(String),
    /// The file was written by others.
    #[error(
        "{0} was not written by hayloft topology: move it away, name another file with --to, or \
         have it replaced with --force"
    )]
    Foreign(PathBuf),
    /// The other nodes' racks have another number of levels.
    #[error(
        "{path} has {there} levels in the rack of {node}, and {rack} has {here}: a NameNode \
         refuses the mixture; --flat makes one level"
    )]
    Levels {
        /// The table.
        path: PathBuf,
        /// Another node.
        node: String,
        /// Its levels.
        there: usize,
        /// Our rack.
        rack: RackPath,
        /// Its levels.
        here: usize,
    },
}

impl TableError {
    fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

/// The files of a cluster, as one node sees them.
pub struct TopologyTable {
    path: PathBuf,
    keys: NodeKeys,
    force: bool,
}

impl TopologyTable {
    /// The table at `path`, for the node of these names.
    pub fn new(path: &Path, keys: NodeKeys) -> Self {
        Self {
            path: path.to_owned(),
            keys,
            force: false,
        }
    }

    /// Whether domains and a script that others wrote are taken over.
    #[must_use]
    pub fn forced(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// Whether the files may be written. Lines of a table by hand stay, so it may be.
    ///
    /// # Errors
    /// [`TableError`]: one of them is no file, cannot be read, or is another's.
    pub fn is_ours(&self) -> Result<(), TableError> {
        let [table, domains, script] = self.paths();
        text_of(&table)?;
        for path in [domains, script] {
            let text = text_of(&path)?;
            if !self.force && !text.is_empty() && !text.contains(MARK) {
                return Err(TableError::Foreign(path));
            }
        }
        Ok(())
    }

    /// The paths of table, domains and script.
    pub fn paths(&self) -> [PathBuf; 3] {
        let beside = |end: &str| {
            let mut path = self.path.clone().into_os_string();
            path.push(end);
            PathBuf::from(path)
        };
        [self.path.clone(), beside(".domains"), beside(".sh")]
    }

    /// What the files say of this node.
    ///
    /// # Errors
    /// [`TableError`] when a file is there and cannot be read, or a line of this node is no place.
    pub fn known(&self) -> Result<KnownPlace, TableError> {
        let [table, domains, _] = self.paths();
        let text = text_of(&table)?;
        let unusable = |path: &Path, error: String| {
            TableError::Unusable(format!(
                "{}: the line of this node: {error}",
                path.display()
            ))
        };
        let mark = format!("# {}{SOURCE_MARK}", self.keys.name);
        let source = text.lines().find_map(|line| line.strip_prefix(&mark));
        let rack = self.value_of(&text).map(|value| value.parse::<RackPath>());
        let rack = rack.transpose().map_err(|error| unusable(&table, error))?;
        let text = text_of(&domains)?;
        let host = self.value_of(&text).map(|value| value.parse::<SafeName>());
        let host = host
            .transpose()
            .map_err(|error| unusable(&domains, error))?;
        Ok(KnownPlace {
            source: source.map(str::to_owned),
            rack,
            host,
        })
    }

    fn value_of<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut pairs = text.lines().filter_map(pair);
        pairs.find_map(|(node, value)| self.keys.has(node).then_some(value))
    }

    /// Writes what this node is, and returns the files that changed.
    ///
    /// # Errors
    /// [`TableError`]; then each file is whole, as it was or as it shall be.
    pub fn write(
        &self,
        source: &str,
        rack: &RackPath,
        host: Option<&SafeName>,
    ) -> Result<Vec<PathBuf>, TableError> {
        self.is_ours()?;
        for path in &self.paths() {
            may_replace(path).map_err(TableError::Unusable)?;
        }
        let _lock = self.lock()?;
        let [table, domains, script] = self.paths();
        let before = text_of(&table)?;
        self.same_levels(&before, rack)?;
        let left = self.left_addresses(&before);
        let mut text = self.others(&before, &left);
        text += &format!("# {}{SOURCE_MARK}{source}\n", self.keys.name);
        for key in self.keys.all() {
            text += &format!("{key}    {rack}\n");
        }
        let before_domains = text_of(&domains)?;
        let mut hosts = self.others(&before_domains, &left);
        if !hosts.contains(MARK) {
            hosts.insert_str(0, HEAD);
        }
        for (key, host) in self.keys.all().filter_map(|key| Some((key, host?))) {
            hosts += &format!("{key}    {host}\n");
        }
        let unknown = "/default-rack".repeat(rack.levels());
        let mut changed = Vec::new();
        // The domains first: a NameNode that reads between the two keeps more replicas apart.
        for (path, before, text, mode) in [
            (&domains, before_domains, hosts, 0o644),
            (&table, before, text, 0o644),
            (&script, text_of(&script)?, script_text(&unknown), 0o755),
        ] {
            if before != text || !path.exists() {
                replace(path, &text, mode).map_err(TableError::io("write", path))?;
                changed.push(path.clone());
            }
        }
        Ok(changed)
    }

    /// Addresses that this node had when it wrote last: the lines between its mark and its name.
    fn left_addresses(&self, table: &str) -> Vec<IpAddr> {
        let mark = format!("# {}{SOURCE_MARK}", self.keys.name);
        let lines = table.lines().skip_while(|line| !line.starts_with(&mark));
        let mut left = Vec::new();
        for node in lines.skip(1).map_while(|line| Some(pair(line)?.0)) {
            if node == self.keys.name {
                return left;
            }
            match node.parse() {
                Ok(address) => left.push(address),
                Err(_) => break,
            }
        }
        // Its name is missing: these may be addresses of others.
        Vec::new()
    }

    /// All lines but those of this node, which had the addresses `left` before.
    fn others(&self, text: &str, left: &[IpAddr]) -> String {
        let mark = format!("# {}{SOURCE_MARK}", self.keys.name);
        let was = |node: &str| node.parse().is_ok_and(|address| left.contains(&address));
        let ours = |line: &&str| {
            let node = pair(line).is_some_and(|(node, _)| self.keys.has(node) || was(node));
            node || line.starts_with(&mark)
        };
        if text.is_empty() {
            return HEAD.to_owned();
        }
        let kept = text.lines().filter(|line| !ours(line));
        kept.map(|line| format!("{line}\n")).collect()
    }

    fn same_levels(&self, text: &str, rack: &RackPath) -> Result<(), TableError> {
        let mut others = text.lines().filter_map(pair);
        let other = others.find_map(|(node, value)| {
            let there = value.matches('/').count();
            let differs = !self.keys.has(node) && there != rack.levels();
            differs.then(|| (node.to_owned(), there))
        });
        match other {
            None => Ok(()),
            Some((node, there)) => Err(TableError::Levels {
                path: self.path.clone(),
                node,
                there,
                rack: rack.clone(),
                here: rack.levels(),
            }),
        }
    }

    fn lock(&self) -> Result<File, TableError> {
        // One lock for all links to a file.
        let path = resolved(&self.path).map_err(TableError::Unusable)?;
        let mut path = path.into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(TableError::io("open", &path))?;
        let end = Instant::now() + LOCK_LIMIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::Error(error)) => {
                    return Err(TableError::io("lock", &path)(error));
                }
                Err(fs::TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(TableError::Locked(path));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
}

fn text_of(path: &Path) -> Result<String, TableError> {
    present(path).map_err(TableError::Unusable)
}

/// A node and its value; a comment has none.
fn pair(line: &str) -> Option<(&str, &str)> {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?))
}

/// The script looks into the table beside it. A host without a line is in a rack of as many levels.
fn script_text(unknown: &str) -> String {
    format!(
        r##"#!/bin/sh
# Prints the rack of each host given, for net.topology.script.file.name.
# Written by hayloft topology.
table="${{0%.sh}}"
if [ ! -r "$table" ]; then
  echo "$0: cannot read $table" >&2
  exit 1
fi
TABLE="$table" exec awk '
  BEGIN {{
    while ((getline line < ENVIRON["TABLE"]) > 0) {{
      sub(/#.*/, "", line)
      if (split(line, word, " ") >= 2) rack[tolower(word[1])] = word[2]
    }}
    for (i = 1; i < ARGC; i++) {{
      host = tolower(ARGV[i])
      print (host in rack) ? rack[host] : "{unknown}"
    }}
  }}' "$@"
"##
    )
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
