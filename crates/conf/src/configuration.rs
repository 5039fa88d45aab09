//! One loaded configuration: an immutable snapshot, every known key validated.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::key::{AnyKey, AnyValue, Key};
use super::keys;
use super::node_name::Derived;
use super::origin::Origin;
use super::substitute::substitute;
use super::value::Value;
use super::volume_keys::OfVolumes;
use super::xml;

/// Files read from the configuration directory, later ones over earlier ones.
const FILES: [&str; 3] = ["core-site.xml", "hdfs-site.xml", "hayloft-site.xml"];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    raw: String,
    origin: Origin,
    is_final: bool,
}

/// A loaded configuration. Cheap to share behind an `Arc`, never changes.
#[derive(Clone)]
pub struct Configuration {
    directory: Option<PathBuf>,
    overrides: Vec<(String, String)>,
    entries: BTreeMap<String, Entry>,
    values: HashMap<&'static str, AnyValue>,
    notes: Vec<String>,
    /// The virtual node that this is the configuration of.
    pub(super) node: Option<Derived>,
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration")
            .field("directory", &self.directory)
            .field("entries", &self.entries)
            .finish()
    }
}

impl Configuration {
    /// Loads `core-site.xml`, `hdfs-site.xml` and, if there, `hayloft-site.xml` from `directory`,
    /// then applies `overrides` (`-D`), which win over everything, `final` included.
    ///
    /// # Errors
    /// Unreadable or malformed files, endless substitution, and any known key whose value is not
    /// allowed.
    pub fn load(directory: &Path, overrides: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut config = Self::read(directory, overrides)?;
        config.validate()?;
        Ok(config)
    }

    /// Files and overrides, values not looked at yet.
    fn read(directory: &Path, overrides: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut config = Self::empty(Some(directory.to_path_buf()), overrides);
        let present: Vec<PathBuf> = FILES
            .iter()
            .map(|name| directory.join(name))
            .filter(|path| path.exists())
            .collect();
        if !present.iter().any(|path| !path.ends_with(FILES[2])) {
            return Err(ConfigError::NoFiles {
                dir: directory.to_path_buf(),
            });
        }
        for path in &present {
            for property in xml::read_file(path)? {
                config.merge(property);
            }
        }
        Ok(config.overridden())
    }

    /// The configuration of a directory of which no file is read yet: [`Configuration::over`] reads
    /// them. For tools that look at files of other programs. Values are not looked at, so it
    /// answers by [`Configuration::untrimmed`], and not by [`Configuration::get`].
    #[must_use]
    pub fn of_directory(directory: &Path) -> Self {
        Self::empty(Some(directory.to_path_buf()), &[])
    }

    /// Another file of this configuration's directory, such as `ssl-server.xml`, alone. Nothing in
    /// it is checked.
    ///
    /// # Errors
    /// When there is no directory, or the file cannot be read.
    pub fn resource(&self, name: &str) -> Result<Self, ConfigError> {
        let mut config = Self::empty(self.directory.clone(), &[]);
        let path = self.directory.clone().unwrap_or_default().join(name);
        for property in xml::read_file(&path)? {
            config.merge(property);
        }
        Ok(config)
    }

    /// This configuration with another file of its directory over it, such as `hadoop-policy.xml`.
    /// A file that is not there adds nothing. Values are not looked at again.
    ///
    /// # Errors
    /// When the file is there, and cannot be read.
    pub fn over(&self, name: &str) -> Result<Self, ConfigError> {
        let mut config = self.clone();
        if let Some(directory) = self.directory.as_ref().filter(|_| self.has_file(name)) {
            for property in xml::read_file(&directory.join(name))? {
                config.merge(property);
            }
        }
        Ok(config)
    }

    /// Whether the directory has a file of this name, or something that cannot be looked at.
    #[must_use]
    pub fn has_file(&self, name: &str) -> bool {
        self.directory.as_ref().is_some_and(|directory| {
            // A link that leads nowhere, or a folder that is closed, is no missing file.
            let looked = std::fs::symlink_metadata(directory.join(name));
            !looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        })
    }

