//! Why a token is not believed.

use hayloft_rpc::log_limit::words;
use hayloft_wire::block_token::TokenError;
use hayloft_wire::ids::ExtendedBlock;

/// Why a block token, or a key made of one, is not believed. No text holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// No NameNode has said yet whether tokens are on.
    #[error("no NameNode has told this node yet whether it checks block tokens")]
    Undecided,
    /// No NameNode of the pool has handed keys out.
    #[error("there are no keys of block tokens for the block pool {}", words(.0))]
    NoKeys(String),
    /// The identifier is no identifier.
    #[error("unable to de-serialize the block token: {0}")]
    Identifier(#[from] TokenError),
    /// The token is for another block.
    #[error(
        "the block token of {}:{id} does not apply to the block {wanted}",
        words(pool)
    )]
    OtherBlock {
        /// Pool that the token is for.
        pool: String,
        /// Block that it is for.
        id: i64,
        /// Block that was asked for.
        wanted: ExtendedBlock,
    },
    /// A caller whose connection was not opened with one block token.
    #[error("Can't continue since none or more than one BlockTokenIdentifier is found.")]
    NotProved,
    /// Its time is over.
    #[error("the block token expired {0} ms ago")]
    Expired(i64),
    /// It does not permit the operation.
    #[error("the block token does not have {0} permission")]
    Mode(&'static str),
    /// It is not for these storages.
    #[error("the block token with {what} [{has}] is not valid for access with {what} [{wanted}]")]
    Storage {
        /// `StorageTypes` or `StorageIDs`.
        what: &'static str,
        /// What the token has, at most a few.
        has: String,
        /// What was asked for, at most a few.
        wanted: String,
    },
    /// The key of its password is gone, or never was.
    #[error("can't re-compute the password: the required block key (keyID={0}) doesn't exist")]
    UnknownKey(i32),
    /// The password is not that of the identifier.
    #[error("the block token doesn't have the correct token password")]
    Password,
}

impl TokenRefused {
    /// Whether a stock client meets this in the normal course of things, and fetches a new token.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        matches!(self, Self::Expired(_) | Self::UnknownKey(_))
    }
}
