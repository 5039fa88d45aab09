//! A shared object is loaded in a process of its own before it is loaded in this one: what crashes,
//! hangs or ends the process there is refused in a sentence.
//!
//! Between the two the file may change. So the state that was tried is compared with what the path
//! names before the object is loaded here and after; an object that changed is refused. A change
//! within the moment that the loader takes is found, but not prevented: install an object by
//! renaming it into place.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::load_and_check::{self, LoadedTable};
use super::object;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::one_line_process;

/// An object that takes longer to load is refused.
const LIMIT: Duration = Duration::from_secs(30);
/// Until the next try of a process for which there were no means.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// What the other process says of an object that it could load.
const LOADED: &str = "loaded";

/// The program that loads an object, and what it gets before the object's path.
static TRIER: OnceLock<(PathBuf, Vec<OsString>)> = OnceLock::new();
/// Objects that are in this process already. The loader takes a path that it knows for the object
/// that it has, whatever is there now.
static LOADED_HERE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Has each plug-in tried by `program` with `words` and the plug-in's path, in a process of its
/// own: it calls [`load_plugin_for_trial`]. Without it plug-ins are loaded untried. The first call
/// counts.
pub fn try_plugins_by(program: &Path, words: &[&str]) {
    let words = words.iter().map(OsString::from).collect();
    let _first = TRIER.set((program.to_owned(), words));
}

/// What the other process does: it takes standard output, loads the object at `path`, reads its
/// table and says what came of it.
///
/// # Errors
/// When there is no standard output to say it to.
pub fn load_plugin_for_trial(path: &Path) -> io::Result<()> {
    let line = one_line_process::Line::take()?;
    match load_and_check::load(path) {
        Ok(_) => line.say(LOADED),
        Err(why) => line.say(&why),
    }
}

/// Loads the shared object at `path`; it stays for as long as this process.
///
/// # Errors
/// In words, for the operator.
pub(super) fn load(path: &Path) -> Result<LoadedTable, String> {
    let identity = object::look_at(path)?;
    let known = || locks::lock(&LOADED_HERE);
    if known().contains(path) {
        return load_and_check::load(path);
    }
    let Some((program, words)) = TRIER.get() else {
        return load_and_check::load(path);
    };
    let answer = tried(Command::new(program).args(words).arg(path));
    match answer.map_err(|e| format!("it cannot be tried in a process of its own: {e}"))? {
        Ok(said) if said == LOADED => {}
        Ok(why) => return Err(why),
        Err(how) => return Err(format!("loaded in a process of its own, it {how}")),
    }
    let changed = || "it changed while it was loaded: start again".to_owned();
    if !identity.is_at(path) {
        return Err(changed());
    }
    let loaded = load_and_check::load(path)?;
    if !identity.is_at(path) {
        return Err(changed());
    }
    known().insert(path.to_owned());
    Ok(loaded)
}

/// What the other process says. Where there is no means for it now, this waits for as long as the
/// process might take: that is no fault of the object.
fn tried(command: &mut Command) -> io::Result<Result<String, String>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let lacks = |error: &io::Error| {
            let error = IoError::from_std(IoOp::Open, Path::new(""), error);
            error.kind() == IoErrorKind::Retry
        };
        match one_line_process::ask(command, LIMIT) {
            Err(error) if lacks(&error) && Instant::now() < deadline => {
                std::thread::sleep(AGAIN_AFTER);
            }
            answer => return answer,
        }
    }
}
