//! `hayloft profile compute` as a process: what it prints for each tool, and beside a directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn compute(tool: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.args(["profile", "compute", "--layout", "split", "--for", tool]);
    command.args(more).output().expect("runs")
}

/// What it printed, with its exit code.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    let talk = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text + &talk)
}

fn printed(tool: &str) -> String {
    let (code, text) = said(&compute(tool, &[]));
    assert_eq!(code, Some(0), "{text}");
    text
}

fn beside(tool: &str, dir: &Path) -> (Option<i32>, String) {
    said(&compute(tool, &["--conf", dir.to_str().expect("UTF-8")]))
}

/// The verdicts of a directory by name of the property.
fn verdicts(tool: &str, dir: &Path) -> BTreeMap<String, Value> {
    let output = compute(tool, &["--json", "--conf", dir.to_str().expect("UTF-8")]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = answer["properties"].as_array().expect("a list").clone();
    let named = |one: Value| (one["name"].as_str().expect("named").to_owned(), one);
    all.into_iter().map(named).collect()
}

fn write_xml(dir: &Path, file: &str, properties: &str) {
    let text = format!("<configuration>{properties}</configuration>\n");
    fs::write(dir.join(file), text).expect("written");
}

fn property(name: &str, value: &str) -> String {
    format!("\n<property><name>{name}</name><value>{value}</value></property>")
}

/// Pastes what is printed for Hadoop's files into them.
fn paste_xml(dir: &Path, text: &str) {
    let files = text.split("<!-- For ").skip(1);
    for part in files {
        let (file, properties) = part.split_once(": -->").expect("a file's name");
        write_xml(dir, file, properties);
    }
}

#[test]
fn what_is_printed_can_be_pasted_and_is_then_all_there() {
    let all: [(&str, &[&str]); 5] = [
        ("spark", &["spark-defaults.conf"]),
        ("flink", &["config.yaml"]),
        ("flink", &["flink-conf.yaml"]),
        (
            "mapreduce",
            &["mapred-site.xml", "yarn-site.xml", "capacity-scheduler.xml"],
        ),
        (
            "tez",
            &["tez-site.xml", "yarn-site.xml", "capacity-scheduler.xml"],
        ),
    ];
    for (tool, files) in all {
        let dir = tempfile::tempdir().expect("temporary directory");
        let text = printed(tool);
        match files {
            [one] => fs::write(dir.path().join(one), &text).expect("written"),
            _ => paste_xml(dir.path(), &text),
        }
        for file in files {
            assert!(dir.path().join(file).is_file(), "{tool}: {file} in\n{text}");
        }
        let (code, lines) = beside(tool, dir.path());
        let equal = lines.lines().all(|line| line.starts_with("equal "));
        assert!(
            code == Some(0) && equal && !lines.is_empty(),
            "{tool}:\n{lines}"
        );
    }
}

#[test]
fn each_tool_gets_its_own_form_with_reasons() {
    let spark = printed("spark");
    let wait =
        "\n# Spark waits for a host only where it has an executor, so this matters where some";
    assert!(spark.contains(wait), "{spark}");
    assert!(spark.contains("\nspark.locality.wait.node=0\n"), "{spark}");
    assert!(
        spark.contains("Spark 4.0.1") && spark.contains("Default: 3s.\n"),
        "{spark}"
    );
    let flink = printed("flink");
    let beat = "\nyarn.heartbeat.container-request-interval: 300\n";
    assert!(
        flink.contains(beat) && flink.contains("wait for no locality"),
        "{flink}"
    );
    let jobs = printed("mapreduce");
    let delay = "\n  <name>yarn.scheduler.capacity.node-locality-delay</name>\n  \
        <value>0</value>\n  <description>No host of jobs holds blocks";
    assert!(jobs.contains(delay), "{jobs}");
    assert!(!jobs.contains("tez."), "{jobs}");
    // There it would stop every job of the old API.
    let format = "<name>mapreduce.job.inputformat.class";
    assert!(!jobs.contains(format), "{jobs}");
    let tez = printed("tez");
    assert!(
        tez.contains("<name>tez.am.container.reuse.enabled</name>"),
        "{tez}"
    );
    assert!(
        tez.contains("<name>yarn.scheduler.capacity.node-locality-delay</name>"),
        "{tez}"
    );
    // Comments of XML hold no two hyphens.
    for part in tez.split("<!--").chain(jobs.split("<!--")).skip(1) {
        let comment = part.split("-->").next().unwrap_or_default();
        assert!(!comment.contains("--"), "{comment}");
    }
}

#[test]
fn hadoops_files_are_read_as_hadoop_reads_them() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let dir = dir.path();
    let beat = "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms";
    let nodes = "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms";
    let maximum = "mapreduce.input.fileinputformat.split.maxsize";
    let rack = "mapreduce.input.fileinputformat.split.minsize.per.rack";
    // Final in an earlier file, so that the later one counts for nothing.
    let last = property(beat, "2000").replace("</property>", "<final>true</final></property>");
    write_xml(dir, "core-site.xml", &last);
    let later = property(beat, "300") + &property("mapred.max.split.size", "5368709120");
    write_xml(
        dir,
        "mapred-site.xml",
        &(later + &property(rack, "${task.bytes}")),
    );
    // YARN's site is of parts; the ResourceManager does not read mapred-site.xml.
    let include = r#"<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="beats.xml"/>"#;
    write_xml(dir, "yarn-site.xml", include);
    write_xml(
        dir,
        "beats.xml",
        &(property("beat", "300") + &property(nodes, "${beat}")),
    );
    write_xml(dir, "capacity-scheduler.xml", &property(nodes, "1000"));
    let all = verdicts("mapreduce", dir);
    assert_eq!(
        all[nodes]["verdict"], "equal",
        "YARN does not read it there"
    );
    fs::remove_file(dir.join("capacity-scheduler.xml")).expect("removed");
    let all = verdicts("mapreduce", dir);
    let of = |name: &str| {
        let one = &all[name];
        let place = one["place"]
            .as_str()
            .map(|place| place.replace(dir.to_str().expect(""), ""));
        (one["verdict"].as_str().expect("judged").to_owned(), place)
    };
    let at = |verdict: &str, place: &str| (verdict.to_owned(), Some(place.to_owned()));
    assert_eq!(of(beat), at("other", "/core-site.xml:2"));
    assert_eq!(
        (&all[beat]["now"], &all[beat]["final"]),
        (&"2000".into(), &true.into())
    );
    assert_eq!(of(nodes), at("equal", "/beats.xml:3"));
    assert_eq!(all[nodes]["now"], "300");
    assert_eq!(
        of(maximum),
        at("equal", "/mapred-site.xml:3"),
        "by its old name"
    );
    assert_eq!(of(rack), at("unjudged", "/mapred-site.xml:4"));
    assert_eq!(
        of("mapreduce.job.ubertask.enable"),
        ("missing".to_owned(), None)
    );
    let per_node = "mapreduce.input.fileinputformat.split.minsize.per.node";
    assert_eq!(of(per_node), ("equal".to_owned(), None), "by default");
    // A host of jobs alone has no file of the scheduler.
    let delay = "yarn.scheduler.capacity.node-locality-delay";
    assert_eq!(of(delay), ("unjudged".to_owned(), None));
    let (code, lines) = beside("mapreduce", dir);
    assert_eq!(code, Some(1), "{lines}");
    let shown = dir.display();
    let other = format!("other     {beat} = 300, not 2000 ({shown}/core-site.xml:2, final)\n");
    assert!(lines.contains(&other), "{lines}");
    let missing = "missing   mapreduce.job.ubertask.enable = true, for mapred-site.xml\n";
    assert!(lines.contains(missing), "{lines}");
    let absent = format!("unjudged  {delay} = 0: {shown} has no capacity-scheduler.xml\n");
    assert!(lines.contains(&absent), "{lines}");
}

