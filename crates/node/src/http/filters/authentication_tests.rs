//! Who gets through, and what the others hear.

use axum::http::HeaderMap;

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
    by(How::Kerberos {
        keytab: "/no/such/keytab".into(),
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
