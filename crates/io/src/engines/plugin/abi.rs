//! `plugins/hayloft_engine.h` as Rust sees it. The header says what everything means.
#![expect(missing_docs, reason = "the header documents every member")]

use std::ffi::{c_char, c_int, c_void};

/// `HAYLOFT_ENGINE_ABI`.
pub const ABI: u32 = 1;
/// The symbol that a plug-in exports.
pub const SYMBOL: &[u8] = b"hayloft_engine\0";

pub const ONE_CALL: u32 = 0;
pub const ONE_A_FILE: u32 = 1;
pub const ANY_CALLS: u32 = 2;

pub const IN_FILES: u32 = 1;
pub const OUTLIVES_PROCESS: u32 = 2;
pub const PAGE_CACHE: u32 = 4;
pub const DEVICE: u32 = 8;

pub const READ_ONLY: c_int = 0;
pub const READ_WRITE: c_int = 1;
pub const CREATE_NEW: c_int = 2;

pub const SYNC_DATA: c_int = 0;
pub const SYNC_ALL: c_int = 1;

/// `hayloft_engine`: what a plug-in exports.
pub type EntryPoint = unsafe extern "C" fn() -> *const EngineTable;

/// `struct hayloft_engine`. A null function is `None`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EngineTable {
    pub abi: u32,
    pub size: u32,
    pub name: *const c_char,
    pub threads: u32,
    pub capabilities: u32,
    pub memory_alignment: u64,
    pub open_volume:
        Option<unsafe extern "C" fn(*const c_char, *const c_char, *mut *mut c_void) -> c_int>,
    pub close_volume: Option<unsafe extern "C" fn(*mut c_void)>,
    pub open:
        Option<unsafe extern "C" fn(*mut c_void, *const c_char, c_int, *mut *mut c_void) -> c_int>,
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
    pub read: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, u64) -> i64>,
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64, u64) -> i64>,
    pub truncate: Option<unsafe extern "C" fn(*mut c_void, u64) -> c_int>,
    pub sync: Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>,
    pub length: Option<unsafe extern "C" fn(*mut c_void) -> i64>,
    pub allocate: Option<unsafe extern "C" fn(*mut c_void, u64) -> c_int>,
    pub last_error: Option<unsafe extern "C" fn() -> *const c_char>,
    pub trim: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int>,
}

/// Bytes of the table before members came at its end.
pub const FIRST_SIZE: usize = std::mem::offset_of!(EngineTable, trim);

// SAFETY: the table is constant, and a plug-in's functions may be called from any thread.
unsafe impl Sync for EngineTable {}
// SAFETY: as above.
unsafe impl Send for EngineTable {}
