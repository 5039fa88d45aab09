//! `plugin:/path.so`: an engine from outside, through the C interface of
//! `plugins/hayloft_engine.h`.
//!
//! - `abi`: `plugins/hayloft_engine.h` as Rust sees it
//! - `load_and_check`: a shared object is loaded, and its table checked before anything in it is
//!   called
//! - `object`: the file of a shared object
//! - `plugin_file`: an open file of a plug-in: its functions, and what they answer checked
//! - `trial`: a shared object is loaded in a process of its own before it is loaded in this one
//!
//! What a plug-in answers is checked like what a disk answers: counts against what was asked,
//! errors against the range of errnos. A call that does not end fails the volume, as with a disk
//! that hangs. A plug-in that crashes takes the process with it: nothing can be done about that in
//! one process. So it is loaded in another one first ([`try_plugins_by`]), and what it does after
//! that is tried out by its operator (`hayloft engine test`).
#![expect(
    unsafe_code,
    reason = "the plug-in's functions are C; each call says what it rests on"
)]

pub mod abi;
mod load_and_check;
mod object;
mod plugin_file;
mod trial;

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use crate::blocking_engine::BlockingEngine;
use crate::error::{IoError, IoErrorKind, IoOp};
use crate::locks;
use crate::types::{Capabilities, OpenMode};
use abi::EngineTable;
use load_and_check::LoadedTable;
use plugin_file::PluginFile;
pub use trial::{load_plugin_for_trial, try_plugins_by};

/// What the configuration has before the path of a plug-in.
pub const PLUGIN_PREFIX: &str = "plugin:";
/// Bytes of what a plug-in says of an error, at most.
const WORDS_MAX: usize = 500;
/// The largest errno that Linux has room for.
const ERRNO_MAX: i64 = 4095;

/// Path and options of `plugin:/path.so options`; `None` for other engines.
#[must_use]
pub fn plugin_parts(name: &str) -> Option<(&Path, &str)> {
    let rest = name.strip_prefix(PLUGIN_PREFIX)?.trim();
    let (path, options) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Some((Path::new(path), options.trim()))
}

/// A plug-in on one volume.
#[derive(Debug)]
pub(super) struct Plugin(Arc<PluginVolume>);

#[derive(Debug)]
struct PluginVolume {
    loaded: LoadedTable,
    volume: *mut c_void,
    /// Held during a call, where the plug-in takes only one.
    one_call: Mutex<()>,
}

// SAFETY: the header has a volume be used by any thread, one at a time where `one_call` is held.
unsafe impl Send for PluginVolume {}
// SAFETY: as above.
unsafe impl Sync for PluginVolume {}

/// What a plug-in says that it can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct PluginAbilities {
    pub in_files: bool,
    pub outlives: bool,
    pub page_cache: bool,
    /// It has a device, and Hayloft's stubs are the files.
    pub device: bool,
}

/// Loads the shared object at `path` and looks what it can do.
pub(super) fn abilities(path: &Path) -> Result<PluginAbilities, IoError> {
    let loaded = trial::load(path).map_err(|why| refused(path, path, &why))?;
    let has = |capability| loaded.table.capabilities & capability != 0;
    Ok(PluginAbilities {
        in_files: has(abi::IN_FILES),
        outlives: has(abi::OUTLIVES_PROCESS),
        page_cache: has(abi::PAGE_CACHE),
        device: has(abi::DEVICE),
    })
}

fn refused(path: &Path, at: &Path, why: &str) -> IoError {
    let text = format!("the plug-in {} cannot be used: {why}", path.display());
    IoError::new(IoErrorKind::Invalid, IoOp::Open, at, text)
}

impl Plugin {
    /// Loads the shared object at `path` and has it open the volume in `directory`.
    ///
    /// # Errors
    /// `Invalid` with a sentence for the operator.
    pub(super) fn open(path: &Path, options: &str, directory: &Path) -> Result<Self, IoError> {
        let refused = |why: String| refused(path, directory, &why);
        let loaded = trial::load(path).map_err(refused)?;
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| refused("a zero is in path or options".into()))
        };
        let (dir, options) = (
            text(directory.as_os_str().as_bytes())?,
            text(options.as_bytes())?,
        );
        let mut volume = std::ptr::null_mut();
        let open = loaded
            .table
            .open_volume
            .ok_or_else(|| refused(String::new()))?;
        // SAFETY: the strings end with a zero and outlive the call; `volume` is ours.
        let outcome = unsafe { open(dir.as_ptr(), options.as_ptr(), &raw mut volume) };
        if outcome != 0 {
            let words = last_words(&loaded.table);
            let words = words.map_or(String::new(), |words| format!(" ({words})"));
            let errno = errno_of(i64::from(outcome)).map_or_else(
                || format!("it answers {outcome}"),
                |errno| std::io::Error::from(errno).to_string(),
            );
            return Err(refused(format!(
                "it does not open the volume: {errno}{words}"
            )));
        }
        Ok(Self(Arc::new(PluginVolume {
            loaded,
            volume,
            one_call: Mutex::default(),
        })))
    }
}

