//! Handshakes of SASL and the messages behind them.

use bytes::{Bytes, BytesMut};
use hayloft_sasl::{
    Agreed, DigestClient, DigestOffer, DigestServer, LayerCipher, ProtectedIn, SaslQuality,
};

/// What every server here offers.
pub const OFFER: DigestOffer<'static> = DigestOffer {
    protocol: "hdfs",
    host: "0",
    qualities: &[
        SaslQuality::Privacy,
        SaslQuality::Integrity,
        SaslQuality::Authentication,
    ],
    ciphers: &LayerCipher::ALL,
};

/// The nonce of a server that a fuzzer may know, so that answers to it are looked at further.
pub const NONCE: &str = "bm9uY2U=";

/// Longest message that is taken behind a handshake, in bytes.
const LIMIT: usize = 4096;

fn client() -> DigestClient<'static> {
    DigestClient::new(OFFER, "user", b"password")
}

/// What a client of this name answers to the server with [`NONCE`].
pub fn response_of(user: &str) -> Bytes {
    let server = DigestServer::with_nonce(OFFER, NONCE.to_owned());
    let client = DigestClient::new(OFFER, user, b"password");
    let answer = client.answer(server.challenge().as_bytes());
    let answer = answer.expect("our own challenge is valid");
    Bytes::copy_from_slice(answer.response().as_bytes())
}

/// The server's side of a connection of this quality.
fn agreed(quality: SaslQuality) -> Agreed {
    let qualities = [quality];
    let offer = DigestOffer {
        qualities: &qualities,
        ..OFFER
    };
    let server = DigestServer::new(offer);
    let answer = client().answer(server.challenge().as_bytes());
    let answer = answer.expect("our own challenge is valid");
    let said = server.response(answer.response().as_bytes());
    let said = said.expect("our own answer is valid");
    said.verify(b"password").expect("the same password")
}

/// Challenges, answers and protected messages. No one knows the nonce of a server or the password
/// of a client here, so that nothing may be believed.
pub fn check(data: &[u8]) {
    assert!(DigestServer::new(OFFER).response(data).is_err());
    if let Ok(answer) = client().answer(data) {
        assert!(answer.finish(data).is_err());
    }
    for quality in [SaslQuality::Integrity, SaslQuality::Privacy] {
        let (_, opener) = agreed(quality).layer.expect("bytes are protected");
        let mut into = ProtectedIn::Messages {
            opener,
            limit: LIMIT,
        };
        let (mut raw, mut opened) = (BytesMut::from(data), BytesMut::new());
        let _refused_or_not_complete = into.open(&mut raw, &mut opened);
        assert!(opened.is_empty(), "no one knows the keys");
        assert!(data.ends_with(&raw), "messages are taken from the front");
    }
}

pub fn seeds() -> Vec<Bytes> {
    let server = DigestServer::new(OFFER);
    let challenge = server.challenge();
    let answer = client()
        .answer(challenge.as_bytes())
        .expect("our own challenge is valid");
    let response = answer.response().to_owned();
    let mut message = vec![0, 0, 0, 22];
    message.extend_from_slice(b"sixteen bytes 16\0\x01\0\0\0\0");
    [challenge.into_bytes(), response.into_bytes(), message]
        .map(Bytes::from)
        .to_vec()
}
