//! The image: what is in it, and a node started from it with as little as a runtime of containers
//! gives: another user than root, a root that nothing writes to, the configuration and one volume.

use crate::host::Packages;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{repository_root, scratch};
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::{Process, Spawn};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{Seen, until};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError, mounts};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Bytes of the file that is written.
const FILE: u64 = 12 * BLOCK + 777;
/// What our layer may hold.
const OURS: [&str; 9] = [
    "data/",
    "etc/hadoop/",
    "etc/hadoop/conf/",
    "etc/passwd",
    "usr/bin/hayloft",
    "usr/lib/hayloft/",
    "usr/lib/hayloft/raw.so",
    "usr/share/doc/hayloft/",
    "usr/share/hayloft/",
];

/// Becomes a program in the root, as a user: the root, the configuration and what may be written
/// are the first three arguments, the user is the fourth.
const CONTAINER: &str = r#"
set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$2" "$root/etc/hadoop/conf"
mount -o remount,bind,ro "$root/etc/hadoop/conf"
mount --bind "$3" "$root/data"
mount -o remount,bind,ro "$root"
user=$4
shift 4
exec chroot --userspec="$user" --groups= "$root" "$@"
"#;

/// Adds the cases of the image; `missing` is why there is no Debian to build on.
pub fn cases(suite: &mut Suite, missing: Option<String>) {
    if let Some(why) = missing {
        suite.case("an_image", move || Ok(Outcome::Skipped(why)));
        return;
    }
    suite.case("the_same_image_twice", same_image);
    let mut on = suite.group(Lab::start, Lab::end);
    on.case("files_of_the_image", |lab| lab.files());
    on.case("what_the_image_says_of_itself", |lab| lab.config());
    on.case("a_node_in_a_container", |lab| lab.node());
    on.case("the_container_again", |lab| lab.again());
}

/// Builds it from the package.
fn build(into: &Path) -> Result<()> {
    let package = Packages::ready()?.file(".tar.gz")?;
    let mut command = Command::new(repository_root().join("scripts/image"));
    command.arg("--of").arg(package).arg("--into").arg(into);
    mounts::run(&mut command).map(drop)
}

fn same_image() -> Result<Outcome> {
    let dir = scratch("image-")?;
    let sum = |name: &str| {
        let path = dir.path().join(name);
        build(&path)?;
        let said = mounts::run(Command::new("sha256sum").arg(&path))?;
        Ok::<_, TestkitError>(said.split(' ').next().unwrap_or_default().to_owned())
    };
    expect_eq("checksums", sum("b.oci.tar")?, sum("a.oci.tar")?)?;
    passed()
}

/// An image, unpacked: blobs by their names, and the root that its layers make.
pub struct UnpackedImage {
    dir: tempfile::TempDir,
    /// Name and tag.
    pub name: String,
    pub config: Value,
    layers: Vec<PathBuf>,
}

