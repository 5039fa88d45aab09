//! The principals in a keytab, so that a wrong one is named. No key is kept.
//!
//! The file is MIT's format, version 0x502: records of an int32 length, negative for a hole. Each
//! begins with a count of components, the realm and the components as text with an int16 length.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Largest keytab that is read; a service has a few hundred bytes for each of its keys.
const MAX_BYTES: u64 = 4 << 20;
/// Principals named in a message.
const NAMED_MAX: usize = 8;

/// Why a keytab is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeytabError {
    /// It cannot be read.
    #[error(
        "the keytab {} cannot be read: {reason}: correct dfs.datanode.keytab.file, or let this \
         user read it (owner the node's user, mode 0400)", path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// It is something else.
    #[error(
        "{} is no keytab of MIT's format: export it again with kadmin's ktadd", path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// It has other principals.
    #[error(
        "the keytab {} has no key of {principal}; it has {}: export the key, or correct \
         dfs.datanode.kerberos.principal", path.display(), named(.has)
    )]
    NoPrincipal {
        /// The file.
        path: PathBuf,
        /// Whose key is wanted.
        principal: String,
        /// Whose keys there are.
        has: Vec<String>,
    },
}

fn named(has: &[String]) -> String {
    let more = has.len().saturating_sub(NAMED_MAX);
    match (has.len(), more) {
        (0, _) => "none".to_owned(),
        (_, 0) => has.join(", "),
        _ => format!("{} and {more} more", has[..NAMED_MAX].join(", ")),
    }
}

/// Whose keys a keytab has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keytab {
    principals: BTreeSet<String>,
}

impl Keytab {
    /// Reads the names in a keytab.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Self, KeytabError> {
        let unreadable = |reason: String| KeytabError::Unreadable {
            path: path.to_owned(),
            reason,
        };
        let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if !size.is_file() || size.len() > MAX_BYTES {
            return Err(unreadable(
                "it is no file of the size of a keytab".to_owned(),
            ));
        }
        let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(&bytes).ok_or_else(|| KeytabError::Malformed {
            path: path.to_owned(),
        })
    }

    /// The names in the bytes of a keytab; `None` when they are none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[5, 2])?;
        let mut principals = BTreeSet::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = i32::from_be_bytes(*length);
            // Zero ends the file; a hole is skipped.
            let size = usize::try_from(length.unsigned_abs()).ok()?;
            if size == 0 {
                break;
            }
            let (record, after) = after.split_at_checked(size)?;
            rest = after;
            if length > 0 {
                principals.insert(principal(record)?);
            }
        }
        Some(Self { principals })
    }

    /// Whose keys there are.
    pub fn principals(&self) -> impl Iterator<Item = &str> {
        self.principals.iter().map(String::as_str)
    }

    /// Looks for the key of `principal`; a name without realm is of `default_realm`.
    pub(super) fn require<E: From<KeytabError>>(
        &self,
        path: &Path,
        principal: &str,
        default_realm: impl FnOnce() -> Result<String, E>,
    ) -> Result<(), E> {
        let full = if principal.contains('@') {
            principal.to_owned()
        } else {
            format!("{principal}@{}", default_realm()?)
        };
        if self.principals.contains(&full) {
            return Ok(());
        }
        Err(E::from(KeytabError::NoPrincipal {
            path: path.to_owned(),
            principal: full,
            has: self.principals.iter().cloned().collect(),
        }))
    }
}

fn principal(record: &[u8]) -> Option<String> {
    let (count, rest) = record.split_first_chunk::<2>()?;
    let count = u16::from_be_bytes(*count);
    let (realm, mut rest) = text(rest)?;
    let mut components: Vec<Cow<'_, str>> = Vec::new();
    for _ in 0..count {
        let (component, after) = text(rest)?;
        components.push(component);
        rest = after;
    }
    Some(format!("{}@{realm}", components.join("/")))
}

/// A name that is not UTF-8 is shown with what stands for its odd bytes, and is like no other.
fn text(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (text, rest) = rest.split_at_checked(length)?;
    Some((String::from_utf8_lossy(text), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(realm: &str, components: &[&str]) -> Vec<u8> {
        let mut record = u16::try_from(components.len())
            .unwrap()
            .to_be_bytes()
            .to_vec();
        for text in std::iter::once(&realm).chain(components) {
            record.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
            record.extend(text.as_bytes());
        }
        // Type of name, time, version, type of key, key.
        record.extend([0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 18, 0, 2, 7, 7]);
        record
    }

    fn keytab(records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![5, 2];
        for record in records {
            bytes.extend(i32::try_from(record.len()).unwrap().to_be_bytes());
            bytes.extend(record);
        }
        bytes
    }

    #[test]
    fn names_are_read_and_holes_skipped() {
        let mut bytes = keytab(&[record("R", &["dn", "host"])]);
        bytes.extend((-3i32).to_be_bytes());
        bytes.extend([9, 9, 9]);
        bytes.extend(&keytab(&[record("R", &["HTTP", "host"])])[2..]);
        let read = Keytab::parse(&bytes).expect("a keytab");
        let names: Vec<&str> = read.principals().collect();
        assert_eq!(names, ["HTTP/host@R", "dn/host@R"]);
        let realm = || Ok::<_, KeytabError>("R".to_owned());
        assert!(read.require(Path::new("k"), "dn/host", realm).is_ok());
        let none = read
            .require(Path::new("k"), "dn/other@R", realm)
            .unwrap_err();
        let told = none.to_string();
        assert!(
            told.contains("no key of dn/other@R; it has HTTP/host@R, dn/host@R"),
            "{told}"
        );
    }

    #[test]
    fn one_odd_name_does_not_hide_the_others() {
        let mut odd = record("R", &["x", "host"]);
        // The realm `R` with its length comes before the length and the text of `x`.
        odd[7] = 0xff;
        let read = Keytab::parse(&keytab(&[odd, record("R", &["dn", "host"])]));
        let read = read.expect("a keytab");
        assert_eq!(read.principals().count(), 2);
        assert!(read.principals().any(|name| name == "dn/host@R"));
    }

    #[test]
    fn what_is_no_keytab_is_refused() {
        assert_eq!(Keytab::parse(b""), None);
        assert_eq!(Keytab::parse(b"hello"), None);
        assert_eq!(Keytab::parse(&[5, 2]), Some(Keytab::default()));
        let gone = Keytab::read(Path::new("/no/such/keytab"))
            .unwrap_err()
            .to_string();
        assert!(gone.contains("/no/such/keytab") && gone.contains("dfs.datanode.keytab.file"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Keytab::parse(&bytes);
            let _ = Keytab::parse(&[&[5, 2], bytes.as_slice()].concat());
        }
    }
}
