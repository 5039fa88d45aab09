//! A shared object is loaded, and its table checked before anything in it is called.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::abi::{
    ABI, ANY_CALLS, DEVICE, EngineTable, EntryPoint, FIRST_SIZE, IN_FILES, OUTLIVES_PROCESS,
    PAGE_CACHE, SYMBOL,
};
use crate::buffer::ALIGNMENT;

/// Characters of a plug-in's name, at most.
const NAME_MAX: usize = 32;
/// Characters of what the loader says, at most.
const REASON_MAX: usize = 500;

/// A table that was checked: every function that is not optional is there.
#[derive(Debug)]
pub(super) struct LoadedTable {
    /// The plug-in's own copy may not change under us.
    pub table: EngineTable,
    /// `plugin:NAME`.
    pub name: String,
}

/// Loads the shared object at `path` into this process, where it stays.
///
/// # Errors
/// In words, for the operator.
pub(super) fn load(path: &Path) -> Result<LoadedTable, String> {
    // SAFETY: the initialisers of the shared object run. The operator named it, and no
    // user may change it who could not change this program's configuration.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|e| format!("it cannot be loaded: {}", reason(&e)))?;
    // SAFETY: the header gives the symbol this type.
    let entry = unsafe { library.get::<EntryPoint>(SYMBOL) };
    let entry = entry.map_err(|_| {
        "it exports no hayloft_engine: it is no engine (plugins/hayloft_engine.h)".to_owned()
    })?;
    // SAFETY: it may be called once the object is loaded.
    let table = unsafe { entry() };
    // Threads, and files that close later, may be in it until the process ends.
    std::mem::forget(library);
    if table.is_null() || !table.is_aligned() {
        return Err("it gives no table".into());
    }
    // SAFETY: every version of the table begins with these two numbers.
    let (abi, size) = unsafe { ((*table).abi, (*table).size) };
    if abi != ABI {
        return Err(format!(
            "it is for version {abi} of the interface, and this node has version {ABI}: build it \
             with this version's hayloft_engine.h"
        ));
    }
    if (size as usize) < FIRST_SIZE {
        return Err(format!(
            "its table has {size} bytes instead of {FIRST_SIZE}: build it with this version's \
             hayloft_engine.h"
        ));
    }
    let mut ours = MaybeUninit::<EngineTable>::zeroed();
    let known = (size as usize).min(size_of::<EngineTable>());
    // SAFETY: it is of this version and has `size` bytes, of which no more are copied than ours
    // has. A table of zeros is one: its pointers are null and its functions `None`.
    let ours = unsafe {
        let to = ours.as_mut_ptr().cast::<u8>();
        std::ptr::copy_nonoverlapping(table.cast::<u8>(), to, known);
        ours.assume_init()
    };
    check(ours)
}

/// What the loader says, which the error's own text leaves to its source.
fn reason(error: &libloading::Error) -> String {
    let mut reason = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        reason = source.to_string();
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    reason.chars().take(REASON_MAX).map(plain).collect()
}

/// Checks what a table says.
fn check(table: EngineTable) -> Result<LoadedTable, String> {
    if table.name.is_null() {
        return Err("it has no name".into());
    }
    // SAFETY: the header has it end with a zero.
    let name = unsafe { CStr::from_ptr(table.name) }.to_bytes();
    let plain = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-';
    if name.is_empty() || name.len() > NAME_MAX || !name.iter().all(plain) {
        return Err(format!(
            "its name must be 1 to {NAME_MAX} of a-z, 0-9 and '-'"
        ));
    }
    let needed = [
        ("open_volume", table.open_volume.is_some()),
        ("close_volume", table.close_volume.is_some()),
        ("open", table.open.is_some()),
        ("close", table.close.is_some()),
        ("read", table.read.is_some()),
        ("write", table.write.is_some()),
        ("truncate", table.truncate.is_some()),
        ("sync", table.sync.is_some()),
        ("length", table.length.is_some()),
    ];
    let missing = needed.iter().filter(|(_, there)| !there);
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        return Err(format!("it lacks {}", missing.join(", ")));
    }
    if table.threads > ANY_CALLS {
        return Err(format!("threads {} is none of 0, 1 and 2", table.threads));
    }
    let known = IN_FILES | OUTLIVES_PROCESS | PAGE_CACHE | DEVICE;
    if table.capabilities & !known != 0 {
        return Err(format!(
            "its capabilities {:#x} have bits that this node does not know",
            table.capabilities
        ));
    }
    if table.capabilities & DEVICE != 0 && table.capabilities & IN_FILES != 0 {
        return Err("its bytes are in files and on a device: they can only be in one".into());
    }
    let alignment = table.memory_alignment;
    if !alignment.is_power_of_two() || alignment > ALIGNMENT as u64 {
        return Err(format!(
            "its memory_alignment {alignment} is no power of two up to {ALIGNMENT}"
        ));
    }
    let name = format!("plugin:{}", String::from_utf8_lossy(name));
    Ok(LoadedTable { table, name })
}
