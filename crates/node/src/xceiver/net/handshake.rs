//! The handshake (SASL) of connections to this node.
//!
//! Nothing is known of a client before its end. So its messages are short, it has little time for
//! all of them, and one that fails leaves nothing behind. What it hears is what Apache's node says:
//! a stock client fetches a new token or key then, and comes again.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hayloft_client::{
    HANDSHAKE_WITHIN, MAX_PROTECTED_BYTES, Protected, TransferProof, read_handshake,
};
use hayloft_sasl::{
    Agreed, CounterKeys, DigestResponse, DigestServer, KeyLength, ProtectedIn, ProtectedOut,
    SaslError, SaslQuality, Sealer, from_base64, to_base64,
};
use hayloft_wire::encryption_user::EncryptionUser;
use hayloft_wire::frame;
use hayloft_wire::ids::PoolId;
use hayloft_wire::proto::datatransfer::{
    DataTransferEncryptorMessage, DataTransferEncryptorStatus, HandshakeSecret,
};
use hayloft_wire::proto::hdfs::{CipherOption, CipherSuite};
use hayloft_wire::transfer::SASL_MAGIC;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::security::{TokenPassword, TokenRefused};
use crate::xceiver::context::Xceivers;
use crate::xceiver::settings::Settings;

/// How long keys of a pool are waited for: less than a handshake may take, so that the client hears
/// that there are none.
const READY_WITHIN: Duration = Duration::from_secs(15);

/// Why a client is not served.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeRefused {
    /// The connection broke, or the client was silent or said what cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It did not begin a handshake.
    #[error(
        "the client sent a request in clear, which dfs.data.transfer.protection or \
         dfs.encrypt.data.transfer of this node forbids: give the client the same values"
    )]
    InClear,
    /// It proves nothing, or asks for less protection.
    #[error("{0}")]
    Sasl(#[from] SaslError),
    /// What it says of itself makes no sense, or is not what its token says.
    #[error("{0}")]
    Claim(&'static str),
    /// Its token or key counts no more, or never did.
    #[error("{refused}")]
    Token {
        /// Why.
        refused: TokenRefused,
        /// It has a key of encrypted data transfer.
        is_key: bool,
    },
}

impl HandshakeRefused {
    /// Whether stock clients meet this in the normal course of things.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        match self {
            Self::Token { refused, .. } => refused.is_routine(),
            Self::Io(_) => true,
            Self::InClear | Self::Sasl(_) | Self::Claim(_) => false,
        }
    }

    /// What the client hears; `None`: nothing.
    fn answer(&self) -> Option<DataTransferEncryptorMessage> {
        let (status, token) = match self {
            Self::Io(_) | Self::InClear => return None,
            Self::Token { is_key: true, .. } => {
                (DataTransferEncryptorStatus::ErrorUnknownKey, None)
            }
            Self::Token { is_key: false, .. } => (DataTransferEncryptorStatus::Error, Some(true)),
            Self::Sasl(_) | Self::Claim(_) => (DataTransferEncryptorStatus::Error, None),
        };
        Some(DataTransferEncryptorMessage {
            status: status.into(),
            message: Some(self.to_string()),
            access_token_error: token,
            ..DataTransferEncryptorMessage::default()
        })
    }
}

/// Has the client at the other end of `stream` prove who it is, as the settings say. `None`: what
/// follows goes as it is.
///
/// # Errors
/// The client is not served. It was told, if Apache's node tells it.
pub async fn accept(
    x: &Xceivers,
    settings: &Settings,
    stream: &mut TcpStream,
) -> Result<Option<Protected>, HandshakeRefused> {
    let proof = settings.protection.of_own_port();
    if proof == TransferProof::None {
        return Ok(None);
    }
    let handshake = Handshake { x, settings, proof };
    // A connection without one does not carry its room.
    let run = Box::pin(async {
        let done = handshake.run(stream).await;
        if let Some(answer) = done.as_ref().err().and_then(HandshakeRefused::answer) {
            stream.write_all(&frame::delimited(&answer)).await?;
        }
        done
    });
    let done = timeout(HANDSHAKE_WITHIN, run).await;
    done.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

struct Handshake<'a> {
    x: &'a Xceivers,
    settings: &'a Settings,
    proof: TransferProof,
}

