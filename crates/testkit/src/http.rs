//! The few bytes of HTTP that the lab needs: `GET` of a local JMX page.

use crate::error::{Result, TestkitError};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Largest page accepted, bytes.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// Fetches `path` from a local server and returns the body of a 200 answer.
///
/// # Errors
/// [`TestkitError::Talk`] when the server is not there, is slow (10 s), or answers anything but
/// 200.
pub fn get(addr: SocketAddr, path: &str) -> Result<String> {
    let fail = |problem: String| TestkitError::Talk(format!("GET http://{addr}{path}: {problem}"));
    let io = |error: std::io::Error| fail(error.to_string());
    let mut socket = TcpStream::connect_timeout(&addr, Duration::from_secs(2)).map_err(io)?;
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .map_err(io)?;
    // HTTP/1.0: the answer is not chunked and ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).map_err(io)?;
    let mut answer = Vec::new();
    socket
        .take(PAGE_BYTES_MAX)
        .read_to_end(&mut answer)
        .map_err(io)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| fail("no header end".into()))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        Ok(body.to_owned())
    } else {
        Err(fail(status.to_owned()))
    }
}

/// One JMX bean of a Hadoop daemon, by its `name=` (the service is part of `query`).
///
/// # Errors
/// As [`get`], or when the page is not JSON or has no such bean.
pub fn jmx(addr: SocketAddr, query: &str) -> Result<serde_json::Value> {
    let page = get(addr, &format!("/jmx?qry={query}"))?;
    let mut page: serde_json::Value = serde_json::from_str(&page)
        .map_err(|e| TestkitError::Talk(format!("jmx {query} at {addr}: {e}")))?;
    page["beans"]
        .as_array_mut()
        .and_then(|beans| beans.pop())
        .ok_or_else(|| TestkitError::Talk(format!("jmx at {addr} has no bean {query}")))
}
