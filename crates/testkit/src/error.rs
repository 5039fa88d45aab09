//! Errors are the launcher's; a test has its own way to make one.

pub use hayloft_cluster::error::{ClusterError as TestkitError, Result};

/// Checks an expectation of a case.
///
/// # Errors
/// [`TestkitError::Expectation`] with `message` when it does not hold.
pub fn expect(holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(TestkitError::Expectation(message()))
    }
}
