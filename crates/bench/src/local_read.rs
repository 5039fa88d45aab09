//! Reads by a Java client with libhadoop: by itself, from files that a node of its host passes to
//! it (short circuit), and over TCP beside that.

use serde_json::{Value, json};
use std::path::Path;

/// How long the client keeps files open that nothing reads, ms: deleted ones hold their room.
const KEPT_MS: u32 = 10_000;

/// Bytes of a positional read.
pub(super) const PREAD_BYTES: u64 = 64 << 10;

/// What the client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalRead {
    /// A file from its begin, the page cache empty.
    Cold,
    /// A file that was read twice before.
    Warm,
    /// Random positions of a file one by one, the page cache empty.
    Pread,
    /// A byte of each of many small files. The client keeps no descriptor, so that it asks the node
    /// for those of each. The files are open at the NameNode before.
    Descriptors,
    /// As warm, from maps of the node's files.
    ZeroCopy,
}

impl LocalRead {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Cold,
        Self::Warm,
        Self::Pread,
        Self::Descriptors,
        Self::ZeroCopy,
    ];

    /// Those of one large file. Over TCP nothing is mapped.
    pub fn of_a_file(tcp: bool) -> impl Iterator<Item = Self> {
        let all = Self::ALL.into_iter();
        all.filter(move |read| match read {
            Self::Descriptors => false,
            Self::ZeroCopy => !tcp,
            _ => true,
        })
    }

    /// The name of its row: of one over TCP, or of one by the client itself.
    #[must_use]
    pub const fn row(self, tcp: bool) -> &'static str {
        match (self, tcp) {
            (Self::Cold, false) => "local-cold-1",
            (Self::Cold, true) => "tcp-cold-1",
            (Self::Warm, false) => "local-warm-1",
            (Self::Warm, true) => "tcp-warm-1",
            (Self::Pread, false) => "local-pread-1",
            (Self::Pread, true) => "tcp-pread-1",
            (Self::Descriptors, _) => "descriptors",
            (Self::ZeroCopy, _) => "zero-copy-warm-1",
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn about(self, tcp: bool) -> String {
        let what = match self {
            Self::Cold => "one reader, page cache empty",
            Self::Warm => "one reader, read twice before",
            Self::Pread => "random reads of 64 KiB, page cache empty",
            Self::Descriptors => "a byte of each of 600 open small files, 4 readers",
            Self::ZeroCopy => "one reader that maps, read twice before",
        };
        let way = if tcp { "over TCP" } else { "short circuit" };
        format!("{what}, {way}, with libhadoop")
    }

    /// Whether it counts operations.
    #[must_use]
    pub const fn counts_operations(self) -> bool {
        matches!(self, Self::Pread | Self::Descriptors)
    }

    /// Configuration of the client. Each row has caches of its own.
    pub(super) fn conf(self, tcp: bool) -> Value {
        let mut conf = json!({
            "dfs.client.context": self.row(tcp),
            "dfs.client.read.shortcircuit": !tcp,
            "dfs.client.read.shortcircuit.streams.cache.expiry.ms": KEPT_MS,
            "dfs.client.mmap.cache.timeout.ms": KEPT_MS,
        });
        if self == Self::Pread {
            // What it reads, and not sixteen times that.
            conf["dfs.client.read.shortcircuit.buffer.size"] = json!(PREAD_BYTES);
        }
        if self == Self::Descriptors {
            conf["dfs.client.read.shortcircuit.streams.cache.size"] = json!(0);
        }
        conf
    }

    /// Whether the client read in the way of the row.
    ///
    /// # Errors
    /// What it did instead, in words.
    pub(super) fn check(self, tcp: bool, answer: &Value) -> Result<(), String> {
        let mapped = self == Self::ZeroCopy;
        let name = if mapped { "zeroCopy" } else { "shortCircuit" };
        let wanted = if tcp { &json!(0) } else { &answer["bytes"] };
        let is = &answer[name];
        if is.is_u64() && is == wanted {
            return Ok(());
        }
        let row = self.row(tcp);
        Err(format!("{row}: {name} was {is} bytes, not {wanted}"))
    }
}

/// Configuration of nodes whose sockets are in a directory.
pub(super) fn nodes_conf(sockets: &Path) -> [(&'static str, String); 2] {
    let socket = sockets.join("dn._PORT").display().to_string();
    [
        ("dfs.client.read.shortcircuit", "true".into()),
        ("dfs.domain.socket.path", socket),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_only_when_all_was_read_in_its_way() {
        let answer = |alone: u64, mapped: u64| {
            let bytes = 64;
            json!({"bytes": bytes, "shortCircuit": alone, "zeroCopy": mapped})
        };
        for read in LocalRead::ALL {
            let is_mapped = read == LocalRead::ZeroCopy;
            let mapped = if is_mapped { 64 } else { 0 };
            assert_eq!(read.check(false, &answer(64, mapped)), Ok(()));
            let (alone, mapped) = if is_mapped { (64, 63) } else { (63, 64) };
            let error = read.check(false, &answer(alone, mapped));
            assert!(
                error.expect_err("a part").contains("was 63 bytes"),
                "{read:?}"
            );
            read.check(false, &json!({})).expect_err("nothing is told");
        }
        for read in LocalRead::of_a_file(true) {
            assert_eq!(read.check(true, &answer(0, 0)), Ok(()));
            read.check(true, &answer(1, 0)).expect_err("a byte of it");
        }
    }

    #[test]
    fn descriptors_alone_are_asked_for_again_and_again() {
        let kept = |read: LocalRead| {
            let conf = read.conf(false);
            assert_eq!(conf["dfs.client.read.shortcircuit"], true);
            conf.get("dfs.client.read.shortcircuit.streams.cache.size")
                .cloned()
        };
        for read in LocalRead::ALL {
            let wanted = (read == LocalRead::Descriptors).then(|| json!(0));
            assert_eq!(kept(read), wanted, "{read:?}");
        }
        let over_tcp = LocalRead::Warm.conf(true);
        assert_eq!(over_tcp["dfs.client.read.shortcircuit"], false);
        let own = LocalRead::Warm.conf(false);
        assert_ne!(over_tcp["dfs.client.context"], own["dfs.client.context"]);
    }
}
