//! Callers who prove that they hold a block token (SASL's TOKEN, by DIGEST-MD5).
//!
//! Stock clients that read a file which is still written come so, with Kerberos and without: they
//! ask for the length of its last block. The challenge comes with the offer, and one answer ends
//! the exchange.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_sasl::{DigestOffer, DigestServer, LayerCipher, SaslQuality, from_base64, to_base64};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::rpc::{RpcErrorCode, SaslAuth, names};
use zeroize::Zeroizing;

use super::exchange::Proven;
use super::fault::{RpcFault, java};
use crate::security::{RpcQuality, Wrapping, in_digest};

/// Name of this way to prove who one is.
pub(super) const METHOD: &str = "TOKEN";
/// What Java's callers name as the server, which is its realm, too.
const SERVER: &str = "default";

/// What the holder of a token has to know.
pub trait TokenPasswords: Send + Sync {
    /// What `identifier` says, and the password that belongs to it.
    ///
    /// # Errors
    /// Why it is not believed, for the caller and the log.
    fn password_of(
        &self,
        identifier: &[u8],
    ) -> Result<(BlockTokenIdentifier, Zeroizing<Vec<u8>>), String>;
}

/// With what holders of tokens are authenticated.
#[derive(Clone)]
pub struct RpcTokens {
    /// The passwords.
    pub passwords: Arc<dyn TokenPasswords>,
    /// What may protect the bytes (`hadoop.rpc.protection`); not empty.
    pub qualities: Arc<[RpcQuality]>,
}

impl std::fmt::Debug for RpcTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RpcTokens({:?})", self.qualities)
    }
}

/// A challenge that one answer fits.
#[derive(Debug)]
pub(super) struct TokenChallenge {
    tokens: RpcTokens,
    qualities: Vec<SaslQuality>,
    nonce: String,
}

impl TokenChallenge {
    /// A new challenge, and what the caller is offered with it.
    pub(super) fn new(tokens: RpcTokens) -> (Self, SaslAuth) {
        let qualities = in_digest(&tokens.qualities);
        let server = DigestServer::new(offer(&qualities));
        let offered = SaslAuth {
            challenge: Some(Bytes::from(server.challenge())),
            ..auth()
        };
        let nonce = server.nonce().to_owned();
        let challenge = Self {
            tokens,
            qualities,
            nonce,
        };
        (challenge, offered)
    }

    /// Checks the caller's answer. Gives back who it is, and our own proof for it.
    pub(super) fn verify(self, answer: &[u8]) -> Result<(Proven, Bytes), RpcFault> {
        let server = DigestServer::with_nonce(offer(&self.qualities), self.nonce);
        let said = server.response(answer).map_err(not_believed)?;
        let identifier = from_base64(said.user());
        let identifier = identifier.ok_or_else(|| not_believed("the user is no identifier"))?;
        let known = self.tokens.passwords.password_of(&identifier);
        let (identifier, password) = known.map_err(|why| {
            RpcFault::fatal(RpcErrorCode::FatalUnauthorized, names::INVALID_TOKEN, why)
        })?;
        let password = to_base64(&password);
        let mut agreed = said.verify(password.as_bytes()).map_err(not_believed)?;
        let proof = Bytes::from(std::mem::take(&mut agreed.proof));
        let user = identifier.user.clone().unwrap_or_default();
        let proven = Proven {
            principal: user,
            token: Some(Arc::new(identifier)),
            wrapping: Wrapping::by_digest(agreed, usize::MAX),
        };
        Ok((proven, proof))
    }
}

/// What a caller chooses, without the challenge.
pub(super) fn auth() -> SaslAuth {
    SaslAuth {
        method: METHOD.to_owned(),
        mechanism: "DIGEST-MD5".to_owned(),
        protocol: Some(String::new()),
        server_id: Some(SERVER.to_owned()),
        challenge: None,
    }
}

fn offer(qualities: &[SaslQuality]) -> DigestOffer<'_> {
    DigestOffer {
        protocol: "",
        host: SERVER,
        qualities,
        ciphers: &LayerCipher::ALL,
    }
}

fn not_believed(why: impl ToString) -> RpcFault {
    RpcFault::fatal(RpcErrorCode::FatalUnauthorized, java::SASL, why.to_string())
}

#[cfg(test)]
mod tests {
    use hayloft_sasl::DigestClient;

    use super::*;
    use crate::token_tests::OfAnn;

    fn answered(identifier: &[u8], password: &[u8]) -> Result<(Proven, Bytes), RpcFault> {
        let tokens = RpcTokens {
            passwords: Arc::new(OfAnn),
            qualities: [RpcQuality::Privacy, RpcQuality::Authentication].into(),
        };
        let (challenge, offered) = TokenChallenge::new(tokens);
        let (user, password) = (to_base64(identifier), to_base64(password));
        let qualities = [SaslQuality::Privacy];
        let client = DigestClient::new(offer(&qualities), &user, password.as_bytes());
        let answer = client.answer(&offered.challenge.expect("a challenge"));
        challenge.verify(answer.expect("it fits").response().as_bytes())
    }

    #[test]
    fn the_holder_of_a_token_is_known_by_it() {
        let (proven, proof) = answered(b"of ann", b"password").expect("believed");
        assert_eq!(proven.principal, "ann");
        assert!(proven.token.is_some() && proven.wrapping.is_some());
        assert!(proof.starts_with(b"rspauth="));
        let told = |refused: Result<(Proven, Bytes), RpcFault>| match refused {
            Ok(_) => String::new(),
            Err(fault) => fault.to_string(),
        };
        let other = told(answered(b"of ann", b"other"));
        assert!(other.contains("Mismatched response"), "{other}");
        let unknown = told(answered(b"unknown", b"password"));
        assert!(unknown.contains("no such token"), "{unknown}");
    }
}
