//! Whether clients of this host have a domain socket, and where.

use super::configuration::Configuration;
use super::keys;

impl Configuration {
    /// The path of the domain socket, `_PORT` as it is; `None` where there is to be none.
    #[must_use]
    pub fn domain_socket(&self) -> Option<String> {
        let path = self.get(&keys::DOMAIN_SOCKET_PATH)?;
        let path = path.trim();
        (self.asks_for_domain_socket() && !path.is_empty()).then(|| path.to_owned())
    }

    fn asks_for_domain_socket(&self) -> bool {
        self.get(&keys::SHORT_CIRCUIT_READS) || self.get(&keys::DOMAIN_DATA_TRAFFIC)
    }

    /// A line for a socket that is asked for by half.
    pub(super) fn half_a_domain_socket(&self) -> Option<String> {
        let (path, asks) = (&keys::DOMAIN_SOCKET_PATH, self.asks_for_domain_socket());
        let is_set = self.get(path).is_some_and(|path| !path.trim().is_empty());
        let keys = [
            keys::SHORT_CIRCUIT_READS.name(),
            keys::DOMAIN_DATA_TRAFFIC.name(),
        ];
        let [reads, traffic] = keys;
        match (is_set, asks) {
            (true, false) => Some(format!(
                "{} ({}) has no effect: neither {reads} nor {traffic} is true",
                path.name(),
                self.origin(path.name()),
            )),
            (false, true) => {
                let of = [reads, traffic].map(|name| (name, self.text(name)));
                let set = of
                    .iter()
                    .find(|(_, value)| value.as_deref() == Some("true"));
                let name = set.map_or(reads, |(name, _)| name);
                Some(format!(
                    "{name} ({}) has no effect on this node: {} is not set",
                    self.origin(name),
                    path.name()
                ))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(properties: &[(&str, &str)]) -> (Option<String>, Vec<String>) {
        let config = Configuration::from_properties(properties.iter().copied()).expect("valid");
        (config.domain_socket(), config.warnings())
    }

    #[test]
    fn a_socket_needs_a_path_and_one_of_two_keys() {
        let path = ("dfs.domain.socket.path", " /run/hdfs/dn._PORT ");
        let (reads, traffic) = (
            ("dfs.client.read.shortcircuit", "true"),
            ("dfs.client.domain.socket.data.traffic", "true"),
        );
        for key in [reads, traffic] {
            let (socket, warnings) = of(&[path, key]);
            assert_eq!(socket.as_deref(), Some("/run/hdfs/dn._PORT"));
            assert_eq!(warnings, Vec::<String>::new());
            let (socket, warnings) = of(&[key]);
            assert_eq!((socket, warnings.len()), (None, 1));
            assert!(warnings[0].starts_with(key.0), "{warnings:?}");
        }
        let (socket, warnings) = of(&[path]);
        assert_eq!((socket, warnings.len()), (None, 1));
        assert!(warnings[0].starts_with(path.0), "{warnings:?}");
        assert_eq!(of(&[]), (None, Vec::new()));
    }
}
