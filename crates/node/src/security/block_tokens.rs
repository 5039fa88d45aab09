//! The block tokens of a node: on or off, and the keys of all its block pools.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use hayloft_io::locks::{read, write};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs_server::ExportedBlockKeys;
use hayloft_wire::proto::security::Token;

use super::access::Access;
use super::algorithm::TokenSettings;
use super::block_keys::BlockKeysOfPool;
use super::passwords::{DataEncryptionKey, TokenPassword};
use super::refused::TokenRefused;

const UNDECIDED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// A NameNode says of block tokens what the first one of this node did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// It has tokens on, and the node checks none.
    On,
    /// It has tokens off, and the node checks them.
    Off,
}

/// The block tokens of one node; clones are the same. Each virtual node has its own.
#[derive(Clone)]
pub struct BlockTokens(Arc<Inner>);

struct Inner {
    settings: TokenSettings,
    /// [`UNDECIDED`], [`OFF`] or [`ON`]; decided once.
    state: AtomicU8,
    pools: RwLock<HashMap<PoolId, Arc<BlockKeysOfPool>>>,
}

impl fmt::Debug for BlockTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockTokens(on: {})", self.are_on())
    }
}

impl BlockTokens {
    /// Nothing is decided yet, and nothing passes.
    #[must_use]
    pub fn new(settings: TokenSettings) -> Self {
        Self(Arc::new(Inner {
            settings,
            state: AtomicU8::new(UNDECIDED),
            pools: RwLock::default(),
        }))
    }

    /// A NameNode says whether tokens are on. The first one decides for the life of the node; the
    /// others have to agree, as with Apache's node.
    ///
    /// # Errors
    /// It says otherwise than the first one.
    pub fn agree(&self, on: bool) -> Result<(), Disagreement> {
        let said = if on { ON } else { OFF };
        let decided =
            self.0
                .state
                .compare_exchange(UNDECIDED, said, Ordering::AcqRel, Ordering::Acquire);
        match decided {
            Err(known) if known != said => Err(match on {
                true => Disagreement::On,
                false => Disagreement::Off,
            }),
            _ => Ok(()),
        }
    }

    /// Whether tokens are checked.
    #[must_use]
    pub fn are_on(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == ON
    }

    /// Whether it is decided that no tokens are checked.
    #[must_use]
    pub fn are_off(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == OFF
    }

    /// Takes in the keys that a NameNode of the pool handed out; see
    /// [`BlockKeysOfPool::merge`]. How many the pool has then.
    ///
    /// # Errors
    /// The keys pass all limits; nothing is taken.
    pub fn take_keys(
        &self,
        pool: &PoolId,
        handed: &ExportedBlockKeys,
        from_active: bool,
    ) -> Result<usize, String> {
        let keys = {
            let mut pools = write(&self.0.pools);
            let new = || Arc::new(BlockKeysOfPool::new(pool.clone()));
            Arc::clone(pools.entry(pool.clone()).or_insert_with(new))
        };
        keys.merge(handed, from_active, now_millis())?;
        Ok(keys.count())
    }

    /// Forgets the keys of a pool that is no longer served.
    pub fn forget(&self, pool: &PoolId) {
        write(&self.0.pools).remove(pool);
    }

    fn keys(&self, pool: &str) -> Result<Arc<BlockKeysOfPool>, TokenRefused> {
        let pools = read(&self.0.pools);
        let known = pools.iter().find(|(known, _)| known.as_str() == pool);
        let known = known.map(|(_, keys)| Arc::clone(keys));
        known.ok_or_else(|| TokenRefused::NoKeys(pool.chars().take(128).collect()))
    }

    /// Checks the token of a request, if tokens are on; a request without one has an empty one.
    ///
    /// # Errors
    /// The token does not permit it, or nothing is decided yet.
    pub fn check(
        &self,
        token: Option<&Token>,
        block: &ExtendedBlock,
        access: &Access,
    ) -> Result<(), TokenRefused> {
        match self.0.state.load(Ordering::Acquire) {
            OFF => return Ok(()),
            ON => {}
            _ => return Err(TokenRefused::Undecided),
        }
        let algorithm = self.0.settings.algorithm;
        let keys = self.keys(block.pool.as_str())?;
        let none = Token::default();
        keys.check(
            algorithm,
            token.unwrap_or(&none),
            block,
            access,
            now_millis(),
        )
    }

    /// Checks the identifier whose password the peer of a connection has proved, where one is
    /// needed: on RPC connections that SASL opened. `None`: the peer has proved none.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_proved(
        &self,
        identifier: Option<&BlockTokenIdentifier>,
        block: &ExtendedBlock,
        access: &Access,
    ) -> Result<(), TokenRefused> {
        match self.0.state.load(Ordering::Acquire) {
            OFF => Ok(()),
            ON => {
                let identifier = identifier.ok_or(TokenRefused::NotProved)?;
                access.check(identifier, block, now_millis())
            }
            _ => Err(TokenRefused::Undecided),
        }
    }

    /// A token for a request of this node to another; an empty one where tokens are off.
    ///
    /// # Errors
    /// There is no key to make it with.
    pub fn make(&self, block: &ExtendedBlock, access: Access) -> Result<Token, TokenRefused> {
        if !self.are_on() {
            return Ok(Token::default());
        }
        let keys = self.keys(block.pool.as_str())?;
        keys.make(&self.0.settings, block, access, now_millis())
    }

    /// The password of a token by its identifier, of any pool of this node: what its holder has to
    /// prove that it knows (SASL). Both forms are read.
    ///
    /// # Errors
    /// It is no identifier, its time is over, or its key is not here.
    pub fn token_password(&self, identifier: &[u8]) -> Result<TokenPassword, TokenRefused> {
        let decoded = BlockTokenIdentifier::decode(&Bytes::copy_from_slice(identifier))?;
        let keys = self.keys(&decoded.pool)?;
        let algorithm = self.0.settings.algorithm;
        keys.password_of(algorithm, identifier, decoded, now_millis())
    }

    /// A new key for encrypted data transfer with a node that serves the pool; `None` where no
    /// NameNode has handed keys out.
    #[must_use]
    pub fn data_encryption_key(&self, pool: &PoolId) -> Option<DataEncryptionKey> {
        let keys = self.keys(pool.as_str()).ok()?;
        keys.data_encryption_key(self.0.settings.algorithm, now_millis())
    }

    /// The key of encrypted data transfer that a peer names by its block key and nonce. Its
    /// bytes are a secret: wipe them when they are used.
    ///
    /// # Errors
    /// The block key is not here (`ERROR_UNKNOWN_KEY` on the wire).
    pub fn encryption_password(
        &self,
        pool: &str,
        key_id: i32,
        nonce: &[u8],
    ) -> Result<Vec<u8>, TokenRefused> {
        let keys = self.keys(pool)?;
        let secret = keys.encryption_password(self.0.settings.algorithm, key_id, nonce)?;
        Ok(secret.expose().to_vec())
    }
}

fn now_millis() -> i64 {
    i64::try_from(hayloft_store::now_ms()).unwrap_or(i64::MAX)
}
