//! Keys and tokens, against what Hadoop 3.5.0's `BlockTokenSecretManager` wrote, and what must be
//! refused.

use bytes::Bytes;
use hayloft_conf::KeyGenerator;
use hayloft_wire::block_token::{AccessMode, BLOCK_TOKEN_KIND, BlockTokenIdentifier, TokenError};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, StorageType};
use hayloft_wire::proto::hdfs_server::{BlockKey, ExportedBlockKeys};
use hayloft_wire::proto::security::Token;

use super::*;

const POOL: &str = "BP-1-10.0.0.1-1700000000000";
/// Of user hdfs, for block 1073741825, READ and WRITE, until 2100, with key -1234567.
const LEGACY: &str = "8a03bb2cc3d8008512d68600000004686466730000001b42502d312d31302e302e302e312d\
    313730303030303030303030308c4000000102045245414405575249544502044449534b03535344020000000444\
    532d310000000444532d32";
const PROTOBUF: &str = "0880b08fe6b27710f9d2b4ff0f1a0468646673221b42502d312d31302e302e302e312d\
    313730303030303030303030302881808080043001300238013802420444532d31420444532d32";
/// Passwords of the two under the key 0102030405060708, and of the nonce 0908070605040302.
const SHA1: [&str; 3] = [
    "1c051bdeedc914e6e10fdf73b8c7dc00b9f2083a",
    "7ac65466ee8c1fe3923d04d5b093d21761405b06",
    "2d227f49331e70dc4bc3d26fc350019b9e555799",
];
const SHA256: [&str; 3] = [
    "3398f4ca6ebf4a7950881436fc8b27bbc2ed4b5cc25d5858f3281ad4555e7f93",
    "15ca4359961c6e5ba8681aff402fe0b324cec2a58000a99addcfbff325a0b184",
    "f8020f2fc87a83cbe8d34e8d133914f0ed9b8c039204c75e0f3fe8a76eb55e54",
];

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let byte = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).expect("a byte");
    digits.chunks(2).map(byte).collect()
}

fn pool() -> PoolId {
    PoolId::new(POOL).expect("valid")
}

fn block(id: i64) -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(id, 1001, 1))
}

fn key(id: i32, bytes: &[u8], expiry_millis: u64) -> BlockKey {
    BlockKey {
        key_id: id.cast_unsigned(),
        expiry_date: expiry_millis,
        key_bytes: Some(Bytes::copy_from_slice(bytes)),
    }
}

fn handed(keys: &[BlockKey]) -> ExportedBlockKeys {
    ExportedBlockKeys {
        is_block_token_enabled: true,
        key_update_interval: 600_000,
        token_life_time: 600_000,
        current_key: keys[0].clone(),
        all_keys: keys.to_vec(),
    }
}

const FAR: u64 = 4_102_444_800_000;

fn tokens(algorithm: KeyGenerator, protobuf: bool) -> BlockTokens {
    BlockTokens::new(TokenSettings {
        algorithm,
        protobuf,
        user: "hdfs".to_owned(),
    })
}

fn with_key(algorithm: KeyGenerator) -> BlockTokens {
    let tokens = tokens(algorithm, false);
    tokens.agree(true).expect("the first to say");
    let keys = handed(&[key(-1_234_567, &[1, 2, 3, 4, 5, 6, 7, 8], FAR)]);
    tokens.take_keys(&pool(), &keys, true).expect("few");
    tokens
}

#[test]
fn passwords_are_those_of_hadoop() {
    for (algorithm, expected) in [
        (KeyGenerator::HmacSha1, SHA1),
        (KeyGenerator::HmacSha256, SHA256),
    ] {
        let tokens = with_key(algorithm);
        for (identifier, password) in [LEGACY, PROTOBUF].into_iter().zip(expected) {
            let identifier = unhex(identifier);
            let known = tokens
                .token_password(&identifier)
                .expect("the key is there");
            assert_eq!(known.password.expose(), &unhex(password)[..]);
            assert_eq!(known.identifier.block_id, 1_073_741_825);
            let token = Token {
                identifier,
                password: unhex(password),
                kind: BLOCK_TOKEN_KIND.to_owned(),
                service: String::new(),
            };
            let read = Access::to(AccessMode::Read);
            assert_eq!(
                tokens.check(Some(&token), &block(1_073_741_825), &read),
                Ok(())
            );
        }
        let nonce = [9, 8, 7, 6, 5, 4, 3, 2];
        let made = tokens.encryption_password(POOL, -1_234_567, &nonce);
        assert_eq!(made, Ok(unhex(expected[2]).to_vec()));
    }
}

