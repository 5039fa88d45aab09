//! The groups of users.
//!
//! They come from the system's user database through `id`, as Hadoop's default mapping does it. So
//! every source that the machine knows (files, LDAP, SSSD) counts. Answers are kept for a while.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tracing::warn;

use hayloft_conf::{Configuration, SharedConfig, keys};
use hayloft_io::locks::lock;
use hayloft_rpc::log_limit::{LogLimit, words};

/// Users whose groups are kept.
const GROUPS_KEPT: usize = 1024;
/// Bytes of a user's name; a longer one is no user's, and is neither asked for nor kept.
const NAME_BYTES_MAX: usize = 256;
/// How long the user database may take for one user, in seconds as `timeout` has them.
const LOOKUP_SECONDS: &str = "10";
/// How long a caller waits for that, and for those before it.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// Look-ups at the same time: a slow user database must not use up all threads.
const LOOKUPS_MAX: usize = 4;

/// Knows the groups of users. Each port has one of its own: a crowd of names at one port neither
/// keeps the other waiting nor drives out whom it knows.
#[derive(Debug)]
pub(crate) struct UserGroups {
    config: SharedConfig,
    kept: Mutex<HashMap<String, (Instant, Vec<String>)>>,
    lookups: Arc<Semaphore>,
    log: LogLimit,
    /// `id`, or what a test has instead.
    program: Vec<String>,
}

impl UserGroups {
    pub(crate) fn new(config: SharedConfig) -> Self {
        Self {
            config,
            kept: Mutex::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            log: LogLimit::default(),
            program: vec!["id".to_owned()],
        }
    }

    /// The groups of a user, by its short name. One that cannot be looked up is in none.
    pub(crate) async fn of(&self, user: &str) -> Vec<String> {
        self.if_told(user).await.unwrap_or_default()
    }

    /// As [`of`](Self::of); `None` when the user database does not tell. That is not kept.
    pub(crate) async fn if_told(&self, user: &str) -> Option<Vec<String>> {
        if let Some(groups) = static_groups(&self.config.current(), user) {
            return Some(groups);
        }
        if let Some(groups) = self.known(user) {
            return Some(groups);
        }
        if user.len() > NAME_BYTES_MAX {
            return Some(Vec::new());
        }
        let told = tokio::time::timeout(TOLD_WITHIN, self.look_up(user)).await;
        let told = told.ok().flatten();
        if let (None, Some(skipped)) = (&told, self.log.may_log()) {
            warn!(
                user = words(user),
                skipped, "the user database does not tell the groups of a user"
            );
        }
        told
    }

    async fn look_up(&self, user: &str) -> Option<Vec<String>> {
        let place = Arc::clone(&self.lookups).acquire_owned().await;
        // Another caller may have asked for the same user.
        if let Some(groups) = self.known(user) {
            return Some(groups);
        }
        let (program, name) = (self.program.clone(), user.to_owned());
        // The place is held until the program has ended, whether or not the caller still waits.
        let asked = tokio::task::spawn_blocking(move || {
            let _place = place;
            ask(&program, &name)
        });
        let groups = asked.await.ok()??;
        self.keep(user, &groups);
        Some(groups)
    }

    /// Keeps the groups of a user. Where there is no place, one without groups makes it, as names
    /// have that callers made up; else the one that is kept longest.
    fn keep(&self, user: &str, groups: &[String]) {
        let mut kept = lock(&self.kept);
        if kept.len() >= GROUPS_KEPT {
            let oldest = kept
                .iter()
                .min_by_key(|(_, (since, groups))| (!groups.is_empty(), *since));
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| kept.remove(&name));
        }
        kept.insert(user.to_owned(), (Instant::now(), groups.to_vec()));
    }

    fn known(&self, user: &str) -> Option<Vec<String>> {
        let kept = lock(&self.kept);
        let (since, groups) = kept.get(user)?;
        let believed: Duration = self.config.get(&keys::GROUPS_CACHE);
        (since.elapsed() < believed).then(|| groups.clone())
    }
}

fn static_groups(config: &Configuration, user: &str) -> Option<Vec<String>> {
    let overrides = config.get(&keys::STATIC_GROUPS);
    overrides.split(';').find_map(|entry| {
        let (name, groups) = entry.split_once('=').unwrap_or((entry, ""));
        (!name.trim().is_empty() && name.trim() == user).then(|| {
            groups
                .split(',')
                .map(|group| group.trim().to_owned())
                .filter(|group| !group.is_empty())
                .collect()
        })
    })
}

/// The groups of a user, none of one that the system does not know. `None`: it cannot be asked.
fn ask(program: &[String], user: &str) -> Option<Vec<String>> {
    // `id` passes over more kinds of space before a number than Rust's notion of it has.
    if user.is_empty() || user.starts_with('-') || user.contains(|c: char| c.is_control()) {
        return Some(Vec::new());
    }
    // `id` takes a number for that of a user, who is likely called otherwise.
    let number = |c: char| c.is_ascii_digit() || c.is_ascii_whitespace() || c == '+';
    if user.chars().all(number) && told(program, "-unz", user)? != [user] {
        return Some(Vec::new());
    }
    told(program, "-Gnz", user)
}

