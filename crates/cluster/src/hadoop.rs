//! Where the stock Hadoop is and how its programs are started.

use crate::error::{ClusterError, Result};
use crate::process::{Process, Spawn};
use crate::realm::Realm;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Main classes of the stock daemons and tools that are started here.
pub mod class {
    /// The NameNode.
    pub const NAMENODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
    /// The stock DataNode.
    pub const DATANODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
    /// `hdfs fsck`.
    pub const FSCK: &str = "org.apache.hadoop.hdfs.tools.DFSck";
    /// `hadoop fs`.
    pub const FS_SHELL: &str = "org.apache.hadoop.fs.FsShell";
}

/// Flags for JVMs that are quick to start and small. Peers in a benchmark do not get these.
pub const SMALL_JVM_FLAGS: [&str; 4] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
];

/// Hadoop 3.5 on JDK 17 reaches into these packages.
const ADD_OPENS: [&str; 5] = [
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
];

/// A located Hadoop: jars to put on a class path.
#[derive(Clone, Debug)]
pub struct Hadoop {
    jars: Vec<PathBuf>,
    pages: PathBuf,
    /// What every JVM of it has besides its own: flags and variables.
    flags: Vec<String>,
    env: Vec<(String, String)>,
}

impl Hadoop {
    /// Finds Hadoop: `HADOOP_HOME` when set, else the `lib` directory that
    /// `scripts/fetch-hadoop` fills: in `HAYLOFT_HADOOP_DIR`, by default `target/hadoop`.
    ///
    /// # Errors
    /// [`ClusterError::Missing`] saying what to run or set.
    pub fn locate() -> Result<Self> {
        let home = std::env::var_os("HADOOP_HOME").filter(|home| !home.is_empty());
        Self::locate_in(home.as_deref().map(Path::new))
    }

    /// As [`Hadoop::locate`], with the installation given instead of `HADOOP_HOME`.
    ///
    /// # Errors
    /// As [`Hadoop::locate`].
    pub fn locate_in(home: Option<&Path>) -> Result<Self> {
        let root = repository_root();
        let (jars, pages) = match home {
            Some(home) => (Self::from_home(home), home.join("share/hadoop/hdfs")),
            None => {
                let fetched = std::env::var_os("HAYLOFT_HADOOP_DIR").filter(|dir| !dir.is_empty());
                let fetched = fetched.map_or_else(|| root.join("target/hadoop"), PathBuf::from);
                (jars_in(&fetched.join("lib")), fetched)
            }
        };
        let has = |part: &str| jars.iter().any(|jar| file_name(jar).starts_with(part));
        if !has("hadoop-hdfs-3") || !has("hadoop-common-3") {
            return Err(ClusterError::Missing {
                what: "Hadoop's jars".into(),
                todo: "run `scripts/fetch-hadoop` (Maven fetches them), or set HADOOP_HOME to an \
                        installation"
                    .into(),
            });
        }
        let pages = pages.join("webapps");
        Ok(Self {
            jars,
            pages,
            flags: Vec::new(),
            env: Vec::new(),
        })
    }

    /// The class path directories of an unpacked Hadoop distribution.
    fn from_home(home: &Path) -> Vec<PathBuf> {
        let share = home.join("share/hadoop");
        let tools = jars_in(&share.join("tools/lib")).into_iter();
        let distcp = tools.filter(|jar| file_name(jar).starts_with("hadoop-distcp"));
        [
            "common",
            "common/lib",
            "hdfs",
            "hdfs/lib",
            "mapreduce",
            "mapreduce/lib",
            "yarn",
            "yarn/lib",
        ]
        .iter()
        .flat_map(|dir| jars_in(&share.join(dir)))
        .chain(distcp)
        .collect()
    }

    /// The directory of the daemons' web pages, where this Hadoop has them.
    #[must_use]
    pub fn pages(&self) -> Option<PathBuf> {
        self.pages.join("hdfs").is_dir().then(|| self.pages.clone())
    }

    /// The class path with a configuration directory in front.
    #[must_use]
    pub fn class_path(&self, conf_dir: &Path) -> String {
        let mut path = vec![conf_dir.display().to_string()];
        path.extend(self.jars.iter().map(|jar| jar.display().to_string()));
        path.join(":")
    }

    /// Adds a jar to the class path: a plug-in.
    pub fn add_jar(&mut self, jar: PathBuf) {
        self.jars.push(jar);
    }

    /// Has its JVMs find a realm, and the ticket of its clients.
    pub fn enter(&mut self, realm: &Realm) {
        self.flags = vec![realm.java_flag()];
        self.env = realm.variables_of_programs();
    }

    /// Whether its JVMs find a realm.
    #[must_use]
    pub fn has_realm(&self) -> bool {
        !self.env.is_empty()
    }

