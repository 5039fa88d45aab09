//! Cold files and where they go: `hayloft cold scan` in [`scan`] and [`ha`], `hayloft cold watch`
//! in [`watch`], and, in [`archive`], DISK and ARCHIVE volumes on one mount.

mod archive;
mod ha;
mod lab;
mod scan;
mod watch;

use hayloft_testkit::mounts::in_own_namespace;
use hayloft_testkit::{Suite, VolumeSpec};
use std::path::Path;
use std::process::ExitCode;

/// Block size of the clusters' clients, bytes.
const BLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    in_own_namespace();
    Suite::run("cold", |suite| {
        scan::cases(suite);
        watch::cases(suite);
        ha::cases(suite);
        archive::cases(suite);
        Ok(())
    })
}

/// Volumes of a node at these places.
fn volumes(places: &[(&'static str, &Path)]) -> Vec<VolumeSpec> {
    let volume = |(kind, path): &(&'static str, &Path)| VolumeSpec {
        storage_type: Some(kind),
        path: Some((*path).to_owned()),
    };
    places.iter().map(volume).collect()
}
