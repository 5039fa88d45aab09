//! Which NameNodes a node serves: name services, HA groups, addresses.

use super::address::HostPort;
use super::configuration::Configuration;
use super::error::ConfigError;
use super::key::Key;
use super::keys;

/// Port of a NameNode's RPC server when an address names none.
const NAMENODE_PORT: u16 = 8020;

/// One NameNode, or an HA group of them, that answers for a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameService {
    /// Its id in `dfs.nameservices`; `None` in a cluster that names none.
    pub id: Option<String>,
    /// Its NameNodes, at least one.
    pub namenodes: Vec<NameNodeAddr>,
}

/// Addresses of one NameNode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameNodeAddr {
    /// Its id in `dfs.ha.namenodes.<nameservice>`; `None` without HA.
    pub nn_id: Option<String>,
    /// Client RPC address; the service address when only that is set.
    pub rpc: HostPort,
    /// Address for nodes, if it has one of its own.
    pub service_rpc: Option<HostPort>,
    /// Address for lifelines, if it has one.
    pub lifeline: Option<HostPort>,
}

impl NameNodeAddr {
    /// The address that a node talks to: the service address where there is one.
    #[must_use]
    pub fn for_datanodes(&self) -> &HostPort {
        self.service_rpc.as_ref().unwrap_or(&self.rpc)
    }
}

/// The name services that this node serves.
///
/// # Errors
/// No NameNode configured, an internal name service that `dfs.nameservices` does not list, an HA
/// NameNode without address, an address that cannot be read.
pub fn namenodes(config: &Configuration) -> Result<Vec<NameService>, ConfigError> {
    let known = config.get(&keys::NAMESERVICES);
    let internal = config.get(&keys::INTERNAL_NAMESERVICES);
    if let Some(unknown) = internal.iter().find(|id| !known.contains(id)) {
        let what = format!(
            "dfs.internal.nameservices ({}) names '{unknown}', which dfs.nameservices ({}) does \
                not list",
            config.origin(keys::INTERNAL_NAMESERVICES.name()),
            config.origin(keys::NAMESERVICES.name()),
        );
        return Err(ConfigError::Conflict { what });
    }
    let served = if internal.is_empty() {
        &known
    } else {
        &internal
    };
    if served.is_empty() {
        return Ok(vec![NameService {
            id: None,
            namenodes: vec![address(config, None, None)?],
        }]);
    }
    served.iter().map(|id| name_service(config, id)).collect()
}

fn name_service(config: &Configuration, id: &str) -> Result<NameService, ConfigError> {
    let group = config
        .text(&format!("dfs.ha.namenodes.{id}"))
        .unwrap_or_default();
    let members: Vec<&str> = group
        .split(',')
        .map(str::trim)
        .filter(|member| !member.is_empty())
        .collect();
    let namenodes = if members.is_empty() {
        vec![address(config, Some(id), None)?]
    } else {
        members
            .iter()
            .map(|member| address(config, Some(id), Some(member)))
            .collect::<Result<_, _>>()?
    };
    Ok(NameService {
        id: Some(id.to_owned()),
        namenodes,
    })
}

fn address(
    config: &Configuration,
    id: Option<&str>,
    member: Option<&str>,
) -> Result<NameNodeAddr, ConfigError> {
    let service_rpc = suffixed(config, &keys::NAMENODE_SERVICE_RPC_ADDRESS, id, member)?;
    let rpc = suffixed(config, &keys::NAMENODE_RPC_ADDRESS, id, member)?;
    let lifeline = suffixed(config, &keys::NAMENODE_LIFELINE_RPC_ADDRESS, id, member)?;
    let fallback = || match member {
        // An HA group's name in fs.defaultFS is a logical one, not a host.
        Some(_) => None,
        None => default_file_system(config, id),
    };
    let Some(rpc) = rpc.or_else(|| service_rpc.clone()).or_else(fallback) else {
        let key = name(&keys::NAMENODE_RPC_ADDRESS, id, member);
        let what = format!(
            "no NameNode address: set {key}{}",
            if member.is_none() {
                " or fs.defaultFS (hdfs://host:port)"
            } else {
                ""
            }
        );
        return Err(ConfigError::Conflict { what });
    };
    Ok(NameNodeAddr {
        nn_id: member.map(str::to_owned),
        rpc,
        service_rpc,
        lifeline,
    })
}

/// Host and port of `fs.defaultFS`, unless it names a name service instead of a host.
fn default_file_system(config: &Configuration, id: Option<&str>) -> Option<HostPort> {
    let uri = config.get(&keys::DEFAULT_FS);
    let authority = uri.strip_prefix("hdfs://")?.split('/').next()?;
    let authority = authority.rsplit('@').next()?;
    if authority.is_empty() || Some(authority) == id {
        return None;
    }
    HostPort::parse_with_default(authority, Some(NAMENODE_PORT)).ok()
}

