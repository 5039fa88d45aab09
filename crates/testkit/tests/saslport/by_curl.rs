//! WebHDFS of single nodes, asked by curl as a script would.

use std::path::{Path, PathBuf};
use std::process::Command;

use hayloft_testkit::error::Result;
use hayloft_testkit::pattern;
use hayloft_testkit::suite::{expect, expect_eq};
use hayloft_testkit::{Cluster, Driver, TestkitError};

/// What came back.
pub struct Answer {
    pub code: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// This code, or all that came.
    pub fn is(self, code: &str) -> Result<Self> {
        expect(self.code == code, || {
            format!("{} {}", self.code, String::from_utf8_lossy(&self.body))
        })?;
        Ok(self)
    }
}

/// Asks for an address.
pub fn curl(url: &str, options: &[&str]) -> Result<Answer> {
    let fixed = ["-s", "--max-time", "120", "-w", "%{stderr}%{http_code}"];
    let ran = Command::new("curl")
        .args(fixed)
        .args(options)
        .arg(url)
        .output();
    let ran = ran.map_err(TestkitError::file("running", Path::new("curl")))?;
    Ok(Answer {
        code: String::from_utf8_lossy(&ran.stderr).into_owned(),
        body: ran.stdout,
    })
}

/// Bytes of a file.
pub fn bytes(seed: u64, from: u64, to: u64) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(to - from).unwrap_or_default()];
    pattern::fill(seed, from, &mut out);
    out
}

/// The web port of one node, asked as one caller.
pub struct NodeByCurl {
    base: String,
    /// What each request ends with.
    caller: String,
    dir: PathBuf,
    /// Of curl.
    options: Vec<String>,
}

impl NodeByCurl {
    /// `caller`: parameters of the query.
    pub fn new(cluster: &mut Cluster, node: usize, caller: &str) -> Self {
        let base = format!(
            "http://127.0.0.1:{}/webhdfs/v1",
            cluster.node(node).http_port()
        );
        let namenode = cluster.namenode(0).rpc();
        Self {
            base,
            caller: format!("&namenoderpcaddress={namenode}&{caller}"),
            dir: cluster.dir().to_owned(),
            options: Vec::new(),
        }
    }

    /// The same over TLS, at this port, by a caller who trusts that certificate.
    #[allow(dead_code, reason = "not every suite has a node with a key")]
    pub fn over_tls(self, port: u16, certificate: &Path) -> Self {
        let certificate = certificate.display().to_string();
        Self {
            base: format!("https://127.0.0.1:{port}/webhdfs/v1"),
            options: vec!["--cacert".to_owned(), certificate],
            ..self
        }
    }

    fn ask(&self, method: &[&str], path: &str, op: &str) -> Result<Answer> {
        let own = self.options.iter().map(String::as_str);
        let options: Vec<&str> = own.chain(method.iter().copied()).collect();
        curl(
            &format!("{}{path}?op={op}{}", self.base, self.caller),
            &options,
        )
    }

    /// Reads a file, or what else `op` asks of it.
    pub fn get(&self, path: &str, op: &str) -> Result<Answer> {
        self.ask(&[], path, op)
    }

    /// Sends bytes.
    pub fn send(&self, method: &str, path: &str, op: &str, data: &[u8]) -> Result<Answer> {
        let file = self.dir.join("sent-by-curl");
        std::fs::write(&file, data).map_err(TestkitError::file("writing", &file))?;
        let file = file.display().to_string();
        self.ask(&["-X", method, "-T", &file], path, op)
    }

    /// Writes, appends to and reads a file of more than two blocks.
    ///
    /// # Errors
    /// The node refuses, or a byte is another one.
    pub fn works(&self, fs: &Driver, path: &str, block: u64) -> Result<()> {
        let (first, all) = (2 * block + 77, 3 * block + 5);
        self.send("PUT", path, "CREATE&overwrite=true", &bytes(9, 0, first))?
            .is("201")?;
        fs.check(path, first, 9)?;
        self.send("POST", path, "APPEND", &bytes(9, first, all))?
            .is("200")?;
        fs.check(path, all, 9)?;
        let back = self.get(path, "OPEN")?.is("200")?;
        expect(back.body == bytes(9, 0, all), || "other bytes".to_owned())?;
        let part = format!("OPEN&offset={}&length=100", block - 50);
        let back = self.get(path, &part)?.is("200")?;
        expect(back.body == bytes(9, block - 50, block + 50), || {
            "other bytes in a range".to_owned()
        })?;
        let sum = self.get(path, "GETFILECHECKSUM")?.is("200")?.json();
        let length = &sum["FileChecksum"]["length"];
        expect_eq("bytes of a checksum", length.as_u64(), Some(28))
    }

    /// Reads a file that is still written.
    ///
    /// # Errors
    /// The node refuses, or a byte is another one.
    pub fn reads_open(&self, fs: &Driver, path: &str, block: u64) -> Result<()> {
        fs.create("by-curl", path, 4, serde_json::json!({}))?;
        fs.write("by-curl", block + 333)?;
        fs.handle("hflush", "by-curl")?;
        let back = self.get(path, "OPEN")?.is("200")?;
        expect(back.body == bytes(4, 0, block + 333), || {
            format!("{} other bytes of an open file", back.body.len())
        })?;
        fs.handle("close", "by-curl").map(drop)
    }
}
