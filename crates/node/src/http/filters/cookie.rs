//! The cookie that callers get instead of a proof with each request, as Hadoop's servers sign it:
//! one that another server signed with the same secret is taken here.
//!
//! Its value is `u=USER&p=PRINCIPAL&t=TYPE&e=EXPIRES&s=SIGNATURE`: milliseconds since 1970, and
//! HMAC-SHA256 of what stands before `&s=`, in Base64. `i=` before `e=` is a time, too.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

/// Name of the cookie.
pub(super) const NAME: &str = "hadoop.auth";
/// Longest value that is looked at, bytes.
const VALUE_MAX: usize = 8 << 10;
const SIGNATURE: &str = "&s=";
/// A time that never comes.
const NEVER: i64 = -1;

/// Who a caller is, and until when that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CookieToken {
    /// Short name.
    pub(super) user: String,
    /// Full name.
    pub(super) principal: String,
    /// How it was proved: `kerberos` or `simple`.
    pub(super) kind: String,
    /// Milliseconds since 1970.
    pub(super) expires_ms: i64,
    /// Unless it is used until then; other servers may say so.
    pub(super) idle_until_ms: Option<i64>,
}

impl CookieToken {
    /// One for a caller; `None` for names that no cookie can hold.
    pub(super) fn new(user: &str, principal: &str, kind: &str, expires_ms: i64) -> Option<Self> {
        let fits = |name: &str| {
            let plain = |c: char| c.is_ascii_graphic() && !"&\";,\\".contains(c);
            !name.is_empty() && name.len() <= VALUE_MAX / 4 && name.chars().all(plain)
        };
        (fits(user) && fits(principal)).then(|| Self {
            user: user.to_owned(),
            principal: principal.to_owned(),
            kind: kind.to_owned(),
            expires_ms,
            idle_until_ms: None,
        })
    }

    fn text(&self) -> String {
        let (user, principal) = (&self.user, &self.principal);
        let (kind, expires) = (&self.kind, self.expires_ms);
        let idle = self.idle_until_ms.map(|until| format!("i={until}&"));
        let idle = idle.unwrap_or_default();
        format!("u={user}&p={principal}&t={kind}&{idle}e={expires}")
    }

    fn parse(text: &str) -> Option<Self> {
        let (mut user, mut principal, mut kind) = (None, None, None);
        let (mut expires, mut idle) = (None, None);
        for part in text.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=')? {
                ("u", value) => user = Some(value.to_owned()),
                ("p", value) => principal = Some(value.to_owned()),
                ("t", value) => kind = Some(value.to_owned()),
                ("e", value) => expires = value.parse().ok(),
                ("i", value) => idle = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(Self {
            user: user.filter(|user| !user.is_empty())?,
            principal: principal?,
            kind: kind?,
            expires_ms: expires?,
            idle_until_ms: idle,
        })
    }

    /// Whether it counts no more.
    pub(super) fn has_expired(&self, now_ms: i64) -> bool {
        let over = |until: i64| until != NEVER && now_ms > until;
        over(self.expires_ms) || self.idle_until_ms.is_some_and(over)
    }
}

/// Signs cookies, and knows its own.
pub(super) struct CookieSigner {
    key: hmac::Key,
}

impl std::fmt::Debug for CookieSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieSigner")
    }
}

impl CookieSigner {
    /// With the bytes of the secret's file, every one of them.
    pub(super) fn new(secret: &[u8]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
        }
    }

    /// The cookie's value.
    pub(super) fn sign(&self, token: &CookieToken) -> String {
        let text = token.text();
        let signature = hmac::sign(&self.key, text.as_bytes());
        format!("{text}{SIGNATURE}{}", BASE64_STANDARD.encode(signature))
    }

    /// What a cookie says, if it was signed with the same secret.
    pub(super) fn verify(&self, value: &str) -> Option<CookieToken> {
        let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        let value = quoted.unwrap_or(value);
        if value.len() > VALUE_MAX {
            return None;
        }
        let (text, signature) = value.rsplit_once(SIGNATURE)?;
        let signature = BASE64_STANDARD.decode(signature).ok()?;
        hmac::verify(&self.key, text.as_bytes(), &signature).ok()?;
        CookieToken::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token() -> CookieToken {
        CookieToken::new("ann", "ann@R", "kerberos", 1_700_000_000_000).expect("fits")
    }

    #[test]
    fn the_signature_is_hadoop_s() {
        let signer = CookieSigner::new(b"secret\n");
        let value = signer.sign(&token());
        let text = "u=ann&p=ann@R&t=kerberos&e=1700000000000";
        // By `openssl dgst -sha256 -hmac`, of that text.
        let signature = "J3ofNt3RhV/ujWX/8HPFw1oTeWU/hXBe+GrzJCZpA1U=";
        assert_eq!(value, format!("{text}&s={signature}"));
        assert_eq!(signer.verify(&value), Some(token()));
        assert_eq!(signer.verify(&format!("\"{value}\"")), Some(token()));
        let other = CookieSigner::new(b"secret");
        assert_eq!(other.verify(&value), None);
        let changed = value.replace("u=ann", "u=eve");
        assert_eq!(signer.verify(&changed), None);
    }

    #[test]
    fn an_idle_time_of_another_server_counts() {
        let of = |text: &str| CookieToken::parse(text).expect("a token");
        let idle = of("u=a&p=a&t=simple&i=10&e=100");
        assert!(!idle.has_expired(10) && idle.has_expired(11));
        assert_eq!(idle.text(), "u=a&p=a&t=simple&i=10&e=100");
        let none = of("u=a&p=a&t=simple&e=100");
        assert!(!none.has_expired(100) && none.has_expired(101));
        assert!(!of("u=a&p=a&t=simple&e=-1").has_expired(i64::MAX));
        for bad in [
            "",
            "u=a&p=a&t=simple",
            "u=&p=a&t=simple&e=1",
            "u=a&p=a&t=simple&e=x",
            "u=a&p=a&t=simple&e=1&x=1",
            "u",
        ] {
            assert_eq!(CookieToken::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_that_would_end_the_value_are_none() {
        for bad in ["", "a&p=b", "a\"", "a;b", "a b", "a\r\n", "\u{fc}"] {
            assert_eq!(CookieToken::new(bad, "p", "simple", 1), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_was_signed_is_known_again(
            user in "[a-zA-Z0-9._$-]{1,20}",
            principal in "[a-zA-Z0-9._/@-]{1,40}",
            expires: i64,
        ) {
            let signer = CookieSigner::new(user.as_bytes());
            let token = CookieToken::new(&user, &principal, "simple", expires).expect("fits");
            prop_assert_eq!(signer.verify(&signer.sign(&token)), Some(token));
        }

        #[test]
        fn anything_else_is_refused(value in "[ -~]{0,200}") {
            prop_assert_eq!(CookieSigner::new(b"secret").verify(&value), None);
        }
    }
}
