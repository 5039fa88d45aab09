//! `/logs`: the file that the node logs to, and the older ones that were rotated beside it.
//!
//! The node writes its log to a file of its own, or to standard error. Where that is a file, as a
//! service manager may have it, the file can be read here. Nothing else of its directory is shown:
//! it may have anything in it. Only names that the listing has are opened, so that no path leads
//! elsewhere.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use axum::body::{Body, Bytes};
use axum::extract::Path as UrlPath;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::{conf_stacks_loglevel, percent, text};
use crate::daemonlog;

/// Bytes of a file that are read at a time.
const CHUNK: usize = 64 << 10;
/// Files that are listed.
const LISTED_MAX: usize = 1000;

/// A file of the log.
#[derive(Debug, PartialEq, Eq)]
struct LogFile {
    name: String,
    bytes: u64,
}

/// The log's own file. Else what standard error is: a path, or what the kernel calls it.
fn log_file() -> PathBuf {
    let own = daemonlog::installed().and_then(|log| log.file());
    own.map_or_else(
        || std::fs::read_link("/proc/self/fd/2").unwrap_or_default(),
        Path::to_owned,
    )
}

/// The log at this path and what was rotated beside it (`node.log`, `node.log.1`,
/// `node.log-20260101.gz`); none when it is no file.
fn files(log: &Path) -> Vec<LogFile> {
    let (Some(directory), Some(own)) = (log.parent(), log.file_name().and_then(|n| n.to_str()))
    else {
        return Vec::new();
    };
    let is_file = std::fs::symlink_metadata(log).is_ok_and(|of| of.is_file());
    if !log.is_absolute() || !is_file {
        return Vec::new();
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let of_log = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let rest = name.strip_prefix(own)?;
        let rotated = rest.is_empty() || rest.starts_with(['.', '-']);
        // Of the entry itself: no link is followed.
        let of = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        rotated.then_some(LogFile {
            bytes: of.len(),
            name,
        })
    };
    let mut all: Vec<LogFile> = entries.filter_map(of_log).take(LISTED_MAX).collect();
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    all
}

/// `/logs`.
pub async fn moved() -> Redirect {
    Redirect::to("/logs/")
}

/// `/logs/`.
pub async fn listing() -> Response {
    let listed = tokio::task::spawn_blocking(|| {
        let log = log_file();
        page(&log, &files(&log))
    });
    match listed.await {
        Ok(page) => text("text/html;charset=utf-8", page),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn page(log: &Path, files: &[LogFile]) -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Directory: \
         /logs/</title></head><body><h1>Directory: /logs/</h1>",
    );
    if files.is_empty() {
        let log = log.display().to_string();
        let _ = write!(
            page,
            "<p>This node writes its log to standard error, which is no file here ({}). The \
             service manager has it: <code>journalctl -u hayloft</code> where it is systemd.</p>",
            conf_stacks_loglevel::marked_up(&log)
        );
    } else {
        page.push_str("<table><tr><th scope=\"col\">Name</th><th scope=\"col\">Bytes</th></tr>");
        for file in files {
            let (name, bytes) = (conf_stacks_loglevel::marked_up(&file.name), file.bytes);
            let _ = write!(
                page,
                "<tr><td><a href=\"/logs/{}\">{name}</a></td><td>{bytes}</td></tr>",
                encoded(&file.name)
            );
        }
        page.push_str("</table>");
    }
    page.push_str("</body></html>");
    page
}

/// A name as a part of a URL.
fn encoded(name: &str) -> String {
    percent::encoded(name, b"-._~")
}

/// `/logs/NAME`.
pub async fn file(UrlPath(name): UrlPath<String>) -> Response {
    let opened = tokio::task::spawn_blocking(move || open(&log_file(), &name));
    match opened.await.ok().flatten() {
        Some((file, bytes)) => {
            let kind = [(header::CONTENT_TYPE, "text/plain;charset=utf-8")];
            (kind, Body::from_stream(chunks(file, bytes))).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// A file that the listing has, and its length.
fn open(log: &Path, name: &str) -> Option<(File, u64)> {
    let listed = files(log).into_iter().find(|file| file.name == name)?;
    // What was a file when it was listed may be a link now.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let path = log.with_file_name(listed.name);
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    let of = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((file, of.len()))
}

/// The first `bytes` of a file, which may grow meanwhile, a little at a time.
fn chunks(
    file: File,
    bytes: u64,
) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    futures_util::stream::try_unfold(file.take(bytes), |mut rest| async move {
        let reading = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; CHUNK];
            let n = rest.read(&mut chunk)?;
            chunk.truncate(n);
            Ok::<_, std::io::Error>((chunk, rest))
        });
        let (chunk, rest) = reading.await.map_err(std::io::Error::other)??;
        Ok((!chunk.is_empty()).then(|| (Bytes::from(chunk), rest)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_log_and_what_was_rotated_is_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for name in [
            "node.log",
            "node.log.1",
            "node.log-2.gz",
            "node.logs",
            "secret",
        ] {
            std::fs::write(at(name), name).expect("written");
        }
        std::os::unix::fs::symlink("/etc/passwd", at("node.log.2")).expect("a link");
        std::fs::create_dir(at("node.log.d")).expect("a directory");
        let log = at("node.log");
        let names: Vec<String> = files(&log).into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["node.log", "node.log-2.gz", "node.log.1"]);
        for name in [
            "secret",
            "../secret",
            "node.log.2",
            "node.log.d",
            "",
            "/etc/passwd",
        ] {
            assert!(open(&log, name).is_none(), "{name}");
        }
        let (mut file, bytes) = open(&log, "node.log.1").expect("listed");
        let mut read = String::new();
        file.read_to_string(&mut read).expect("text");
        assert_eq!((read.as_str(), bytes), ("node.log.1", 10));
        let shown = page(&log, &files(&log));
        assert!(shown.contains("/logs/node.log-2.gz\">") && !shown.contains("secret"));
    }

    #[test]
    fn a_pipe_is_told_of() {
        let log = Path::new("pipe:[<1>]");
        assert_eq!(files(log), []);
        let shown = page(log, &[]);
        assert!(shown.contains("pipe:[&lt;1&gt;]") && shown.contains("journalctl"));
        assert_eq!(encoded("a b/\"c"), "a%20b%2F%22c");
    }
}
