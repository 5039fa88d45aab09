//! A key: its name, type, unit, default and doc, declared once in [`super::keys`].

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::value::{Unit, Value};

/// A typed key. Declared only in [`super::keys`], so each one is validated when a configuration
/// is loaded and reading it later cannot fail.
#[derive(Debug)]
pub struct Key<T> {
    pub(super) info: AnyKey,
    value: PhantomData<fn() -> T>,
}

/// A key whose type is forgotten: what lists, documentation and validation need.
#[derive(Debug)]
pub struct AnyKey {
    /// Name in configuration files.
    pub name: &'static str,
    /// Default, as text; may hold `${...}`.
    pub default: &'static str,
    /// What it does, one or two sentences.
    pub doc: &'static str,
    /// Deprecated names that are still understood.
    pub aliases: &'static [&'static str],
    /// Unit of a bare number.
    pub unit: Unit,
    /// Name of its type.
    pub kind: &'static str,
    /// Whether empty text is a value and not the default.
    pub empty_is_value: bool,
    /// Whether it may change while the node runs.
    pub reconfigurable: bool,
    min: i128,
    max: i128,
    parse: fn(&AnyKey, &str) -> Result<AnyValue, String>,
}

/// A value whose type is forgotten.
pub(super) type AnyValue = Arc<dyn Any + Send + Sync>;

impl<T: Value> Key<T> {
    pub(super) const fn new(name: &'static str, default: &'static str, doc: &'static str) -> Self {
        let info = AnyKey {
            name,
            default,
            doc,
            aliases: &[],
            unit: Unit::None,
            kind: T::KIND,
            empty_is_value: T::EMPTY_IS_VALUE,
            reconfigurable: false,
            min: i128::MIN,
            max: i128::MAX,
            parse: parse::<T>,
        };
        Self {
            info,
            value: PhantomData,
        }
    }

    pub(super) const fn unit(mut self, unit: Unit) -> Self {
        self.info.unit = unit;
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
        self.info.min = min;
        self
    }

    pub(super) const fn max(mut self, max: i128) -> Self {
        self.info.max = max;
        self
    }

    /// May be changed while the node runs (ReconfigurationProtocol).
    pub(super) const fn reconfigurable(mut self) -> Self {
        self.info.reconfigurable = true;
        self
    }

    /// Names that Hadoop deprecated and still understands.
    pub(super) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.info.aliases = aliases;
        self
    }

    /// The key's name in configuration files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.info.name
    }
}

impl AnyKey {
    /// Reads a value of the key's type, bounds checked.
    ///
    /// # Errors
    /// What is allowed, the end of "must be ...".
    pub(super) fn parse(&self, text: &str) -> Result<AnyValue, String> {
        (self.parse)(self, text)
    }

    /// A bound in words: durations are compared in milliseconds.
    fn bound(&self, number: i128) -> String {
        match self.unit {
            Unit::None | Unit::Bytes | Unit::BytesPerSecond => number.to_string(),
            Unit::Millis | Unit::Seconds | Unit::Minutes | Unit::Hours => format!("{number} ms"),
        }
    }
}

fn parse<T: Value>(key: &AnyKey, text: &str) -> Result<AnyValue, String> {
    let value = T::parse(text.trim(), key.unit)?;
    match value.magnitude() {
        Some(number) if number < key.min && key.max == i128::MAX => {
            Err(format!("at least {}", key.bound(key.min)))
        }
        Some(number) if number < key.min || number > key.max => Err(format!(
            "between {} and {}",
            key.bound(key.min),
            key.bound(key.max)
        )),
        _ => Ok(Arc::new(value)),
    }
}