    /// All jars, for tools with a class path of their own (Spark).
    #[must_use]
    pub fn jars(&self) -> &[PathBuf] {
        &self.jars
    }

    /// A JVM running `main` with `flags` and `args`; not started yet.
    #[must_use]
    pub fn java(&self, name: &str, jvm: &Jvm, main: &str, args: &[&str]) -> Spawn {
        let mut argv = vec![of_java("java")];
        argv.extend(ADD_OPENS.map(String::from));
        argv.extend(jvm.flags.iter().chain(&self.flags).cloned());
        argv.extend([
            "-cp".to_owned(),
            self.class_path(&jvm.conf_dir),
            main.to_owned(),
        ]);
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        let mut spawn = Spawn::new(name, argv, jvm.log_dir.join(format!("{name}.log")));
        spawn.env.clone_from(&self.env);
        spawn
    }

    /// Runs a stock program to its end.
    ///
    /// # Errors
    /// [`ClusterError::Process`] with the end of its log when it fails or takes longer than
    /// `limit`.
    pub fn run(
        &self,
        name: &str,
        jvm: &Jvm,
        main: &str,
        args: &[&str],
        limit: Duration,
    ) -> Result<()> {
        let mut process: Process = self.java(name, jvm, main, args).start()?;
        let status = process.wait(limit)?;
        if status.success() {
            Ok(())
        } else {
            Err(process.error(format!("{main} {args:?}: {status}")))
        }
    }
}

/// A program of Java's, such as `keytool`: that of `JAVA_HOME`, else the one in `PATH`.
#[must_use]
pub fn of_java(program: &str) -> String {
    std::env::var_os("JAVA_HOME")
        .map(|home| Path::new(&home).join("bin").join(program))
        .filter(|path| path.is_file())
        .map_or_else(|| program.to_owned(), |path| path.display().to_string())
}

/// What a JVM is started with.
#[derive(Clone, Debug)]
pub struct Jvm {
    /// Configuration directory, first on the class path.
    pub conf_dir: PathBuf,
    /// Where its log goes.
    pub log_dir: PathBuf,
    /// Flags of the JVM.
    pub flags: Vec<String>,
}

impl Jvm {
    /// A small JVM with [`SMALL_JVM_FLAGS`] and a heap of at most `heap_mib`.
    #[must_use]
    pub fn small(conf_dir: &Path, log_dir: &Path, heap_mib: u32) -> Self {
        let mut flags: Vec<String> = SMALL_JVM_FLAGS
            .iter()
            .map(|flag| (*flag).to_owned())
            .collect();
        flags.push(format!("-Xmx{heap_mib}m"));
        Self {
            conf_dir: conf_dir.to_owned(),
            log_dir: log_dir.to_owned(),
            flags,
        }
    }
}

/// The Hayloft binary that a program has found for its clusters.
static BINARY: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();

/// Makes `path` the Hayloft binary of clusters to come, unless `HAYLOFT_BIN` names one. The first
/// call counts.
pub fn use_binary(path: PathBuf) {
    let _ = BINARY.set(path);
}

/// The Hayloft binary: `HAYLOFT_BIN`, else the one given to [`use_binary`], else
/// `target/release/hayloft`.
///
/// # Errors
/// [`ClusterError::Missing`] saying how to build it.
pub fn hayloft_binary() -> Result<PathBuf> {
    let built = || {
        let given = BINARY.get().cloned();
        given.unwrap_or_else(|| repository_root().join("target/release/hayloft"))
    };
    let path = std::env::var_os("HAYLOFT_BIN").map_or_else(built, PathBuf::from);
    if path.is_file() {
        return Ok(path);
    }
    Err(ClusterError::Missing {
        what: format!("the node binary {}", path.display()),
        todo: "run `cargo build --release -p hayloft`, or set HAYLOFT_BIN".into(),
    })
}

/// Where the sources of this crate were. A program of a package has none, and tells no user of the
/// machine that it was built on.
const SOURCES: Option<&str> = match option_env!("HAYLOFT_PACKAGED") {
    Some(_) => None,
    None => Some(env!("CARGO_MANIFEST_DIR")),
};

/// The repository this crate was built from; the current directory when it moved, or when this is
/// a package's program.
#[must_use]
pub fn repository_root() -> PathBuf {
    let built = SOURCES.and_then(|sources| Path::new(sources).ancestors().nth(2));
    built
        .map(Path::to_path_buf)
        .filter(|dir| dir.join("Cargo.toml").is_file())
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_else(|| PathBuf::from("."))
}

fn jars_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut jars: Vec<PathBuf> = entries
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "jar"))
        .collect();
    jars.sort();
    jars
}

fn file_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}
