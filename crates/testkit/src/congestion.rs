//! TCP congestion control: which one a run had, and another one without a change to the machine.
//!
//! The default is a setting of a network namespace, and what connections cost depends on it, on the
//! loopback too: an algorithm that paces (BBR does) sends each piece when a timer says so.
//! [`enter`] moves the whole comparison into a namespace of its own: it has no name, so
//! that the kernel removes it with the last process in it, however that ended.

use crate::error::{Result, TestkitError};
use crate::mounts;
use rustix::net::{AddressFamily, SocketType, sockopt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Its name among the conditions of a record.
pub const CONDITION: &str = "TCP congestion control";

/// The kernel's own default, which most machines have.
const USUAL: &str = "cubic";
const NETWORK: &str = "/proc/sys/net";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// The variable by which the program inside knows that it is, and what the machine's settings are.
const MARK: &str = "HAYLOFT_BENCH_MACHINE_NETWORK";
/// Sizes of socket buffers, beside `net.ipv4.tcp_*`.
const BUFFERS: [&str; 4] = ["rmem_default", "rmem_max", "wmem_default", "wmem_max"];
/// What is not a namespace's to set, says the same otherwise, or is secret.
const NOT_CARRIED: [&str; 6] = [
    "tcp_congestion_control",
    "tcp_available_congestion_control",
    "tcp_allowed_congestion_control",
    "tcp_ehash_entries",
    "tcp_fastopen_key",
    "tcp_mem",
];

/// The namespaces of a run's own; the host's name is one of them, see [`set_up`].
const NAMESPACES: [&str; 2] = ["net", "uts"];
const UNSHARE: [&str; 2] = ["--net", "--uts"];

/// The network that a run was started in.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    /// The [`NAMESPACES`], as the kernel names them: `net:[4026531840]`.
    namespaces: Vec<String>,
    /// Files below [`NETWORK`] and what they hold.
    settings: BTreeMap<String, String>,
}

impl Machine {
    /// That of this process.
    fn present() -> Result<Self> {
        Ok(Self {
            namespaces: NAMESPACES
                .iter()
                .map(|kind| namespace(kind))
                .collect::<Result<_>>()?,
            settings: settings(),
        })
    }

    /// Whether it is another one in every respect, so that what is set here cannot touch it.
    fn is_apart_from(&self, here: &Self) -> bool {
        let mut pairs = self.namespaces.iter().zip(&here.namespaces);
        self.namespaces.len() == here.namespaces.len() && pairs.all(|(one, own)| one != own)
    }
}

/// What new connections of this process use, as the kernel tells of a socket; `None` when it does
/// not.
#[must_use]
pub fn present() -> Option<String> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    sockopt::tcp_congestion(&socket).ok()
}

/// Sees to it that this process is in a network namespace of its own in which `name` is the
/// default: at first by running the program again inside one, so that this does not return; then,
/// inside, by setting it up. What is returned tells of that network in words, for the record.
///
/// Everything started from here on is inside. All other settings of TCP are as they are on the
/// machine.
///
/// # Errors
/// One sentence: it needs root, `name` is not available, or the kernel refuses a namespace.
pub fn enter(name: &str) -> Result<String> {
    let outside = std::env::var(MARK).ok();
    let outside = outside.and_then(|text| serde_json::from_str::<Machine>(&text).ok());
    let here = Machine::present()?;
    match outside {
        Some(machine) if machine.is_apart_from(&here) => set_up(name, &machine),
        _ => Err(run_inside(name, &here)),
    }
}

/// Runs this program again in a namespace; it comes back only with the reason why that is
/// impossible.
fn run_inside(name: &str, here: &Machine) -> TestkitError {
    if let Err(error) = check(name) {
        return error;
    }
    match serde_json::to_string(here) {
        Ok(mark) => no_namespace(name, &mounts::run_again_inside(&UNSHARE, (MARK, &mark))),
        Err(error) => no_namespace(name, &error),
    }
}

