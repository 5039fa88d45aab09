//! Who proves to a web server who it is, by SPNEGO (RFC 4559). All tokens of one request are one
//! token: a caller that needs more steps gets no further, as with Apache's servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hayloft_gss::{GssContext, GssCredentials, Keytab, KeytabError};

use super::off_threads::{OffThreads, off_threads};

/// How the principals of web servers begin.
pub const HTTP_SERVICE: &str = "HTTP/";
/// How long one token may take: the keytab is read for it.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// What came of a caller's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebCaller {
    /// Who it is, with the realm; `None` when more tokens would be needed.
    pub principal: Option<String>,
    /// What the caller has to get; may be empty.
    pub answer: Vec<u8>,
}

/// Takes in a caller's token, which has to be for the principal `named`; without, the key of any
/// web server's principal in the keytab serves.
///
/// # Errors
/// The caller is not believed; the reason is for the log alone.
pub async fn accept_web_caller(
    keytab: &Path,
    named: Option<&str>,
    token: Vec<u8>,
) -> Result<WebCaller, String> {
    let keytab = PathBuf::from(keytab);
    let accepted = off_threads(OffThreads::WebCaller, STEP_LIMIT, move || {
        let keys = Arc::new(GssCredentials::accepting_any(&keytab)?);
        let mut context = GssContext::from_caller(keys)?;
        let step = context.step(&token)?;
        let called = if step.complete {
            Some((context.called()?, context.caller()))
        } else {
            None
        };
        Ok((step.token, called))
    });
    let (answer, called) = accepted.await.map_err(|error| error.to_string())?;
    let Some((called, caller)) = called else {
        return Ok(WebCaller {
            principal: None,
            answer,
        });
    };
    if !serves(&called, named) {
        return Err(format!("its ticket is for {called}, not for this port"));
    }
    let principal = caller.ok_or("its ticket names no principal")?;
    Ok(WebCaller {
        principal: Some(principal),
        answer,
    })
}

/// Whether a principal is that of the web port. The same keytab may have the keys of the data
/// port, and of other web servers.
fn serves(principal: &str, named: Option<&str>) -> bool {
    named.map_or(principal.starts_with(HTTP_SERVICE), |named| {
        principal == named
    })
}

/// The principals of a keytab that callers may call, as of [`accept_web_caller`]. Blocking.
///
/// # Errors
/// Why the keytab cannot be read.
pub fn web_principals(keytab: &Path, named: Option<&str>) -> Result<Vec<String>, String> {
    let keys = Keytab::read(keytab).map_err(|error| match error {
        KeytabError::Unreadable { reason, .. } => reason,
        _ => "it is no keytab of MIT's format".to_owned(),
    })?;
    let of_web = keys.principals().filter(|name| serves(name, named));
    Ok(of_web.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_principal_alone_is_called() {
        let (own, other) = ("HTTP/here@R", "HTTP/there@R");
        for (called, named, is) in [
            (own, Some(own), true),
            (other, Some(own), false),
            ("HTTP/here@ELSEWHERE", Some(own), false),
            ("dn/here@R", Some(own), false),
            (other, None, true),
            ("dn/here@R", None, false),
        ] {
            assert_eq!(serves(called, named), is, "{called} {named:?}");
        }
    }
}
