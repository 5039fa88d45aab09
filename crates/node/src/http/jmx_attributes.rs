//! A bean while it is made.

use serde_json::{Map, Value};

use super::jmx::Bean;

/// Attributes of a bean that is made.
#[derive(Clone)]
pub(super) struct Attributes(Map<String, Value>);

impl Attributes {
    pub(super) fn new() -> Self {
        Self(Map::new())
    }

    /// With the tags that Hadoop's metrics have.
    pub(super) fn tagged(context: &str) -> Self {
        let mut new = Self::new();
        new.set("tag.Context", context);
        new.set("tag.Hostname", crate::identity::system_host_name());
        new
    }

    /// Adds those of another one.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    pub(super) fn rate(&mut self, name: &str, (ops, mean): (u64, f64)) {
        self.set(&format!("{name}NumOps"), ops);
        self.set(&format!("{name}AvgTime"), mean);
    }

    pub(super) fn bean(self, name: &str) -> Bean {
        self.of_class(name, name)
    }

    pub(super) fn of_class(self, name: &str, class: &str) -> Bean {
        Bean {
            name: format!("Hadoop:service=DataNode,name={name}"),
            class: class.into(),
            attributes: self.0,
        }
    }
}
