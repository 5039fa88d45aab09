use std::fmt::Write as _;

use super::*;

const ALL_CLASSES: &str = "\
    *.sink.graphite.class=org.apache.hadoop.metrics2.sink.GraphiteSink\n\
    *.sink.statsd.class=org.apache.hadoop.metrics2.sink.StatsDSink\n\
    *.sink.file.class=org.apache.hadoop.metrics2.sink.FileSink\n";

fn read(files: &[(&str, &str)]) -> MetricsSinks {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let mut found = MetricsSinks::read(dir.path());
    let dir = format!("{}/", dir.path().display());
    for sink in &mut found.sinks {
        sink.place = sink.place.replace(&dir, "");
    }
    for line in &mut found.warnings {
        *line = line.replace(&dir, "");
    }
    found
}

fn of(text: &str) -> MetricsSinks {
    read(&[(
        "hadoop-metrics2.properties",
        &format!("{ALL_CLASSES}{text}"),
    )])
}

/// The one sink of a text that says nothing else.
fn one(text: &str) -> MetricsSink {
    let found = of(text);
    assert_eq!(found.warnings, [""; 0]);
    assert_eq!(found.sinks.len(), 1, "{found:?}");
    found.sinks.into_iter().next().expect("one")
}

/// The one warning of a text without sinks.
fn refused(text: &str) -> String {
    let found = of(text);
    assert!(found.sinks.is_empty(), "{found:?}");
    assert_eq!(found.warnings.len(), 1, "{found:?}");
    found.warnings.concat()
}

#[test]
fn sinks_are_those_of_the_node_that_have_a_class() {
    let found = of("datanode.sink.graphite.server_host=carbon\n\
                    datanode.sink.graphite.server_port=2003\n\
                    datanode.sink.graphite.metrics_prefix=hdfs.dn\n\
                    datanode.sink.statsd.server.host: ::1\n\
                    datanode.sink.statsd.server.port=8125\n\
                    datanode.sink.statsd.skip.hostname=TRUE\n\
                    datanode.sink.statsd.period=60\n\
                    datanode.sink.file.filename=/var/log/a\\,b.out\n\
                    datanode.sink.none.period=1\nnamenode.sink.file.filename=x\n");
    let lines: Vec<String> = found.sinks.iter().map(ToString::to_string).collect();
    let at = |line| format!("(hadoop-metrics2.properties:{line})");
    let wanted = [
        format!("file: the file /var/log/a,b.out, every 10 s {}", at(3)),
        format!("graphite: Graphite at carbon:2003, every 10 s {}", at(1)),
        format!("statsd: StatsD at [::1]:8125, every 60 s {}", at(2)),
    ];
    assert_eq!((lines.as_slice(), found.warnings.len()), (&wanted[..], 0));
    let without_host = |sink: &MetricsSink| {
        let target = &sink.target;
        matches!(target, SinkTarget::StatsD { with_host, .. } if !with_host)
    };
    assert!(found.sinks.iter().any(without_host), "{found:?}");
    assert!(read(&[]).sinks.is_empty());
    // The node's own file stands for the common one, as a whole.
    let own = ("hadoop-metrics2-datanode.properties", "*.period=10\n");
    let both = [
        own,
        ("hadoop-metrics2.properties", "datanode.sink.x.class=X\n"),
    ];
    assert!(read(&both).warnings.is_empty());
}

