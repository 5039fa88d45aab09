//! The side that answers a challenge.

use subtle::ConstantTimeEq as _;

use super::agreed::Agreed;
use super::digests::{Session, SessionKeys};
use super::directives::{Directives, quoted};
use super::error::SaslError;
use super::quality::{LayerCipher, SaslQuality};
use super::server::{cut, fresh_nonce};
use super::{DigestOffer, MAX_CHALLENGE_BYTES};

/// A client that knows the password of a user.
pub struct DigestClient<'a> {
    offer: DigestOffer<'a>,
    user: &'a str,
    password: &'a [u8],
}

impl<'a> DigestClient<'a> {
    /// Begins a handshake as `user`.
    #[must_use]
    pub fn new(offer: DigestOffer<'a>, user: &'a str, password: &'a [u8]) -> Self {
        Self {
            offer,
            user,
            password,
        }
    }

    /// Answers a challenge.
    ///
    /// # Errors
    /// `Format`: it is none. `NothingCommon`: the server protects less, or with other ciphers.
    pub fn answer(self, challenge: &[u8]) -> Result<DigestClientProof, SaslError> {
        self.answer_with(challenge, &fresh_nonce(), true)
    }

    /// `says_who` it acts as: itself, as Hadoop's clients say.
    pub(crate) fn answer_with(
        self,
        challenge: &[u8],
        client_nonce: &str,
        says_who: bool,
    ) -> Result<DigestClientProof, SaslError> {
        let said = Directives::parse(challenge, MAX_CHALLENGE_BYTES)?;
        if !said.need("algorithm")?.eq_ignore_ascii_case("md5-sess") {
            return Err(SaslError::format("a challenge has another algorithm"));
        }
        let nonce = said.need("nonce")?;
        let realm = said.get("realm").unwrap_or_default();
        let (quality, cipher) = self.choose(&said)?;
        let address = self.offer.address();
        let session = Session {
            user: self.user,
            realm,
            nonce,
            client_nonce,
            address: &address,
            act_as: says_who.then_some(self.user),
            quality,
        };
        let keys = session.keys(self.password);
        let act_as = says_who.then(|| format!(",authzid={}", quoted(self.user)));
        let cipher_name = cipher.map(|cipher| format!(",cipher={}", quoted(cipher.name())));
        let response = format!(
            "charset=utf-8,username={},realm={},nonce={},nc=00000001,cnonce={},digest-uri={},\
             maxbuf=65536,response={},qop={}{}{}",
            quoted(self.user),
            quoted(realm),
            quoted(nonce),
            quoted(client_nonce),
            quoted(&address),
            session.client_proof(&keys),
            quality.name(),
            cipher_name.unwrap_or_default(),
            act_as.unwrap_or_default(),
        );
        Ok(DigestClientProof {
            response,
            expected: format!("rspauth={}", session.server_proof(&keys)),
            keys,
            quality,
            cipher,
        })
    }

    /// The first of the client's choices that the server accepts.
    fn choose(&self, said: &Directives) -> Result<(SaslQuality, Option<LayerCipher>), SaslError> {
        let offered = said.get("qop").unwrap_or("auth");
        let names: Vec<&str> = offered.split(',').map(str::trim).collect();
        let has = |name: &str, names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        let mut wanted = self.offer.qualities.iter().copied();
        let Some(quality) = wanted.find(|quality| has(quality.name(), &names)) else {
            let text = format!("the server offers {:?}", cut(offered));
            return Err(SaslError::NothingCommon(text));
        };
        if quality != SaslQuality::Privacy {
            return Ok((quality, None));
        }
        let offered = said.need("cipher")?;
        let names: Vec<&str> = offered.split(',').map(str::trim).collect();
        let mut wanted = self.offer.ciphers.iter().copied();
        match wanted.find(|cipher| has(cipher.name(), &names)) {
            Some(cipher) => Ok((quality, Some(cipher))),
            None => {
                let text = format!("the server offers the ciphers {:?}", cut(offered));
                Err(SaslError::NothingCommon(text))
            }
        }
    }
}

/// An answer, and what the server has to send then.
pub struct DigestClientProof {
    response: String,
    expected: String,
    keys: SessionKeys,
    quality: SaslQuality,
    cipher: Option<LayerCipher>,
}

impl DigestClientProof {
    /// The answer for the server.
    #[must_use]
    pub fn response(&self) -> &str {
        &self.response
    }

    /// Checks what the server sends at the end of the handshake.
    ///
    /// # Errors
    /// `Server`: it does not know the password.
    pub fn finish(self, proof: &[u8]) -> Result<Agreed, SaslError> {
        if !bool::from(self.expected.as_bytes().ct_eq(proof)) {
            return Err(SaslError::Server);
        }
        Ok(Agreed::of_client(self.quality, self.cipher, &self.keys))
    }
}
