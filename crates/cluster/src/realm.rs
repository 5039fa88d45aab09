//! A Kerberos realm for tests and trials: Debian's KDC in a directory of its own, on a port of its
//! own.
//!
//! A KDC that [`Realm::start`] starts dies with this process. Programs find the realm by
//! [`Realm::variables`]; nothing of the host's own Kerberos is read or changed.

use crate::error::{ClusterError, Result};
use crate::process::{Process, Spawn};
use crate::wait::{self, Seen};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Name of the realm.
pub const REALM: &str = "HAYLOFT.TEST";
/// Where Debian has the server's tools, which a user's `PATH` may lack.
const SERVER_TOOLS: &str = "/usr/sbin";
const START_LIMIT: Duration = Duration::from_secs(20);

/// A realm: its database, its configuration, and its KDC while that runs.
#[derive(Debug)]
pub struct Realm {
    dir: PathBuf,
    port: u16,
    kdc: Option<Process>,
}

/// A program of Kerberos, wherever it is.
fn program(name: &str) -> PathBuf {
    let of_server = Path::new(SERVER_TOOLS).join(name);
    if of_server.is_file() {
        of_server
    } else {
        name.into()
    }
}

impl Realm {
    /// What is missing for a realm on this host, in words.
    #[must_use]
    pub fn missing() -> Option<String> {
        let runs = |name: &str| Command::new(program(name)).arg("-?").output().is_ok();
        let missing = ["krb5kdc", "kdb5_util", "kadmin.local", "kinit"];
        let missing = missing.into_iter().find(|name| !runs(name))?;
        Some(format!(
            "no {missing}: install krb5-kdc, krb5-admin-server and krb5-user"
        ))
    }

    /// Makes an empty realm below `dir`; its KDC does not run yet.
    ///
    /// # Errors
    /// A file cannot be written, or Kerberos' tools fail.
    pub fn create(dir: &Path, port: u16) -> Result<Self> {
        let realm = Self::at(dir, port);
        let database = dir.join("database");
        std::fs::create_dir_all(&database).map_err(ClusterError::file("creating", &database))?;
        realm.configure()?;
        realm.run(
            "kdb5_util",
            &["create", "-s", "-W", "-r", REALM, "-P", "not-secret"],
        )?;
        Ok(realm)
    }

    /// The realm that was made below `dir`.
    #[must_use]
    pub fn at(dir: &Path, port: u16) -> Self {
        Self {
            dir: dir.to_owned(),
            port,
            kdc: None,
        }
    }

