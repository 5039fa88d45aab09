//! Amazon EC2: instance metadata, and the API's instance topology.
//!
//! Written from these pages of AWS's documentation, and recorded from no real machine:
//! - "Use the Instance Metadata Service to access instance metadata": version 2, a token by `PUT`;
//! - "Instance metadata categories": `placement/availability-zone`, `group-name`,
//!   `partition-number`, `host-id`, `region`, `iam/security-credentials`, `services/domain`;
//! - "Placement strategies for your placement groups": each partition has its own set of racks,
//!   with their own network and power;
//! - "Amazon EC2 topology" and `DescribeInstanceTopology`: network nodes from the top layer down,
//!   the last of them next to the instance.
//!
//! The rack is the partition, else the dedicated host, else the network node next to the instance.
//! The API is asked only for the last; without permission the zone is all that is known.

mod instance_topology;
mod sign;

use hyper::Method;
use serde::Deserialize;

use crate::http::{BaseUrl, HttpAsker, Question};
use crate::name::SafeName;
use crate::place::Whereabouts;
use crate::source::{SourceSilence, TopologySource, maybe_named, named};

use self::sign::Credentials;

const TOKEN_PATH: &str = "/latest/api/token";
const TTL: (&str, &str) = ("x-aws-ec2-metadata-token-ttl-seconds", "60");
/// Characters of a token: documented ones have 56.
const TOKEN_CHARS: usize = 1024;

/// Asks the instance metadata service, and the API for what that does not know.
pub(crate) struct Ec2 {
    metadata: BaseUrl,
    endpoint: Option<BaseUrl>,
}

/// Questions with a token.
struct Session<'a> {
    http: &'a HttpAsker,
    at: &'a BaseUrl,
    token: String,
}

/// The answer about a role: `iam/security-credentials/ROLE`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleAnswer {
    code: String,
    access_key_id: String,
    secret_access_key: String,
    token: String,
}

impl Ec2 {
    pub(crate) fn new(metadata: &BaseUrl, endpoint: Option<&BaseUrl>) -> Self {
        Self {
            metadata: metadata.clone(),
            endpoint: endpoint.cloned(),
        }
    }

    fn session<'a>(&'a self, http: &'a HttpAsker) -> Result<Session<'a>, SourceSilence> {
        let asked = http.ask(&Question {
            method: Method::PUT,
            at: &self.metadata,
            path: TOKEN_PATH,
            headers: &[TTL],
            roots: None,
        });
        let reply = asked.map_err(|problem| {
            format!("{problem} (in a container on EC2, the instance's hop limit must be 2)")
        })?;
        if reply.status != 200 {
            return Err(format!("{TOKEN_PATH}: no token, {}", reply.refusal()).into());
        }
        let token = reply.body.trim();
        let fits = !token.is_empty() && token.len() <= TOKEN_CHARS;
        if !fits || !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err(format!("{TOKEN_PATH}: what came is no token").into());
        }
        Ok(Session {
            http,
            at: &self.metadata,
            token: token.to_owned(),
        })
    }

    /// The network node next to the instance, or why it is not known.
    fn network_node(&self, session: &Session<'_>) -> Result<SafeName, String> {
        let instance = session.required("instance-id")?;
        let instance = named("instance-id", &instance).map_err(|error| error.0)?;
        let region = session.required("placement/region")?;
        let region = named("placement/region", &region).map_err(|error| error.0)?;
        let credentials = session.credentials()?;
        let endpoint = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => {
                let domain = session.get("services/domain")?;
                let domain = domain.unwrap_or_else(|| "amazonaws.com".to_owned());
                let domain = named("services/domain", &domain).map_err(|error| error.0)?;
                format!("https://ec2.{region}.{domain}").parse()?
            }
        };
        let answer =
            instance_topology::ask(session.http, &endpoint, &region, &instance, &credentials)?;
        named("network node", &answer).map_err(|error| error.0)
    }
}

impl Session<'_> {
    /// A category; none where the instance has none.
    fn get(&self, category: &str) -> Result<Option<String>, String> {
        let path = format!("/latest/meta-data/{category}");
        let reply = self.http.ask(&Question {
            method: Method::GET,
            at: self.at,
            path: &path,
            headers: &[("x-aws-ec2-metadata-token", &self.token)],
            roots: None,
        })?;
        let found = reply.found();
        found.map_err(|problem| format!("{path}: {problem}"))
    }

    fn required(&self, category: &str) -> Result<String, String> {
        self.get(category)?.ok_or(format!("{category}: not there"))
    }

    fn name(&self, category: &str) -> Result<Option<SafeName>, SourceSilence> {
        let text = self.get(category)?.unwrap_or_default();
        maybe_named(category, &text)
    }

    fn credentials(&self) -> Result<Credentials, String> {
        let roles = self.get("iam/security-credentials/")?;
        let role = roles.and_then(|roles| roles.lines().next().map(str::to_owned));
        let role = role.ok_or("the instance has no role to ask the API with")?;
        let role = role.trim();
        let safe = |c: char| c.is_ascii_alphanumeric() || "+=,.@-_".contains(c);
        if role.is_empty() || !role.chars().all(safe) {
            return Err("iam/security-credentials: what came is no role's name".to_owned());
        }
        let text = self.required(&format!("iam/security-credentials/{role}"))?;
        let answer: RoleAnswer = serde_json::from_str(&text)
            .map_err(|_| format!("iam/security-credentials/{role}: not what is documented"))?;
        if answer.code != "Success" {
            return Err(format!(
                "iam/security-credentials/{role}: {:?}",
                answer.code
            ));
        }
        Ok(Credentials {
            key_id: answer.access_key_id,
            secret: answer.secret_access_key,
            token: answer.token,
        })
    }
}

impl TopologySource for Ec2 {
    fn name(&self) -> &'static str {
        "ec2"
    }

    fn ask(&self, http: &HttpAsker) -> Result<Whereabouts, SourceSilence> {
        let session = self.session(http)?;
        let zone = session.required("placement/availability-zone")?;
        let zone = named("placement/availability-zone", &zone)?;
        let host = session.name("placement/host-id")?;
        let partition = session.name("placement/partition-number")?;
        let mut how = vec![format!("placement/availability-zone says {zone}")];
        if let Some(host) = &host {
            how.push(format!("placement/host-id says {host}, a dedicated host"));
        }
        if let Some(number) = partition {
            let group = session.required("placement/group-name")?;
            let unit = named(
                "placement group and partition",
                &format!("{group}-p{number}"),
            )?;
            how.push(format!(
                "partition {number} of placement group {group} has its own racks"
            ));
            return Ok(Whereabouts::within(&zone, Some(&unit), host, how));
        }
        if host.is_some() {
            return Ok(Whereabouts::within(&zone, None, host, how));
        }
        let unit = match self.network_node(&session) {
            Ok(node) => {
                how.push(format!(
                    "DescribeInstanceTopology says {node} is next to it"
                ));
                Some(node)
            }
            Err(problem) => {
                how.push(format!("no network node: {problem}"));
                None
            }
        };
        Ok(Whereabouts::within(&zone, unit.as_ref(), None, how))
    }
}