#[test]
fn what_cannot_be_judged_is_said_with_its_reason() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let dir = dir.path();
    let delay = "yarn.scheduler.capacity.node-locality-delay";
    let maximum = "mapreduce.input.fileinputformat.split.maxsize";
    write_xml(dir, "capacity-scheduler.xml", &property(delay, "0"));
    let both = property("mapred.max.split.size", "1") + &property(maximum, "5368709120");
    let wrong = property(
        "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms",
        "soon",
    );
    write_xml(dir, "mapred-site.xml", &(both + &wrong));
    assert_eq!(verdicts("mapreduce", dir)[delay]["verdict"], "equal");
    let fair = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler";
    write_xml(
        dir,
        "yarn-site.xml",
        &property("yarn.resourcemanager.scheduler.class", fair),
    );
    let all = verdicts("mapreduce", dir);
    for (name, why) in [
        (delay, "names another scheduler"),
        (maximum, "its old name is set too, by "),
        (
            "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms",
            "no value of its form",
        ),
    ] {
        let one = &all[name];
        assert_eq!(one["verdict"], "unjudged", "{one}");
        assert!(
            one["why"].as_str().is_some_and(|said| said.contains(why)),
            "{one}"
        );
    }
}

#[test]
fn sparks_and_flinks_lines_are_compared_as_values() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let dir = dir.path();
    // Spark drops names that are not its own.
    let spark = "# ours\nspark.locality.wait 0ms\nspark.sql.files.maxPartitionBytes=5g\n\
        dfs.client.read.prefetch.size=5368709120\n";
    fs::write(dir.join("spark-defaults.conf"), spark).expect("written");
    write_xml(
        dir,
        "hdfs-site.xml",
        &property("dfs.client.read.prefetch.size", "1"),
    );
    let all = verdicts("spark", dir);
    let place = format!("{}/spark-defaults.conf:2", dir.display());
    let node = &all["spark.locality.wait.node"];
    assert_eq!(
        (&node["verdict"], &node["place"]),
        (&"equal".into(), &place.into())
    );
    assert_eq!(all["spark.locality.wait.rack"]["verdict"], "other");
    assert_eq!(all["spark.sql.files.maxPartitionBytes"]["verdict"], "equal");
    let prefetch = &all["spark.hadoop.dfs.client.read.prefetch.size"];
    assert_eq!(
        (&prefetch["verdict"], &prefetch["now"]),
        (&"other".into(), &"1".into())
    );
    for (value, verdict) in [("5368709120", "equal"), ("5g", "unjudged")] {
        let held = property("dfs.client.read.prefetch.size", value);
        write_xml(dir, "hdfs-site.xml", &held);
        let prefetch = &verdicts("spark", dir)["spark.hadoop.dfs.client.read.prefetch.size"];
        assert_eq!(prefetch["verdict"], verdict, "{prefetch}");
    }
    // The last line counts, and what Spark replaces is not judged.
    let more = spark.to_owned() + "spark.locality.wait=4s\nspark.locality.wait.rack=${spark.w}\n";
    fs::write(dir.join("spark-defaults.conf"), more).expect("written");
    let all = verdicts("spark", dir);
    assert_eq!(all["spark.locality.wait.node"]["now"], "4s");
    assert_eq!(all["spark.locality.wait.rack"]["verdict"], "unjudged");
    // Spark refuses a space before the unit, and Flink does not.
    let spaced = "spark.locality.wait=0 s\nspark.sql.files.maxPartitionBytes=5 g\n";
    fs::write(dir.join("spark-defaults.conf"), spaced).expect("written");
    let all = verdicts("spark", dir);
    for name in [
        "spark.locality.wait.node",
        "spark.sql.files.maxPartitionBytes",
    ] {
        assert_eq!(all[name]["verdict"], "unjudged", "{}", all[name]);
    }
}

