//! Callers who say, or prove, who they are (`hadoop.http.authentication.*`), as Hadoop's
//! `AuthenticationFilter` has it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hayloft_client::login;
use hayloft_conf::{Configuration, keys};
use hayloft_rpc::log_limit::{LogLimit, words};
use hayloft_rpc::security::{HTTP_SERVICE, accept_web_caller, web_principals};
use tracing::{debug, info, warn};
use zeroize::Zeroizing;

use super::cookie::{self, CookieSigner, CookieToken};
use super::{Asked, Passed, Refused, WebUser};
use crate::http::{parameter, secret_file};
use crate::security::ShortNames;

const KERBEROS: &str = "kerberos";
const SIMPLE: &str = "simple";
const NEGOTIATE: &str = "Negotiate";
/// Bytes of a secret that this node makes.
const SECRET_BYTES: usize = 32;
/// Where the secret is when no key says so, below the user's home.
const SECRET_FILE: &str = "hadoop-http-auth-signature-secret";

/// How callers are known.
#[derive(Debug)]
enum How {
    /// By `user.name=` in the URL.
    Simple {
        /// Without a name, too.
        anonymous: bool,
    },
    /// By SPNEGO.
    Kerberos {
        keytab: PathBuf,
        /// Whom callers call; `None`: any web server of the keytab.
        principal: Option<String>,
        names: ShortNames,
        /// Paths without.
        open: Vec<String>,
    },
}

/// The filter.
#[derive(Debug)]
pub(super) struct Authentication {
    how: How,
    signer: CookieSigner,
    lasts: Duration,
    /// How long it lasts without a request; `None`: as long.
    idle: Option<Duration>,
    /// What follows the cookie's value.
    attributes: String,
    log: LogLimit,
}

impl Authentication {
    pub(super) async fn of(config: &Configuration) -> Result<Self, String> {
        let type_key = keys::HTTP_AUTHENTICATION.name();
        let how = match config.get(&keys::HTTP_AUTHENTICATION).as_str() {
            SIMPLE => How::Simple {
                anonymous: config.get(&keys::HTTP_ANONYMOUS),
            },
            KERBEROS => kerberos(config).await?,
            other => {
                return Err(format!(
                    "{type_key} ({}) is {other:?}: simple and kerberos are served",
                    config.origin(type_key)
                ));
            }
        };
        let domain = config.get(&keys::HTTP_COOKIE_DOMAIN);
        let domain = domain.map_or_else(String::new, |domain| format!("; Domain={domain}"));
        let attributes = format!("; Path=/{domain}");
        HeaderValue::from_str(&attributes)
            .map_err(|_| format!("{} is none", keys::HTTP_COOKIE_DOMAIN.name()))?;
        Ok(Self {
            how,
            signer: CookieSigner::new(&secret(config)?),
            lasts: config.get(&keys::HTTP_COOKIE_LASTS),
            idle: idle(config)?,
            attributes,
            log: LogLimit::default(),
        })
    }

