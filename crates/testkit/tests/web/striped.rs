//! WebHDFS where nodes fail: pipelines that lose one, striped files that lose units.

use crate::exchange::{Exchange, bytes, fetch, upload};
use crate::nodes::{both, expect_done, web_of, webhdfs};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, ClusterBuilder, Driver, NodeSpec, Outcome, TestkitError};
use serde_json::json;

const CELL: u64 = 1 << 20;
/// The node that serves requests, a stock one, and those that are killed: as many as striped files
/// can do without.
const SERVES: usize = 0;
const STOCK: usize = 1;
const KILLED: [usize; 2] = [2, 3];
/// All of ours but the first, and one to spare.
const MORE: usize = 4;
/// Less than a cell, cells, stripes, and more than a group of three blocks of four cells.
const SIZES: [u64; 7] = [
    1,
    CELL - 1,
    CELL,
    CELL + 1,
    2 * CELL + 77,
    5 * CELL + 4321,
    29 * CELL + 5,
];

pub fn losses() -> Result<Losses> {
    let more = (0..MORE).map(|_| NodeSpec::new(Kind::Hayloft));
    let cluster = Cluster::builder("webhdfs-losses")
        .conf("dfs.blocksize", 4 * CELL)
        .conf("dfs.replication", 3)
        .conf("dfs.client.socket-timeout", 10_000)
        .conf("dfs.namenode.redundancy.considerLoad", false)
        .node(NodeSpec::new(Kind::Hayloft))
        .node(NodeSpec::new(Kind::Apache));
    let cluster = more.fold(cluster, ClusterBuilder::node).start()?;
    let fs = cluster.driver()?;
    let policy = ["-policy", "RS-3-2-1024k"];
    let ec = |args: &[&str]| fs.tool(class::EC, &[args, &policy].concat())?.ok();
    ec(&["-enablePolicy"])?;
    fs.fs(&["-mkdir", "/ec"])?;
    ec(&["-setPolicy", "-path", "/ec"])?;
    Ok(Losses { cluster, fs })
}

pub struct Losses {
    pub cluster: Cluster,
    fs: Driver,
}

impl Losses {
    fn is_there(&mut self, path: &str, size: u64) -> Result<()> {
        let target = webhdfs(&mut self.cluster, path, "op=OPEN");
        let web = web_of(&mut self.cluster, SERVES);
        let read = fetch(web, "GET", &target)?;
        expect(read.body == bytes(size, 0, size), || {
            format!("{path}: {} bytes, {:?}", read.body.len(), read.error())
        })
    }

    pub fn striped(&mut self) -> Result<Outcome> {
        for size in SIZES {
            let path = format!("/ec/{size}");
            let target = webhdfs(&mut self.cluster, &path, "op=CREATE");
            let web = web_of(&mut self.cluster, SERVES);
            let reply = upload(web, "PUT", &target, size, size)?;
            expect_done(&path, &reply, 201)?;
            self.fs.check(&path, size, size)?;
            self.is_there(&path, size)?;
            for (offset, length) in [(0, 1), (size / 2, CELL + 3), (size - 1, 1)] {
                let range = format!("op=OPEN&offset={offset}&length={length}");
                let target = webhdfs(&mut self.cluster, &path, &range);
                let web = web_of(&mut self.cluster, SERVES);
                let read = fetch(web, "GET", &target)?;
                let end = (offset + length).min(size);
                expect(read.body == bytes(size, offset, end), || {
                    format!("{path} {range}")
                })?;
            }
            let target = webhdfs(&mut self.cluster, &path, "op=GETFILECHECKSUM");
            let [ours, stock] = both(&mut self.cluster, [SERVES, STOCK], |web| {
                fetch(web, "GET", &target)
            })?;
            expect_eq("checksum", ours.body, stock.body)?;
        }
        passed()
    }

