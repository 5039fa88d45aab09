//! A node over HTTPS alone, whose keystore has its password in a store that Hadoop's own command
//! made (`hadoop credential`), and stock clients that read of it.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{Hadoop, Jvm};
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError, ports};
use std::path::{Path, PathBuf};

use crate::by_curl::bytes;
use crate::web_tokens::gives_tokens;
use crate::{BLOCK, encrypted, over_https, realm};

const SHELL: &str = "org.apache.hadoop.security.alias.CredentialShell";
const PROVIDERS: &str = "hadoop.security.credential.provider.path";
const PASSWORD: &str = "ssl.server.keystore.password";
/// The variable with what opens the store, and that.
const OPENS: (&str, &str) = ("HADOOP_CREDSTORE_PASSWORD", "opens-the-store");
const BYTES: u64 = 2 * BLOCK + 9;

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Stored::start, |lab, failed| lab.cluster.conclude(failed));
    on.case("swebhdfs_of_a_node_whose_password_a_store_has", |lab| {
        lab.written_and_read()
    });
    on.case("no_node_starts_whose_store_has_no_password_for_it", |lab| {
        lab.refused()
    });
}

struct Stored {
    cluster: Cluster,
    fs: Driver,
    /// Of the NameNode, over TLS.
    namenode: String,
    /// Where the files of the keystore are.
    dir: PathBuf,
    keystore: Conf,
    _realm: Realm,
}

/// Has Hadoop make a store with the password of the keystore.
fn make_store(dir: &Path, provider: &str, password: &str) -> Result<()> {
    let args = [
        "create",
        PASSWORD,
        "-value",
        password,
        "-provider",
        provider,
    ];
    let jvm = Jvm::small(dir, dir, 256);
    let mut shell = Hadoop::locate()?.java("credential", &jvm, SHELL, &args);
    shell.env.push((OPENS.0.to_owned(), OPENS.1.to_owned()));
    let mut shell = shell.start()?;
    let made = shell.wait(seconds(120))?.success();
    expect(made, || shell.error("made no store").to_string())
}

/// A node that looks for its password in a store which `opens` opens. The file that names it lies
/// in `dir` and has none.
fn stored(keystore: &Conf, dir: &Path, store: &str, opens: &str) -> Result<NodeSpec> {
    let provider = format!("jceks://file{}", dir.join(store).display());
    let server = keystore.clone().with(PROVIDERS, provider);
    expect(server.get(PASSWORD).is_none(), || "a password".into())?;
    let file = dir.join(format!("{store}.xml"));
    std::fs::write(&file, server.to_xml()).map_err(TestkitError::file("writing", &file))?;
    let (spec, _) = over_https(Kind::Hayloft)?;
    let mut spec = spec.conf("dfs.https.server.keystore.resource", file.display());
    spec.env.push((OPENS.0.to_owned(), opens.to_owned()));
    Ok(spec)
}

impl Stored {
    fn start() -> Result<Self> {
        let realm = realm()?;
        let (builder, stores) = encrypted(&realm)?;
        let mut all = Conf::new();
        stores.configure(&mut all);
        let mut keystore = Conf::new();
        for key in ["ssl.server.keystore.location", "ssl.server.keystore.type"] {
            keystore.set(key, all.get(key).unwrap_or_default());
        }
        let dir = realm.dir().join("credentials");
        std::fs::create_dir_all(&dir).map_err(TestkitError::file("making", &dir))?;
        let provider = format!("jceks://file{}", dir.join("store").display());
        make_store(&dir, &provider, all.get(PASSWORD).unwrap_or_default())?;
        let namenode = format!("localhost:{}", ports::free()?);
        let cluster = gives_tokens(&realm, builder)?
            .conf("dfs.replication", 1)
            .conf("dfs.http.policy", "HTTP_AND_HTTPS")
            .conf("dfs.namenode.https-address", &namenode)
            .node(stored(&keystore, &dir, "store", OPENS.1)?)
            .start()?;
        let fs = cluster.driver()?;
        Ok(Self {
            cluster,
            fs,
            namenode,
            dir,
            keystore,
            _realm: realm,
        })
    }

    fn written_and_read(&mut self) -> Result<Outcome> {
        let [file, back] = ["sent", "received"].map(|name| self.cluster.dir().join(name));
        let data = bytes(3, 0, BYTES);
        std::fs::write(&file, &data).map_err(TestkitError::file("writing", &file))?;
        let (sent, received) = (file.display().to_string(), back.display().to_string());
        let over_web = format!("swebhdfs://{}/by-a-store", self.namenode);
        self.fs.fs(&["-put", "-f", &sent, &over_web])?;
        self.fs.check("/by-a-store", BYTES, 3)?;
        self.fs.fs(&["-get", "-f", &over_web, &received])?;
        let read = std::fs::read(&back).map_err(TestkitError::file("reading", &back))?;
        expect(read == data, || "other bytes came back".to_owned())?;
        passed()
    }

    fn refused(&mut self) -> Result<Outcome> {
        for (store, opens, told) in [
            ("store", "opens-another", "store cannot be used"),
            ("none", OPENS.1, "lacks ssl.server.keystore.password"),
        ] {
            // The first file is written once more, as it was.
            let spec = stored(&self.keystore, &self.dir, store, opens)?;
            let (failed, log) = self.cluster.refused_node(spec)?;
            expect(failed && log.contains(told), || format!("{told}: {log}"))?;
        }
        passed()
    }
}
