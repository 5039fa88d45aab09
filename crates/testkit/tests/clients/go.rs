//! The Go client, github.com/colinmarc/hdfs: a small program of ours, and the client's own tests.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::expect;
use hayloft_testkit::{Cluster, Driver, TestkitError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Groups of the users that the client's tests act as; the one who runs them is a superuser.
pub const GROUPS: &str = "root=supergroup;gohdfs1=gohdfs1;gohdfs2=gohdfs2";

const MODULE: &str = "github.com/colinmarc/hdfs/v2";
/// How long all of the client's tests may take, as Go writes it.
const TESTS_WITHIN: &str = "15m";
/// Left out of them: one makes thousands of empty files, which concern the NameNode alone. Two want
/// a write to be acknowledged within 100 ms, which says more of the machine than of the node.
const LEFT_OUT: &str = "TestFileReadDirMany|TestFileWriteDeadline|TestFileAppendDeadline";
/// Where its tests look for the realm, and for the tickets of a user.
const USUAL_REALM: &str = "/etc/krb5.conf";
const USUAL_TICKETS: &str = "/tmp/krb5cc_gohdfs_";

/// What was printed, or why there is no such program here.
type Ran<T> = Result<std::result::Result<T, String>>;

/// Where our program in Go is.
fn source() -> PathBuf {
    repository_root().join("crates/testkit/tests/clients/go")
}

/// Runs `go` with these words in a directory; what it printed, or why it cannot be run.
fn go(words: &[&str], dir: &Path) -> std::result::Result<String, String> {
    let output = Command::new("go").args(words).current_dir(dir).output();
    let output = output.map_err(|error| format!("no program go: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "go {words:?}: {}",
        text.lines().last().unwrap_or("failed")
    ))
}

/// Runs our program: it writes what the local file `data` holds below `dir`, and reads `other`.
/// What it printed.
pub fn run(cluster: &Cluster, data: &Path, dir: &str, other: &str) -> Ran<String> {
    let program = repository_root().join("target/go-clients");
    let built = program.display().to_string();
    if let Err(why) = go(&["build", "-o", &built, "."], &source()) {
        return Ok(Err(why));
    }
    let mut command = Command::new(&program);
    command.arg(data).args([dir, other]);
    command.env("HADOOP_CONF_DIR", cluster.client_conf_dir());
    let output = command.output();
    let output = output.map_err(TestkitError::file("running", &program))?;
    let said = [output.stdout, output.stderr].concat();
    Ok(Ok(String::from_utf8_lossy(&said).into_owned()))
}

/// Runs the client's own tests against the cluster, as its project does.
pub fn own_tests(cluster: &Cluster, fs: &Driver, realm: &Realm) -> Ran<()> {
    let copy = match copied(cluster.dir(), realm)? {
        Ok(copy) => copy,
        Err(why) => return Ok(Err(why)),
    };
    tickets(realm)?;
    fs.fs(&["-mkdir", "-p", "/_test"])?;
    fs.fs(&["-chmod", "777", "/_test"])?;
    for name in ["foo.txt", "mobydick.txt"] {
        let local = copy.join("testdata").join(name).display().to_string();
        fs.fs(&["-put", &local, &format!("/_test/{name}")])?;
    }
    let mut command = Command::new("go");
    command.args(["test", "-count=1", "-timeout", TESTS_WITHIN]);
    command.args(["-skip", LEFT_OUT, "./..."]);
    command.current_dir(&copy);
    command.env("HADOOP_CONF_DIR", cluster.client_conf_dir());
    let output = command
        .output()
        .map_err(TestkitError::file("running", "go"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    expect(output.status.success(), || said)?;
    Ok(Ok(()))
}

/// A copy of the client's source below `dir`, whose tests look for the realm and for tickets where
/// they are.
fn copied(dir: &Path, realm: &Realm) -> Ran<PathBuf> {
    let download = go(&["mod", "download"], &source());
    let named = download.and_then(|_| go(&["list", "-m", "-f", "{{.Dir}}", MODULE], &source()));
    let original = match named {
        Ok(path) => path,
        Err(why) => return Ok(Err(why)),
    };
    let copy = dir.join("go-client");
    let mut command = Command::new("cp");
    command
        .args(["-r", "--no-preserve=mode", &original])
        .arg(&copy);
    succeeds(command)?;
    let test = copy.join("client_test.go");
    let text = std::fs::read_to_string(&test).map_err(TestkitError::file("reading", &test))?;
    let at = |name: &str| realm.dir().join(name).display().to_string();
    let text = text.replace(USUAL_REALM, &at("krb5.conf"));
    let text = text.replace(USUAL_TICKETS, &at("gohdfs-"));
    std::fs::write(&test, text).map_err(TestkitError::file("writing", &test))?;
    Ok(Ok(copy))
}

/// Tickets of the users that the tests act as, each in a file of its own.
fn tickets(realm: &Realm) -> Result<()> {
    for user in ["root", "gohdfs1", "gohdfs2"] {
        let keytab = realm.keytab(&format!("{user}.keytab"), &[user])?;
        let mut command = Command::new("kinit");
        command
            .arg("-c")
            .arg(realm.dir().join(format!("gohdfs-{user}")));
        command.arg("-k").arg("-t").arg(keytab).arg(user);
        succeeds(command)?;
    }
    Ok(())
}

fn succeeds(mut command: Command) -> Result<()> {
    let output = command.output();
    let output = output.map_err(|error| TestkitError::Talk(format!("{command:?}: {error}")))?;
    expect(output.status.success(), || {
        format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))
    })
}
