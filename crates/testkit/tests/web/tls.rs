//! The web port over TLS, with a keystore that Java's keytool made.

use crate::distcp;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, TestkitError, ports};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const SIZE: u64 = 3_000_000;
/// Who may be a client, once certificates are demanded.
const TRUSTSTORE: &str = "trusted";
/// Where keystores of clients are.
const CLIENTS: &str = "clients";

/// A cluster of one node that speaks both.
pub fn secure() -> Result<Secure> {
    let base = scratch("web-tls-")?;
    make_keystore(base.path(), "JKS", "first")?;
    make_clients(base.path())?;
    let [keystore, truststore] = ["keystore", TRUSTSTORE].map(|name| base.path().join(name));
    let property = |name: &str, value: &str| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let text = [
        "<configuration>".to_owned(),
        property(
            "ssl.server.keystore.location",
            &keystore.display().to_string(),
        ),
        property("ssl.server.keystore.password", "changeit"),
        property(
            "ssl.server.truststore.location",
            &truststore.display().to_string(),
        ),
        property("ssl.server.truststore.password", "changeit"),
        property("ssl.server.stores.reload.interval", "200"),
        "</configuration>".to_owned(),
    ];
    let resource = base.path().join("ssl-server.xml");
    std::fs::write(&resource, text.concat()).map_err(TestkitError::file("writing", &resource))?;
    // Clients trust the certificate of a key.
    let client = text
        .concat()
        .replace("ssl.server.keystore", "ssl.client.truststore");
    let of_clients = base.path().join("ssl-client.xml");
    std::fs::write(&of_clients, client).map_err(TestkitError::file("writing", &of_clients))?;
    let (port, namenode) = (ports::free()?, ports::free()?);
    let spec = NodeSpec::new(Kind::Hayloft)
        .conf("dfs.datanode.https.address", format!("127.0.0.1:{port}"))
        .conf("dfs.https.server.keystore.resource", resource.display());
    let namenode = format!("127.0.0.1:{namenode}");
    let cluster = Cluster::builder("web-tls")
        .conf("dfs.replication", 1)
        .conf("dfs.http.policy", "HTTP_AND_HTTPS")
        .conf("dfs.namenode.https-address", &namenode)
        // Java looks for both files on its class path.
        .jar(base.path().to_owned())
        .node(spec)
        .start()?;
    let fs = cluster.driver()?;
    fs.put("/file", SIZE, 5, json!({}))?;
    Ok(Secure {
        cluster,
        fs,
        port,
        namenode,
        base,
    })
}

pub struct Secure {
    pub cluster: Cluster,
    fs: Driver,
    port: u16,
    /// Where the NameNode serves HTTPS.
    namenode: String,
    base: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&str]) -> Result<Output> {
    let ran = Command::new(program).args(arguments).output();
    ran.map_err(TestkitError::file("starting", Path::new(program)))
}

fn keytool(arguments: &[&str]) -> Result<()> {
    let ran = run("keytool", arguments)?;
    expect(ran.status.success(), || {
        format!(
            "keytool {arguments:?}: {}",
            String::from_utf8_lossy(&ran.stdout)
        )
    })
}

/// `keystore`, and its certificate as `NAME.pem`, in `dir`.
fn make_keystore(dir: &Path, kind: &str, name: &str) -> Result<()> {
    let (new, pem) = (dir.join("new"), dir.join(format!("{name}.pem")));
    let (new_text, pem) = (new.display().to_string(), pem.display().to_string());
    let store = [
        "-storetype",
        kind,
        "-storepass",
        "changeit",
        "-keystore",
        &new_text,
    ];
    let subject = format!("CN={name}");
    let make = [
        "-genkeypair",
        "-alias",
        "node",
        "-keyalg",
        "RSA",
        "-ext",
        "SAN=IP:127.0.0.1,DNS:localhost",
    ];
    let named = ["-keypass", "changeit", "-dname", &subject];
    keytool(&[&make[..], &named, &store].concat())?;
    let export = ["-exportcert", "-rfc", "-alias", "node", "-file", &pem];
    keytool(&[&export[..], &store].concat())?;
    let keystore = dir.join("keystore");
    std::fs::rename(&new, &keystore).map_err(TestkitError::file("renaming", &keystore))
}

/// Keystores of two clients, and a truststore that trusts `alice`. A NameNode wants it, too.
fn make_clients(base: &Path) -> Result<()> {
    let clients = base.join(CLIENTS);
    std::fs::create_dir(&clients).map_err(TestkitError::file("making", &clients))?;
    for name in ["mallory", "alice"] {
        make_keystore(&clients, "PKCS12", name)?;
        let own = clients.join(name);
        std::fs::rename(clients.join("keystore"), &own)
            .map_err(TestkitError::file("renaming", &own))?;
    }
    let [pem, store] =
        [clients.join("alice.pem"), base.join(TRUSTSTORE)].map(|path| path.display().to_string());
    let import = ["-importcert", "-noprompt", "-alias", "alice", "-file", &pem];
    let into = ["-storetype", "JKS", "-storepass", "changeit", "-keystore"];
    keytool(&[&import[..], &into, &[&store]].concat())
}

impl Secure {
    fn pem(&self, name: &str) -> PathBuf {
        self.base.path().join(format!("{name}.pem"))
    }

