//! What tests do with files through the driver, in one line each.

use crate::driver::Driver;
use crate::error::{Result, TestkitError, expect};
use crate::hadoop::class;
use crate::node::Node;
use crate::pattern;
use crate::wait::{self, Seen};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A block as the NameNode describes it to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockOnNode {
    /// Block id.
    pub id: i64,
    /// Generation stamp.
    pub generation: u64,
    /// Block pool id.
    pub pool: String,
    /// Length in bytes as the NameNode knows it.
    pub length: u64,
    /// `127.0.0.1:port` of each replica's node.
    pub nodes: Vec<String>,
    /// Storage type of each replica.
    pub types: Vec<String>,
    /// Whether all replicas are corrupt.
    pub corrupt: bool,
}

/// Files that a test wrote, to be compared again and again.
#[derive(Clone, Debug, Default)]
pub struct WrittenFiles {
    /// Path, length, seed of the pattern.
    files: Vec<(String, u64, u64)>,
}

impl WrittenFiles {
    /// Writes a file of `bytes`, with a seed of its own.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn put(&mut self, fs: &Driver, path: &str, bytes: u64) -> Result<()> {
        let seed = self.files.len() as u64 + 1;
        fs.put(path, bytes, seed, json!({}))?;
        self.add(path, bytes, seed);
        Ok(())
    }

    /// Knows of a file that was written otherwise.
    pub fn add(&mut self, path: &str, bytes: u64, seed: u64) {
        self.files.push((path.into(), bytes, seed));
    }

    /// Knows that the file at `path` has become longer by `bytes`.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] when it knows no such file.
    pub fn grew(&mut self, path: &str, bytes: u64) -> Result<()> {
        let known = self.files.iter_mut().find(|(name, ..)| name == path);
        let (_, length, _) = known.ok_or_else(|| {
            TestkitError::Expectation(format!("{path} is none of the files written"))
        })?;
        *length += bytes;
        Ok(())
    }

    /// Compares all of them.
    ///
    /// # Errors
    /// What the stock client throws; that a file has other bytes.
    pub fn check(&self, fs: &Driver) -> Result<()> {
        let mut files = self.files.iter();
        files.try_for_each(|(path, bytes, seed)| fs.check(path, *bytes, *seed))
    }

    /// Waits until every block of every file is there `times`.
    ///
    /// # Errors
    /// When that does not come within a minute a file.
    pub fn wait_replicas(&self, fs: &Driver, times: usize) -> Result<()> {
        let limit = Duration::from_secs(60);
        let mut files = self.files.iter();
        files.try_for_each(|(path, ..)| fs.wait_replicas(path, times, limit))
    }
}

