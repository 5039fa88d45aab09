//! Where snapshots are kept: an object store by its URL, or a directory.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hayloft_io::locks;
use opendal::layers::{ConcurrentLimitLayer, RetryLayer, TimeoutLayer};
use opendal::{ErrorKind, Operator, services};

use crate::error::SnapshotError;
use crate::names::UNFINISHED;

/// Requests under way at a time, at most.
const REQUESTS_MAX: usize = 64;
/// How long one request may take, and how long a transfer may stand still.
const REQUEST_WITHIN: Duration = Duration::from_secs(60);
const STILL_WITHIN: Duration = Duration::from_secs(30);
/// How often a request is made that the store failed for the moment, and the waits between.
const TRIES: usize = 5;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Forms of a URL, for errors.
const FORMS: &str =
    "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, azblob://CONTAINER/PREFIX or file:///DIR";

/// Where snapshots are kept.
#[derive(Clone)]
pub struct Target {
    url: String,
    operator: Operator,
    /// The directory, where it is one.
    directory: Option<PathBuf>,
    /// Claims that this process holds, by their paths.
    pub(crate) claims: Arc<Mutex<Vec<String>>>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.url).finish()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Target {
    /// The store that a URL names. Credentials, region and endpoint come from the environment, as
    /// other programs for these stores take them, or from the machine's role.
    ///
    /// # Errors
    /// It is no such URL, or what has to be said with it is missing.
    pub fn open(url: &str) -> Result<Self, SnapshotError> {
        Self::new(url, true)
    }

    /// The same for works that read, which need no place for what is not whole yet.
    ///
    /// # Errors
    /// Likewise.
    pub fn to_read(url: &str) -> Result<Self, SnapshotError> {
        Self::new(url, false)
    }

    fn new(url: &str, to_write: bool) -> Result<Self, SnapshotError> {
        let url = url.trim().trim_end_matches('/');
        let wrong = || SnapshotError::environment("this is no place for snapshots", url, FORMS);
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let odd = prefix.split('/').any(|part| part == ".." || part == ".");
        if odd || bucket.is_empty() == (scheme != "file") {
            return Err(wrong());
        }
        let root = format!("/{prefix}");
        let mut directory = None;
        choose_tls();
        let built = match scheme {
            "s3" | "s3a" => s3(bucket, &root),
            "gs" => Operator::new(services::Gcs::default().bucket(bucket).root(&root))
                .map(opendal::OperatorBuilder::finish),
            "azblob" => azblob(bucket, &root),
            "file" if !prefix.is_empty() => {
                let path = PathBuf::from(&root);
                // A disk that is not mounted must not be taken for an empty one of this name.
                if !path.is_dir() {
                    let advice = "mount or make the directory: none is made where it is missing";
                    return Err(SnapshotError::environment(
                        "it is no directory",
                        url,
                        advice,
                    ));
                }
                let unfinished = path.join(UNFINISHED);
                directory = Some(path);
                let mut fs = services::Fs::default().root(&root);
                if to_write {
                    fs = fs.atomic_write_dir(&unfinished.to_string_lossy());
                }
                Operator::new(fs).map(opendal::OperatorBuilder::finish)
            }
            _ => return Err(wrong()),
        };
        let operator = built.map_err(|e| SnapshotError::of_store("use the store", url, &e))?;
        Ok(Self {
            url: url.to_owned(),
            operator: patient(operator),
            directory,
            claims: Arc::default(),
        })
    }

    /// A store of a test.
    #[cfg(test)]
    pub fn of(operator: Operator) -> Self {
        Self {
            url: "memory://test".to_owned(),
            operator: patient(operator),
            directory: None,
            claims: Arc::default(),
        }
    }

    /// What reads and writes objects.
    pub(crate) fn operator(&self) -> &Operator {
        &self.operator
    }

    /// An object of it, for errors.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    /// Where a file system has what is not whole yet.
    pub(crate) fn unfinished(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|dir| dir.join(UNFINISHED))
    }

    /// A small object; `None` when it is not there.
    pub(crate) async fn read(
        &self,
        path: &str,
        bytes_max: u64,
    ) -> Result<Option<Bytes>, SnapshotError> {
        let failed = |e| SnapshotError::of_store("read an object", &self.at(path), &e);
        let len = match self.operator.stat(path).await {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            stat => stat.map_err(failed)?.content_length(),
        };
        if len > bytes_max {
            return Err(SnapshotError::finding(
                format!("an object has {len} bytes, at most {bytes_max} are taken"),
                self.at(path),
                "it was altered: remove it",
            ));
        }
        if len == 0 {
            return Ok(Some(Bytes::new()));
        }
        let read = self.operator.read_with(path).range(0..len).await;
        match read {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            read => Ok(Some(read.map_err(failed)?.to_bytes())),
        }
    }

    /// Writes an object whole, or not at all.
    pub(crate) async fn write(&self, path: &str, bytes: Bytes) -> Result<(), SnapshotError> {
        let written = self.operator.write(path, bytes).await;
        written
            .map(|_| ())
            .map_err(|e| SnapshotError::of_store("write an object", &self.at(path), &e))
    }

    /// Removes objects; those that are not there are removed already.
    pub(crate) async fn remove(&self, paths: Vec<String>) -> Result<(), SnapshotError> {
        let removed = self.operator.delete_iter(paths).await;
        removed.map_err(|e| SnapshotError::of_store("remove objects", &self.url, &e))
    }

    /// Gives up the claims of works that were dropped: others need not wait until they are dead.
    ///
    /// # Errors
    /// Of the store.
    pub async fn release_claims(&self) -> Result<(), SnapshotError> {
        let left = std::mem::take(&mut *locks::lock(&self.claims));
        self.remove(left).await
    }

    /// Has what was written outlive power loss. An object store does that before it answers.
    pub(crate) async fn sync(&self) -> Result<(), SnapshotError> {
        let Some(directory) = self.directory.clone() else {
            return Ok(());
        };
        let synced = tokio::task::spawn_blocking(move || {
            rustix::fs::syncfs(std::fs::File::open(directory)?).map_err(std::io::Error::from)
        });
        let synced = synced
            .await
            .unwrap_or_else(|e| Err(std::io::Error::other(e)));
        synced.map_err(|e| SnapshotError::of_file("write to the device", &self.url, &e))
    }
}