impl Plugin {
    /// Whether it has a device, on which stubs have their content.
    pub(super) fn is_device(&self) -> bool {
        self.0.has(abi::DEVICE)
    }
}

impl PluginVolume {
    fn has(&self, capability: u32) -> bool {
        self.loaded.table.capabilities & capability != 0
    }

    /// The right to call, where there is only one.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let one = self.loaded.table.threads == abi::ONE_CALL;
        one.then(|| locks::lock(&self.one_call))
    }

    /// What an answer below zero, or one that cannot be, means.
    fn failed(&self, op: IoOp, path: &Path, answer: i64) -> IoError {
        let name = &self.loaded.name;
        let words = last_words(&self.loaded.table);
        match errno_of(answer) {
            Some(errno) => {
                let words = words.map_or_else(|| name.clone(), |words| format!("{name}: {words}"));
                IoError::from_errno(op, path, errno).with_context(words)
            }
            None => {
                let text = format!("{name} answers {answer}, which is no count and no errno");
                IoError::new(IoErrorKind::MediaError, op, path, text)
            }
        }
    }
}

impl Drop for PluginVolume {
    fn drop(&mut self) {
        if let Some(close) = self.loaded.table.close_volume {
            // SAFETY: the plug-in made it, and no file of it is open.
            unsafe { close(self.volume) };
        }
    }
}

fn errno_of(answer: i64) -> Option<Errno> {
    let errno = answer
        .checked_neg()
        .filter(|e| (1..=ERRNO_MAX).contains(e))?;
    Some(Errno::from_raw_os_error(i32::try_from(errno).ok()?))
}

/// What the plug-in says of this thread's last call, cut to a length and made printable.
fn last_words(table: &EngineTable) -> Option<String> {
    let last = table.last_error?;
    // SAFETY: it may be called at any time, and takes nothing.
    let words = unsafe { last() };
    if words.is_null() {
        return None;
    }
    // SAFETY: the header has it end with a zero, and stay until this thread's next call.
    let words = unsafe { CStr::from_ptr(words) }.to_bytes();
    let words = String::from_utf8_lossy(&words[..words.len().min(WORDS_MAX)]);
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    Some(words.chars().map(plain).collect())
}

impl BlockingEngine for Plugin {
    type File = PluginFile;

    fn name(&self) -> &str {
        &self.0.loaded.name
    }

    fn capabilities(&self) -> Capabilities {
        let in_files = self.0.has(abi::IN_FILES);
        let alignment = self.0.loaded.table.memory_alignment;
        Capabilities {
            page_cache: self.0.has(abi::PAGE_CACHE),
            memory_alignment: usize::try_from(alignment).unwrap_or(1),
            descriptor: false,
            keeps_data: in_files,
            stubs: false,
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<PluginFile, IoError> {
        let invalid = |text: &str| IoError::new(IoErrorKind::Invalid, IoOp::Open, path, text);
        let name = CString::new(path.as_os_str().as_bytes());
        let name = name.map_err(|_| invalid("a zero is in the path"))?;
        let volume = &self.0;
        let open = volume.loaded.table.open.ok_or_else(|| invalid("no open"))?;
        let how = match mode {
            OpenMode::ReadOnly => abi::READ_ONLY,
            OpenMode::ReadWrite => abi::READ_WRITE,
            OpenMode::CreateNew => abi::CREATE_NEW,
        };
        let mut file = std::ptr::null_mut();
        let outcome = {
            let _turn = volume.turn();
            // SAFETY: the plug-in made the volume; the path outlives the call; `file` is ours.
            unsafe { open(volume.volume, name.as_ptr(), how, &raw mut file) }
        };
        if outcome != 0 {
            return Err(volume.failed(IoOp::Open, path, i64::from(outcome)));
        }
        Ok(PluginFile {
            volume: Arc::clone(volume),
            file,
            path: path.to_owned(),
            writable: mode != OpenMode::ReadOnly,
            one_call: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_as_long_as_the_header_s() {
        // plugins/hayloft_engine.h on a 64-bit machine: 2 + 1 pointer + 2 numbers, 1, 11 functions.
        assert_eq!(abi::FIRST_SIZE, 8 + 8 + 8 + 8 + 11 * 8);
        assert_eq!(size_of::<EngineTable>(), abi::FIRST_SIZE + 8);
    }

    #[test]
    fn options_follow_the_path() {
        assert_eq!(plugin_parts("posix"), None);
        let parts = plugin_parts("plugin:/a/b.so  x=1 y=2 ");
        assert_eq!(parts, Some((Path::new("/a/b.so"), "x=1 y=2")));
        assert_eq!(plugin_parts("plugin:/a.so"), Some((Path::new("/a.so"), "")));
    }

    #[test]
    fn only_errnos_are_errors() {
        assert_eq!(errno_of(-28), Some(Errno::NOSPC));
        for answer in [0, 1, -4096, i64::MIN] {
            assert_eq!(errno_of(answer), None, "{answer}");
        }
    }
}