#[test]
fn options_are_looked_up_as_hadoop_does() {
    // From the last that counts to the first.
    let levels = [
        "*.context",
        "datanode.*.context",
        "*.sink.*.context",
        "datanode.sink.*.context",
        "*.file.context",
        "datanode.*.file.context",
        "*.sink.file.context",
        "datanode.sink.file.context",
    ];
    let mut text = "datanode.sink.file.queue.capacity=1\n".to_owned();
    for (at, key) in levels.iter().enumerate() {
        let _ = writeln!(text, "{key}={at}");
        assert_eq!(one(&text).context, Some(at.to_string()), "{key}");
    }
    // The first of a list, and of a key that is there twice.
    let twice = "datanode.sink.file.context=a, b\ndatanode.sink.file.context=c\n";
    assert_eq!(one(twice).context.as_deref(), Some("a"));
    // No option of a sink.
    let other = "datanode.sink.file.filename=x\ndatanode.period=99\nfile.period=99\n*.period=7\n";
    assert_eq!(one(other).period, Duration::from_secs(7));
    // Hadoop looks for names of sinks in small letters.
    let capital = of("datanode.sink.File.period=5\ndatanode.sink.Odd.class=X\n");
    assert_eq!(capital.sinks.len(), 1, "{capital:?}");
    assert_eq!(capital.sinks[0].period, Duration::from_secs(PERIOD_DEFAULT));
}

#[test]
fn references_are_replaced() {
    let home = std::env::var("HOME").expect("a home");
    let text = "dir=${env:HOME}/out\nround=${round}\ndatanode.sink.file.filename=${dir}/m\n\
                datanode.sink.file.context=${no.such}${round}\n";
    let sink = one(text);
    let path = PathBuf::from(format!("{home}/out/m"));
    assert_eq!(sink.target, SinkTarget::File(Some(path)));
    assert_eq!(sink.context.as_deref(), Some("${no.such}${round}"));
    // Values that would grow without end.
    let mut text = "datanode.sink.file.filename=${a9}\na0=0123456789\n".to_owned();
    for at in 1..10 {
        let before = format!("${{a{}}}", at - 1);
        let _ = writeln!(text, "a{at}={}", before.repeat(10));
    }
    let target = one(&text).target;
    assert_eq!(target, SinkTarget::File(Some(PathBuf::from("${a9}"))));
}

#[test]
fn what_is_not_served_is_named_with_what_to_do() {
    for class in [
        "PrometheusMetricsSink",
        "RollingFileSystemSink",
        "ganglia.GangliaSink31",
    ] {
        let class = format!("org.apache.hadoop.metrics2.sink.{class}");
        let line = refused(&format!("datanode.sink.x.class={class}\n"));
        let begin = format!("hadoop-metrics2.properties:4: the sink x ({class}) gets nothing");
        assert!(
            line.starts_with(&begin) && line.contains("/prom or /jmx"),
            "{line}"
        );
    }
    let sources = of("datanode.source.jvm.metric.filter.exclude=Gc*\n").warnings;
    assert!(
        sources[0].contains(":4: datanode.source.jvm.metric"),
        "{sources:?}"
    );
}

#[test]
fn a_wrong_value_costs_its_sink_alone() {
    let graphite = "datanode.sink.graphite.server_host=a\ndatanode.sink.graphite.server_port";
    let file = "datanode.sink.file.filename=x\ndatanode.sink.file.";
    let long = "x".repeat(1025);
    let regex = "org.apache.hadoop.metrics2.filter.RegexFilter";
    let huge = "(.{500}){500}";
    for (text, word) in [
        (format!("{graphite}=0\n"), "from 1 to 65535"),
        (format!("{graphite}=65536\n"), "from 1 to 65535"),
        (
            format!("{graphite}=\n"),
            "set datanode.sink.NAME.server_port",
        ),
        (format!("{file}period=0\n"), "from 1 to 86400"),
        (format!("{file}period=-1\n"), "from 1 to 86400"),
        (format!("{file}period=1e3\n"), "from 1 to 86400"),
        (format!("{file}period=86401\n"), "from 1 to 86400"),
        (format!("{file}context={long}\n"), "longer than 1024"),
        (
            format!("{file}record.filter.include=a[\n"),
            "no pattern here",
        ),
        (
            format!("{file}record.filter.exclude.tags=a:{long}\n"),
            "no pattern here",
        ),
        (
            format!("{file}record.filter.exclude.tags=a\n"),
            "TAG:PATTERN",
        ),
        (
            format!("{file}record.filter.include.tags={}\n", "a:b,".repeat(17)),
            "more than 16",
        ),
        // A pattern that would take much memory.
        (
            format!("{file}metric.filter.class={regex}\n{file}metric.filter.include={huge}\n"),
            "no pattern here",
        ),
        (
            format!("{file}record.filter.class=X\n"),
            "filter.GlobFilter",
        ),
    ] {
        let line = refused(&text);
        assert!(line.contains(word), "{text}{line}");
        let beside = of(&format!("{text}datanode.sink.file2.class={FILE}\n"));
        assert_eq!(beside.sinks.len(), 1, "{beside:?}");
    }
}

