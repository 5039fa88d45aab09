//! The scripts of a configuration that Hadoop's shell sources. They are programs: as whom they are
//! run here, and who may have written them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::limited::said;
use crate::error::CliError;

/// What is asked here of all that Hadoop's shell sources.
const ASKED: [&str; 2] = ["hadoop-env.sh", "hdfs-env.sh"];

/// What Hadoop's shell sources of a configuration, where it is there, and their directories.
fn all(conf: &Path) -> Vec<PathBuf> {
    let profiles = conf.join("shellprofile.d");
    let of_profiles = std::fs::read_dir(&profiles).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = of_profiles.map(|entry| entry.path()).collect();
    all.extend(ASKED.map(|name| conf.join(name)));
    all.extend([conf.join("hadoop-user-functions.sh"), profiles, conf.into()]);
    all.retain(|path| path.exists());
    all
}

/// Refuses scripts that others than root may change: root's own shell sources them where it starts
/// the node.
///
/// # Errors
/// With the first of them.
pub fn refuse_writable(conf: &Path) -> Result<(), CliError> {
    all(conf).iter().try_for_each(|path| refuse_one(path))
}

fn refuse_one(path: &Path) -> Result<(), CliError> {
    // A link's directory is among those that are looked at, its target's is not.
    let real = path.canonicalize().map_err(CliError::file("find", path))?;
    for path in [Some(&*real), real.parent()].into_iter().flatten() {
        let of = path.metadata().map_err(CliError::file("look at", path))?;
        // In a sticky directory others change no files of root's.
        let by_others = of.mode() & 0o022 != 0 && !(of.is_dir() && of.mode() & 0o1000 != 0);
        if by_others || of.uid() != 0 {
            let what = "others than root may change what root's shell runs to start the node";
            let advice = "chown root, and chmod go-w";
            return Err(CliError::new(what, path.display().to_string(), advice));
        }
    }
    Ok(())
}

/// Whether Hadoop's shell starts the node as root, by what the configuration sets for that shell.
/// Root has the node's `user` ask, who may be able to write the scripts; what that one may not read
/// and root alone may write, root reads itself.
///
/// # Errors
/// When that user may not read one that others may write, or one of them hangs.
pub fn become_user(conf: &Path, user: Option<&str>) -> Result<bool, CliError> {
    let ask = "for file in hadoop-env.sh hdfs-env.sh; do\n\
               [ ! -f \"$0/$file\" ] || . \"$0/$file\"\ndone >/dev/null 2>&1\n\
               echo \"$HDFS_DATANODE_SECURE_USER$HADOOP_SECURE_DN_USER\"";
    let dir = conf.display().to_string();
    let bash = ["bash", "-c", ask, &dir];
    let unread = user.and_then(|user| {
        let asked = ASKED.map(|name| conf.join(name)).into_iter();
        let read = asked
            .filter(|file| file.exists())
            .map(|file| may_read(user, &file));
        read.filter_map(Result::err).next()
    });
    let told = match (user, unread) {
        (None, _) => said(bash[0], &bash[1..])?,
        (Some(_), Some(why)) => {
            refuse_writable(conf).map_err(|_| CliError::new(why, "", ""))?;
            said(bash[0], &bash[1..])?
        }
        (Some(user), None) => {
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
        assert!(!become_user(conf, Some("daemon")).expect("root reads what is root's alone"));
        mode(&file, 0o620);
        let unread = become_user(conf, Some("daemon")).expect_err("others may write it");
        assert!(unread.to_string().contains("give it"), "{unread}");
        mode(&file, 0o644);
        assert!(become_user(conf, Some("daemon")).expect("an answer"));
        assert!(!become_user(conf, None).expect("an answer"));
        let others = || refuse_writable(conf).err().map(|why| why.to_string());
        assert_eq!(others(), None);
        chown(&file, Some(1), None).expect("given");
        assert!(others().is_some_and(|why| why.contains("chmod go-w")));
        chown(&file, Some(0), None).expect("taken back");
        for (path, bits, refused) in [
            (&*file, 0o664, true),
            (&*file, 0o646, true),
            (&*file, 0o600, false),
            (conf, 0o777, true),
            (conf, 0o1777, false),
        ] {
            mode(path, bits);
            assert_eq!(others().is_some(), refused, "{} {bits:o}", path.display());
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
