//! Tokens as text, as addresses of requests carry them (Hadoop's `Token.encodeToUrlString`).
//!
//! ```text
//! base64 for addresses, without padding, of:
//! identifier, password   each a length and bytes
//! kind, service          each a length and text
//! ```
//!
//! Lengths are Hadoop's `VInt`: a byte from -112 to 127, or one that tells how many follow.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{Bytes, BytesMut};

use crate::block_token::{WritableReader, write_count, write_name};
use crate::limits::{MAX_TOKEN_NAME_BYTES, MAX_TOKEN_PASSWORD_BYTES, MAX_USER_TOKEN_BYTES};
use crate::proto::security::Token;

/// Hadoop writes no padding, and reads it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Longest text: base64 of the longest parts and of their lengths, in bytes.
const TEXT_BYTES_MAX: usize =
    (MAX_USER_TOKEN_BYTES + MAX_TOKEN_PASSWORD_BYTES + 2 * MAX_TOKEN_NAME_BYTES + 16).div_ceil(3)
        * 4;

/// Why a text is no token. It does not repeat the text, which is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTokenText {
    /// More than any token has.
    #[error("a token of {0} characters; at most {TEXT_BYTES_MAX} are read")]
    TooLong(usize),
    /// It is no base64 for addresses.
    #[error("a token that is no base64 for addresses")]
    NoBase64,
    /// A part is missing, too long, or no text.
    #[error("a token with a bad {0}")]
    Part(&'static str),
    /// Bytes come behind the last part.
    #[error("a token with more behind its service")]
    MoreBehind,
}

/// Reads a token. Its identifier is whatever its maker wrote.
///
/// # Errors
/// It is none, or longer than one may be.
pub fn token_from_text(text: &str) -> Result<Token, BadTokenText> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(BadTokenText::TooLong(text.len()));
    }
    let bytes = BASE64.decode(text).map_err(|_| BadTokenText::NoBase64)?;
    let mut reader = WritableReader { rest: &bytes };
    let mut part = |what: &'static str, limit: usize| {
        let read = reader.count(what, limit);
        let read = read.and_then(|len| reader.take(what, len));
        read.map_err(|_| BadTokenText::Part(what))
    };
    let identifier = part("identifier", MAX_USER_TOKEN_BYTES)?;
    let password = part("password", MAX_TOKEN_PASSWORD_BYTES)?;
    let kind = part("kind", MAX_TOKEN_NAME_BYTES)?;
    let service = part("service", MAX_TOKEN_NAME_BYTES)?;
    if !reader.rest.is_empty() {
        return Err(BadTokenText::MoreBehind);
    }
    let named = |what: &'static str, bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(BadTokenText::Part(what)),
    };
    Ok(Token {
        identifier: Bytes::copy_from_slice(identifier),
        password: Bytes::copy_from_slice(password),
        kind: named("kind", kind)?,
        service: named("service", service)?,
    })
}

/// The text of a token.
#[must_use]
pub fn token_to_text(token: &Token) -> String {
    let mut out = BytesMut::new();
    for bytes in [&token.identifier, &token.password] {
        write_count(&mut out, bytes.len());
        out.extend_from_slice(bytes);
    }
    write_name(&mut out, &token.kind);
    write_name(&mut out, &token.service);
    BASE64.encode(&out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What Hadoop's `Token` makes of four bytes, twenty, a kind and a service.
    const TEXT: &str = "BAABAv4UAAECAwQFBgcICQoLDA0ODxAREhMVSERGU19ERUxFR0FUSU9OX1RPS0VODjEyNy4wLj\
        AuMTo4MDIw";

    fn token() -> Token {
        Token {
            identifier: Bytes::from_static(&[0, 1, 2, 0xfe]),
            password: (0..20).collect(),
            kind: "HDFS_DELEGATION_TOKEN".to_owned(),
            service: "127.0.0.1:8020".to_owned(),
        }
    }

    #[test]
    fn tokens_of_hadoop_are_read_and_written() {
        assert_eq!(token_from_text(TEXT), Ok(token()));
        assert_eq!(token_to_text(&token()), TEXT);
        let padded = format!("{}==", token_to_text(&Token::default()));
        assert_eq!(padded, "AAAAAA==");
        assert_eq!(token_from_text(&padded), Ok(Token::default()));
        let long = Token {
            identifier: vec![0xfb; 300].into(),
            ..token()
        };
        // A length of two bytes.
        assert!(token_to_text(&long).starts_with("jgEs-_v7"));
        assert_eq!(token_from_text(&token_to_text(&long)), Ok(long));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let of = |bytes: &[u8]| token_from_text(&BASE64.encode(bytes));
        assert_eq!(token_from_text(""), Err(BadTokenText::Part("identifier")));
        assert_eq!(token_from_text("a+/b"), Err(BadTokenText::NoBase64));
        assert_eq!(token_from_text("a token"), Err(BadTokenText::NoBase64));
        let long = "A".repeat(TEXT_BYTES_MAX + 1);
        let refused = BadTokenText::TooLong(long.len());
        assert_eq!(token_from_text(&long), Err(refused));
        assert_eq!(of(&[1]), Err(BadTokenText::Part("identifier")));
        assert_eq!(of(&[0xff, 0]), Err(BadTokenText::Part("identifier")));
        // 2^31 - 1 bytes, and more than there are of 64 bits.
        let huge = [0x8c, 0x7f, 0xff, 0xff, 0xff, 0];
        assert_eq!(of(&huge), Err(BadTokenText::Part("identifier")));
        let more = [0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(of(&more), Err(BadTokenText::Part("identifier")));
        assert_eq!(of(&[0, 1]), Err(BadTokenText::Part("password")));
        assert_eq!(of(&[0, 0, 1, 0xff, 0]), Err(BadTokenText::Part("kind")));
        assert_eq!(of(&[0, 0, 0]), Err(BadTokenText::Part("service")));
        assert_eq!(of(&[0, 0, 0, 0, 0]), Err(BadTokenText::MoreBehind));
        let told = BadTokenText::Part("kind").to_string();
        assert_eq!(told, "a token with a bad kind");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in ".{0,300}",
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = token_from_text(&text);
            if let Ok(token) = token_from_text(&BASE64.encode(&bytes)) {
                prop_assert!(token.identifier.len() + token.password.len() < bytes.len());
            }
        }

        #[test]
        fn tokens_come_back(
            identifier in prop::collection::vec(any::<u8>(), 0..MAX_USER_TOKEN_BYTES),
            password in prop::collection::vec(any::<u8>(), 0..MAX_TOKEN_PASSWORD_BYTES),
            kind in ".{0,20}",
            service in ".{0,20}",
        ) {
            let (identifier, password) = (identifier.into(), password.into());
            let token = Token { identifier, password, kind, service };
            prop_assert_eq!(token_from_text(&token_to_text(&token)), Ok(token));
        }
    }
}