    /// A configuration of these properties alone, as if given with `-D`. For tests and tools.
    ///
    /// # Errors
    /// As [`Configuration::load`].
    pub fn from_properties<K: Into<String>, V: Into<String>>(
        properties: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        let overrides: Vec<_> = properties
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        let mut config = Self::empty(None, &overrides).overridden();
        config.validate()?;
        Ok(config)
    }

    fn empty(directory: Option<PathBuf>, overrides: &[(String, String)]) -> Self {
        Self {
            directory,
            overrides: overrides.to_vec(),
            entries: BTreeMap::new(),
            values: HashMap::new(),
            notes: Vec::new(),
            node: None,
        }
    }

    fn merge(&mut self, property: xml::Property) {
        let origin = Origin::File {
            path: property.file,
            line: property.line,
        };
        let name = canonical(&property.name);
        if name != property.name {
            self.notes.push(format!(
                "{} ({origin}) is deprecated: use {name}",
                property.name
            ));
        }
        if let Some(earlier) = self.entries.get(name).filter(|earlier| earlier.is_final) {
            if earlier.raw != property.value {
                let line = format!(
                    "{name} ({origin}) is ignored: it is final since {}",
                    earlier.origin
                );
                self.notes.push(line);
            }
            return;
        }
        self.entries.insert(
            name.to_owned(),
            Entry {
                raw: property.value,
                origin,
                is_final: property.is_final,
            },
        );
    }

    fn overridden(mut self) -> Self {
        for (name, value) in self.overrides.clone() {
            let entry = Entry {
                raw: value,
                origin: Origin::CommandLine,
                is_final: true,
            };
            self.entries.insert(canonical(&name).to_owned(), entry);
        }
        self
    }

    fn validate(&mut self) -> Result<(), ConfigError> {
        self.values.clear();
        for key in keys::all() {
            let value = self.parse(key)?;
            self.values.insert(key.name, value);
        }
        self.validate_volume_keys()
    }

    /// Looks at the keys of single volumes, which are not in the table.
    fn validate_volume_keys(&self) -> Result<(), ConfigError> {
        for name in self.names() {
            let Some(key) = OfVolumes::of(name) else {
                continue;
            };
            // Empty, it says nothing, as the key for all volumes.
            if key == OfVolumes::Engine && self.text(name).is_none() {
                continue;
            }
            self.parse_as(name, |text| key.check(text))?;
        }
        Ok(())
    }

    fn parse(&self, key: &AnyKey) -> Result<AnyValue, ConfigError> {
        let text = self.expanded(key.name)?.unwrap_or_default();
        let trimmed = text.trim();
        if let Some(at) = trimmed.find("${") {
            let reference = trimmed[at..]
                .split_inclusive('}')
                .next()
                .unwrap_or_default();
            return Err(self.substitution(
                key.name,
                format!("refers to {reference}, which nothing sets"),
            ));
        }
        let text = if trimmed.is_empty() && !key.empty_is_value {
            key.default
        } else {
            trimmed
        };
        key.parse(text)
            .map_err(|allowed| self.bad_value(key.name, text, allowed))
    }

