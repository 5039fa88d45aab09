//! The SASL exchange of a caller that holds a token (TOKEN, by DIGEST-MD5).
//!
//! ```text
//! client  connection header (0xDF), NEGOTIATE
//! server  NEGOTIATE with what it offers, and a challenge to holders of tokens
//! client  INITIATE, that offer and the answer to the challenge
//! server  SUCCESS, with a proof that it knows the token's password
//! ```

use std::sync::Arc;

use hayloft_sasl::{DigestClient, DigestOffer, LayerCipher, to_base64};
use hayloft_wire::rpc::{RemoteError, RpcSasl, SaslAuth, SaslState, names};
use tokio::io::{AsyncRead, AsyncWrite};

use super::RpcError;
use super::connection_tasks::Shared;
use super::sasl_messages::{
    first_line, initiate, negotiate, offered_methods, receive, refused, refused_with,
};
use crate::security::{TokenProof, Wrapping, in_digest};

/// Largest message of the exchange, bytes: offers of several ways, or a refusal with its trace.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Most bytes in one wrapped message of ours. Servers in Java say that they take 65,536 with all
/// that is added.
const PIECE_BYTES: usize = 60 << 10;
/// What servers may say before they have proved anything: that the token is not good, or that
/// another NameNode is to be asked. Callers of ours act on it, and nothing else does harm.
const BELIEVED: [&str; 5] = [
    names::ACCESS_CONTROL_EXCEPTION,
    names::INVALID_TOKEN,
    names::RETRIABLE_EXCEPTION,
    names::STANDBY_EXCEPTION,
    "javax.security.sasl.SaslException",
];

/// Proves to the server that we hold the token, and has it prove that it knows its password. What
/// wraps the frames from now on, if anything does.
pub(super) async fn prove_by_token(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    shared: &Shared,
    proof: &TokenProof,
) -> Result<Option<Arc<Wrapping>>, RpcError> {
    negotiate(stream, shared).await?;
    let mut auth = offered(shared, &next(stream, shared, SaslState::Negotiate).await?)?;
    let challenge = auth.challenge.take().unwrap_or_default();
    let qualities = in_digest(&proof.qualities);
    let offer = DigestOffer {
        protocol: auth.protocol(),
        host: auth.server_id(),
        qualities: &qualities,
        ciphers: &LayerCipher::ALL,
    };
    let user = to_base64(&proof.token.identifier);
    let password = to_base64(&proof.token.password);
    let client = DigestClient::new(offer, &user, password.as_bytes());
    let answer = client.answer(&challenge);
    let answer = answer.map_err(|error| refused(shared, error))?;
    let response = answer.response().as_bytes().to_vec();
    initiate(stream, shared, auth, response).await?;
    let last = next(stream, shared, SaslState::Success).await?;
    let agreed = answer.finish(&last.token.unwrap_or_default());
    let agreed = agreed.map_err(|error| refused(shared, error))?;
    Ok(Wrapping::by_digest(agreed, PIECE_BYTES))
}

/// The server's offer to holders of tokens.
fn offered(shared: &Shared, message: &RpcSasl) -> Result<SaslAuth, RpcError> {
    let is_token = |auth: &&SaslAuth| auth.method == "TOKEN" && auth.mechanism == "DIGEST-MD5";
    if let Some(auth) = message.auths.iter().find(is_token) {
        return Ok(auth.clone());
    }
    let offers = offered_methods(&message.auths);
    Err(refused(shared, format!("it takes no tokens but {offers}")))
}

