//! `hayloft node` without a NameNode: its configuration report, its refusals, its exit codes.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn hayloft(args: &[&str]) -> Output {
    command(args).output().expect("the binary runs")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    for name in [
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "HAYLOFT_STATE",
        "HAYLOFT_LOG",
        "HDFS_DATANODE_OPTS",
        "HADOOP_DATANODE_OPTS",
        "HADOOP_OPTS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "HDFS_DATANODE_SECURE_USER",
        "HADOOP_SECURE_DN_USER",
    ] {
        command.env_remove(name);
    }
    command.args(args);
    command
}

fn conf(properties: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let body: String = properties
        .iter()
        .map(|(name, value)| {
            format!("<property><name>{name}</name><value>{value}</value></property>\n")
        })
        .collect();
    let text = format!("<?xml version=\"1.0\"?>\n<configuration>\n{body}</configuration>\n");
    std::fs::write(dir.path().join("hdfs-site.xml"), text).expect("written");
    dir
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `hayloft node`, which must refuse with exit code 2, and returns what it said.
fn refused(dir: &Path, more: &[&str]) -> String {
    let dir = dir.display().to_string();
    let output = hayloft(&[&["node", "--conf", &dir], more].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(said.starts_with("hayloft: error: "), "{said}");
    said
}

#[test]
fn every_key_is_reported_with_its_origin() {
    let dir = conf(&[
        ("dfs.heartbeat.interval", "7"),
        ("dfs.datanode.pmem.cache.dirs", "/run/x"),
        ("fs.defaultFS", "hdfs://127.0.0.1:1"),
    ]);
    let path = dir.path().display().to_string();
    let args = [
        "node",
        "--conf",
        &path,
        "-Ddfs.datanode.handler.count=12",
        "--print-config",
        "--json",
    ];
    let output = hayloft(&args);
    assert!(output.status.success(), "{output:?}");
    let printed: Value =
        serde_json::from_slice(&output.stdout).expect("stdout is JSON and nothing else");
    let settings = &printed["settings"];
    let of = |key: &str| {
        let settings = settings.as_array().expect("an array");
        settings
            .iter()
            .find(|setting| setting["key"] == key)
            .expect("listed")
            .clone()
    };
    assert_eq!(of("dfs.heartbeat.interval")["value"], "7");
    assert!(
        of("dfs.heartbeat.interval")["source"]
            .as_str()
            .expect("text")
            .ends_with("hdfs-site.xml:3")
    );
    assert_eq!(of("dfs.datanode.handler.count")["source"], "command line");
    assert_eq!(of("dfs.datanode.address")["source"], "default");
    assert!(
        text(&output.stderr).contains("dfs.datanode.pmem.cache.dirs"),
        "what has no effect is said on stderr"
    );

    assert_eq!(printed["protection"][0]["data_port"], "in clear");
    assert_eq!(printed["metrics_sinks"], serde_json::json!([]));

    let output = hayloft(&["node", "--conf", &path, "--print-config"]);
    let said = text(&output.stdout);
    assert!(said.contains("dfs.heartbeat.interval = 7  ["));
    assert!(
        said.contains("# What protects this node:\n") && said.contains("#   rpc: in clear\n"),
        "{said}"
    );
}

#[test]
fn a_report_says_what_a_node_would_refuse() {
    let path = conf(&[("dfs.heartbeat.interval", "7")]);
    let file = path.path().join("hadoop-metrics2.properties");
    let (sink, class) = ("datanode.sink", "org.apache.hadoop.metrics2.sink.FileSink");
    let sinks = format!("{sink}.f.class={class}\n{sink}.g.class=G\n");
    std::fs::write(file, sinks).expect("written");
    let path = path.path().display().to_string();
    let output = hayloft(&["node", "--conf", &path, "--print-config"]);
    assert_eq!(output.status.code(), Some(2), "{:?}", output.status);
    let shown = text(&output.stdout);
    assert!(shown.contains("dfs.heartbeat.interval = 7  ["));
    let pushed = "# Metrics are pushed to f: standard output, every 10 s (";
    assert!(shown.contains(pushed), "{shown}");
    let said = text(&output.stderr);
    assert!(said.contains("no NameNode address"), "{said}");
    assert!(said.contains("the sink g (G) gets nothing"), "{said}");
}

#[test]
fn unusable_configurations_are_refused_with_their_place() {
    let missing = refused(Path::new("/nonexistent"), &[]);
    assert!(missing.contains("HADOOP_CONF_DIR"), "{missing}");
    let bad = refused(conf(&[("dfs.heartbeat.interval", "soon")]).path(), &[]);
    assert!(
        bad.contains("hdfs-site.xml:3") && bad.contains("soon"),
        "{bad}"
    );
    let engine = refused(conf(&[("hayloft.io.engine./data/1", "drect")]).path(), &[]);
    assert!(
        engine.contains("hdfs-site.xml:3") && engine.contains("direct"),
        "{engine}"
    );
    let nameless = refused(conf(&[]).path(), &[]);
    assert!(nameless.contains("no NameNode address"), "{nameless}");
}

#[test]
fn protection_that_is_demanded_and_missing_is_not_ignored() {
    let nn = ("dfs.namenode.rpc-address", "127.0.0.1:1");
    let said = refused(
        conf(&[nn, ("hadoop.security.authentication", "kerberos")]).path(),
        &[],
    );
    assert!(
        said.contains("dfs.datanode.kerberos.principal is not set"),
        "{said}"
    );
    let said = refused(
        conf(&[nn]).path(),
        &["-D", "dfs.trustedchannel.resolver.class=org.example.All"],
    );
    assert!(
        said.contains("who is trusted without proof") && said.contains("command line"),
        "{said}"
    );
}

/// One data directory with one block pool, as a stopped node leaves it.
struct Stopped {
    dir: tempfile::TempDir,
    conf: tempfile::TempDir,
}

const UUID: &str = "8f5c7e0a-0000-4000-8000-00000000c5a9";
const POOL: &str = "data/current/BP-1-127.0.0.1-1";

impl Stopped {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data = dir.path().join("data").display().to_string();
        let conf = conf(&[
            ("dfs.namenode.rpc-address", "127.0.0.1:1"),
            ("dfs.datanode.data.dir", &data),
        ]);
        let stopped = Self { dir, conf };
        let volume = format!(
            "storageID=DS-1\nclusterID=CID-1\ncTime=0\ndatanodeUuid={UUID}\n\
             storageType=DATA_NODE\nlayoutVersion=-57\n"
        );
        stopped.write("data/current/VERSION", &volume);
        let pool = "namespaceID=7\ncTime=0\nblockpoolID=BP-1-127.0.0.1-1\nlayoutVersion=-57\n";
        stopped.write(&format!("{POOL}/current/VERSION"), pool);
        stopped.write(&format!("{POOL}/current/rbw/blk_7"), "");
        stopped.write("data/in_use.lock", "1@here");
        stopped
    }

    fn write(&self, path: &str, contents: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the directory")).expect("made");
        std::fs::write(path, contents).expect("written");
    }

    fn check(&self) -> Output {
        let conf = self.conf.path().display().to_string();
        hayloft(&["node", "--conf", &conf, "--check-swap"])
    }

    /// The answer, which must be no, in one line with all of `words`.
    fn is_refused(&self, words: &[&str]) {
        let output = self.check();
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            said.starts_with("no: ") && said.lines().count() == 1,
            "{said}"
        );
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    fn is_allowed(&self) {
        let output = self.check();
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(
            said.starts_with("yes: ") && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn the_swap_back_is_allowed_when_nothing_stands_in_its_way() {
    let stopped = Stopped::new();
    stopped.is_allowed();
    // A directory that an upgrade keeps for a rollback.
    stopped.write(&format!("{POOL}/previous/VERSION"), "");
    stopped.is_allowed();
    let lock = std::fs::read(stopped.dir.path().join("data/in_use.lock")).expect("there");
    assert_eq!(lock, b"1@here", "asking changes nothing");
    let empty = tempfile::tempdir().expect("a temporary directory");
    let conf = conf(&[("dfs.datanode.data.dir", "/nonexistent/data")]);
    let conf = conf.path().display().to_string();
    let output = hayloft(&["node", "--conf", &conf, "--check-swap"]);
    assert_eq!(output.status.code(), Some(2), "no NameNode: {output:?}");
    let output = hayloft(&[
        "node",
        "--conf",
        &empty.path().display().to_string(),
        "--check-swap",
    ]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "no configuration: {output:?}"
    );
}

#[test]
fn what_only_a_jvm_reads_is_named_and_hinders_no_swap() {
    let stopped = Stopped::new();
    let write = |name: &str, text: &str| {
        std::fs::write(stopped.conf.path().join(name), text).expect("written");
    };
    let sink = "datanode.sink.graphite.class=org.example.GraphiteSink\n";
    write("hadoop-metrics2.properties", sink);
    write(
        "hadoop-env.sh",
        "export HDFS_DATANODE_OPTS=\"-javaagent:/opt/jmx.jar=9404\"\n",
    );
    let log4j =
        "log4j.rootLogger=INFO,sys\nlog4j.appender.sys=org.apache.log4j.net.SyslogAppender\n";
    write("log4j.properties", log4j);
    stopped.is_allowed();
    let said = text(&stopped.check().stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, words) in lines.iter().zip([
        ["the sink graphite", "/prom or /jmx"],
        ["-javaagent:/opt/jmx.jar=9404", "is no JVM"],
        ["the appender sys", "stderr"],
    ]) {
        assert!(line.starts_with("hayloft: warning: "), "{said}");
        assert!(
            words.iter().all(|word| line.contains(word)),
            "{words:?}: {said}"
        );
    }
    // They are said beside a reason against it, too.
    stopped.write(&format!("{POOL}/current/VERSION"), "layoutVersion=-99\n");
    stopped.is_refused(&["VERSION"]);
    assert_eq!(text(&stopped.check().stderr).lines().count(), 3);
}

#[test]
fn the_swap_back_is_refused_while_a_node_runs() {
    let stopped = Stopped::new();
    let path = stopped.dir.path().join("data/in_use.lock");
    let lock = hayloft_io::RecordLock::acquire(&path, b"4711@here").expect("free");
    stopped.is_refused(&["data: in use by 4711@here", "stop that node"]);
    drop(lock);
    stopped.is_allowed();
}

#[test]
fn the_swap_back_is_refused_on_another_layout_and_in_the_middle_of_an_upgrade() {
    let stopped = Stopped::new();
    let half = format!("{POOL}/previous.tmp/VERSION");
    stopped.write(&half, "");
    stopped.is_refused(&["BP-1-127.0.0.1-1", "upgrade", "start Hayloft and stop it"]);
    stopped.write(&format!("{POOL}/previous/VERSION"), "");
    stopped.is_refused(&["cannot be there together", "restore"]);
    let stopped = Stopped::new();
    let old = format!(
        "storageID=DS-1\nclusterID=CID-1\ncTime=0\ndatanodeUuid={UUID}\n\
         storageType=DATA_NODE\nlayoutVersion=-56\n"
    );
    stopped.write("data/current/VERSION", &old);
    stopped.is_refused(&["current/VERSION", "-56"]);
}

#[test]
fn usage_errors_and_help_have_their_exit_codes() {
    let output = hayloft(&["nod"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).starts_with("hayloft: error: "),
        "{output:?}"
    );
    let output = hayloft(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("up") && output.stderr.is_empty());
}

/// With `HAYLOFT_BLESS=1` the page is brought up to date instead.
#[test]
fn the_documentation_lists_every_key_as_the_binary_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/keys.md");
    let output = hayloft(&["node", "--print-config", "--markdown"]);
    assert!(output.status.success());
    let made = text(&output.stdout);
    if std::env::var_os("HAYLOFT_BLESS").is_some() {
        std::fs::write(&path, made).expect("written");
        return;
    }
    let page = std::fs::read_to_string(&path).expect("docs/operate/keys.md is there");
    assert!(
        page == made,
        "docs/operate/keys.md is out of date: run 'HAYLOFT_BLESS=1 cargo test -p hayloft \
            --test node'"
    );
}

#[test]
fn virtual_nodes_are_printed_and_wrong_ones_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let site = "<configuration><property><name>fs.defaultFS</name>\
        <value>hdfs://127.0.0.1:1</value></property></configuration>";
    std::fs::write(dir.path().join("core-site.xml"), site).expect("written");
    let conf = dir.path().display().to_string();
    let ask = |nodes: &str| {
        let nodes = format!("hayloft.nodes={nodes}");
        let data = "dfs.datanode.data.dir=/d/1";
        hayloft(&[
            "node",
            "--conf",
            &conf,
            "--print-config",
            "-D",
            &nodes,
            "-D",
            data,
        ])
    };
    let fine = ask("a,b");
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    let said = text(&fine.stdout);
    for line in [
        "# Virtual node b:",
        "# dfs.datanode.data.dir = [DISK]/d/1/b",
    ] {
        assert!(said.contains(line), "{line:?} is missing:\n{said}");
    }
    let refused = ask("a,a");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        text(&refused.stderr).contains("names a once"),
        "{refused:?}"
    );
    let topology = hayloft(&[
        "super",
        "topology",
        "--conf",
        &conf,
        "--host",
        "s1",
        "--json",
        "-D",
        "hayloft.nodes=a,b",
        "-D",
        "dfs.datanode.address.a=10.0.0.1:7",
        "-D",
        "dfs.datanode.address.b=10.0.0.2:7",
    ]);
    let answer: serde_json::Value = serde_json::from_slice(&topology.stdout).expect("JSON");
    assert_eq!(answer["host"], "s1");
    assert_eq!(answer["nodes"][1]["address"], "10.0.0.2");
}
