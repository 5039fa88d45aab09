//! A stock NameNode that reads what `hayloft topology write` wrote of two nodes.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::{hayloft_binary, placement_jar, scratch};
use hayloft_testkit::node::{Kind, VirtualSite};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome};

/// Name, address and place of each node, as an administrator's file has them.
const NODES: [(&str, [u8; 4], &str); 2] = [
    ("a", [127, 0, 1, 1], "/z1/r1 metal1"),
    ("b", [127, 0, 1, 2], "/z1/r2 metal2"),
];
const MAPPING: &str = "net.topology.node.switch.mapping.impl";

pub struct Lab {
    pub cluster: Cluster,
    fs: Driver,
    table: PathBuf,
    _base: tempfile::TempDir,
}

/// Runs `hayloft topology write` for each node, as each would by itself.
fn write(base: &Path, table: &Path) -> Result<()> {
    let places = base.join("places");
    let lines = NODES.map(|(name, _, place)| format!("{name} {place}\n"));
    let written = std::fs::write(&places, lines.concat());
    written.map_err(TestkitError::file("writing", &places))?;
    let binary = hayloft_binary()?;
    for (name, address, _) in NODES {
        let ran = Command::new(&binary)
            .args(["topology", "write", "--source"])
            .arg(format!("file:{}", places.display()))
            .args(["--node", name, "--address"])
            .arg(Ipv4Addr::from(address).to_string())
            .arg("--to")
            .arg(table)
            .output()
            .map_err(TestkitError::file("running", &binary))?;
        expect(ran.status.success(), || format!("{ran:?}"))?;
    }
    Ok(())
}

pub fn start() -> Result<Lab> {
    let base = scratch("racks-")?;
    let table = base.path().join("topology");
    write(base.path(), &table)?;
    let site = |(name, address, _): (&str, [u8; 4], _)| VirtualSite::free(name, address.into());
    let sites = NODES.into_iter().map(site);
    let spec = NodeSpec::new(Kind::Hayloft).virtual_nodes(sites.collect::<Result<_, _>>()?);
    let cluster = Cluster::builder("racks")
        .node(spec)
        .jar(placement_jar()?)
        .conf("dfs.replication", 2)
        .conf(MAPPING, "org.apache.hadoop.net.TableMapping")
        .conf("net.topology.table.file.name", table.display())
        .start()?;
    let fs = cluster.driver()?;
    Ok(Lab {
        cluster,
        fs,
        table,
        _base: base,
    })
}

impl Lab {
    /// Each rack with the address of its node, as the NameNode has them.
    fn racks(&self) -> Result<Vec<(String, String)>> {
        let said = self.fs.dfsadmin(&["-printTopology"])?;
        let mut racks = Vec::new();
        let mut rack = String::new();
        for line in said.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("Rack: ") {
                name.trim().clone_into(&mut rack);
            } else if let Some((address, _)) = line.split_once(':') {
                racks.push((rack.clone(), address.to_owned()));
            }
        }
        racks.sort();
        Ok(racks)
    }

    fn expect_racks(&self) -> Result<()> {
        let wanted = NODES.map(|(_, address, place)| {
            let rack = place.split(' ').next().unwrap_or_default();
            (rack.to_owned(), Ipv4Addr::from(address).to_string())
        });
        expect_eq("racks", self.racks()?, wanted.to_vec())
    }

    pub fn by_table(&mut self) -> Result<Outcome> {
        self.expect_racks()?;
        passed()
    }

    /// The stock mapping by a script, and our policy with the file of domains: an error in the file
    /// would stop the NameNode.
    pub fn by_script(&mut self) -> Result<Outcome> {
        let beside = |end: &str| format!("{}{end}", self.table.display());
        let mut conf = self.cluster.conf().clone();
        conf.set(MAPPING, "org.apache.hadoop.net.ScriptBasedMapping")
            .set("net.topology.table.file.name", "/no/such")
            .set("net.topology.script.file.name", beside(".sh"))
            .set("hayloft.placement.domains.file", beside(".domains"))
            .set(
                "dfs.block.replicator.classname",
                "io.hayloft.placement.HayloftPlacementPolicy",
            );
        let namenode = self.cluster.namenode(0);
        namenode.stop()?;
        namenode.write_conf(&conf, false)?;
        namenode.start(&[])?;
        namenode.wait_live(2, seconds(60))?;
        // The one before has a connection to the NameNode that is gone.
        self.fs = self.cluster.driver()?;
        self.expect_racks()?;
        self.fs.put("/file", 1 << 20, 1, serde_json::json!({}))?;
        let blocks = self.fs.blocks("/file")?;
        let nodes = blocks.first().map_or(0, |block| block.nodes.len());
        expect_eq("nodes of the block", nodes, 2)?;
        passed()
    }
}
