//! The keys of one block pool: taken from its NameNodes, used for passwords.

use std::collections::HashMap;
use std::fmt;
use std::sync::RwLock;

use bytes::Bytes;
use hayloft_conf::KeyGenerator;
use hayloft_io::locks::{read, write};
use hayloft_wire::block_token::{BLOCK_TOKEN_KIND, BlockTokenIdentifier};
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::limits::{MAX_BLOCK_KEY_BYTES, MAX_BLOCK_KEYS};
use hayloft_wire::proto::hdfs_server::{BlockKey, ExportedBlockKeys};
use hayloft_wire::proto::security::Token;

use super::access::{Access, not_expired};
use super::algorithm::{self, TokenSettings};
use super::passwords::{DataEncryptionKey, TokenPassword};
use super::refused::TokenRefused;
use super::secret::Secret;

/// The keys of one block pool.
pub struct BlockKeysOfPool {
    pool: PoolId,
    ring: RwLock<KeyRing>,
}

/// The keys, and what was said with them.
#[derive(Default)]
struct KeyRing {
    /// Number of the key that makes new passwords.
    current: Option<i32>,
    /// Every key that checks passwords, by its number.
    keys: HashMap<i32, HeldKey>,
    /// How long a token that is made here lives, in milliseconds.
    lifetime_millis: i64,
}

struct HeldKey {
    secret: Secret,
    expiry_millis: i64,
}

impl fmt::Debug for BlockKeysOfPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockKeysOfPool({})", self.pool)
    }
}

impl BlockKeysOfPool {
    /// A pool without keys: nothing passes.
    #[must_use]
    pub fn new(pool: PoolId) -> Self {
        Self {
            pool,
            ring: RwLock::default(),
        }
    }

    /// Takes in what a NameNode handed out. Keys whose time is over are dropped. The key for new
    /// passwords is taken from the active NameNode, or from any while there is none: nodes of a
    /// standby may not know what this one would sign with its key.
    ///
    /// # Errors
    /// The NameNode hands out more, or longer, keys than any does. Nothing is taken then.
    pub fn merge(
        &self,
        handed: &ExportedBlockKeys,
        from_active: bool,
        now_millis: i64,
    ) -> Result<(), String> {
        let all = || handed.all_keys.iter().chain([&handed.current_key]);
        if handed.all_keys.len() > MAX_BLOCK_KEYS {
            return Err(format!(
                "{} keys of block tokens at a time; at most {MAX_BLOCK_KEYS} are taken",
                handed.all_keys.len()
            ));
        }
        if let Some(long) = all().find(|key| bytes_of(key).len() > MAX_BLOCK_KEY_BYTES) {
            return Err(format!(
                "a key of block tokens of {} bytes; at most {MAX_BLOCK_KEY_BYTES} are taken",
                bytes_of(long).len()
            ));
        }
        let mut ring = write(&self.ring);
        ring.keys.retain(|_, key| key.expiry_millis >= now_millis);
        for key in all() {
            // What an empty key signs, everyone can.
            if !bytes_of(key).is_empty() {
                ring.keys.insert(key.key_id.cast_signed(), HeldKey::of(key));
            }
        }
        let has_current = ring.current.is_some_and(|id| ring.keys.contains_key(&id));
        let current = &handed.current_key;
        if (from_active || !has_current) && !bytes_of(current).is_empty() {
            ring.current = Some(current.key_id.cast_signed());
        }
        ring.bound();
        ring.lifetime_millis = i64::try_from(handed.token_life_time).unwrap_or(i64::MAX);
        Ok(())
    }

    /// How many keys there are.
    #[must_use]
    pub fn count(&self) -> usize {
        read(&self.ring).keys.len()
    }

    /// Checks a token for what is asked of `block`.
    pub(super) fn check(
        &self,
        algorithm: KeyGenerator,
        token: &Token,
        block: &ExtendedBlock,
        access: &Access,
        now_millis: i64,
    ) -> Result<(), TokenRefused> {
        let identifier = BlockTokenIdentifier::decode(&token.identifier)?;
        access.check(&identifier, block, now_millis)?;
        let ring = read(&self.ring);
        let key = ring.key(identifier.key_id)?;
        // Over the bytes as they came: the same identifier can be written in several ways.
        if algorithm::verify(algorithm, key, &token.identifier, &token.password) {
            return Ok(());
        }
        Err(TokenRefused::Password)
    }

