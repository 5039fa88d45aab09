//! Keys of one volume: those that end in a directory or in a storage type.

use super::choice::EngineName;
use super::data_dir::DataDir;
use super::keys;
use super::value::{Unit, Value};

/// What a key is about that ends in a directory or a storage type, and so is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfVolumes {
    /// Bytes to keep free.
    Reserved,
    /// The same in per cent.
    ReservedPercent,
    /// The engine; for a directory only.
    Engine,
}

impl OfVolumes {
    /// `None` for keys of the table, and for all others.
    pub(super) fn of(name: &str) -> Option<Self> {
        let below = |base: &str| {
            name.strip_prefix(base)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        if keys::find(name).is_some() {
            return None;
        }
        // The first is below the second.
        if below(keys::DU_RESERVED_PERCENT.name()) {
            Some(Self::ReservedPercent)
        } else if below(keys::DU_RESERVED.name()) {
            Some(Self::Reserved)
        } else {
            below(keys::IO_ENGINE.name()).then_some(Self::Engine)
        }
    }

    /// Whether `text` is a value of such a key.
    ///
    /// # Errors
    /// What is allowed, in words.
    pub(super) fn check(self, text: &str) -> Result<(), String> {
        match self {
            Self::Reserved => u64::parse(text, Unit::Bytes).map(drop),
            Self::ReservedPercent => u64::parse(text, Unit::None).map(drop),
            Self::Engine => EngineName::parse(text, Unit::None).map(drop),
        }
    }
}

/// Names of a key for one volume, the first that is set counts: for its directory and type, its
/// directory, its type.
pub(super) fn names_for(base: &str, dir: &DataDir) -> [String; 3] {
    let path = dir.path.display();
    let kind = dir.storage_type.name().to_ascii_lowercase();
    [
        format!("{base}.{path}.{kind}"),
        format!("{base}.{path}"),
        format!("{base}.{kind}"),
    ]
}
