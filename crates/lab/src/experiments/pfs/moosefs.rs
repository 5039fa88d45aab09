//! MooseFS on the hosts and disks of a testbed: a master beside the NameNode, a chunk server and
//! mounts on every host.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::mounts::run;
use hayloft_testkit::process::{Process, Spawn};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::where_processes_run::{Place, inside};

use crate::net;
use crate::up::Testbed;

/// Programs, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("mfsmaster", "moosefs-master"),
    ("mfschunkserver", "moosefs-chunkserver"),
    ("mfsmount", "moosefs-client"),
    ("mfsfileinfo", "moosefs-client"),
    ("mfsscadmin", "moosefs-client"),
    ("mfssetsclass", "moosefs-client"),
];
/// The metadata of an empty file system, as the master's package has it.
const EMPTY: &str = "/var/lib/mfs/metadata.mfs.empty";
/// Where the master answers mounts, unless told otherwise.
const CLIENT_PORT: u16 = 9421;
/// Where a chunk server answers clients.
const CHUNK_PORT: u16 = 9422;
const START_LIMIT: Duration = Duration::from_secs(60);

/// MooseFS of a testbed. Its processes end with it.
pub(super) struct MooseFs {
    dir: PathBuf,
    testbed: String,
    hosts: Vec<String>,
    servers: Vec<Process>,
    _master: Process,
    _mounts: Vec<Process>,
}

/// What this machine lacks, with what installs it.
///
/// # Errors
/// [`TestkitError::Missing`].
pub(super) fn check() -> Result<()> {
    let lacks = |what: String, todo: String| Err(TestkitError::Missing { what, todo });
    for (program, package) in PROGRAMS {
        if !crate::in_path(program) {
            let todo = format!("apt-get install {package}");
            return lacks(format!("the program {program}"), todo);
        }
    }
    if !Path::new(EMPTY).is_file() {
        let todo = "apt-get install --reinstall moosefs-master".into();
        return lacks(format!("the file {EMPTY}"), todo);
    }
    jar().map(drop)
}

/// The jar with `pfs://`.
///
/// # Errors
/// [`TestkitError::Missing`] when it has not been built.
pub(super) fn jar() -> Result<PathBuf> {
    let path = repository_root().join("hadoop/pfs/target/hayloft-pfs.jar");
    if path.is_file() {
        return Ok(path);
    }
    Err(TestkitError::Missing {
        what: format!("the jar {}", path.display()),
        todo: "run `mvn -q -f hadoop/pom.xml package -DskipTests`".into(),
    })
}

