//! A server of S3 on this host: moto's. It checks no signatures unless it is told to, nor the
//! CRC-32C that objects are sent with, and keeps them in memory.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::{Result, TestkitError};
use crate::hadoop::repository_root;
use crate::wait::{self, Seen};
use crate::{ports, process};

/// The one bucket.
pub const BUCKET: &str = "hayloft";

/// A running server.
#[derive(Debug)]
pub struct S3Server {
    process: process::Process,
    port: u16,
}

/// The server's program, fetched where it is not there yet.
///
/// # Errors
/// Why there is none.
pub fn program() -> std::result::Result<String, String> {
    let script = repository_root().join("scripts/fetch-s3-server");
    let output = Command::new(&script).output();
    let output = output.map_err(|e| format!("{}: {e}", script.display()))?;
    if output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return Ok(said.trim_end().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().last().unwrap_or("failed").to_owned())
}

impl S3Server {
    /// Starts one with an empty bucket. It answers so many requests of anyone, and refuses
    /// the rest, as if credentials had ended; all where there is no number.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(program: &str, dir: &Path, free_requests: Option<u32>) -> Result<Self> {
        let port = ports::free()?;
        let argv = [program, "-H", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
        let mut spawn = process::Spawn::new("S3 server", argv.to_vec(), dir.join("s3.log"));
        if let Some(count) = free_requests {
            let name = "INITIAL_NO_AUTH_ACTION_COUNT".to_owned();
            spawn.env.push((name, count.to_string()));
        }
        let mut server = Self {
            process: spawn.start()?,
            port,
        };
        let url = format!("{}/{BUCKET}", server.endpoint());
        // A request without a signature: the server is asked for nothing but the bucket.
        wait::until("the bucket is made", Duration::from_secs(60), || {
            server.process.check_alive()?;
            let key = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, \
                SignedHeaders=host, Signature=00";
            let header = format!("Authorization: {key}");
            let asked = Command::new("curl")
                .args(["-sf", "-o", "/dev/null", "-X", "PUT", "-H", &header, &url])
                .status()
                .map_err(|e| TestkitError::Talk(format!("curl: {e}")))?;
            Ok(match asked.success() {
                true => Seen::Done(()),
                false => Seen::NotYet("no answer".into()),
            })
        })?;
        Ok(server)
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What a client of it has in its environment.
    #[must_use]
    pub fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ]
    }

    /// Ends it, and all that it has.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        Ok(())
    }
}
