//! The scripts of a configuration that Hadoop's shell sources. They are programs: as whom they are
//! run here, and who may have written them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::limited::said;
use crate::error::CliError;

/// What Hadoop's shell sources of a configuration, where it is there.
fn all(conf: &Path) -> impl Iterator<Item = PathBuf> {
    let files = ["hadoop-env.sh", "hdfs-env.sh"].map(|name| conf.join(name));
    files.into_iter().filter(|file| file.exists())
}

/// Refuses scripts that others than root and the node's user, the `owner`, may change.
///
/// # Errors
/// With the first of them.
pub fn refuse_writable(conf: &Path, owner: u32) -> Result<(), CliError> {
    all(conf).try_for_each(|file| refuse_one(&file, owner))
}

fn refuse_one(file: &Path, owner: u32) -> Result<(), CliError> {
    let file = file.canonicalize().map_err(CliError::file("find", file))?;
    for path in [Some(&*file), file.parent()].into_iter().flatten() {
        let of = path.metadata().map_err(CliError::file("look at", path))?;
        // In a sticky directory others change no files of these two.
        let by_others = of.mode() & 0o022 != 0 && !(of.is_dir() && of.mode() & 0o1000 != 0);
        if by_others || ![0, owner].contains(&of.uid()) {
            let what = "others than root and the node's user may change what is run as that user";
            let advice = "give it to root, and take the others' right to write: chmod go-w";
            return Err(CliError::new(what, path.display().to_string(), advice));
        }
    }
    Ok(())
}

/// Whether Hadoop's shell starts the node as root, by what the configuration sets for that shell.
/// Root has the node's `user` ask: that one may write the scripts.
///
/// # Errors
/// When that user may not read one, or one of them hangs.
pub fn become_user(conf: &Path, user: Option<&str>) -> Result<bool, CliError> {
    let ask = "for file in hadoop-env.sh hdfs-env.sh; do\n\
               [ ! -f \"$0/$file\" ] || . \"$0/$file\"\ndone >/dev/null 2>&1\n\
               echo \"$HDFS_DATANODE_SECURE_USER$HADOOP_SECURE_DN_USER\"";
    let dir = conf.display().to_string();
    let bash = ["bash", "-c", ask, &dir];
    let told = match user {
        None => said(bash[0], &bash[1..])?,
        Some(user) => {
            let may = |file: PathBuf| may_read(user, &file);
            let read = all(conf).try_for_each(may);
            read.map_err(|why| CliError::new(why, "", ""))?;
            // Without root's terminal, into which that user could type.
            let other = ["runuser", "-u", user, "--"];
            said("setsid", &[&other[..], &bash].concat())?
        }
    };
    Ok(!told.trim().is_empty())
}

/// Whether that user may read a file; this process is root.
///
/// # Errors
/// In words: not so.
pub fn may_read(user: &str, path: &Path) -> Result<(), String> {
    let mut test = Command::new("runuser");
    test.args(["-u", user, "--", "test", "-r"]).arg(path);
    let status = test.status().map_err(|error| format!("runuser: {error}"))?;
    let path = path.display();
    status.success().then_some(()).ok_or_else(|| {
        format!("{user}, who runs the node, may not read {path}: give it to that user")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn a_node_that_root_starts_is_known_by_hadoops_environment() {
        let conf = tempfile::tempdir().expect("a directory");
        let asked = |conf: &Path| become_user(conf, None).expect("an answer");
        let set = |file: &str, text: &str| {
            std::fs::write(conf.path().join(file), text).expect("written");
        };
        assert!(!asked(conf.path()));
        set(
            "hadoop-env.sh",
            "# export HDFS_DATANODE_SECURE_USER=hdfs\necho hi\n",
        );
        assert!(!asked(conf.path()));
        set(
            "hdfs-env.sh",
            "U=hdfs\nexport HDFS_DATANODE_SECURE_USER=$U\n",
        );
        assert!(asked(conf.path()));
    }

    #[test]
    fn what_is_sourced_for_root_is_the_nodes_users_and_no_others() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: this takes root");
            return;
        }
        let conf = tempfile::tempdir().expect("a directory");
        let (conf, file) = (conf.path(), conf.path().join("hadoop-env.sh"));
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        mode(conf, 0o755);
        let text = "[ \"$(id -nu)\" != daemon ] || HDFS_DATANODE_SECURE_USER=hdfs\n";
        std::fs::write(&file, text).expect("written");
        mode(&file, 0o600);
        let unread = become_user(conf, Some("daemon")).expect_err("of root alone");
        assert!(unread.to_string().contains("give it"), "{unread}");
        mode(&file, 0o644);
        assert!(become_user(conf, Some("daemon")).expect("an answer"));
        assert!(!become_user(conf, None).expect("an answer"));
        let others = |owner| {
            refuse_writable(conf, owner)
                .err()
                .map(|why| why.to_string())
        };
        assert_eq!(others(1), None);
        chown(&file, Some(1), None).expect("given");
        assert_eq!(others(1), None);
        assert!(others(2).is_some_and(|why| why.contains("chmod go-w")));
        for (path, bits, refused) in [
            (&*file, 0o664, true),
            (&*file, 0o646, true),
            (&*file, 0o600, false),
            (conf, 0o777, true),
            (conf, 0o1777, false),
        ] {
            mode(path, bits);
            assert_eq!(others(1).is_some(), refused, "{} {bits:o}", path.display());
        }
    }

    #[test]
    fn root_does_not_read_in_the_place_of_the_nodes_user() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: this takes root");
            return;
        }
        let keytab = tempfile::NamedTempFile::new().expect("a file, which is of root alone");
        let refused = may_read("daemon", keytab.path()).expect_err("not for that user");
        assert!(
            refused.contains("daemon") && refused.contains("give it"),
            "{refused}"
        );
        assert_eq!(may_read("daemon", Path::new("/etc/passwd")), Ok(()));
    }
}
