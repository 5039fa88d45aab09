//! The side that asks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;

use super::agreed::Agreed;
use super::digests::Session;
use super::directives::{Directives, quoted};
use super::error::SaslError;
use super::quality::{LayerCipher, SaslQuality, listed};
use super::{DigestOffer, MAX_RESPONSE_BYTES};

/// A handshake of one connection: its challenge is answered once.
#[derive(Debug)]
pub struct DigestServer<'a> {
    offer: DigestOffer<'a>,
    nonce: String,
}

/// 30 random bytes as text, as many as Java takes.
pub(crate) fn fresh_nonce() -> String {
    STANDARD.encode(rand::random::<[u8; 30]>())
}

impl<'a> DigestServer<'a> {
    /// Begins a handshake.
    #[must_use]
    pub fn new(offer: DigestOffer<'a>) -> Self {
        Self::with_nonce(offer, fresh_nonce())
    }

    /// Goes on with a handshake whose challenge had this [`nonce`](Self::nonce). It may be answered
    /// once.
    #[must_use]
    pub fn with_nonce(offer: DigestOffer<'a>, nonce: String) -> Self {
        Self { offer, nonce }
    }

    /// What makes this challenge another one than all before.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// What the client is asked.
    #[must_use]
    pub fn challenge(&self) -> String {
        let qualities = self.offer.qualities;
        let cipher = if qualities.contains(&SaslQuality::Privacy) {
            let ciphers = self.offer.ciphers.iter().map(|cipher| cipher.name());
            format!(",cipher={}", quoted(&listed(ciphers)))
        } else {
            String::new()
        };
        format!(
            "realm={},nonce={},qop={},charset=utf-8{cipher},algorithm=md5-sess",
            quoted(self.offer.host),
            quoted(&self.nonce),
            quoted(&listed(qualities.iter().map(|quality| quality.name()))),
        )
    }

    /// Reads the client's answer and checks all but the password.
    ///
    /// # Errors
    /// `Format` and `NothingCommon`.
    pub fn response(self, bytes: &[u8]) -> Result<DigestResponse, SaslError> {
        let said = Directives::parse(bytes, MAX_RESPONSE_BYTES)?;
        let user = said.need("username")?.to_owned();
        let realm = said.get("realm").unwrap_or_default().to_owned();
        let address = said.need("digest-uri")?.to_owned();
        let wrong = |what: &str| Err(SaslError::format(format!("an answer has another {what}")));
        if realm != self.offer.host {
            return wrong("realm");
        }
        if said.need("nonce")? != self.nonce {
            return wrong("nonce");
        }
        if said.need("nc")? != "00000001" {
            return wrong("nonce count");
        }
        if !address.eq_ignore_ascii_case(&self.offer.address()) {
            return wrong("digest-uri");
        }
        let charset = said.get("charset");
        if charset.is_some_and(|charset| !charset.eq_ignore_ascii_case("utf-8")) {
            return wrong("charset");
        }
        // Apache's node lets no one act for another.
        let act_as = said.get("authzid");
        if act_as.is_some_and(|act_as| act_as != user) {
            return wrong("authzid");
        }
        let (quality, cipher) = self.chosen(&said)?;
        Ok(DigestResponse {
            client_nonce: said.need("cnonce")?.to_owned(),
            proof: said.need("response")?.to_owned(),
            nonce: self.nonce,
            acts_as_itself: act_as.is_some(),
            user,
            realm,
            address,
            quality,
            cipher,
        })
    }

    /// What the client chose of the offer.
    fn chosen(&self, said: &Directives) -> Result<(SaslQuality, Option<LayerCipher>), SaslError> {
        let name = said.get("qop").unwrap_or("auth");
        let quality = SaslQuality::by_name(name);
        let quality = quality.filter(|quality| self.offer.qualities.contains(quality));
        let Some(quality) = quality else {
            let text = format!("the client asks for {:?}", cut(name));
            return Err(SaslError::NothingCommon(text));
        };
        if quality != SaslQuality::Privacy {
            return Ok((quality, None));
        }
        let name = said.need("cipher")?;
        let cipher = LayerCipher::by_name(name);
        match cipher.filter(|cipher| self.offer.ciphers.contains(cipher)) {
            Some(cipher) => Ok((quality, Some(cipher))),
            None => {
                let text = format!("the client asks for the cipher {:?}", cut(name));
                Err(SaslError::NothingCommon(text))
            }
        }
    }
}

/// The first few characters of what a peer sent.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(32).collect()
}

/// An answer that fits its challenge. Nothing is proved yet.
pub struct DigestResponse {
    user: String,
    realm: String,
    nonce: String,
    client_nonce: String,
    address: String,
    /// It says so.
    acts_as_itself: bool,
    quality: SaslQuality,
    cipher: Option<LayerCipher>,
    proof: String,
}

impl DigestResponse {
    /// Who the client says that it is.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Checks the answer with the password that the user has.
    ///
    /// # Errors
    /// `Password`.
    pub fn verify(self, password: &[u8]) -> Result<Agreed, SaslError> {
        let session = Session {
            user: &self.user,
            realm: &self.realm,
            nonce: &self.nonce,
            client_nonce: &self.client_nonce,
            address: &self.address,
            act_as: self.acts_as_itself.then_some(self.user.as_str()),
            quality: self.quality,
        };
        let keys = session.keys(password);
        let expected = session.client_proof(&keys);
        if !bool::from(expected.as_bytes().ct_eq(self.proof.as_bytes())) {
            return Err(SaslError::Password);
        }
        let proof = format!("rspauth={}", session.server_proof(&keys));
        Ok(Agreed::of_server(self.quality, self.cipher, &keys, proof))
    }
}
