//! What install.md says of containers: its YAML, its Dockerfile and its command fit the image, and
//! a Hadoop that is changed as it says starts our node as Stackable's operator starts Apache's, at
//! an address that only a proxy has. No operator runs.

use crate::BLOCK;
use crate::host::{DebianHost, HADOOP_HOME, Packages};
use crate::image::{UnpackedImage, container_log, end_container};
use crate::systemd::OF_HDFS;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::{Process, Spawn};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError, mounts, ports};
use serde_json::{Value, json};
use std::fs;
use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where Stackable's images have Hadoop.
const ITS_HADOOP: &str = "/stackable/hadoop";
/// Bytes of the file that is written.
const FILE: u64 = 12 * BLOCK + 777;
/// The container's command: as the operator's it begins the node behind it, passes signals on and
/// ends with the node.
const COMMAND: &str = "trap 'kill -TERM $node' TERM\n\
    /stackable/hadoop/bin/hdfs datanode &\n\
    node=$!\n\
    while kill -0 $node 2>/dev/null; do wait $node || :; done\n\
    wait $node";

/// Adds the cases; `missing` is why there is no image or no Debian.
pub fn cases(suite: &mut Suite, missing: Option<String>) {
    if let Some(why) = missing {
        suite.case("containers_as_the_page_says", move || {
            Ok(Outcome::Skipped(why))
        });
        return;
    }
    suite.case("the_page_of_containers_fits_the_image", page_fits);
    let mut on = suite.group(Lab::start, Lab::end);
    on.case("a_hadoop_changed_as_the_page_says", |lab| lab.node());
    on.case("a_container_of_it_that_stops", |lab| lab.stops());
}

/// The section of install.md, and the blocks of code in it.
struct Page {
    text: String,
    /// Each with its language.
    blocks: Vec<(String, String)>,
}

impl Page {
    fn read() -> Result<Self> {
        let path = repository_root().join("docs/operate/install.md");
        let all = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
        let section = all
            .split("\n## ")
            .find(|of| of.starts_with("A container\n"));
        let text = section.unwrap_or_default().to_owned();
        let blocks = text.split("```").skip(1).step_by(2);
        let blocks = blocks.filter_map(|block| block.split_once('\n'));
        let blocks = blocks.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
        let blocks = blocks.collect();
        Ok(Self { text, blocks })
    }

    fn block(&self, words: &str) -> Result<&str> {
        let found = self.blocks.iter().find(|(_, text)| text.contains(words));
        let found = found.map(|(_, text)| &**text);
        found.ok_or_else(|| TestkitError::Expectation(format!("no block has {words:?}")))
    }

    /// `COPY --from=IMAGE FROM INTO` of the Dockerfile.
    fn copies(&self) -> Result<Vec<[String; 3]>> {
        let file = self.block("FROM ")?.replace("\\\n", " ");
        let copies = file
            .lines()
            .filter_map(|line| line.strip_prefix("COPY --from="));
        let words = copies.map(|line| line.split_whitespace().map(str::to_owned).collect());
        let words = words.filter_map(|of: Vec<String>| <[String; 3]>::try_from(of).ok());
        let words: Vec<_> = words.collect();
        expect_eq("copies", words.len(), 2)?;
        Ok(words)
    }
}

/// YAML as JSON; `None` where nothing here reads it.
fn yaml(text: &str) -> Result<Option<Value>> {
    let python = |script: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", script]).stdin(Stdio::null());
        python
    };
    if mounts::run(&mut python("import yaml")).is_err() {
        return Ok(None);
    }
    let load = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])))";
    let said = mounts::run(python(load).arg(text))?;
    let parsed = serde_json::from_str(&said);
    parsed.map_err(|error| TestkitError::Expectation(format!("{error}: {said}")))
}

/// The last part of an image's name with its tag.
fn name_and_tag(image: &str) -> (&str, &str) {
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').unwrap_or((last, ""))
}