    /// Writes the configuration of the KDC and of its clients, for its port of now.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn configure(&self) -> Result<()> {
        let write = |path: PathBuf, text: String| {
            std::fs::write(&path, text).map_err(ClusterError::file("writing", &path))
        };
        write(self.krb5_conf(), self.client_configuration())?;
        write(self.dir.join("kdc.conf"), self.server_configuration())
    }

    /// What was made for it, and what it keeps.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where its KDC listens on this host.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn ticket_cache(&self) -> PathBuf {
        self.dir.join("ticket-cache")
    }

    fn krb5_conf(&self) -> PathBuf {
        self.dir.join("krb5.conf")
    }

    fn client_configuration(&self) -> String {
        format!(
            "[libdefaults]\n default_realm = {REALM}\n rdns = false\n \
             dns_canonicalize_hostname = false\n dns_lookup_kdc = false\n \
             dns_lookup_realm = false\n udp_preference_limit = 1\n \
             permitted_enctypes = aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96\n \
             [realms]\n {REALM} = {{\n kdc = 127.0.0.1:{}\n }}\n",
            self.port
        )
    }

    fn server_configuration(&self) -> String {
        let database = self.dir.join("database");
        let database = database.display();
        format!(
            "[kdcdefaults]\n kdc_ports = \"\"\n kdc_listen = \"\"\n \
             kdc_tcp_listen = 127.0.0.1:{}\n[realms]\n {REALM} = {{\n \
             database_name = {database}/principal\n key_stash_file = {database}/stash\n \
             acl_file = {database}/acl\n max_life = 1d\n \
             supported_enctypes = aes256-cts-hmac-sha1-96:normal \
             aes128-cts-hmac-sha1-96:normal\n }}\n",
            self.port
        )
    }

    /// Variables by which programs find the realm and the ticket cache of its clients; JVMs, too.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut all = self.variables_of_programs();
        all.push(("JAVA_TOOL_OPTIONS".to_owned(), self.java_flag()));
        all
    }

    /// Those of programs that are not Java's. A JVM takes them with [`java_flag`](Self::java_flag).
    #[must_use]
    pub fn variables_of_programs(&self) -> Vec<(String, String)> {
        let cache = format!("FILE:{}", self.ticket_cache().display());
        [
            ("KRB5_CONFIG", self.krb5_conf().display().to_string()),
            ("KRB5CCNAME", cache),
            ("KRB5RCACHEDIR", self.dir.display().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// The flag by which a JVM finds the realm.
    #[must_use]
    pub fn java_flag(&self) -> String {
        format!("-Djava.security.krb5.conf={}", self.krb5_conf().display())
    }

    fn run(&self, tool: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program(tool));
        command.args(arguments).envs(self.variables());
        command.env("KRB5_KDC_PROFILE", self.dir.join("kdc.conf"));
        let ran = command.output();
        let ran = ran.map_err(ClusterError::file("running", Path::new(tool)))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !ran.status.success() {
            let words = [said(&ran.stdout), said(&ran.stderr)].concat();
            return Err(ClusterError::Expectation(format!(
                "{tool} {arguments:?}: {words}"
            )));
        }
        Ok(said(&ran.stdout))
    }

    /// Gives principals keys in the keytab `name`, new ones where they have some. Gives back its
    /// path.
    ///
    /// # Errors
    /// Kerberos' tools fail.
    pub fn keytab(&self, name: &str, principals: &[&str]) -> Result<PathBuf> {
        let path = self.dir.join(name);
        for principal in principals {
            // It may be there already.
            let _known = self.run("kadmin.local", &["addprinc", "-randkey", principal]);
            let file = path.display().to_string();
            self.run("kadmin.local", &["ktadd", "-k", &file, principal])?;
        }
        Ok(path)
    }

    /// Lets tickets of a principal last so long at most: `2 minutes`.
    ///
    /// # Errors
    /// Kerberos' tools fail.
    pub fn limit_life(&self, principal: &str, life: &str) -> Result<()> {
        self.run("kadmin.local", &["modprinc", "-maxlife", life, principal])
            .map(drop)
    }

    /// Gets a ticket for clients into the test's cache.
    ///
    /// # Errors
    /// The KDC does not answer or refuses.
    pub fn kinit(&self, principal: &str, keytab: &Path) -> Result<()> {
        let keytab = keytab.display().to_string();
        // Clients that start meanwhile see the old ticket or the new one, and no half of one.
        let new = self
            .dir
            .join(format!("ticket-cache.{}", std::process::id()));
        let into = format!("FILE:{}", new.display());
        self.run("kinit", &["-c", &into, "-k", "-t", &keytab, principal])?;
        let cache = self.ticket_cache();
        std::fs::rename(&new, &cache).map_err(ClusterError::file("renaming", &cache))
    }

    /// Starts the KDC and waits until it listens.
    ///
    /// # Errors
    /// With its log when it ends or does not listen.
    pub fn start(&mut self) -> Result<()> {
        self.start_with(Vec::new())
    }

    /// As [`start`](Self::start), with more variables in the KDC's environment.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(&mut self, more: Vec<(String, String)>) -> Result<()> {
        let mut kdc = self.kdc();
        kdc.env.extend(more);
        let mut kdc = kdc.start()?;
        self.wait_listening(&mut kdc)?;
        self.kdc = Some(kdc);
        Ok(())
    }

    /// The KDC, to be started; it logs to `kdc.log`.
    #[must_use]
    pub fn kdc(&self) -> Spawn {
        let argv = vec![program("krb5kdc").display().to_string(), "-n".to_owned()];
        let mut spawn = Spawn::new("kdc", argv, self.dir.join("kdc.log"));
        spawn.env = self.variables();
        let profile = self.dir.join("kdc.conf").display().to_string();
        spawn.env.push(("KRB5_KDC_PROFILE".to_owned(), profile));
        spawn
    }

    /// Waits until a KDC that was started listens.
    ///
    /// # Errors
    /// With its log when it ends or does not listen.
    pub fn wait_listening(&self, kdc: &mut Process) -> Result<()> {
        wait::until("the KDC listens", START_LIMIT, || {
            kdc.check_alive()?;
            let open = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            Ok(if open {
                Seen::Done(())
            } else {
                Seen::NotYet(String::new())
            })
        })
    }

    /// Ends the KDC at once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut kdc) = self.kdc.take() {
            kdc.kill()?;
        }
        Ok(())
    }
}
