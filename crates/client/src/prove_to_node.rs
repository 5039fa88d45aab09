//! The handshake with a data transfer port, as its client.
//!
//! Four bytes and an empty message begin it. The node sends a challenge, gets the answer with the
//! ciphers that this side has, and proves that it knows the password too. With AES it sends the
//! keys, wrapped by the layer that the handshake agreed on.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hayloft_rpc::log_limit::words;
use hayloft_sasl::{
    Agreed, CounterKeys, DigestClient, Opener, ProtectedIn, ProtectedOut, SaslQuality, to_base64,
};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::frame;
use hayloft_wire::limits::{MAX_PACKET_BYTES, MAX_SASL_MESSAGE_BYTES};
use hayloft_wire::proto::datatransfer::{
    DataTransferEncryptorMessage, DataTransferEncryptorStatus, HandshakeSecret,
};
use hayloft_wire::proto::hdfs::{CipherOption, CipherSuite};
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::SASL_MAGIC;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::transfer_protection::{TransferProof, TransferProtection};

/// Longest protected message that is taken, in bytes: the largest packet, and what it grows by.
pub const MAX_PROTECTED_BYTES: usize = MAX_PACKET_BYTES as usize + (64 << 10);

/// What a handshake may take, whatever else is allowed to a connection.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(20);

/// Who this side is on a connection.
#[derive(Clone, Copy, Debug)]
pub enum NodeCredential<'a> {
    /// The holder of the token that its request has.
    BlockToken(&'a Token),
    /// One who got this key: its number, pool and nonce as text, and the key itself.
    EncryptionKey {
        /// Number, pool and nonce, as Hadoop writes them.
        user: &'a str,
        /// The key.
        key: &'a [u8],
    },
}

impl NodeCredential<'_> {
    pub(super) fn proof(&self) -> TransferProof {
        match self {
            Self::BlockToken(_) => TransferProof::BlockToken,
            Self::EncryptionKey { .. } => TransferProof::EncryptionKey,
        }
    }
}

/// Both directions of a protected connection.
pub type Protected = (ProtectedOut, ProtectedIn);

fn refused(reason: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("SASL: {reason}"))
}

/// Proves to the node at the other end of `stream` who this side is; the node proves that it knows
/// the same secret. `None`: what follows goes as it is.
///
/// # Errors
/// The node refuses, proves nothing, protects less than is wanted, or takes too long.
pub async fn prove_to_node(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    protection: &TransferProtection,
    credential: NodeCredential<'_>,
) -> io::Result<Option<Protected>> {
    let proving = prove(stream, protection, credential);
    let proved = timeout(HANDSHAKE_WITHIN, proving).await;
    proved.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn prove(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    protection: &TransferProtection,
    credential: NodeCredential<'_>,
) -> io::Result<Option<Protected>> {
    let qualities = protection.qualities(credential.proof());
    let (user, password) = match credential {
        NodeCredential::BlockToken(token) => {
            (to_base64(&token.identifier), to_base64(&token.password))
        }
        NodeCredential::EncryptionKey { user, key } => (user.to_owned().into(), to_base64(key)),
    };
    let mut first = BytesMut::from(&SASL_MAGIC.to_be_bytes()[..]);
    first.extend_from_slice(&frame::delimited(&DataTransferEncryptorMessage {
        payload: Some(Bytes::new()),
        handshake_secret: secret_of(credential),
        ..DataTransferEncryptorMessage::default()
    }));
    stream.write_all(&first).await?;
    let challenge = read_handshake(stream).await?;
    let wish = protection.wish(qualities);
    let client = DigestClient::new(wish, &user, password.as_bytes());
    let challenge = challenge.payload.unwrap_or_default();
    let answer = client.answer(&challenge).map_err(refused)?;
    let wants_aes = protection.counter().is_some() && qualities.contains(&SaslQuality::Privacy);
    let aes = wants_aes.then(|| CipherOption {
        suite: CipherSuite::AesCtrNopadding.into(),
        ..CipherOption::default()
    });
    let message = DataTransferEncryptorMessage {
        payload: Some(Bytes::copy_from_slice(answer.response().as_bytes())),
        cipher_option: aes.into_iter().collect(),
        ..DataTransferEncryptorMessage::default()
    };
    stream.write_all(&frame::delimited(&message)).await?;
    let last = read_handshake(stream).await?;
    let proof = last.payload.unwrap_or_default();
    let agreed = answer.finish(&proof).map_err(refused)?;
    protected(agreed, last.cipher_option.first().filter(|_| wants_aes))
}

/// What some NameNodes put into tokens: which protection their holders are to have.
fn secret_of(credential: NodeCredential<'_>) -> Option<HandshakeSecret> {
    let NodeCredential::BlockToken(token) = credential else {
        return None;
    };
    let identifier = BlockTokenIdentifier::decode(&token.identifier).ok()?;
    (!identifier.handshake_secret.is_empty()).then(|| HandshakeSecret {
        secret: identifier.handshake_secret,
        bpid: identifier.pool,
    })
}

/// Reads the other side's next message of a handshake; nothing behind it, since it has to wait for
/// an answer then.
///
/// # Errors
/// It sends no such message, or says that it gives up.
pub async fn read_handshake(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<DataTransferEncryptorMessage> {
    let mut inbox = BytesMut::new();
    let message: DataTransferEncryptorMessage = loop {
        let decoded = frame::decode_delimited(&mut inbox, MAX_SASL_MESSAGE_BYTES);
        match decoded.map_err(refused)? {
            Some(message) => break message,
            None if stream.read_buf(&mut inbox).await? == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            None => {}
        }
    };
    if !inbox.is_empty() {
        return Err(refused("more bytes came than were asked for"));
    }
    if message.status == i32::from(DataTransferEncryptorStatus::Success) {
        return Ok(message);
    }
    let said = message.message.unwrap_or_default();
    Err(refused(format_args!(
        "the other side answers: {}",
        words(&said)
    )))
}

fn protected(agreed: Agreed, aes: Option<&CipherOption>) -> io::Result<Option<Protected>> {
    let Some((sealer, mut opener)) = agreed.layer else {
        return Ok(None);
    };
    let aes = aes.filter(|_| agreed.quality == SaslQuality::Privacy);
    let Some(aes) = aes else {
        let limit = MAX_PROTECTED_BYTES;
        let into = ProtectedIn::Messages { opener, limit };
        return Ok(Some((ProtectedOut::Messages(sealer), into)));
    };
    if aes.suite != i32::from(CipherSuite::AesCtrNopadding) {
        return Err(refused("the node chose a cipher that it was not offered"));
    }
    // "In" is what the node reads.
    let out = keys(&mut opener, aes.in_key.as_ref(), aes.in_iv.as_ref())?;
    let into = keys(&mut opener, aes.out_key.as_ref(), aes.out_iv.as_ref())?;
    let (out, into) = out.cipher().zip(into.cipher()).ok_or_else(no_keys)?;
    Ok(Some((ProtectedOut::Bytes(out), ProtectedIn::Bytes(into))))
}

fn no_keys() -> io::Error {
    refused("the node sent no keys of AES")
}

fn keys(
    opener: &mut Opener,
    key: Option<&Bytes>,
    counter: Option<&Bytes>,
) -> io::Result<CounterKeys> {
    let (key, counter) = key.zip(counter).ok_or_else(no_keys)?;
    let opened = opener.open(BytesMut::from(&key[..])).map_err(refused)?;
    let keys = CounterKeys::from_peer(&opened, counter);
    keys.ok_or_else(no_keys)
}
