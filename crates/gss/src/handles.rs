//! What the library gives out: names, credentials, contexts. Each owns its handle and releases it
//! when it goes.
#![expect(unsafe_code, reason = "passes pointers to a C library")]

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{null, null_mut};

use super::error::GssError;
use super::library::{Buffer, Handle, KRB5, KeyValue, KeyValueSet, Library, Oid, OidSet, SPNEGO};

const CONTINUE_NEEDED: u32 = 1;
/// The server proves who it is, too.
const MUTUAL: u32 = 2;
/// A message that comes again or out of order is noticed.
const IN_ORDER: u32 = 4 | 8;
const SECRET: u32 = 16;
const INTEGRITY: u32 = 32;
/// What Java asks for.
const FLAGS: u32 = MUTUAL | IN_ORDER | SECRET | INTEGRITY;
const INITIATE: c_int = 1;
const ACCEPT: c_int = 2;
/// 1.2.840.113554.1.2.2.1, a principal's name as text: nothing is looked up in DNS.
static PRINCIPAL_NAME: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01";

/// Where credentials are looked for.
pub(super) enum Store<'a> {
    /// Tickets are got with a key of the keytab, and kept in the cache of this name.
    Keytab { keytab: &'a Path, cache: &'a str },
    /// Tickets that `kinit` got.
    Tickets,
    /// Keys with which callers are accepted.
    Accept { keytab: &'a Path },
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
    fn import(library: &'static Library, principal: &str) -> Result<Self, GssError> {
        let (text, kind) = (Buffer::of(principal.as_bytes()), Oid::of(PRINCIPAL_NAME));
        let (mut minor, mut name) = (0, null_mut());
        // SAFETY: all pointers are to live locals; the name is owned by what is returned.
        let major = unsafe {
            (library.functions.gss_import_name)(
                &raw mut minor,
                &raw const text,
                &raw const kind,
                &raw mut name,
            )
        };
        let name = Self(library, name);
        library.check("reading the name of a principal", major, minor)?;
        Ok(name)
    }

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
    /// Finds credentials, of `principal` or of whom the store says.
    pub(super) fn acquire(
        library: &'static Library,
        principal: Option<&str>,
        store: &Store<'_>,
    ) -> Result<Self, GssError> {
        let name = principal
            .map(|principal| Name::import(library, principal))
            .transpose()?;
        // Callers of the web port agree on Kerberos by SPNEGO; RPC names it itself.
        let by_spnego = principal.is_none() && matches!(store, Store::Accept { .. });
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
        let mut oids = [Oid::of(KRB5), Oid::of(SPNEGO)];
        let mechs = OidSet {
            count: if by_spnego { 2 } else { 1 },
            elements: oids.as_mut_ptr(),
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
            (library.functions.gss_acquire_cred_from)(
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
        let cred = Self(library, cred);
        library.check("finding credentials", major, minor)?;
        Ok(cred)
    }

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
    /// What the context gives, once it is complete.
    flags: u32,
}

// SAFETY: a context is tied to no thread, and every use of it here takes `&mut self`.
unsafe impl Send for Ctx {}

impl Ctx {
    /// One that will speak to `target`.
    pub(super) fn to(library: &'static Library, target: &str) -> Result<Self, GssError> {
        let mut ctx = Self::of_peer(library);
        ctx.target = Some(Name::import(library, target)?);
        Ok(ctx)
    }

    /// One that waits for a peer to speak first.
    pub(super) fn of_peer(library: &'static Library) -> Self {
        Self {
            library,
            handle: null_mut(),
            target: None,
            peer: None,
            flags: 0,
        }
    }

    /// One step; the token to send and whether the context is complete.
    pub(super) fn step(&mut self, cred: &Cred, input: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        let input = Buffer::of(input);
        let (mut minor, mut out, mut flags) = (0, Buffer::EMPTY, 0);
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
                    &raw mut flags,
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
                    &raw mut flags,
                    null_mut(),
                    null_mut(),
                )
            };
            self.peer = (!peer.is_null()).then_some(Name(self.library, peer));
            (major, "accepting a caller")
        };
        let token = self.library.take(&mut out);
        self.library.check(what, major, minor)?;
        let complete = major & CONTINUE_NEEDED == 0;
        if complete {
            self.flags = flags;
            if self.target.is_some() && flags & MUTUAL == 0 {
                return Err(GssError::Unprotected);
            }
        }
        Ok((token, complete))
    }

    /// Whether what is wrapped cannot be changed, left out or repeated; with `secret` nor read.
    pub(super) fn protects(&self, secret: bool) -> Result<(), GssError> {
        protects(self.flags, secret)
    }

    /// Who called, once the context is complete.
    pub(super) fn peer(&self) -> Option<String> {
        self.peer.as_ref().and_then(|name| name.text().ok())
    }

    /// The principal that the peer called, once the context is complete.
    pub(super) fn called(&self) -> Result<String, GssError> {
        self.complete()?;
        let (mut minor, mut name) = (0, null_mut());
        // SAFETY: the context is not null, see above; the name is owned by `name` below.
        let major = unsafe {
            (self.library.functions.gss_inquire_context)(
                &raw mut minor,
                self.handle,
                null_mut(),
                &raw mut name,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        let name = Name(self.library, name);
        self.library.check("asking who was called", major, minor)?;
        if name.1.is_null() {
            return Err(GssError::Incomplete);
        }
        name.text()
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

fn protects(flags: u32, secret: bool) -> Result<(), GssError> {
    let wanted = IN_ORDER | INTEGRITY | if secret { SECRET } else { 0 };
    if flags & wanted == wanted {
        return Ok(());
    }
    Err(GssError::Unprotected)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_layer_needs_is_demanded() {
        assert_eq!(protects(FLAGS, true), Ok(()));
        assert_eq!(protects(FLAGS & !SECRET & !MUTUAL, false), Ok(()));
        assert_eq!(protects(FLAGS & !SECRET, true), Err(GssError::Unprotected));
        for missing in [4, 8, INTEGRITY] {
            let weak = protects(FLAGS & !missing, false);
            assert_eq!(weak, Err(GssError::Unprotected), "{missing}");
        }
    }
}
