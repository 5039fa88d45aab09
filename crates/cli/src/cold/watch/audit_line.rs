//! A line of the NameNode's audit log, and the use that it tells of.
//!
//! Log4j's time comes first, in the NameNode's time zone, which the line does not name. Then come
//! fields with tabs between: `allowed=`, `ugi=`, `ip=`, `cmd=`, `src=`, `dst=`, and more. Hadoop
//! escapes paths as Java does since 3.3, and does not before: both readings count.

use time::{Date, Month};

use super::super::directory_uses::DirectoryUses;

/// What a local time may be behind UTC, milliseconds. A time counts as that much later: rather too
/// late than too early.
const ZONE_MS: u64 = 12 * 3_600_000;
/// What the name of a file begins with that is given by the number of its inode.
const BY_INODE: &str = "/.reserved/.inodes/";

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditLine<'a> {
    /// When, at the latest; milliseconds since 1970.
    pub at_ms: u64,
    command: &'a str,
    src: &'a str,
    dst: &'a str,
}

impl<'a> AuditLine<'a> {
    /// Reads a line; none when it is no line of an audit log.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let line = std::str::from_utf8(line)
            .ok()?
            .trim_end_matches(['\r', '\n']);
        let (head, fields) = line.split_once("allowed=")?;
        let mut fields = fields.split('\t').skip(1);
        let mut named = |name: &str| fields.next()?.strip_prefix(name);
        named("ugi=")?;
        named("ip=")?;
        Some(Self {
            at_ms: time(head)?.saturating_add(ZONE_MS),
            command: named("cmd=")?,
            src: named("src=")?,
            dst: named("dst=")?,
        })
    }

    /// Whether it tells of a read.
    pub fn is_read(&self) -> bool {
        self.command == "open"
    }

    /// Whether what was used has the number of an inode in place of a path.
    pub fn is_by_inode(&self) -> bool {
        self.used().is_some_and(|path| path.starts_with(BY_INODE))
    }

    fn is_rename(&self) -> bool {
        self.command.starts_with("rename")
    }

    /// What was used; none when the line tells of no use.
    fn used(&self) -> Option<&'a str> {
        if ["open", "append", "create", "truncate", "concat"].contains(&self.command) {
            Some(self.src)
        } else {
            self.is_rename().then_some(self.dst)
        }
    }

    /// Notes what was used; nothing is used later than now. A refused call counts, too: it keeps a
    /// file where it is and does no more. The number of an inode may be that of any file.
    pub fn note(&self, uses: &mut DirectoryUses, now_ms: u64) {
        let at_ms = self.at_ms.min(now_ms);
        if self.is_by_inode() {
            uses.unknown_until(at_ms);
        } else if let Some(used) = self.used() {
            readings(used, |path| {
                uses.note_file(path, at_ms);
                if self.is_rename() {
                    uses.note_below(path, at_ms);
                }
            });
        }
    }
}

/// Calls `with` for each path that a field may mean.
fn readings(field: &str, mut with: impl FnMut(&str)) {
    let mut one = |path: &str| {
        let path = path.strip_prefix("/.reserved/raw").unwrap_or(path);
        if path.starts_with('/') {
            with(&without_snapshot(path));
        }
    };
    one(field);
    if field.contains('\\') {
        one(&unescaped(field));
    }
}

/// A path in a snapshot as that of the living file.
fn without_snapshot(path: &str) -> String {
    let Some((dir, rest)) = path.split_once("/.snapshot/") else {
        return path.to_owned();
    };
    let below = rest.split_once('/').map_or("", |(_, below)| below);
    format!("{dir}/{below}")
}

/// What Java escaped. An escape that it does not make is left as it is.
fn unescaped(text: &str) -> String {
    let mut units = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once('\\') {
        units.extend(plain.encode_utf16());
        let hex = after.strip_prefix('u').and_then(|after| after.get(..4));
        let hex = hex.filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let hex = hex.and_then(|hex| u16::from_str_radix(hex, 16).ok());
        let byte = match after.chars().next() {
            Some('n') => Some(b'\n'),
            Some('t') => Some(b'\t'),
            Some('r') => Some(b'\r'),
            Some('"') => Some(b'"'),
            Some('\\') => Some(b'\\'),
            Some('/') => Some(b'/'),
            _ => None,
        };
        let (unit, len) = match (hex, byte) {
            (Some(unit), _) => (unit, 5),
            (None, Some(byte)) => (u16::from(byte), 1),
            (None, None) => (u16::from(b'\\'), 0),
        };
        units.push(unit);
        rest = &after[len..];
    }
    units.extend(rest.encode_utf16());
    String::from_utf16_lossy(&units)
}

