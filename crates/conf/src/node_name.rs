//! Names of virtual nodes, and which of them a configuration is derived for.

use std::fmt;

use super::value::{Unit, Value, items};

/// Virtual nodes of one process, at most.
pub const VIRTUAL_NODES_MAX: usize = 64;

/// Characters of a name, at most.
const NAME_CHARS_MAX: usize = 32;

/// The name of a virtual node: letters, digits, `-` and `_`, the first a letter or digit, at most
/// 32 characters. It is a directory and the end of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(String);

impl NodeName {
    /// The name, if it is one.
    ///
    /// # Errors
    /// What is allowed, in words.
    pub fn new(text: &str) -> Result<Self, String> {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !first || !text.chars().all(inner) || text.len() > NAME_CHARS_MAX {
            return Err(format!(
                "names of letters, digits, - and _, at most {NAME_CHARS_MAX} characters each \
                 ('{text}' is not)"
            ));
        }
        // Directories that a node without hayloft.nodes, or Hayloft itself, has in the same place.
        if text == "current" || text.starts_with("hayloft-") {
            return Err(format!(
                "other names than '{text}', which is a directory of its own in each data directory"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Empty: the process is one node.
impl Value for Vec<NodeName> {
    const KIND: &'static str = "list of names";
    const EMPTY_IS_VALUE: bool = true;
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        let mut names = Self::new();
        for item in items(text) {
            let name = NodeName::new(item)?;
            if names.contains(&name) {
                return Err(format!("a list that names {name} once"));
            }
            names.push(name);
        }
        if names.len() > VIRTUAL_NODES_MAX {
            return Err(format!("at most {VIRTUAL_NODES_MAX} names"));
        }
        Ok(names)
    }
}

/// Whose configuration a derived one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Derived {
    pub(super) name: NodeName,
    /// Its place in `hayloft.nodes`, from 0.
    pub(super) place: u16,
    /// Distance of its ports from those of the node before it.
    pub(super) step: u16,
}

impl Derived {
    /// What is added to the ports of the plain keys.
    pub(super) fn offset(&self) -> u16 {
        self.place.saturating_mul(self.step)
    }
}
