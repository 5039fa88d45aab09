//! A node that is started as root, opens its ports, and becomes another user: what Apache's start
//! does by jsvc.
//!
//! Linux has users and capabilities by thread. So all of it is done while there is one thread, and
//! those that are started later have what it has left. No process with root stays behind.

use std::process::{Command, Stdio};

use hayloft_conf::Configuration;
use hayloft_node::daemon::OpenedPorts;
use rustix::fs::{Gid, Uid};
use rustix::io::{Errno, Result as SystemResult};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_gid,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid,
};

use crate::error::CliError;

/// What names the user: Hadoop 3's name of the variable, and that of Hadoop 2.
const VARIABLES: [&str; 2] = ["HDFS_DATANODE_SECURE_USER", "HADOOP_SECURE_DN_USER"];
/// How long the user database may take for a question, in seconds as `timeout` has them.
const LOOKUP_SECONDS: &str = "30";
/// What `timeout` ends with when it has killed.
const KILLED: i32 = 137;
/// Capabilities that a kernel may know.
const CAPABILITIES_MAX: u32 = 64;
/// What this kernel says of the one thread.
const STATUS: &str = "/proc/thread-self/status";

/// The user that the node shall become.
#[derive(Debug, PartialEq, Eq)]
pub struct SecureUser {
    /// Its name.
    pub name: String,
    /// The variable that says so.
    pub variable: &'static str,
}

impl SecureUser {
    /// Whom the environment names; `None` when no one.
    pub fn wanted(environment: impl Fn(&str) -> Option<String>) -> Option<Self> {
        VARIABLES.into_iter().find_map(|variable| {
            let name = environment(variable).filter(|name| !name.is_empty())?;
            Some(Self { name, variable })
        })
    }

    /// Opens the ports of this configuration as root, and then gives up root for good.
    pub fn open_and_become(&self, config: &Configuration) -> Result<OpenedPorts, CliError> {
        if !rustix::process::geteuid().is_root() {
            return Err(self.error(
                "only root may open ports and become another user",
                "start the node as root, or unset the variable; as the user itself, ports below \
                 1024 need systemd's AmbientCapabilities=CAP_NET_BIND_SERVICE",
            ));
        }
        let ids = self.ids()?;
        self.told_apart_from_root(|path| std::fs::read_to_string(path).unwrap_or_default())?;
        let opened = OpenedPorts::open(config)?;
        become_user(&ids)
            .and_then(|()| stays(&ids))
            .map_err(|why| {
                let what = format!("root cannot be given up for {}: {why}", self.name);
                self.error(
                    &what,
                    "start it with all of root's capabilities, or as that user",
                )
            })?;
        Ok(opened)
    }

    fn error(&self, what: &str, advice: &str) -> CliError {
        CliError::new(what, format!("{}={}", self.variable, self.name), advice)
    }

    /// What the user database has, from whatever source: files, LDAP, SSSD.
    fn ids(&self) -> Result<Ids, CliError> {
        // `id` would take it for the number of a user, who may be another one.
        let number = self.name.trim_start_matches('+');
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.error(
                "a number is no name of a user",
                "name the one who owns the data",
            ));
        }
        let ask = |option: &str| -> Result<Vec<u32>, CliError> {
            let mut id = Command::new("timeout");
            id.args(["-s", "KILL", LOOKUP_SECONDS, "id", option, "--", &self.name]);
            let told = id.stdin(Stdio::null()).output().map_err(|error| {
                self.error(
                    &format!("cannot run 'timeout id': {error}"),
                    "install coreutils",
                )
            })?;
            let ids = String::from_utf8_lossy(&told.stdout).into_owned();
            let ids: Option<Vec<u32>> = ids.split_whitespace().map(|id| id.parse().ok()).collect();
            ids.filter(|ids| told.status.success() && !ids.is_empty())
                .ok_or_else(|| {
                    if told.status.code().is_none_or(|code| code == KILLED) {
                        let what = format!("no answer of the user database in {LOOKUP_SECONDS} s");
                        return self.error(&what, "look why 'id' with this name does not end");
                    }
                    let said = String::from_utf8_lossy(&told.stderr);
                    let what = format!("the user database knows no such user: {}", said.trim());
                    self.error(&what, "add the user, or name the one who owns the data")
                })
        };
        // The first of all groups is the user's own.
        let ids = Ids {
            user: ask("-u")?[0],
            groups: ask("-G")?,
        };
        if ids.user == 0 {
            return Err(self.error("this user is root", "name the one who owns the data"));
        }
        Ok(ids)
    }

    /// Where a user is in no file, its name is what `USER` says: that must not be root's.
    fn told_apart_from_root(&self, file: impl Fn(&str) -> String) -> Result<(), CliError> {
        let in_file = file("/etc/passwd")
            .lines()
            .any(|line| line.split(':').next() == Some(&self.name));
        let told = std::env::var("USER");
        if in_file || told.is_ok_and(|told| told == self.name) {
            return Ok(());
        }
        Err(self.error(
            "this user is not in /etc/passwd, and USER has another name",
            "start the node with that name in USER and LOGNAME",
        ))
    }
}

/// The numbers of a user.
#[derive(Debug)]
struct Ids {
    user: u32,
    /// All groups, of which the first is its own.
    groups: Vec<u32>,
}

