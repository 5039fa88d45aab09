//! Where a node is: its host and its rack, as the place where it runs tells them.
//!
//! | module | what it is |
//! |---|---|
//! | `name` | names and racks, checked before they become part of a path |
//! | `place` | what a source found |
//! | `files`, `keys` | files of a known size; what a node is called |
//! | `http` | one request within a second, without proxy and without redirects |
//! | `source` | the trait of sources |
//! | `sources` | which there are, one file each: EC2, GCP, Azure, Kubernetes, hypervisor, file |
//! | `panel` | sources asked side by side |
//! | `judge` | which answer counts, and whether it may replace what was known |
//! | `table`, `replaced_file` | the files that NameNodes read; what of one stays |
//! | `disks` | whether the disks of a machine are its own |
//!
//! Nothing here was recorded from a real cloud. Each source cites the documentation that it and
//! its tests were written from.

pub mod disks;
mod files;
mod http;
mod judge;
mod keys;
mod name;
mod panel;
mod place;
mod replaced_file;
mod source;
mod sources;
mod table;

pub use http::{BaseUrl, HttpAsker};
pub use judge::{PlaceVerdict, choose, judge};
pub use keys::NodeKeys;
pub use name::{RackPath, SafeName};
pub use panel::{SourcePanel, SourceSaid};
pub use place::{KnownPlace, Whereabouts};
pub use source::{SourceSettings, SourceSilence, TopologySource};
pub use sources::{SOURCE_NAMES, sources_by_name};
pub use table::{TableError, TopologyTable};
