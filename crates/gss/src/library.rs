//! The shared object and its functions: the only unsafe code of this crate.
//!
//! Types and numbers are those of RFC 2744, of MIT's `gssapi_ext.h` and of `krb5.h`. The two kinds
//! of handles, [`Cred`] and [`Ctx`], own what the library gave and release it when they go.
#![expect(unsafe_code, reason = "calls a C library that is opened at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use super::error::GssError;

/// Soname of MIT's library, the same in Debian and in RHEL.
const NAME: &str = "libgssapi_krb5.so.2";

/// 1.2.840.113554.1.2.2, Kerberos version 5.
static KRB5: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
/// 1.2.840.113554.1.2.2.1, a principal's name as text: nothing is looked up in DNS.
static PRINCIPAL_NAME: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01";

const CONTINUE_NEEDED: u32 = 1;
const ERROR_MASK: u32 = 0xffff_0000;
/// Mutual, replay and sequence detection, confidentiality, integrity: what Java asks for.
const FLAGS: u32 = 2 | 4 | 8 | 16 | 32;
const INITIATE: c_int = 1;
const ACCEPT: c_int = 2;
const STATUS_GSS: c_int = 1;
const STATUS_MECH: c_int = 2;
/// Lines of one status that are read at most.
const STATUS_LINES: usize = 8;

type Handle = *mut c_void;

#[repr(C)]
struct Buffer {
    length: usize,
    value: *mut c_void,
}

impl Buffer {
    const EMPTY: Self = Self {
        length: 0,
        value: null_mut(),
    };