/// Whether [`enter`] can do its work here.
///
/// # Errors
/// One sentence why not.
pub fn check(name: &str) -> Result<()> {
    let allowed =
        std::fs::read_to_string(ALLOWED).map_err(TestkitError::file("reading", ALLOWED))?;
    is_among(name, &allowed)?;
    if !rustix::process::geteuid().is_root() {
        return Err(no_namespace(name, &"this is not root"));
    }
    // Tried first: once this process has become `unshare`, a refusal would be that one's own words
    // only.
    let try_out = ["--", "ip", "link", "set", "lo", "up"];
    let tried = mounts::run(Command::new("unshare").args(UNSHARE).args(try_out));
    tried.map_err(|error| no_namespace(name, &error))?;
    Ok(())
}

fn no_namespace(name: &str, why: &dyn std::fmt::Display) -> TestkitError {
    TestkitError::Talk(format!(
        "--congestion {name} has no network namespace to run in ({why}): it needs root, and the \
            commands unshare and ip"
    ))
}

/// Whether a namespace may have this default.
fn is_among(name: &str, allowed: &str) -> Result<()> {
    let known: Vec<&str> = allowed.split_whitespace().collect();
    if known.contains(&name) {
        return Ok(());
    }
    Err(TestkitError::Talk(format!(
        "--congestion {name:?} is not available here: choose one of {} \
            (net.ipv4.tcp_allowed_congestion_control), or load the \
         kernel module tcp_{name} first if there is one",
        known.join(", ")
    )))
}

/// Sets up the namespaces that this process is alone in.
///
/// The host's name becomes `localhost` there: the stock NameNode does not start when it cannot
/// resolve it, and a namespace without a way out has no name server.
fn set_up(name: &str, machine: &Machine) -> Result<String> {
    mounts::run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    rustix::system::sethostname(b"localhost")
        .map_err(|e| TestkitError::Talk(format!("naming the host of the namespace: {e}")))?;
    let unlike = carry(&machine.settings);
    std::fs::write(DEFAULT, name).map_err(TestkitError::file("writing", DEFAULT))?;
    let got = present().unwrap_or_default();
    if got != name {
        return Err(TestkitError::Talk(format!(
            "connections use {got:?} although {DEFAULT} was set to {name}"
        )));
    }
    let mut text = "a namespace of the run's own (--congestion)".to_owned();
    if !unlike.is_empty() {
        text.push_str(&format!(
            ", in which these differ from the machine's: {}",
            unlike.join(", ")
        ));
    }
    Ok(text)
}

/// The present namespace of a kind.
fn namespace(kind: &str) -> Result<String> {
    let path = Path::new("/proc/self/ns").join(kind);
    let link = std::fs::read_link(&path).map_err(TestkitError::file("reading", path))?;
    Ok(link.display().to_string())
}

/// What holds for connections here, by file below [`NETWORK`]; what cannot be read is left out.
fn settings() -> BTreeMap<String, String> {
    let listed = std::fs::read_dir(Path::new(NETWORK).join("ipv4"));
    let names = listed.into_iter().flatten().flatten();
    let tcp = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("tcp_") && !NOT_CARRIED.contains(&name.as_str()))
        .map(|name| format!("ipv4/{name}"));
    let buffers = BUFFERS.iter().map(|name| format!("core/{name}"));
    let value = |name: String| {
        let text = std::fs::read_to_string(Path::new(NETWORK).join(&name)).ok()?;
        Some((name, text.trim().to_owned()))
    };
    tcp.chain(buffers).filter_map(value).collect()
}

/// Gives this namespace the settings of another one; the names of those that it does not take.
/// Settings that it does not have are the whole machine's.
fn carry(wanted: &BTreeMap<String, String>) -> Vec<String> {
    for (name, value) in differing(wanted, &settings()) {
        // What is refused is found below.
        let _refused = std::fs::write(Path::new(NETWORK).join(name), value);
    }
    let here = settings();
    let unlike = differing(wanted, &here);
    unlike.map(|(name, _)| name.replace('/', ".")).collect()
}

/// The settings that are in both and have another value in `here`, with the value wanted.
fn differing<'a>(
    wanted: &'a BTreeMap<String, String>,
    here: &BTreeMap<String, String>,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    wanted
        .iter()
        .filter(|(name, value)| here.get(*name).is_some_and(|own| own != *value))
}

