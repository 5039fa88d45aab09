//! WebHDFS as a NameNode sends clients to it; with two NameNodes, of which one is active; and what
//! protects browsers.

use crate::distcp;
use crate::exchange::{Exchange, bytes, fetch, upload};
use crate::nodes::{expect_done, web_of};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, TestkitError};
use serde_json::json;
use std::process::Command;
use std::time::Instant;

/// Both of Apache's guards.
const GUARDS: &str = "org.apache.hadoop.hdfs.server.datanode.web.RestCsrfPreventionFilterHandler,\
    org.apache.hadoop.hdfs.server.datanode.web.HostRestrictingAuthorizationFilterHandler";
const SIZE: u64 = 3_000_000;
const LARGE: u64 = 200 << 20;

/// A cluster of one node, to which the NameNode sends every client.
pub fn alone(kind: Kind) -> Result<Alone> {
    let cluster = Cluster::builder("webhdfs-alone")
        .conf("dfs.replication", 1)
        .node(NodeSpec::new(kind))
        .start()?;
    let fs = cluster.driver()?;
    fs.put("/small", 10, 1, json!({}))?;
    Ok(Alone { cluster, fs })
}

pub struct Alone {
    pub cluster: Cluster,
    fs: Driver,
}

impl Alone {
    /// As users and the NameNode's page do it: the NameNode says where.
    pub fn redirected(&mut self) -> Result<Outcome> {
        let dir = self.cluster.dir().to_owned();
        let (file, back) = (dir.join("sent"), dir.join("received"));
        let data = bytes(11, 0, LARGE);
        std::fs::write(&file, &data).map_err(TestkitError::file("writing", &file))?;
        let namenode = self.cluster.namenode(0).http();
        let at = |op: &str| format!("http://{namenode}/webhdfs/v1/large?op={op}&user.name=root");
        let began = Instant::now();
        let sent = file.display().to_string();
        curl(&["-T", &sent, &at("CREATE&overwrite=true&replication=1")])?;
        let up = began.elapsed();
        let began = Instant::now();
        curl(&["-o", &back.display().to_string(), &at("OPEN")])?;
        let down = began.elapsed();
        let read = std::fs::read(&back).map_err(TestkitError::file("reading", &back))?;
        expect(read == data, || "other bytes came back".into())?;
        println!("web: {} MiB up in {up:?}, down in {down:?}", LARGE >> 20);
        let web = format!("webhdfs://{namenode}");
        let path = |name: &str| format!("{web}/{name}");
        self.fs.fs(&["-put", "-f", &sent, &path("put")])?;
        self.fs.check("/put", LARGE, 11)?;
        self.fs.fs(&["-mkdir", "-p", "/copies"])?;
        self.fs
            .fs(&["-cp", &path("small"), &path("copies/small")])?;
        self.fs.check("/copies/small", 10, 1)?;
        let [web_sum, sum] = [path("put"), "/put".into()].map(|path| {
            let line = self.fs.fs(&["-checksum", &path])?;
            let mut words = line.split_whitespace().map(str::to_owned);
            Ok::<_, TestkitError>(words.next_back())
        });
        expect_eq("checksum", web_sum?, sum?)?;
        passed()
    }
}

impl Alone {
    /// With DistCp.
    pub fn copied(&mut self) -> Result<Outcome> {
        let web = format!("webhdfs://{}", self.cluster.namenode(0).http());
        distcp::both_ways(&mut self.cluster, &self.fs, &web)
    }
}

