//! What the watch keeps in its directory: its state, the undo files, its status, and a lock.
//!
//! | file | what it is |
//! |---|---|
//! | `state` | a head with a checksum, then JSON; written anew by each pass, whole or not at all |
//! | `undo-N.jsonl` | what pass N was about to set, as `cold scan --undo` reads it |
//! | `status.json` | what `--status` shows |
//! | `lock` | held by the watch that runs |
//!
//! An undo file is durable before the first policy is set, the state after the last. So undo files
//! with a larger number than the state's are of passes that were cut off: what they have counts as
//! set. A state that is lost costs the counts of passes, and no undo.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crc_fast::{CrcAlgorithm, Digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::undo::UndoFile;
use super::audit_log::AuditState;
use super::clock::ClockMark;
use super::memory::PathMemory;
use crate::error::CliError;

/// What the head of a state says it is.
const FORMAT: &str = "hayloft cold watch";
/// Version of the format that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Longest head, bytes.
const HEAD_MAX: u64 = 4 << 10;
/// Largest state, bytes: three tables of 500,000 paths of 1 KiB, each byte escaped.
const STATE_MAX: u64 = 4 << 30;
/// Largest status, bytes.
const STATUS_MAX: u64 = 1 << 20;

/// What is kept from pass to pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchState {
    /// Name service or address of the NameNode.
    pub namenode: String,
    /// Number of the last pass.
    pub pass: u64,
    /// When it began.
    pub clock: Option<ClockMark>,
    /// What is known of paths.
    pub memory: PathMemory,
    /// What is known from audit logs.
    pub audit: AuditState,
    /// A pass saw a file that was read after its last change: access times are kept.
    pub read_later: bool,
}

/// A state's first line.
#[derive(Debug, Serialize, Deserialize)]
struct StateHead {
    format: String,
    version: u32,
    bytes: u64,
    crc32: u64,
}

/// The state directory of the one watch that runs on it.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    _lock: File,
}

