//! Files as operators have them.

use super::jvm_only_files::missed_from_java;

fn missed(files: &[(&str, &str)], environment: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let variable = |name: &str| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let lines = missed_from_java(dir.path(), &variable);
    let dir = format!("{}/", dir.path().display());
    lines.iter().map(|line| line.replace(&dir, "")).collect()
}

#[test]
fn files_as_hadoop_ships_them_say_nothing() {
    // The lines of Apache's files that are not comments, as far as they matter here.
    let metrics = "*.sink.file.class=org.apache.hadoop.metrics2.sink.FileSink\n*.period=10\n\
                   #datanode.sink.file.filename=datanode-metrics.out\n\
                   namenode.sink.file.filename=namenode-metrics.out\n";
    let log4j = "hadoop.root.logger=INFO,console\nlog4j.rootLogger=${hadoop.root.logger}\n\
                 log4j.appender.console=org.apache.log4j.ConsoleAppender\n\
                 log4j.appender.RFA=org.apache.log4j.RollingFileAppender\n\
                 log4j.appender.EventCounter=org.apache.hadoop.log.metrics.EventCounter\n\
                 log4j.appender.syslog=org.apache.log4j.net.SyslogAppender\n\
                 log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=\
                 INFO,syslog\n";
    let env = "# export HDFS_DATANODE_OPTS=\"-Xmx4g\"\n\
               export HADOOP_OS_TYPE=${HADOOP_OS_TYPE:-$(uname -s)}\n";
    let files = [
        ("hadoop-metrics2.properties", metrics),
        ("log4j.properties", log4j),
        ("hadoop-env.sh", env),
    ];
    assert_eq!(missed(&files, &[]), [""; 0]);
    assert_eq!(missed(&[], &[]), [""; 0]);
}

#[test]
fn sinks_that_would_get_nothing_are_named_once() {
    let text = "*.sink.ganglia.class = org.example.GangliaSink\n\
                datanode.sink.ganglia.servers=a:8649\ndatanode.sink.ganglia.period: 10\n\
                datanode.sink.graphite.class=org.example.\\\n  GraphiteSink\n\
                datanode.sink.nothing.period=10\nnamenode.sink.x.class=X\n";
    let lines = missed(&[("hadoop-metrics2.properties", text)], &[]);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let ganglia = "hadoop-metrics2.properties:1: the sink ganglia (org.example.GangliaSink) gets \
                   nothing";
    assert!(
        lines[0].starts_with(ganglia) && lines[0].contains("/prom or /jmx"),
        "{lines:?}"
    );
    let graphite = ":4: the sink graphite (org.example.GraphiteSink)";
    assert!(lines[1].contains(graphite), "{lines:?}");
    // Hadoop reads the node's own file instead of the common one.
    let own = ("hadoop-metrics2-datanode.properties", "*.period=10\n");
    let both = [own, ("hadoop-metrics2.properties", text)];
    assert_eq!(missed(&both, &[]), [""; 0]);
}

#[test]
fn agents_and_flags_are_named_with_what_to_take_instead() {
    let script = "export HDFS_DATANODE_OPTS=\"-javaagent:/opt/jmx.jar=9404:/c.yml -Xmx4g \\\n\
                  -Dcom.sun.management.jmxremote.port=8006 ${HDFS_DATANODE_OPTS}\"\n\
                  HADOOP_OPTS+=' -Djava.net.preferIPv4Stack=true'\n\
                  HDFS_NAMENODE_OPTS=-Xmx9g\n";
    let environment = [
        (
            "HADOOP_DATANODE_OPTS",
            "-agentpath:/opt/apm.so -agentlib:jdwp -XX:+UseG1GC",
        ),
        ("HDFS_NAMENODE_OPTS", "-javaagent:/not/ours.jar"),
    ];
    let lines = missed(&[("hadoop-env.sh", script)], &environment);
    let wanted = [
        "HADOOP_DATANODE_OPTS of the environment: -agentpath:/opt/apm.so is not loaded",
        "HADOOP_DATANODE_OPTS of the environment: -agentlib:jdwp is not loaded",
        "HADOOP_DATANODE_OPTS of the environment: -XX:+UseG1GC has no effect",
        "hadoop-env.sh:1: HDFS_DATANODE_OPTS: -javaagent:/opt/jmx.jar=9404:/c.yml is not loaded",
        "hadoop-env.sh:1: HDFS_DATANODE_OPTS: -Dcom.sun.management.jmxremote.port=8006 opens no",
        "hadoop-env.sh:1: HDFS_DATANODE_OPTS: -Xmx4g has no effect: hayloft.memory.limit",
        "hadoop-env.sh:3: HADOOP_OPTS: -Djava.net.preferIPv4Stack=true has no effect",
    ];
    assert_eq!(lines.len(), wanted.len(), "{lines:#?}");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.starts_with(wanted), "{line}\nwanted {wanted}");
    }
}

#[test]
fn appenders_that_a_logger_uses_are_named() {
    let text = "hadoop.root.logger=INFO,console\n\
                log4j.rootLogger=${hadoop.root.logger}, EventCounter\n\
                log4j.appender.syslog=org.apache.log4j.net.SyslogAppender\n\
                log4j.appender.kafka=${kafka.class}\nkafka.class=org.example.Kafka\n\
                log4j.logger.org.apache.hadoop.hdfs.server.datanode=INFO,kafka\n";
    let file = [("log4j.properties", text)];
    let lines = missed(&file, &[]);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let wanted = "log4j.properties:6: the appender kafka (org.example.Kafka) of log4j.logger.org";
    assert!(
        lines[0].starts_with(wanted) && lines[0].contains("stderr"),
        "{lines:?}"
    );
    // The command line turns it on.
    let options = [("HADOOP_OPTS", "-Dhadoop.root.logger=WARN,syslog")];
    let lines = missed(&file, &options);
    let syslog = |line: &&String| line.contains("appender syslog (org.apache.log4j.net.Syslog");
    assert_eq!(lines.iter().filter(syslog).count(), 1, "{lines:#?}");
    let endless = "a=${b}\nb=${a}\nlog4j.rootLogger=INFO,${a}\n";
    assert_eq!(missed(&[("log4j.properties", endless)], &[]), [""; 0]);
}

#[test]
fn what_cannot_be_read_is_said_and_lines_are_bounded() {
    let large = "#".repeat(2 << 20);
    let lines = missed(&[("log4j.properties", &large)], &[]);
    assert_eq!(
        lines,
        ["log4j.properties was not looked at: it cannot be read: it is larger than 1048576 bytes"]
    );
    let agents = "-javaagent:x.jar ".repeat(10_000);
    let lines = missed(&[], &[("HDFS_DATANODE_OPTS", &agents)]);
    assert_eq!(lines.len(), 41, "{}", lines.len());
    assert_eq!(lines[40], "9960 more of this kind");
}