    /// What the library only reads.
    fn of(bytes: &[u8]) -> Self {
        Self {
            length: bytes.len(),
            value: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

#[repr(C)]
struct Oid {
    length: u32,
    elements: *mut c_void,
}

impl Oid {
    fn of(bytes: &'static [u8]) -> Self {
        Self {
            length: u32::try_from(bytes.len()).unwrap_or(0),
            elements: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

#[repr(C)]
struct OidSet {
    count: usize,
    elements: *mut Oid,
}

#[repr(C)]
struct KeyValue {
    key: *const c_char,
    value: *const c_char,
}

#[repr(C)]
struct KeyValueSet {
    count: u32,
    elements: *mut KeyValue,
}

/// Declares the table of functions, and how it is filled from the shared object.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
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
    functions: Functions,
}

/// Where credentials are looked for.
pub(super) enum Store<'a> {
    /// Tickets are got with a key of the keytab, and kept in the cache of this name.
    Keytab { keytab: &'a Path, cache: &'a str },
    /// Tickets that `kinit` got.
    Tickets,
    /// Keys with which callers are accepted.
    Accept { keytab: &'a Path },
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
    fn check(&self, what: &'static str, major: u32, minor: u32) -> Result<(), GssError> {
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
    fn take(&self, buffer: &mut Buffer) -> Vec<u8> {
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

    fn import(&'static self, principal: &str) -> Result<Name, GssError> {
        let (text, kind) = (Buffer::of(principal.as_bytes()), Oid::of(PRINCIPAL_NAME));
        let (mut minor, mut name) = (0, null_mut());
        // SAFETY: all pointers are to live locals; the name is owned by what is returned.
        let major = unsafe {
            (self.functions.gss_import_name)(
                &raw mut minor,
                &raw const text,
                &raw const kind,
                &raw mut name,
            )
        };
        let name = Name(self, name);
        self.check("reading the name of a principal", major, minor)?;
        Ok(name)
    }

    /// Finds credentials, of `principal` or of whom the store says.
    pub(super) fn acquire(
        &'static self,
        principal: Option<&str>,
        store: &Store<'_>,
    ) -> Result<Cred, GssError> {
        let name = principal
            .map(|principal| self.import(principal))
            .transpose()?;
        let (usage, pairs) = match store {
            Store::Keytab { keytab, cache } => {
                let pairs = vec![(c"client_keytab", path(keytab)?), (c"ccache", text(cache)?)];
                (INITIATE, pairs)
            }
            Store::Tickets => (INITIATE, Vec::new()),
            Store::Accept { keytab } => (ACCEPT, vec![(c"keytab", path(keytab)?)]),
        };
        let mut elements: Vec<KeyValue> = pairs
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        let set = KeyValueSet {
            count: u32::try_from(elements.len()).unwrap_or(0),
            elements: elements.as_mut_ptr(),
        };
        let mut oid = Oid::of(KRB5);
        let mechs = OidSet {
            count: 1,
            elements: &raw mut oid,
        };
        let store = if elements.is_empty() {
            null()
        } else {
            &raw const set
        };
        let handle = name.as_ref().map_or(null_mut(), |name| name.1);
        let (mut minor, mut cred) = (0, null_mut());
        // SAFETY: name, store and mechanisms live until the call returns, which copies them; the
        // credentials are owned by what is returned.
        let major = unsafe {
            (self.functions.gss_acquire_cred_from)(
                &raw mut minor,
                handle,
                u32::MAX,
                &raw const mechs,
                usage,
                store,
                &raw mut cred,
                null_mut(),
                null_mut(),
            )
        };
        let cred = Cred(self, cred);
        self.check("finding credentials", major, minor)?;
        Ok(cred)
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

fn text(text: &str) -> Result<CString, GssError> {
    CString::new(text).map_err(|_| GssError::ZeroByte)
}

fn path(path: &Path) -> Result<CString, GssError> {
    let mut named = b"FILE:".to_vec();
    named.extend_from_slice(path.as_os_str().as_bytes());
    CString::new(named).map_err(|_| GssError::ZeroByte)
}

/// An imported name.
struct Name(&'static Library, Handle);

// SAFETY: a name of the library never changes, and is tied to no thread.
unsafe impl Send for Name {}

impl Name {
    fn text(&self) -> Result<String, GssError> {
        let (mut minor, mut out) = (0, Buffer::EMPTY);
        // SAFETY: the name is live; `out` is taken over and released below.
        let major = unsafe {
            (self.0.functions.gss_display_name)(&raw mut minor, self.1, &raw mut out, null_mut())
        };
        let bytes = self.0.take(&mut out);
        self.0
            .check("showing the name of a principal", major, minor)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.1.is_null() {
            let mut minor = 0;
            // SAFETY: the name is ours and not used afterwards.
            unsafe { (self.0.functions.gss_release_name)(&raw mut minor, &raw mut self.1) };
        }
    }
}

/// Credentials.
pub(super) struct Cred(&'static Library, Handle);

// SAFETY: MIT's credentials have a lock of their own and are tied to no thread.
unsafe impl Send for Cred {}
// SAFETY: as above; every use takes that lock.
unsafe impl Sync for Cred {}

impl Cred {
    /// Whose they are, and for how many seconds. Gets the first ticket, if none is there.
    pub(super) fn inquire(&self) -> Result<(String, u32), GssError> {
        let (mut minor, mut name, mut seconds) = (0, null_mut(), 0);
        // SAFETY: the credentials are live; the name is owned by `name` below.
        let major = unsafe {
            (self.0.functions.gss_inquire_cred)(
                &raw mut minor,
                self.1,
                &raw mut name,
                &raw mut seconds,
                null_mut(),
                null_mut(),
            )
        };
        let name = Name(self.0, name);
        self.0.check("getting a ticket", major, minor)?;
        Ok((name.text()?, seconds))
    }
}

impl Drop for Cred {
    fn drop(&mut self) {
        if !self.1.is_null() {
            let mut minor = 0;
            // SAFETY: the credentials are ours and not used afterwards.
            unsafe { (self.0.functions.gss_release_cred)(&raw mut minor, &raw mut self.1) };
        }
    }
}

/// A security context, and the peer's name as far as it is known.
pub(super) struct Ctx {
    library: &'static Library,
    handle: Handle,
    target: Option<Name>,
    peer: Option<Name>,
}

// SAFETY: a context is tied to no thread, and every use of it here takes `&mut self`.
unsafe impl Send for Ctx {}

impl Ctx {
    /// One that will speak to `target`.
    pub(super) fn to(library: &'static Library, target: &str) -> Result<Self, GssError> {
        let mut ctx = Self::of_peer(library);
        ctx.target = Some(library.import(target)?);
        Ok(ctx)
    }

    /// One that waits for a peer to speak first.
    pub(super) fn of_peer(library: &'static Library) -> Self {
        Self {
            library,
            handle: null_mut(),
            target: None,
            peer: None,
        }
    }

    /// One step; the token to send and whether the context is complete.
    pub(super) fn step(&mut self, cred: &Cred, input: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        let input = Buffer::of(input);
        let (mut minor, mut out) = (0, Buffer::EMPTY);
        let (major, what) = if let Some(target) = &self.target {
            let mech = Oid::of(KRB5);
            // SAFETY: credentials, target and locals live; the context is this object's.
            let major = unsafe {
                (self.library.functions.gss_init_sec_context)(
                    &raw mut minor,
                    cred.1,
                    &raw mut self.handle,
                    target.1,
                    &raw const mech,
                    FLAGS,
                    0,
                    null(),
                    &raw const input,
                    null_mut(),
                    &raw mut out,
                    null_mut(),
                    null_mut(),
                )
            };
            (major, "proving who we are")
        } else {
            let mut peer = null_mut();
            // SAFETY: credentials and locals live; context and name are this object's.
            let major = unsafe {
                (self.library.functions.gss_accept_sec_context)(
                    &raw mut minor,
                    &raw mut self.handle,
                    cred.1,
                    &raw const input,
                    null(),
                    &raw mut peer,
                    null_mut(),
                    &raw mut out,
                    null_mut(),
                    null_mut(),
                    null_mut(),
                )
            };
            self.peer = (!peer.is_null()).then_some(Name(self.library, peer));
            (major, "accepting a caller")
        };
        let token = self.library.take(&mut out);
        self.library.check(what, major, minor)?;
        Ok((token, major & CONTINUE_NEEDED == 0))
    }

    /// Who called, once the context is complete.
    pub(super) fn peer(&self) -> Option<String> {
        self.peer.as_ref().and_then(|name| name.text().ok())
    }

    pub(super) fn wrap(&mut self, data: &[u8], secret: bool) -> Result<Vec<u8>, GssError> {
        self.complete()?;
        let input = Buffer::of(data);
        let (mut minor, mut out, mut is_secret) = (0, Buffer::EMPTY, 0);
        // SAFETY: the context is not null, see above; `out` is taken over and released below.
        let major = unsafe {
            (self.library.functions.gss_wrap)(
                &raw mut minor,
                self.handle,
                c_int::from(secret),
                0,
                &raw const input,
                &raw mut is_secret,
                &raw mut out,
            )
        };
        let wrapped = self.library.take(&mut out);
        self.library.check("wrapping a message", major, minor)?;
        if secret && is_secret == 0 {
            return Err(GssError::NotSecret);
        }
        Ok(wrapped)
    }

    /// What was wrapped, and whether it was encrypted.
    pub(super) fn unwrap(&mut self, data: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        self.complete()?;
        let input = Buffer::of(data);
        let (mut minor, mut out, mut is_secret) = (0, Buffer::EMPTY, 0);
        // SAFETY: the context is not null, see above; `out` is taken over and released below.
        let major = unsafe {
            (self.library.functions.gss_unwrap)(
                &raw mut minor,
                self.handle,
                &raw const input,
                &raw mut out,
                &raw mut is_secret,
                null_mut(),
            )
        };
        let plain = self.library.take(&mut out);
        self.library.check("unwrapping a message", major, minor)?;
        // A message again, or out of order: a TCP stream has neither by itself.
        if major != 0 {
            return Err(GssError::OutOfOrder);
        }
        Ok((plain, is_secret != 0))
    }

    /// Most bytes that wrapped are no more than `wrapped_max`.
    pub(super) fn size_limit(&mut self, secret: bool, wrapped_max: u32) -> Result<u32, GssError> {
        self.complete()?;
        let (mut minor, mut limit) = (0, 0);
        // SAFETY: the context is not null, see above; the other pointers are to live locals.
        let major = unsafe {
            (self.library.functions.gss_wrap_size_limit)(
                &raw mut minor,
                self.handle,
                c_int::from(secret),
                0,
                wrapped_max,
                &raw mut limit,
            )
        };
        self.library.check("asking for a limit", major, minor)?;
        Ok(limit)
    }

    fn complete(&self) -> Result<(), GssError> {
        if self.handle.is_null() {
            return Err(GssError::Incomplete);
        }
        Ok(())
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            let mut minor = 0;
            // SAFETY: the context is ours and not used afterwards; no last token is wanted.
            unsafe {
                (self.library.functions.gss_delete_sec_context)(
                    &raw mut minor,
                    &raw mut self.handle,
                    null_mut(),
                )
            };
        }
    }
}
