//! Attacks on WebHDFS: readers that do not read, senders that stop, requests out of bounds.

use crate::{BLOCK, Lab, Port};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Outcome, process_usage};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// More than are served at a time.
const READERS: usize = 300;
const SENDERS: usize = 100;
/// More striped files than are written at a time.
const STRIPED: usize = 20;
/// Bytes of a file that no socket's buffers hold.
const LARGE: u64 = 32 << 20;

/// Sends and takes a byte a second over each connection, until it shall stop. Says how many are
/// still open.
fn drip(sockets: &[TcpStream], stop: &AtomicBool) -> usize {
    let mut open: Vec<_> = sockets.iter().collect();
    while !stop.load(Ordering::Relaxed) {
        open.retain(|socket| {
            let mut socket = *socket;
            let _ = socket.set_read_timeout(Some(Duration::from_millis(1)));
            let ended = matches!(socket.read(&mut [0]), Ok(0));
            !ended && socket.write_all(b"x").is_ok()
        });
        std::thread::sleep(seconds(1));
    }
    open.len()
}

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
        let before = process_usage::usage(self.pid)?;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let mut socket = self.connect(Port::Http)?;
            let _ = socket.write_all(self.ask("GET", "/good", "op=OPEN", "").as_bytes());
            readers.push(socket);
        }
        std::thread::sleep(seconds(3));
        self.serves_within(seconds(15))?;
        self.memory_bounded(before)?;
        // The port answers others. The last reader got the turn of one that does not read, and gets
        // all of the file.
        let mut page = self.connect(Port::Http)?;
        let _ = page.write_all(b"GET /prom HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = page.read_to_end(&mut answer);
        expect(answer.starts_with(b"HTTP/1.1 200"), || "no metrics".into())?;
        let Some(last) = readers.last_mut() else {
            return passed();
        };
        let _ = last.set_read_timeout(Some(seconds(60)));
        let mut file = Vec::new();
        let _ = last.read_to_end(&mut file);
        expect(file.len() as u64 > BLOCK, || {
            format!("a reader got {} bytes", file.len())
        })?;
        passed()
    }

    pub fn web_senders(&self) -> Result<Outcome> {
        if Kind::under_test() != Kind::Hayloft {
            return Ok(Outcome::Skipped("a stock node has no such limits".into()));
        }
        let before = process_usage::usage(self.pid)?;
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

    /// All turns are held by clients that move a byte a second: another is served all the same.
    pub fn web_drips(&self, method: &str) -> Result<Outcome> {
        if Kind::under_test() != Kind::Hayloft {
            return Ok(Outcome::Skipped("a stock node has no such limits".into()));
        }
        self.fs.put("/large", LARGE, 3, json!({}))?;
        let begun: Vec<_> = (0..READERS)
            .map(|index| self.begin_drip(method, index))
            .collect::<Result<_>>()?;
        self.beside_drips(begun, "/next")?;
        self.fs
            .fs(&["-rm", "-r", "-f", "-skipTrash", "/endless", "/large"])?;
        passed()
    }

    fn begin_drip(&self, method: &str, index: usize) -> Result<TcpStream> {
        let mut socket = self.connect(Port::Http)?;
        let head = match method {
            "PUT" => {
                let path = format!("/endless/{index}");
                self.ask(method, &path, "op=CREATE", "Content-Length: 1000000000\r\n")
            }
            _ => self.ask(method, "/large", "op=OPEN", ""),
        };
        let _ = socket.write_all(head.as_bytes());
        Ok(socket)
    }

    /// Likewise where striped files alone have no place left.
    pub fn web_striped_drips(&self) -> Result<Outcome> {
        if Kind::under_test() != Kind::Hayloft {
            return Ok(Outcome::Skipped("a stock node has no such limits".into()));
        }
        let begun: Vec<_> = (0..STRIPED)
            .map(|index| self.begin_drip("PUT", index))
            .collect::<Result<_>>()?;
        self.beside_drips(begun, "/endless/next")?;
        let status = self.fs.call("status", json!({"path": "/endless/next"}))?;
        expect(status["erasureCoded"] == true, || status.to_string())?;
        passed()
    }

    /// Uploads a file while each of these moves a byte a second.
    fn beside_drips(&self, slow: Vec<TcpStream>, path: &str) -> Result<()> {
        let count = slow.len();
        let stop = Arc::new(AtomicBool::new(false));
        let dripping = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || drip(&slow, &stop))
        };
        std::thread::sleep(seconds(3));
        let served = self.good_upload(path);
        stop.store(true, Ordering::Relaxed);
        let left = dripping.join();
        served?;
        println!("hostile: {left:?} of {count} slow clients are left");
        Ok(())
    }

    fn good_upload(&self, path: &str) -> Result<()> {
        let mut socket = self.connect(Port::Http)?;
        let _ = socket.set_read_timeout(Some(seconds(60)));
        let head = self.ask(
            "PUT",
            path,
            "op=CREATE&overwrite=true",
            "Content-Length: 5\r\n",
        );
        let began = Instant::now();
        let _ = socket.write_all(format!("{head}12345").as_bytes());
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        expect(answer.starts_with("HTTP/1.1 201"), || {
            answer.clone().into_owned()
        })?;
        println!("hostile: an upload beside them took {:?}", began.elapsed());
        Ok(())
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