fn page_fits() -> Result<Outcome> {
    let (page, image) = (Page::read()?, UnpackedImage::make()?);
    let (Some(plain), Some(operators)) = (
        yaml(page.block("command:")?)?,
        yaml(page.block("productVersion")?)?,
    ) else {
        return Ok(Outcome::Skipped("no YAML: install python3-yaml".into()));
    };
    // A chart's container.
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = text(&plain["image"]);
    expect_eq("the image", named.rsplit('/').next(), Some(&*image.name))?;
    let program = image.words(&["Entrypoint"]);
    let command = plain["command"].as_array().into_iter().flatten().map(text);
    expect_eq("the command", command.collect(), program.clone())?;
    // Podman's line.
    let package = Packages::ready()?.file(".tar.gz")?;
    let package = package.file_name().unwrap_or_default().to_string_lossy();
    let run = page.block("podman run")?;
    for part in [
        package.replace(".tar.gz", ".oci.tar"),
        format!("{} -D", image.name),
        format!(":{}:ro", image.variable("HADOOP_CONF_DIR")),
        ":/data ".to_owned(),
    ] {
        expect(run.contains(&part), || format!("no {part:?} in {run}"))?;
    }
    let user = image.config["config"]["User"].as_str().unwrap_or_default();
    let (user, group) = user.split_once(':').unwrap_or_default();
    let said = format!("user is {user} of group {group}");
    expect(page.text.contains(&said), || format!("no {said:?}"))?;
    // The two lines of the operator.
    let selected = &operators["spec"]["image"];
    let keys = selected.as_object().map(|of| of.keys().cloned().collect());
    let want = vec!["custom".to_owned(), "productVersion".to_owned()];
    expect_eq("keys", keys, Some(want))?;
    let (version, custom) = (text(&selected["productVersion"]), text(&selected["custom"]));
    let (name, tag) = name_and_tag(&custom);
    let of_version = !version.is_empty() && tag.starts_with(&format!("{version}-"));
    expect(of_version, || format!("{custom} of {version:?}"))?;
    let from = page.block("FROM ")?.lines().next().unwrap_or_default();
    let base = name_and_tag(from.trim_start_matches("FROM "));
    expect_eq("the base", base.0, name)?;
    copies_fit(&page, &image, &program[0])?;
    passed()
}

/// What is copied is in the image, and goes where the shell profile and Hadoop look for it.
fn copies_fit(page: &Page, image: &UnpackedImage, program: &str) -> Result<()> {
    let copies = page.copies()?;
    for [of, from, _] in &copies {
        expect_eq("copied from", of, &image.name)?;
        let there = image.root().join(from.trim_start_matches('/'));
        expect(there.is_file(), || format!("no {from} in the image"))?;
    }
    let [[_, binary, into], [_, profile, dir]] = &copies[..] else {
        return expect(false, || "two copies".into());
    };
    expect_eq("the program", (&**binary, &**into), (program, program))?;
    let at = image.root().join(profile.trim_start_matches('/'));
    let profile = fs::read_to_string(&at).map_err(TestkitError::file("reading", &at))?;
    expect(profile.contains(&format!(":-{program}}}")), || profile)?;
    let wanted = format!("{ITS_HADOOP}/libexec/shellprofile.d/");
    expect_eq("the profile's place", dir, &wanted)
}

/// Passes connections on, and counts them.
fn proxy(from: u16, to: u16) -> Result<Arc<AtomicUsize>> {
    let listener = TcpListener::bind(ports::local(from));
    let listener = listener.map_err(TestkitError::file("opening", Path::new("a port")))?;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    // It ends with the suite.
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            let Ok(far) = TcpStream::connect(ports::local(to)) else {
                continue;
            };
            for (from, to) in [(&near, &far), (&far, &near)] {
                if let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) {
                    std::thread::spawn(move || {
                        let _ = copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        }
    });
    Ok(count)
}

struct Lab {
    fs: Driver,
    container: Option<Process>,
    host: DebianHost,
    cluster: Cluster,
    /// Ports of data transfer and RPC that NameNodes are told.
    told: [u16; 2],
    through: Arc<AtomicUsize>,
}

impl Lab {
    fn start() -> Result<Self> {
        let mut cluster = Cluster::builder("stackable")
            .nodes(1, Kind::Hayloft)
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", BLOCK)
            .start()?;
        let fs = cluster.driver()?;
        let node = cluster.node(0);
        node.stop()?;
        let own = [ports::free()?, ports::free()?];
        let told = [ports::free()?, ports::free()?];
        let [xfer, ipc] = own.map(|port| format!("127.0.0.1:{port}"));
        node.conf_mut()
            .set("dfs.datanode.address", xfer)
            .set("dfs.datanode.ipc.address", ipc)
            .set("dfs.datanode.registered.hostname", "${env.POD_ADDRESS}")
            .set("dfs.datanode.registered.port", "${env.DATA_PORT}")
            .set("dfs.datanode.registered.ipc.port", "${env.IPC_PORT}");
        let conf = node.conf_dir();
        let volumes: Vec<_> = node
            .volumes()
            .map(|dir| dir.display().to_string())
            .collect();
        cluster.rewrite_node_conf(0)?;
        let through = proxy(told[0], own[0])?;
        proxy(told[1], own[1])?;
        let tar = repository_root().join("target/debian/root.tar");
        let host = DebianHost::without_package(&tar, &cluster, &conf)?;
        let dirs = [&host.conf, cluster.dir()].map(|dir| dir.display().to_string());
        let words = ["sh", "-c", OF_HDFS, "sh", &dirs[0], &dirs[1]];
        let volumes = volumes.iter().map(String::as_str);
        host.run(&words.into_iter().chain(volumes).collect::<Vec<_>>())?;
        change_as_the_page_says(&host)?;
        Ok(Self {
            fs,
            container: None,
            host,
            cluster,
            told,
            through,
        })
    }

