//! Kubernetes: labels of the node that this pod runs on.
//!
//! Written from these pages of the Kubernetes documentation, and recorded from no real cluster:
//! - "Accessing the Kubernetes API from a Pod": the service account's token and `ca.crt`,
//!   `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT_HTTPS`;
//! - "Well-Known Labels, Annotations and Taints": `topology.kubernetes.io/zone`;
//! - "Downward API": `spec.nodeName` as an environment variable, labels as a file of lines
//!   `key="value"`; newer clusters copy the node's zone to the labels of its pods;
//! - "Kubernetes API Concepts": `PartialObjectMetadata`, so that only labels come.
//!
//! The host is the node: its pods end with it. It may be a virtual machine itself; then its cloud
//! knows more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::Method;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use crate::files::small_file;
use crate::http::{BaseUrl, HttpAsker, Question};
use crate::name::SafeName;
use crate::place::Whereabouts;
use crate::source::{SourceSettings, SourceSilence, TopologySource, named};

const ZONE: &str = "topology.kubernetes.io/zone";
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const LABELS_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Asks the API server, or reads a file of the downward API.
pub(crate) struct Kubernetes {
    node: Option<String>,
    label: Option<String>,
    labels_file: Option<PathBuf>,
    api: Option<BaseUrl>,
    account: PathBuf,
}

type Labels = BTreeMap<String, String>;

#[derive(Deserialize)]
struct NodeObject {
    metadata: NodeMetadata,
}

#[derive(Deserialize)]
struct NodeMetadata {
    name: String,
    #[serde(default)]
    labels: Labels,
}

impl Kubernetes {
    pub(crate) fn new(settings: &SourceSettings) -> Self {
        let account = settings.kubernetes_account.clone();
        Self {
            node: settings.kubernetes_node.clone(),
            label: settings.kubernetes_label.clone(),
            labels_file: settings.kubernetes_labels_file.clone(),
            api: settings.kubernetes_api.clone(),
            account: account.unwrap_or_else(|| PathBuf::from(ACCOUNT)),
        }
    }

    /// The server that the pod's environment names.
    fn api(&self) -> Result<BaseUrl, SourceSilence> {
        if let Some(api) = &self.api {
            return Ok(api.clone());
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST")
            .ok_or("KUBERNETES_SERVICE_HOST is not set: this is no pod")?;
        let port = variable("KUBERNETES_SERVICE_PORT_HTTPS").unwrap_or_else(|| "443".to_owned());
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host,
        };
        Ok(format!("https://{host}:{port}").parse::<BaseUrl>()?)
    }

    fn server_and_node(&self) -> Result<(BaseUrl, SafeName), SourceSilence> {
        let api = self.api()?;
        let node = self.node.as_deref().ok_or(
            "the node's name is not known: give spec.nodeName as NODE_NAME or --kubernetes-node",
        )?;
        if !api.keeps_secrets() {
            return Err(format!("{api}: the token goes over https only").into());
        }
        Ok((api, named("node", node)?))
    }

    fn ask_server(&self, http: &HttpAsker) -> Result<(SafeName, Labels), SourceSilence> {
        let (api, node) = self.server_and_node()?;
        let token = small_file(&self.account.join("token"))?;
        let roots = trusted(&self.account.join("ca.crt"))?;
        let path = format!("/api/v1/nodes/{node}");
        let bearer = format!("Bearer {token}");
        let reply = http.ask(&Question {
            method: Method::GET,
            at: &api,
            path: &path,
            headers: &[("authorization", &bearer), ("accept", LABELS_ONLY)],
            roots: Some(roots),
        })?;
        let said = |problem: String| SourceSilence(format!("{path}: {problem}"));
        let text = match reply.status {
            401 | 403 => {
                let advice = "the service account needs `get` on nodes";
                return Err(said(format!("answered {}: {advice}", reply.status)));
            }
            _ => reply.found().map_err(said)?,
        };
        let text = text.ok_or_else(|| said("there is no such node".to_owned()))?;
        let object: NodeObject =
            serde_json::from_str(&text).map_err(|error| said(error.to_string()))?;
        if object.metadata.name != node.as_str() {
            return Err(said("the answer is about another node".to_owned()));
        }
        Ok((node, object.metadata.labels))
    }

    fn place(
        &self,
        host: Option<SafeName>,
        labels: &Labels,
        from: &str,
    ) -> Result<Whereabouts, SourceSilence> {
        let zone = labels.get(ZONE).filter(|zone| !zone.is_empty());
        let mut how = vec![match zone {
            Some(zone) => format!("{from} has {ZONE} {zone}"),
            None => format!("{from} has no label {ZONE}"),
        }];
        let zone = named(ZONE, zone.map_or("default", String::as_str))?;
        let unit = match &self.label {
            None => None,
            Some(label) => {
                let value = labels.get(label);
                let value = value.ok_or_else(|| format!("{from} has no label {label}"))?;
                how.push(format!("{from} has {label} {value}"));
                Some(named(label, value)?)
            }
        };
        if unit.is_none() && host.is_none() && !labels.contains_key(ZONE) {
            return Err(how.remove(0).into());
        }
        Ok(Whereabouts::within(&zone, unit.as_ref(), host, how))
    }
}

/// The certificates of a file.
fn trusted(path: &Path) -> Result<Arc<RootCertStore>, SourceSilence> {
    let text = small_file(path)?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes());
    roots.add_parsable_certificates(certificates.flatten());
    Ok(Arc::new(roots))
}

/// Lines `key="value"`; values of labels have nothing to escape.
fn labels_of(text: &str) -> Labels {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pair = |(key, value): (&str, &str)| {
        let value = value.trim().trim_matches('"');
        (key.trim().to_owned(), value.to_owned())
    };
    pairs.map(pair).collect()
}

impl TopologySource for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn ask(&self, http: &HttpAsker) -> Result<Whereabouts, SourceSilence> {
        if let Some(path) = &self.labels_file {
            let labels = labels_of(&small_file(path)?);
            let host = self.node.as_deref().map(|node| named("node", node));
            return self.place(host.transpose()?, &labels, &path.display().to_string());
        }
        let (node, labels) = self.ask_server(http)?;
        let from = format!("node {node}");
        self.place(Some(node), &labels, &from)
    }
}
