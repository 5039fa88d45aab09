//! Attacks on WebHDFS: readers that do not read, senders that stop, requests out of bounds.

use crate::{BLOCK, Lab, Port};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Outcome, procfs};
use std::io::{Read as _, Write as _};

/// More than are served at a time.
const READERS: usize = 300;
const SENDERS: usize = 100;

impl Lab {
    fn ask(&self, method: &str, path: &str, parameters: &str, more: &str) -> String {
        let namenode = &self.namenode;
        format!(
            "{method} /webhdfs/v1{path}?namenoderpcaddress={namenode}&user.name=root&{parameters} \
             HTTP/1.1\r\nHost: node\r\n{more}\r\n"
        )
    }

    pub fn web_readers(&self) -> Result<Outcome> {
        if Kind::under_test() != Kind::Hayloft {
            return Ok(Outcome::Skipped("a stock node has no such limits".into()));
        }
        let before = procfs::usage(self.pid)?;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let mut socket = self.connect(Port::Http)?;
            let _ = socket.write_all(self.ask("GET", "/good", "op=OPEN", "").as_bytes());
            readers.push(socket);
        }
        std::thread::sleep(seconds(3));
        self.serves_within(seconds(15))?;
        self.memory_bounded(before)?;
        // The port answers others, and those that read get all of it.
        let mut page = self.connect(Port::Http)?;
        let _ = page.write_all(b"GET /prom HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = page.read_to_end(&mut answer);
        expect(answer.starts_with(b"HTTP/1.1 200"), || "no metrics".into())?;
        let Some(first) = readers.first_mut() else {
            return passed();
        };
        let mut file = Vec::new();
        let _ = first.read_to_end(&mut file);
        expect(file.len() as u64 > BLOCK, || {
            format!("a reader got {} bytes", file.len())
        })?;
        passed()
    }

    pub fn web_senders(&self) -> Result<Outcome> {
        if Kind::under_test() != Kind::Hayloft {
            return Ok(Outcome::Skipped("a stock node has no such limits".into()));
        }
        let before = procfs::usage(self.pid)?;
        let mut senders = Vec::new();
        for index in 0..SENDERS {
            let mut socket = self.connect(Port::Http)?;
            // Each file is promised far more than comes.
            let length = "Content-Length: 1099511627776\r\n";
            let path = format!("/endless/{index}");
            let _ = socket.write_all(self.ask("PUT", &path, "op=CREATE", length).as_bytes());
            let _ = socket.write_all(&[7; 100_000]);
            senders.push(socket);
        }
        std::thread::sleep(seconds(3));
        self.serves_within(seconds(15))?;
        self.memory_bounded(before)?;
        drop(senders);
        std::thread::sleep(seconds(3));
        self.fs.fs(&["-rm", "-r", "-f", "-skipTrash", "/endless"])?;
        passed()
    }

    pub fn web_requests(&self) -> Result<Outcome> {
        let long = "a".repeat(12_000);
        let many = "a=b&".repeat(3000);
        for (method, path, parameters, more) in [
            ("GET", "/good", "op=OPEN&offset=9223372036854775807", ""),
            ("GET", "/good", "op=OPEN&offset=-9223372036854775808", ""),
            ("GET", "/../../etc/passwd", "op=OPEN", ""),
            ("GET", "/%2e%2e/%2e%2e/etc/passwd", "op=OPEN", ""),
            ("GET", "/%00%ff%fe", "op=OPEN", ""),
            ("GET", &format!("/{long}"), "op=OPEN", ""),
            ("GET", "/nope", &many, ""),
            ("PUT", "/good", "op=CREATE", "Content-Length: -1\r\n"),
            (
                "PUT",
                "/good",
                "op=CREATE",
                "Transfer-Encoding: chunked\r\n",
            ),
            (
                "PUT",
                "/good",
                "op=CREATE&blocksize=9223372036854775807",
                "Content-Length: 0\r\n",
            ),
            (
                "PUT",
                "/x",
                "op=CREATE&blocksize=1&replication=32767",
                "Content-Length: 0\r\n",
            ),
            (
                "POST",
                "/good",
                "op=APPEND",
                "Content-Length: 5\r\nContent-Length: 6\r\n",
            ),
            ("GET", "/good", "op=OPEN&doas=%0a%0d&user.name=a", ""),
        ] {
            let mut socket = self.connect(Port::Http)?;
            let _ = socket.write_all(self.ask(method, path, parameters, more).as_bytes());
            let _ = socket.write_all(b"zz\r\n");
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            let first = answer.lines().find(|line| !line.contains(" 100 "));
            let first = first.unwrap_or_default();
            let refused = first.is_empty() || first.contains(" 4") || first.contains(" 50");
            expect(refused, || format!("{method} {path} {parameters}: {first}"))?;
        }
        passed()
    }
}