impl UnpackedImage {
    /// Builds it from the package.
    pub fn make() -> Result<Self> {
        let dir = scratch("image-")?;
        let (tar, layout) = (dir.path().join("image.oci.tar"), dir.path().join("layout"));
        let root = dir.path().join("root");
        for made in [&layout, &root] {
            fs::create_dir_all(made).map_err(TestkitError::file("making", made))?;
        }
        build(&tar)?;
        unpack(&tar, &layout)?;
        let blob = |of: &Value| {
            let digest = of["digest"].as_str().unwrap_or_default();
            layout.join("blobs").join(digest.replace(':', "/"))
        };
        let index = read(&layout.join("index.json"))?;
        let manifest = read(&blob(&index["manifests"][0]))?;
        let config = read(&blob(&manifest["config"]))?;
        let layers: Vec<_> = manifest["layers"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        let layers: Vec<PathBuf> = layers.into_iter().map(blob).collect();
        for layer in &layers {
            unpack(layer, &root)?;
        }
        // What a runtime brings.
        fs::copy("/etc/hosts", root.join("etc/hosts"))
            .map_err(TestkitError::file("copying", "/etc/hosts"))?;
        let annotations = &index["manifests"][0]["annotations"];
        let name = annotations["org.opencontainers.image.ref.name"].as_str();
        Ok(Self {
            dir,
            name: name.unwrap_or_default().to_owned(),
            config,
            layers,
        })
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A variable of its environment.
    pub fn variable(&self, name: &str) -> String {
        let words = self.words(&["Env"]);
        let mut pairs = words.iter().filter_map(|word| word.split_once('='));
        let found = pairs.find(|(of, _)| *of == name);
        found.map_or_else(String::new, |(_, value)| value.to_owned())
    }

    /// Words of the configuration's list.
    pub fn words(&self, of: &[&str]) -> Vec<String> {
        let value = of.iter().fold(&self.config["config"], |at, key| &at[*key]);
        let words = value.as_array().into_iter().flatten();
        words
            .filter_map(|word| Some(word.as_str()?.to_owned()))
            .collect()
    }
}

fn unpack(tar: &Path, into: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command.args(["--numeric-owner", "-xf"]).arg(tar);
    mounts::run(command.arg("-C").arg(into)).map(drop)
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).map_err(TestkitError::file("reading", path))?;
    let parsed = serde_json::from_str(&text);
    parsed.map_err(|error| TestkitError::Expectation(format!("{}: {error}", path.display())))
}

/// Ends a container, then its cluster; of cases that failed its log is shown.
pub fn end_container(cluster: Cluster, container: Option<Process>, failed: bool) {
    if failed {
        println!(
            "{}",
            hayloft_testkit::process::tail(&container_log(&cluster))
        );
    }
    drop(container);
    cluster.conclude(failed);
}

/// What the container's processes say.
pub fn container_log(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("container.log")
}

struct Lab {
    // Dropped first to last: the client ends before its cluster.
    fs: Driver,
    container: Option<Process>,
    cluster: Cluster,
    image: UnpackedImage,
    /// Mounted read-only.
    conf: PathBuf,
    /// Mounted for the node to write to.
    data: PathBuf,
}

impl Lab {
    fn start() -> Result<Self> {
        let mut cluster = Cluster::builder("image")
            .nodes(1, Kind::Hayloft)
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", BLOCK)
            .start()?;
        let fs = cluster.driver()?;
        let data = cluster.dir().join("volume");
        fs::create_dir_all(&data).map_err(TestkitError::file("making", &data))?;
        mounts::run(Command::new("chown").arg("1000:0").arg(&data))?;
        let node = cluster.node(0);
        node.stop()?;
        node.conf_mut()
            .set("dfs.datanode.data.dir", "/data/first,/data/second");
        let conf = node.conf_dir();
        cluster.rewrite_node_conf(0)?;
        Ok(Self {
            fs,
            container: None,
            image: UnpackedImage::make()?,
            cluster,
            conf,
            data,
        })
    }

    fn end(self, failed: bool) {
        end_container(self.cluster, self.container, failed);
    }

    /// The layers bring what they should, to their owners, and nothing that gives rights.
    fn files(&mut self) -> Result<Outcome> {
        expect_eq("layers", self.image.layers.len(), 2)?;
        for layer in &self.image.layers {
            // The name says what it is.
            let said = mounts::run(Command::new("sha256sum").arg(layer))?;
            let name = layer.file_name().unwrap_or_default().to_string_lossy();
            expect(said.starts_with(&*name), || said.clone())?;
            let list = mounts::run(
                Command::new("tar")
                    .args(["--numeric-owner", "-tvf"])
                    .arg(layer),
            )?;
            for line in list.lines() {
                // In a directory it says whose new files are, and gives no rights.
                let mode = line.split(' ').next().unwrap_or_default();
                let gives = mode.starts_with('-') && mode.contains(['s', 'S']);
                expect(!gives, || line.to_owned())?;
            }
            println!("{} bytes in {} entries", size(layer)?, list.lines().count());
        }
        let ours = self.image.layers.last().cloned().unwrap_or_default();
        let list = mounts::run(
            Command::new("tar")
                .args(["--numeric-owner", "-tvf"])
                .arg(ours),
        )?;
        for line in list.lines() {
            let name = line.split_whitespace().nth(5).unwrap_or_default();
            let below = |of: &str| of.starts_with("usr/share/") && name.starts_with(of);
            let known = OURS.iter().any(|of| name == *of || below(of));
            expect(known, || line.to_owned())?;
            let right = match name {
                "data/" => "drwxrwxr-x 1000/0 ",
                "usr/bin/hayloft" => "-rwxr-xr-x 0/0 ",
                _ if name.ends_with('/') => "drwxr-xr-x 0/0 ",
                _ => "-rw-r--r-- 0/0 ",
            };
            expect(line.starts_with(right), || line.to_owned())?;
        }
        passed()
    }

