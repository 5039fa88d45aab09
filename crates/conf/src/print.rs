//! The configuration as a report: text, JSON, and the table of the documentation.

use std::fmt::Write as _;

use serde::Serialize;

use super::configuration::{Configuration, Origin};
use super::key::AnyKey;
use super::keys;
use super::unsupported;

/// One key of the table with its present value.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// Name in configuration files.
    pub key: &'static str,
    /// Text after substitution.
    pub value: String,
    /// `default`, `command line`, `reconfigured` or `file:line`.
    pub source: String,
    /// Default, before substitution.
    pub default: &'static str,
    /// Type of the value.
    pub kind: &'static str,
    /// Unit of a bare number; empty if it has none.
    pub unit: &'static str,
    /// Whether it may change while the node runs.
    pub reconfigurable: bool,
    /// What it does.
    pub doc: &'static str,
}

impl Configuration {
    /// Every key of the table, in its order.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        keys::all().map(|key| self.setting(key)).collect()
    }

    fn setting(&self, key: &dyn AnyKey) -> Setting {
        Setting {
            key: key.name(),
            value: self.text(key.name()).unwrap_or_default(),
            source: self.origin(key.name()).to_string(),
            default: key.default(),
            kind: key.kind(),
            unit: key.unit().name(),
            reconfigurable: key.is_reconfigurable(),
            doc: key.doc(),
        }
    }

    /// Every key as `key = value`, each below a comment with its doc and origin.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for setting in self.settings() {
            let unit = if setting.unit.is_empty() {
                String::new()
            } else {
                format!(", {}", setting.unit)
            };
            let _ = writeln!(out, "# {} ({}{unit})", setting.doc, setting.kind);
            let _ = writeln!(
                out,
                "{} = {}  [{}]\n",
                setting.key, setting.value, setting.source
            );
        }
        let others: Vec<&str> = self
            .names()
            .filter(|name| keys::find(name).is_none())
            .collect();
        if !others.is_empty() {
            out.push_str("# Set, and not read by the node itself:\n");
        }
        for name in others {
            let origin = self.origin(name);
            debug_assert_ne!(origin, Origin::Default);
            let _ = writeln!(
                out,
                "{name} = {}  [{origin}]",
                self.text(name).unwrap_or_default()
            );
        }
        out
    }
}

/// The tables of docs/operate/configure.md: keys with effect, then keys without.
#[must_use]
pub fn to_markdown() -> String {
    let mut out = String::from("| Key | Default | Type | Meaning |\n|---|---|---|---|\n");
    // Some are known to the table so that they can be reconfigured or reported, and have no effect all the same.
    let without_effect =
        |key: &&dyn AnyKey| unsupported::all().any(|entry| entry.name == key.name());
    for key in keys::all().filter(|key| !without_effect(key)) {
        let mut kind = key.kind().to_owned();
        if !key.unit().name().is_empty() {
            let _ = write!(kind, ", {}", key.unit().name());
        }
        if key.is_reconfigurable() {
            kind.push_str(", reconfigurable");
        }
        let default = if key.default().is_empty() {
            String::new()
        } else {
            format!("`{}`", short(key.default()))
        };
        let doc = escaped(key.doc());
        let _ = writeln!(out, "| `{}` | {default} | {kind} | {doc} |", key.name());
    }
    out.push_str("\nKeys of Apache's DataNode without effect here; setting one is answered with a warning at start:\n\n");
    out.push_str("| Key | Why |\n|---|---|\n");
    for entry in unsupported::all() {
        let _ = writeln!(out, "| `{}` | {} |", shown(entry.name), entry.ignored);
    }
    out
}

/// Text for a table: what could be a tag is escaped, but in code, where a backslash would show.
fn escaped(doc: &str) -> String {
    let part = |(at, part): (usize, &str)| match at % 2 {
        0 => part.replace('<', "\\<"),
        _ => part.to_owned(),
    };
    let parts: Vec<String> = doc.split('`').enumerate().map(part).collect();
    parts.join("`")
}

/// A name that stands for many ends in `*`.
fn shown(name: &str) -> String {
    let many = if name.ends_with('.') { "*" } else { "" };
    format!("{name}{many}")
}

/// A Java class name without its packages.
fn short(default: &str) -> &str {
    if default.starts_with("org.apache.") {
        default.rsplit(['.', '$']).next().unwrap_or(default)
    } else {
        default
    }
}
