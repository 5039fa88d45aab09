//! Regular expressions of the configuration, compiled once and not for each request.

use std::collections::HashMap;
use std::sync::Mutex;

use hayloft_io::locks::lock;
use regex::Regex;

/// Patterns that are kept. They come from the configuration alone: more than these are of ones that
/// it has had before.
const KEPT_MAX: usize = 256;

/// By their text; `None` for one that is none.
static COMPILED: Mutex<Option<HashMap<String, Option<Regex>>>> = Mutex::new(None);

/// A pattern that is found anywhere in a text; `None` when it is none.
#[must_use]
pub fn compiled(pattern: &str) -> Option<Regex> {
    let mut kept = lock(&COMPILED);
    let kept = kept.get_or_insert_default();
    if let Some(known) = kept.get(pattern) {
        return known.clone();
    }
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    let new = Regex::new(pattern).ok();
    kept.insert(pattern.to_owned(), new.clone());
    new
}

/// A pattern that stands for all of a text, as Java's `matches` has it.
#[must_use]
pub fn whole(pattern: &str) -> Option<Regex> {
    compiled(&format!(r"\A(?:{pattern})\z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_a_part_or_for_all() {
        let matches = |of: Option<Regex>, text| of.map(|of| of.is_match(text));
        assert_eq!(matches(compiled("b$"), "ab"), Some(true));
        assert_eq!(matches(whole("b$"), "ab"), Some(false));
        // Not only the first of several that fit.
        assert_eq!(matches(whole("a|ab"), "ab"), Some(true));
        assert_eq!(matches(whole("(?!x)"), ""), None);
    }

    #[test]
    fn no_more_are_kept_than_the_limit() {
        for number in 0..2 * KEPT_MAX {
            assert!(compiled(&format!("^number-{number}$")).is_some());
        }
        let kept = lock(&COMPILED);
        assert!(kept.as_ref().is_some_and(|kept| kept.len() <= KEPT_MAX));
    }
}
