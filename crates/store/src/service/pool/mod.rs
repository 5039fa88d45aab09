//! Block pools that come and go.

pub mod add_remove;
pub mod duplicates;
pub mod version_again;
pub mod volume_joins;
