//! Where the pages of a NameNode are, and whom the pages of a cluster answer.

use super::address::HostPort;
use super::configuration::Configuration;
use super::keys;
use super::namenodes::NameNodeAddr;

/// Key of a NameNode's HTTP address, with the suffixes of its other addresses.
const HTTP_ADDRESS: &str = "dfs.namenode.http-address";
/// Its port by default.
const HTTP_PORT: u16 = 9870;
/// The filter that asks callers of pages who they are.
const ASKING_FILTER: &str = "AuthenticationFilterInitializer";

impl Configuration {
    /// Whether pages are served over TLS alone.
    #[must_use]
    pub fn https_only(&self) -> bool {
        let policy = self.get(&keys::HTTP_POLICY);
        policy.trim().eq_ignore_ascii_case("HTTPS_ONLY")
    }

    /// Whether a filter asks callers of pages who they are. Without it, what
    /// `hadoop.http.authentication.type` says counts for nothing.
    #[must_use]
    pub fn pages_ask_callers(&self) -> bool {
        self.get(&keys::HTTP_FILTERS).contains(ASKING_FILTER)
    }
}

/// Where the pages of a NameNode are; the host of its RPC address where it listens on all. `None`
/// when the address that is configured cannot be read.
#[must_use]
pub fn namenode_web_address(
    config: &Configuration,
    service: Option<&str>,
    namenode: &NameNodeAddr,
) -> Option<HostPort> {
    let parts = [Some(HTTP_ADDRESS), service, namenode.nn_id.as_deref()];
    let name: Vec<&str> = parts.into_iter().flatten().collect();
    let text = config.text(&name.join("."));
    let text = text.or_else(|| config.text(HTTP_ADDRESS));
    let mut address = match text {
        Some(text) => HostPort::parse_with_default(&text, Some(HTTP_PORT)).ok()?,
        None => HostPort {
            host: String::new(),
            port: HTTP_PORT,
        },
    };
    if ["", "0.0.0.0", "::"].contains(&&*address.host) {
        address.host.clone_from(&namenode.rpc.host);
    }
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_where_the_namenode_is() {
        let address = |pairs: &[(&str, &str)]| {
            let config = Configuration::from_properties(pairs.iter().copied()).expect("valid");
            let services = crate::namenodes(&config).expect("configured");
            let service = services.into_iter().next().expect("one");
            let namenode = &service.namenodes[0];
            let found = namenode_web_address(&config, service.id.as_deref(), namenode);
            found
                .map(|address| address.to_string())
                .expect("an address")
        };
        let one = ("fs.defaultFS", "hdfs://nn:8020");
        assert_eq!(address(&[one]), "nn:9870");
        assert_eq!(address(&[one, (HTTP_ADDRESS, "0.0.0.0:50070")]), "nn:50070");
        assert_eq!(address(&[one, (HTTP_ADDRESS, "web")]), "web:9870");
        let pair = [
            ("dfs.nameservices", "ns"),
            ("dfs.ha.namenodes.ns", "a"),
            ("dfs.namenode.rpc-address.ns.a", "h:8020"),
            ("dfs.namenode.http-address.ns.a", "h:1"),
        ];
        assert_eq!(address(&pair), "h:1");
    }
}