fn suffixed(
    config: &Configuration,
    key: &Key<Option<String>>,
    id: Option<&str>,
    member: Option<&str>,
) -> Result<Option<HostPort>, ConfigError> {
    let name = name(key, id, member);
    let Some(text) = config.text(&name) else {
        return Ok(None);
    };
    HostPort::parse_with_default(&text, Some(NAMENODE_PORT))
        .map(Some)
        .map_err(|allowed| config.bad_value(&name, &text, allowed))
}

fn name(key: &Key<Option<String>>, id: Option<&str>, member: Option<&str>) -> String {
    [Some(key.name()), id, member]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(".")
}

/// Whether a property says which NameNodes there are or where.
pub(super) fn names_namenodes(name: &str) -> bool {
    [
        "fs.defaultFS",
        "dfs.nameservices",
        "dfs.internal.nameservices",
        "dfs.ha.namenodes.",
        "dfs.namenode.rpc-address",
        "dfs.namenode.servicerpc-address",
        "dfs.namenode.lifeline.rpc-address",
    ]
    .iter()
    .any(|base| name.starts_with(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(properties: &[(&str, &str)]) -> Result<Vec<NameService>, ConfigError> {
        namenodes(
            &Configuration::from_properties(properties.iter().copied()).expect("valid properties"),
        )
    }

    fn shown(services: &[NameService]) -> Vec<String> {
        let one = |s: &NameService, n: &NameNodeAddr| {
            format!(
                "{}/{}={}",
                s.id.as_deref().unwrap_or("-"),
                n.nn_id.as_deref().unwrap_or("-"),
                n.for_datanodes()
            )
        };
        services
            .iter()
            .flat_map(|s| s.namenodes.iter().map(move |n| one(s, n)))
            .collect()
    }

    #[test]
    fn one_namenode_by_default_file_system_or_address() {
        assert_eq!(
            shown(&resolve(&[("fs.defaultFS", "hdfs://nn1")]).unwrap()),
            ["-/-=nn1:8020"]
        );
        assert_eq!(
            shown(&resolve(&[("fs.default.name", "hdfs://nn1:9000/x")]).unwrap()),
            ["-/-=nn1:9000"]
        );
        let both = [
            ("fs.defaultFS", "hdfs://a:1"),
            ("dfs.namenode.rpc-address", "b:2"),
            ("dfs.namenode.servicerpc-address", "c:3"),
        ];
        assert_eq!(shown(&resolve(&both).unwrap()), ["-/-=c:3"]);
        assert!(
            resolve(&[])
                .unwrap_err()
                .to_string()
                .contains("fs.defaultFS")
        );
    }

    #[test]
    fn high_availability_and_federation() {
        let found = resolve(&[
            ("fs.defaultFS", "hdfs://ns1"),
            ("dfs.nameservices", "ns1, ns2"),
            ("dfs.ha.namenodes.ns1", "a,b"),
            ("dfs.namenode.rpc-address.ns1.a", "h1:8020"),
            ("dfs.namenode.rpc-address.ns1.b", "h2"),
            ("dfs.namenode.lifeline.rpc-address.ns1.b", "h2:8050"),
            ("dfs.namenode.rpc-address.ns2", "h3:8020"),
            ("dfs.namenode.servicerpc-address.ns2", "h3:8021"),
        ])
        .unwrap();
        assert_eq!(
            shown(&found),
            ["ns1/a=h1:8020", "ns1/b=h2:8020", "ns2/-=h3:8021"]
        );
        assert_eq!(
            found[0].namenodes[1]
                .lifeline
                .as_ref()
                .map(ToString::to_string)
                .as_deref(),
            Some("h2:8050")
        );
    }

    #[test]
    fn internal_name_services_select_and_must_be_known() {
        let base = [
            ("dfs.nameservices", "ns1,ns2"),
            ("dfs.namenode.rpc-address.ns2", "h:1"),
        ];
        let with = |internal| resolve(&[base[0], base[1], ("dfs.internal.nameservices", internal)]);
        assert_eq!(shown(&with("ns2").unwrap()), ["ns2/-=h:1"]);
        assert!(with("ns3").unwrap_err().to_string().contains("'ns3'"));
    }

    #[test]
    fn a_missing_address_of_a_group_is_named() {
        let error = resolve(&[
            ("fs.defaultFS", "hdfs://ns1"),
            ("dfs.nameservices", "ns1"),
            ("dfs.ha.namenodes.ns1", "a"),
        ]);
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("dfs.namenode.rpc-address.ns1.a")
        );
    }
}