    fn config(&mut self) -> Result<Outcome> {
        let config = &self.image.config["config"];
        expect(config["User"] == "1000:0", || config.to_string())?;
        let entry = self.image.words(&["Entrypoint"]);
        expect_eq(
            "entry point",
            entry.join(" "),
            "/usr/bin/hayloft node".into(),
        )?;
        let said = self.run(&["/usr/bin/hayloft", "--version"])?;
        let label = |name: &str| {
            let labels = &config["Labels"];
            labels[format!("org.opencontainers.image.{name}")]
                .as_str()
                .unwrap_or_default()
        };
        let labelled = format!("hayloft {} ({})\n", label("version"), label("revision"));
        expect_eq("version", said, labelled)?;
        let layers = self.image.config["rootfs"]["diff_ids"]
            .as_array()
            .map(Vec::len);
        expect_eq("layers", layers, Some(2))?;
        // Nothing may be written but the volume.
        let writes = "! touch /tmp/x && ! touch /etc/hadoop/conf/x && touch /data/x && rm /data/x";
        self.run(&["/bin/sh", "-c", writes])?;
        let raw = "/usr/lib/hayloft/raw.so";
        let listed = self.run(&["/usr/bin/hayloft", "engine", "list", raw])?;
        expect(listed.contains(raw), || listed.clone())?;
        let needed = self.run(&["/usr/bin/ldd", "/usr/bin/hayloft"])?;
        expect(!needed.contains("not found"), || needed.clone())?;
        passed()
    }

    /// What a runtime calls for `words`: in namespaces, with the image's user and environment.
    fn argv(&self, words: &[String]) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let fixed = ["unshare", "--mount", "--propagation", "private", "sh", "-c"];
        let mut argv: Vec<String> = fixed.map(str::to_owned).to_vec();
        argv.extend([CONTAINER.to_owned(), "sh".to_owned()]);
        let root = self.image.root();
        argv.extend([&root, &self.conf, &self.data].map(|path| text(path)));
        let user = self.image.config["config"]["User"].as_str();
        argv.push(user.unwrap_or_default().to_owned());
        argv.extend(["/usr/bin/env", "-i"].map(str::to_owned));
        argv.extend(self.image.words(&["Env"]));
        // It ends with the suite, which a change of users has it forget.
        argv.extend(["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned));
        argv.extend(words.iter().cloned());
        argv
    }

    /// Runs a command in a container that has to succeed.
    fn run(&self, words: &[&str]) -> Result<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let argv = self.argv(&words);
        mounts::run(Command::new(&argv[0]).args(&argv[1..]))
    }

    /// The exit code of the image's health check.
    fn health(&self) -> Result<Option<i32>> {
        let words = self.image.words(&["Healthcheck", "Test"]);
        let argv = self.argv(&words[1..]);
        let mut command = Command::new(&argv[0]);
        let status = command.args(&argv[1..]).stdout(Stdio::null()).status();
        let status = status.map_err(TestkitError::file("running", "the health check"))?;
        Ok(status.code())
    }

    fn begin(&mut self) -> Result<()> {
        let argv = self.argv(&self.image.words(&["Entrypoint"]));
        let container = Spawn::new("container", argv, container_log(&self.cluster)).start()?;
        self.container = Some(container);
        until("the container's health", seconds(60), || {
            Ok(match self.health()? {
                Some(0) => Seen::Done(()),
                code => Seen::NotYet(format!("{code:?}")),
            })
        })?;
        self.cluster.namenode(0).wait_live(1, seconds(60))
    }

    fn node(&mut self) -> Result<Outcome> {
        expect_eq("health of none", self.health()?, Some(1))?;
        // The node that ran before counts as dead first.
        self.cluster.namenode(0).wait_live(0, seconds(60))?;
        self.begin()?;
        let pid = self.container.as_ref().map_or(0, Process::pid);
        let of = |name: &str| {
            let path = PathBuf::from(format!("/proc/{pid}/{name}"));
            fs::read_to_string(&path).map_err(TestkitError::file("reading", path))
        };
        let status = of("status")?;
        expect(status.contains("Uid:\t1000\t1000\t1000"), || status.clone())?;
        let mounted = of("mounts")?;
        let root = mounted.lines().find(|line| line.contains(" / "));
        expect(root.is_some_and(|line| line.contains(" ro,")), || {
            mounted.clone()
        })?;
        self.fs.put("/in-a-container", FILE, 3, json!({}))?;
        self.fs.check("/in-a-container", FILE, 3)?;
        passed()
    }

    /// A container that goes takes nothing with it.
    fn again(&mut self) -> Result<Outcome> {
        let mut container = self
            .container
            .take()
            .ok_or_else(|| TestkitError::Expectation("no container runs".into()))?;
        let ended = container.stop(seconds(20))?;
        expect_eq("exit code", ended.code(), Some(0))?;
        expect_eq("health behind it", self.health()?, Some(1))?;
        self.begin()?;
        self.fs.check("/in-a-container", FILE, 3)?;
        passed()
    }
}

fn size(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).map_err(TestkitError::file("looking at", path))?;
    Ok(found.len())
}