/// The server's message, which has to be of that state.
async fn next(
    stream: &mut (impl AsyncRead + Unpin),
    shared: &Shared,
    expected: SaslState,
) -> Result<RpcSasl, RpcError> {
    let refusal = |error: RemoteError| match BELIEVED.contains(&&*error.class_name) {
        true => RpcError::Remote {
            message: first_line(&error),
            class: error.class_name,
            code: error.detail,
        },
        false => refused_with(shared, &error),
    };
    let message = receive(stream, shared, MESSAGE_BYTES_MAX, refusal).await?;
    if message.state == i32::from(expected) {
        return Ok(message);
    }
    let state = SaslState::try_from(message.state);
    Err(refused(
        shared,
        format!("it sends {state:?} in the place of {expected:?}"),
    ))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hayloft_sasl::{DigestServer, SaslQuality};
    use hayloft_wire::proto::security::Token;
    use hayloft_wire::rpc::{self as wire, CALL_SASL, IncomingFrame, parse_request};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::client::connection_tasks::read_frame;
    use crate::client::tests::{refusal, shared};
    use crate::security::RpcQuality;

    const OFFERED: DigestOffer<'static> = DigestOffer {
        protocol: "",
        host: "default",
        qualities: &[SaslQuality::Privacy, SaslQuality::Authentication],
        ciphers: &LayerCipher::ALL,
    };

    fn proof(quality: RpcQuality) -> TokenProof {
        let token = Token {
            identifier: Bytes::from_static(b"identifier"),
            password: Bytes::from_static(b"password"),
            ..Token::default()
        };
        TokenProof::new(token, [quality].into())
    }

    async fn heard(stream: &mut (impl AsyncRead + Unpin), shared: &Shared) -> RpcSasl {
        let bytes = read_frame(stream, shared, 1 << 16).await.expect("a frame");
        match parse_request(bytes) {
            Ok(IncomingFrame::Sasl(_, message)) => message,
            other => panic!("{other:?}"),
        }
    }

    /// A server that knows this password, and answers the client in the end with what `last` makes
    /// of its proof.
    async fn served(
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        password: &str,
        last: impl FnOnce(Option<String>) -> Bytes,
    ) {
        let shared = shared(([127, 0, 0, 1], 1).into());
        let mut header = [0; 7];
        stream.read_exact(&mut header).await.expect("a header");
        assert_eq!(&header, b"hrpc\x09\x00\xdf");
        let asked = heard(&mut stream, &shared).await;
        assert_eq!(asked.state, i32::from(SaslState::Negotiate));
        let server = DigestServer::new(OFFERED);
        let auth = SaslAuth {
            method: "TOKEN".to_owned(),
            mechanism: "DIGEST-MD5".to_owned(),
            protocol: Some(String::new()),
            server_id: Some("default".to_owned()),
            challenge: None,
        };
        let offered = RpcSasl::offer(vec![SaslAuth {
            challenge: Some(server.challenge().into()),
            ..auth.clone()
        }]);
        let offered = wire::encode_sasl_response(&offered);
        stream.write_all(&offered).await.expect("taken");
        let said = heard(&mut stream, &shared).await;
        assert_eq!(said.state, i32::from(SaslState::Initiate));
        assert_eq!(said.auths, [auth]);
        let token = said.token.expect("an answer");
        let response = server.response(&token).expect("one");
        assert_eq!(response.user(), &*to_base64(b"identifier"));
        let password = to_base64(password.as_bytes());
        let verified = response.verify(password.as_bytes());
        let last = last(verified.ok().map(|agreed| agreed.proof));
        stream.write_all(&last).await.expect("taken");
    }

    async fn with(
        quality: RpcQuality,
        password: &str,
        last: impl FnOnce(Option<String>) -> Bytes,
    ) -> Result<bool, RpcError> {
        let (mut ours, theirs) = tokio::io::duplex(1 << 16);
        let shared = shared(([127, 0, 0, 1], 1).into());
        let proof = proof(quality);
        let proving = prove_by_token(&mut ours, &shared, &proof);
        let (proved, ()) = tokio::join!(proving, served(theirs, password, last));
        proved.map(|wrapping| wrapping.is_some())
    }

    fn success(proof: &str) -> Bytes {
        let proof = RpcSasl::step(SaslState::Success, proof.as_bytes().to_vec());
        wire::encode_sasl_response(&proof)
    }

    #[tokio::test]
    async fn both_sides_know_the_password() {
        let believed = |proof: Option<String>| success(&proof.expect("believed"));
        for (quality, wraps) in [
            (RpcQuality::Privacy, true),
            (RpcQuality::Authentication, false),
        ] {
            let proved = with(quality, "password", believed).await;
            assert_eq!(proved.expect("proved"), wraps);
        }
        let other = with(RpcQuality::Privacy, "other", |proof| {
            assert_eq!(proof, None);
            success("rspauth=00000000000000000000000000000000")
        });
        let Err(RpcError::Unproven { reason, .. }) = other.await else {
            panic!("a server that proves nothing is believed");
        };
        assert!(reason.contains("does not prove"), "{reason}");
        let without = with(RpcQuality::Privacy, "password", |_| success(""));
        let without = without.await.expect_err("success without a proof");
        assert!(matches!(without, RpcError::Unproven { .. }), "{without}");
    }

    #[tokio::test]
    async fn refusals_are_told_by_their_class() {
        for class in [names::INVALID_TOKEN, names::STANDBY_EXCEPTION] {
            let refused = with(RpcQuality::Privacy, "other", |_| {
                refusal(
                    CALL_SASL,
                    class,
                    "token (1 for ann) is expired\n\tat X.java",
                )
            });
            let Err(RpcError::Remote {
                class: told,
                message,
                ..
            }) = refused.await
            else {
                panic!("{class}");
            };
            assert_eq!((&*told, &*message), (class, "token (1 for ann) is expired"));
        }
        let class = "java.io.FileNotFoundException";
        let refused = with(RpcQuality::Privacy, "other", |_| {
            refusal(CALL_SASL, class, "go away")
        });
        let error = refused.await.expect_err("refused");
        assert!(matches!(error, RpcError::Unproven { .. }), "{error}");
    }

    #[tokio::test]
    async fn nothing_less_is_taken() {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
        let shared = shared(([127, 0, 0, 1], 1).into());
        let simple = SaslAuth {
            method: "SIMPLE".to_owned(),
            ..SaslAuth::default()
        };
        let offered = wire::encode_sasl_response(&RpcSasl::offer(vec![simple]));
        theirs.write_all(&offered).await.expect("taken");
        let proof = proof(RpcQuality::Privacy);
        let error = prove_by_token(&mut ours, &shared, &proof).await;
        let error = error.err().expect("refused").to_string();
        assert!(error.contains("takes no tokens but SIMPLE"), "{error}");
        drop(ours);
        let mut heard = Vec::new();
        theirs.read_to_end(&mut heard).await.expect("an end");
        // The first message alone, which says nothing of its sender.
        let asked = wire::encode_sasl_request(&RpcSasl {
            state: SaslState::Negotiate.into(),
            ..RpcSasl::default()
        });
        assert_eq!(heard, [&b"hrpc\x09\x00\xdf"[..], &asked].concat());
        let told = format!("{proof:?}");
        assert!(!told.contains("password") && !told.contains("identifier"));
    }
}
