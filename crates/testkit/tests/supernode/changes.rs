//! What changes around virtual nodes: stock nodes in their place, new directories, one that ends,
//! configurations that cannot work.

use super::Lab;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::{Kind, Node, NodeSite, VirtualSite};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::where_processes_run::Place;
use hayloft_testkit::{NodeSpec, Outcome, TestkitError, VolumeSpec};
use std::path::PathBuf;

impl Lab {
    /// A stock DataNode on the directory of each virtual node of the first host.
    fn stock_nodes(&self) -> Result<Vec<Node>> {
        let base = self.cluster.dir().join("stock");
        let node = |site: VirtualSite| {
            let volume = VolumeSpec::at(site.part_of(&self.data_dir(0)));
            let spec = NodeSpec::new(Kind::Apache).volumes(vec![volume]);
            let place = NodeSite {
                name: format!("stock-{}", site.name),
                dir: base.join(&site.name),
                place: Place::local(),
                xfer_port: site.xfer_port,
                ipc_port: site.ipc_port,
                http_port: site.http_port,
                log: None,
            };
            Node::new(self.cluster.hadoop(), place, spec)
        };
        self.sites(0).into_iter().map(node).collect()
    }

    pub fn swapped(&mut self) -> Result<Outcome> {
        self.cluster.node(0).stop()?;
        let mut stock = self.stock_nodes()?;
        let conf = self.cluster.conf().clone();
        for node in &mut stock {
            node.start(&conf)?;
        }
        // Their calls come from the address of the host: known by it, with their own ports.
        let known: Vec<String> = stock.iter().map(Node::xfer).collect();
        wait::until("four stock nodes", seconds(60), || {
            let live = self.live_nodes()?;
            let missing: Vec<_> = known.iter().filter(|x| !live.contains_key(*x)).collect();
            Ok(match missing.is_empty() {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("without {missing:?}: {:?}", live.keys())),
            })
        })?;
        self.fs.wait_healthy("/", seconds(60))?;
        self.check_files()?;
        for node in &mut stock {
            node.stop()?;
        }
        self.cluster.start_node(0)?;
        self.live()?;
        self.fs.wait_healthy("/", seconds(60))?;
        self.check_files()?;
        passed()
    }

    /// Each takes its part of a directory that is added while they run; the space stays one.
    pub fn reconfigured(&mut self) -> Result<Outcome> {
        let added = self.data_dir(1).with_file_name("added");
        self.cluster.node(1).add_volume(None, &added);
        self.cluster.rewrite_node_conf(1)?;
        for site in self.sites(1) {
            let said = self.fs.reconfigure(&site.ipc().to_string(), seconds(30))?;
            let version = site.part_of(&added).join("current/VERSION");
            expect(version.is_file(), || {
                format!("{}: {said}", version.display())
            })?;
        }
        self.live()?;
        passed()
    }

    fn log_of(&self, host: usize) -> Result<String> {
        let node = self.cluster.nodes().nth(host);
        let log = node.map_or_else(PathBuf::new, Node::log);
        std::fs::read_to_string(&log).map_err(TestkitError::file("reading", log))
    }

    fn wait_said(&self, host: usize, said: &[&str]) -> Result<()> {
        wait::until(&format!("{said:?} in the log"), seconds(60), || {
            let log = self.log_of(host)?;
            let line = log
                .lines()
                .any(|line| said.iter().all(|part| line.contains(part)));
            Ok(match line {
                true => Seen::Done(()),
                false => Seen::NotYet(log.lines().last().unwrap_or_default().to_owned()),
            })
        })
    }

    /// One whose NameNode is another's, and one that is told to stop: the process goes on with the
    /// rest.
    pub fn one_ends(&mut self) -> Result<Outcome> {
        self.cluster.node(0).stop()?;
        let version = self.data_dir(0).join("b/current/VERSION");
        let kept = std::fs::read_to_string(&version);
        let kept = kept.map_err(TestkitError::file("reading", &version))?;
        let write = |text: &str| {
            let written = std::fs::write(&version, text);
            written.map_err(TestkitError::file("writing", &version))
        };
        write(&kept.replace("clusterID=", "clusterID=CID-other-"))?;
        self.cluster.start_node_without_waiting(0)?;
        self.wait_said(
            0,
            &["this virtual node has ended, the others go on", "name=b"],
        )?;
        let rpc = self.sites(0)[2].ipc().to_string();
        self.fs.dfsadmin(&["-shutdownDatanode", &rpc])?;
        self.wait_said(0, &["node{name=c}", "storage node has stopped"])?;
        self.cluster.node(0).process()?.check_alive()?;
        let a = self.sites(0)[0].ipc().to_string();
        let said = self.fs.dfsadmin(&["-getDatanodeInfo", &a])?;
        expect(said.contains("Uptime"), || said.clone())?;
        write(&kept)?;
        self.cluster.node(0).stop()?;
        self.cluster.start_node(0)?;
        self.live()?;
        self.check_files()?;
        passed()
    }

    pub fn refused(&mut self) -> Result<Outcome> {
        let spec = || NodeSpec::new(Kind::Hayloft);
        let two = |a: &str, b: &str| {
            spec()
                .conf("hayloft.nodes", "a,b")
                .conf("dfs.datanode.address.a", a)
                .conf("dfs.datanode.address.b", b)
        };
        let plain = spec().volumes(vec![VolumeSpec::at(self.data_dir(1))]);
        for (spec, said) in [
            (spec().conf("hayloft.nodes", "a,a"), "names a once"),
            (spec().conf("hayloft.nodes", "a/b"), "names of letters"),
            (two("127.0.0.1:1", "127.0.0.1:1"), "would be one"),
            (two("127.0.0.1:1", "0.0.0.0:1"), "would be one"),
            (
                spec()
                    .conf("hayloft.nodes", "a")
                    .conf("dfs.datanode.hostname.b", "x"),
                "does not list",
            ),
            (plain, "set it to a,b,c,d"),
        ] {
            let (failed, log) = self.cluster.refused_node(spec)?;
            expect(failed && log.contains(said), || format!("{said}: {log}"))?;
            let sentences = log.lines().filter(|line| line.contains("error")).count();
            expect_eq("sentences", sentences, 1)?;
        }
        passed()
    }
}