    /// The password of the identifier `bytes`, which decode to `identifier`.
    pub(super) fn password_of(
        &self,
        algorithm: KeyGenerator,
        bytes: &[u8],
        identifier: BlockTokenIdentifier,
        now_millis: i64,
    ) -> Result<TokenPassword, TokenRefused> {
        not_expired(&identifier, now_millis)?;
        let ring = read(&self.ring);
        let password = algorithm::sign(algorithm, ring.key(identifier.key_id)?, bytes);
        Ok(TokenPassword {
            identifier,
            password,
        })
    }

    /// Makes a token for `access` to a block of this pool.
    pub(super) fn make(
        &self,
        settings: &TokenSettings,
        block: &ExtendedBlock,
        access: Access,
        now_millis: i64,
    ) -> Result<Token, TokenRefused> {
        let ring = read(&self.ring);
        let (key_id, key) = ring.current(&self.pool)?;
        let identifier = BlockTokenIdentifier {
            expiry_millis: now_millis.saturating_add(ring.lifetime_millis),
            key_id,
            user: Some(settings.user.clone()),
            pool: self.pool.as_str().to_owned(),
            block_id: block.block.id,
            modes: vec![access.mode],
            storage_types: access.storage_types,
            storage_ids: access.storage_ids,
            handshake_secret: Bytes::new(),
        };
        let identifier = if settings.protobuf {
            identifier.encode_protobuf()
        } else {
            identifier.encode_legacy()
        };
        let password = algorithm::sign(settings.algorithm, key, &identifier);
        Ok(Token {
            password: Bytes::copy_from_slice(password.expose()),
            identifier,
            kind: BLOCK_TOKEN_KIND.to_owned(),
            service: String::new(),
        })
    }

    /// A new key of encrypted data transfer; `None` without a key to make it with.
    pub(super) fn data_encryption_key(
        &self,
        algorithm: KeyGenerator,
        now_millis: i64,
    ) -> Option<DataEncryptionKey> {
        let ring = read(&self.ring);
        let (key_id, key) = ring.current(&self.pool).ok()?;
        let nonce: [u8; 8] = rand::random();
        Some(DataEncryptionKey {
            key_id,
            pool: self.pool.clone(),
            nonce,
            key: algorithm::sign(algorithm, key, &nonce),
            expiry_millis: now_millis.saturating_add(ring.lifetime_millis),
        })
    }

    /// The key of encrypted data transfer that was made with the block key `key_id` of `nonce`.
    pub(super) fn encryption_password(
        &self,
        algorithm: KeyGenerator,
        key_id: i32,
        nonce: &[u8],
    ) -> Result<Secret, TokenRefused> {
        let ring = read(&self.ring);
        Ok(algorithm::sign(algorithm, ring.key(key_id)?, nonce))
    }
}

impl KeyRing {
    fn key(&self, id: i32) -> Result<&Secret, TokenRefused> {
        let key = self.keys.get(&id).map(|key| &key.secret);
        key.ok_or(TokenRefused::UnknownKey(id))
    }

    fn current(&self, pool: &PoolId) -> Result<(i32, &Secret), TokenRefused> {
        let id = self.current;
        let id = id.ok_or_else(|| TokenRefused::NoKeys(pool.as_str().to_owned()))?;
        Ok((id, self.key(id)?))
    }

    /// Several NameNodes of a pool hand out keys of their own: those that end first go, when all
    /// together are too many.
    fn bound(&mut self) {
        while self.keys.len() > 2 * MAX_BLOCK_KEYS {
            let others = self
                .keys
                .iter()
                .filter(|(id, _)| Some(**id) != self.current);
            let Some(first) = others.min_by_key(|(_, key)| key.expiry_millis) else {
                return;
            };
            let first = *first.0;
            self.keys.remove(&first);
        }
    }
}

impl HeldKey {
    fn of(key: &BlockKey) -> Self {
        Self {
            secret: Secret::copied_from(bytes_of(key)),
            expiry_millis: key.expiry_date.cast_signed(),
        }
    }
}

fn bytes_of(key: &BlockKey) -> &[u8] {
    key.key_bytes.as_deref().unwrap_or_default()
}
