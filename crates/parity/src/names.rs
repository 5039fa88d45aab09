//! Names of the files of groups, in a directory of each volume.
//!
//! The directory lies beside `current`, the only one that Apache's DataNode looks into, so that
//! node ignores it.

use std::path::{Path, PathBuf};

use crate::record::GroupId;

/// The directory in a volume.
pub const PARITY_DIR: &str = "hayloft-parity";

/// A file of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupFile {
    /// `GROUP.record`: a copy of its record.
    Record(GroupId),
    /// `GROUP.head`: a newer head of the copy beside it, without which it counts for nothing.
    Head(GroupId),
    /// `GROUP.pN`: its parity file N.
    Parity(GroupId, u8),
    /// `GROUP.dN`: data of its member N, whose replica is gone or was cut.
    Kept(GroupId, u8),
}

impl GroupFile {
    /// The group.
    #[must_use]
    pub fn group(self) -> GroupId {
        match self {
            Self::Record(group) | Self::Head(group) => group,
            Self::Parity(group, _) | Self::Kept(group, _) => group,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Record(group) => format!("{group}.record"),
            Self::Head(group) => format!("{group}.head"),
            Self::Parity(group, n) => format!("{group}.p{n}"),
            Self::Kept(group, n) => format!("{group}.d{n}"),
        }
    }

    /// What a name means; only names that [`name`](Self::name) makes.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (group, rest) = name.split_once('.')?;
        let group = group.parse().ok()?;
        let number = |digits: &str| digits.parse().ok();
        let file = match rest.split_at_checked(1)? {
            _ if rest == "record" => Self::Record(group),
            _ if rest == "head" => Self::Head(group),
            ("p", digits) => Self::Parity(group, number(digits)?),
            ("d", digits) => Self::Kept(group, number(digits)?),
            _ => return None,
        };
        (file.name() == name).then_some(file)
    }

    /// Where it lies on the volume at `root`.
    #[must_use]
    pub fn path(self, root: &Path) -> PathBuf {
        let mut path = root.join(PARITY_DIR);
        path.push(self.name());
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_names_of_groups_are_recognised() {
        let group = GroupId(7);
        for file in [
            GroupFile::Record(group),
            GroupFile::Head(group),
            GroupFile::Parity(group, 0),
            GroupFile::Kept(group, 200),
        ] {
            assert_eq!(GroupFile::parse(&file.name()), Some(file));
        }
        for rest in [
            "", "p", "p01", "d256", "p+1", "q1", "record2", "p-1", "heads",
        ] {
            let name = format!("{group}.{rest}");
            assert_eq!(GroupFile::parse(&name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_taken(name in "\\PC{0,50}") {
            let _ = GroupFile::parse(&name);
        }
    }
}