impl StateDirectory {
    /// Makes the directory where there is none, and takes its lock.
    ///
    /// # Errors
    /// It cannot be written, or another watch has it.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        std::fs::create_dir_all(path).map_err(CliError::file("make the state directory", path))?;
        let lock = path.join("lock");
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(&lock);
        let file = file.map_err(CliError::file("open the lock", &lock))?;
        let mut taken = file.try_lock();
        // `--status` holds it for a moment.
        for _ in 0..10 {
            if taken.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            taken = file.try_lock();
        }
        taken.map_err(|_| {
            let place = path.display().to_string();
            let advice = "stop it, or give another directory with --state";
            CliError::new("another watch runs with this state", place, advice).lasting()
        })?;
        Ok(Self {
            path: path.to_owned(),
            _lock: file,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the pass of that number says what was there.
    pub fn undo_file(&self, pass: u64) -> PathBuf {
        self.path.join(format!("undo-{pass}.jsonl"))
    }

    /// The state that the last pass left, with what passes were about to set that were cut off.
    ///
    /// # Errors
    /// It is damaged, of a later version, or of another cluster.
    pub fn load(&self, namenode: &str) -> Result<WatchState, CliError> {
        let path = self.path.join("state");
        let kept: Option<WatchState> = read_state(&path)?;
        let mut state = kept.unwrap_or_else(|| WatchState {
            namenode: namenode.to_owned(),
            ..WatchState::default()
        });
        let other = |of: &str| {
            let what = format!("the state is of {of}, the configuration of {namenode}");
            let advice = "give that cluster's with --conf, or another directory with --state";
            CliError::new(what, self.path.display().to_string(), advice).lasting()
        };
        if state.namenode != namenode {
            return Err(other(&state.namenode));
        }
        for pass in self.undo_files(state.pass)? {
            let file = UndoFile::open(&self.undo_file(pass)).map_err(CliError::lasting)?;
            if file.head.namenode != namenode {
                return Err(other(&file.head.namenode));
            }
            for target in file.targets()? {
                state.memory.add(&target?, pass);
            }
            state.memory.forget_oldest();
            state.pass = pass;
        }
        Ok(state)
    }

    /// Numbers of the undo files of later passes than that, in their order.
    fn undo_files(&self, after: u64) -> Result<Vec<u64>, CliError> {
        let entries = self.path.read_dir();
        let entries = entries.map_err(CliError::file("list the state directory", &self.path))?;
        let number = |entry: io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let number = name.strip_prefix("undo-")?.strip_suffix(".jsonl")?;
            number.parse::<u64>().ok().filter(|number| *number > after)
        };
        let mut numbers: Vec<u64> = entries.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes a state durable.
    ///
    /// # Errors
    /// The disk is full or cannot be written.
    pub fn save(&self, state: &WatchState) -> Result<(), CliError> {
        let mut measured = Measured(Digest::new(CrcAlgorithm::Crc32IsoHdlc), 0);
        let write = |file: &mut dyn io::Write, measured: &mut Measured| -> io::Result<()> {
            serde_json::to_writer(&mut *measured, state)?;
            let head = StateHead {
                format: FORMAT.to_owned(),
                version: VERSION,
                bytes: measured.1,
                crc32: measured.0.finalize(),
            };
            serde_json::to_writer(&mut *file, &head)?;
            file.write_all(b"\n")?;
            Ok(serde_json::to_writer(file, state)?)
        };
        self.replace("state", &mut |file| write(file, &mut measured))
    }

    /// Writes what `--status` shows.
    ///
    /// # Errors
    /// The disk is full or cannot be written.
    pub fn save_status(&self, status: &impl Serialize) -> Result<(), CliError> {
        self.replace("status.json", &mut |file| {
            Ok(serde_json::to_writer_pretty(file, status)?)
        })
    }

    /// Writes a file, whole or not at all.
    fn replace(
        &self,
        name: &str,
        write: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(), CliError> {
        let (path, part) = (self.path.join(name), self.path.join(format!("{name}.part")));
        let mut settle = || -> io::Result<()> {
            let mut file = BufWriter::new(File::create(&part)?);
            write(&mut file)?;
            file.flush()?;
            file.get_ref().sync_all()?;
            std::fs::rename(&part, &path)?;
            File::open(&self.path)?.sync_all()
        };
        settle().map_err(CliError::file("write the state", &path))
    }
}

/// Whether a watch runs with a state directory.
pub fn is_watched(dir: &Path) -> bool {
    let lock = File::open(dir.join("lock"));
    lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
}

/// Reads what the watch of a state directory says of itself.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn read_status<T: DeserializeOwned>(dir: &Path) -> Result<T, CliError> {
    let path = dir.join("status.json");
    let place = path.display().to_string();
    let unusable = |what: String, advice: &str| CliError::new(what, place.clone(), advice);
    let file = File::open(&path).map_err(|error| {
        let what = format!("no watch has said anything here: {error}");
        unusable(what, "give the --state of one that runs")
    })?;
    serde_json::from_reader(BufReader::new(file).take(STATUS_MAX)).map_err(|error| {
        let what = format!("cannot understand the status: {error}");
        unusable(what, "use the version that wrote it")
    })
}

/// Counts bytes and sums them up.
struct Measured(Digest, u64);

impl io::Write for Measured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        self.1 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_state(path: &Path) -> Result<Option<WatchState>, CliError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CliError::file("read the state", path)(error)),
    };
    let refused = |what: &str, advice: &str| {
        CliError::new(what, path.display().to_string(), advice).lasting()
    };
    let damaged = || {
        let advice = "move it away: counts of passes begin anew, and the undo files stay as they \
                      are";
        refused("the state of the watch is damaged", advice)
    };
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    let read = (&mut file).take(HEAD_MAX).read_until(b'\n', &mut line);
    read.map_err(CliError::file("read the state", path))?;
    let head: StateHead = serde_json::from_slice(&line).map_err(|_| damaged())?;
    if head.format != FORMAT {
        return Err(damaged());
    }
    if head.version != VERSION {
        let what = format!("the state has version {}, not {VERSION}", head.version);
        return Err(refused(&what, "use the version of Hayloft that wrote it"));
    }
    if head.bytes > STATE_MAX {
        return Err(damaged());
    }
    let mut body = Vec::new();
    let read = file.take(head.bytes + 1).read_to_end(&mut body);
    read.map_err(CliError::file("read the state", path))?;
    let sum = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &body);
    if body.len() as u64 != head.bytes || sum != head.crc32 {
        return Err(damaged());
    }
    serde_json::from_slice(&body)
        .map(Some)
        .map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    use super::super::super::undo::{ColdTarget, UndoWriter};
    use super::*;

    fn state() -> WatchState {
        let mut state = WatchState {
            namenode: "nn:1".to_owned(),
            pass: 3,
            ..WatchState::default()
        };
        state.memory.candidates.insert("/a \"ä\"".to_owned(), 1);
        state.memory.add(&target("/old"), 2);
        state.audit.uses.note_file("/b/f", 7);
        state
    }

    fn target(path: &str) -> ColdTarget {
        ColdTarget {
            path: path.to_owned(),
            directory: false,
            before: Some("HOT".to_owned()),
            seen_policy: None,
        }
    }

    fn refusal(dir: &StateDirectory) -> String {
        let error = dir.load("nn:1").expect_err("refused");
        assert!(error.is_lasting(), "{error}");
        error.to_string()
    }

    #[test]
    fn a_state_comes_back_and_one_that_is_not_whole_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let kept = StateDirectory::open(&dir.path().join("s")).expect("opened");
        assert_eq!(kept.load("nn:1").expect("none yet").pass, 0);
        kept.save(&state()).expect("saved");
        kept.save(&state()).expect("saved again");
        assert_eq!(kept.load("nn:1").expect("whole"), state());
        assert!(
            kept.load("other:1")
                .expect_err("of another")
                .to_string()
                .contains("nn:1")
        );
        let path = kept.path().join("state");
        let whole = std::fs::read(&path).expect("read");
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).expect("written");
            assert!(refusal(&kept).contains("move it away"), "cut at {end}");
        }
        let mut flipped = whole.clone();
        let last = flipped.len() - 5;
        flipped[last] ^= 1;
        std::fs::write(&path, flipped).expect("written");
        assert!(refusal(&kept).contains("damaged"));
        let text = String::from_utf8(whole).expect("text");
        let later = text.replacen("\"version\":1", "\"version\":2", 1);
        std::fs::write(&path, later).expect("written");
        assert!(refusal(&kept).contains("version of Hayloft that wrote it"));
    }

    #[test]
    fn a_second_watch_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let first = StateDirectory::open(dir.path()).expect("opened");
        assert!(is_watched(dir.path()));
        let second = StateDirectory::open(dir.path()).expect_err("it is taken");
        assert!(second.to_string().contains("--state"), "{second}");
        drop(first);
        assert!(!is_watched(dir.path()) && !is_watched(&dir.path().join("none")));
        StateDirectory::open(dir.path()).expect("free again");
    }

    /// As after a kill between the undo file and the state, and as after the loss of a state.
    #[test]
    fn what_was_about_to_be_set_counts_as_set() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let kept = StateDirectory::open(dir.path()).expect("opened");
        kept.save(&state()).expect("saved");
        for (pass, path) in [(3, "/known"), (4, "/cut"), (11, "/later")] {
            let file = kept.undo_file(pass);
            let mut undo = UndoWriter::create(&file, "nn:1", "COLD", 5).expect("created");
            undo.push(&target(path)).expect("taken");
            undo.finish().expect("written");
        }
        let found = kept.load("nn:1").expect("read");
        let paths: Vec<_> = found.memory.archived.keys().map(|path| &**path).collect();
        assert_eq!((found.pass, paths), (11, vec!["/cut", "/later", "/old"]));
        std::fs::remove_file(dir.path().join("state")).expect("removed");
        let found = kept.load("nn:1").expect("read");
        let paths: Vec<_> = found.memory.archived.keys().map(|path| &**path).collect();
        assert_eq!((found.pass, paths), (11, vec!["/cut", "/known", "/later"]));
    }
}
