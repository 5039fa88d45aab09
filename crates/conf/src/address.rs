//! Host and port.

use std::fmt;

use super::value::{Unit, Value};

/// A host name or address and a port, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port; 0 lets the system choose.
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port`, `[v6]:port`, or a bare host when a default port is given.
    ///
    /// # Errors
    /// What is allowed, in words.
    pub fn parse_with_default(text: &str, default_port: Option<u16>) -> Result<Self, String> {
        let allowed = || "host:port, such as node1.example.com:9866".to_owned();
        // Some tools write addresses as URIs; Hadoop accepts that.
        let text = text
            .split_once("://")
            .map_or(text, |(_, rest)| rest.trim_end_matches('/'));
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, after) = rest.split_once(']').ok_or_else(allowed)?;
            (host, after.strip_prefix(':'))
        } else {
            text.rsplit_once(':')
                .map_or((text, None), |(host, port)| (host, Some(port)))
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| allowed())?,
            None => default_port.ok_or_else(allowed)?,
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(allowed());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Value for HostPort {
    const KIND: &'static str = "address";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        Self::parse_with_default(text, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |text| HostPort::parse_with_default(text, Some(8020)).map(|a| a.to_string());
        assert_eq!(parse("nn1"), Ok("nn1:8020".into()));
        assert_eq!(parse("hdfs://nn1:9000/"), Ok("nn1:9000".into()));
        assert_eq!(parse("[::1]:9000"), Ok("[::1]:9000".into()));
        for bad in [":1", "a:b", "a:70000", "[::1", "a b:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(HostPort::parse("nn1", Unit::None).is_err());
    }
}
