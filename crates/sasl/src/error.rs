//! Why a handshake or a message is refused.

/// Why the other side is not believed. No text holds a secret, nor more than a few characters of
/// what the other side sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaslError {
    /// A message of the handshake cannot be read, or lacks something.
    #[error("DIGEST-MD5: {0}")]
    Format(String),
    /// The password is not the user's.
    #[error("DIGEST-MD5: digest response format violation. Mismatched response.")]
    Password,
    /// A server does not know the password either.
    #[error("DIGEST-MD5: the server does not prove that it knows the password")]
    Server,
    /// The two sides accept no common protection.
    #[error("DIGEST-MD5: no common protection: {0}")]
    NothingCommon(String),
    /// A message behind the handshake was changed on its way, or comes out of order.
    #[error("a protected message is not what its sender sent")]
    Message,
}

impl SaslError {
    pub(crate) fn format(text: impl Into<String>) -> Self {
        Self::Format(text.into())
    }
}