/// `2026-11-30 12:38:12,123 ...` as milliseconds since 1970, as if it were UTC.
fn time(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<u16> {
        let digits = text.get(from..to)?;
        let all = digits.bytes().all(|digit| digit.is_ascii_digit());
        all.then(|| digits.parse().ok()).flatten()
    };
    let small = |from: usize| u8::try_from(number(from, from + 2)?).ok();
    let month = Month::try_from(small(5)?).ok()?;
    let day = Date::from_calendar_date(number(0, 4)?.into(), month, small(8)?).ok()?;
    let at = day.with_hms_milli(small(11)?, small(14)?, small(17)?, number(20, 23)?);
    u64::try_from(at.ok()?.assume_utc().unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "2026-11-30 12:38:12,123 INFO FSNamesystem.audit: ";
    const NOW: u64 = u64::MAX;

    fn line(command: &str, src: &str, dst: &str) -> String {
        format!(
            "{HEAD}allowed=true\tugi=u (auth:SIMPLE)\tip=/10.0.0.1\tcmd={command}\tsrc={src}\t\
             dst={dst}\tperm=null\tproto=rpc\n"
        )
    }

    fn noted(line: &str) -> Option<DirectoryUses> {
        let mut uses = DirectoryUses::default();
        AuditLine::parse(line.as_bytes())?.note(&mut uses, NOW);
        Some(uses)
    }

    #[test]
    fn times_are_read_as_the_latest_that_they_may_be() {
        assert_eq!(time("1970-01-01 00:00:00,000"), Some(0));
        assert_eq!(time("2000-02-29 23:59:59,999 x"), Some(951_868_799_999));
        assert_eq!(time("2026-11-30T12:38:12.123"), Some(1_796_042_292_123));
        for wrong in [
            "",
            "2026-13-01 00:00:00,000",
            "2026-11-30 12:38:12",
            "x026-11-30 12:38:12,123",
        ] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        let open = line("open", "/a/f", "null");
        let at_ms = AuditLine::parse(open.as_bytes()).expect("a line").at_ms;
        assert_eq!(at_ms, 1_796_042_292_123 + ZONE_MS);
        let mut uses = DirectoryUses::default();
        AuditLine::parse(open.as_bytes())
            .expect("a line")
            .note(&mut uses, 7);
        assert_eq!(uses.last_use("/a"), 7, "nothing is used in the future");
    }

    #[test]
    fn a_line_says_which_directory_was_used() {
        let at = 1_796_042_292_123 + ZONE_MS;
        for (command, src, dst, used, idle) in [
            ("open", "/a/f", "null", "/a", "/a/b"),
            ("append", "/a/f", "null", "/a", "/"),
            ("open", "/a/.snapshot/s1/b/f", "null", "/a/b", "/a"),
            (
                "open",
                "/.reserved/raw/a/f",
                "null",
                "/a",
                "/.reserved/raw/a",
            ),
            ("open", "/\\u00e4\\\\b/f", "null", "/ä\\b", "/a"),
            ("open", "/\\ud83d\\ude00/f", "null", "/😀", "/a"),
            ("open", "/a\\b/f", "null", "/a\\b", "/a"),
            (
                "rename (options=[TO_TRASH])",
                "/x/d",
                "/y/d",
                "/y/d/deep",
                "/x",
            ),
            ("rename", "/x/f", "/y/f", "/y", "/y/e"),
        ] {
            let uses = noted(&line(command, src, dst)).expect("a line");
            assert_eq!(uses.last_use(used), at, "{command} {src} {dst}");
            assert_eq!(uses.last_use(idle), 0, "{command} {src} {dst}");
        }
        for path in ["/.reserved/.inodes/16399", "/.reserved/.inodes/16386/f"] {
            let uses = noted(&line("open", path, "null")).expect("a line");
            assert_eq!((uses.last_use("/a"), uses.known_use("/a")), (at, 0));
        }
        for command in ["getfileinfo", "listStatus", "setStoragePolicy", "delete"] {
            let uses = noted(&line(command, "/a/f", "null")).expect("a line");
            assert_eq!(uses, DirectoryUses::default(), "{command}");
        }
    }

    #[test]
    fn a_hostile_line_is_no_line_or_one_of_its_own() {
        let good = line("open", "/a/f", "null");
        for cut in 0..good.len() - "\tperm=null\tproto=rpc\n".len() - "null".len() {
            assert!(noted(&good[..cut]).is_none(), "{cut}");
        }
        assert!(AuditLine::parse(b"\xff\xfe allowed=true\t").is_none());
        // Fields in a name of a user or a path are not those of the line.
        let uses = noted(&line("delete", "/a\tcmd=open\tsrc=/b/f", "null"));
        assert!(uses.is_none_or(|uses| uses == DirectoryUses::default()));
        assert!(
            noted(&line("open", "relative", "null")).expect("a line") == DirectoryUses::default()
        );
        assert_eq!(unescaped("\\"), "\\");
        assert_eq!(unescaped("\\u12"), "\\u12");
        assert_eq!(unescaped("\\u+123\\ud800"), "\\u+123\u{fffd}");
    }
}
