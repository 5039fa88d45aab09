//! Which sources there are, one file each.

mod azure;
mod ec2;
mod file;
mod gcp;
mod hypervisor;
mod kubernetes;

use crate::source::{SourceSettings, TopologySource};

use self::azure::Azure;
use self::ec2::Ec2;
use self::file::PlaceFile;
use self::gcp::Gcp;
use self::hypervisor::Hypervisor;
use self::kubernetes::Kubernetes;

/// Where all three clouds have their metadata server, on the link itself.
const METADATA: &str = "http://169.254.169.254";
/// The names that [`sources_by_name`] takes, besides `file:PATH`.
pub const SOURCE_NAMES: [&str; 6] = ["auto", "ec2", "gcp", "azure", "kubernetes", "hypervisor"];

/// The sources of a name: all for `auto`, one for each other.
///
/// # Errors
/// Says which names there are.
pub fn sources_by_name(
    name: &str,
    settings: &SourceSettings,
) -> Result<Vec<Box<dyn TopologySource>>, String> {
    let metadata = match &settings.metadata {
        Some(given) => given.clone(),
        None => METADATA.parse()?,
    };
    if let Some(path) = name.strip_prefix("file:") {
        return Ok(vec![Box::new(PlaceFile::new(path, &settings.keys))]);
    }
    let one = |name: &str| -> Option<Box<dyn TopologySource>> {
        Some(match name {
            "ec2" => Box::new(Ec2::new(&metadata, settings.ec2_endpoint.as_ref())),
            "gcp" => Box::new(Gcp::new(&metadata)),
            "azure" => Box::new(Azure::new(&metadata)),
            "kubernetes" => Box::new(Kubernetes::new(settings)),
            "hypervisor" => Box::new(Hypervisor::new(settings.sys.as_deref())),
            _ => return None,
        })
    };
    if name == "auto" {
        // A label that the operator named comes before what a cloud says of itself.
        let first = settings.kubernetes_label.is_some();
        let mut names: Vec<&str> = SOURCE_NAMES[1..].to_vec();
        names.sort_by_key(|name| !(first && *name == "kubernetes"));
        return Ok(names.into_iter().filter_map(one).collect());
    }
    let names = SOURCE_NAMES.join(", ");
    let source = one(name).ok_or(format!("no source {name:?}: there are {names}, file:PATH"))?;
    Ok(vec![source])
}