    const fn kind(&self) -> &'static str {
        match self.how {
            How::Simple { .. } => SIMPLE,
            How::Kerberos { .. } => KERBEROS,
        }
    }

    /// Finds out who asks.
    pub(super) async fn pass(&self, asked: &Asked<'_>) -> Result<Passed, Refused> {
        if let Some(token) = self.known(asked) {
            return Ok(self.seen_again(token, asked.over_tls));
        }
        match &self.how {
            How::Simple { anonymous } => self.by_name(asked, *anonymous),
            How::Kerberos { open, .. } if open.iter().any(|path| path == asked.path) => {
                Ok(Passed::default())
            }
            How::Kerberos {
                keytab,
                principal,
                names,
                ..
            } => {
                let by = (keytab.as_path(), principal.as_deref());
                self.by_ticket(asked, by, names).await
            }
        }
    }

    fn passed(&self, name: String) -> Passed {
        let proved = matches!(self.how, How::Kerberos { .. });
        let name = Some(name);
        Passed {
            user: WebUser { name, proved },
            headers: Vec::new(),
        }
    }

    /// By the cookie, if there is one that counts.
    fn known(&self, asked: &Asked<'_>) -> Option<CookieToken> {
        let cookies = asked.headers.get_all(header::COOKIE).into_iter();
        let mut each = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|one| one.trim().split_once('='));
        let (_, value) = each.find(|(name, _)| *name == cookie::NAME)?;
        let token = self.signer.verify(value.trim());
        let token = token.filter(|token| token.kind == self.kind() && !token.has_expired(now_ms()));
        if token.is_none() {
            debug!("a cookie of the web port does not count any more");
        }
        token
    }

    /// Whom a cookie names. Where idle ones end, it gets another that ends later.
    fn seen_again(&self, mut token: CookieToken, over_tls: bool) -> Passed {
        let mut passed = self.passed(token.user.clone());
        if let Some(idle) = self.idle {
            token.idle_until_ms = Some(after(idle));
            let value = format!("\"{}\"", self.signer.sign(&token));
            passed.headers.push(self.cookie(&value, over_tls));
        }
        passed
    }

    fn by_name(&self, asked: &Asked<'_>, anonymous: bool) -> Result<Passed, Refused> {
        match parameter(asked.query, "user.name") {
            Some(name) => self.issue(asked, name.clone(), &name, None),
            None if anonymous => Ok(Passed::default()),
            None => Err(self.refuse(StatusCode::UNAUTHORIZED, "PseudoAuth".to_owned())),
        }
    }

    async fn by_ticket(
        &self,
        asked: &Asked<'_>,
        (keytab, called): (&Path, Option<&str>),
        names: &ShortNames,
    ) -> Result<Passed, Refused> {
        let unproved = |answer: String| self.refuse(StatusCode::UNAUTHORIZED, answer);
        let sent = asked.headers.get(header::AUTHORIZATION);
        let token = sent
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix(NEGOTIATE));
        let Some(token) = token else {
            return Err(unproved(NEGOTIATE.to_owned()));
        };
        let Ok(token) = BASE64_STANDARD.decode(token.trim()) else {
            return Err(self.disbelieved("its token is no Base64"));
        };
        let caller = accept_web_caller(keytab, called, token).await;
        let caller = caller.map_err(|why| self.disbelieved(&why))?;
        let answer = format!("{NEGOTIATE} {}", BASE64_STANDARD.encode(&caller.answer));
        let Some(principal) = caller.principal else {
            return Err(unproved(answer));
        };
        let user = names.of(&principal).map_err(|why| self.disbelieved(&why))?;
        let answer = (!caller.answer.is_empty()).then_some(answer);
        self.issue(asked, user, &principal, answer)
    }

    /// Gives a caller a cookie.
    fn issue(
        &self,
        asked: &Asked<'_>,
        user: String,
        principal: &str,
        answer: Option<String>,
    ) -> Result<Passed, Refused> {
        let token = CookieToken::new(&user, principal, self.kind(), after(self.lasts));
        let Some(token) = token else {
            return Err(self.disbelieved("its name does not fit into a cookie"));
        };
        let value = format!("\"{}\"", self.signer.sign(&token));
        let mut passed = self.passed(user);
        passed.headers = vec![self.cookie(&value, asked.over_tls)];
        let answer = answer.and_then(|answer| HeaderValue::try_from(answer).ok());
        passed
            .headers
            .extend(answer.map(|answer| (header::WWW_AUTHENTICATE, answer)));
        Ok(passed)
    }

    fn cookie(&self, value: &str, over_tls: bool) -> (HeaderName, HeaderValue) {
        let secure = if over_tls { "; Secure" } else { "" };
        let (name, attributes) = (cookie::NAME, &self.attributes);
        let text = format!("{name}={value}{attributes}{secure}; HttpOnly");
        let value = HeaderValue::try_from(text);
        // Names were looked at: nothing that a header cannot hold is in them.
        let value = value.unwrap_or_else(|_| HeaderValue::from_static("hadoop.auth="));
        (header::SET_COOKIE, value)
    }

    /// A caller that is not believed: the reason may well be this node's keytab or clock.
    fn disbelieved(&self, why: &str) -> Refused {
        if let Some(skipped) = self.log.may_log() {
            let reason = words(why);
            warn!(skipped, reason, "a caller of the web port is not believed");
        }
        Refused {
            status: StatusCode::FORBIDDEN,
            message: "Authentication failed",
            headers: vec![self.cookie("", false)],
        }
    }

    fn refuse(&self, status: StatusCode, answer: String) -> Refused {
        let mut headers = vec![self.cookie("", false)];
        let answer = HeaderValue::try_from(answer).ok();
        headers.extend(answer.map(|answer| (header::WWW_AUTHENTICATE, answer)));
        Refused {
            status,
            message: "Authentication required",
            headers,
        }
    }
}