#[test]
fn flinks_files_are_read_as_flink_reads_them() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let dir = dir.path();
    let beat = |file: &str, text: &str| {
        fs::write(dir.join(file), text).expect("written");
        verdicts("flink", dir)["yarn.heartbeat.container-request-interval"].clone()
    };
    let nested = "yarn:\n  heartbeat:\n    container-request-interval: 0 s\n";
    let one = beat("config.yaml", nested);
    assert_eq!(
        (&one["verdict"], &one["now"]),
        (&"other".into(), &"0 s".into())
    );
    assert_eq!(beat("config.yaml", "yarn: {}\n")["verdict"], "unjudged");
    let one = beat("config.yaml", "a: 1\na: 2\n");
    let why = one["why"].as_str().expect("a reason");
    assert_eq!(one["verdict"], "unjudged");
    assert!(
        why.ends_with("config.yaml:2 has a again, which stops Flink"),
        "{why}"
    );
    // The old file counts before it, has no maps, and the last line of a key counts.
    assert_eq!(beat("flink-conf.yaml", nested)["verdict"], "missing");
    let flat = "yarn.heartbeat.container-request-interval: ";
    let one = beat("flink-conf.yaml", &format!("{flat}1\n{flat}300 ms\n"));
    assert_eq!(one["verdict"], "equal", "{one}");
}

