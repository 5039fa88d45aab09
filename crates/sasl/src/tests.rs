//! Handshakes and messages of Java's class library 17, and what both sides refuse.

use bytes::BytesMut;
use proptest::prelude::*;

use super::directives::Directives;
use super::*;

const USER: &str = "AAABBBCCC=";
const PASSWORD: &[u8] = b"c2VjcmV0cGFzc3dvcmQ=";
const ALL: [SaslQuality; 3] = [
    SaslQuality::Privacy,
    SaslQuality::Integrity,
    SaslQuality::Authentication,
];
const SPOKEN: [&[u8]; 2] = [b"hello", b"sixteen bytes 16"];

/// What Java's two sides said to each other.
struct Spoken {
    quality: SaslQuality,
    cipher: Option<LayerCipher>,
    /// The client says that it acts as itself, as Hadoop's does.
    says_who: bool,
    nonce: &'static str,
    client_nonce: &'static str,
    response: &'static str,
    proof: &'static str,
    from_client: [&'static str; 2],
    from_server: [&'static str; 2],
}

const JAVA: [Spoken; 5] = [
    Spoken {
        quality: SaslQuality::Authentication,
        cipher: None,
        says_who: false,
        nonce: "QeIogthzVFoLRl980XJISNbHLSg0YA6fO+Cvu3AF",
        client_nonce: "0Pt0OuIw6o4VAyVXbQKQW7mjTTZG0Zd/S5eezl4K",
        response: "f4c1436e8e78f072c56a991b62743d26",
        proof: "1e0c66ba0093a54398e4dc73db6429a6",
        from_client: ["", ""],
        from_server: ["", ""],
    },
    Spoken {
        quality: SaslQuality::Integrity,
        cipher: None,
        says_who: false,
        nonce: "5ykqXsBDHPgB5zHQ1P1GoXaU2Odq2nAkGb1NQ/mN",
        client_nonce: "KXGS0hG2JjAyjb3mYoIFWfrQBoKuBOzdJU1YG6Mw",
        response: "ba1f39f7b5dde36c6cf5b93adad348c6",
        proof: "f1d498b9716bf27cfcd35ac88cdd8cea",
        from_client: [
            "68656c6c6f064bc5970e496e7657e1000100000000",
            "7369787465656e2062797465732031362b7c8e7d93459d18fc31000100000001",
        ],
        from_server: [
            "68656c6c6ff8fbf199c46b53595f33000100000000",
            "7369787465656e206279746573203136f0304f0dc3ac495ee699000100000001",
        ],
    },
    Spoken {
        quality: SaslQuality::Privacy,
        cipher: Some(LayerCipher::TripleDes),
        says_who: false,
        nonce: "6xtK/qHRDCfvmJnDN1j8ASIqI/Ynl8zGRWfG+k3Q",
        client_nonce: "hhVGWd+gB18UDfskkTCCV0WjN/sLi9IK14YOfmv7",
        response: "be8840e6e4f261637418efd2a76c5293",
        proof: "2af1ed18c0db9a3b3c403a9d19f8f5a7",
        from_client: [
            "20bb660dea56cfb4a90b5382a24156ec000100000000",
            "ccf16038bc92a8fc1a76c0a3b9f56b262cd70ef367d932d55f8ab995b88642a8000100000001",
        ],
        from_server: [
            "15c1206bd0faa76eb505a84185a1ae39000100000000",
            "c15a349a155d8286431b62b8a9c5ee19c6d7c1606047f402ca8cd65a0cdc1543000100000001",
        ],
    },
    Spoken {
        quality: SaslQuality::Privacy,
        cipher: Some(LayerCipher::Rc4),
        says_who: false,
        nonce: "P7o6t8g6vv6PaAvYEoeZJnZXQLW7kOv1FvgRbUs5",
        client_nonce: "Hfy5imNnSI6Wz6FdhBR8R4unRngYf8nOL2J4nOgV",
        response: "4b6cde9eae509c4d283b5833727cc853",
        proof: "50630e3a6c3732dc1879c17fd12041d6",
        from_client: [
            "c50c7de93a1a28d8a491bb2b6a13c1000100000000",
            "81a23b5ddb5126a52bc15a47a7a550e44baaa8e38fcbb0905cc2000100000001",
        ],
        from_server: [
            "31e90cdd1692191c43afab02b3fb9c000100000000",
            "9a1d4e1f8e7937cc6d59070652dde351e09cc466cbade7feb27f000100000001",
        ],
    },
    Spoken {
        quality: SaslQuality::Authentication,
        cipher: None,
        says_who: true,
        nonce: "/IfyeBAoYfUgsrye2DSJG4GQX7aKrTQTnj8lDKcw",
        client_nonce: "m4S8J/tPOUR8NeqLdUSDg2XRr1B690a9JmFreBCU",
        response: "afcc62d0fac6f9c31a6b9a16c570d763",
        proof: "4fc2c28fa5f8ae1c03b9070ff68dd592",
        from_client: ["", ""],
        from_server: ["", ""],
    },
];

fn offer<'a>(qualities: &'a [SaslQuality], ciphers: &'a [LayerCipher]) -> DigestOffer<'a> {
    DigestOffer {
        protocol: "hdfs",
        host: "0",
        qualities,
        ciphers,
    }
}

/// Both sides with the nonces of `java`.
fn both(java: &Spoken) -> (Agreed, Agreed) {
    let qualities = [java.quality];
    let ciphers: Vec<_> = java.cipher.into_iter().collect();
    let offer = offer(&qualities, &ciphers);
    let server = DigestServer::with_nonce(offer, java.nonce.to_owned());
    let challenge = server.challenge();
    let client = DigestClient::new(offer, USER, PASSWORD);
    let answer = client.answer_with(challenge.as_bytes(), java.client_nonce, java.says_who);
    let answer = answer.expect("answered");
    let response = format!(",response={},", java.response);
    assert!(
        answer.response().contains(&response),
        "{}",
        answer.response()
    );
    let said = server.response(answer.response().as_bytes()).expect("fits");
    assert_eq!(said.user(), USER);
    let server = said.verify(PASSWORD).expect("proved");
    assert_eq!(server.proof, format!("rspauth={}", java.proof));
    let client = answer.finish(server.proof.as_bytes()).expect("proved");
    (client, server)
}

fn hex(bytes: &[u8]) -> String {
    super::digests::hex(bytes)
}

#[test]
fn both_sides_say_what_those_of_java_say() {
    for java in &JAVA {
        let (client, server) = both(java);
        assert_eq!(
            (client.quality, server.quality),
            (java.quality, java.quality)
        );
        let (
            Some((mut client_seals, mut client_opens)),
            Some((mut server_seals, mut server_opens)),
        ) = (client.layer, server.layer)
        else {
            assert_eq!(java.quality, SaslQuality::Authentication);
            continue;
        };
        let cases = SPOKEN.iter().zip(java.from_client).zip(java.from_server);
        for ((message, from_client), from_server) in cases {
            let mut sealed = BytesMut::new();
            client_seals.seal(message, &mut sealed);
            assert_eq!(hex(&sealed), from_client);
            assert_eq!(server_opens.open(sealed).expect("opened"), message[..]);
            let mut sealed = BytesMut::new();
            server_seals.seal_parts(&[&message[..2], &message[2..]], &mut sealed);
            assert_eq!(hex(&sealed), from_server);
            assert_eq!(client_opens.open(sealed).expect("opened"), message[..]);
            assert!(
                client_opens
                    .open(BytesMut::new())
                    .expect("opened")
                    .is_empty()
            );
        }
    }
}

#[test]
fn the_example_of_the_rfc_holds() {
    let session = super::digests::Session {
        user: "chris",
        realm: "elwood.innosoft.com",
        nonce: "OA6MG9tEQGm2hh",
        client_nonce: "OA6MHXh6VqTrRk",
        address: "imap/elwood.innosoft.com",
        act_as: None,
        quality: SaslQuality::Authentication,
    };
    let keys = session.keys(b"secret");
    assert_eq!(
        session.client_proof(&keys),
        "d388dad90d4bbd760a152321f2143af7"
    );
    assert_eq!(
        session.server_proof(&keys),
        "ea40f60335c427b5527b84dbabcdfffd"
    );
}

#[test]
fn the_first_choice_of_the_client_that_the_server_has_counts() {
    use SaslQuality::{Authentication, Integrity, Privacy};
    let ciphers = LayerCipher::ALL;
    for (server, client, agreed) in [
        (&ALL[..], &[Integrity, Privacy][..], Some(Integrity)),
        (&[Privacy], &[Authentication, Privacy], Some(Privacy)),
        (&[Privacy], &[Authentication], None),
        (&[], &ALL, None),
    ] {
        let challenge = DigestServer::new(offer(server, &ciphers)).challenge();
        let client = DigestClient::new(offer(client, &ciphers), USER, PASSWORD);
        let answer = client.answer(challenge.as_bytes()).ok();
        let quality = answer.map(|answer| {
            let end = answer.response().rsplit_once("qop=").map(|(_, end)| end);
            let name = end.and_then(|end| end.split(',').next());
            SaslQuality::by_name(name.expect("named")).expect("known")
        });
        assert_eq!(quality, agreed);
    }
}

#[test]
fn a_challenge_without_a_cipher_of_the_client_is_refused() {
    use SaslQuality::Privacy;
    let offered = offer(&[Privacy], &LayerCipher::ALL);
    let challenge = DigestServer::new(offered).challenge();
    let listed = "cipher=\"3des,rc4\"";
    for altered in [
        "",
        "cipher=\"\"",
        "cipher=\",\"",
        "cipher=\"des,rc4-56,rc4-40\"",
        "cipher=\"3des-x\"",
    ] {
        let altered = challenge.replacen(listed, altered, 1);
        assert_ne!(altered, challenge);
        let client = DigestClient::new(offered, USER, PASSWORD);
        assert!(client.answer(altered.as_bytes()).is_err(), "{altered}");
    }
    let only = offer(&[Privacy], &[LayerCipher::TripleDes]);
    let altered = challenge.replacen(listed, "cipher=\"rc4\"", 1);
    let client = DigestClient::new(only, USER, PASSWORD);
    assert!(client.answer(altered.as_bytes()).is_err());
}

#[test]
fn a_cipher_that_is_not_on_offer_is_not_taken() {
    use SaslQuality::Privacy;
    let all = offer(&[Privacy], &LayerCipher::ALL);
    for (offered, chosen, taken) in [
        (LayerCipher::TripleDes, "rc4", false),
        (LayerCipher::TripleDes, "3des", true),
        (LayerCipher::Rc4, "3des", false),
    ] {
        let offered = [offered];
        let server = DigestServer::new(offer(&[Privacy], &offered));
        // Who alters the network has the client believe that there is this cipher alone.
        let listed = format!("cipher=\"{}\"", offered[0].name());
        let told = format!("cipher=\"{chosen}\"");
        let altered = server.challenge().replacen(&listed, &told, 1);
        let client = DigestClient::new(all, USER, PASSWORD);
        let answer = client.answer(altered.as_bytes()).expect("it has both");
        let heard = server.response(answer.response().as_bytes());
        assert_eq!(heard.is_ok(), taken, "{chosen}");
    }
}

#[test]
fn an_answer_that_does_not_fit_is_refused() {
    let qualities = [SaslQuality::Privacy];
    let fitting = |server: &DigestServer<'_>| {
        let client = DigestClient::new(offer(&qualities, &LayerCipher::ALL), USER, PASSWORD);
        let answer = client
            .answer(server.challenge().as_bytes())
            .expect("answered");
        answer.response().to_owned()
    };
    for (from, to) in [
        ("realm=\"0\"", "realm=\"1\""),
        ("nc=00000001", "nc=00000002"),
        ("nonce=\"", "nonce=\"x"),
        ("hdfs/0", "hdfs/1"),
        ("qop=auth-conf", "qop=auth"),
        ("qop=auth-conf", "qop=auth-int"),
        ("cipher=\"3des\"", "cipher=\"des\""),
        ("cipher=\"3des\"", "cipher=\"rc4-40\""),
        (",cipher=\"3des\"", ""),
        ("charset=utf-8", "charset=latin-1"),
        ("username=", "user="),
        ("authzid=\"AAA", "authzid=\"root"),
        ("charset=utf-8", "charset=utf-8,charset=utf-8"),
        ("maxbuf=65536", "maxbuf=\"65536"),
    ] {
        let server = DigestServer::new(offer(&qualities, &LayerCipher::ALL));
        let answer = fitting(&server);
        assert!(answer.contains(from), "{answer}");
        let altered = answer.replacen(from, to, 1);
        assert!(server.response(altered.as_bytes()).is_err(), "{altered}");
    }
    let server = DigestServer::new(offer(&qualities, &LayerCipher::ALL));
    let answer = fitting(&server);
    let long = format!("{answer},more=\"{}\"", "x".repeat(MAX_RESPONSE_BYTES));
    assert!(server.response(long.as_bytes()).is_err());
    let server = DigestServer::new(offer(&qualities, &LayerCipher::ALL));
    let answer = fitting(&server);
    let said = server.response(answer.as_bytes()).expect("fits");
    assert_eq!(said.verify(b"other").err(), Some(SaslError::Password));
}

#[test]
fn a_server_that_does_not_know_the_password_is_not_believed() {
    let offer = offer(&ALL, &LayerCipher::ALL);
    let challenge = DigestServer::new(offer).challenge();
    let client = DigestClient::new(offer, USER, PASSWORD);
    let answer = client.answer(challenge.as_bytes()).expect("answered");
    let wrong = format!("rspauth={}", "0".repeat(32));
    assert_eq!(
        answer.finish(wrong.as_bytes()).err(),
        Some(SaslError::Server)
    );
}

#[test]
fn counters_go_on_over_pieces() {
    // The first example of NIST's SP 800-38A for AES-128 in counter mode.
    let key = *b"\x2b\x7e\x15\x16\x28\xae\xd2\xa6\xab\xf7\x15\x88\x09\xcf\x4f\x3c";
    let counter = *b"\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";
    let keys = CounterKeys::from_peer(&key, &counter).expect("a key");
    let mut text = *b"\x6b\xc1\xbe\xe2\x2e\x40\x9f\x96\xe9\x3d\x7e\x11\x73\x93\x17\x2a";
    let mut cipher = keys.cipher().expect("a key");
    for piece in text.chunks_mut(5) {
        cipher.apply(piece);
    }
    assert_eq!(hex(&text), "874d6191b620e3261bef6864990db6ce");
    assert!(CounterKeys::from_peer(&key[..15], &counter).is_none());
    assert!(CounterKeys::from_peer(&key, &counter[..15]).is_none());
    for bits in [128, 192, 256] {
        let length = KeyLength::of_bits(bits).expect("known");
        let keys = CounterKeys::random(length);
        assert_eq!(keys.key.len() * 8, bits as usize);
        assert!(keys.cipher().is_some());
    }
    assert_eq!(KeyLength::of_bits(64), None);
}

#[test]
fn a_message_that_is_too_long_is_not_waited_for() {
    let (_, server) = both(&JAVA[1]);
    let (_, opener) = server.layer.expect("a layer");
    let mut into = ProtectedIn::Messages { opener, limit: 100 };
    let mut raw = BytesMut::from(&[0, 0, 0, 101][..]);
    let opened = into.open(&mut raw, &mut BytesMut::new());
    assert_eq!(opened, Err(SaslError::Message));
}

fn layers() -> impl Strategy<Value = (Sealer, Opener)> {
    (1..4_usize).prop_map(|which| {
        let (client, server) = both(&JAVA[which]);
        let (sealer, _) = client.layer.expect("a layer");
        let (_, opener) = server.layer.expect("a layer");
        (sealer, opener)
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Directives::parse(&bytes, MAX_RESPONSE_BYTES);
    }

    #[test]
    fn what_is_quoted_is_read_again(value in "\\PC{0,40}") {
        let text = format!("a={},b=c", super::directives::quoted(&value));
        let said = Directives::parse(text.as_bytes(), 4096).expect("a list");
        prop_assert_eq!(said.get("a"), Some(value.as_str()));
        prop_assert_eq!(said.get("b"), Some("c"));
    }

    #[test]
    fn messages_of_any_length_come_through(
        (mut sealer, mut opener) in layers(),
        messages in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..100), 1..6),
    ) {
        for message in messages {
            let mut sealed = BytesMut::new();
            sealer.seal(&message, &mut sealed);
            prop_assert_eq!(opener.open(sealed).expect("opened"), message);
        }
    }