#[test]
fn keys_of_encrypted_transfer_are_made_again_by_the_other_side() {
    let tokens = with_key(KeyGenerator::HmacSha1);
    let key = tokens.data_encryption_key(&pool()).expect("a key");
    let again = tokens.encryption_password(POOL, key.key_id, &key.nonce);
    assert_eq!(again.as_deref(), Ok(key.key.expose()));
    let unknown = tokens.encryption_password(POOL, 1, &key.nonce);
    assert_eq!(unknown, Err(TokenRefused::UnknownKey(1)));
    let elsewhere = PoolId::new("BP-2").expect("valid");
    assert!(tokens.data_encryption_key(&elsewhere).is_none());
}

#[test]
fn a_token_made_here_is_believed_by_another_node() {
    for protobuf in [false, true] {
        let keys = handed(&[key(5, b"12345678", FAR)]);
        let (maker, other) = (
            tokens(KeyGenerator::HmacSha1, protobuf),
            tokens(KeyGenerator::HmacSha1, false),
        );
        for tokens in [&maker, &other] {
            tokens.agree(true).expect("the first to say");
            tokens.take_keys(&pool(), &keys, true).expect("few");
        }
        let access = Access {
            mode: AccessMode::Write,
            storage_types: vec![StorageType::Disk],
            storage_ids: vec!["DS-1".to_owned()],
        };
        let token = maker.make(&block(3), access.clone()).expect("a key");
        let is_protobuf = token.identifier.first().is_some_and(|first| *first < 128);
        assert_eq!(
            (token.kind.as_str(), is_protobuf),
            ("HDFS_BLOCK_TOKEN", protobuf)
        );
        assert_eq!(other.check(Some(&token), &block(3), &access), Ok(()));
        let wanted = Access {
            storage_ids: vec![String::new()],
            ..access
        };
        assert!(matches!(
            other.check(Some(&token), &block(3), &wanted),
            Err(TokenRefused::Storage {
                what: "StorageIDs",
                ..
            })
        ));
    }
}

#[test]
fn nothing_passes_before_a_namenode_has_spoken() {
    let tokens = tokens(KeyGenerator::HmacSha1, false);
    let read = Access::to(AccessMode::Read);
    let asked = |tokens: &BlockTokens| tokens.check(None, &block(1), &read);
    assert_eq!(asked(&tokens), Err(TokenRefused::Undecided));
    assert_eq!(
        tokens.check_proved(None, &block(1), &read),
        Err(TokenRefused::Undecided)
    );
    assert_eq!(tokens.agree(true), Ok(()));
    assert_eq!(asked(&tokens), Err(TokenRefused::NoKeys(POOL.to_owned())));
    assert_eq!(
        tokens.check_proved(None, &block(1), &read),
        Err(TokenRefused::NotProved)
    );
    assert_eq!(tokens.agree(false), Err(Disagreement::Off));
    assert_eq!(tokens.agree(true), Ok(()));
    tokens
        .take_keys(&pool(), &handed(&[key(1, b"k", FAR)]), true)
        .expect("few");
    assert_eq!(
        asked(&tokens),
        Err(TokenRefused::Identifier(TokenError::Empty))
    );
    tokens.forget(&pool());
    assert_eq!(asked(&tokens), Err(TokenRefused::NoKeys(POOL.to_owned())));
}

