//! Rounds that do not count: a JVM compiles while it works, and what it does then takes longer.

use hayloft_testkit::error::Result;
use hayloft_testkit::machine;

/// Rounds after which it is given up.
pub(crate) const ROUNDS_MOST: usize = 8;

/// Repeats `round`, counted from 0, until two in a row give about the same (5 %), at most `most`
/// times, usually [`ROUNDS_MOST`]; whether they did. `round` gives its processor seconds: where
/// disks are the limit, a rate does not change while a JVM compiles.
///
/// # Errors
/// The first of `round`.
pub(crate) fn up(most: usize, mut round: impl FnMut(usize) -> Result<f64>) -> Result<bool> {
    let mut paces = Vec::new();
    while paces.len() < most && !machine::is_warm(&paces) {
        paces.push(round(paces.len())?);
    }
    Ok(machine::is_warm(&paces))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_two_rounds_alike_or_after_eight() {
        let count = |paces: &[f64]| {
            let mut rounds = 0;
            let warm = up(ROUNDS_MOST, |number| {
                rounds += 1;
                Ok(paces[number])
            });
            (warm.expect("no round fails"), rounds)
        };
        assert_eq!(count(&[9.0, 5.0, 4.9, 1.0]), (true, 3));
        let falling = [128.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 1.0];
        assert_eq!(count(&falling), (false, ROUNDS_MOST));
    }
}
