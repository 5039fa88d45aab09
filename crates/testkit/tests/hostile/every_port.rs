//! Attacks that every port has to stand.

use crate::bytes::rpc_call;
use crate::{BLOCK, CROWD, Lab, Port};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::{Kind, Node};
use hayloft_testkit::process_usage;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError, pattern};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

impl Lab {
    /// The attacks below are spoiled forms of this request: unspoiled, it must work.
    pub fn good(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let mut socket = self.connect(port)?;
        let mut answer = vec![0; 5];
        let asked = socket.write_all(&self.request(port));
        let answered = asked.and_then(|()| socket.read_exact(&mut answer));
        answer.truncate(answered.map_or(0, |()| 5));
        expect(answer.len() > 4, || {
            format!("a good request was answered with {answer:?}")
        })?;
        passed()
    }

    pub fn garbage(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        for seed in 0..30 {
            let size = [1, 2, 7, 100, 5000, 1 << 20][seed % 6];
            let mut bytes = vec![0; size];
            pattern::fill(seed as u64, 0, &mut bytes);
            self.send(port, &bytes)?;
        }
        self.send(port, &vec![0; 100_000])?;
        self.send(port, &vec![0xFF; 100_000])?;
        passed()
    }

    pub fn log(&self) -> Result<String> {
        let log = self.cluster.nodes().next().map(Node::log);
        let log = log.ok_or_else(|| TestkitError::Talk("no node".into()))?;
        let text = std::fs::read(&log).map_err(TestkitError::file("reading", &log))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Garbage and a wrong version get a line with the sender's address; a flood of them does not
    /// get a flood of lines.
    pub fn named_in_the_log(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) || port == Port::Http {
            return Ok(Outcome::Skipped("nothing of ours listens there".into()));
        }
        let wrong: &[u8] = if port == Port::Transfer {
            &[0, 27, 81, 0]
        } else {
            b"hrpc\x08\x00\x00"
        };
        let mut garbage = vec![0; 300];
        pattern::fill(7, 0, &mut garbage);
        for bytes in [wrong, &garbage] {
            let mut socket = self.connect(port)?;
            let from = socket
                .local_addr()
                .map_err(|e| TestkitError::Talk(e.to_string()))?;
            let _ = socket.write_all(bytes);
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read(&mut [0; 4096]);
            wait::until(&format!("{from} in the log"), seconds(10), || {
                let log = self.log()?;
                let named = |line: &&str| {
                    line.contains(&from.to_string())
                        && ["WARN", "ERROR"].iter().any(|l| line.contains(l))
                };
                Ok(match log.lines().find(named) {
                    Some(_) => Seen::Done(()),
                    None => Seen::NotYet("no line with this address".into()),
                })
            })?;
        }
        let before = self.log()?.lines().count();
        for _ in 0..300 {
            let mut socket = self.connect(port)?;
            let _ = socket.write_all(wrong);
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read(&mut [0; 4096]);
        }
        let lines = self.log()?.lines().count() - before;
        // The stock node writes a line, or a stack trace, for each.
        expect(Kind::under_test() == Kind::Apache || lines < 60, || {
            format!("{lines} lines for 300 connections")
        })?;
        passed()
    }

    pub fn wrong_versions(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let body = [0u8; 64];
        let good = self.request(port);
        for head in [
            &[0u8, 27, 81][..],
            &[0, 29, 81],
            &[0xDE, 0xAD, 0xBE, 0xEF],
            b"hrpc\x08\x00\x00",
            b"hrpc\x09\x00\x77",
            b"hrpc\x0a\x00\x00",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            &[0, 28, 0],
            &[0, 28, 79],
            &[0, 28, 127],
            &[0, 28, 82],
            &[0, 28, 255],
        ] {
            self.send(port, &[head, &body].concat())?;
            self.send(port, &[head, &good].concat())?;
        }
        passed()
    }

    /// A good request of the port.
    pub fn request(&self, port: Port) -> Vec<u8> {
        match port {
            Port::Transfer => self.read_block(0, BLOCK, self.block.id),
            Port::Rpc => rpc_call("getDatanodeInfo"),
            Port::Http => b"GET /jmx HTTP/1.0\r\n\r\n".to_vec(),
        }
    }

    pub fn lying_lengths(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let huge: [&[u8]; 6] = [
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x07],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
            &[0xFF; 40],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
            &[0x00],
        ];
        let heads: Vec<Vec<u8>> = match port {
            Port::Transfer => (80..=90).map(|op| vec![0, 28, op]).collect(),
            Port::Rpc => {
                let frames = [
                    [0x7F, 0xFF, 0xFF, 0xFF],
                    [0xFF; 4],
                    [0; 4],
                    [0x80, 0, 0, 0],
                    [0, 0, 0, 9],
                    [8, 0, 0, 0],
                ];
                frames
                    .iter()
                    .map(|frame| [b"hrpc\x09\x00\x00".as_slice(), frame].concat())
                    .collect()
            }
            Port::Http => vec![
                b"POST /jmx HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
            ],
        };
        for head in heads {
            for lie in huge {
                self.send(port, &[head.as_slice(), lie, &[0x0A; 3000]].concat())?;
            }
        }
        if port == Port::Http {
            self.send(port, &[b"GET /".as_slice(), &vec![b'a'; 4 << 20]].concat())?;
            self.send(
                port,
                &[
                    b"GET / HTTP/1.1\r\n".as_slice(),
                    &b"X: y\r\n".repeat(500_000),
                ]
                .concat(),
            )?;
        }
        passed()
    }

    pub fn truncated(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let whole = self.request(port);
        for cut in 0..whole.len() {
            self.send(port, &whole[..cut])?;
        }
        passed()
    }

    /// Hundreds connect and say nothing, or half of something, and stay.
    pub fn crowd(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let before = process_usage::usage(self.pid)?;
        let whole = self.request(port);
        let mut crowd = Vec::new();
        for number in 0..CROWD {
            let Ok(mut socket) = self.connect(port) else {
                break;
            };
            let _ = socket.write_all(&whole[..number % 8.min(whole.len())]);
            crowd.push(socket);
        }
        if port == Port::Http {
            // An HTTP server may make the next one wait; the other ports may not.
            self.fs.check("/good", BLOCK, 1)?;
        } else {
            self.serves_within(seconds(15))?;
        }
        let during = process_usage::usage(self.pid)?;
        // The stock node's threads have some descriptors each.
        let each = if Kind::under_test() == Kind::Apache {
            5
        } else {
            1
        };
        let limit = before.descriptors + CROWD * each + 100;
        expect(during.descriptors <= limit, || {
            format!("{before:?} -> {during:?}")
        })?;
        self.memory_bounded(before)?;
        drop(crowd);
        passed()
    }

    pub fn slow_senders(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let whole = self.request(port);
        let mut slow = Vec::new();
        for _ in 0..50 {
            slow.push(self.connect(port)?);
        }
        for byte in whole.iter().take(20) {
            for socket in &mut slow {
                let _ = socket.write_all(&[*byte]);
            }
            // A byte at a time is what a slow sender is.
            std::thread::sleep(Duration::from_millis(50));
        }
        self.fs.check("/good", BLOCK, 1)?;
        passed()
    }
}
