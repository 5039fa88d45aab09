//! The configuration as a report: text, JSON, and the lists of the documentation.

use std::fmt::Write as _;

use serde::Serialize;

use super::configuration::Configuration;
use super::key::AnyKey;
use super::keys;
use super::origin::Origin;
use super::unsupported;

/// One key of the table with its present value.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// Name in configuration files.
    pub key: &'static str,
    /// Text after substitution, unless it is a secret.
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
        let shown = self.shown();
        let setting = |key: &AnyKey| Setting {
            key: key.name,
            value: shown(key.name),
            source: self.origin(key.name).to_string(),
            default: key.default,
            kind: key.kind,
            unit: key.unit.name(),
            reconfigurable: key.reconfigurable,
            doc: key.doc,
        };
        keys::all().map(setting).collect()
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
        let shown = self.shown();
        for name in others {
            let origin = self.origin(name);
            debug_assert_ne!(origin, Origin::Default);
            let _ = writeln!(out, "{name} = {}  [{origin}]", shown(name));
        }
        out
    }
}

/// Widest line of the documentation, in characters.
const COLUMNS: usize = 100;

/// How docs/operate/keys.md begins. By its first sentence the tidy test knows a page that is made.
const HEAD: &str = "# Every key

This page is generated from the node's table of keys by
`HAYLOFT_BLESS=1 cargo test -p hayloft --test node`: do not edit it. [Configure](configure.md) is
the page to read first. `hayloft node --print-config` shows the same with the values of a node.

Parentheses hold the default and the unit of a bare number. A *reconfigurable* key takes effect on a
running node.

## Keys
";

/// The page docs/operate/keys.md: keys with effect, then keys without.
#[must_use]
pub fn to_markdown() -> String {
    let mut out = String::from(HEAD);
    // The table has some only so that they can be reconfigured or reported.
    let without_effect = |key: &&AnyKey| unsupported::all().any(|entry| entry.name == key.name);
    for (subject, table) in keys::subjects() {
        let _ = writeln!(out, "\n### {subject}\n");
        for key in table.iter().copied().filter(|key| !without_effect(key)) {
            let text = format!("`{}`{}: {}", key.name, facts(key), escaped(key.doc));
            list_item(&mut out, &text);
        }
    }
    out.push_str("\n## Keys without effect\n\n");
    for (reason, names) in without_effect_by_reason() {
        list_item(&mut out, &format!("{}: {reason}.", names.join(", ")));
    }
    out
}

/// Bytes of a default that only a list has; such a list is not printed.
const LIST_LONG: usize = 200;

/// Default, unit and whether it is reconfigurable, in parentheses.
fn facts(key: &AnyKey) -> String {
    let mut facts = Vec::new();
    if key.default.len() > LIST_LONG {
        let listed = key.default.split(',').count();
        facts.push(format!("{listed} names, as Apache's default"));
    } else if !key.default.is_empty() {
        facts.push(format!("`{}`", short(key.default)));
    }
    if !key.unit.name().is_empty() {
        facts.push(key.unit.name().to_owned());
    }
    if key.reconfigurable {
        facts.push("reconfigurable".to_owned());
    }
    if facts.is_empty() {
        return String::new();
    }
    format!(" ({})", facts.join(", "))
}

/// Keys without effect beside the reason that they share, both in the table's order.
fn without_effect_by_reason() -> Vec<(&'static str, Vec<String>)> {
    let mut groups: Vec<(&'static str, Vec<String>)> = Vec::new();
    for entry in unsupported::all() {
        let name = format!("`{}`", shown(entry.name));
        match groups.iter_mut().find(|(why, _)| *why == entry.ignored) {
            Some((_, names)) => names.push(name),
            None => groups.push((entry.ignored, vec![name])),
        }
    }
    groups
}

/// A list item of Markdown, wrapped.
fn list_item(out: &mut String, text: &str) {
    let mut column = 1;
    out.push('-');
    for word in text.split(' ') {
        let width = 1 + word.chars().count();
        if column + width > COLUMNS {
            out.push_str("\n ");
            column = 1;
        }
        out.push(' ');
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

/// Text for Markdown: what could be a tag is escaped, but not in code: a backslash would show.
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
