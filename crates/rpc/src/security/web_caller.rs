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

/// Takes in a caller's token. The key of any web server's principal in the keytab serves.
///
/// # Errors
/// The caller is not believed; the reason is for the log alone.
pub async fn accept_web_caller(keytab: &Path, token: Vec<u8>) -> Result<WebCaller, String> {
    let keytab = PathBuf::from(keytab);
    let accepted = off_threads(OffThreads::Caller, STEP_LIMIT, move || {
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
    // The same keytab may have the key of the data port's principal: tickets for that are not
    // meant for this port.
    if !called.starts_with(HTTP_SERVICE) {
        return Err(format!(
            "its ticket is for {called}, which is no web server's"
        ));
    }
    let principal = caller.ok_or("its ticket names no principal")?;
    Ok(WebCaller {
        principal: Some(principal),
        answer,
    })
}

/// The web servers' principals of a keytab. Blocking.
///
/// # Errors
/// Why the keytab cannot be read.
pub fn web_principals(keytab: &Path) -> Result<Vec<String>, String> {
    let keys = Keytab::read(keytab).map_err(|error| match error {
        KeytabError::Unreadable { reason, .. } => reason,
        _ => "it is no keytab of MIT's format".to_owned(),
    })?;
    let of_web = keys
        .principals()
        .filter(|name| name.starts_with(HTTP_SERVICE));
    Ok(of_web.map(str::to_owned).collect())
}
