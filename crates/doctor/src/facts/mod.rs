//! What is known of a host before it is judged. Nothing here says whether something is well.

pub mod disk;
pub mod host;
pub mod network;
pub mod ports;
pub mod trial;
pub mod volume;

use std::path::PathBuf;

use crate::seen::Looked;
use crate::subject::Subject;
use host::HostFacts;
use network::NetworkFacts;
use trial::TrialFacts;
use volume::VolumeFacts;

/// A data directory, as far as its disk answers.
#[derive(Clone, Debug)]
pub struct VolumeSeen {
    /// Its path.
    pub dir: PathBuf,
    /// What is there.
    pub facts: Looked<VolumeFacts>,
    /// What a write trial showed; nothing when none was wanted.
    pub trial: Option<Looked<TrialFacts>>,
}

/// Everything that was looked at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What the configuration says.
    pub subject: Subject,
    /// The data directories, in the order of the subject's.
    pub volumes: Vec<VolumeSeen>,
    /// The host; nothing when no check asks.
    pub host: HostFacts,
    /// The network; nothing when no check asks.
    pub network: Option<NetworkFacts>,
}

impl Facts {
    /// The directories that could be looked at.
    pub fn seen(&self) -> impl Iterator<Item = &VolumeFacts> {
        self.volumes
            .iter()
            .filter_map(|volume| volume.facts.as_ref().ok())
    }
}
