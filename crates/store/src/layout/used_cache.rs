//! The `dfsUsed` file: bytes used and when that was true, as text.

/// Longest file that is read, in bytes.
pub const DFS_USED_BYTES_MAX: usize = 256;

/// Bytes used by a pool on a volume, at a time in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedCache {
    /// Bytes.
    pub used: u64,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
}

impl UsedCache {
    /// Reads the file's contents; `None` when they are not two numbers.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (used, at_ms) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Self { used, at_ms })
    }

    /// The file's contents.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        format!("{} {}", self.used, self.at_ms).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_come_back() {
        let cache = UsedCache {
            used: 123_456,
            at_ms: 1_795_250_967_000,
        };
        assert_eq!(cache.encode(), b"123456 1795250967000");
        assert_eq!(UsedCache::parse(&cache.encode()), Some(cache));
        for bad in [&b""[..], b"1", b"-1 2", b"1 x", b"\xff"] {
            assert_eq!(UsedCache::parse(bad), None);
        }
    }
}