/// What the congestion control of a run means for its figures; nothing needs to be said of the
/// usual one, of reno, which does not pace either, and of records that do not name it.
#[must_use]
pub fn note(conditions: &BTreeMap<String, String>) -> Option<String> {
    let name = conditions.get(CONDITION)?;
    let meaning = match name.as_str() {
        USUAL | "reno" => return None,
        "bbr" => {
            "It paces with timers what a connection sends, on the loopback too, which the peers \
                and the clients here pay for \
             with rate and processor time (but for what Hayloft's nodes send: \
             hayloft.transfer.local.unpaced)"
        }
        _ => {
            "It is not the kernel's own default: if it paces what a connection sends, every peer \
                and client here pays for \
             that with rate and processor time"
        }
    };
    Some(format!(
        "The TCP congestion control was {name}. {meaning}; `--congestion {USUAL}` makes the same \
            comparison with the kernel's \
         own default, and changes nothing on the machine."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_the_default_of_its_namespace() {
        let text = std::fs::read_to_string(DEFAULT).expect("Linux has TCP");
        assert_eq!(present().as_deref(), Some(text.trim()));
    }

    #[test]
    fn only_namespaces_of_its_own_are_set_up() {
        let of = |names: [&str; 2]| Machine {
            namespaces: names.map(str::to_owned).to_vec(),
            settings: BTreeMap::new(),
        };
        let machine = of(["net:[1]", "uts:[2]"]);
        assert!(machine.is_apart_from(&of(["net:[3]", "uts:[4]"])));
        assert!(
            !machine.is_apart_from(&of(["net:[3]", "uts:[2]"])),
            "the machine would be renamed"
        );
        assert!(!machine.is_apart_from(&of(["net:[1]", "uts:[4]"])));
        let forged = Machine {
            namespaces: Vec::new(),
            ..of(["", ""])
        };
        assert!(
            !forged.is_apart_from(&machine),
            "a variable alone is no proof"
        );
        let here = Machine::present().expect("Linux has namespaces");
        assert!(!here.is_apart_from(&here));
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        assert!(is_among("cubic", "reno bbr cubic\n").is_ok());
        let error = is_among("vegas", "reno cubic\n")
            .expect_err("unknown")
            .to_string();
        assert!(
            error.contains("vegas") && error.contains("reno, cubic"),
            "{error}"
        );
        is_among("", "reno cubic\n").expect_err("no name is none");
    }

    #[test]
    fn only_settings_of_both_that_differ_are_carried() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let own = |&(a, b): &(&str, &str)| (a.to_owned(), b.to_owned());
            pairs.iter().map(own).collect()
        };
        let wanted = map(&[
            ("ipv4/tcp_sack", "0"),
            ("ipv4/tcp_ecn", "2"),
            ("core/rmem_max", "9"),
        ]);
        let here = map(&[("ipv4/tcp_sack", "1"), ("ipv4/tcp_ecn", "2")]);
        let names: Vec<_> = differing(&wanted, &here).collect();
        assert_eq!(names, [(&"ipv4/tcp_sack".to_owned(), &"0".to_owned())]);
    }

    #[test]
    fn settings_are_those_of_connections() {
        let settings = settings();
        assert!(settings.contains_key("ipv4/tcp_sack"), "{settings:?}");
        assert!(!settings.contains_key("ipv4/tcp_congestion_control"));
        assert!(
            !settings.contains_key("ipv4/tcp_fastopen_key"),
            "it is secret"
        );
    }

    #[test]
    fn pacing_is_explained_and_the_usual_ones_are_not() {
        let of = |name: &str| note(&BTreeMap::from([(CONDITION.into(), name.into())]));
        assert_eq!((of("cubic"), of("reno")), (None, None));
        assert_eq!(note(&BTreeMap::new()), None, "an old record names none");
        for name in ["bbr", "vegas"] {
            let text = of(name).expect("explained");
            assert!(
                text.contains(name) && text.contains("--congestion cubic"),
                "{text}"
            );
        }
    }
}
