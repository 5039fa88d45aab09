//! The shared object and its functions. This file and `handles` have the only unsafe code here.
//!
//! Types and numbers are those of RFC 2744, of MIT's `gssapi_ext.h` and of `krb5.h`.
#![expect(unsafe_code, reason = "calls a C library that is opened at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::error::GssError;

/// Soname of MIT's library, the same in Debian and in RHEL.
const NAME: &str = "libgssapi_krb5.so.2";

/// 1.2.840.113554.1.2.2, Kerberos version 5.
pub(super) static KRB5: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
/// 1.3.6.1.5.5.2, SPNEGO: the way to agree on a mechanism that HTTP has (RFC 4178).
pub(super) static SPNEGO: &[u8] = b"\x2b\x06\x01\x05\x05\x02";

const ERROR_MASK: u32 = 0xffff_0000;
const STATUS_GSS: c_int = 1;
const STATUS_MECH: c_int = 2;
/// Lines of one status that are read at most.
const STATUS_LINES: usize = 8;

pub(super) type Handle = *mut c_void;

#[repr(C)]
pub(super) struct Buffer {
    pub(super) length: usize,
    pub(super) value: *mut c_void,
}

impl Buffer {
    pub(super) const EMPTY: Self = Self {
        length: 0,
        value: null_mut(),
    };

    /// What the library only reads.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            length: bytes.len(),
            value: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

#[repr(C)]
pub(super) struct Oid {
    pub(super) length: u32,
    pub(super) elements: *mut c_void,
}

impl Oid {
    pub(super) fn of(bytes: &'static [u8]) -> Self {
        Self {
            length: u32::try_from(bytes.len()).unwrap_or(0),
            elements: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

#[repr(C)]
pub(super) struct OidSet {
    pub(super) count: usize,
    pub(super) elements: *mut Oid,
}

#[repr(C)]
pub(super) struct KeyValue {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

#[repr(C)]
pub(super) struct KeyValueSet {
    pub(super) count: u32,
    pub(super) elements: *mut KeyValue,
}

/// Declares the table of functions, and how it is filled from the shared object.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Functions {
            fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the signature is that of MIT's header for this name, and the
                        // library is never closed, so that the copied pointer stays valid.
                        unsafe { *library.get(name)? }
                    },)*
                })
            }
        }
    };
}

functions! {
    gss_import_name: fn(*mut u32, *const Buffer, *const Oid, *mut Handle) -> u32;
    gss_release_name: fn(*mut u32, *mut Handle) -> u32;
    gss_display_name: fn(*mut u32, Handle, *mut Buffer, *mut *mut Oid) -> u32;
    gss_release_buffer: fn(*mut u32, *mut Buffer) -> u32;
    gss_display_status: fn(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer) -> u32;
    gss_acquire_cred_from: fn(*mut u32, Handle, u32, *const OidSet, c_int, *const KeyValueSet,
        *mut Handle, *mut *mut OidSet, *mut u32) -> u32;
    gss_inquire_cred: fn(*mut u32, Handle, *mut Handle, *mut u32, *mut c_int,
        *mut *mut OidSet) -> u32;
    gss_release_cred: fn(*mut u32, *mut Handle) -> u32;
    gss_init_sec_context: fn(*mut u32, Handle, *mut Handle, Handle, *const Oid, u32, u32,
        *const c_void, *const Buffer, *mut *mut Oid, *mut Buffer, *mut u32, *mut u32) -> u32;
    gss_accept_sec_context: fn(*mut u32, *mut Handle, Handle, *const Buffer, *const c_void,
        *mut Handle, *mut *mut Oid, *mut Buffer, *mut u32, *mut u32, *mut Handle) -> u32;
    gss_delete_sec_context: fn(*mut u32, *mut Handle, *mut Buffer) -> u32;
    gss_inquire_context: fn(*mut u32, Handle, *mut Handle, *mut Handle, *mut u32, *mut *mut Oid,
        *mut u32, *mut c_int, *mut c_int) -> u32;
    gss_wrap: fn(*mut u32, Handle, c_int, u32, *const Buffer, *mut c_int, *mut Buffer) -> u32;
    gss_unwrap: fn(*mut u32, Handle, *const Buffer, *mut Buffer, *mut c_int, *mut u32) -> u32;
    gss_wrap_size_limit: fn(*mut u32, Handle, c_int, u32, u32, *mut u32) -> u32;
    krb5_init_context: fn(*mut Handle) -> i32;
    krb5_free_context: fn(Handle);
    krb5_get_default_realm: fn(Handle, *mut *mut c_char) -> i32;
    krb5_free_default_realm: fn(Handle, *mut c_char);
    krb5_cc_resolve: fn(Handle, *const c_char, *mut Handle) -> i32;
    krb5_cc_destroy: fn(Handle, Handle) -> i32;
}

