//! What failed, where, and what to do about it.

use std::fmt;
use std::io;

use opendal::ErrorKind;

/// What an error says of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotErrorKind {
    /// Something is wrong with what is there.
    Finding,
    /// Another process is at work on it: nothing is wrong, and later it goes.
    AtWork,
    /// Usage, configuration, credentials, room, or a store that does not answer.
    Environment,
}

/// An error, shown as `what (where): what to do`.
#[derive(Clone, Debug, thiserror::Error)]
pub struct SnapshotError {
    kind: SnapshotErrorKind,
    what: String,
    place: String,
    advice: String,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.what, self.place, self.advice)
    }
}

impl SnapshotError {
    /// A finding.
    #[must_use]
    pub fn finding(
        what: impl Into<String>,
        place: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            kind: SnapshotErrorKind::Finding,
            what: what.into(),
            place: place.into(),
            advice: advice.into(),
        }
    }

    /// Another process is at work.
    #[must_use]
    pub(crate) fn at_work(place: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            kind: SnapshotErrorKind::AtWork,
            ..Self::finding(
                "another process is at work on the snapshots of this node",
                place,
                advice,
            )
        }
    }

    /// The environment does not allow the work.
    #[must_use]
    pub fn environment(
        what: impl Into<String>,
        place: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            kind: SnapshotErrorKind::Environment,
            ..Self::finding(what, place, advice)
        }
    }

    /// An object store refused or failed an operation, after it was tried again where that helps.
    pub(crate) fn of_store(doing: &str, place: &str, error: &opendal::Error) -> Self {
        let what = format!("cannot {doing}: {}", in_a_line(error));
        Self::environment(what, place, advice(error))
    }

    /// A file or directory of this host cannot be read or written.
    pub(crate) fn of_file(doing: &str, place: impl fmt::Display, error: &io::Error) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make room there, and run the command again: it goes on where it stopped"
            }
            io::ErrorKind::PermissionDenied => "run the command as the user of the node",
            _ => "see what the disk says in the log of the kernel",
        };
        Self::environment(
            format!("cannot {doing}: {error}"),
            place.to_string(),
            advice,
        )
    }

    /// What it says of the work.
    #[must_use]
    pub fn kind(&self) -> SnapshotErrorKind {
        self.kind
    }
}

/// The error's own words: what a server answered is long, and may have many lines.
fn in_a_line(error: &opendal::Error) -> String {
    const SHOWN: usize = 300;
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    // Not the context, such as the headers of an answer.
    let text = format!("{}{}", error.message(), source.unwrap_or_default());
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// What the system said of a store that is a directory.
fn of_system(error: &opendal::Error) -> Option<io::ErrorKind> {
    let first = std::error::Error::source(error);
    let mut causes = std::iter::successors(first, |error| error.source());
    let found = causes.find_map(|error| error.downcast_ref::<io::Error>());
    found.map(io::Error::kind)
}

/// Whether no more bytes fit into the store.
fn is_full(error: &opendal::Error) -> bool {
    // Servers of S3 have no code for it in common.
    let text = error.to_string();
    [
        "QuotaExceeded",
        "StorageFull",
        "No space left",
        "quota exceeded",
    ]
    .iter()
    .any(|said| text.contains(said))
}

/// Whether the store's credentials have ended, or never were any.
fn is_refused(error: &opendal::Error) -> bool {
    let text = error.to_string();
    let said = [
        "ExpiredToken",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidToken",
        "AuthenticationFailed",
        "no valid credential",
        "credential",
    ];
    error.kind() == ErrorKind::PermissionDenied || said.iter().any(|said| text.contains(said))
}

fn advice(error: &opendal::Error) -> &'static str {
    const ROOM: &str = "make room in the store, such as by 'hayloft snapshot prune', or raise its \
        quota; what is there stays good";
    match of_system(error) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => return ROOM,
        Some(io::ErrorKind::ReadOnlyFilesystem) => return "mount it so that it may be written",
        Some(io::ErrorKind::PermissionDenied) => return "run it as a user who may write there",
        _ => {}
    }
    if is_full(error) {
        return ROOM;
    }
    if is_refused(error) {
        return "give credentials that are valid now and may list, read, write and delete there; a \
                run that was stopped goes on where it was";
    }
    match error.kind() {
        ErrorKind::NotFound => "check --to; an object that is missing makes its snapshot useless",
        ErrorKind::ConfigInvalid => "check --to and the variables of the store's credentials",
        ErrorKind::RateLimited => "the store asks for less at a time: lower --rate, and run again",
        _ => "run the command again when the store answers: it goes on where it stopped",
    }
}
