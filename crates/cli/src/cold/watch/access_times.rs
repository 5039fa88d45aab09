//! Whether access times tell the watch what is read. Where they do not, all that is read looks
//! cold, and no user is there to read a warning.

use std::time::Duration;

use super::super::age::{ColdBy, PRECISION_KEY, Precision};
use super::super::scanned_file::FileSums;

/// Files from which on some would have been read after their last change. In a few there may be
/// none: then a warning says so.
const FILES_MIN: u64 = 100;

/// Why they cannot tell whether a file was used within `age`, as far as the configuration says.
pub fn too_coarse(precision: &Precision, by: ColdBy, age: Duration) -> Option<String> {
    match precision {
        Precision::Kept(ms) if by == ColdBy::Access && u128::from(*ms) >= age.as_millis() => {
            Some(format!(
                "access times are exact to {} s only ({PRECISION_KEY}), and --older-than is no \
                 longer, so files that are read look cold",
                ms / 1000
            ))
        }
        _ => None,
    }
}

/// Why they seem not to be kept, when no file was ever read after its last change.
pub fn seem_off(total: &FileSums, by: ColdBy) -> Option<String> {
    let tells = by == ColdBy::Access && total.files >= FILES_MIN && total.cold_files > 0;
    tells.then(|| {
        format!(
            "no file of {} was read after its last change: access times seem to be switched off, \
             so files that are read look cold",
            total.files
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_tell_nothing_are_refused() {
        let hour = Duration::from_secs(3600);
        let coarse = |ms, by| too_coarse(&Precision::Kept(ms), by, hour).is_some();
        assert!(coarse(3_600_000, ColdBy::Access) && !coarse(3_599_999, ColdBy::Access));
        assert!(!coarse(3_600_000, ColdBy::Modification));
        assert_eq!(too_coarse(&Precision::Unknown, ColdBy::Access, hour), None);
        let off = |files, cold_files, by| {
            let total = FileSums {
                files,
                cold_files,
                ..FileSums::default()
            };
            seem_off(&total, by).is_some()
        };
        assert!(off(100, 1, ColdBy::Access));
        assert!(!off(99, 1, ColdBy::Access) && !off(100, 0, ColdBy::Access));
        assert!(!off(100, 1, ColdBy::Modification));
    }
}