#[test]
fn a_directory_that_cannot_be_read_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let dir = dir.path();
    let refused = |tool: &str, dir: &Path, told: &[&str]| {
        let (code, text) = beside(tool, dir);
        assert_eq!(code, Some(2), "{text}");
        for part in told {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    };
    let name = "name the directory of spark-defaults.conf with --conf";
    refused("spark", &dir.join("none"), &["No such file", "none", name]);
    refused("spark", dir, &["no file of the tool is there", name]);
    write_xml(dir, "core-site.xml", "");
    let all = "mapred-site.xml, yarn-site.xml, capacity-scheduler.xml with --conf";
    refused("mapreduce", dir, &["no file of the tool is there", all]);
    write_xml(dir, "mapred-site.xml", "<property>");
    refused(
        "mapreduce",
        dir,
        &["mapred-site.xml:1", "not well-formed XML"],
    );
    // Spark does not read it.
    fs::write(dir.join("spark-defaults.conf"), "").expect("written");
    assert_eq!(beside("spark", dir).0, Some(1));
    fs::write(dir.join("spark-defaults.conf"), "#".repeat((1 << 20) + 1)).expect("written");
    let small = "put a file there that is not too large, or name another directory";
    refused("spark", dir, &["larger than 1048576 bytes", small]);
    for file in ["mapred-site.xml", "spark-defaults.conf"] {
        fs::remove_file(dir.join(file)).expect("removed");
    }
    for (tool, file) in [
        ("mapreduce", "mapred-site.xml"),
        ("spark", "spark-defaults.conf"),
    ] {
        fs::create_dir(dir.join(file)).expect("created");
        refused(tool, dir, &[file, "it is not a file", small]);
        fs::remove_dir(dir.join(file)).expect("removed");
        // Nothing writes to it, so that its opening would wait without an end.
        let made = Command::new("mkfifo").arg(dir.join(file)).status();
        assert!(made.expect("mkfifo runs").success());
        refused(tool, dir, &[file, "it is not a file", small]);
        fs::remove_file(dir.join(file)).expect("removed");
    }
    let including = "<configuration><xi:include href=\"pipe\"/></configuration>";
    fs::write(dir.join("mapred-site.xml"), including).expect("written");
    let made = Command::new("mkfifo").arg(dir.join("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    refused("mapreduce", dir, &["pipe", "it is not a file", small]);
    let (code, text) = said(&compute("pig", &[]));
    assert!(code == Some(2) && text.contains("mapreduce"), "{text}");
}

#[test]
fn json_has_what_the_text_has() {
    let output = compute("spark", &["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let head = (&answer["for"], &answer["layout"], &answer["names_of"]);
    assert_eq!(
        head,
        (&"spark".into(), &"split".into(), &"Spark 4.0.1".into())
    );
    assert!(answer.get("conf").is_none(), "{answer}");
    assert_eq!(answer["nothing_to_set"].as_array().map(Vec::len), Some(3));
    let first = &answer["properties"][0];
    let expected = serde_json::json!({
        "file": "spark-defaults.conf", "name": "spark.locality.wait.node", "value": "0",
        "default": "3s", "reason": first["reason"],
    });
    assert_eq!(first, &expected);
    let prefetch = &answer["properties"][3];
    assert_eq!(prefetch["default"], Value::Null, "{prefetch}");
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("spark-defaults.conf"), "").expect("written");
    let output = compute(
        "spark",
        &["--json", "--conf", dir.path().to_str().expect("UTF-8")],
    );
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["conf"], dir.path().to_str().expect("UTF-8"));
    assert_eq!(answer["equal"], false);
    let keys = answer["properties"][0]
        .as_object()
        .expect("an object")
        .keys();
    let keys: Vec<_> = keys.map(String::as_str).collect();
    let mut expected = [
        "file", "name", "value", "default", "reason", "verdict", "now", "place", "final", "why",
    ];
    expected.sort_unstable();
    let mut keys = keys;
    keys.sort_unstable();
    assert_eq!(keys, expected);
}
