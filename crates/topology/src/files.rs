//! Files of a known size.

use std::io::Read as _;
use std::path::Path;

/// Bytes of a file of hosts, as the NameNode's plug-in has it: 4,000 hosts take about 200 KiB.
pub(crate) const FILE_LIMIT: u64 = 16 << 20;
/// Bytes of a file in `/sys` or of a pod: labels and tokens have a few KiB.
const SMALL: u64 = 256 << 10;

/// The text of a small file, without blanks around it.
///
/// # Errors
/// Says the path and what went wrong.
pub(crate) fn small_file(path: &Path) -> Result<String, String> {
    read_file(path, SMALL).map(|text| text.trim().to_owned())
}

/// The text of a file of at most so many bytes.
///
/// # Errors
/// Says the path and what went wrong.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<String, String> {
    let failed = |problem: String| format!("{}: {problem}", path.display());
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(limit + 1).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > limit {
        return Err(failed(format!("has more than {limit} bytes")));
    }
    Ok(text)
}
