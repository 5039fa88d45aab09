//! Who gets through, and what the others hear.

use axum::http::HeaderMap;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn by(how: How) -> Authentication {
    Authentication {
        how,
        signer: CookieSigner::new(b"secret"),
        lasts: Duration::from_secs(60),
        idle: None,
        attributes: "; Path=/".to_owned(),
        log: LogLimit::default(),
    }
}

fn tickets() -> Authentication {
    with_keytab("/no/such/keytab".into())
}

fn with_keytab(keytab: PathBuf) -> Authentication {
    by(How::Kerberos {
        keytab,
        principal: None,
        names: ShortNames::Cut,
        open: vec!["/jmx".to_owned()],
    })
}

async fn ask(
    authentication: &Authentication,
    path: &str,
    query: &str,
    sent: &[(HeaderName, &str)],
) -> Result<Passed, Refused> {
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        headers.append(name, HeaderValue::from_str(value).expect("a value"));
    }
    let asked = Asked {
        path,
        query: Some(query),
        headers: &headers,
        over_tls: true,
    };
    authentication.pass(&asked).await
}

fn value(headers: &[(HeaderName, HeaderValue)], wanted: &HeaderName) -> Option<String> {
    let found = headers.iter().find(|(name, _)| name == wanted)?;
    found.1.to_str().ok().map(str::to_owned)
}

#[tokio::test]
async fn a_name_gets_a_cookie_that_serves_later() {
    let by_name = by(How::Simple { anonymous: false });
    let refused = ask(&by_name, "/", "", &[]).await.expect_err("no name");
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let told = value(&refused.headers, &header::WWW_AUTHENTICATE);
    assert_eq!(told.as_deref(), Some("PseudoAuth"));
    let cleared = value(&refused.headers, &header::SET_COOKIE);
    assert_eq!(cleared.as_deref(), Some("hadoop.auth=; Path=/; HttpOnly"));
    let passed = ask(&by_name, "/", "user.name=ann", &[]).await;
    let passed = passed.expect("a name");
    assert_eq!(passed.user.name.as_deref(), Some("ann"));
    assert!(!passed.user.proved);
    let cookie = value(&passed.headers, &header::SET_COOKIE).expect("a cookie");
    assert!(cookie.ends_with("\"; Path=/; Secure; HttpOnly"), "{cookie}");
    let sent = cookie.split(';').next().unwrap_or_default();
    let later = ask(&by_name, "/", "", &[(header::COOKIE, sent)]).await;
    let later = later.expect("a cookie");
    assert_eq!(later.user.name.as_deref(), Some("ann"));
    assert_eq!(later.headers.len(), 0);
    // A name that was only said is no proof.
    let other = ask(&tickets(), "/", "", &[(header::COOKIE, sent)]).await;
    assert_eq!(
        other.expect_err("no ticket").status,
        StatusCode::UNAUTHORIZED
    );
    for odd in ["user.name=", "user.name=a%26p%3Db", "user.name=a%0Ab"] {
        let refused = ask(&by_name, "/", odd, &[]).await.expect_err("no name");
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{odd}");
    }
}

#[tokio::test]
async fn a_ticket_is_asked_for() {
    let tickets = tickets();
    for sent in [&[][..], &[(header::AUTHORIZATION, "Basic YTpi")]] {
        let refused = ask(&tickets, "/conf", "user.name=ann", sent).await;
        let refused = refused.expect_err("no ticket");
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        let told = value(&refused.headers, &header::WWW_AUTHENTICATE);
        assert_eq!(told.as_deref(), Some(NEGOTIATE));
    }
    for token in ["Negotiate !", "Negotiate YWJj", "Negotiate"] {
        let refused = ask(&tickets, "/conf", "", &[(header::AUTHORIZATION, token)]).await;
        let refused = refused.expect_err("no ticket");
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{token}");
    }
    let open = ask(&tickets, "/jmx", "", &[]).await.expect("open");
    assert_eq!(open.user, WebUser::default());
    assert!(ask(&tickets, "/jmx/", "", &[]).await.is_err());
}

