//! One thing that is wrong or slow at a node.

use hayloft_io::IoClass;
use serde_json::{Value, json};

/// How grave something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gravity {
    /// An operator should look at it.
    Slow,
    /// An operator should act on it.
    Trouble,
}

/// What was found, in one sentence or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// How grave it is.
    pub gravity: Gravity,
    /// What is so, and why.
    pub text: String,
    /// The disk that it is about, if it is about one.
    pub disk: Option<String>,
    /// The class of transfers that it is about, if it is about one.
    pub class: Option<IoClass>,
}

impl Finding {
    /// Something of the node as a whole to look at.
    pub fn slow(text: String) -> Self {
        Self {
            gravity: Gravity::Slow,
            text,
            disk: None,
            class: None,
        }
    }

    /// Something of the node as a whole to act on.
    pub fn trouble(text: String) -> Self {
        Self {
            gravity: Gravity::Trouble,
            ..Self::slow(text)
        }
    }

    /// The same of a disk, and of one class of its transfers or of all.
    pub fn of_disk(self, disk: &str, class: Option<IoClass>) -> Self {
        let disk = Some(disk.to_owned());
        Self {
            disk,
            class,
            ..self
        }
    }

    /// As `/live` tells it.
    pub fn to_json(&self) -> Value {
        json!({
            "gravity": match self.gravity {
                Gravity::Slow => "slow",
                Gravity::Trouble => "trouble",
            },
            "text": self.text,
            "disk": self.disk,
            "class": self.class.map(IoClass::name),
        })
    }
}