    #[test]
    fn bytes_come_through_in_pieces_of_any_size(
        which in 0_usize..4,
        messages in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..100), 1..6),
        piece in 1_usize..50,
    ) {
        let (mut out, mut into) = if which == 0 {
            let keys = CounterKeys::random(KeyLength::Bits128);
            let cipher = || keys.cipher().expect("a key");
            (ProtectedOut::Bytes(cipher()), ProtectedIn::Bytes(cipher()))
        } else {
            let (client, server) = both(&JAVA[which]);
            let (sealer, _) = client.layer.expect("a layer");
            let (_, opener) = server.layer.expect("a layer");
            (ProtectedOut::Messages(sealer), ProtectedIn::Messages { opener, limit: 200 })
        };
        let mut sent = BytesMut::new();
        for message in &messages {
            out.seal(&[message], &mut sent);
        }
        let (mut raw, mut opened) = (BytesMut::new(), BytesMut::new());
        for piece in sent.chunks(piece) {
            raw.extend_from_slice(piece);
            into.open(&mut raw, &mut opened).expect("opened");
        }
        prop_assert!(raw.is_empty());
        prop_assert_eq!(&opened[..], &messages.concat()[..]);
    }

    #[test]
    fn one_changed_bit_is_noticed(
        (mut sealer, mut opener) in layers(),
        message in proptest::collection::vec(any::<u8>(), 1..60),
        at in any::<proptest::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let mut sealed = BytesMut::new();
        sealer.seal(&message, &mut sealed);
        let at = at.index(sealed.len());
        sealed[at] ^= 1 << bit;
        prop_assert_eq!(opener.open(sealed).err(), Some(SaslError::Message));
    }

    #[test]
    fn bytes_that_no_one_sealed_are_refused(
        (_, mut opener) in layers(),
        bytes in proptest::collection::vec(any::<u8>(), 1..80),
    ) {
        prop_assert!(opener.open(BytesMut::from(&bytes[..])).is_err());
    }
}