impl Handshake<'_> {
    async fn run(&self, stream: &mut TcpStream) -> Result<Option<Protected>, HandshakeRefused> {
        let mut magic = [0; 4];
        stream.read_exact(&mut magic).await?;
        if u32::from_be_bytes(magic) != SASL_MAGIC {
            return Err(HandshakeRefused::InClear);
        }
        let first = read_handshake(stream).await?;
        if first.payload.is_some_and(|payload| !payload.is_empty()) {
            return Err(HandshakeRefused::Claim(
                "DIGEST-MD5 must not have an initial response",
            ));
        }
        let qualities = self.qualities(first.handshake_secret.as_ref())?;
        let server = DigestServer::new(self.settings.protection.offer(&qualities));
        let challenge = DataTransferEncryptorMessage {
            payload: Some(Bytes::from(server.challenge())),
            ..DataTransferEncryptorMessage::default()
        };
        stream.write_all(&frame::delimited(&challenge)).await?;
        let second = read_handshake(stream).await?;
        let response = server.response(&second.payload.unwrap_or_default())?;
        let mut agreed = self.verify(response).await?;
        let aes = self.aes(&mut agreed, &second.cipher_option);
        let last = DataTransferEncryptorMessage {
            payload: Some(Bytes::from(std::mem::take(&mut agreed.proof))),
            cipher_option: aes.iter().map(|aes| aes.option.clone()).collect(),
            ..DataTransferEncryptorMessage::default()
        };
        stream.write_all(&frame::delimited(&last)).await?;
        Ok(protected(agreed, aes))
    }

    /// What is accepted of this client. Some NameNodes say in a token which protection its holder
    /// is to have; the holder says it first, when nothing is proved yet.
    fn qualities(
        &self,
        secret: Option<&HandshakeSecret>,
    ) -> Result<Vec<SaslQuality>, HandshakeRefused> {
        let all = self.settings.protection.qualities(self.proof);
        let Some(secret) = secret else {
            return Ok(all.to_vec());
        };
        let said = quality_of(&secret.secret).filter(|said| all.contains(said));
        let said = said.ok_or(HandshakeRefused::Claim(
            "the client asks for a protection that this node does not have",
        ))?;
        Ok(vec![said])
    }

    /// Checks that the client knows its password.
    async fn verify(&self, response: DigestResponse) -> Result<Agreed, HandshakeRefused> {
        if self.proof == TransferProof::EncryptionKey {
            let key = self.encryption_key(response.user()).await?;
            return Ok(response.verify(to_base64(&key).as_bytes())?);
        }
        let identifier = from_base64(response.user()).ok_or(HandshakeRefused::Claim(
            "the user is no identifier of a block token",
        ))?;
        let known = self.token_password(&identifier).await?;
        let password = to_base64(known.password.expose());
        let agreed = response.verify(password.as_bytes())?;
        let secret = &known.identifier.handshake_secret;
        if !secret.is_empty() && quality_of(secret) != Some(agreed.quality) {
            return Err(HandshakeRefused::Claim(
                "the token is for a connection with another protection",
            ));
        }
        Ok(agreed)
    }

    async fn token_password(&self, identifier: &[u8]) -> Result<TokenPassword, HandshakeRefused> {
        let tokens = self.x.link().block_tokens();
        let known = match tokens.token_password(identifier) {
            Err(TokenRefused::NoKeys(pool)) => {
                self.wait_for(&pool).await;
                tokens.token_password(identifier)
            }
            known => known,
        };
        known.map_err(|refused| match refused {
            TokenRefused::Identifier(_) => {
                HandshakeRefused::Claim("the user is no identifier of a block token")
            }
            refused => HandshakeRefused::Token {
                refused,
                is_key: false,
            },
        })
    }

    /// The key that a user such as `7 BP-1 bm9uY2U=` has: number of the block key, pool and nonce.
    async fn encryption_key(&self, user: &str) -> Result<Zeroizing<Vec<u8>>, HandshakeRefused> {
        let named = EncryptionUser::parse(user).ok_or(HandshakeRefused::Claim(
            "the user is no number of a key, pool and nonce",
        ))?;
        let tokens = self.x.link().block_tokens();
        let password = || tokens.encryption_password(named.pool, named.key_id, &named.nonce);
        let known = match password() {
            Err(TokenRefused::NoKeys(pool)) => {
                self.wait_for(&pool).await;
                password()
            }
            known => known,
        };
        let refused = |refused| HandshakeRefused::Token {
            refused,
            is_key: true,
        };
        known.map(Zeroizing::new).map_err(refused)
    }

    /// Keys come with the registration of a pool. After a start clients may come first.
    async fn wait_for(&self, pool: &str) {
        if let Ok(pool) = PoolId::new(pool) {
            let _looked_at_again = timeout(READY_WITHIN, self.x.wait_ready(&pool)).await;
        }
    }

    /// Keys of AES, when both sides want it.
    fn aes(&self, agreed: &mut Agreed, offered: &[CipherOption]) -> Option<Aes> {
        let length = self.settings.protection.counter()?;
        let suite = i32::from(CipherSuite::AesCtrNopadding);
        let wanted = offered.iter().any(|option| option.suite == suite);
        let (sealer, _) = agreed.layer.as_mut()?;
        (wanted && agreed.quality == SaslQuality::Privacy).then(|| Aes::new(length, sealer))
    }
}

/// A quality by its name in a token.
fn quality_of(secret: &[u8]) -> Option<SaslQuality> {
    SaslQuality::by_name(std::str::from_utf8(secret).ok()?)
}

/// Keys of both directions, and how the client is told.
struct Aes {
    /// For what the client sends.
    into: CounterKeys,
    out: CounterKeys,
    option: CipherOption,
}

impl Aes {
    fn new(length: KeyLength, sealer: &mut Sealer) -> Self {
        let (into, out) = (CounterKeys::random(length), CounterKeys::random(length));
        let mut sealed = |keys: &CounterKeys| {
            let mut sealed = BytesMut::new();
            sealer.seal(&keys.key, &mut sealed);
            Some(sealed.freeze())
        };
        let counter = |keys: &CounterKeys| Some(Bytes::copy_from_slice(&keys.counter));
        let option = CipherOption {
            suite: CipherSuite::AesCtrNopadding.into(),
            in_key: sealed(&into),
            in_iv: counter(&into),
            out_key: sealed(&out),
            out_iv: counter(&out),
        };
        Self { into, out, option }
    }
}

fn protected(agreed: Agreed, aes: Option<Aes>) -> Option<Protected> {
    let (sealer, opener) = agreed.layer?;
    let ciphers = aes.and_then(|aes| aes.out.cipher().zip(aes.into.cipher()));
    Some(match ciphers {
        Some((out, into)) => (ProtectedOut::Bytes(out), ProtectedIn::Bytes(into)),
        None => (
            ProtectedOut::Messages(sealer),
            ProtectedIn::Messages {
                opener,
                limit: MAX_PROTECTED_BYTES,
            },
        ),
    })
}