/// The names that `id` prints.
fn told(program: &[String], what: &str, user: &str) -> Option<Vec<String>> {
    let output = Command::new("timeout")
        .args(["-s", "KILL", LOOKUP_SECONDS])
        .args(program)
        .args([what, "--", user])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match output {
        // 1: the user is not known, or one of its groups has no name. Others count all the same.
        Ok(output) if matches!(output.status.code(), Some(0 | 1)) => {
            let names = output.stdout.split(|byte| *byte == 0);
            let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
            Some(names.filter(|name| !name.is_empty()).collect())
        }
        // It was killed, or not found.
        Ok(_) => None,
        Err(error) => {
            warn!(%error, "cannot run 'timeout id', which tells the groups of users");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups that a shell script tells: `$3` is the user, and `$0` a file that is not there yet.
    fn told_by(script: &str) -> (tempfile::TempDir, UserGroups) {
        let dir = tempfile::tempdir().expect("a directory");
        let go = dir.path().join("go").display().to_string();
        let config = Configuration::from_properties([("a", "b")]).expect("valid");
        let groups = UserGroups {
            program: ["sh", "-c", script, &go].map(str::to_owned).to_vec(),
            ..UserGroups::new(SharedConfig::new(config))
        };
        (dir, groups)
    }

    #[tokio::test]
    async fn names_with_spaces_and_groups_without_a_name_are_told_apart() {
        let script = r#"case $3 in
            ann) printf 'domain users\0staff\0' ;;
            bob) printf 'staff\0005000\0'; exit 1 ;;
            eve) exit 1 ;;
            *) exit 137 ;;
        esac"#;
        let (_dir, groups) = told_by(script);
        for (user, told) in [
            ("ann", Some(vec!["domain users", "staff"])),
            ("bob", Some(vec!["staff", "5000"])),
            ("eve", Some(vec![])),
            ("zoe", None),
        ] {
            let found = groups.if_told(user).await;
            let found = found
                .as_ref()
                .map(|all| all.iter().map(String::as_str).collect());
            assert_eq!(found, told, "{user}");
        }
        assert!(groups.known("eve").is_some() && groups.known("zoe").is_none());
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(groups.if_told(&long).await, Some(Vec::new()));
        assert!(groups.known(&long).is_none());
    }

    #[tokio::test]
    async fn a_name_that_is_a_number_is_not_that_of_the_user_with_this_number() {
        let config = Configuration::from_properties([("a", "b")]).expect("valid");
        let groups = UserGroups::new(SharedConfig::new(config));
        for number in ["0", "+0", " 0", "00", "\u{b}0", "\t0"] {
            assert_eq!(groups.of(number).await, [""; 0], "{number:?}");
        }
        assert!(!groups.of("root").await.is_empty());
        let (_dir, groups) = told_by(r#"printf "$([ $1 = -unz ] && echo "$3" || echo staff)\0""#);
        assert_eq!(groups.of("1001").await, ["staff"], "one is called so");
    }

    #[tokio::test]
    async fn one_slow_look_up_does_not_hold_the_others() {
        let (dir, groups) = told_by(
            r#"case $3 in
                slow) while ! [ -e "$0" ]; do sleep 0.02; done ;;
            esac
            printf 'staff\0'"#,
        );
        let slow = groups.if_told("slow");
        let others = async {
            for user in ["ann", "bob"] {
                assert_eq!(groups.of(user).await, ["staff"]);
            }
            std::fs::write(dir.path().join("go"), "").expect("written");
        };
        let (slow, ()) = tokio::join!(slow, others);
        assert_eq!(slow, Some(vec!["staff".to_owned()]));
    }

    #[tokio::test]
    async fn a_place_is_held_while_the_program_runs() {
        let script = r#"while ! [ -e "$0" ]; do sleep 0.02; done; printf 'staff\0'"#;
        let (dir, groups) = told_by(script);
        for user in ["a", "b", "c", "d"] {
            let given_up = tokio::time::timeout(Duration::from_millis(50), groups.if_told(user));
            assert!(given_up.await.is_err());
        }
        assert_eq!(groups.lookups.available_permits(), 0);
        std::fs::write(dir.path().join("go"), "").expect("written");
        assert_eq!(groups.of("e").await, ["staff"]);
    }

    #[tokio::test]
    async fn a_crowd_of_strangers_drives_out_none_who_is_known() {
        let (_dir, groups) = told_by("exit 1");
        groups.keep("ann", &["staff".to_owned()]);
        for stranger in 0..2 * GROUPS_KEPT {
            groups.keep(&stranger.to_string(), &[]);
        }
        assert_eq!(lock(&groups.kept).len(), GROUPS_KEPT);
        assert_eq!(groups.known("ann"), Some(vec!["staff".to_owned()]));
    }
}
