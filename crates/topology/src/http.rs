//! One request within a second, over a connection of its own.
//!
//! It never looks at `http_proxy` and never follows a redirect: an answer of a metadata server
//! that came from elsewhere would place replicas by a stranger's word.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

/// What a request may take, connection and answer included.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(1);
/// Bytes of an answer's body: a metadata server's largest page has a few KiB.
pub(crate) const BODY_LIMIT: usize = 256 << 10;
/// Bytes of an answer's head.
const HEAD_LIMIT: usize = 32 << 10;

/// Where a server is: `http://HOST:PORT` or `https://HOST`, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    secure: bool,
    host: String,
    port: u16,
}

impl BaseUrl {
    /// Whether a secret may be sent there: over TLS, or to this machine.
    pub(crate) fn keeps_secrets(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.secure || address.is_ok_and(|address| address.is_loopback())
    }

    /// What the header `Host` says.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl FromStr for BaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is no address of the form http://HOST:PORT");
        let uri: Uri = text.parse().map_err(|_| wanted())?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wanted()),
        };
        let extra = uri.query().is_some() || !matches!(uri.path(), "" | "/");
        let user = uri
            .authority()
            .is_some_and(|all| all.as_str().contains('@'));
        let host = uri.host().unwrap_or_default();
        if extra || user || host.is_empty() {
            return Err(wanted());
        }
        Ok(Self {
            secure,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
        })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// A question to a server.
pub(crate) struct Question<'a> {
    /// `GET` or `PUT`.
    pub method: Method,
    /// The server.
    pub at: &'a BaseUrl,
    /// Path and query, beginning with `/`.
    pub path: &'a str,
    /// Headers besides `Host`.
    pub headers: &'a [(&'a str, &'a str)],
    /// Whom to trust over TLS.
    pub roots: Option<Arc<RootCertStore>>,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub body: String,
}

impl Reply {
    /// The body of a 200 answer; none for 404.
    ///
    /// # Errors
    /// Says any other status.
    pub fn found(self) -> Result<Option<String>, String> {
        match self.status {
            200 => Ok(Some(self.body)),
            404 => Ok(None),
            _ => Err(self.refusal()),
        }
    }

    /// What a status other than 200 means.
    pub fn refusal(&self) -> String {
        match self.status {
            300..400 => format!(
                "answered {}, a redirect, which is not followed",
                self.status
            ),
            status => format!("answered {status}"),
        }
    }
}

/// Sends questions, one after the other.
pub struct HttpAsker {
    /// None only while it is dropped.
    runtime: Option<Runtime>,
}

impl HttpAsker {
    /// Its own runtime: sources are asked from threads.
    ///
    /// # Errors
    /// Says why the system gives no event queue.
    pub(crate) fn new() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| format!("cannot make a runtime: {error}"))?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Asks, within [`REQUEST_LIMIT`] and [`BODY_LIMIT`].
    ///
    /// # Errors
    /// Says what was asked and what went wrong.
    pub(crate) fn ask(&self, question: &Question<'_>) -> Result<Reply, String> {
        let runtime = self.runtime.as_ref().ok_or("the runtime has ended")?;
        let answer = runtime
            .block_on(async { tokio::time::timeout(REQUEST_LIMIT, exchange(question)).await });
        let problem = match answer {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(problem)) => problem,
            Err(_) => format!("no answer within {REQUEST_LIMIT:?}"),
        };
        let path = question.path.split('?').next().unwrap_or_default();
        Err(format!("{}{path}: {problem}", question.at))
    }
}

impl Drop for HttpAsker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A look-up of a name that hangs does not hold us.
            runtime.shutdown_background();
        }
    }
}

async fn exchange(question: &Question<'_>) -> Result<Reply, String> {
    let at = question.at;
    let socket = TcpStream::connect((at.host.as_str(), at.port)).await;
    let socket = socket.map_err(|error| error.to_string())?;
    if !at.secure {
        return talk(socket, question).await;
    }
    let roots = question.roots.clone().ok_or("no certificates to trust")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(at.host.clone()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, socket).await;
    talk(stream.map_err(|error| error.to_string())?, question).await
}

async fn talk<S>(stream: S, question: &Question<'_>) -> Result<Reply, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let said = |error: hyper::Error| garbled(&error);
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_LIMIT)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(said)?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let mut request = Request::builder()
            .method(question.method.clone())
            .uri(question.path)
            .header("host", question.at.authority())
            .header("user-agent", concat!("hayloft/", env!("CARGO_PKG_VERSION")))
            .header("connection", "close");
        for (name, value) in question.headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::new()));
        let request = request.map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(said)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_LIMIT).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => format!("the answer is larger than {BODY_LIMIT} bytes"),
            false => format!("the answer was cut short: {error}"),
        })?;
        let body = String::from_utf8(body.to_bytes().into());
        Ok(Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.map_err(|_| "the answer is not text in UTF-8")?,
        })
    };
    let answer = answer.await;
    connection.abort();
    answer
}

/// What hyper says, with the cause that it keeps apart.
fn garbled(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("no answer of HTTP ({error}{cause})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_no_path() {
        for bad in [
            "",
            "x",
            "ftp://x",
            "http://",
            "http://x/y",
            "http://a@b",
            "http://x?y",
        ] {
            assert!(bad.parse::<BaseUrl>().is_err(), "{bad}");
        }
        let url: BaseUrl = "http://[fd00:ec2::254]".parse().expect("an address");
        assert_eq!(
            (url.port, url.to_string().as_str()),
            (80, "http://[fd00:ec2::254]")
        );
        assert!(!url.keeps_secrets());
        let here: BaseUrl = "http://127.0.0.1:8080".parse().expect("an address");
        assert!(here.keeps_secrets() && here.authority() == "127.0.0.1:8080");
    }
}
