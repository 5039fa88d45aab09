//! Sizes on the command line and in what it prints: `64MiB`, `20GiB`.

const UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("", 1),
];

/// Parses a whole number with one of the units `KiB`, `MiB`, `GiB`, `TiB` (also `k`, `m`, `g`, `t`,
/// as in Hadoop's files), or without one: bytes.
///
/// # Errors
/// What is accepted, in words.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || "must be a size such as 64MiB or 20GiB".to_owned();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].trim().to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| {
        let name = name.to_ascii_lowercase();
        name == unit || name.strip_suffix("ib").is_some_and(|short| short == unit)
    });
    let (_, factor) = factor.ok_or_else(wrong)?;
    number
        .checked_mul(*factor)
        .ok_or_else(|| "is too large".into())
}

/// The same the other way: whole units where the number is one, else one decimal.
pub fn show(bytes: u64) -> String {
    let (name, factor) = UNITS
        .iter()
        .find(|(_, factor)| bytes >= *factor)
        .copied()
        .unwrap_or(("", 1));
    if name.is_empty() {
        return format!("{bytes} bytes");
    }
    if bytes.is_multiple_of(factor) {
        return format!("{} {name}", bytes / factor);
    }
    let tenths = u128::from(bytes) * 10 / u128::from(factor);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("20GiB", 20 << 30),
            ("4k", 4096),
            ("1t", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "MiB", "64MB", "-1", "1.5GiB", "99999999999TiB", "1e3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show(32 << 20), "32 MiB");
        assert_eq!(show(3 << 19), "1.5 MiB");
        assert_eq!(show(100), "100 bytes");
    }
}
