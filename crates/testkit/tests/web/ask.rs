//! Requests of any kind, and what is said of the answers.

use hayloft_testkit::TestkitError;
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, seconds};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

/// An answer: status line and headers, and body.
pub struct Answer {
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn code(&self) -> Option<u16> {
        self.head.split(' ').nth(1)?.parse().ok()
    }

    pub fn has(&self, header: &str) -> bool {
        let wanted = header.to_ascii_lowercase();
        self.head
            .lines()
            .any(|line| line.to_ascii_lowercase() == wanted)
    }
}

/// Sends `head` and reads to the end.
pub fn ask(to: SocketAddr, head: &str) -> Result<Answer> {
    let failed = TestkitError::file("asking", "the web port");
    let exchange = || {
        let mut socket = TcpStream::connect(to)?;
        socket.set_read_timeout(Some(seconds(20)))?;
        socket.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let text: String = exchange().map_err(failed)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Ok(Answer {
        head: head.into(),
        body: body.into(),
    })
}

pub fn request(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{more}\r\n")
}

/// What kind of value it is in JSON; a number with a point is another than one without.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "real",
        Value::Number(_) => "whole",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Prometheus' own judgement, where it is installed.
pub fn promtool(arguments: &[&str], input: &str) -> Result<()> {
    let spawned = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            println!("web: promtool {arguments:?}: skipped, it is not installed ({error})");
            return Ok(());
        }
    };
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let failed = TestkitError::file("waiting for", "promtool");
    let output = child.wait_with_output().map_err(failed)?;
    expect(output.status.success(), || {
        let text = [output.stdout.clone(), output.stderr.clone()].concat();
        format!("promtool {arguments:?}: {}", String::from_utf8_lossy(&text))
    })
}
