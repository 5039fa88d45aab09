//! What commands take from their environment and arguments: paths, properties, the directories of
//! a node. No command is named here, so every one may use it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use hayloft_client::login;
use hayloft_conf::{Configuration, keys};
use hayloft_node::given_protection::given_protection;
use serde::Serialize;

use crate::error::CliError;

/// Whose configuration a command reads, and how it answers.
#[derive(Debug, Args)]
pub struct WhereArgs {
    /// Directory of core-site.xml and hdfs-site.xml
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    pub conf: Option<PathBuf>,
    /// Report as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// A variable that names a path; an empty one counts as unset.
pub fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// A property as it is typed: `KEY=VALUE`.
pub fn property(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    if key.trim().is_empty() {
        return Err("must be KEY=VALUE".into());
    }
    Ok((key.trim().to_owned(), value.to_owned()))
}

/// The directory given, else Hadoop's usual places.
pub fn conf_dir(given: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(dir) = given
        .map(Path::to_path_buf)
        .or_else(|| environment("HADOOP_CONF_DIR"))
    {
        return Ok(dir);
    }
    let home = environment("HADOOP_HOME").map(|home| home.join("etc/hadoop"));
    let usual = home.into_iter().chain([PathBuf::from("/etc/hadoop/conf")]);
    usual
        .into_iter()
        .find(|dir| dir.join("hdfs-site.xml").is_file())
        .ok_or_else(|| {
            let advice = "give the directory of hdfs-site.xml with --conf DIR";
            CliError::new("no configuration", "HADOOP_CONF_DIR is not set", advice)
        })
}

/// Whether a node would start with it, as far as that can be said without looking at disks or the
/// network.
pub fn usable(config: &Configuration) -> Result<(), CliError> {
    config.refuse_unprotected()?;
    config.refuse_half_secure()?;
    let correct = |why| CliError::new(why, "core-site.xml", "correct it");
    login::refuse_unusable(config).map_err(correct)?;
    config.virtual_nodes()?;
    hayloft_conf::namenodes(config)?;
    Ok(())
}

/// Refuses a cluster whose web pages are for TLS alone, or for callers with tickets: commands ask
/// `pages` in clear, and have none. `instead` says what to do.
pub fn asks_in_clear(
    config: &Configuration,
    pages: &[&str],
    instead: &str,
) -> Result<(), CliError> {
    let how = config.get(&keys::HTTP_AUTHENTICATION);
    let by_ticket = config.pages_ask_callers() && how.eq_ignore_ascii_case("kerberos");
    let open = config.get(&keys::HTTP_OPEN_PATHS);
    let all_open = pages
        .iter()
        .all(|page| open.iter().any(|path| path == page));
    let (wanted, key) = match (config.https_only(), by_ticket && !all_open) {
        (true, _) => ("over HTTPS alone", keys::HTTP_POLICY.name()),
        (_, true) => ("for callers with tickets", keys::HTTP_AUTHENTICATION.name()),
        _ => return Ok(()),
    };
    let what = format!("web pages {wanted} are not asked by this version");
    Err(CliError::new(what, key, instead))
}

/// What protects a node.
#[derive(Debug, Serialize)]
pub struct NodeProtection {
    /// Its name, if it is one of virtual nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its parts, and what protects each.
    #[serde(flatten)]
    pub parts: BTreeMap<&'static str, String>,
}

impl NodeProtection {
    fn of(node: Option<String>, config: &Configuration) -> Self {
        let parts = given_protection(config).into_iter().collect();
        Self { node, parts }
    }

    /// A line for each part.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let parts = self.parts.iter();
        parts.map(|(part, said)| format!("{}: {said}", part.replace('_', " ")))
    }
}

/// What protects the node, or each of its virtual nodes; none where a node would not start.
pub fn protection(config: &Configuration) -> Vec<NodeProtection> {
    if usable(config).is_err() {
        return Vec::new();
    }
    let nodes = config.virtual_nodes().unwrap_or_default();
    if nodes.is_empty() {
        return vec![NodeProtection::of(None, config)];
    }
    let of = |node: &hayloft_conf::VirtualNode| {
        NodeProtection::of(Some(node.name.to_string()), &node.config)
    };
    nodes.iter().map(of).collect()
}

