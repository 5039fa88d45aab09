//! Suites in a process of their own, below one that made a realm and set the variables by which
//! everything finds it; and what a secure cluster there is made of.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::realm::{REALM, Realm};
use hayloft_testkit::{Cluster, ClusterBuilder, Outcome, Suite, TestkitError, ports};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Tells the process of the suite where the realm is: its directory and port.
const MADE: &str = "HAYLOFT_TEST_REALM";
/// Block size of the clusters' clients, bytes.
pub const BLOCK: u64 = 1 << 20;

/// Runs what `body` adds in a realm; without the programs for one a case says what is missing.
pub fn suite(name: &'static str, body: impl FnOnce(&mut Suite) -> Result<()>) -> ExitCode {
    if let Some(why) = Realm::missing() {
        return Suite::run(name, |suite| {
            suite.case(name, || Ok(Outcome::Skipped(why)));
            Ok(())
        });
    }
    if std::env::var_os(MADE).is_some() {
        return Suite::run(name, body);
    }
    below_a_realm().unwrap_or_else(|error| {
        eprintln!("{name}: {error}");
        ExitCode::FAILURE
    })
}

/// Makes a realm, and runs this program again where the realm is found.
fn below_a_realm() -> Result<ExitCode> {
    let dir = scratch("realm-")?;
    let port = ports::free()?;
    let realm = Realm::create(dir.path(), port)?;
    let own = std::env::current_exe().map_err(TestkitError::file("finding", Path::new("self")))?;
    let mut again = Command::new(&own);
    again
        .args(std::env::args_os().skip(1))
        .envs(realm.variables());
    again.env(MADE, format!("{port}:{}", dir.path().display()));
    let status = again
        .status()
        .map_err(TestkitError::file("running", &own))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The realm that the process above made, with its KDC running.
pub fn realm() -> Result<Realm> {
    let made = std::env::var(MADE).unwrap_or_default();
    let (port, dir) = made.split_once(':').unwrap_or_default();
    let port = port
        .parse()
        .map_err(|_| TestkitError::Expectation(made.clone()))?;
    let mut realm = Realm::at(Path::new(dir), port);
    realm.start()?;
    Ok(realm)
}

/// The principal of a service on this host.
pub fn at_localhost(service: &str) -> String {
    format!("{service}/localhost@{REALM}")
}

/// A secure cluster that does not run yet, with a ticket for its superuser.
pub fn secure(realm: &Realm, protection: &str) -> Result<ClusterBuilder> {
    let names = ["nn/localhost", "dn/localhost", "HTTP/localhost", "hdfs"];
    let keytab = realm.keytab("services.keytab", &names)?;
    realm.kinit("hdfs", &keytab)?;
    let keytab = keytab.display();
    Ok(Cluster::builder("kerberos")
        .conf("dfs.blocksize", BLOCK)
        .conf("hadoop.security.authentication", "kerberos")
        .conf("hadoop.rpc.protection", protection)
        .conf("dfs.namenode.kerberos.principal", at_localhost("nn"))
        .conf("dfs.namenode.keytab.file", &keytab)
        .conf("dfs.datanode.kerberos.principal", at_localhost("dn"))
        .conf("dfs.datanode.keytab.file", &keytab)
        .conf(
            "dfs.web.authentication.kerberos.principal",
            at_localhost("HTTP"),
        )
        .conf("dfs.web.authentication.kerberos.keytab", &keytab)
        .conf("dfs.block.access.token.enable", true)
        .conf("ignore.secure.ports.for.testing", true)
        .conf(
            "hadoop.user.group.static.mapping.overrides",
            "hdfs=supergroup;nn=supergroup;dn=users;ann=users",
        ))
}
