//! Azure: the instance metadata service's fault domain, zone, scale set and dedicated host.
//!
//! Written from "Azure Instance Metadata Service" (learn.microsoft.com, azure/virtual-machines/
//! instance-metadata-service): the header `Metadata: true`, no proxy, and the table of instance
//! data (`platformFaultDomain`, `platformUpdateDomain`, `zone`, `vmScaleSetName`, `host.id`).
//! Recorded from no real machine.
//!
//! Machines of a fault domain share power and a switch. Its number counts within a scale set or
//! availability set; equal numbers of two sets are taken for one rack here, which costs room to
//! choose from and never a replica.

use hyper::Method;
use serde::Deserialize;

use crate::http::{BaseUrl, HttpAsker, Question};
use crate::place::Whereabouts;
use crate::source::{SourceSilence, TopologySource, maybe_named, named};

/// The first version that has `host`.
const PATH: &str = "/metadata/instance/compute?api-version=2021-12-13&format=json";

/// Asks Azure's metadata service.
pub(crate) struct Azure {
    metadata: BaseUrl,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compute {
    location: String,
    platform_fault_domain: String,
    #[serde(default)]
    platform_update_domain: String,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    vm_scale_set_name: String,
    #[serde(default)]
    host: DedicatedHost,
}

#[derive(Debug, Default, Deserialize)]
struct DedicatedHost {
    #[serde(default)]
    id: String,
}

impl Azure {
    pub(crate) fn new(metadata: &BaseUrl) -> Self {
        Self {
            metadata: metadata.clone(),
        }
    }
}

impl TopologySource for Azure {
    fn name(&self) -> &'static str {
        "azure"
    }

    fn ask(&self, http: &HttpAsker) -> Result<Whereabouts, SourceSilence> {
        let reply = http.ask(&Question {
            method: Method::GET,
            at: &self.metadata,
            path: PATH,
            headers: &[("metadata", "true")],
            roots: None,
        })?;
        let said = |problem: String| SourceSilence(format!("/metadata/instance: {problem}"));
        let text = reply.found().map_err(said)?;
        let text = text.ok_or_else(|| said("answered 404".to_owned()))?;
        let compute: Compute =
            serde_json::from_str(&text).map_err(|error| said(error.to_string()))?;
        compute.place()
    }
}

impl Compute {
    fn place(&self) -> Result<Whereabouts, SourceSilence> {
        let zone = match self.zone.as_str() {
            "" => self.location.clone(),
            zone => format!("{}-{zone}", self.location),
        };
        let zone = named("location and zone", &zone)?;
        let domain = match self.platform_fault_domain.as_str() {
            "" => None,
            number => Some(named("platformFaultDomain", &format!("fd{number}"))?),
        };
        // The resource's id ends with /hostGroups/GROUP/hosts/NAME.
        let host = self.host.id.rsplit('/').next().unwrap_or_default();
        let host = maybe_named("host.id", host)?;
        let or_none = |text: &str| match text {
            "" => "none".to_owned(),
            text => text.chars().take(80).collect(),
        };
        let how = vec![format!(
            "instance metadata says zone {zone}, fault domain {}, update domain {}, scale set {}, \
             dedicated host {}",
            or_none(&self.platform_fault_domain),
            or_none(&self.platform_update_domain),
            or_none(&self.vm_scale_set_name),
            host.as_ref().map_or("none", |host| host.as_str()),
        )];
        Ok(Whereabouts::within(&zone, domain.as_ref(), host, how))
    }
}