impl MooseFs {
    /// Starts it on the disks of the testbed's nodes, beside what HDFS has there. Every host gets
    /// two mounts: one as users have it, one without the kernel's page cache.
    ///
    /// # Errors
    /// When a process does not start, or not every server comes up.
    pub(super) fn start(testbed: &Testbed) -> Result<Self> {
        let dir = testbed.dir().join("mfs");
        // A chunk server that knew another master would not join this one.
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TestkitError::file("removing", dir)(error));
            }
            _ => {}
        }
        let name = &testbed.described().name;
        make(&dir)?;
        let place = net::place(name, net::NAMENODE_HOST, None, false);
        let master = start_master(&dir, &place)?;
        let mut servers = Vec::new();
        let mut hosts = Vec::new();
        for (at, node) in testbed.nodes().iter().enumerate() {
            let disk = node.disks.first().map(|disk| disk.dir.join("mfs"));
            let disk = disk.expect("a node has a disk");
            let place = net::place(name, &node.host, Some(at), false);
            servers.push(start_server(&dir, (at, &node.host), &disk, &place)?);
            hosts.push(node.host.clone());
        }
        let mut moose = Self {
            _mounts: Vec::new(),
            dir,
            testbed: name.clone(),
            hosts,
            servers,
            _master: master,
        };
        for host in moose.hosts.clone() {
            for direct in [false, true] {
                let mounted = moose.mount(&host, direct)?;
                moose._mounts.push(mounted);
            }
        }
        moose.prepare()?;
        Ok(moose)
    }

    /// Where a host has it.
    pub(super) fn root(&self, host: &str, direct: bool) -> PathBuf {
        let way = if direct { "-direct" } else { "" };
        self.dir.join(format!("mnt-{host}{way}"))
    }

    fn mount(&self, host: &str, direct: bool) -> Result<Process> {
        let root = self.root(host, direct);
        make(&root)?;
        let mode = if direct { "DIRECT" } else { "AUTO" };
        let options = format!("mfsioretries=4,mfsnice=0,mfscachemode={mode}");
        let master = net::address(None).to_string();
        let words = ["mfsmount", "-f", "-H", &master, "-o", &options];
        let mut argv: Vec<String> = words.map(String::from).to_vec();
        argv.push(root.display().to_string());
        let place = net::place(&self.testbed, host, None, false);
        let log = self.dir.join(format!("mount-{host}.log"));
        let mut process = place.put(Spawn::new("mfsmount", argv, log)).start()?;
        wait::until("a mount of MooseFS", START_LIMIT, || {
            process.check_alive()?;
            let parent = std::fs::metadata(&self.dir).ok();
            let own = std::fs::metadata(&root).ok();
            let device = |of: Option<std::fs::Metadata>| {
                of.map(|m| std::os::linux::fs::MetadataExt::st_dev(&m))
            };
            Ok(match (device(parent), device(own)) {
                (Some(a), Some(b)) if a != b => Seen::Done(()),
                _ => Seen::NotYet("not mounted".into()),
            })
        })?;
        Ok(process)
    }

    /// One copy of everything, nothing in a trash, and a directory for copies on each server.
    fn prepare(&self) -> Result<()> {
        let host = &self.hosts[0];
        let root = self.root(host, false);
        let at = |below: &str| root.join(below).display().to_string();
        self.tool(host, &["mfssetgoal", "1", &at("")])?;
        self.tool(host, &["mfssettrashtime", "0", &at("")])?;
        for (index, server) in self.hosts.iter().enumerate() {
            let copies = at(&format!(".copies/{server}"));
            let only = at(&format!("on-{server}"));
            let class = format!("on-{server}");
            let label = label(index);
            let create = ["mfsscadmin", &at(""), "create", "-m", "strict"];
            self.tool(host, &[create.as_slice(), &[&label, &class]].concat())?;
            for dir in [&copies, &only] {
                make(Path::new(dir))?;
                self.tool(host, &["mfssetsclass", &class, dir])?;
            }
        }
        wait::until("a file on every server", START_LIMIT, || {
            let written = self.hosts.iter().try_for_each(|server| {
                let path = root.join(format!("on-{server}/.ready"));
                std::fs::write(&path, "here")?;
                std::fs::remove_file(&path)
            });
            Ok(match written {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
    }

    /// MooseFS's tools speak with the mount of the host where they run.
    fn tool(&self, host: &str, argv: &[&str]) -> Result<()> {
        let argv = argv.iter().map(ToString::to_string).collect();
        let argv = inside(&net::namespace(&self.testbed, host), argv);
        run(Command::new(&argv[0]).args(&argv[1..])).map(drop)
    }

    /// What a client of `pfs://` on `host` is configured with: `copies` of each file in `layout`.
    /// Hosts are called by their addresses, as HDFS's are here.
    pub(super) fn conf(&self, host: &str, copies: usize, layout: &str, direct: bool) -> Conf {
        let addresses = (0..self.hosts.len()).map(|at| net::address(Some(at)));
        let both = || self.hosts.iter().zip(addresses.clone());
        let list = |of: &dyn Fn(&String, Ipv4Addr) -> String| {
            let all: Vec<String> = both().map(|(server, at)| of(server, at)).collect();
            all.join(",")
        };
        let own = both().find(|(server, _)| *server == host);
        Conf::new()
            .with("fs.pfs.root", self.root(host, direct).display())
            .with("fs.AbstractFileSystem.pfs.impl", "io.hayloft.pfs.Pfs")
            .with("fs.pfs.layout", "moosefs")
            .with("fs.pfs.hosts", list(&|_, at| format!("{at}={at}")))
            .with(
                "fs.pfs.host",
                own.map_or(String::new(), |(_, at)| at.to_string()),
            )
            .with(
                "fs.pfs.targets",
                list(&|server, at| format!("{at}=/.copies/{server}")),
            )
            .with("fs.pfs.copies", copies)
            .with("fs.pfs.copies.layout", layout)
    }

    /// Kills all chunk servers but that of the host in this position.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn kill_all_but(&mut self, kept: usize) -> Result<()> {
        let servers = self.servers.iter_mut().enumerate();
        let mut lost = servers.filter(|(at, _)| *at != kept);
        lost.try_for_each(|(_, server)| server.kill().map(drop))
    }
}

impl Drop for MooseFs {
    fn drop(&mut self) {
        // Lazily, and before the servers end: a mount whose server is gone would hang.
        for host in &self.hosts {
            for direct in [false, true] {
                let root = self.root(host, direct);
                let _not_mounted = run(Command::new("umount").arg("-l").arg(root));
            }
        }
    }
}

/// The label of a server, by its position: MooseFS has the letters A to Z.
fn label(at: usize) -> String {
    let letter = u8::try_from(at)
        .ok()
        .filter(|at| *at < 26)
        .map(|at| b'A' + at);
    char::from(letter.expect("at most 26 servers")).to_string()
}

fn make(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(TestkitError::file("creating", dir))
}

fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(TestkitError::file("writing", path))
}

fn start_master(dir: &Path, place: &Place) -> Result<Process> {
    let own = dir.join("master");
    make(&own)?;
    let metadata = own.join("metadata.mfs");
    std::fs::copy(EMPTY, &metadata).map_err(TestkitError::file("copying", EMPTY))?;
    save(
        &own.join("exports"),
        "* / rw,alldirs,admin,maproot=0,ignoregid\n",
    )?;
    save(&own.join("topology"), "")?;
    let at = own.display();
    let text = format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\nDATA_PATH = {at}\n\
         EXPORTS_FILENAME = {at}/exports\nTOPOLOGY_FILENAME = {at}/topology\n\
         REPLICATIONS_DELAY_INIT = 3600\nCHUNKS_LOOP_MIN_TIME = 60\n"
    );
    let mut master = foreground("mfsmaster", &own, &text, place)?;
    place.wait_open(CLIENT_PORT, START_LIMIT, || master.check_alive())?;
    Ok(master)
}

