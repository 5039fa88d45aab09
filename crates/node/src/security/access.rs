//! What a request asks for, held against what a token permits.

use hayloft_wire::block_token::{AccessMode, BlockTokenIdentifier};
use hayloft_wire::ids::{ExtendedBlock, StorageType};

use super::refused::TokenRefused;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What it does with the block.
    pub mode: AccessMode,
    /// Types of the storages that it writes to, one a node; empty: not checked.
    pub storage_types: Vec<StorageType>,
    /// Ids of these storages; empty: not checked.
    pub storage_ids: Vec<String>,
}

impl Access {
    /// An operation that names no storage.
    #[must_use]
    pub fn to(mode: AccessMode) -> Self {
        Self {
            mode,
            storage_types: Vec::new(),
            storage_ids: Vec::new(),
        }
    }

    /// Checks all that an identifier says: block, time, mode, storages. Its password is not looked
    /// at.
    ///
    /// # Errors
    /// What it does not permit.
    pub(super) fn check(
        &self,
        token: &BlockTokenIdentifier,
        block: &ExtendedBlock,
        now_millis: i64,
    ) -> Result<(), TokenRefused> {
        if !token.is_for(&block.pool, block.block.id) {
            return Err(TokenRefused::OtherBlock {
                pool: token.pool.clone(),
                id: token.block_id,
                wanted: block.clone(),
            });
        }
        not_expired(token, now_millis)?;
        if !token.allows(self.mode) {
            return Err(TokenRefused::Mode(self.mode.name()));
        }
        included("StorageTypes", &token.storage_types, &self.storage_types)?;
        included("StorageIDs", &token.storage_ids, &self.storage_ids)
    }
}

/// Checks the time of a token.
pub(super) fn not_expired(
    token: &BlockTokenIdentifier,
    now_millis: i64,
) -> Result<(), TokenRefused> {
    let over = now_millis.saturating_sub(token.expiry_millis);
    if over > 0 {
        return Err(TokenRefused::Expired(over));
    }
    Ok(())
}

/// Each element of `wanted` needs one of its own in `has`. An empty list on either side allows all,
/// as in Apache's node. Lists of tokens and of requests have limits.
fn included<T: PartialEq + std::fmt::Debug>(
    what: &'static str,
    has: &[T],
    wanted: &[T],
) -> Result<(), TokenRefused> {
    if has.is_empty() {
        return Ok(());
    }
    let mut left: Vec<&T> = has.iter().collect();
    for one in wanted {
        let Some(at) = left.iter().position(|there| *there == one) else {
            return Err(TokenRefused::Storage {
                what,
                has: listed(has),
                wanted: listed(wanted),
            });
        };
        left.swap_remove(at);
    }
    Ok(())
}

/// The first few elements, each cut: a peer chose them.
fn listed<T: std::fmt::Debug>(all: &[T]) -> String {
    let texts = all.iter().take(4).map(|one| {
        let text = format!("{one:?}");
        text.chars().take(64).collect::<String>()
    });
    texts.collect::<Vec<_>>().join(", ")
}
