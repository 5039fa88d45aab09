//! The running node's configuration: a snapshot that reconfiguration replaces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::configuration::Configuration;
use super::error::ConfigError;
use super::key::Key;
use super::keys;
use super::namenodes::names_namenodes;
use super::value::Value;

/// One property that differs between the running configuration and the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The property's name.
    pub name: String,
    /// Text in the running configuration; `None` when at its default.
    pub old: Option<String>,
    /// Text in the files; `None` when they do not set it (any more).
    pub new: Option<String>,
    /// Whether it may change while the node runs.
    pub reconfigurable: bool,
}

/// Handle on the running configuration; clones share it.
#[derive(Debug, Clone)]
pub struct SharedConfig {
    current: Arc<ArcSwap<Configuration>>,
    /// Changes are made one at a time, so that none is lost.
    writer: Arc<Mutex<()>>,
}

impl SharedConfig {
    /// Starts with this snapshot.
    #[must_use]
    pub fn new(config: Configuration) -> Self {
        Self {
            current: Arc::new(ArcSwap::from_pointee(config)),
            writer: Arc::new(Mutex::new(())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present snapshot. Hold it for one operation, not for the life of a service.
    #[must_use]
    pub fn current(&self) -> Arc<Configuration> {
        self.current.load_full()
    }

    /// Present value of one key.
    #[must_use]
    pub fn get<T: Value>(&self, key: &Key<T>) -> T {
        self.current.load().get(key)
    }

    /// Reads the files again and says what differs; changes nothing. Whether a new value is allowed
    /// shows only when it is applied.
    ///
    /// # Errors
    /// As [`Configuration::load`], but not for values.
    pub fn changes(&self) -> Result<Vec<Change>, ConfigError> {
        let running = self.current();
        Ok(differences(&running, &running.reread_texts()?))
    }

    /// Puts one change into effect for every later reader. Services that keep a value call this
    /// after they have taken it over, so that a refused change stays visible as pending.
    ///
    /// # Errors
    /// [`ConfigError::Conflict`] if the property may not change while the node runs, else as
    /// [`Configuration::load`] if the new value is not allowed.
    pub fn apply(&self, change: &Change) -> Result<(), ConfigError> {
        if !change.reconfigurable {
            let what = format!(
                "{} cannot change while the node runs: restart it",
                change.name
            );
            return Err(ConfigError::Conflict { what });
        }
        let _one_at_a_time = self.lock();
        let next = self.current().with(&change.name, change.new.as_deref())?;
        self.current.store(Arc::new(next));
        Ok(())
    }

    /// Reads the files again and takes over what they say about name services and NameNode
    /// addresses (`dfsadmin -refreshNamenodes`), and nothing else. Returns the new snapshot.
    ///
    /// # Errors
    /// As [`Configuration::load`] and [`super::namenodes()`]; the running configuration is then
    /// unchanged.
    pub fn refresh_namenodes(&self) -> Result<Arc<Configuration>, ConfigError> {
        let _one_at_a_time = self.lock();
        let mut next = Configuration::clone(&self.current());
        for change in differences(&next, &next.reread_texts()?) {
            if names_namenodes(&change.name) {
                next = next.with(&change.name, change.new.as_deref())?;
            }
        }
        super::namenodes(&next)?;
        self.current.store(Arc::new(next));
        Ok(self.current())
    }

    /// Reads the files again and applies every reconfigurable change. Returns all differences
    /// found; those not reconfigurable are untouched.
    ///
    /// # Errors
    /// As [`SharedConfig::changes`] and [`SharedConfig::apply`].
    pub fn reload(&self) -> Result<Vec<Change>, ConfigError> {
        let changes = self.changes()?;
        for change in changes.iter().filter(|change| change.reconfigurable) {
            self.apply(change)?;
        }
        Ok(changes)
    }
}

fn differences(old: &Configuration, new: &Configuration) -> Vec<Change> {
    let mut names: Vec<&str> = old.names().chain(new.names()).collect();
    names.sort_unstable();
    names.dedup();
    let change = |name: &str| {
        let (before, after) = (old.set_text(name), new.set_text(name));
        (before != after).then(|| Change {
            name: name.to_owned(),
            old: before.map(str::to_owned),
            new: after.map(str::to_owned),
            reconfigurable: keys::reconfigurable().any(|key| key == name),
        })
    };
    names.into_iter().filter_map(change).collect()
}
