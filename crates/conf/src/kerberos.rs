//! What a node with Kerberos needs besides.

use super::configuration::Configuration;
use super::error::ConfigError;
use super::keys;

/// Ports below it are for root alone to open.
pub(super) const PRIVILEGED_BELOW: u16 = 1024;

impl Configuration {
    /// Whether both sides of a connection have to prove who they are.
    #[must_use]
    pub fn has_kerberos(&self) -> bool {
        let authentication = self.get(&keys::SECURITY_AUTHENTICATION);
        authentication.eq_ignore_ascii_case("kerberos")
    }

    /// Refuses a node with Kerberos that could not prove who it is, or whose clients could not be
    /// sure that they speak to it. Of several virtual nodes each is looked at, and not what none
    /// of them is. Commands need none of this.
    ///
    /// # Errors
    /// [`ConfigError::Conflict`], with what to set; or what is wrong with the virtual nodes.
    pub fn refuse_half_secure(&self) -> Result<(), ConfigError> {
        if !self.has_kerberos() {
            return Ok(());
        }
        if self.node_name().is_none() && !self.get(&keys::NODES).is_empty() {
            let nodes = self.virtual_nodes()?;
            return nodes
                .iter()
                .try_for_each(|node| node.config.refuse_half_secure());
        }
        let what = self.missing_login().or_else(|| self.missing_proof());
        what.map_or(Ok(()), |what| Err(ConfigError::Conflict { what }))
    }

    fn missing_login(&self) -> Option<String> {
        let missing = [&keys::DATANODE_PRINCIPAL, &keys::DATANODE_KEYTAB]
            .into_iter()
            .find(|key| self.get(key).is_none())?;
        Some(format!(
            "{} is kerberos, but {} is not set: name the node's principal and the keytab that has \
             its key",
            keys::SECURITY_AUTHENTICATION.name(),
            missing.name()
        ))
    }

    /// Apache's rules: block tokens; a data port that only root can open, or SASL on it; a web port
    /// that only root can open, or HTTPS alone.
    fn missing_proof(&self) -> Option<String> {
        if !self.get(&keys::BLOCK_ACCESS_TOKEN_ENABLE) {
            return Some(format!(
                "{} is kerberos, but {} is not true: as Apache's, the node does not start, since \
                 it could not tell its clients apart; set it on every node and NameNode",
                keys::SECURITY_AUTHENTICATION.name(),
                keys::BLOCK_ACCESS_TOKEN_ENABLE.name()
            ));
        }
        if self.get(&keys::IGNORE_SECURE_PORTS) {
            return None;
        }
        let mut ports = Vec::new();
        if self.transfer_qualities().is_empty() {
            ports.push(&keys::DATANODE_ADDRESS);
        }
        if !self.https_only() {
            ports.push(&keys::DATANODE_HTTP_ADDRESS);
        }
        // Port 0 is any that is free, and so above.
        let open = |port: u16| port == 0 || port >= PRIVILEGED_BELOW;
        let open = ports.into_iter().find(|key| open(self.get(key).port))?;
        Some(format!(
            "{} is kerberos, but any user of this host could open the port of {}: give it a port \
             below {PRIVILEGED_BELOW} and start the node as root with HDFS_DATANODE_SECURE_USER, \
             or with systemd's AmbientCapabilities=CAP_NET_BIND_SERVICE; for the data port {} \
             serves as well, and for the web port {} = HTTPS_ONLY",
            keys::SECURITY_AUTHENTICATION.name(),
            open.name(),
            keys::DATA_TRANSFER_PROTECTION.name(),
            keys::HTTP_POLICY.name()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECURE: [(&str, &str); 6] = [
        ("hadoop.security.authentication", "Kerberos"),
        ("dfs.datanode.kerberos.principal", "dn/_HOST@R"),
        ("dfs.datanode.keytab.file", "/etc/dn.keytab"),
        ("dfs.block.access.token.enable", "true"),
        ("dfs.datanode.address", "0.0.0.0:1004"),
        ("dfs.datanode.http.address", "0.0.0.0:1006"),
    ];

    fn with(changes: &[(&str, &str)]) -> Result<(), String> {
        let changed = |name: &str| changes.iter().any(|(other, _)| *other == name);
        let kept = SECURE.into_iter().filter(|(name, _)| !changed(name));
        let all: Vec<_> = kept.chain(changes.iter().copied()).collect();
        let config = Configuration::from_properties(all).expect("valid");
        config
            .refuse_half_secure()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_apache_demands_is_demanded() {
        assert_eq!(with(&[]), Ok(()));
        for (key, value, told) in [
            (
                "dfs.datanode.keytab.file",
                "",
                "dfs.datanode.keytab.file is not set",
            ),
            (
                "dfs.datanode.kerberos.principal",
                "",
                "principal is not set",
            ),
            ("dfs.block.access.token.enable", "false", "is not true"),
            (
                "dfs.datanode.address",
                "0.0.0.0:9866",
                "the port of dfs.datanode.address",
            ),
            (
                "dfs.datanode.http.address",
                "0.0.0.0:0",
                "the port of dfs.datanode.http.address",
            ),
        ] {
            let refused = with(&[(key, value)]).unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn of_virtual_nodes_each_is_looked_at_and_not_the_plain_keys() {
        let nodes = [
            ("hayloft.nodes", "a,b"),
            ("dfs.datanode.address", "0.0.0.0:9866"),
            ("dfs.datanode.http.address", "0.0.0.0:9864"),
            ("dfs.datanode.address.a", "0.0.0.0:1004"),
            ("dfs.datanode.address.b", "0.0.0.0:1005"),
            ("dfs.datanode.http.address.a", "0.0.0.0:1006"),
        ];
        let open = with(&nodes).unwrap_err();
        assert!(
            open.contains("the port of dfs.datanode.http.address"),
            "{open}"
        );
        let all = [
            nodes.as_slice(),
            &[("dfs.datanode.http.address.b", "0.0.0.0:1007")],
        ]
        .concat();
        assert_eq!(with(&all), Ok(()));
    }

    #[test]
    fn ports_do_not_count_in_a_lab_and_the_plain_web_port_not_without_it() {
        let any = ("dfs.datanode.address", "0.0.0.0:9866");
        assert_eq!(
            with(&[any, ("ignore.secure.ports.for.testing", "true")]),
            Ok(())
        );
        let web = ("dfs.datanode.http.address", "0.0.0.0:9864");
        let https = ("dfs.http.policy", "HTTPS_ONLY");
        assert_eq!(with(&[web, https]), Ok(()));
        let sasl = ("dfs.data.transfer.protection", "privacy");
        assert_eq!(with(&[any, web, https, sasl]), Ok(()));
        assert!(with(&[any, web, sasl]).is_err() && with(&[any, web, https]).is_err());
        assert_eq!(
            with(&[any, ("hadoop.security.authentication", "simple")]),
            Ok(())
        );
    }
}
