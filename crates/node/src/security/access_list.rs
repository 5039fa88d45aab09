//! Lists of users and groups who may do something, as Hadoop writes them: `user,user group,group`,
//! or `*` for everyone. A list that begins with a space names groups alone.

use std::collections::BTreeSet;

use super::groups::UserGroups;

/// Names in one list.
const NAMES_MAX: usize = 10_000;
/// Before a user's name it means those who act for that user.
const REAL_USER_OF: char = '~';

/// Who may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessList {
    /// Everyone may.
    Everyone,
    /// These may.
    Named {
        users: BTreeSet<String>,
        groups: BTreeSet<String>,
    },
}

impl AccessList {
    /// Reads a list, its spaces untouched.
    ///
    /// # Errors
    /// When it has too many names.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (users, groups) = text.split_once(' ').unwrap_or((text, ""));
        if users.trim() == "*" || groups.trim() == "*" {
            return Ok(Self::Everyone);
        }
        let (users, groups) = (names(users), names(groups));
        if users.len() + groups.len() > NAMES_MAX {
            return Err(format!("at most {NAMES_MAX} names"));
        }
        Ok(Self::Named { users, groups })
    }

    /// Whether the list has a user, by its short name, or one of its groups. `proxied`: another
    /// user acts for it. `None` where only its groups could tell, and they are unknown.
    pub(crate) async fn has(&self, user: &str, proxied: bool, known: &UserGroups) -> Option<bool> {
        let Self::Named { users, groups } = self else {
            return Some(true);
        };
        let proxy = || users.contains(&format!("{REAL_USER_OF}{user}"));
        if users.contains(user) || (proxied && proxy()) {
            return Some(true);
        }
        if groups.is_empty() {
            return Some(false);
        }
        let of_user = known.if_told(user).await?;
        Some(of_user.iter().any(|group| groups.contains(group)))
    }
}

fn names(list: &str) -> BTreeSet<String> {
    let names = list.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use hayloft_conf::{Configuration, SharedConfig, keys};
    use proptest::prelude::*;

    use super::*;

    fn groups() -> UserGroups {
        let config = Configuration::from_properties([(
            keys::STATIC_GROUPS.name(),
            "ann=staff,admins;bob=staff;zoe=",
        )]);
        UserGroups::new(SharedConfig::new(config.expect("valid")))
    }

    #[tokio::test]
    async fn users_and_groups_are_told_apart_by_the_first_space() {
        for (text, ann, bob, zoe) in [
            ("*", true, true, true),
            (" * ", true, true, true),
            ("ann *", true, true, true),
            ("ann", true, false, false),
            ("ann,zoe", true, false, true),
            (" admins", true, false, false),
            ("zoe admins,none", true, false, true),
            ("zoe, staff", true, true, true),
            ("staff", false, false, false),
            ("", false, false, false),
            (" ", false, false, false),
            ("*,ann", true, false, false),
        ] {
            let list = AccessList::parse(text).expect("a list");
            for (user, may) in [("ann", ann), ("bob", bob), ("zoe", zoe)] {
                assert_eq!(
                    list.has(user, false, &groups()).await,
                    Some(may),
                    "{text:?} {user}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_tilde_names_users_for_whom_others_act() {
        let list = AccessList::parse("~zoe").expect("a list");
        assert_eq!(list.has("zoe", true, &groups()).await, Some(true));
        assert_eq!(list.has("zoe", false, &groups()).await, Some(false));
    }

    #[test]
    fn a_list_is_bounded() {
        let long: Vec<String> = (0..=NAMES_MAX).map(|n| n.to_string()).collect();
        assert!(AccessList::parse(&long.join(",")).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_that_has_whom_it_names(text in "[a-z*~, \t]{0,60}") {
            if let AccessList::Named { users, groups } = AccessList::parse(&text).expect("short") {
                for name in users.iter().chain(&groups) {
                    prop_assert!(!name.is_empty() && text.contains(name) && !name.contains(','));
                    prop_assert_eq!(name.trim(), name);
                }
            }
        }
    }
}