#[test]
fn without_tokens_everything_passes_and_none_are_made() {
    let tokens = tokens(KeyGenerator::HmacSha1, false);
    assert_eq!(tokens.agree(false), Ok(()));
    assert_eq!(tokens.agree(true), Err(Disagreement::On));
    let read = Access::to(AccessMode::Read);
    assert_eq!(tokens.check(None, &block(1), &read), Ok(()));
    assert_eq!(tokens.check_proved(None, &block(1), &read), Ok(()));
    assert_eq!(tokens.make(&block(1), read), Ok(Token::default()));
}

#[test]
fn the_current_key_is_the_actives_and_expired_ones_go() {
    let keys = BlockKeysOfPool::new(pool());
    let settings = TokenSettings {
        algorithm: KeyGenerator::HmacSha1,
        protobuf: true,
        user: "hdfs".to_owned(),
    };
    let signed_with = || {
        let token = keys.make(&settings, &block(1), Access::to(AccessMode::Read), 0);
        let identifier = BlockTokenIdentifier::decode(&token.expect("a key").identifier);
        identifier.expect("decodes").key_id
    };
    // A standby's serves where there is no other.
    keys.merge(&handed(&[key(1, b"standby", 100)]), false, 0)
        .expect("few");
    assert_eq!(signed_with(), 1);
    keys.merge(&handed(&[key(2, b"active", 50)]), true, 0)
        .expect("few");
    assert_eq!(signed_with(), 2);
    keys.merge(&handed(&[key(3, b"standby", 100)]), false, 10)
        .expect("few");
    assert_eq!((signed_with(), keys.count()), (2, 3));
    // Key 2 is over.
    keys.merge(&handed(&[key(4, b"active", 200)]), true, 60)
        .expect("few");
    assert_eq!((signed_with(), keys.count()), (4, 3));
    let old = BlockTokenIdentifier {
        expiry_millis: 1000,
        key_id: 2,
        pool: POOL.to_owned(),
        ..BlockTokenIdentifier::default()
    };
    let refused = keys.password_of(KeyGenerator::HmacSha1, b"", old, 60);
    assert_eq!(refused.err(), Some(TokenRefused::UnknownKey(2)));
}

#[test]
fn keys_have_limits_and_an_empty_one_is_none() {
    let keys = BlockKeysOfPool::new(pool());
    let empty = handed(&[key(1, b"", FAR)]);
    keys.merge(&empty, true, 0).expect("nothing to take");
    assert_eq!(keys.count(), 0);
    let long = handed(&[key(1, &[1; 1025], FAR)]);
    assert!(keys.merge(&long, true, 0).is_err());
    let many: Vec<_> = (0..5000).map(|id| key(id, b"k", FAR)).collect();
    assert!(keys.merge(&handed(&many), true, 0).is_err());
    for from in [0, 4000, 8000, 12_000] {
        let some: Vec<_> = (from..from + 4000)
            .map(|id| key(id, b"k", FAR + u64::from(id.cast_unsigned())))
            .collect();
        keys.merge(&handed(&some), true, 0)
            .expect("within the limit");
    }
    assert_eq!(keys.count(), 8192);
}

#[test]
fn no_text_shows_a_secret() {
    let secret = b"hunter2!";
    let handed = handed(&[key(1, secret, FAR)]);
    let tokens = with_key(KeyGenerator::HmacSha1);
    let password = tokens
        .token_password(&unhex(LEGACY))
        .expect("the key is there");
    let encryption = tokens.data_encryption_key(&pool()).expect("a key");
    let token = tokens
        .make(&block(1), Access::to(AccessMode::Read))
        .expect("a key");
    let texts = [
        format!("{handed:?}"),
        format!("{tokens:?} {password:?} {encryption:?} {token:?}"),
        format!("{:?}", BlockKeysOfPool::new(pool())),
    ];
    for text in texts {
        assert!(
            !text.contains("hunter2") && !text.contains("28, 5, 27"),
            "{text}"
        );
    }
    assert_eq!(format!("{:?}", password.password), "Secret");
    assert_eq!(format!("{:?}", handed.current_key), "BlockKey(1)");
    assert_eq!(format!("{token:?}"), "Token(HDFS_BLOCK_TOKEN )");
}
