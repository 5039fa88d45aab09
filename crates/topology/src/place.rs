//! What a source found.

use serde::Serialize;

use crate::name::{RackPath, SafeName};

/// Where this machine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Whereabouts {
    /// The machine that this one runs on, where that is known: what fails as one.
    pub host: Option<SafeName>,
    /// The rack, as NameNodes will know it.
    pub rack: RackPath,
    /// What was asked and what it said, a sentence each.
    pub how: Vec<String>,
}

impl Whereabouts {
    /// A place in a zone: its rack is `unit`, else the host, else only the zone is known.
    pub(crate) fn within(
        zone: &SafeName,
        unit: Option<&SafeName>,
        host: Option<SafeName>,
        how: Vec<String>,
    ) -> Self {
        Self {
            rack: RackPath::within(zone, unit.or(host.as_ref())),
            host,
            how,
        }
    }

    /// How much it says: a host and a rack are more than a zone.
    pub(crate) fn worth(&self) -> u8 {
        u8::from(self.host.is_some()) + u8::from(self.rack.is_exact())
    }
}

/// What the files say of this node already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPlace {
    /// The source that found it, if the file says so.
    pub source: Option<String>,
    /// Its rack.
    pub rack: Option<RackPath>,
    /// Its host.
    pub host: Option<SafeName>,
}
