//! What protects a cluster of `up --secure`: a realm with its KDC, keytabs, and a key for TLS.
//!
//! All of it is in one directory that only its owner may enter. So the passwords in it are no
//! secrets: they would open nothing that is not beside them.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use hayloft_cluster::hadoop_conf::Conf;
use hayloft_cluster::realm::{REALM, Realm};
use hayloft_cluster::tls_stores::TlsStores;

use super::state_directory::{StateDir, StoredCluster};
use crate::error::CliError;

/// Name of the KDC among the processes, and of the directory.
pub const KDC: &str = "kdc";
/// The user of `hayloft fs` and the tour, a superuser.
const USER: &str = "hayloft";
/// Its presence says that all the rest was made.
const READY: &str = "ready";
/// What one line of `hayloft status` says of it.
pub const PROTECTION: &str =
    "Kerberos and block tokens; RPC and data are encrypted, pages come over HTTPS alone";

/// A secure cluster's directory and realm.
#[derive(Debug)]
pub struct Secured {
    pub realm: Realm,
}

impl Secured {
    /// Of this cluster; `None` where it was made without `--secure`.
    pub fn of(state: &StateDir, cluster: &StoredCluster) -> Option<Self> {
        let port = cluster.kdc.as_ref()?.port;
        let realm = Realm::at(&state.role_dir(KDC), port);
        Some(Self { realm })
    }

    /// Refuses a host on which no KDC can be started.
    pub fn refuse_without_programs() -> Result<(), CliError> {
        Realm::missing().map_or(Ok(()), |missing| {
            let advice = "on Debian and Ubuntu: sudo apt-get install krb5-kdc krb5-admin-server \
                krb5-user";
            Err(CliError::new(missing, "--secure", advice))
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.realm.dir().join(name)
    }

    /// The certificate of every web server of the cluster (PEM).
    pub fn certificate(&self) -> PathBuf {
        self.stores().certificate()
    }

    /// The key and certificate of every web server, and a store of that certificate for clients.
    fn stores(&self) -> TlsStores {
        TlsStores::at(self.realm.dir())
    }

    /// Makes what was never made whole, and writes what the KDC's port is part of.
    pub fn prepare(&self) -> Result<(), CliError> {
        let (dir, ready) = (self.realm.dir(), self.file(READY));
        if ready.is_file() {
            return Ok(self.realm.configure()?);
        }
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CliError::file("remove what is half made", dir)(error));
            }
            _ => {}
        }
        let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
        made.map_err(CliError::file("create the directory of keys", dir))?;
        Realm::create(dir, self.realm.port())?;
        let services = ["nn", "dn", "HTTP"].map(|service| format!("{service}/localhost"));
        let services: Vec<&str> = services.iter().map(String::as_str).collect();
        self.realm.keytab("services.keytab", &services)?;
        self.realm.keytab("user.keytab", &[USER])?;
        self.stores().make()?;
        std::fs::write(&ready, "").map_err(CliError::file("write", &ready))
    }

    /// Has the processes and clients of the cluster use all this.
    pub fn configure(&self, conf: &mut Conf) {
        let keytab = self.file("services.keytab").display().to_string();
        let of = |service: &str| format!("{service}/localhost@{REALM}");
        conf.set("hadoop.security.authentication", "kerberos")
            .set("hadoop.rpc.protection", "privacy")
            .set("dfs.block.access.token.enable", true)
            .set("dfs.data.transfer.protection", "privacy")
            .set(
                "dfs.encrypt.data.transfer.cipher.suites",
                "AES/CTR/NoPadding",
            )
            .set("dfs.http.policy", "HTTPS_ONLY");
        for (who, service) in [("namenode", "nn"), ("datanode", "dn")] {
            conf.set(format!("dfs.{who}.kerberos.principal"), of(service))
                .set(format!("dfs.{who}.keytab.file"), &keytab);
        }
        conf.set("dfs.web.authentication.kerberos.principal", of("HTTP"))
            .set("dfs.web.authentication.kerberos.keytab", &keytab)
            // MapReduce wants to know who may renew its tokens.
            .set("yarn.resourcemanager.principal", format!("{USER}@{REALM}"))
            .set(
                "hadoop.user.group.static.mapping.overrides",
                format!("{USER}=supergroup;nn=supergroup;dn=nodes;HTTP=nodes"),
            );
        self.stores().configure(conf);
    }

    /// Gets the user a new ticket, which lasts a day.
    pub fn get_ticket(&self) -> Result<(), CliError> {
        let got = self.realm.kinit(USER, &self.file("user.keytab"));
        got.map_err(|error| {
            let what = format!("no ticket for {USER}: {error}");
            let place = self.realm.dir().display().to_string();
            CliError::new(what, place, "'hayloft up --secure' starts a KDC that ended")
        })
    }

    /// Variables by which other clients find the realm and the ticket.
    pub fn environment(&self) -> Vec<String> {
        let mut all = self.realm.variables_of_programs();
        all.push(("HADOOP_OPTS".to_owned(), self.realm.java_flag()));
        all.retain(|(name, _)| name != "KRB5RCACHEDIR");
        let pairs = all.into_iter();
        pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::state_directory::Role;

    fn role(name: &str, port: u16) -> Role {
        Role {
            name: name.into(),
            port,
            http_port: None,
            ipc_port: None,
            kind: None,
            virtual_nodes: Vec::new(),
            process: None,
        }
    }

    #[test]
    fn every_file_is_below_the_state_directory_and_clients_find_the_realm() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::new(dir.path()).expect("usable");
        let mut cluster = StoredCluster::new(role("namenode", 1), 3);
        assert!(Secured::of(&state, &cluster).is_none());
        cluster.kdc = Some(role(KDC, 12_345));
        let secured = Secured::of(&state, &cluster).expect("with a KDC");
        let mut conf = Conf::new();
        secured.configure(&mut conf);
        let place = dir.path().join(KDC).display().to_string();
        let is_file = |key: &str| key.ends_with(".file") || key.ends_with("location");
        let files: Vec<_> = conf.iter().filter(|(key, _)| is_file(key)).collect();
        assert_eq!(files.len(), 5, "{files:?}");
        assert!(
            files.iter().all(|(_, value)| value.starts_with(&place)),
            "{files:?}"
        );
        let told = secured.environment().join(" ");
        for name in ["KRB5_CONFIG=", "KRB5CCNAME=FILE:", "HADOOP_OPTS=-Djava"] {
            assert!(told.contains(name), "{told}");
        }
        let strange: Vec<String> = secured.environment();
        assert!(
            strange.iter().all(|pair| pair.contains(&place)),
            "{strange:?}"
        );
    }

    #[test]
    fn what_it_asks_for_is_what_a_node_takes() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::new(dir.path()).expect("usable");
        let mut cluster = StoredCluster::new(role("namenode", 1), 3);
        cluster.kdc = Some(role(KDC, 12_345));
        let mut conf = Conf::new().with("fs.defaultFS", "hdfs://127.0.0.1:1");
        Secured::of(&state, &cluster)
            .expect("secure")
            .configure(&mut conf);
        let config = hayloft_conf::Configuration::from_properties(conf.iter()).expect("valid");
        crate::given::usable(&config).expect("a node starts with it");
    }
}