    /// A flipped byte is noticed, told to the NameNode, and read from another node.
    pub fn corrupt(&mut self) -> Result<Outcome> {
        let size = 2 * CELL;
        self.fs.put("/flipped", size, size, json!({}))?;
        let block = self.fs.blocks("/flipped")?.remove(0);
        let files = self.cluster.node(SERVES).block_files(block.id);
        let data = files.iter().find(|file| file.extension().is_none());
        let Some(data) = data else {
            return Ok(Outcome::Skipped(
                "no replica on the node that serves".into(),
            ));
        };
        let mut content = std::fs::read(data).map_err(TestkitError::file("reading", data))?;
        content[777_777] ^= 1;
        std::fs::write(data, content).map_err(TestkitError::file("writing", data))?;
        wait::until("a report of the corrupt replica", seconds(60), || {
            self.is_there("/flipped", size)?;
            let report = self.fs.tool(class::FSCK, &["/flipped"])?.out;
            let found = report.lines().find(|line| line.contains("Corrupt replica"));
            // It may have been replaced already.
            let files = self.cluster.node(SERVES).block_files(block.id);
            let told = report.contains("is CORRUPT") || report.contains("orrupt replica");
            Ok(if told || files.is_empty() {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{found:?}"))
            })
        })?;
        passed()
    }

    /// An append of a striped file is refused as Apache's node refuses it.
    pub fn append(&mut self) -> Result<Outcome> {
        let target = webhdfs(&mut self.cluster, "/ec/1", "op=APPEND");
        let [ours, stock] = both(&mut self.cluster, [SERVES, STOCK], |web| {
            upload(web, "POST", &target, 5, 1)
        })?;
        expect_eq(
            "append",
            (ours.code, ours.error()),
            (stock.code, stock.error()),
        )?;
        passed()
    }

    /// Both kinds of files are written on while two nodes are killed, and read without them.
    pub fn killed(&mut self) -> Result<Outcome> {
        let size = 21 * CELL + 99;
        let mut writers = Vec::new();
        for index in 0..6 {
            let dir = if index % 2 == 0 { "/ec" } else { "" };
            let path = format!("{dir}/killed-{index}");
            let target = webhdfs(&mut self.cluster, &path, "op=CREATE");
            let web = web_of(&mut self.cluster, SERVES);
            let mut exchange = Exchange::begin(web, "PUT", &target, Some(size))?;
            exchange.send(size, 0, 3 * CELL + 100 * index)?;
            writers.push((path, 3 * CELL + 100 * index, exchange));
        }
        for node in KILLED {
            self.cluster.node(node).kill()?;
        }
        for (path, at, mut exchange) in writers {
            let _ = exchange.send(size, at, size);
            let reply = exchange.reply()?;
            expect_done(&path, &reply, 201)?;
            self.fs.check(&path, size, size)?;
            self.is_there(&path, size)?;
        }
        for size in SIZES {
            self.is_there(&format!("/ec/{size}"), size)?;
        }
        passed()
    }

    pub fn back(&mut self) -> Result<Outcome> {
        for node in KILLED {
            self.cluster.start_node(node)?;
        }
        self.cluster.wait_all_live()?;
        let size = 21 * CELL + 99;
        for index in [0, 1, 4, 5] {
            let dir = if index % 2 == 0 { "/ec" } else { "" };
            self.fs
                .check(&format!("{dir}/killed-{index}"), size, size)?;
        }
        // A directory that gives its files more permissions than their writer asks for.
        self.fs.fs(&["-mkdir", "/acl"])?;
        self.fs
            .fs(&["-setfacl", "-m", "default:user:alice:rw-", "/acl"])?;
        let mut modes = Vec::new();
        for node in [SERVES, STOCK] {
            let path = format!("/acl/{node}");
            let ask = "op=CREATE&permission=644&unmaskedpermission=666";
            let target = webhdfs(&mut self.cluster, &path, ask);
            let web = web_of(&mut self.cluster, node);
            expect_eq("code", upload(web, "PUT", &target, 5, 1)?.code, 201)?;
            let status = self.fs.fs(&["-getfacl", &path])?;
            modes.push(status.replace(&path, ""));
        }
        expect_eq("ACL", &modes[0], &modes[1])?;
        self.fs.put("/last", CELL, 1, json!({}))?;
        passed()
    }
}
