//! The key of encrypted data transfer that a NameNode gives to a user.
//!
//! With it connections to the data transfer ports of that NameNode's nodes are opened. Each client
//! asks for one of its own when it first needs one, and for another when that has run out.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hayloft_wire::encryption_user::EncryptionUser;
use hayloft_wire::limits::{MAX_BLOCK_KEY_BYTES, MAX_POOL_ID_BYTES};
use hayloft_wire::proto::client::{GetDataEncryptionKeyRequest, GetDataEncryptionKeyResponse};
use hayloft_wire::proto::security::UserEncryptionKey;

use super::error::FileError;
use super::prove_to_node::NodeCredential;
use super::{FileClient, Repeat};

/// A key, and as whom its holder comes.
#[derive(Clone)]
pub(super) struct TransferKey {
    /// Number, pool and nonce.
    user: String,
    key: Bytes,
    /// Milliseconds since the epoch.
    expires: u64,
}

impl TransferKey {
    /// What a node is told.
    pub(super) fn credential(&self) -> NodeCredential<'_> {
        NodeCredential::EncryptionKey {
            user: &self.user,
            key: &self.key,
        }
    }

    fn of(given: UserEncryptionKey) -> Result<Self, FileError> {
        let fits = given.block_pool_id.len() <= MAX_POOL_ID_BYTES
            && given.nonce.len() <= MAX_BLOCK_KEY_BYTES
            && given.encryption_key.len() <= MAX_BLOCK_KEY_BYTES;
        if !fits {
            return Err(FileError::failed(
                "the NameNode gave a key of encrypted data transfer that is too long",
            ));
        }
        let named = EncryptionUser {
            key_id: given.key_id.cast_signed(),
            pool: &given.block_pool_id,
            nonce: given.nonce.to_vec(),
        };
        Ok(Self {
            user: named.to_string(),
            key: given.encryption_key,
            expires: given.expiry_date,
        })
    }

    fn is_good(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_millis());
        now < u128::from(self.expires)
    }
}

impl std::fmt::Debug for TransferKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TransferKey(until {})", self.expires)
    }
}

impl FileClient {
    /// The user's key, asked for when there is none that is good.
    pub(super) async fn transfer_key(&self) -> Result<TransferKey, FileError> {
        // Held meanwhile: one answer serves all connections of the client.
        let mut known = self.key.lock().await;
        if let Some(key) = known.as_ref().filter(|key| key.is_good()) {
            return Ok(key.clone());
        }
        let request = GetDataEncryptionKeyRequest {};
        let answer: GetDataEncryptionKeyResponse = self
            .namenodes
            .call("getDataEncryptionKey", &request, Repeat::Harmless)
            .await?;
        let given = answer.data_encryption_key.ok_or_else(|| {
            FileError::failed(
                "dfs.encrypt.data.transfer is on here and off at the NameNode, which gives no key: \
                 set the same at both",
            )
        })?;
        let key = TransferKey::of(given)?;
        *known = Some(key.clone());
        Ok(key)
    }

    /// The next connection asks for a key anew.
    pub(super) async fn forget_transfer_key(&self) {
        *self.key.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> UserEncryptionKey {
        UserEncryptionKey {
            key_id: u32::MAX,
            block_pool_id: "BP-1".to_owned(),
            nonce: Bytes::from_static(b"nonce"),
            encryption_key: Bytes::from_static(b"secret"),
            expiry_date: u64::MAX,
            encryption_algorithm: None,
        }
    }

    #[test]
    fn a_key_names_its_holder_as_hadoop_does() {
        let key = TransferKey::of(given()).expect("it fits");
        assert_eq!(key.user, "-1 BP-1 bm9uY2U=");
        assert!(key.is_good());
        assert_eq!(
            format!("{key:?}"),
            format!("TransferKey(until {})", u64::MAX)
        );
        assert!(!format!("{:?}", given()).contains("secret"));
        let past = UserEncryptionKey {
            expiry_date: 1,
            ..given()
        };
        assert!(!TransferKey::of(past).expect("it fits").is_good());
    }

    #[test]
    fn a_key_that_is_too_long_is_refused() {
        let long = UserEncryptionKey {
            nonce: vec![0; MAX_BLOCK_KEY_BYTES + 1].into(),
            ..given()
        };
        TransferKey::of(long).expect_err("too long");
    }
}
