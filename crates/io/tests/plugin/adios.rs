//! The engine `adios` for tests, where `scripts/fetch-adios` has put the library.

use std::fs;
use std::path::{Path, PathBuf};

use super::compile;

/// The C library of ADIOS2.
///
/// # Errors
/// Why there is none, in words.
pub fn library() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/adios");
    let dir = std::env::var_os("HAYLOFT_ADIOS_DIR").map_or(target, PathBuf::from);
    let library = dir.join("adios2/libadios2_c.so");
    library
        .canonicalize()
        .map_err(|_| "ADIOS2 is not here: run scripts/fetch-adios".to_owned())
}

/// Compiles the plug-in to `dir`, and gives the engine's name; its option `size=` is missing.
///
/// # Errors
/// As [`library`].
pub fn engine(dir: &Path) -> Result<String, String> {
    let (library, so) = (library()?, dir.join("adios.so"));
    let libraries = ["-ldl", "-lpthread"].map(String::from);
    compile::plugin_with("../../plugins/adios.c", &so, &[], &libraries);
    let (so, library) = (so.display(), library.display());
    Ok(format!("plugin:{so} library={library}"))
}

/// Objects that were seen in a volume, and those that were half made.
#[allow(dead_code, reason = "for tests that kill")]
#[derive(Debug, Default)]
pub struct Seen {
    pub whole: u64,
    pub half_made: u64,
}

#[allow(dead_code, reason = "for tests that kill")]
impl Seen {
    /// Looks around in the volume in `root`.
    pub fn look(&mut self, root: &Path) {
        let list = fs::read_dir(root.join("hayloft.adios"));
        for entry in list.into_iter().flatten().map_while(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            self.whole += u64::from(name.ends_with(".bp"));
            self.half_made += u64::from(name.ends_with(".part") || name.ends_with(".old"));
        }
    }
}
