//! Block pools that come and go.

pub mod add_remove;
pub mod duplicates;
pub mod join;
pub mod version_again;