/// Our TLS, unless the process has chosen one: each operator wants it, used or not.
pub(crate) fn choose_tls() {
    let _chosen = rustls::crypto::ring::default_provider().install_default();
}

/// The store with what a network needs: limits, waits that end, and tries.
fn patient(operator: Operator) -> Operator {
    let timeout = TimeoutLayer::new()
        .with_timeout(REQUEST_WITHIN)
        .with_io_timeout(STILL_WITHIN);
    let retry = RetryLayer::new()
        .with_max_times(TRIES)
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_jitter();
    operator
        .layer(timeout)
        .layer(retry)
        .layer(ConcurrentLimitLayer::new(REQUESTS_MAX))
}

fn s3(bucket: &str, root: &str) -> opendal::Result<Operator> {
    let mut s3 = services::S3::default().bucket(bucket).root(root);
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let endpoint = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_S3_ENDPOINT"];
    if !set("AWS_REGION") && !set("AWS_DEFAULT_REGION") && endpoint.iter().any(|name| set(name)) {
        // Servers of others have no regions, but a signature has one.
        s3 = s3.region("us-east-1");
    }
    // The store compares each part with the CRC-32C that it is sent with, before it takes it.
    let s3 = s3.checksum_algorithm("crc32c");
    Operator::new(s3).map(opendal::OperatorBuilder::finish)
}

fn azblob(container: &str, root: &str) -> opendal::Result<Operator> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut azblob = services::Azblob::default().container(container).root(root);
    let account = set("AZURE_STORAGE_ACCOUNT_NAME");
    let of_account = |name: &String| format!("https://{name}.blob.core.windows.net");
    if let Some(endpoint) =
        set("AZURE_STORAGE_ENDPOINT").or_else(|| account.as_ref().map(of_account))
    {
        azblob = azblob.endpoint(&endpoint);
    }
    if let Some(name) = &account {
        azblob = azblob.account_name(name);
    }
    if let Some(key) = set("AZURE_STORAGE_ACCOUNT_KEY") {
        azblob = azblob.account_key(&key);
    }
    Operator::new(azblob).map(opendal::OperatorBuilder::finish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_store() {
        for url in [
            "",
            "x",
            "s3://",
            "ftp://a/b",
            "s3://b/../c",
            "file://",
            "file://h/x",
        ] {
            assert!(Target::open(url).is_err(), "{url}");
        }
        let error = Target::open("file:///nowhere/at/all").expect_err("is not there");
        assert!(error.to_string().contains("mount or make"), "{error}");
        let dir = tempfile::tempdir().expect("temporary directory");
        let url = format!("file://{}/", dir.path().display());
        let target = Target::open(&url).expect("a directory");
        assert_eq!(target.to_string(), url.trim_end_matches('/'));
    }
}