impl Driver {
    /// Creates (or overwrites) `path` with `bytes` of the pattern; `more` may hold `conf`,
    /// `replication`, `blockSize`, `syncBlock`, `chunk`.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn put(&self, path: &str, bytes: u64, seed: u64, more: Value) -> Result<()> {
        self.call(
            "put",
            merge(json!({"path": path, "bytes": bytes, "seed": seed}), more),
        )
        .map(drop)
    }

    /// Opens `path` for writing under `handle`.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn create(&self, handle: &str, path: &str, seed: u64, more: Value) -> Result<()> {
        self.call(
            "create",
            merge(json!({"handle": handle, "path": path, "seed": seed}), more),
        )
        .map(drop)
    }

    /// Opens `path` for appending under `handle`.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn append(&self, handle: &str, path: &str, seed: u64, more: Value) -> Result<()> {
        self.call(
            "append",
            merge(json!({"handle": handle, "path": path, "seed": seed}), more),
        )
        .map(drop)
    }

    /// Writes the next `bytes` of the pattern to an open handle.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn write(&self, handle: &str, bytes: u64) -> Result<()> {
        self.call("write", json!({"handle": handle, "bytes": bytes}))
            .map(drop)
    }

    /// `hflush`, `hsync`, `close` or `abandon` of an open handle.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn handle(&self, operation: &str, handle: &str) -> Result<Value> {
        self.call(operation, json!({ "handle": handle }))
    }

    /// Reads all of `path` and fails unless it is exactly `bytes` of the pattern.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] with the first wrong offset, or what the stock client throws.
    pub fn check(&self, path: &str, bytes: u64, seed: u64) -> Result<()> {
        self.check_with(path, bytes, seed, json!({}))
    }

    /// As [`Driver::check`] with client `conf` and other fields.
    ///
    /// # Errors
    /// As [`Driver::check`].
    pub fn check_with(&self, path: &str, bytes: u64, seed: u64, more: Value) -> Result<()> {
        let answer = self.call("read", merge(json!({"path": path, "seed": seed}), more))?;
        let seen = (answer["bytes"].as_u64(), answer["mismatch"].as_i64());
        expect(seen == (Some(bytes), Some(-1)), || {
            format!("{path}: (bytes, first mismatch) = {seen:?}, want ({bytes}, -1)")
        })
    }

    /// The file's blocks as a client sees them.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn blocks(&self, path: &str) -> Result<Vec<BlockOnNode>> {
        let answer = self.call("blocks", json!({ "path": path }))?;
        let blocks = answer["blocks"].as_array().cloned().unwrap_or_default();
        Ok(blocks.iter().map(block).collect())
    }

    /// Bytes of the stream `handle` that the pipeline has acknowledged.
    ///
    /// # Errors
    /// When the client does not answer.
    pub fn acked(&self, handle: &str) -> Result<u64> {
        let progress = self.handle("progress", handle)?;
        Ok(progress["acked"].as_u64().unwrap_or_default())
    }

    /// Waits until the pipeline has acknowledged so many bytes of the stream `handle`.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`] after a minute.
    pub fn wait_acked(&self, handle: &str, bytes: u64) -> Result<()> {
        let limit = Duration::from_secs(60);
        wait::until(&format!("{bytes} acknowledged bytes"), limit, || {
            let acked = self.acked(handle)?;
            Ok(if acked >= bytes {
                Seen::Done(())
            } else {
                Seen::NotYet(acked.to_string())
            })
        })
    }

    /// Waits until every block of `path` has exactly `count` replicas.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`].
    pub fn wait_replicas(&self, path: &str, count: usize, limit: Duration) -> Result<()> {
        wait::until(&format!("{count} replicas of {path}"), limit, || {
            let counts: Vec<usize> = self.blocks(path)?.iter().map(|b| b.nodes.len()).collect();
            Ok(if counts.iter().all(|&c| c == count) {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{counts:?}"))
            })
        })
    }

    /// Calls `recoverLease` until the file is closed.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`], or what the stock client throws.
    pub fn recover_lease(&self, path: &str, limit: Duration) -> Result<()> {
        let mut asked = None::<std::time::Instant>;
        wait::until(&format!("lease recovery of {path}"), limit, || {
            // Asking again restarts the recovery: give each a few seconds.
            let again = asked.is_none_or(|at| at.elapsed() > Duration::from_secs(5));
            let operation = if again { "recoverLease" } else { "closed" };
            if again {
                asked = Some(std::time::Instant::now());
            }
            Ok(match self.call(operation, json!({ "path": path })) {
                Ok(answer) if answer["closed"] == true => Seen::Done(()),
                Ok(_) => Seen::NotYet("open".into()),
                // A NameNode that was restarted drops the client's old connection once.
                Err(TestkitError::Client { class, message, .. }) => {
                    asked = None;
                    Seen::NotYet(format!("{class}: {message}"))
                }
                Err(error) => return Err(error),
            })
        })
    }

    /// Waits until the NameNode says that the file is closed, without asking for a recovery.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`], or what the stock client throws.
    pub fn wait_closed(&self, path: &str, limit: Duration) -> Result<()> {
        wait::until(&format!("{path} closed"), limit, || {
            let closed = self.call("closed", json!({ "path": path }))?["closed"].as_bool();
            Ok(if closed == Some(true) {
                Seen::Done(())
            } else {
                Seen::NotYet("open".into())
            })
        })
    }

    /// Length of a file by its status.
    ///
    /// # Errors
    /// What the stock client throws.
    pub fn length(&self, path: &str) -> Result<u64> {
        Ok(self.call("status", json!({ "path": path }))?["length"]
            .as_u64()
            .unwrap_or_default())
    }

    /// Fails unless `hdfs fsck PATH` says HEALTHY.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] with fsck's output.
    pub fn expect_healthy(&self, path: &str) -> Result<()> {
        let run = self.tool(class::FSCK, &[path])?;
        expect(run.out.contains("is HEALTHY"), || {
            format!("fsck {path}: {}{}", run.out, run.err)
        })
    }

    /// Waits until fsck says HEALTHY with no under-replicated block.
    ///
    /// # Errors
    /// [`TestkitError::Timeout`] with the last output.
    pub fn wait_healthy(&self, path: &str, limit: Duration) -> Result<()> {
        wait::until(
            &format!("{path} to be healthy and fully replicated"),
            limit,
            || {
                let out = self.tool(class::FSCK, &[path])?.out;
                let under = out
                    .lines()
                    .find(|line| line.contains("Under-replicated blocks"))
                    .unwrap_or_default();
                let full = under.split_whitespace().any(|word| word == "0");
                Ok(if out.contains("is HEALTHY") && full {
                    Seen::Done(())
                } else {
                    Seen::NotYet(out)
                })
            },
        )
    }

    /// Runs `hdfs debug verifyMeta` on every finalized replica of a node; their number.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] with the tool's output for the first bad one.
    pub fn verify_metas(&self, node: &Node) -> Result<usize> {
        let metas: Vec<PathBuf> = node
            .all_block_files()
            .into_iter()
            .filter(|path| path.extension().is_some_and(|e| e == "meta"))
            .filter(|path| path.components().any(|c| c.as_os_str() == "finalized"))
            .collect();
        let mut verified = 0;
        for meta in &metas {
            // The tool's own arithmetic overflows at large chunk sizes; those are checked by
            // reading them back.
            match chunk_bytes(meta) {
                Ok(chunk) if chunk <= VERIFY_META_CHUNK_BYTES_MAX => {}
                Err(error) if meta.exists() => return Err(error),
                _ => continue, // deleted meanwhile, or too large a chunk
            }
            match self.verify_meta(meta) {
                Ok(()) => verified += 1,
                Err(error) if meta.exists() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(verified)
    }

    /// Runs `hdfs debug verifyMeta` on one replica.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] with the tool's output when data and checksums do not match.
    pub fn verify_meta(&self, meta: &Path) -> Result<()> {
        let meta_text = meta.display().to_string();
        let data = data_file_of(meta)?.display().to_string();
        let args = ["verifyMeta", "-meta", &meta_text, "-block", &data];
        let run = self.tool(class::DEBUG, &args)?;
        expect(run.code == 0, || {
            format!("verifyMeta {meta_text}: {}{}", run.out, run.err)
        })
    }
}

/// The largest bytes-per-checksum that `hdfs debug verifyMeta` of 3.5.0 can check.
const VERIFY_META_CHUNK_BYTES_MAX: u32 = 4096;

/// Bytes per checksum, from a meta file's header.
fn chunk_bytes(meta: &Path) -> Result<u32> {
    use std::io::Read as _;
    let mut header = [0; 7];
    let mut file = std::fs::File::open(meta).map_err(TestkitError::file("opening", meta))?;
    file.read_exact(&mut header)
        .map_err(TestkitError::file("reading", meta))?;
    Ok(u32::from_be_bytes([
        header[3], header[4], header[5], header[6],
    ]))
}

/// The data file beside a `blk_ID_GS.meta`.
///
/// # Errors
/// [`TestkitError::Expectation`] when the name is not of that form.
pub fn data_file_of(meta: &Path) -> Result<PathBuf> {
    let name = meta
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    let data = name
        .strip_suffix(".meta")
        .and_then(|stem| stem.rsplit_once('_'))
        .map(|(data, _)| data);
    data.map(|data| meta.with_file_name(data))
        .ok_or_else(|| TestkitError::Expectation(format!("{} is not a meta file", meta.display())))
}

/// Writes a local file of the pattern.
///
/// # Errors
/// [`TestkitError::File`].
pub fn write_local(path: &Path, bytes: usize, seed: u64) -> Result<()> {
    let mut data = vec![0; bytes];
    pattern::fill(seed, 0, &mut data);
    std::fs::write(path, data).map_err(TestkitError::file("writing", path))
}

/// Fails unless a local file is exactly `bytes` of the pattern.
///
/// # Errors
/// [`TestkitError::Expectation`] or [`TestkitError::File`].
pub fn check_local(path: &Path, bytes: usize, seed: u64) -> Result<()> {
    let data = std::fs::read(path).map_err(TestkitError::file("reading", path))?;
    let mut want = vec![0; bytes];
    pattern::fill(seed, 0, &mut want);
    expect(data == want, || {
        format!(
            "{}: {} bytes differ from the {bytes} expected",
            path.display(),
            data.len()
        )
    })
}

/// Changes one byte of a file in place.
///
/// # Errors
/// [`TestkitError::File`], [`TestkitError::Expectation`] when the file is shorter.
pub fn flip_byte(path: &Path, offset: usize) -> Result<()> {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::options().read(true).write(true).open(path);
    let file = file.map_err(TestkitError::file("opening", path))?;
    let mut byte = [0];
    let offset = u64::try_from(offset).expect("usize fits in u64");
    file.read_exact_at(&mut byte, offset)
        .map_err(TestkitError::file("reading", path))?;
    file.write_all_at(&[byte[0] ^ 0x5A], offset)
        .map_err(TestkitError::file("writing", path))
}

fn block(value: &Value) -> BlockOnNode {
    let nodes = value["nodes"].as_array().cloned().unwrap_or_default();
    let texts = |name: &str| {
        nodes
            .iter()
            .map(|n| n[name].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    BlockOnNode {
        id: value["id"].as_i64().unwrap_or_default(),
        generation: value["generation"].as_u64().unwrap_or_default(),
        pool: value["pool"].as_str().unwrap_or_default().to_owned(),
        length: value["length"].as_u64().unwrap_or_default(),
        nodes: texts("xfer"),
        types: texts("type"),
        corrupt: value["corrupt"].as_bool().unwrap_or_default(),
    }
}

/// The fields of `more` over those of `base`.
#[must_use]
pub fn merge(mut base: Value, more: Value) -> Value {
    if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
        base.extend(more);
    }
    base
}
