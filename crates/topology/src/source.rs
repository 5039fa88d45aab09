//! The trait of sources, and what they share.

use std::fmt;
use std::path::PathBuf;

use crate::http::{BaseUrl, HttpAsker};
use crate::keys::NodeKeys;
use crate::name::SafeName;
use crate::place::Whereabouts;

/// What may know where this machine is.
pub trait TopologySource: Send {
    /// Its name, as the command line has it.
    fn name(&self) -> &'static str;

    /// Asks once. Each request takes a second at most.
    ///
    /// # Errors
    /// Says what was asked and why there is no answer. Half an answer is none: a rack that changes
    /// with a server's mood would have replicas moved.
    fn ask(&self, http: &HttpAsker) -> Result<Whereabouts, SourceSilence>;
}

/// Why a source gave no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSilence(pub String);

impl fmt::Display for SourceSilence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for SourceSilence {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for SourceSilence {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// What an operator says about the sources.
#[derive(Clone, Debug, Default)]
pub struct SourceSettings {
    /// Another metadata server than the clouds' own address.
    pub metadata: Option<BaseUrl>,
    /// Another server of EC2's API than the region's.
    pub ec2_endpoint: Option<BaseUrl>,
    /// The Kubernetes node that this pod runs on.
    pub kubernetes_node: Option<String>,
    /// The label whose value is the rack.
    pub kubernetes_label: Option<String>,
    /// A file of labels from the downward API, instead of the API server.
    pub kubernetes_labels_file: Option<PathBuf>,
    /// The API server, where the pod's environment does not say it.
    pub kubernetes_api: Option<BaseUrl>,
    /// The directory with token and `ca.crt` [default: the service account's].
    pub kubernetes_account: Option<PathBuf>,
    /// Another `/sys`.
    pub sys: Option<PathBuf>,
    /// The names of this machine in a file.
    pub keys: NodeKeys,
}

/// A checked name, with what it names in the error.
pub(crate) fn named(what: &str, text: &str) -> Result<SafeName, SourceSilence> {
    let name = text.trim().parse();
    name.map_err(|error: String| SourceSilence(format!("{what}: {error}")))
}

/// A checked name, or none for an empty text.
pub(crate) fn maybe_named(what: &str, text: &str) -> Result<Option<SafeName>, SourceSilence> {
    match text.trim() {
        "" => Ok(None),
        text => named(what, text).map(Some),
    }
}