/// The data directories of the node, or of all its virtual nodes.
pub fn data_dirs(config: &Configuration) -> Result<Vec<PathBuf>, CliError> {
    let nodes = config.virtual_nodes()?;
    Ok(match nodes.is_empty() {
        true => volumes(config),
        false => nodes
            .iter()
            .flat_map(|node| volumes(&node.config))
            .collect(),
    })
}

/// A virtual node's name, and data directories with their storage types.
#[cfg(feature = "snapshots")]
pub type NodeDirs = (Option<String>, Vec<hayloft_conf::DataDir>);

/// The data directories of the node, or of each virtual node.
#[cfg(feature = "snapshots")]
pub fn typed_dirs(config: &Configuration) -> Result<Vec<NodeDirs>, CliError> {
    let nodes = config.virtual_nodes()?;
    if nodes.is_empty() {
        return Ok(vec![(None, config.get(&keys::DATA_DIRS))]);
    }
    let of = |node: hayloft_conf::VirtualNode| {
        let dirs = node.config.get(&keys::DATA_DIRS);
        (Some(node.name.to_string()), dirs)
    };
    Ok(nodes.into_iter().map(of).collect())
}

/// The data directories of one node.
pub fn volumes(config: &Configuration) -> Vec<PathBuf> {
    let dirs = config.get(&keys::DATA_DIRS);
    dirs.into_iter().map(|dir| dir.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_virtual_node_has_its_own_protection_and_a_refused_one_none() {
        let base = [
            ("fs.defaultFS", "hdfs://127.0.0.1:1"),
            ("hayloft.nodes", "a,b"),
            ("dfs.datanode.address.a", "127.0.0.1:7000"),
            ("dfs.datanode.address.b", "127.0.0.1:7001"),
        ];
        let of = |more: &[(&str, &str)]| {
            let all = base.iter().chain(more).copied();
            protection(&Configuration::from_properties(all).expect("valid"))
        };
        let both = of(&[]);
        let names: Vec<_> = both.iter().filter_map(|of| of.node.as_deref()).collect();
        assert_eq!(names, ["a", "b"]);
        let lines: Vec<String> = both[0].lines().collect();
        assert_eq!(lines.len(), 6);
        assert!(
            lines.contains(&"data port: in clear".to_owned()),
            "{lines:?}"
        );
        let refused = of(&[("dfs.data.transfer.protection", "privacy")]);
        assert!(refused.is_empty(), "it does not start without Kerberos");
    }

    #[test]
    fn pages_are_asked_in_clear_and_without_tickets() {
        let tickets = ("hadoop.http.authentication.type", "kerberos");
        let filter = (
            "hadoop.http.filter.initializers",
            "org.apache.hadoop.security.AuthenticationFilterInitializer",
        );
        let open = |pages| {
            (
                "hadoop.http.authentication.kerberos.endpoint.whitelist",
                pages,
            )
        };
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let cases: [Case<'_>; 7] = [
            (&[], None),
            (&[("dfs.http.policy", "HTTP_AND_HTTPS")], None),
            (&[("dfs.http.policy", "https_only")], Some("HTTPS alone")),
            // Without the filter no page asks.
            (&[tickets], None),
            (&[tickets, filter], Some("callers with tickets")),
            (
                &[tickets, filter, open("/jmx")],
                Some("callers with tickets"),
            ),
            (&[tickets, filter, open("/live,/jmx")], None),
        ];
        for (properties, told) in cases {
            let config = Configuration::from_properties(properties.iter().copied());
            let config = config.expect("valid");
            let asked = asks_in_clear(&config, &["/jmx", "/live"], "ask by curl");
            let refused = asked.err().map(|why| why.to_string());
            assert_eq!(refused.is_some(), told.is_some(), "{refused:?}");
            let said = refused.unwrap_or_default();
            let told = told.is_none_or(|told| said.contains(told) && said.contains("by curl"));
            assert!(told, "{said}");
        }
    }

    #[test]
    fn properties_need_a_key() {
        assert_eq!(property("a.b=c=d"), Ok(("a.b".into(), "c=d".into())));
        assert!(property("a").is_err() && property("=x").is_err());
    }
}
