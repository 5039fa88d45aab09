//! Pictures as SVG files.

use std::path::Path;

use crate::error::CliError;

/// Size of a picture, pixels.
pub const SVG_SIZE: (u32, u32) = (800, 480);

/// What to tell of a picture (`what`) that was drawn to `path`, or was not.
///
/// # Errors
/// It was not.
pub fn drawn(
    what: &str,
    path: &Path,
    result: Result<(), Box<dyn std::error::Error>>,
) -> Result<(), CliError> {
    result.map_err(|error| {
        CliError::new(
            format!("cannot draw the {what}: {error}"),
            path.display().to_string(),
            "check that its directory exists and is yours to write",
        )
    })
}