    /// What `curl` gets of `path`, when it trusts the certificate called `name` alone.
    fn curl(&self, name: &str, more: &[&str], path: &str) -> Result<Output> {
        let (pem, url) = (
            self.pem(name).display().to_string(),
            format!("https://127.0.0.1:{}{path}", self.port),
        );
        let fixed = ["-sS", "--fail", "--max-time", "60", "--cacert", &pem];
        run("curl", &[&fixed[..], more, &[&url]].concat())
    }

    pub fn served(&mut self) -> Result<Outcome> {
        let page = self.curl(
            "first",
            &[],
            "/jmx?qry=Hadoop:service=DataNode,name=DataNodeInfo",
        )?;
        let text = String::from_utf8_lossy(&page.stdout).into_owned();
        expect(
            page.status.success() && text.contains("DatanodeHostname"),
            || text.clone(),
        )?;
        // The NameNode tells clients of the port.
        let bean = self.cluster.namenode_bean(0, "NameNodeInfo")?;
        let nodes = bean["LiveNodes"].as_str().unwrap_or_default().to_owned();
        let wanted = format!("127.0.0.1:{}", self.port);
        expect(nodes.contains(&wanted), || nodes.clone())?;
        // A file both ways.
        let namenode = self.cluster.namenode(0).rpc();
        let (sent, back) = (self.base.path().join("sent"), self.base.path().join("back"));
        let text = |path: &Path| path.display().to_string();
        let open = format!("/webhdfs/v1/file?op=OPEN&user.name=root&namenoderpcaddress={namenode}");
        let got = self.curl("first", &["-o", &text(&sent)], &open)?;
        expect(got.status.success(), || {
            String::from_utf8_lossy(&got.stderr).into_owned()
        })?;
        let create =
            format!("/webhdfs/v1/copy?op=CREATE&user.name=root&namenoderpcaddress={namenode}");
        let put = self.curl("first", &["-T", &text(&sent)], &create)?;
        expect(put.status.success(), || {
            String::from_utf8_lossy(&put.stderr).into_owned()
        })?;
        self.fs.check("/copy", SIZE, 5)?;
        let copy = open.replace("/file", "/copy");
        self.curl("first", &["-o", &text(&back)], &copy)?;
        let read = |path: &Path| std::fs::read(path).map_err(TestkitError::file("reading", path));
        expect(read(&sent)? == read(&back)?, || {
            "other bytes came back".into()
        })?;
        passed()
    }

    /// With DistCp.
    pub fn copied(&mut self) -> Result<Outcome> {
        let web = format!("swebhdfs://{}", self.namenode);
        distcp::both_ways(&mut self.cluster, &self.fs, &web)
    }

    pub fn refused(&mut self) -> Result<Outcome> {
        let old = self.curl("first", &["--tls-max", "1.1"], "/jmx")?;
        expect(!old.status.success(), || "TLS 1.1 was accepted".into())?;
        // A client without TLS gets no answer, and costs no other.
        let mut plain = TcpStream::connect(("127.0.0.1", self.port))
            .map_err(TestkitError::file("connecting", Path::new("https")))?;
        let asked = plain.write_all(b"GET /jmx HTTP/1.1\r\nHost: a\r\n\r\n");
        asked.map_err(TestkitError::file("asking", Path::new("https")))?;
        let _ = plain.set_read_timeout(Some(Duration::from_secs(20)));
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        expect(!answer.starts_with(b"HTTP"), || {
            "it answers without TLS".into()
        })?;
        let silent: Vec<_> = (0..200)
            .filter_map(|_| TcpStream::connect(("127.0.0.1", self.port)).ok())
            .collect();
        let page = self.curl("first", &[], "/prom")?;
        expect(page.status.success(), || "others wait".into())?;
        drop(silent);
        passed()
    }

    pub fn renewed(&mut self) -> Result<Outcome> {
        make_keystore(self.base.path(), "PKCS12", "second")?;
        wait::until("the new certificate", seconds(30), || {
            let page = self.curl("second", &[], "/prom")?;
            Ok(if page.status.success() {
                Seen::Done(())
            } else {
                Seen::NotYet(String::from_utf8_lossy(&page.stderr).into_owned())
            })
        })?;
        let old = self.curl("first", &[], "/prom")?;
        expect_eq("curl's answer to the old one", old.status.code(), Some(60))?;
        passed()
    }

    /// A client needs a certificate that the truststore trusts.
    pub fn demanded(&mut self) -> Result<Outcome> {
        let node = self.cluster.node(0);
        node.stop()?;
        node.conf_mut().set("hadoop.ssl.require.client.cert", true);
        self.cluster.start_node(0)?;
        // Its other ports are open before it has read its keys.
        wait::until("the port to be open", seconds(60), || {
            Ok(match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        let clients = self.base.path().join(CLIENTS);
        let as_client = |name: &str| {
            let key = format!("{}:changeit", clients.join(name).display());
            self.curl("second", &["--cert-type", "P12", "--cert", &key], "/prom")
        };
        let known = as_client("alice")?;
        expect(known.status.success(), || {
            String::from_utf8_lossy(&known.stderr).into_owned()
        })?;
        for refused in [as_client("mallory")?, self.curl("second", &[], "/prom")?] {
            let answered = refused.status.success() || !refused.stdout.is_empty();
            expect(!answered, || {
                "a client that is not trusted is served".into()
            })?;
        }
        passed()
    }
}
