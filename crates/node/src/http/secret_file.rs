//! Files with secrets: keystores, passwords, what signs cookies.

use std::fs::File;
use std::io::{Error, Read as _, Result};
use std::path::Path;

use zeroize::Zeroizing;

/// Bytes of one file, at most.
const BYTES_MAX: u64 = 1 << 20;

/// Every byte of a file. Blocking.
///
/// # Errors
/// It cannot be read, or is longer than 1 MiB.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Error::other("it is longer than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_secret_counts() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), b"secret\n").expect("written");
        assert_eq!(read(file.path()).expect("read").as_slice(), b"secret\n");
        std::fs::write(file.path(), vec![b'x'; (1 << 20) + 1]).expect("written");
        assert!(read(file.path()).is_err());
    }
}