#[test]
fn sinks_and_bytes_are_bounded() {
    let mut text = String::new();
    for at in 0..40 {
        let _ = writeln!(text, "datanode.sink.s{at}.class={FILE}");
    }
    let found = of(&text);
    assert_eq!(found.sinks.len(), SINKS_MAX);
    assert!(
        found.warnings[0].contains("first 16 of 40"),
        "{:?}",
        found.warnings
    );
    let large = of(&"#".repeat(2 << 20));
    assert!(
        large.sinks.is_empty() && large.warnings[0].contains("1048576"),
        "{large:?}"
    );
}

#[test]
fn names_pass_as_in_hadoop() {
    let filter = |options: &str| {
        let options = options.replace("NAME", "datanode.sink.file.metric.filter");
        let sink = one(&format!("datanode.sink.file.filename=x\n{options}"));
        sink.metrics.expect("a filter")
    };
    let passes = |options: &str, names: [&str; 4]| names.map(|name| filter(options).accepts(name));
    let names = ["GcCount", "GcTime", "MemHeap", ""];
    assert_eq!(
        passes("NAME.include=Gc*\n", names),
        [true, true, false, false]
    );
    assert_eq!(
        passes("NAME.exclude=Gc*\n", names),
        [false, false, true, true]
    );
    // What is both is included, and what is neither, too.
    let both = "NAME.include=GcCount\nNAME.exclude={Gc*\\,Mem?eap}\n";
    assert_eq!(passes(both, names), [true, false, false, true]);
    let set = "NAME.include=[!M]cC[a-o]unt\n";
    assert_eq!(passes(set, names), [true, false, false, false]);
    assert_eq!(passes("NAME.include=Gc\\\\.Count\n", names), [false; 4]);
    let regex = "*.metric.filter.class=org.apache.hadoop.metrics2.filter.RegexFilter\n\
                 NAME.include=Gc|Gc(C|T).*\n";
    assert_eq!(passes(regex, names), [true, true, false, false]);
    // Without an option of the sink itself there is no filter.
    let all = "*.metric.filter.include=Gc*\ndatanode.sink.file.filename=x\n";
    assert!(one(all).metrics.is_none());
}

#[test]
fn tags_pass_as_in_hadoop() {
    let tags = |port: &str| {
        vec![
            ("port".to_owned(), Some(port.to_owned())),
            ("S".into(), None),
        ]
    };
    let passes = |options: &str, port: &str| {
        let options = options.replace("NAME", "datanode.sink.file.record.filter");
        let filter = one(&options).records.expect("a filter");
        filter.accepts_tags(&tags(port))
    };
    let include = "NAME.include.tags=port:98*,S:x\n";
    assert!(passes(include, "9867") && !passes(include, "1"));
    let exclude = "NAME.exclude.tags=port:98*\n";
    assert!(!passes(exclude, "9867") && passes(exclude, "1"));
    let both = "NAME.include.tags=port:9867\nNAME.exclude.tags=port:98*\n";
    assert!(passes(both, "9867") && !passes(both, "9868") && passes(both, "1"));
}
