//! The exchange with one peer, and what is wrapped after it.

use std::sync::Arc;

use super::credentials::GssCredentials;
use super::error::GssError;
use super::handles::Ctx;
use super::library::Library;

/// What a step of the exchange gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GssStep {
    /// What the peer has to get; may be empty.
    pub token: Vec<u8>,
    /// Whether both sides are sure of each other now.
    pub complete: bool,
}

/// A security context with one peer: the exchange of tokens, then wrapped messages. Messages have
/// numbers: they have to be unwrapped in the order in which the peer wrapped them.
pub struct GssContext {
    ctx: Ctx,
    credentials: Arc<GssCredentials>,
}

impl GssContext {
    /// One with the principal `target`, which is taken as it stands: nothing is looked up in DNS.
    ///
    /// # Errors
    /// The name is none.
    pub fn to(credentials: Arc<GssCredentials>, target: &str) -> Result<Self, GssError> {
        let ctx = Ctx::to(Library::get()?, target)?;
        Ok(Self { ctx, credentials })
    }

    /// One with the caller that speaks first.
    ///
    /// # Errors
    /// The library is missing.
    pub fn from_caller(credentials: Arc<GssCredentials>) -> Result<Self, GssError> {
        let ctx = Ctx::of_peer(Library::get()?);
        Ok(Self { ctx, credentials })
    }

    /// Takes in the peer's token (empty at the caller's first step). The first step asks the KDC
    /// for a ticket, which may take many seconds.
    ///
    /// # Errors
    /// The KDC refuses or does not answer; the peer is not whom it has to be.
    pub fn step(&mut self, input: &[u8]) -> Result<GssStep, GssError> {
        let (token, complete) = self.ctx.step(self.credentials.cred(), input)?;
        Ok(GssStep { token, complete })
    }

    /// Who called, with the realm; `None` before the exchange is complete, and for callers.
    #[must_use]
    pub fn caller(&self) -> Option<String> {
        self.ctx.peer()
    }

    /// Which principal the caller called, with the realm.
    ///
    /// # Errors
    /// The exchange is not complete.
    pub fn called(&self) -> Result<String, GssError> {
        self.ctx.called()
    }

    /// Whether the two sides agreed on what wrapped messages need: none is changed, left out or
    /// repeated without notice, and with `secret` none is read by others.
    ///
    /// # Errors
    /// [`GssError::Unprotected`].
    pub fn protects(&self, secret: bool) -> Result<(), GssError> {
        self.ctx.protects(secret)
    }

    /// Protects `data` against change; with `secret` encrypts it, too.
    ///
    /// # Errors
    /// The exchange is not complete, or the context has run out.
    pub fn wrap(&mut self, data: &[u8], secret: bool) -> Result<Vec<u8>, GssError> {
        self.ctx.wrap(data, secret)
    }

    /// What the peer wrapped, and whether it was encrypted.
    ///
    /// # Errors
    /// It was changed on the way, comes again or out of order.
    pub fn unwrap(&mut self, data: &[u8]) -> Result<(Vec<u8>, bool), GssError> {
        self.ctx.unwrap(data)
    }

    /// Most bytes that are no more than `wrapped_max` bytes when they are wrapped.
    ///
    /// # Errors
    /// The exchange is not complete.
    pub fn plain_max(&mut self, secret: bool, wrapped_max: u32) -> Result<u32, GssError> {
        self.ctx.size_limit(secret, wrapped_max)
    }
}

impl std::fmt::Debug for GssContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GssContext(of {})", self.credentials.principal())
    }
}
