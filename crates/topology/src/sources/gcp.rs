//! Google Compute Engine: the metadata server's zone and physical host.
//!
//! Written from these pages of Google Cloud's documentation, and recorded from no real machine:
//! - "View and query VM metadata" (compute/docs/metadata/querying-metadata): the address, and the
//!   header `Metadata-Flavor: Google` of questions and answers;
//! - "View the topology of running instances" (compute/docs/instances/view-instance-topology):
//!   `physicalHostTopology` of cluster, block, sub-block and host, and for which machines it is
//!   there; also as the attributes `physical_host_topology` and `physical_host` of the instance.
//!
//! A sub-block is the hosts of one rack; instances with the same host share a machine.

use hyper::Method;
use serde::Deserialize;

use crate::http::{BaseUrl, HttpAsker, Question};
use crate::place::Whereabouts;
use crate::source::{SourceSilence, TopologySource, maybe_named, named};

const FLAVOR: (&str, &str) = ("metadata-flavor", "Google");

/// Asks the metadata server of Google Cloud.
pub(crate) struct Gcp {
    metadata: BaseUrl,
}

/// The attribute `physical_host_topology`; older machines have the three last as one path.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PhysicalHost {
    block: String,
    subblock: String,
    host: String,
}

impl Gcp {
    pub(crate) fn new(metadata: &BaseUrl) -> Self {
        Self {
            metadata: metadata.clone(),
        }
    }

    fn get(&self, http: &HttpAsker, path: &str) -> Result<Option<String>, SourceSilence> {
        let path = format!("/computeMetadata/v1/instance/{path}");
        let reply = http.ask(&Question {
            method: Method::GET,
            at: &self.metadata,
            path: &path,
            headers: &[FLAVOR],
            roots: None,
        })?;
        let flavor = reply.headers.get(FLAVOR.0);
        if flavor.is_none_or(|flavor| flavor != FLAVOR.1) {
            let problem = reply.refusal();
            let said = format!("{path}: {problem} without Metadata-Flavor, so it is not Google's");
            return Err(said.into());
        }
        let found = reply.found();
        found.map_err(|problem| SourceSilence(format!("{path}: {problem}")))
    }

    fn physical_host(&self, http: &HttpAsker) -> Result<Option<PhysicalHost>, SourceSilence> {
        if let Some(text) = self.get(http, "attributes/physical_host_topology")? {
            let host = serde_json::from_str(&text);
            return host.map(Some).map_err(|error| {
                SourceSilence(format!("attributes/physical_host_topology: {error}"))
            });
        }
        let Some(text) = self.get(http, "attributes/physical_host")? else {
            return Ok(None);
        };
        let parts: Vec<&str> = text.trim().trim_matches('/').split('/').collect();
        let [block, subblock, host] = parts[..] else {
            return Err("attributes/physical_host: not /block/subblock/host".into());
        };
        let [block, subblock, host] = [block, subblock, host].map(str::to_owned);
        Ok(Some(PhysicalHost {
            block,
            subblock,
            host,
        }))
    }
}

impl TopologySource for Gcp {
    fn name(&self) -> &'static str {
        "gcp"
    }

    fn ask(&self, http: &HttpAsker) -> Result<Whereabouts, SourceSilence> {
        let zone = self.get(http, "zone")?.ok_or("instance/zone: not there")?;
        let zone = named("instance/zone", zone.rsplit('/').next().unwrap_or_default())?;
        let mut how = vec![format!("instance/zone says {zone}")];
        let Some(physical) = self.physical_host(http)? else {
            how.push(
                "there is no physical host: it takes a compact placement policy or a machine \
                 type with topology"
                    .to_owned(),
            );
            return Ok(Whereabouts::within(&zone, None, None, how));
        };
        let block = maybe_named("block", &physical.block)?;
        let subblock = maybe_named("subblock", &physical.subblock)?;
        let host = maybe_named("host", &physical.host)?;
        let unit = subblock.or(block);
        if unit.is_none() && host.is_none() {
            return Err("the physical host has neither block nor host".into());
        }
        how.push("the instance's physical host says sub-block and host".to_owned());
        Ok(Whereabouts::within(&zone, unit.as_ref(), host, how))
    }
}
