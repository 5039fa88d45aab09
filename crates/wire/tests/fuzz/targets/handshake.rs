//! Steps of the handshake before a data transfer, whose client is not known yet.

use bytes::Bytes;
use hayloft_sasl::{DigestServer, SaslQuality, from_base64};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::encryption_user::EncryptionUser;
use hayloft_wire::frame;
use hayloft_wire::limits::MAX_SASL_MESSAGE_BYTES;
use hayloft_wire::proto::datatransfer::{
    DataTransferEncryptorMessage, DataTransferEncryptorStatus, HandshakeSecret,
};
use hayloft_wire::proto::hdfs::{CipherOption, CipherSuite};

use super::sasl::{NONCE, OFFER, response_of};
use super::{decode_front, message_again, seeds};

/// A step, and what a server makes of it: it may name any token, and proves none.
pub fn check(data: &[u8]) {
    let step = decode_front(data, |buf| {
        frame::decode_delimited::<DataTransferEncryptorMessage>(buf, MAX_SASL_MESSAGE_BYTES)
    });
    let Some(step) = step else { return };
    message_again(&step);
    let secret = step.handshake_secret.map(|secret| secret.secret);
    let secret = secret.unwrap_or_default();
    let _any_quality = std::str::from_utf8(&secret).map(SaslQuality::by_name);
    let server = DigestServer::with_nonce(OFFER, NONCE.to_owned());
    let Ok(response) = server.response(&step.payload.unwrap_or_default()) else {
        return;
    };
    if let Some(identifier) = from_base64(response.user()) {
        let _any_token = BlockTokenIdentifier::decode(&Bytes::from(identifier));
    }
    if let Some(named) = EncryptionUser::parse(response.user()) {
        let again = named.to_string();
        assert_eq!(EncryptionUser::parse(&again), Some(named));
    }
    assert!(response.verify(b"another password").is_err());
}

pub fn seeds() -> Vec<Bytes> {
    let first = DataTransferEncryptorMessage {
        status: DataTransferEncryptorStatus::Success.into(),
        payload: Some(Bytes::new()),
        handshake_secret: Some(HandshakeSecret {
            secret: Bytes::from_static(b"auth-conf"),
            bpid: "BP-1".into(),
        }),
        ..DataTransferEncryptorMessage::default()
    };
    let aes = CipherOption {
        suite: CipherSuite::AesCtrNopadding.into(),
        ..CipherOption::default()
    };
    let users = seeds::block_tokens()
        .into_iter()
        .map(|token| hayloft_sasl::to_base64(&token).to_string());
    // And one who has a key of encrypted data transfer.
    let named = "7 BP-1 bm9uY2U=";
    assert!(EncryptionUser::parse(named).is_some());
    let users = users.chain([named.to_owned()]);
    let second = users.map(|user| DataTransferEncryptorMessage {
        payload: Some(response_of(&user)),
        cipher_option: vec![aes.clone()],
        ..first.clone()
    });
    let steps = std::iter::once(first.clone()).chain(second);
    steps.map(|step| frame::delimited(&step)).collect()
}
