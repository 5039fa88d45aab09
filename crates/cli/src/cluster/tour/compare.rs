//! Whether what came back is what went in, byte by byte.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crc_fast::{CrcAlgorithm, Digest};

use super::shell::size_of;
use super::source::walk;
use crate::cluster::state_directory::{Copied, CopiedFile};
use crate::error::CliError;

const BUFFER_BYTES: usize = 1 << 20;

/// Each file must have the bytes of the original, or, in later runs, their length and checksum.
pub(super) fn compare(
    copied: &Copied,
    local: &Path,
    original: Option<&Path>,
) -> Result<(), CliError> {
    let wrong = |what: &str, file: &CopiedFile| {
        let place = format!("{}/{}", copied.target, file.path);
        CliError::new(
            what,
            place,
            "keep the state directory and report this: it must not happen",
        )
        .finding()
    };
    let mut found = Vec::new();
    if local.is_dir() {
        walk(local, "", 0, &mut found)?;
    } else {
        found.push((String::new(), size_of(local)));
    }
    if found.len() != copied.files.len() {
        let what = format!(
            "{} files came back, {} went in",
            found.len(),
            copied.files.len()
        );
        return Err(CliError::new(
            what,
            copied.target.clone(),
            "keep the state directory and report this",
        )
        .finding());
    }
    for file in &copied.files {
        let path = local.join(&file.path);
        if !path.is_file() {
            return Err(wrong("a file did not come back", file));
        }
        if describe(&path, file.path.clone())? != *file {
            return Err(wrong("a file came back changed", file));
        }
        if let Some(original) = original
            && !same_bytes(&original.join(&file.path), &path)?
        {
            return Err(wrong("a file came back with other bytes", file));
        }
    }
    Ok(())
}

pub(super) fn describe(path: &Path, name: String) -> Result<CopiedFile, CliError> {
    let mut file = File::open(path).map_err(CliError::file("read", path))?;
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0_u64;
    loop {
        let count = file
            .read(&mut buffer)
            .map_err(CliError::file("read", path))?;
        if count == 0 {
            break;
        }
        digest.update(&buffer[..count]);
        bytes += count as u64;
    }
    Ok(CopiedFile {
        path: name,
        bytes,
        crc64: digest.finalize(),
    })
}

fn same_bytes(left: &Path, right: &Path) -> Result<bool, CliError> {
    let open = |path: &Path| File::open(path).map_err(CliError::file("read", path));
    let (mut a, mut b) = (open(left)?, open(right)?);
    let (mut from_a, mut from_b) = (
        Vec::with_capacity(BUFFER_BYTES),
        Vec::with_capacity(BUFFER_BYTES),
    );
    loop {
        from_a.clear();
        from_b.clear();
        a.by_ref()
            .take(BUFFER_BYTES as u64)
            .read_to_end(&mut from_a)
            .map_err(CliError::file("read", left))?;
        b.by_ref()
            .take(BUFFER_BYTES as u64)
            .read_to_end(&mut from_b)
            .map_err(CliError::file("read", right))?;
        if from_a != from_b {
            return Ok(false);
        }
        if from_a.is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_sees_every_kind_of_difference() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (original, copy) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&original, &copy] {
            std::fs::create_dir_all(root.join("sub")).expect("created");
            std::fs::write(root.join("sub/x"), b"some bytes").expect("written");
            std::fs::write(root.join("y"), b"").expect("written");
        }
        let files = ["sub/x", "y"]
            .map(|name| describe(&original.join(name), name.into()).expect("readable"));
        let copied = Copied {
            source: original.clone(),
            target: "/t".into(),
            files: files.to_vec(),
        };
        compare(&copied, &copy, Some(&original)).expect("equal");
        compare(&copied, &copy, None).expect("equal");
        std::fs::write(copy.join("sub/x"), b"some bytez").expect("written");
        assert!(
            compare(&copied, &copy, None)
                .unwrap_err()
                .to_string()
                .contains("/t/sub/x")
        );
        std::fs::write(copy.join("sub/x"), b"some bytes").expect("written");
        std::fs::write(copy.join("z"), b"more").expect("written");
        assert!(
            compare(&copied, &copy, None)
                .unwrap_err()
                .to_string()
                .contains("3 files")
        );
        std::fs::remove_file(copy.join("z")).expect("removed");
        std::fs::rename(copy.join("y"), copy.join("yy")).expect("renamed");
        assert!(compare(&copied, &copy, None).is_err());
    }
}