    pub(super) fn parse_as<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let text = self.expanded(name)?.unwrap_or_default();
        parse(text.trim()).map_err(|allowed| self.bad_value(name, text.trim(), allowed))
    }

    pub(super) fn bad_value(&self, name: &str, value: &str, allowed: String) -> ConfigError {
        ConfigError::BadValue {
            key: name.to_owned(),
            value: value.to_owned(),
            place: self.origin(name).to_string(),
            allowed,
        }
    }

    fn substitution(&self, name: &str, what: String) -> ConfigError {
        ConfigError::Substitution {
            key: name.to_owned(),
            place: self.origin(name).to_string(),
            what,
        }
    }

    /// Text of a key with `${...}` replaced: what was set, else the table's default.
    fn expanded(&self, name: &str) -> Result<Option<String>, ConfigError> {
        let lookup = |name: &str| self.raw(name).map(str::to_owned);
        let environment = |name: &str| std::env::var(name).ok();
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        substitute(raw, &lookup, &environment)
            .map(Some)
            .map_err(|what| self.substitution(name, what))
    }

    /// Text of a key as it is written, or the table's default.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        let name = canonical(name);
        match self.entries.get(name) {
            Some(entry) => Some(&entry.raw),
            None => keys::find(name).map(|key| key.default),
        }
    }

    /// Value of a key. Reads memory only; cheap, but not for each packet.
    ///
    /// # Panics
    /// Never: every key of the table was validated when this snapshot was made.
    #[must_use]
    pub fn get<T: Value>(&self, key: &Key<T>) -> T {
        let value = self
            .values
            .get(key.name())
            .expect("every key of the table is validated at load");
        value
            .downcast_ref::<T>()
            .expect("a key has one type")
            .clone()
    }

    /// Trimmed text of any property, variables replaced; `None` when nothing sets it, it has no
    /// default, or it is empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let text = self.expanded(name).ok().flatten()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The text of a property with its spaces, where they have a meaning; `None` when nothing sets
    /// it.
    ///
    /// # Errors
    /// When variables in it cannot be replaced.
    pub fn untrimmed(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.expanded(name)
    }

    /// Names of the properties whose values are in this one's, by references of references too. A
    /// variable of the environment is `env.` and its name.
    #[must_use]
    pub fn referred_by(&self, name: &str) -> Vec<String> {
        let names = RefCell::new(Vec::new());
        let lookup = |name: &str| {
            names.borrow_mut().push(canonical(name).to_owned());
            self.raw(name).map(str::to_owned)
        };
        let environment = |name: &str| {
            // What Java has as properties of its own is no secret of the environment.
            if !["HOME", "USER", "HADOOP_HOME", "HADOOP_LOG_DIR"].contains(&name) {
                names.borrow_mut().push(format!("env.{name}"));
            }
            std::env::var(name).ok()
        };
        if let Some(raw) = self.raw(name) {
            // What could not be expanded has no value to show, but what it tried counts.
            let _ = substitute(raw, &lookup, &environment);
        }
        names.into_inner()
    }

    /// Where the value of this property came from.
    #[must_use]
    pub fn origin(&self, name: &str) -> Origin {
        self.entries
            .get(canonical(name))
            .map_or(Origin::Default, |entry| entry.origin.clone())
    }

    /// Whether what sets this property is `final`, so that no later file and no job changes it.
    #[must_use]
    pub fn is_final(&self, name: &str) -> bool {
        let entry = self.entries.get(canonical(name));
        entry.is_some_and(|entry| entry.is_final)
    }

    /// Names of all properties that were set, known or not, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Directory that this was loaded from.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// What loading noticed: deprecated names, overridden finals.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The same sources read anew: files as they are now, the same `-D`, not yet a virtual node's.
    /// Values are not looked at.
    pub(super) fn reread_sources(&self) -> Result<Self, ConfigError> {
        match &self.directory {
            Some(directory) => Self::read(directory, &self.overrides),
            None => Ok(Self::empty(None, &self.overrides).overridden()),
        }
    }

    /// A copy with one property set, or back at its default.
    ///
    /// # Errors
    /// As [`Configuration::load`] when the value is not allowed.
    pub fn with(&self, name: &str, raw: Option<&str>) -> Result<Self, ConfigError> {
        let mut copy = self.clone();
        match raw {
            Some(raw) => {
                let entry = Entry {
                    raw: raw.to_owned(),
                    origin: Origin::Reconfigured,
                    is_final: false,
                };
                copy.entries.insert(canonical(name).to_owned(), entry);
            }
            None => {
                copy.entries.remove(canonical(name));
            }
        }
        copy.validate()?;
        Ok(copy)
    }

    /// Sets the text of a property as if it came from there.
    pub(super) fn set_as(&mut self, name: &str, raw: String, origin: Origin) {
        let entry = Entry {
            raw,
            origin,
            is_final: true,
        };
        self.entries.insert(canonical(name).to_owned(), entry);
    }

    /// The same with every known key looked at.
    pub(super) fn validated(mut self) -> Result<Self, ConfigError> {
        self.validate()?;
        Ok(self)
    }

    /// Raw text of a known key if it was set.
    pub(super) fn set_text(&self, name: &str) -> Option<&str> {
        self.entries
            .get(canonical(name))
            .map(|entry| entry.raw.as_str())
    }
}

/// The present name of a key that may be written by a deprecated one.
fn canonical(name: &str) -> &str {
    match keys::find(name) {
        Some(key) => key.name,
        None => name,
    }
}
