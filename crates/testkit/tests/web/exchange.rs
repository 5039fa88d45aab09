//! Requests with bodies, and answers with bytes.

use hayloft_testkit::TestkitError;
use hayloft_testkit::error::Result;
use hayloft_testkit::pattern;
use hayloft_testkit::suite::seconds;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Bytes of a body that are sent at a time.
const PIECE: usize = 64 << 10;

/// An answer as it came, without what says to go on.
#[derive(Debug)]
pub struct Reply {
    pub code: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (of, value) = line.split_once(": ")?;
            of.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// Headers in the order of their names, without those that are another each time.
    pub fn headers(&self) -> Vec<String> {
        let lines = self.head.lines().skip(1).map(str::to_ascii_lowercase);
        let mut lines: Vec<_> = lines
            .filter(|line| !line.starts_with("date:"))
            // Of an error with a stack trace: other threads, other lengths.
            .filter(|line| self.code < 400 || !line.starts_with("content-length:"))
            .collect();
        lines.sort();
        lines
    }

    /// Java class and first line of an error.
    pub fn error(&self) -> (String, String) {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = |name: &str| {
            let text = value["RemoteException"][name].as_str().unwrap_or_default();
            text.lines().next().unwrap_or_default().to_owned()
        };
        (text("javaClassName"), text("message"))
    }
}

/// A connection over which one request goes.
pub struct Exchange {
    socket: TcpStream,
}

impl Exchange {
    /// Sends the head of a request with a body of `len` bytes, if there is one.
    pub fn begin(to: SocketAddr, method: &str, target: &str, len: Option<u64>) -> Result<Self> {
        let failed = TestkitError::file("asking", "the web port");
        let begin = || {
            let mut socket = TcpStream::connect(to)?;
            socket.set_read_timeout(Some(seconds(100)))?;
            let length = len.map_or_else(String::new, |len| format!("Content-Length: {len}\r\n"));
            write!(
                socket,
                "{method} {target} HTTP/1.1\r\nHost: node\r\n\
                 Content-Type: application/octet-stream\r\n{length}\r\n"
            )?;
            Ok(socket)
        };
        Ok(Self {
            socket: begin().map_err(failed)?,
        })
    }

    /// Sends bytes of the pattern.
    pub fn send(&mut self, seed: u64, from: u64, to: u64) -> Result<()> {
        let mut piece = vec![0; PIECE];
        let mut at = from;
        while at < to {
            let len = usize::try_from(to - at).map_or(PIECE, |left| left.min(PIECE));
            pattern::fill(seed, at, &mut piece[..len]);
            let sent = self.socket.write_all(&piece[..len]);
            sent.map_err(TestkitError::file("sending to", "the web port"))?;
            at += len as u64;
        }
        Ok(())
    }

    /// Reads the answer to its end.
    pub fn reply(mut self) -> Result<Reply> {
        let mut answer = Vec::new();
        let read = self.socket.read_to_end(&mut answer);
        if let Err(error) = read
            && answer.is_empty()
        {
            return Err(TestkitError::file("asking", "the web port")(error));
        }
        let mut rest = &answer[..];
        loop {
            let split = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            let split = split.ok_or_else(|| TestkitError::Talk("an answer without end".into()))?;
            let head = String::from_utf8_lossy(&rest[..split]).into_owned();
            rest = &rest[split + 4..];
            let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
            match code {
                Some(100) => {}
                Some(code) => {
                    let body = rest.to_vec();
                    return Ok(Reply { code, head, body });
                }
                None => return Err(TestkitError::Talk(head)),
            }
        }
    }
}

/// A request without a body.
pub fn fetch(to: SocketAddr, method: &str, target: &str) -> Result<Reply> {
    Exchange::begin(to, method, target, None)?.reply()
}

/// A request whose body is the beginning of a pattern.
pub fn upload(to: SocketAddr, method: &str, target: &str, len: u64, seed: u64) -> Result<Reply> {
    let mut exchange = Exchange::begin(to, method, target, Some(len))?;
    // A request that is refused is answered before all of it was taken.
    let _ = exchange.send(seed, 0, len);
    exchange.reply()
}

/// Bytes `from` to `to` of a pattern.
pub fn bytes(seed: u64, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(to - from).expect("a test's file")];
    pattern::fill(seed, from, &mut bytes);
    bytes
}
