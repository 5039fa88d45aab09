//! Java's Properties files, as far as VERSION files need them (`java.util.Properties`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

/// The keys and values of a Properties file. A key that occurs twice has its last value.
///
/// Bytes are ISO 8859-1, `\uXXXX` stands for the rest of Unicode.
#[must_use]
pub fn parse(bytes: &[u8]) -> BTreeMap<String, String> {
    let text: String = bytes.iter().map(|b| char::from(*b)).collect();
    let mut found = BTreeMap::new();
    for line in logical_lines(&text) {
        let (key, value) = split(&line);
        found.insert(unescape(key), unescape(value));
    }
    found
}

/// Lines without comments and blank ones. A line that ends in an odd number of backslashes goes on
/// in the next, whose leading white space is dropped.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for natural in text.split(['\n', '\r']) {
        let trimmed = natural.trim_start_matches([' ', '\t', '\x0c']);
        if open.is_none() && (trimmed.is_empty() || trimmed.starts_with(['#', '!'])) {
            continue;
        }
        let backslashes = trimmed.bytes().rev().take_while(|b| *b == b'\\').count();
        let goes_on = backslashes % 2 == 1;
        let part = if goes_on {
            &trimmed[..trimmed.len() - 1]
        } else {
            trimmed
        };
        let mut line = open.take().unwrap_or_default();
        line.push_str(part);
        if goes_on {
            open = Some(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(open);
    lines
}

/// Cuts at the first unescaped `=`, `:` or white space.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if matches!(c, '=' | ':' | ' ' | '\t' | '\x0c') {
            end = at;
            break;
        }
    }
    let white = [' ', '\t', '\x0c'];
    let rest = line[end..].trim_start_matches(white);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], rest.trim_start_matches(white))
}

fn unescape(text: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut pair = [0_u16; 2];
    while let Some(c) = chars.next() {
        let c = if c == '\\' {
            match chars.next() {
                Some('u') => {
                    let digits: String = chars.clone().take(4).collect();
                    match u16::from_str_radix(&digits, 16) {
                        Ok(unit) if digits.len() == 4 => {
                            chars.nth(3);
                            units.push(unit);
                            continue;
                        }
                        _ => 'u',
                    }
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => continue,
            }
        } else {
            c
        };
        units.extend_from_slice(c.encode_utf16(&mut pair));
    }
    String::from_utf16_lossy(&units)
}

/// A Properties file as Java writes it: a comment with the date, then one line a property, in the
/// order given.
#[must_use]
pub fn write(properties: &[(&str, String)], now: SystemTime) -> Vec<u8> {
    let mut out = format!("#{}\n", java_date(now));
    for (key, value) in properties {
        escape(&mut out, key, true);
        out.push('=');
        escape(&mut out, value, false);
        out.push('\n');
    }
    out.into_bytes()
}

fn escape(out: &mut String, text: &str, key: bool) {
    for (at, c) in text.chars().enumerate() {
        match c {
            ' ' if key || at == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x0c' => out.push_str("\\f"),
            '=' | ':' | '#' | '!' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04X}").expect("writing to a String cannot fail");
                }
            }
        }
    }
}

/// `Sat Nov 21 08:49:27 UTC 2026`, as `java.util.Date.toString()`.
fn java_date(now: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let (days, in_day) = (seconds / 86_400, seconds % 86_400);
    let weekday = DAYS[usize::try_from(days % 7).expect("below 7")];
    let (year, month, day) = civil(days);
    let month = MONTHS[usize::try_from(month - 1).expect("below 12")];
    let (h, m, s) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!("{weekday} {month} {day:02} {h:02}:{m:02}:{s:02} UTC {year}")
}

/// Year, month and day of a day since 1970 (Gregorian calendar, years of 400-year eras that begin
/// in March).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn what_java_writes_is_read() {
        let text = b"#Wed Jul 15 10:00:00 UTC 2026\n! note\n\nclusterID=CID-1\\:2\n\
            \x20 key \\= x : v\\u00e9 \\\n   more\nempty\nlayoutVersion=-57\r\n";
        let p = parse(text);
        assert_eq!(p["clusterID"], "CID-1:2");
        assert_eq!(p["key"], "\\= x : v".replace('\\', "") + "\u{e9} more");
        assert_eq!(p["empty"], "");
        assert_eq!(p["layoutVersion"], "-57");
        assert_eq!(p.len(), 4);
    }

    #[test]
    fn dates_look_like_javas() {
        let at = |s| java_date(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(at(951_782_399), "Mon Feb 28 23:59:59 UTC 2000");
        assert_eq!(at(951_782_400), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(at(1_795_250_967), "Sat Nov 21 08:49:27 UTC 2026");
    }

    #[test]
    fn a_file_begins_with_the_date() {
        let out = write(&[("cTime", "0".to_owned())], SystemTime::UNIX_EPOCH);
        assert_eq!(out, b"#Thu Jan 01 00:00:00 UTC 1970\ncTime=0\n");
    }

    proptest! {
        #[test]
        fn what_is_written_comes_back(key in "\\PC{1,12}", value in any::<String>()) {
            let out = write(&[(&key, value.clone())], SystemTime::UNIX_EPOCH);
            let back = parse(&out);
            prop_assert_eq!(back.get(&key), Some(&value));
            prop_assert_eq!(back.len(), 1);
        }

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
