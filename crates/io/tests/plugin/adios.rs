//! The engine `adios` for tests, where `scripts/fetch-adios` has put the library.

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