/// A chunk is on the disk when its file's close returns, as a block of HDFS is here; no chunk is
/// tested meanwhile.
fn start_server(
    dir: &Path,
    (at, host): (usize, &str),
    disk: &Path,
    place: &Place,
) -> Result<Process> {
    let own = dir.join(host);
    make(&own)?;
    make(disk)?;
    save(&own.join("hdd"), &format!("{}\n", disk.display()))?;
    let (data, master, label) = (own.display(), net::address(None), label(at));
    let text = format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\nDATA_PATH = {data}\n\
         HDD_CONF_FILENAME = {data}/hdd\nHDD_LEAVE_SPACE_DEFAULT = 64MiB\nHDD_TEST_FREQ = 3600\n\
         HDD_FSYNC_BEFORE_CLOSE = 1\nLABELS = {label}\nMASTER_HOST = {master}\n"
    );
    let mut server = foreground("mfschunkserver", &own, &text, place)?;
    place.wait_open(CHUNK_PORT, START_LIMIT, || server.check_alive())?;
    Ok(server)
}

fn foreground(program: &str, own: &Path, text: &str, place: &Place) -> Result<Process> {
    let cfg = own.join("cfg");
    save(&cfg, text)?;
    let cfg = cfg.display().to_string();
    let argv = [program, "-f", "-c", &cfg, "start"]
        .map(String::from)
        .to_vec();
    place
        .put(Spawn::new(program, argv, own.join("log")))
        .start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_a_letter_of_its_own() {
        let labels: Vec<String> = (0..6).map(label).collect();
        assert_eq!(labels, ["A", "B", "C", "D", "E", "F"]);
    }
}
