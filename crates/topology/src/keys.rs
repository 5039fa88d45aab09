//! What a node is called.

use std::fmt;
use std::net::IpAddr;

/// The names under which a NameNode may look this node up: its name, and its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeKeys {
    /// Its host name.
    pub name: String,
    /// Where its connections come from.
    pub addresses: Vec<IpAddr>,
}

impl NodeKeys {
    /// Whether a word names this node.
    pub(crate) fn has(&self, word: &str) -> bool {
        let address = word.parse::<IpAddr>();
        let address = address.is_ok_and(|address| self.addresses.contains(&address));
        address || (!self.name.is_empty() && word.eq_ignore_ascii_case(&self.name))
    }

    /// All of them, the addresses first.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        let addresses = self.addresses.iter().map(ToString::to_string);
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        addresses.chain(name)
    }
}

impl fmt::Display for NodeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.all().collect::<Vec<_>>().join(", "))
    }
}
