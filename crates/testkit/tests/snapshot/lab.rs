//! A stock NameNode, one Hayloft node of two volumes at replication 1, files, and the command.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hayloft_testkit::error::{Result, expect};
use hayloft_testkit::files::WrittenFiles;
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::node::{Kind, VirtualSite};
use hayloft_testkit::s3_server::{self, S3Server};
use hayloft_testkit::{Cluster, Driver, NodeSpec, TestkitError, VolumeSpec};
use serde_json::Value;

/// Block size of clients, bytes: more than goes to a store in one part.
pub const BLOCK: u64 = 12 << 20;

/// What cases share.
pub struct Lab {
    pub cluster: Cluster,
    pub fs: Driver,
    pub files: WrittenFiles,
    /// `None`, and why, where no server can be had.
    pub server: std::result::Result<S3Server, String>,
    /// How many places were given out.
    prefixes: u32,
}

/// What a command did.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub json: Value,
    pub stderr: String,
}

pub fn start() -> Result<Lab> {
    let volumes = vec![VolumeSpec::typed("DISK"), VolumeSpec::typed("SSD")];
    start_of(NodeSpec::new(Kind::Hayloft).volumes(volumes))
}

/// Names of virtual nodes.
pub const VIRTUAL: [&str; 2] = ["east", "west"];

/// Two virtual nodes of one process in the place of the node.
pub fn start_virtual() -> Result<Lab> {
    let sites = VIRTUAL.iter().zip([1, 2]);
    let sites = sites.map(|(name, last)| VirtualSite::free(*name, [127, 0, 9, last].into()));
    start_of(NodeSpec::new(Kind::Hayloft).virtual_nodes(sites.collect::<Result<_>>()?))
}

fn start_of(spec: NodeSpec) -> Result<Lab> {
    let cluster = Cluster::builder("snapshot")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .node(spec)
        .start()?;
    let fs = cluster.driver()?;
    let server = match s3_server::program() {
        Ok(program) => Ok(S3Server::start(&program, cluster.dir(), None)?),
        Err(why) => Err(why),
    };
    let mut lab = Lab {
        cluster,
        fs,
        files: WrittenFiles::default(),
        server,
        prefixes: 0,
    };
    for (at, bytes) in [0, 1, 511, 70_000, BLOCK, 2 * BLOCK + 12_345]
        .into_iter()
        .enumerate()
    {
        lab.files.put(&lab.fs, &format!("/first/{at}"), bytes)?;
    }
    lab.files.wait_replicas(&lab.fs, 1)?;
    Ok(lab)
}

impl Lab {
    /// A place of its own in the server's bucket.
    pub fn prefix(&mut self) -> String {
        self.prefixes += 1;
        format!("s3://{}/case-{}", s3_server::BUCKET, self.prefixes)
    }

    /// A directory of its own.
    pub fn directory(&mut self) -> Result<(String, PathBuf)> {
        self.prefixes += 1;
        let dir = self.cluster.dir().join(format!("store-{}", self.prefixes));
        std::fs::create_dir_all(&dir).map_err(TestkitError::file("creating", &dir))?;
        Ok((format!("file://{}", dir.display()), dir))
    }

    fn command(&mut self, command: &str, to: &str, more: &[&str]) -> Result<Command> {
        let mut hayloft = Command::new(hayloft_binary()?);
        hayloft
            .args(["snapshot", command, "--json", "--conf"])
            .arg(self.cluster.node(0).conf_dir())
            .args(["--to", to])
            .args(more)
            .stdin(Stdio::null());
        if let Ok(server) = &self.server {
            hayloft.envs(server.env());
        }
        Ok(hayloft)
    }

    /// Runs `hayloft snapshot` with a server's environment, or with that of the lab's own.
    pub fn snapshot(&mut self, command: &str, to: &str, more: &[&str]) -> Result<Said> {
        let hayloft = self.command(command, to, more)?;
        said(hayloft)
    }

    /// The same for another server.
    pub fn snapshot_on(&mut self, server: &S3Server, command: &str, to: &str) -> Result<Said> {
        let mut hayloft = self.command(command, to, &[])?;
        hayloft.envs(server.env());
        said(hayloft)
    }

    /// As [`Lab::snapshot`], which must end well.
    pub fn well(&mut self, command: &str, to: &str, more: &[&str]) -> Result<Value> {
        let said = self.snapshot(command, to, more)?;
        expect(said.code == Some(0), || format!("{command}: {said:?}"))?;
        Ok(said.json)
    }

    /// Starts the command, to be killed.
    pub fn begin(&mut self, command: &str, to: &str, more: &[&str]) -> Result<Child> {
        let mut hayloft = self.command(command, to, more)?;
        hayloft.stdout(Stdio::null()).stderr(Stdio::null());
        let child = hayloft.spawn();
        child.map_err(|e| TestkitError::Talk(format!("hayloft: {e}")))
    }

    /// All that lies in a snapshot's store, counted by the store's own list.
    pub fn manifests(&mut self, to: &str) -> Result<usize> {
        let listed = self.well("list", to, &[])?;
        Ok(listed.as_array().map_or(0, Vec::len))
    }

    /// Stops the node, and takes its disks away.
    pub fn lose_the_node(&mut self) -> Result<()> {
        let node = self.cluster.node(0);
        if node.is_started() {
            node.kill()?;
        }
        let volumes: Vec<PathBuf> = node.volumes().map(Path::to_path_buf).collect();
        for volume in volumes {
            std::fs::remove_dir_all(&volume).map_err(TestkitError::file("removing", &volume))?;
        }
        Ok(())
    }

    /// Starts the node, and has the stock client read all files.
    pub fn read_all_back(&mut self) -> Result<()> {
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        self.files.wait_replicas(&self.fs, 1)?;
        self.files.check(&self.fs)
    }
}

fn said(mut hayloft: Command) -> Result<Said> {
    let output = hayloft.output();
    let output = output.map_err(|e| TestkitError::Talk(format!("hayloft: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Said {
        code: output.status.code(),
        json: serde_json::from_str(&text).unwrap_or(Value::Null),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