/// Gives up root, with every way back that is known.
fn become_user(ids: &Ids) -> Result<(), String> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(format!("{threads} threads run, and there has to be one"));
    }
    let done = || -> SystemResult<()> {
        // A container may keep root from it. Without new privileges this set gives none.
        for bit in 0..CAPABILITIES_MAX {
            let capability = CapabilitySet::from_bits_retain(1 << bit);
            if remove_capability_from_bounding_set(capability) == Err(Errno::INVAL) {
                break;
            }
        }
        let groups: Vec<Gid> = ids.groups.iter().copied().map(Gid::from_raw).collect();
        let (user, group) = (Uid::from_raw(ids.user), groups[0]);
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            },
        )?;
        set_no_new_privs(true)?;
        // Other processes of the user shall not take the ports, and no file get the keys.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
    };
    done().map_err(|error| error.to_string())
}

/// Checks that nothing of root is left, and that it cannot be had again.
fn stays(ids: &Ids) -> Result<(), String> {
    let back = [
        ("user", set_thread_uid(Uid::ROOT).is_ok()),
        (
            "group",
            ids.groups[0] != 0 && set_thread_gid(Gid::ROOT).is_ok(),
        ),
    ];
    if let Some((what, _)) = back.into_iter().find(|(_, came_back)| *came_back) {
        return Err(format!(
            "the kernel lets this process have root's {what} again"
        ));
    }
    let status = std::fs::read_to_string(STATUS).map_err(|error| format!("{STATUS}: {error}"))?;
    without_root(ids, &status)
}

/// What `/proc` says of a thread that has nothing of root left.
fn without_root(ids: &Ids, status: &str) -> Result<(), String> {
    let four = |id: u32| [id; 4].map(|id| id.to_string()).join("\t");
    let none = || "0".repeat(16);
    for (name, wanted) in [
        ("Uid", four(ids.user)),
        ("Gid", four(ids.groups[0])),
        ("CapInh", none()),
        ("CapPrm", none()),
        ("CapEff", none()),
        ("CapAmb", none()),
        ("NoNewPrivs", "1".to_owned()),
    ] {
        let mut lines = status.lines().filter_map(|line| line.split_once(":\t"));
        let found = lines.find(|(of, _)| *of == name).map(|(_, found)| found);
        if found != Some(&wanted) {
            let found = found.unwrap_or("nothing");
            return Err(format!("{STATUS} has {found} for {name}, and not {wanted}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> SecureUser {
        SecureUser {
            name: name.to_owned(),
            variable: VARIABLES[0],
        }
    }

    #[test]
    fn the_newer_of_two_variables_counts_and_an_empty_one_does_not() {
        let with = |set: &[(&str, &str)]| {
            let set = set.to_vec();
            SecureUser::wanted(move |name| {
                let found = set.iter().find(|(of, _)| *of == name)?;
                Some(found.1.to_owned())
            })
        };
        assert_eq!(with(&[]), None);
        let [new, old] = VARIABLES;
        assert_eq!(with(&[(new, "hdfs"), (old, "dn")]), Some(named("hdfs")));
        let of_old = with(&[(new, ""), (old, "dn")]).expect("named");
        assert_eq!((of_old.variable, &*of_old.name), (old, "dn"));
    }

    #[test]
    fn users_that_are_root_or_unknown_are_refused_by_name() {
        for (name, told) in [
            ("root", "this user is root"),
            ("no-such-user", "no such user"),
            ("-u", "no such user"),
            ("1", "a number is no name"),
            ("+1", "a number is no name"),
            ("", "no such user"),
        ] {
            let why = named(name).ids().expect_err("refused").to_string();
            let named = why.contains(&format!("({}={name})", VARIABLES[0]));
            assert!(why.contains(told) && named, "{why}");
        }
        let ids = named("daemon").ids().expect("every Debian has it");
        assert_eq!((ids.user, ids.groups[0]), (1, 1));
    }

    #[test]
    fn a_user_of_no_file_must_be_named_by_the_environment() {
        let passwd = |_: &str| "root:x:0:0::/:/bin/sh\nhdfs:x:5:5::/:/bin/false\n".to_owned();
        assert!(named("hdfs").told_apart_from_root(passwd).is_ok());
        let refused = named("hd").told_apart_from_root(passwd);
        let refused = refused.expect_err("in no file").to_string();
        assert!(refused.contains("USER and LOGNAME"), "{refused}");
    }

    #[test]
    fn what_is_left_of_root_is_found() {
        let ids = Ids {
            user: 5,
            groups: vec![6, 7],
        };
        let none = "0000000000000000";
        let good = format!(
            "Name:\thayloft\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\nGroups:\t6 7\nNoNewPrivs:\t1\n\
             CapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapBnd:\t{none}\nCapAmb:\t{none}\n"
        );
        assert_eq!(without_root(&ids, &good), Ok(()));
        for (was, is) in [
            ("Uid:\t5\t5\t5\t5", "Uid:\t5\t5\t0\t5"),
            ("Gid:\t6\t6\t6\t6", "Gid:\t0\t6\t6\t6"),
            ("CapPrm:\t0", "CapPrm:\t1"),
            ("CapAmb:\t0", "CapAmb:\t4"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("CapEff", "CapOther"),
        ] {
            let why = without_root(&ids, &good.replace(was, is));
            assert!(why.is_err(), "{is}");
        }
    }
}
