//! Who is who, and what is allowed: block tokens, users and their groups.
//!
//! A NameNode gives clients a token for each block that they may read or write. This node checks
//! it with keys that the NameNode handed out, and makes tokens of its own where it is the client
//! of another node.
//!
//! - `access_list`: users and groups who may do something
//! - `access`: what a request asks for, held against what a token permits
//! - `algorithm`: the function that makes passwords of identifiers
//! - `block_keys`: the keys of one block pool
//! - `block_tokens`: the tokens of all block pools of a node
//! - `groups`, `short_names`: the groups of users, and how users are called
//! - `host_list`: hosts from which something may be done
//! - `passwords`: what the holder of a token or of a key has to prove
//! - `refused`: why a token is not believed
//! - `secret`: bytes that no log shows
//!
//! Whether tokens are on, the NameNode says, not the node's own file: the first one that registers
//! the node decides. Until then every request is refused, and a NameNode that says otherwise later
//! is not served. The user that a token names is not checked, as in Apache's node.
//!
//! SASL connections ask for the passwords of what a peer names:
//! [`BlockTokens::token_password`] for a block token, and
//! [`BlockTokens::encryption_password`] for a key of encrypted data transfer.

mod access;
mod access_list;
mod algorithm;
mod block_keys;
mod block_tokens;
mod groups;
mod host_list;
mod passwords;
mod refused;
mod secret;
mod short_names;
#[cfg(test)]
mod tests;

pub use access::Access;
pub(crate) use access_list::AccessList;
pub use algorithm::TokenSettings;
pub use block_keys::BlockKeysOfPool;
pub use block_tokens::{BlockTokens, Disagreement};
pub(crate) use groups::UserGroups;
pub(crate) use host_list::{FoundHosts, HostList};
pub use passwords::{DataEncryptionKey, TokenPassword};
pub use refused::TokenRefused;
pub use secret::Secret;
pub(crate) use short_names::ShortNames;
