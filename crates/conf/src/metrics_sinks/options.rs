//! The options of `hadoop-metrics2.properties`, and how Hadoop looks for one.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::read_java_files::{java_properties, read, shown};
use crate::substitute::substitute;

/// As Hadoop looks for them: the first that is there counts.
const FILES: [&str; 2] = [
    "hadoop-metrics2-datanode.properties",
    "hadoop-metrics2.properties",
];
/// What options of a DataNode's sinks begin with.
pub(super) const SINKS_OF_NODE: &str = "datanode.sink.";
/// Bytes of a value, at most.
pub(super) const VALUE_MAX: usize = 1024;

/// A value, and the line that has it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) line: usize,
    pub(super) value: String,
}

/// The options of a file.
#[derive(Debug)]
pub(super) struct Options {
    path: PathBuf,
    /// By key: the values of a list, in order.
    all: BTreeMap<String, Vec<Found>>,
}

impl Options {
    /// Those of the first file that is there. What cannot be read is said.
    pub(super) fn read(conf: &Path, said: &mut Vec<String>) -> Option<Self> {
        let (path, text) = FILES.iter().find_map(|name| read(conf, name, said))?;
        let mut all: BTreeMap<String, Vec<Found>> = BTreeMap::new();
        // A key that is there twice has all the values.
        for property in java_properties(&text) {
            let values = list(&unescaped(&property.value)).into_iter();
            let line = property.line;
            let found = values.map(|value| Found { line, value });
            all.entry(property.key).or_default().extend(found);
        }
        let mut options = Self { path, all };
        options.substitute(&|name| std::env::var(name).ok());
        Some(options)
    }

    /// Replaces each `${...}`. One that leads nowhere or round stays as it is.
    fn substitute(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        let first = |key: &str| Some(as_in_hadoop(&self.all.get(key)?.first()?.value));
        let mut replaced = Vec::new();
        for (key, values) in &self.all {
            for (at, found) in values.iter().enumerate() {
                let text = &found.value;
                if text.len() > VALUE_MAX || !text.contains("${") {
                    continue;
                }
                let value = substitute(&as_in_hadoop(text), &first, environment);
                if let Ok(value) = value
                    && value.len() <= VALUE_MAX
                {
                    replaced.push((key.clone(), at, value));
                }
            }
        }
        for (key, at, value) in replaced {
            if let Some(found) = self.all.get_mut(&key).and_then(|all| all.get_mut(at)) {
                found.value = value;
            }
        }
    }

    /// `file:line`.
    pub(super) fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    /// The names of a DataNode's sinks, in the order of the alphabet.
    pub(super) fn sinks(&self) -> Vec<&str> {
        let keys = self.all.keys();
        let names =
            keys.filter_map(|key| Some(key.strip_prefix(SINKS_OF_NODE)?.split_once('.')?.0));
        let mut names: Vec<&str> = names
            .filter(|name| !name.is_empty() && *name != "*")
            .collect();
        names.dedup();
        names
    }

    /// A key of a filter for all sinks, which Apache's node applies where metrics are made.
    pub(super) fn filter_of_sources(&self) -> Option<(&str, usize)> {
        let begins = ["datanode.source.", "datanode.*.source."];
        let is_filter = |key: &str| {
            begins.iter().any(|begin| key.starts_with(begin)) && key.contains("filter.")
        };
        let (key, found) = self.all.iter().find(|(key, _)| is_filter(key))?;
        Some((key, found.first()?.line))
    }

    /// Whether an option of that sink itself begins so.
    pub(super) fn has_own(&self, sink: &str, begin: &str) -> bool {
        let begin = format!("{SINKS_OF_NODE}{}.{begin}", sink.to_lowercase());
        self.all.keys().any(|key| key.starts_with(&begin))
    }

    /// All values of an option: the sink's own, that of all daemons, or that of all sinks. Hadoop
    /// looks for sinks in small letters alone.
    pub(super) fn values(&self, sink: &str, key: &str) -> &[Found] {
        let sink = sink.to_lowercase();
        let keys = [
            format!("datanode.sink.{sink}.{key}"),
            format!("*.sink.{sink}.{key}"),
            format!("datanode.*.{sink}.{key}"),
            format!("*.{sink}.{key}"),
            format!("datanode.sink.*.{key}"),
            format!("*.sink.*.{key}"),
            format!("datanode.*.{key}"),
            format!("*.{key}"),
        ];
        let found = keys.iter().find_map(|key| self.all.get(key));
        found.map_or(&[], Vec::as_slice)
    }

    /// The first value of an option, which is the one that counts, unless it is empty.
    pub(super) fn first(&self, sink: &str, key: &str) -> Option<&Found> {
        let first = self.values(sink, key).first();
        first.filter(|found| !found.value.is_empty())
    }

    /// The text of an option, or why it cannot be.
    pub(super) fn text(&self, sink: &str, key: &str) -> Result<Option<String>, String> {
        match self.first(sink, key) {
            Some(found) if found.value.len() > VALUE_MAX => Err(format!(
                "since its {key} of line {} is longer than {VALUE_MAX} bytes: shorten it",
                found.line
            )),
            found => Ok(found.map(|found| found.value.clone())),
        }
    }

    /// The number of an option, or why it cannot be.
    pub(super) fn number(
        &self,
        sink: &str,
        key: &str,
        allowed: RangeInclusive<u64>,
    ) -> Result<Option<u64>, String> {
        let Some(text) = self.text(sink, key)? else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        let wrong = || {
            let (from, to) = (allowed.start(), allowed.end());
            let text = shown(&text);
            format!("since its {key} is {text}: set it to a number from {from} to {to}")
        };
        number.map(Some).ok_or_else(wrong)
    }
}

/// References to properties of Java and to the environment, as other files of Hadoop have them.
fn as_in_hadoop(text: &str) -> String {
    text.replace("${sys:", "${").replace("${env:", "${env.")
}

/// The values of a list: commas part them, unless `\` stands before.
fn list(text: &str) -> Vec<String> {
    let (mut values, mut value) = (Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ',' => values.push(std::mem::take(&mut value)),
            '\\' => match letters.next_if(|next| matches!(next, ',' | '\\')) {
                Some(next) => value.push(next),
                None => value.push('\\'),
            },
            letter => value.push(letter),
        }
    }
    values.push(value);
    values.iter().map(|value| value.trim().to_owned()).collect()
}

/// A value without what `\` says of the next letter. Before others, and before commas, it stays.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            Some('t') => plain.push('\t'),
            Some(next @ (':' | '#' | '=' | '!' | '\\' | '\'' | '"')) => plain.push(next),
            next => {
                plain.push('\\');
                plain.extend(next);
            }
        }
    }
    plain
}
