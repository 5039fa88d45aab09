//! Clients at a secure cluster, with every protection of data transfer there is: the stock Java
//! client, the crate hdfs-native ([`native`]) and the Go client ([`go`]). Each writes what the
//! others read.

mod go;
#[path = "../kerberos/in_realm.rs"]
mod in_realm;
mod native;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::write_local;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::shared_work::SharedWork;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Driver, Outcome, TestkitError};
use in_realm::{BLOCK, realm, secure};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

const PROTECTION: (&str, &str) = ("dfs.data.transfer.protection", "privacy");
const ENCRYPT: (&str, &str) = ("dfs.encrypt.data.transfer", "true");
const AES: (&str, &str) = (
    "dfs.encrypt.data.transfer.cipher.suites",
    "AES/CTR/NoPadding",
);
const ALGORITHM: &str = "dfs.encrypt.data.transfer.algorithm";

/// Keys and values of a configuration.
type Keys = &'static [(&'static str, &'static str)];

/// A protection's name here, the keys that ask for it, and whether the Go client has a cipher for
/// it.
const PROTECTIONS: [(&str, Keys, bool); 9] = [
    ("auth", &[(PROTECTION.0, "authentication")], true),
    ("integrity", &[(PROTECTION.0, "integrity")], true),
    ("privacy", &[PROTECTION], true),
    ("aes", &[PROTECTION, AES], true),
    ("encrypted", &[ENCRYPT], true),
    ("encrypted_rc4", &[ENCRYPT, (ALGORITHM, "rc4")], true),
    ("encrypted_3des", &[ENCRYPT, (ALGORITHM, "3des")], false),
    ("encrypted_aes", &[ENCRYPT, AES], true),
    (
        "encrypted_aes_3des",
        &[ENCRYPT, AES, (ALGORITHM, "3des")],
        false,
    ),
];
/// Protections with which the Go client's own tests run, as its project runs them.
const OWN_TESTS_WITH: [&str; 4] = ["auth", "integrity", "privacy", "aes"];

const NODES: usize = 3;
/// What every client writes: blocks and a piece of the pattern of this seed.
const BYTES: usize = 3 * (1 << 20) + 777;
const SEED: u64 = 5;
/// The file of the Java client.
const OF_JAVA: &str = "/java";

fn main() -> ExitCode {
    in_realm::suite("clients", |suite| {
        for (protection, keys, has_cipher) in PROTECTIONS {
            let name = |what: &str| format!("{what}_{protection}");
            let mut on = suite.group(
                move || Lab::start(keys),
                |lab, failed| lab.cluster.conclude(failed),
            );
            on.case(name("java_writes_reads_and_appends"), |lab| {
                lab.work().passes(|work| work.files(2, 2))
            });
            on.case(name("hdfs_native_writes_reads_and_appends"), |lab| {
                lab.native()
            });
            if has_cipher {
                on.case(name("go_writes_reads_and_appends"), |lab| lab.go());
            } else {
                on.case(name("go_is_refused_for_its_cipher"), |lab| lab.go_refused());
            }
            if OWN_TESTS_WITH.contains(&protection) {
                on.case(name("the_go_clients_own_tests"), |lab| lab.tests_of_go());
            }
        }
        Ok(())
    })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    realm: Realm,
    /// What every client writes, on this host.
    data: PathBuf,
}

impl Lab {
    fn start(keys: Keys) -> Result<Self> {
        let realm = realm()?;
        let groups = format!("hdfs=supergroup;nn=supergroup;{}", go::GROUPS);
        let mut builder = secure(&realm, "privacy")?
            .conf("hadoop.user.group.static.mapping.overrides", groups)
            .nodes(NODES, Kind::under_test());
        for (key, value) in keys {
            builder = builder.conf(key, value);
        }
        let cluster = builder.start()?;
        let fs = cluster.driver()?;
        fs.put(OF_JAVA, BYTES as u64, SEED, json!({}))?;
        let data = cluster.dir().join("data");
        write_local(&data, BYTES, SEED)?;
        Ok(Self {
            cluster,
            fs,
            realm,
            data,
        })
    }

    fn work(&mut self) -> SharedWork<'_> {
        SharedWork {
            cluster: &mut self.cluster,
            fs: &self.fs,
            block: BLOCK,
        }
    }

    /// The Java client finds in a file what another client was to write, three times.
    fn java_reads(&self, path: &str) -> Result<Outcome> {
        self.fs.check(path, BYTES as u64, SEED)?;
        self.fs.wait_replicas(path, NODES, seconds(60))?;
        passed()
    }

    fn native(&mut self) -> Result<Outcome> {
        let data = std::fs::read(&self.data).map_err(TestkitError::file("reading", &self.data))?;
        native::works(&self.cluster.client_conf_dir(), &data, "/native", OF_JAVA)?;
        self.java_reads("/native/file")
    }

    fn go(&mut self) -> Result<Outcome> {
        let ran = match go::run(&self.cluster, &self.data, "/go", OF_JAVA)? {
            Ok(ran) => ran,
            Err(why) => return Ok(Outcome::Skipped(why)),
        };
        expect(ran.trim_end().ends_with("ok"), || ran.clone())?;
        self.java_reads("/go/file")
    }

    /// A node without rc4 refuses the client, whose words say no more, and it gets no byte.
    fn go_refused(&mut self) -> Result<Outcome> {
        let ran = match go::run(&self.cluster, &self.data, "/go", OF_JAVA)? {
            Ok(ran) => ran,
            Err(why) => return Ok(Outcome::Skipped(why)),
        };
        expect(ran.contains("rspauth not in ''"), || ran.clone())?;
        passed()
    }

    fn tests_of_go(&mut self) -> Result<Outcome> {
        match go::own_tests(&self.cluster, &self.fs, &self.realm)? {
            Ok(()) => passed(),
            Err(why) => Ok(Outcome::Skipped(why)),
        }
    }
}