/// The library, open until the process ends.
pub(super) struct Library {
    pub(super) functions: Functions,
}

impl Library {
    /// Opens the library, once a process.
    pub(super) fn get() -> Result<&'static Self, GssError> {
        static OPENED: OnceLock<Result<Library, String>> = OnceLock::new();
        let opened = OPENED.get_or_init(|| Self::open().map_err(|error| error.to_string()));
        opened.as_ref().map_err(|reason| GssError::NoLibrary {
            name: NAME,
            reason: reason.clone(),
        })
    }

    fn open() -> Result<Self, libloading::Error> {
        // SAFETY: MIT's library has initialisers that touch nothing of ours.
        let library = unsafe { libloading::Library::new(NAME)? };
        let functions = Functions::of(&library)?;
        // It stays open: the function pointers outlive every handle.
        std::mem::forget(library);
        Ok(Self { functions })
    }

    /// What the library answered, with its words when it failed.
    pub(super) fn check(&self, what: &'static str, major: u32, minor: u32) -> Result<(), GssError> {
        if major & ERROR_MASK == 0 {
            return Ok(());
        }
        let mut text = self.status(major, STATUS_GSS);
        let detail = self.status(minor, STATUS_MECH);
        if minor != 0 && !detail.is_empty() {
            text = detail;
        }
        Err(GssError::failed(what, minor.cast_signed(), text))
    }

    fn status(&self, code: u32, kind: c_int) -> String {
        let mech = Oid::of(KRB5);
        let mut lines = Vec::new();
        let mut more = 0;
        for _ in 0..STATUS_LINES {
            let (mut minor, mut out) = (0, Buffer::EMPTY);
            // SAFETY: all pointers are to live locals; `out` is taken over and released below.
            let major = unsafe {
                (self.functions.gss_display_status)(
                    &raw mut minor,
                    code,
                    kind,
                    &raw const mech,
                    &raw mut more,
                    &raw mut out,
                )
            };
            if major & ERROR_MASK != 0 {
                break;
            }
            lines.push(String::from_utf8_lossy(&self.take(&mut out)).into_owned());
            if more == 0 {
                break;
            }
        }
        lines.join(", ")
    }

    /// The bytes of a buffer that the library made, which is released.
    pub(super) fn take(&self, buffer: &mut Buffer) -> Vec<u8> {
        let bytes = if buffer.value.is_null() {
            Vec::new()
        } else {
            // SAFETY: the library gave pointer and length of an allocation that it filled.
            unsafe { std::slice::from_raw_parts(buffer.value.cast::<u8>(), buffer.length) }.to_vec()
        };
        let mut minor = 0;
        // SAFETY: the buffer is the library's or empty, and is not used afterwards.
        unsafe { (self.functions.gss_release_buffer)(&raw mut minor, buffer) };
        bytes
    }

    /// Forgets a cache in memory, if there is one of that name.
    pub(super) fn destroy_cache(&self, name: &str) {
        let Ok(name) = CString::new(name) else {
            return;
        };
        self.with_krb5(|context| {
            let mut cache = null_mut();
            // SAFETY: the context is live; a resolved cache is given up by its destruction.
            unsafe {
                if (self.functions.krb5_cc_resolve)(context, name.as_ptr(), &raw mut cache) == 0 {
                    let _ = (self.functions.krb5_cc_destroy)(context, cache);
                }
            }
        });
    }

    pub(super) fn default_realm(&self) -> Result<String, GssError> {
        let found = self.with_krb5(|context| {
            let mut realm = null_mut();
            // SAFETY: the context is live; the text is copied before it is given back.
            unsafe {
                if (self.functions.krb5_get_default_realm)(context, &raw mut realm) != 0 {
                    return None;
                }
                let text = CStr::from_ptr(realm).to_string_lossy().into_owned();
                (self.functions.krb5_free_default_realm)(context, realm);
                Some(text)
            }
        });
        found.flatten().ok_or(GssError::NoRealm)
    }

    /// `None` when krb5.conf cannot be read.
    fn with_krb5<T>(&self, run: impl FnOnce(Handle) -> T) -> Option<T> {
        let mut context = null_mut();
        // SAFETY: the context is made here, used by one thread, and freed here.
        unsafe {
            if (self.functions.krb5_init_context)(&raw mut context) != 0 {
                return None;
            }
            let done = run(context);
            (self.functions.krb5_free_context)(context);
            Some(done)
        }
    }
}
