//! Servers of network block devices, good and bad.

use hayloft_testkit::TestkitError;
use hayloft_testkit::error::Result;
use hayloft_testkit::process::{Process, Signal, Spawn};
use hayloft_testkit::suite::{expect, seconds};
use hayloft_testkit::wait::{self, Seen};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// nbdkit with the device.
pub struct Server {
    dir: PathBuf,
    port: u16,
    process: Option<Process>,
}

impl Server {
    /// Not yet running; the device is the file `device` in `dir`.
    pub fn new(dir: &Path, port: u16) -> Self {
        Self {
            dir: dir.to_owned(),
            port,
            process: None,
        }
    }

    /// `filters` stand before the plug-in's name, `more` behind its file.
    pub fn start(&mut self, filters: &[&str], more: &[&str]) -> Result<()> {
        let port = self.port.to_string();
        let mut argv = vec!["nbdkit", "--foreground", "--ipaddr", "127.0.0.1", "--port"];
        argv.push(&port);
        argv.extend(filters);
        argv.push("file");
        let file = self.dir.join("device").display().to_string();
        argv.push(&file);
        argv.extend(more);
        let argv = argv.into_iter().map(String::from).collect();
        self.process = Some(Spawn::new("nbdkit", argv, self.dir.join("nbdkit.log")).start()?);
        self.wait()
    }

    /// One that [`pause`](Self::pause) makes silent.
    pub fn start_that_pauses(&mut self) -> Result<()> {
        let control = format!("pause-control={}", self.control().display());
        self.start(&["--filter=pause"], &[&control])
    }

    fn control(&self) -> PathBuf {
        self.dir.join("pause")
    }

    /// From here on it answers nothing.
    pub fn pause(&self) -> Result<()> {
        self.order(b"p", b"P")
    }

    /// It answers again, also what it was asked meanwhile.
    pub fn resume(&self) -> Result<()> {
        self.order(b"r", b"R")
    }

    fn order(&self, order: &[u8; 1], wanted: &[u8; 1]) -> Result<()> {
        let control = self.control();
        let failed = TestkitError::file("talking to", &control);
        let talk = || {
            let mut server = UnixStream::connect(&control)?;
            server.write_all(order)?;
            let mut answer = [0];
            server.read_exact(&mut answer)?;
            Ok(answer)
        };
        let answer = talk().map_err(failed)?;
        expect(answer == *wanted, || format!("nbdkit answers {answer:?}"))
    }

    /// A server that cannot flush.
    pub fn start_without_flush(&mut self) -> Result<()> {
        let port = self.port.to_string();
        let (read, write) = ("pread=head -c $3 /dev/zero", "pwrite=cat >/dev/null");
        let argv = [
            "nbdkit",
            "--foreground",
            "--ipaddr",
            "127.0.0.1",
            "--port",
            &port,
        ]
        .into_iter()
        .chain(["eval", "get_size=echo 512M", read, write])
        .map(String::from)
        .collect();
        self.process = Some(Spawn::new("nbdkit", argv, self.dir.join("nbdkit.log")).start()?);
        self.wait()
    }

    /// A program that listens at the server's place and answers with other bytes.
    pub fn start_nonsense(&mut self) -> Result<()> {
        let script = format!(
            "import socket\ns = socket.create_server(('127.0.0.1', {}))\nwhile True:\n    c = \
             s.accept()[0]\n    c.sendall(b'HTTP/1.1 400 what?\\r\\n' * 20)\n    c.close()",
            self.port
        );
        let argv = ["python3", "-c", &script].map(String::from).to_vec();
        self.process = Some(Spawn::new("nonsense", argv, self.dir.join("nbdkit.log")).start()?);
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        let address = ("127.0.0.1", self.port);
        wait::until("the server", seconds(20), || {
            Ok(match std::net::TcpStream::connect(address) {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }

    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
        }
        Ok(())
    }

    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let process = self.process.as_mut();
        process.map_or(Ok(()), |process| process.signal(signal))
    }
}