/// `curl` as a script calls it.
fn curl(arguments: &[&str]) -> Result<()> {
    let run = Command::new("curl")
        .args(["-sS", "--fail", "-L", "--max-time", "200"])
        .args(arguments)
        .output();
    let output = run.map_err(TestkitError::file("starting", "curl"))?;
    expect(output.status.success(), || {
        format!(
            "curl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

pub fn two_namenodes() -> Result<Two> {
    let cluster = Cluster::builder("webhdfs-ha")
        .ha()
        .conf("dfs.blocksize", 1 << 20)
        .conf("dfs.replication", 1)
        .node(
            NodeSpec::new(Kind::Hayloft)
                .conf("dfs.webhdfs.rest-csrf.enabled", true)
                .conf("dfs.datanode.httpserver.filter.handlers", GUARDS)
                .conf("dfs.web.authentication.host.allow.rules", "root,*,/"),
        )
        .start()?;
    let fs = cluster.driver()?;
    let two = Two { cluster, fs };
    two.haadmin(&["-transitionToActive", "nn1"])?;
    two.cluster.wait_all_live()?;
    Ok(two)
}

pub struct Two {
    pub cluster: Cluster,
    fs: Driver,
}

impl Two {
    fn haadmin(&self, args: &[&str]) -> Result<()> {
        let args = [&["-ns", "ns1"], args].concat();
        self.fs.tool(class::HAADMIN, &args)?.ok().map(|_| ())
    }

    fn round(&mut self, path: &str) -> Result<()> {
        let web = web_of(&mut self.cluster, 0);
        let target =
            |op: &str| format!("/webhdfs/v1{path}?op={op}&namenoderpcaddress=ns1&user.name=root");
        let reply = upload(web, "PUT", &target("CREATE"), SIZE, 4)?;
        expect_done(path, &reply, 201)?;
        let place = reply.header("location").map(str::to_owned);
        expect_eq("place", place, Some(format!("hdfs://ns1{path}")))?;
        let read = fetch(web, "GET", &target("OPEN"))?;
        expect(read.body == bytes(4, 0, SIZE), || {
            format!("{path}: {:?}", read.error())
        })
    }

    pub fn fails_over(&mut self) -> Result<Outcome> {
        self.round("/one")?;
        let web = web_of(&mut self.cluster, 0);
        let target = "/webhdfs/v1/between?op=CREATE&namenoderpcaddress=ns1&user.name=root";
        let mut between = Exchange::begin(web, "PUT", target, Some(SIZE))?;
        between.send(4, 0, SIZE / 2)?;
        self.haadmin(&["-transitionToStandby", "nn1"])?;
        self.haadmin(&["-transitionToActive", "nn2"])?;
        between.send(4, SIZE / 2, SIZE)?;
        let reply = between.reply()?;
        expect_done("between two", &reply, 201)?;
        self.fs.check("/between", SIZE, 4)?;
        self.round("/two")?;
        self.cluster.namenode(0).kill()?;
        self.round("/three")?;
        passed()
    }

    pub fn readers(&mut self) -> Result<Outcome> {
        let web = web_of(&mut self.cluster, 0);
        let target =
            |user: &str| format!("/webhdfs/v1/one?op=OPEN&namenoderpcaddress=ns1&user.name={user}");
        expect_eq("root", fetch(web, "GET", &target("root"))?.code, 200)?;
        let refused = fetch(web, "GET", &target("alice"))?;
        expect_eq("alice", refused.code, 403)?;
        let message = refused.error().1;
        expect(message.contains("write-only for alice@127.0.0.1"), || {
            message
        })?;
        passed()
    }

    pub fn csrf(&mut self) -> Result<Outcome> {
        let web = web_of(&mut self.cluster, 0);
        let target = "/webhdfs/v1/one?op=CREATE&namenoderpcaddress=ns1&user.name=root";
        let ask = |more: &str| {
            let head = format!("User-Agent: Mozilla/5.0\r\nContent-Length: 0\r\n{more}");
            crate::ask::ask(web, &crate::ask::request("PUT", target, &head))
        };
        expect_eq("a browser", ask("")?.code(), Some(400))?;
        // It is there already: the request passed.
        expect_eq(
            "with the header",
            ask("X-XSRF-HEADER: \"\"\r\n")?.code(),
            Some(403),
        )?;
        passed()
    }
}
