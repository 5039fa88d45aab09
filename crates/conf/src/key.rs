//! A key: its name, type, unit, default and doc, declared once in [`super::keys`].

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::value::{Unit, Value};

/// A typed key. Declared only in [`super::keys`], so each one is validated when a configuration
/// is loaded and reading it later cannot fail.
#[derive(Debug)]
pub struct Key<T> {
    name: &'static str,
    default: &'static str,
    doc: &'static str,
    aliases: &'static [&'static str],
    unit: Unit,
    min: i128,
    max: i128,
    reconfigurable: bool,
    value: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    pub(super) const fn new(name: &'static str, default: &'static str, doc: &'static str) -> Self {
        Self {
            name,
            default,
            doc,
            aliases: &[],
            unit: Unit::None,
            min: i128::MIN,
            max: i128::MAX,
            reconfigurable: false,
            value: PhantomData,
        }
    }

    pub(super) const fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    pub(super) const fn millis(self) -> Self {
        self.unit(Unit::Millis)
    }

    pub(super) const fn seconds(self) -> Self {
        self.unit(Unit::Seconds)
    }

    pub(super) const fn bytes(self) -> Self {
        self.unit(Unit::Bytes)
    }

    pub(super) const fn bytes_per_second(self) -> Self {
        self.unit(Unit::BytesPerSecond)
    }

    pub(super) const fn min(mut self, min: i128) -> Self {
        self.min = min;
        self
    }

    pub(super) const fn max(mut self, max: i128) -> Self {
        self.max = max;
        self
    }

    /// May be changed while the node runs (ReconfigurationProtocol).
    pub(super) const fn reconfigurable(mut self) -> Self {
        self.reconfigurable = true;
        self
    }

    /// Names that Hadoop deprecated and still understands.
    pub(super) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The key's name in configuration files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// A key whose type is forgotten: what lists, documentation and validation need.
pub trait AnyKey: Sync {
    /// Name in configuration files.
    fn name(&self) -> &'static str;
    /// Deprecated names that are still understood.
    fn aliases(&self) -> &'static [&'static str];
    /// Default, as text; may hold `${...}`.
    fn default(&self) -> &'static str;
    /// What it does, one or two sentences.
    fn doc(&self) -> &'static str;
    /// Unit of a bare number.
    fn unit(&self) -> Unit;
    /// Name of its type.
    fn kind(&self) -> &'static str;
    /// Whether it may change while the node runs.
    fn is_reconfigurable(&self) -> bool;
    /// Whether empty text is a value and not the default.
    fn empty_is_value(&self) -> bool;
    /// Reads a value of the key's type, bounds checked.
    ///
    /// # Errors
    /// What is allowed, the end of "must be ...".
    fn parse(&self, text: &str) -> Result<Arc<dyn Any + Send + Sync>, String>;
}

impl<T: Value> AnyKey for Key<T> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }
    fn default(&self) -> &'static str {
        self.default
    }
    fn doc(&self) -> &'static str {
        self.doc
    }
    fn unit(&self) -> Unit {
        self.unit
    }
    fn kind(&self) -> &'static str {
        T::KIND
    }
    fn is_reconfigurable(&self) -> bool {
        self.reconfigurable
    }
    fn empty_is_value(&self) -> bool {
        T::EMPTY_IS_VALUE
    }
    fn parse(&self, text: &str) -> Result<Arc<dyn Any + Send + Sync>, String> {
        let value = T::parse(text.trim(), self.unit)?;
        match value.magnitude() {
            Some(number) if number < self.min && self.max == i128::MAX => {
                Err(format!("at least {}", self.bound(self.min)))
            }
            Some(number) if number < self.min || number > self.max => Err(format!(
                "between {} and {}",
                self.bound(self.min),
                self.bound(self.max)
            )),
            _ => Ok(Arc::new(value)),
        }
    }
}

impl<T> Key<T> {
    /// A bound in words: durations are compared in milliseconds.
    fn bound(&self, number: i128) -> String {
        match self.unit {
            Unit::None | Unit::Bytes | Unit::BytesPerSecond => number.to_string(),
            Unit::Millis | Unit::Seconds | Unit::Minutes | Unit::Hours => format!("{number} ms"),
        }
    }
}
