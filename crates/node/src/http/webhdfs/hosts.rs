//! Who may read from where (`dfs.web.authentication.host.allow.rules`), where the handler for it is
//! among `dfs.datanode.httpserver.filter.handlers`.

use std::net::{IpAddr, Ipv4Addr};

use hayloft_conf::{Configuration, keys};

use super::has_guard;
use super::parameters::Parameters;
use super::refusal::Refusal;

/// The handler's name in Apache's configuration.
const HANDLER: &str = "HostRestrictingAuthorizationFilterHandler";

/// `user,network/bits,directory`.
struct Rule<'a> {
    user: &'a str,
    /// `None`: from anywhere.
    network: Option<(Ipv4Addr, u32)>,
    directory: &'a str,
}

impl<'a> Rule<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(3, ',');
        let (user, network, directory) = (parts.next()?, parts.next()?, parts.next()?);
        let network = match network.trim() {
            "*" => None,
            network => {
                let (address, bits) = network.split_once('/')?;
                let bits = bits.parse().ok().filter(|bits| *bits <= 32)?;
                Some((address.parse().ok()?, bits))
            }
        };
        (!directory.is_empty()).then_some(Self {
            user,
            network,
            directory,
        })
    }

    fn allows(&self, user: &str, from: IpAddr, path: &str) -> bool {
        let user_fits = self.user == "*" || self.user == user;
        let network = self.network;
        let host_fits = network.is_none_or(|(network, bits)| within(from, network, bits));
        user_fits && host_fits && contains(self.directory, path)
    }
}

/// Whether the address is a host of the network. Its first and last address are none.
fn within(from: IpAddr, network: Ipv4Addr, bits: u32) -> bool {
    let IpAddr::V4(from) = from else {
        return false;
    };
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    let (from, first) = (from.to_bits(), network.to_bits() & mask);
    let last = first | !mask;
    from > first && from < last
}

fn contains(directory: &str, path: &str) -> bool {
    let below = path.strip_prefix(directory.strip_suffix('/').unwrap_or(directory));
    below.is_some_and(|below| below.len() > 1 && below.starts_with('/'))
}

/// Refuses who may not read the file from there.
pub(super) fn check(
    config: &Configuration,
    parameters: &Parameters,
    from: Option<IpAddr>,
) -> Result<(), Refusal> {
    if !has_guard(config, HANDLER) {
        return Ok(());
    }
    let user = parameters.get("user.name").filter(|user| !user.is_empty());
    let rules = config.get(&keys::WEB_HOST_ALLOW_RULES);
    for text in rules.split(['|', '\n']).filter(|text| !text.is_empty()) {
        let rule = Rule::parse(text).ok_or_else(|| {
            Refusal::internal(format!(
                "dfs.web.authentication.host.allow.rules has a bad rule: {text}"
            ))
        })?;
        let allows = |from| rule.allows(user.unwrap_or_default(), from, &parameters.path);
        if from.is_some_and(allows) {
            return Ok(());
        }
    }
    let (user, path) = (user.unwrap_or("null"), &parameters.path);
    let from = from.map_or_else(String::new, |from| from.to_string());
    Err(Refusal::forbidden(format!(
        "WebHDFS is configured write-only for {user}@{from} for file: {path}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(rules: &str, request: &str, from: &str) -> Result<(), Refusal> {
        let handler = "org.apache.hadoop.hdfs.server.datanode.web.\
                       HostRestrictingAuthorizationFilterHandler";
        let config = Configuration::from_properties([
            ("dfs.datanode.httpserver.filter.handlers", handler),
            ("dfs.web.authentication.host.allow.rules", rules),
        ]);
        let uri = format!("/webhdfs/v1{request}").parse().expect("a URI");
        let parameters = Parameters::of(&uri).expect("well");
        check(&config.expect("valid"), &parameters, from.parse().ok())
    }

    #[test]
    fn rules_name_users_networks_and_directories() {
        let rules = "alice,10.1.0.0/16,/data|*,*,/public\nbob,192.168.1.0/24,/";
        for (request, from, allowed) in [
            ("/data/x?user.name=alice", "10.1.2.3", true),
            ("/data/x?user.name=alice", "10.2.2.3", false),
            ("/data?user.name=alice", "10.1.2.3", false),
            ("/database/x?user.name=alice", "10.1.2.3", false),
            ("/data/x?user.name=bob", "10.1.2.3", false),
            ("/public/x", "1.2.3.4", true),
            ("/any?user.name=bob", "192.168.1.7", true),
            ("/any?user.name=bob", "192.168.1.255", false),
            ("/any?user.name=bob", "::1", false),
        ] {
            let outcome = checked(rules, request, from);
            assert_eq!(outcome.is_ok(), allowed, "{request} from {from}");
        }
        checked("", "/public/x", "1.2.3.4").expect_err("no rules allow nothing");
        checked("alice,/data", "/data/x", "1.2.3.4").expect_err("a bad rule");
        assert!(within(
            "10.0.0.9".parse().expect("an address"),
            Ipv4Addr::UNSPECIFIED,
            0
        ));
    }

    #[test]
    fn without_the_handler_there_are_no_rules() {
        let config = Configuration::from_properties([(
            "dfs.web.authentication.host.allow.rules",
            "nonsense",
        )]);
        let uri = "/webhdfs/v1/x?op=OPEN".parse().expect("a URI");
        let parameters = Parameters::of(&uri).expect("well");
        check(&config.expect("valid"), &parameters, None).expect("allowed");
    }
}
