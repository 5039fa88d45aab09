//! How a NameNode comes to know of hosts that have several nodes each: not at all, by the remedies
//! that stock Hadoop has, by our placement policy.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::testbeds::hosts_as_racks;
use crate::describe::{Description, HostSpec};
use crate::net;
use hayloft_testkit::error::{Result, TestkitError};

/// How the NameNode comes to know of hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remedy {
    /// For tables.
    pub name: &'static str,
    /// As the description says it.
    pub placement: &'static str,
    /// The topology declares every host a rack.
    hosts_as_racks: bool,
    /// Every host is an upgrade domain.
    upgrade_domains: bool,
    /// Another stock policy than the default, by its class.
    policy: Option<&'static str>,
}

/// The stock policy that was told nothing.
pub(super) const UNTOLD: Remedy = Remedy {
    name: "stock, told of no hosts",
    placement: "stock",
    hosts_as_racks: false,
    upgrade_domains: false,
    policy: None,
};

/// Untold, then the remedies of stock Hadoop, then ours.
pub(super) const REMEDIES: [Remedy; 5] = [
    UNTOLD,
    Remedy {
        name: "stock, hosts as racks",
        hosts_as_racks: true,
        ..UNTOLD
    },
    Remedy {
        name: "stock, hosts as racks, RackFaultTolerant",
        hosts_as_racks: true,
        policy: Some("BlockPlacementPolicyRackFaultTolerant"),
        ..UNTOLD
    },
    Remedy {
        name: "stock, hosts as upgrade domains",
        upgrade_domains: true,
        policy: Some("BlockPlacementPolicyWithUpgradeDomain"),
        ..UNTOLD
    },
    Remedy {
        name: "ours",
        placement: "split",
        ..UNTOLD
    },
];

/// Where stock placement policies and host managers are.
const PACKAGE: &str = "org.apache.hadoop.hdfs.server.blockmanagement";

impl Remedy {
    /// The testbed with this remedy; its files are in `dir`.
    pub(super) fn applied(&self, described: Description, dir: &Path) -> Description {
        let mut described = if self.hosts_as_racks {
            hosts_as_racks(described)
        } else {
            described
        };
        let mut set = |key: &str, value: String| described.conf.insert(key.into(), value);
        if let Some(policy) = self.policy {
            set(
                "dfs.block.replicator.classname",
                format!("{PACKAGE}.{policy}"),
            );
        }
        if self.upgrade_domains {
            let manager = format!("{PACKAGE}.CombinedHostFileManager");
            set("dfs.namenode.hosts.provider.classname", manager);
            set("dfs.hosts", upgrade_domains_file(dir).display().to_string());
            // Hadoop's own factor wants three hosts, and two are left when one has died.
            set("dfs.namenode.upgrade.domain.factor", "2".into());
        }
        described
    }

    /// Writes what the NameNode reads, for a testbed that [`Remedy::applied`] gave.
    ///
    /// # Errors
    /// When `dir` cannot be written to.
    pub(super) fn prepare(&self, described: &Description, dir: &Path) -> Result<()> {
        if !self.upgrade_domains {
            return Ok(());
        }
        let path = upgrade_domains_file(dir);
        std::fs::write(&path, upgrade_domains(described).to_string())
            .map_err(TestkitError::file("writing", path))
    }
}

fn upgrade_domains_file(dir: &Path) -> PathBuf {
    dir.join("upgrade-domains.json")
}

/// Every host's nodes in an upgrade domain of the host's name, as `dfs.hosts` says it in JSON.
fn upgrade_domains(described: &Description) -> serde_json::Value {
    let domain = |(position, (_, host)): (usize, (_, &HostSpec))| {
        let address = net::address(Some(position)).to_string();
        json!({"hostName": address, "upgradeDomain": host.name})
    };
    described.hosts().enumerate().map(domain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts with `remedy`.
    fn two_hosts(remedy: &Remedy) -> Description {
        let hosts = ["h0", "h1"].map(HostSpec::client).into();
        let one_rack = Description::one_rack("two", remedy.placement, 1000, hosts);
        remedy.applied(one_rack, Path::new("/lab"))
    }

    #[test]
    fn each_but_the_first_tells_the_namenode_of_hosts() {
        for remedy in &REMEDIES {
            let described = two_hosts(remedy);
            let racks = if remedy.hosts_as_racks { 2 } else { 1 };
            assert_eq!(described.racks.len(), racks, "{}", remedy.name);
            let ours = described.namenode.placement != "stock";
            let told = ours || remedy.hosts_as_racks || remedy.upgrade_domains;
            assert_eq!(told, remedy.name != UNTOLD.name, "{}", remedy.name);
        }
    }

    #[test]
    fn every_host_is_an_upgrade_domain() {
        let remedy = REMEDIES.iter().find(|remedy| remedy.upgrade_domains);
        let described = two_hosts(remedy.expect("one has them"));
        assert_eq!(described.conf["dfs.hosts"], "/lab/upgrade-domains.json");
        let second = json!({"hostName": "10.77.0.2", "upgradeDomain": "h1"});
        assert_eq!(upgrade_domains(&described)[1], second);
    }
}
