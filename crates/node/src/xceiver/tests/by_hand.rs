//! Handshakes by hand: what those make of them who alter the network, or have recorded it.

use bytes::Bytes;
use hayloft_client::read_handshake;
use hayloft_sasl::{DigestClient, SaslQuality, to_base64};
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::frame;
use hayloft_wire::proto::datatransfer::DataTransferEncryptorMessage;
use hayloft_wire::transfer::SASL_MAGIC;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::node::Node;
use super::protected::{ENCRYPT, encryption_key, node, protection, prove, token};
use super::tokens::keys;

fn message(payload: &str) -> Bytes {
    frame::delimited(&DataTransferEncryptorMessage {
        payload: Some(Bytes::copy_from_slice(payload.as_bytes())),
        ..DataTransferEncryptorMessage::default()
    })
}

/// A handshake that waits for the client's answer.
struct Begun {
    stream: TcpStream,
    challenge: String,
}

impl Begun {
    async fn at(node: &Node) -> Self {
        let port = u16::try_from(node.id.xfer_port).expect("a port");
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("up");
        let first = [&SASL_MAGIC.to_be_bytes()[..], &message("")].concat();
        stream.write_all(&first).await.expect("taken");
        let challenge = read_handshake(&mut stream).await.expect("a challenge");
        let challenge = challenge.payload.unwrap_or_default();
        let challenge = String::from_utf8(challenge.to_vec()).expect("text");
        Self { stream, challenge }
    }

    /// What the node says to an answer.
    async fn hears(mut self, answer: &str) -> std::io::Result<()> {
        self.stream.write_all(&message(answer)).await?;
        read_handshake(&mut self.stream).await.map(drop)
    }
}

/// The answer of a holder of a key, who has both ciphers, to a challenge.
fn answer_to(challenge: &str) -> String {
    let (user, key) = encryption_key();
    let password = to_base64(key.key.expose());
    let any = protection(&[ENCRYPT]);
    let client = DigestClient::new(
        any.offer(&[SaslQuality::Privacy]),
        &user,
        password.as_bytes(),
    );
    let answer = client.answer(challenge.as_bytes()).expect("it has both");
    answer.response().to_owned()
}

/// The client is told that `told` is the only cipher on offer. What the node really offers, and
/// what it says to the answer.
async fn with_altered_offer(node: &Node, told: &str) -> (String, std::io::Result<()>) {
    let begun = Begun::at(node).await;
    let (_, offered) = begun.challenge.split_once("cipher=\"").expect("ciphers");
    let (offered, _) = offered.split_once('"').expect("ciphers");
    let offered = offered.to_owned();
    let cipher = |names: &str| format!("cipher=\"{names}\"");
    let altered = begun
        .challenge
        .replacen(&cipher(&offered), &cipher(told), 1);
    (offered, begun.hears(&answer_to(&altered)).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_weaker_cipher_is_agreed_on_than_the_configuration_names() {
    let algorithm = |name| ("dfs.encrypt.data.transfer.algorithm", name);
    for (named, on_offer, told, taken) in [
        (Some("3des"), "3des", "3des", true),
        (Some("3des"), "3des", "rc4", false),
        // No one loses by the stronger one, and some clients have no other.
        (Some("rc4"), "3des,rc4", "3des", true),
        (Some("rc4"), "3des,rc4", "rc4", true),
        (None, "3des,rc4", "rc4", true),
    ] {
        let named: Vec<_> = named.map(algorithm).into_iter().collect();
        let properties = [&[ENCRYPT][..], &named].concat();
        let node = node(&keys(1, 600_000), &properties).await;
        let (offered, end) = with_altered_offer(&node, told).await;
        assert_eq!(offered, on_offer, "{properties:?}");
        assert_eq!(end.is_ok(), taken, "{properties:?} {told}: {end:?}");
        if let Err(why) = end {
            assert!(why.to_string().contains("asks for the cipher"), "{why}");
        }
    }
    // A client that is set for the other one hears that there is none in common.
    let node = node(&keys(1, 600_000), &[ENCRYPT, algorithm("3des")]).await;
    let token = token(1, AccessMode::Read);
    let refused = prove(&node, &[ENCRYPT, algorithm("rc4")], &token).await;
    let refused = refused.expect_err("another cipher").to_string();
    assert!(
        refused.contains("the server offers the ciphers"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_answer_proves_nothing_on_another_connection() {
    let node = node(&keys(1, 600_000), &[ENCRYPT]).await;
    let (first, second) = (Begun::at(&node).await, Begun::at(&node).await);
    let recorded = answer_to(&first.challenge);
    first.hears(&recorded).await.expect("it fits its challenge");
    let refused = second.hears(&recorded).await.expect_err("recorded");
    let told = refused.to_string();
    assert!(told.contains("an answer has another nonce"), "{told}");
    // The other challenge in its words: then the proof does not fit.
    let third = Begun::at(&node).await;
    let nonce = |challenge: &str| {
        let (_, nonce) = challenge.split_once("nonce=\"").expect("a nonce");
        nonce.split_once('"').expect("a nonce").0.to_owned()
    };
    let (old, new) = (nonce(&recorded), nonce(&third.challenge));
    let refused = third.hears(&recorded.replace(&old, &new)).await;
    let told = refused.expect_err("of another nonce").to_string();
    assert!(told.contains("Mismatched response"), "{told}");
}
