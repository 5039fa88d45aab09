//! What NameNodes show: clocks, hosts that are shared, ports of other nodes; and a host that is
//! well.

use crate::ask::{Around, BAD, Covered, Said, conf};
use crate::disk::Disk;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::http::{HttpLimits, get_within};
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Signal;
use hayloft_testkit::suite::{expect, passed};
use hayloft_testkit::{Cluster, Outcome};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};

/// A NameNode and two nodes on this host.
pub struct Lab {
    pub cluster: Cluster,
}

pub fn start() -> Result<Lab> {
    let cluster = Cluster::builder("doctor")
        .nodes(2, Kind::under_test())
        .start()?;
    cluster.wait_all_live()?;
    Ok(Lab { cluster })
}

impl Lab {
    fn conf(&self) -> String {
        self.cluster.client_conf_dir().display().to_string()
    }

    fn doctor(&self, only: &str) -> Result<Said> {
        Around::default().doctor(&["--only", only, "--conf", &self.conf()])
    }

    /// Both nodes are on one host, and the NameNode takes them for two.
    pub fn shared(&mut self) -> Result<Outcome> {
        let said = self.doctor("shared-hosts")?;
        said.expect("shared-hosts", "bad", "/default-rack")?;
        said.expect_code(BAD)?;
        passed()
    }

    /// Blocks of another cluster, or of the time before the NameNode was formatted anew.
    pub fn others_blocks(&mut self) -> Result<Outcome> {
        let base = hayloft_testkit::hadoop::scratch("doctor-others-")?;
        let current = base.path().join("current");
        let wrong = TestkitError::file("making", &current);
        std::fs::create_dir_all(current.join("BP-1-10.0.0.1-2")).map_err(wrong)?;
        let (conf, dir) = (self.conf(), base.path().display().to_string());
        let doctor = || Around::default().doctor(&["--only", "identity", "--conf", &conf, &dir]);
        doctor()?.expect("identity", "bad", "its block pool is BP-1-10.0.0.1-2, that")?;
        let version = current.join("VERSION");
        let wrong = TestkitError::file("writing", &version);
        std::fs::write(&version, "clusterID=CID-other\n").map_err(wrong)?;
        doctor()?.expect("identity", "bad", "its clusterID is CID-other, that")?;
        passed()
    }

    /// The ports of this node and of others can be reached, until one stops to answer.
    pub fn ports(&mut self) -> Result<Outcome> {
        let said = self.doctor("namenode,data-port")?;
        said.expect_well()?;
        self.cluster.node(1).kill()?;
        let said = self.doctor("data-port")?;
        said.expect("data-port", "bad", "nothing listens there")?;
        self.cluster.start_node(1)?;
        self.cluster.wait_all_live()?;
        passed()
    }

    /// A NameNode whose clock is behind, as its pages show it.
    pub fn clock(&mut self) -> Result<Outcome> {
        let base = hayloft_testkit::hadoop::scratch("doctor-clock-")?;
        let pages = self.cluster.namenode(0).http();
        let pages: SocketAddr = pages.parse().map_err(|error| {
            TestkitError::Talk(format!("the NameNode's pages are at {pages}: {error}"))
        })?;
        let late = late_pages(pages)?;
        let rpc = format!("hdfs://{}", self.cluster.namenode(0).rpc());
        let dir = base.path().display().to_string();
        let properties = [
            ("fs.defaultFS", rpc.as_str()),
            ("dfs.namenode.http-address", &late.to_string()),
            ("dfs.datanode.data.dir", &dir),
        ];
        conf(base.path(), &properties)?;
        let said = Around::default().doctor(&["--only", "clock", "--conf", &dir])?;
        said.expect("clock", "bad", "s ahead of the NameNode's")?;
        passed()
    }

    /// A NameNode that is stopped takes connections and answers nothing.
    pub fn silent(&mut self) -> Result<Outcome> {
        let stopped = self.cluster.namenode(0).process()?.signal(Signal::STOP);
        stopped?;
        let said = self.doctor("clock,shared-hosts");
        self.cluster.namenode(0).process()?.signal(Signal::CONT)?;
        let said = said?;
        let unseen = said.report["not_looked_at"].to_string();
        expect(unseen.contains("no answer within"), || {
            format!("{:#}", said.report)
        })?;
        passed()
    }

    /// All checks at once, on a disk that is well, in surroundings that are.
    pub fn well(&mut self) -> Result<Outcome> {
        let disk = Disk::xfs("noatime")?;
        let covers = [
            ("/proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
            (
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
        ];
        let covered = Covered::new(&covers)?;
        let (covered, enough) = (covered.around(), Around::with_many_files());
        let many = enough.is_some();
        let around = enough.unwrap_or_default().within(&covered);
        let data = disk.data().display().to_string();
        let said = around.doctor(&["--conf", &self.conf(), &data])?;
        for finding in said.report["findings"].as_array().into_iter().flatten() {
            let what = finding["check"].as_str().unwrap_or_default();
            // Of this cluster; of the machine that the tests run on; of a small disk; of a
            // repository below /tmp.
            let known = [
                "shared-hosts",
                "clock",
                "processor",
                "cgroup",
                "space",
                "directory",
            ];
            let limited = what == "open-files" && !many;
            expect(known.contains(&what) || limited, || format!("{finding:#}"))?;
        }
        let all = said.report["not_looked_at"]
            .as_array()
            .is_some_and(Vec::is_empty);
        expect(all, || format!("{:#}", said.report["not_looked_at"]))?;
        passed()
    }
}

/// Pages of a NameNode with another date. It serves until the test ends.
fn late_pages(pages: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let listener = listener.map_err(|error| TestkitError::Talk(error.to_string()))?;
    let address = listener
        .local_addr()
        .map_err(|error| TestkitError::Talk(error.to_string()))?;
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut line = String::new();
            let mut lines = BufReader::new(&client);
            let read = lines.read_line(&mut line);
            let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
            let mut header = String::new();
            while read.is_ok() && lines.read_line(&mut header).is_ok_and(|n| n > 2) {
                header.clear();
            }
            let Ok(body) = get_within(pages, &path, HttpLimits::default()) else {
                continue;
            };
            let head = "HTTP/1.0 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n";
            let _ = client.write_all(format!("{head}{body}").as_bytes());
        }
    });
    Ok(address)
}
