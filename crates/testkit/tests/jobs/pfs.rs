//! The same programs on a mounted parallel file system: `scripts/pfs-mounted KIND cargo test ...`.

use super::Lab;
use super::programs::Python;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{Hadoop, Jvm, repository_root, scratch};
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::{Driver, Outcome, TestkitError};

/// The programs' lab, with the directory that is removed at its end.
pub(crate) type Mounted = Option<(Lab, tempfile::TempDir)>;

/// None where nothing is mounted.
pub(crate) fn start() -> Result<Mounted> {
    let Some(root) = std::env::var_os("PFS_MOUNT").filter(|root| !root.is_empty()) else {
        return Ok(None);
    };
    let jar = repository_root().join("hadoop/pfs/target/hayloft-pfs.jar");
    if !jar.is_file() {
        return Err(TestkitError::Missing {
            what: format!("the jar {}", jar.display()),
            todo: "run `mvn -q -f hadoop/pom.xml package -DskipTests`".into(),
        });
    }
    let work = scratch("jobs-pfs-")?;
    let dir = work.path().to_path_buf();
    let conf = dir.join("conf");
    let kind = std::env::var("PFS_KIND").unwrap_or_else(|_| "posix".into());
    let uri = "pfs:///";
    Conf::new()
        .with("fs.defaultFS", uri)
        .with("fs.pfs.root", root.to_string_lossy())
        .with("fs.pfs.layout", kind)
        .with("fs.AbstractFileSystem.pfs.impl", "io.hayloft.pfs.Pfs")
        .with("hadoop.tmp.dir", "/tmp")
        .write_dir(&conf)?;
    let mut hadoop = Hadoop::locate()?;
    let submit = format!("--driver-class-path {}", jar.display());
    hadoop.add_jar(jar);
    let fs = Driver::start_in(&hadoop, &Jvm::small(&conf, &dir, 768))?;
    let mut python = Python::new(uri.into(), dir, conf);
    python.submit = submit;
    let lab = Lab {
        fs,
        cluster: None,
        python,
    };
    Ok(Some((lab, work)))
}

/// Runs a case on the mount, or says how to have one.
pub(crate) fn on(lab: &mut Mounted, case: impl FnOnce(&Lab) -> Result<Outcome>) -> Result<Outcome> {
    let todo = "run it under scripts/pfs-mounted moosefs, gluster or cephfs";
    let skipped = || Ok(Outcome::Skipped(format!("nothing is mounted: {todo}")));
    lab.as_ref().map_or_else(skipped, |(lab, _)| case(lab))
}
