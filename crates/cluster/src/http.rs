//! The few bytes of HTTP that the commands and tests need: `GET` of a local page, or of a node's.

use crate::error::{ClusterError, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an answer may cost the caller.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// For the connection.
    pub connect: Duration,
    /// For all of it, the connection included.
    pub whole: Duration,
    /// Bytes of the answer, its head included.
    pub bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            whole: Duration::from_secs(12),
            bytes: 16 << 20,
        }
    }
}

/// Fetches `path` from a server and returns the body of a 200 answer, within the usual limits.
///
/// # Errors
/// As [`get_within`].
pub fn get(addr: SocketAddr, path: &str) -> Result<String> {
    get_within(addr, path, HttpLimits::default())
}

/// Fetches `path` from a server and returns the body of a 200 answer.
///
/// # Errors
/// [`ClusterError::Talk`] when the server is not there, takes longer or sends more than the limits
/// say, or answers anything but 200.
pub fn get_within(addr: SocketAddr, path: &str, limits: HttpLimits) -> Result<String> {
    Ok(get_with(addr, path, "", limits)?.body)
}

/// An answer with status 200.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// Its lines before the body.
    head: String,
    /// Its body.
    pub body: String,
}

impl HttpAnswer {
    /// What a header says, whose name may be in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(is, _)| is.trim().eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }
}

/// As [`get_within`], with the head of the answer. `more` is a header of the request, as it is
/// sent without its end of line, or nothing.
///
/// # Errors
/// As [`get_within`].
pub fn get_with(
    addr: SocketAddr,
    path: &str,
    more: &str,
    limits: HttpLimits,
) -> Result<HttpAnswer> {
    get_over(addr, path, (more, limits), None)
}

/// As [`get_with`]; over TLS where the server has a certificate, which is in a file (PEM).
fn get_over(
    addr: SocketAddr,
    path: &str,
    (more, limits): (&str, HttpLimits),
    certificate: Option<&Path>,
) -> Result<HttpAnswer> {
    let scheme = certificate.map_or("http", |_| "https");
    let fail =
        |problem: String| ClusterError::Talk(format!("GET {scheme}://{addr}{path}: {problem}"));
    let answer = exchange(addr, path, (more, limits), certificate).map_err(|error| {
        // What a time limit of a socket looks like depends on the system.
        let slow = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
        fail(if slow.contains(&error.kind()) {
            format!("no answer within {:?}", limits.whole)
        } else {
            error.to_string()
        })
    })?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| fail("no header end".into()))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        Ok(HttpAnswer {
            head: head.to_owned(),
            body: body.to_owned(),
        })
    } else {
        Err(fail(status.chars().take(200).collect()))
    }
}

/// Whether a server of HTTP answers, whatever it says: its pages may want tickets.
///
/// # Errors
/// [`ClusterError::Talk`] when it is not there, or sends no HTTP within the limits.
pub fn answers(addr: SocketAddr, limits: HttpLimits) -> Result<()> {
    // Of Hadoop's daemons no bean has this name.
    let answer = exchange(addr, "/jmx?qry=none", ("", limits), None);
    let answer = answer.map_err(|error| ClusterError::Talk(error.to_string()))?;
    match answer.starts_with(b"HTTP/1.") {
        true => Ok(()),
        false => Err(ClusterError::Talk("it speaks no HTTP".into())),
    }
}

/// Asks, and returns the answer with its head.
fn exchange(
    addr: SocketAddr,
    path: &str,
    (more, limits): (&str, HttpLimits),
    certificate: Option<&Path>,
) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + limits.whole;
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::Error::from(std::io::ErrorKind::TimedOut));
        }
        Ok(left)
    };
    let socket = TcpStream::connect_timeout(&addr, limits.connect.min(limits.whole))?;
    socket.set_write_timeout(Some(left()?))?;
    // The handshake of TLS reads when the request is written.
    socket.set_read_timeout(Some(left()?))?;
    let timed = socket.try_clone()?;
    let mut socket: Box<dyn Exchange> = match certificate {
        Some(certificate) => Box::new(over_tls(socket, addr, certificate)?),
        None => Box::new(socket),
    };
    // HTTP/1.0: the answer is not chunked and ends with the connection.
    let end_of_line = if more.is_empty() { "" } else { "\r\n" };
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {addr}\r\nConnection: close\r\n{more}{end_of_line}\r\n"
    );
    socket.write_all(request.as_bytes())?;
    let (mut answer, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        // Each read has what is left of the time: a server that drips does not hold the caller.
        timed.set_read_timeout(Some(left()?))?;
        let n = match socket.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(n) => n,
            // A server of TLS that leaves without a word: who parses the answer knows its end.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(answer),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if answer.len() + n > limits.bytes {
            let problem = format!("the answer is larger than {} bytes", limits.bytes);
            return Err(std::io::Error::other(problem));
        }
        answer.extend_from_slice(&part[..n]);
    }
}

/// A connection of either kind.
trait Exchange: Read + Write {}

impl<T: Read + Write> Exchange for T {}

/// TLS with a server at `addr` that has this very certificate.
fn over_tls(
    socket: TcpStream,
    addr: SocketAddr,
    certificate: &Path,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let certificate = CertificateDer::from_pem_file(certificate).map_err(std::io::Error::other)?;
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate).map_err(std::io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?;
    let config = config.with_root_certificates(trusted).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), addr.ip().into());
    let connection = connection.map_err(std::io::Error::other)?;
    Ok(StreamOwned::new(connection, socket))
}

/// One JMX bean of a Hadoop daemon, by its `name=` (the service is part of `query`).
///
/// # Errors
/// As [`get`], or when the page is not JSON or has no such bean.
pub fn jmx(addr: SocketAddr, query: &str) -> Result<serde_json::Value> {
    jmx_over(addr, query, None)
}

/// As [`jmx`]; over TLS where the server has a certificate, which is in a file (PEM).
///
/// # Errors
/// As [`jmx`]; also when the server has another certificate.
pub fn jmx_over(
    addr: SocketAddr,
    query: &str,
    certificate: Option<&Path>,
) -> Result<serde_json::Value> {
    let usual = ("", HttpLimits::default());
    let page = get_over(addr, &format!("/jmx?qry={query}"), usual, certificate)?.body;
    let mut page: serde_json::Value = serde_json::from_str(&page)
        .map_err(|e| ClusterError::Talk(format!("jmx {query} at {addr}: {e}")))?;
    page["beans"]
        .as_array_mut()
        .and_then(|beans| beans.pop())
        .ok_or_else(|| ClusterError::Talk(format!("jmx at {addr} has no bean {query}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const TIGHT: HttpLimits = HttpLimits {
        connect: Duration::from_millis(500),
        whole: Duration::from_millis(500),
        bytes: 1000,
    };

    /// A server that sends `part` again and again, with a pause, until the client has left.
    fn server(part: &'static [u8], pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            while socket.write_all(part).is_ok() {
                std::thread::sleep(pause);
            }
        });
        addr
    }

    #[test]
    fn slow_and_large_answers_are_given_up() {
        let begin = Instant::now();
        let dripping = server(b"H", Duration::from_millis(20));
        let error = get_within(dripping, "/", TIGHT).expect_err("slow");
        assert!(error.to_string().contains("no answer within"), "{error}");
        let endless = server(&[b'x'; 512], Duration::ZERO);
        let error = get_within(endless, "/", TIGHT).expect_err("large");
        assert!(error.to_string().contains("larger than 1000"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}
