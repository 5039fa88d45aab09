//! Hadoop configuration directories.

use crate::error::{ClusterError, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Keys and values of a Hadoop site file, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf(BTreeMap<String, String>);

impl Conf {
    /// No keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What every small cluster with its files in `dir` needs: nodes whose addresses no name server
    /// knows, heartbeats each second, no wait at the end of safe mode.
    #[must_use]
    pub fn small_cluster(dir: &Path) -> Self {
        Self::new()
            .with("hadoop.tmp.dir", dir.join("tmp").display())
            .with(
                "dfs.namenode.datanode.registration.ip-hostname-check",
                false,
            )
            .with("dfs.heartbeat.interval", 1)
            .with("dfs.namenode.safemode.extension", 0)
    }

    /// Sets a key, replacing an earlier value.
    pub fn set(&mut self, key: impl Into<String>, value: impl ToString) -> &mut Self {
        self.0.insert(key.into(), value.to_string());
        self
    }

    /// As [`Conf::set`], by value.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl ToString) -> Self {
        self.set(key, value);
        self
    }

    /// The value of a key, if set here.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Copies every key of `other` over this one's.
    pub fn overlay(&mut self, other: &Self) -> &mut Self {
        self.0
            .extend(other.0.iter().map(|(k, v)| (k.clone(), v.clone())));
        self
    }

    /// All pairs in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// The site file's text.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
        for (key, value) in &self.0 {
            let (key, value) = (escape(key), escape(value));
            let _ = writeln!(
                xml,
                "  <property><name>{key}</name><value>{value}</value></property>"
            );
        }
        xml.push_str("</configuration>\n");
        xml
    }

    /// Writes `hdfs-site.xml` (keys of `dfs.`), `yarn-site.xml` (of `yarn.`), `mapred-site.xml` (of
    /// `mapreduce.`; the local runner unless they say otherwise), `ssl-server.xml` and
    /// `ssl-client.xml` (of `ssl.server.` and `ssl.client.`, if there are any), `core-site.xml`
    /// (the rest) and `log4j.properties` into `dir`, creating it.
    ///
    /// # Errors
    /// [`ClusterError::File`] naming the file.
    pub fn write_dir(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(ClusterError::file("creating", dir))?;
        // Hadoop's own defaults of these keys come after core-site.xml, and would be over it.
        let of = |prefix: &str| {
            let own = self.0.iter().filter(|(key, _)| key.starts_with(prefix));
            Self(own.map(|(k, v)| (k.clone(), v.clone())).collect())
        };
        let [hdfs, yarn, mapreduce] = ["dfs.", "yarn.", "mapreduce."].map(of);
        let tls = ["ssl.server.", "ssl.client."].map(of);
        let elsewhere = |key: &String| {
            [&hdfs, &yarn, &mapreduce, &tls[0], &tls[1]]
                .iter()
                .any(|c| c.0.contains_key(key))
        };
        let core = self
            .0
            .clone()
            .into_iter()
            .filter(|(key, _)| !elsewhere(key));
        let core = Self(core.collect());
        let mut mapred = Self::new().with("mapreduce.framework.name", "local");
        mapred.overlay(&mapreduce);
        for (name, text) in [
            ("core-site.xml", core.to_xml()),
            ("hdfs-site.xml", hdfs.to_xml()),
            ("yarn-site.xml", yarn.to_xml()),
            ("mapred-site.xml", mapred.to_xml()),
            ("log4j.properties", LOG4J.to_owned()),
        ] {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(ClusterError::file("writing", path))?;
        }
        for (name, keys) in ["ssl-server.xml", "ssl-client.xml"].into_iter().zip(&tls) {
            let path = dir.join(name);
            if !keys.0.is_empty() {
                std::fs::write(&path, keys.to_xml())
                    .map_err(ClusterError::file("writing", path))?;
            }
        }
        // The jars of Maven Central lack the daemons' web pages, and the daemons do not start
        // without finding these directories on the class path; empty ones do.
        for name in ["hdfs", "datanode", "static"] {
            let path = dir.join("webapps").join(name);
            std::fs::create_dir_all(&path).map_err(ClusterError::file("creating", path))?;
        }
        Ok(())
    }
}

const LOG4J: &str = "\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
log4j.logger.http.requests=WARN
log4j.logger.BlockStateChange=DEBUG
log4j.logger.org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicy=DEBUG
";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_keys_over_the_site_files_and_escapes() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let conf = Conf::new()
            .with("fs.defaultFS", "hdfs://a:1")
            .with("dfs.x", "a<b&c")
            .with("ssl.server.keystore.location", "/k");
        conf.write_dir(dir.path()).expect("written");
        let core = std::fs::read_to_string(dir.path().join("core-site.xml")).expect("core");
        let hdfs = std::fs::read_to_string(dir.path().join("hdfs-site.xml")).expect("hdfs");
        assert!(core.contains("fs.defaultFS") && !core.contains("dfs.x"));
        assert!(hdfs.contains("<value>a&lt;b&amp;c</value>") && !hdfs.contains("fs.defaultFS"));
        let tls = std::fs::read_to_string(dir.path().join("ssl-server.xml")).expect("of TLS");
        assert!(tls.contains("keystore.location") && !core.contains("keystore.location"));
        assert!(!dir.path().join("ssl-client.xml").exists());
    }
}