    fn end(self, failed: bool) {
        end_container(self.cluster, self.container, failed);
    }

    /// Begins the container: a user of group 0, variables that the operator sets, its command.
    fn begin(&mut self) -> Result<()> {
        // The node that ran before counts as dead first.
        self.cluster.namenode(0).wait_live(0, seconds(60))?;
        let [data, ipc] = self.told;
        let (data, ipc) = (format!("DATA_PORT={data}"), format!("IPC_PORT={ipc}"));
        let conf = format!("HADOOP_CONF_DIR={}", self.host.conf.display());
        let home = format!("HADOOP_HOME={ITS_HADOOP}");
        let user = [
            "setpriv",
            "--reuid=hdfs",
            "--regid=0",
            "--clear-groups",
            "--",
        ];
        let env = ["env", &conf, &home, "POD_ADDRESS=localhost", &data, &ipc];
        let bash = ["/bin/bash", "-x", "-euo", "pipefail", "-c", COMMAND];
        let inside = self.host.command(&[&user[..], &env, &bash].concat());
        let first = ["unshare", "--pid", "--fork", "--kill-child"];
        let mut argv = first.map(str::to_owned).to_vec();
        let words = std::iter::once(inside.get_program()).chain(inside.get_args());
        argv.extend(words.map(|word| word.to_string_lossy().into_owned()));
        self.container = Some(Spawn::new("container", argv, container_log(&self.cluster)).start()?);
        self.cluster.namenode(0).wait_live(1, seconds(60))
    }

    fn node(&mut self) -> Result<Outcome> {
        self.begin()?;
        self.fs.put("/in-a-container", FILE, 5, json!({}))?;
        self.fs.check("/in-a-container", FILE, 5)?;
        let passed_on = self.through.load(Ordering::Relaxed);
        expect(passed_on >= 2, || format!("{passed_on} came by the proxy"))?;
        let told = self.fs.dfsadmin(&["-report"])?;
        let name = format!(":{} (localhost)", self.told[0]);
        expect(told.contains(&name), || told.clone())?;
        passed()
    }

    /// What the container's first process is told ends the node well.
    fn stops(&mut self) -> Result<Outcome> {
        if self.container.is_none() {
            self.begin()?;
        }
        let first = self.container.as_ref().map_or(0, Process::pid);
        let children = PathBuf::from(format!("/proc/{first}/task/{first}/children"));
        let bash =
            fs::read_to_string(&children).map_err(TestkitError::file("reading", &children))?;
        mounts::run(Command::new("kill").args(["-TERM", bash.trim()]))?;
        if let Some(container) = &mut self.container {
            let ended = container.wait(seconds(20))?;
            expect_eq("exit code", ended.code(), Some(0))?;
        }
        let log = container_log(&self.cluster);
        let said = fs::read_to_string(&log).map_err(TestkitError::file("reading", &log))?;
        expect(said.contains("SIGTERM received"), || said.clone())?;
        passed()
    }
}

/// Makes of the host what the Dockerfile makes of Stackable's image.
fn change_as_the_page_says(host: &DebianHost) -> Result<()> {
    host.run(&["mkdir", "/stackable"])?;
    host.run(&["ln", "-s", HADOOP_HOME, ITS_HADOOP])?;
    let image = UnpackedImage::make()?;
    for [_, from, into] in Page::read()?.copies()? {
        let from = image.root().join(from.trim_start_matches('/'));
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        let at = match into.strip_suffix('/') {
            Some(dir) => format!("{dir}/{name}"),
            None => into,
        };
        // A link of the root leads out of it from here.
        let at = host.at(at.replace(ITS_HADOOP, HADOOP_HOME));
        if let Some(dir) = at.parent() {
            fs::create_dir_all(dir).map_err(TestkitError::file("making", dir))?;
        }
        fs::copy(&from, &at).map_err(TestkitError::file("copying", &from))?;
    }
    Ok(())
}
