//! Lists of hosts from which something may be done: addresses, names, and networks such as
//! `10.0.0.0/8`, with commas; or `*` alone for all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

/// Entries of one list.
const HOSTS_MAX: usize = 10_000;
/// How long the name of a host may take.
const RESOLVED_WITHIN: Duration = Duration::from_secs(10);

/// Hosts that were looked up, with their addresses: many lists have the same.
pub(crate) type FoundHosts = HashMap<String, Vec<IpAddr>>;

/// Which hosts. Names are looked up once, when a node starts, as Apache's node does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostList {
    every: bool,
    addresses: Vec<IpAddr>,
    /// First and last address of each.
    networks: Vec<(Ipv4Addr, Ipv4Addr)>,
    names: Vec<String>,
}

impl HostList {
    /// Reads a list. Names in it count for nothing before [`resolve`](Self::resolve).
    ///
    /// # Errors
    /// A network that is none, or too many entries; with what is allowed.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|e| !e.is_empty());
        let mut list = Self::default();
        let mut count = 0;
        for entry in entries {
            count += 1;
            if count > HOSTS_MAX {
                return Err(format!("at most {HOSTS_MAX} hosts"));
            }
            if entry.contains('/') {
                list.networks.push(network(entry)?);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                list.addresses.push(address.to_canonical());
            } else {
                list.names.push(entry.to_owned());
            }
        }
        // Beside others, `*` is a name that no host has.
        list.every = count == 1 && list.names == ["*"];
        Ok(list)
    }

    /// Looks up the names that are not `found` yet. Gives back those that have no address: they
    /// count for nothing.
    pub(crate) async fn resolve(&mut self, found: &mut FoundHosts) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.every {
            return unknown;
        }
        for name in std::mem::take(&mut self.names) {
            if !found.contains_key(&name) {
                found.insert(name.clone(), addresses(&name).await);
            }
            let addresses = found.get(&name).map_or(&[][..], Vec::as_slice);
            self.addresses.extend(addresses);
            if addresses.is_empty() {
                unknown.push(name);
            }
        }
        unknown
    }

    /// Whether the host with this address is in the list.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let within = |(first, last): &(Ipv4Addr, Ipv4Addr)| match address {
            IpAddr::V4(address) => (*first..=*last).contains(&address),
            IpAddr::V6(_) => false,
        };
        self.every || self.addresses.contains(&address) || self.networks.iter().any(within)
    }
}

/// The addresses of a host; none where it is not known in time.
async fn addresses(name: &str) -> Vec<IpAddr> {
    let found = timeout(RESOLVED_WITHIN, lookup_host((name, 0))).await;
    let found = found.into_iter().flatten().flatten();
    found.map(|found| found.ip().to_canonical()).collect()
}

/// First and last address of `a.b.c.d/bits`.
fn network(entry: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let parsed = entry.split_once('/').and_then(|(address, bits)| {
        let address: Ipv4Addr = address.parse().ok()?;
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
        Some((address, bits))
    });
    let (address, bits) = parsed
        .ok_or_else(|| format!("networks of IPv4 such as 10.0.0.0/8, which {entry} is not"))?;
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    let first = address.to_bits() & mask;
    Ok((Ipv4Addr::from(first), Ipv4Addr::from(first | !mask)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn has(text: &str, address: &str) -> bool {
        let list = HostList::parse(text).expect("a list");
        list.has(address.parse().expect("an address"))
    }

    #[test]
    fn addresses_and_networks() {
        for (text, address, is) in [
            ("*", "10.0.0.1", true),
            ("", "10.0.0.1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.2, 10.1.0.0/16", "10.1.255.255", true),
            ("10.1.2.3/16", "10.1.0.0", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("1.2.3.4/32", "1.2.3.5", false),
            ("::1", "::1", true),
            ("*,10.0.0.1", "10.0.0.2", false),
        ] {
            assert_eq!(has(text, address), is, "{text} {address}");
        }
        for bad in ["10.0.0.0/33", "10.0.0/8", "::1/64", "a/b", "/"] {
            assert!(HostList::parse(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn names_are_looked_up_once() {
        let mut list = HostList::parse("localhost, no-such-host.invalid").expect("a list");
        assert!(!list.has(Ipv4Addr::LOCALHOST.into()));
        let mut found = FoundHosts::new();
        let other = Ipv4Addr::new(10, 0, 0, 1);
        found.insert("found.invalid".to_owned(), vec![other.into()]);
        let unknown = list.resolve(&mut found).await;
        assert_eq!(unknown, ["no-such-host.invalid"]);
        assert!(list.has(Ipv4Addr::LOCALHOST.into()));
        assert!(found.contains_key("localhost") && !list.has(other.into()));
        let mut next = HostList::parse("found.invalid").expect("a list");
        assert!(next.resolve(&mut found).await.is_empty());
        assert!(next.has(other.into()));
    }

    proptest! {
        #[test]
        fn a_network_has_its_own_address(bits in 0u32..=32, address: [u8; 4]) {
            let address = Ipv4Addr::from(address);
            let list = HostList::parse(&format!("{address}/{bits}")).expect("a list");
            prop_assert!(list.has(address.into()));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-z0-9:./*, ]{0,60}") {
            let _ = HostList::parse(&text);
        }
    }
}
