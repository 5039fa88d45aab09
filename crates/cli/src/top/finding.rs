//! What is wrong or slow at a node. The node judges itself; only that it does not answer is found
//! here.

use serde::{Deserialize, Serialize};

/// How grave something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gravity {
    /// Nothing to do.
    #[default]
    Fine,
    /// To look at.
    Slow,
    /// To act on. What a newer node says besides is as grave.
    #[serde(other)]
    Trouble,
}

impl Gravity {
    /// A sign that needs no colour.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Fine => " ",
            Self::Slow => "~",
            Self::Trouble => "!",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// How grave.
    pub gravity: Gravity,
    /// What, and why.
    pub text: String,
    /// The disk that it is about, if it is about one.
    #[serde(default, skip_serializing)]
    pub disk: Option<String>,
    /// The class of transfers that it is about, if it is about one.
    #[serde(default, skip_serializing)]
    pub class: Option<String>,
}

impl Finding {
    /// That a node tells nothing of itself, and why.
    pub fn silent(why: &str) -> Self {
        Self {
            gravity: Gravity::Trouble,
            text: why.to_owned(),
            disk: None,
            class: None,
        }
    }

    /// Whether it is about this class of this disk, or about all classes of it.
    pub fn is_about(&self, disk: &str, class: &str) -> bool {
        self.disk.as_deref() == Some(disk) && self.class.as_deref().is_none_or(|of| of == class)
    }
}

/// The gravest of these.
pub fn gravest<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Gravity {
    let all = findings.into_iter().map(|finding| finding.gravity);
    all.max().unwrap_or_default()
}
