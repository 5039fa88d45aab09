//! How a file of configuration is read: only if it is a file, and no more of it than a limit.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The bytes of a file, of at most `most`.
///
/// # Errors
/// When it cannot be read, is larger, or is no file: the opening of a pipe would wait for a writer.
pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}