/// How long a cookie may be idle.
fn idle(config: &Configuration) -> Result<Option<Duration>, String> {
    let key = &keys::HTTP_COOKIE_IDLE;
    let value = config.get(key);
    let seconds = value.parse::<i64>();
    let seconds = seconds.map_err(|_| format!("{} is {value:?}: seconds", key.name()))?;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    Ok(seconds.map(Duration::from_secs))
}

async fn kerberos(config: &Configuration) -> Result<How, String> {
    let principal = login::web_principal(config).await?;
    if let Some(other) = principal.as_ref().filter(|p| !p.starts_with(HTTP_SERVICE)) {
        return Err(format!(
            "{} is {other}, but clients call HTTP/host@REALM",
            keys::HTTP_PRINCIPAL.name()
        ));
    }
    let key = keys::HTTP_KEYTAB.name();
    let keytab = config.get(&keys::HTTP_KEYTAB).map(PathBuf::from);
    let keytab = keytab.ok_or_else(|| {
        format!(
            "{} is kerberos, but {key} is not set: name the keytab that has the key of \
             HTTP/host@REALM",
            keys::HTTP_AUTHENTICATION.name()
        )
    })?;
    let unusable = |why: &str| {
        format!(
            "{key} ({}) is {}: {why}; correct it",
            config.origin(key),
            keytab.display()
        )
    };
    let principals = web_principals(&keytab, principal.as_deref());
    let principals = principals.map_err(|why| unusable(&why))?;
    if principals.is_empty() {
        let wanted = principal
            .as_deref()
            .unwrap_or("a principal HTTP/host@REALM");
        return Err(unusable(&format!("it has no key of {wanted}")));
    }
    info!(
        ?principals,
        "pages of the web port are for callers with tickets"
    );
    let names = ShortNames::of_principals(config);
    if let ShortNames::Rules(Err(why)) = &names {
        return Err(why.clone());
    }
    Ok(How::Kerberos {
        keytab,
        principal,
        names,
        open: config.get(&keys::HTTP_OPEN_PATHS),
    })
}

/// What cookies are signed with: the file's bytes, or random ones where there is no file, as
/// Hadoop's servers have it. Then no other server takes the cookies, nor this one after a restart.
fn secret(config: &Configuration) -> Result<Zeroizing<Vec<u8>>, String> {
    let from = config.get(&keys::HTTP_COOKIE_SECRET_FROM);
    if from != "file" && from != "random" {
        let key = keys::HTTP_COOKIE_SECRET_FROM.name();
        return Err(format!("{key} is {from:?}: file and random are served"));
    }
    let named = config.get(&keys::HTTP_COOKIE_SECRET).map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(SECRET_FILE));
    let file = named.clone().or(home).filter(|_| from == "file");
    if let Some(file) = file {
        match secret_file::read(&file) {
            Ok(secret) if !secret.is_empty() => return Ok(secret),
            Ok(_) => warn!(file = %file.display(), "the secret of cookies is empty"),
            // The file that no key names may well be missing.
            Err(error) if named.is_some() => {
                warn!(file = %file.display(), %error, "the secret of cookies cannot be read");
            }
            Err(_) => {}
        }
    }
    let secret: [u8; SECRET_BYTES] = rand::random();
    Ok(Zeroizing::new(secret.to_vec()))
}

/// Milliseconds since 1970, so long from now.
fn after(time: Duration) -> i64 {
    let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    now_ms().saturating_add(time)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    i64::try_from(since).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "authentication_tests.rs"]
mod tests;