#[tokio::test]
async fn a_cookie_of_another_server_serves_until_it_expires() {
    let tickets = tickets();
    let cookie = |expires| {
        let token = CookieToken::new("ann", "ann@R", KERBEROS, expires).expect("fits");
        format!("a=b; hadoop.auth=\"{}\"", tickets.signer.sign(&token))
    };
    let fresh = cookie(now_ms() + 60_000);
    let passed = ask(&tickets, "/conf", "", &[(header::COOKIE, &fresh)]).await;
    assert!(passed.expect("a cookie").user.proved);
    let idle = Authentication {
        idle: Some(Duration::from_secs(5)),
        ..self::tickets()
    };
    let passed = ask(&idle, "/conf", "", &[(header::COOKIE, &fresh)]).await;
    let later = value(&passed.expect("a cookie").headers, &header::SET_COOKIE);
    assert!(later.is_some_and(|later| later.contains("&t=kerberos&i=1")));
    for bad in [
        cookie(now_ms() - 1),
        fresh.replace("u=ann", "u=hdfs"),
        "hadoop.auth=".to_owned(),
    ] {
        let refused = ask(&tickets, "/conf", "", &[(header::COOKIE, &bad)]).await;
        assert!(refused.is_err(), "{bad}");
    }
}

/// A keytab of a web server whose key no KDC knows, in `dir`.
fn keytab_in(dir: &Path) -> PathBuf {
    let counted = |text: &str| {
        let length = u16::try_from(text.len()).expect("short");
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    let parts = ["REALM", "HTTP", "host.example"].map(counted).concat();
    // A name of two parts; its type, no time, the first key; AES of 256 bits.
    let rest = [0u8, 0, 0, 1, 0, 0, 0, 0, 1, 0, 18, 0, 32];
    let entry = [&[0u8, 2][..], &parts, &rest, &[7; 32]].concat();
    let length = i32::try_from(entry.len()).expect("short");
    let path = dir.join("keytab");
    let file = [&[5u8, 2][..], &length.to_be_bytes(), &entry].concat();
    std::fs::write(&path, file).expect("written");
    path
}

/// How Kerberos' first token begins behind its frame, and how SPNEGO's does.
const KERBEROS_TOKEN: &[u8] = &[6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 1, 2, 2, 1, 0];
const SPNEGO_TOKEN: &[u8] = &[6, 6, 0x2B, 6, 1, 5, 5, 2];

/// As RFC 2743 frames first tokens (section 3.1).
fn framed(begin: &[u8], rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(begin.len() + rest.len()).expect("short");
    [&[0x60u8, 0x82][..], &length.to_be_bytes(), begin, rest].concat()
}

#[test]
fn the_keytab_of_tests_is_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let principals = web_principals(&keytab_in(dir.path()), None);
    assert_eq!(principals, Ok(vec!["HTTP/host.example@REALM".to_owned()]));
}

proptest! {
    #[test]
    fn no_bytes_prove_who_asks(bytes in vec(any::<u8>(), 0..300), form in 0..5) {
        let in_base64 = |token: &[u8]| format!("{NEGOTIATE} {}", BASE64_STANDARD.encode(token));
        let sent: Vec<u8> = match form {
            // What headers cannot hold stands for something else.
            0 => bytes.iter().map(|byte| (*byte).max(b' ')).collect(),
            1 => [NEGOTIATE.as_bytes(), b" ", &bytes].concat(),
            2 => in_base64(&bytes).into_bytes(),
            3 => in_base64(&framed(KERBEROS_TOKEN, &bytes)).into_bytes(),
            _ => in_base64(&framed(SPNEGO_TOKEN, &bytes)).into_bytes(),
        };
        let Ok(sent) = HeaderValue::from_bytes(&sent) else {
            return Ok(());
        };
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, sent)]);
        let asked = Asked {
            path: "/conf",
            query: Some("user.name=ann"),
            headers: &headers,
            over_tls: true,
        };
        let dir = tempfile::tempdir().expect("a directory");
        let authentication = with_keytab(keytab_in(dir.path()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = runtime.expect("a runtime").block_on(authentication.pass(&asked));
        prop_assert!(answer.is_err(), "{:?}", answer);
        if let Err(refused) = answer {
            let known = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
            prop_assert!(known.contains(&refused.status), "{:?}", refused);
            let cookie = value(&refused.headers, &header::SET_COOKIE);
            prop_assert_eq!(cookie.as_deref(), Some("hadoop.auth=; Path=/; HttpOnly"));
        }
    }
}
