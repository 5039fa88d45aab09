//! Which sources, records and metrics a sink gets: Hadoop's `GlobFilter` and `RegexFilter`.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

use super::options::{Options, VALUE_MAX};
use crate::read_java_files::shown;

const GLOB: &str = "org.apache.hadoop.metrics2.filter.GlobFilter";
const REGEX: &str = "org.apache.hadoop.metrics2.filter.RegexFilter";
/// Patterns of tags in a filter, at most.
const TAGS_MAX: usize = 16;
/// Bytes that a compiled pattern may take.
const COMPILED_MAX: usize = 256 << 10;

/// What is included and what is excluded, by name and by tags. What is both is included.
#[derive(Clone, Debug, Default)]
pub struct SinkFilter {
    include: Option<Regex>,
    exclude: Option<Regex>,
    include_tags: BTreeMap<String, Regex>,
    exclude_tags: BTreeMap<String, Regex>,
}

impl SinkFilter {
    /// The filter `which` of a sink; `None`: it has no option of its own. A class alone, which may
    /// be that of all sinks, makes none.
    pub(super) fn of(options: &Options, sink: &str, which: &str) -> Result<Option<Self>, String> {
        if !options.has_own(sink, &format!("{which}.")) {
            return Ok(None);
        }
        let class = options.text(sink, &format!("{which}.class"))?;
        let is_glob = match class.as_deref() {
            None | Some(GLOB) => true,
            Some(REGEX) => false,
            Some(class) => {
                return Err(format!(
                    "since the class of its {which} is {}: take {GLOB} or {REGEX}",
                    shown(class)
                ));
            }
        };
        let compile = |text: &str, key: &str| {
            compiled(text, is_glob).map_err(|why| {
                let text = shown(text);
                format!("since its {which}.{key} is {text}, no pattern here ({why}): correct it")
            })
        };
        let pattern = |key: &str| {
            let text = options.text(sink, &format!("{which}.{key}"))?;
            text.map(|text| compile(&text, key)).transpose()
        };
        let tags = |key: &str| {
            let mut patterns = BTreeMap::new();
            let values = options.values(sink, &format!("{which}.{key}"));
            if values.len() > TAGS_MAX {
                return Err(format!(
                    "since its {which}.{key} has more than {TAGS_MAX} patterns: remove some"
                ));
            }
            for found in values {
                let wrong = || format!("since its {which}.{key} has no TAG:PATTERN: correct it");
                let (tag, text) = found.value.split_once(':').ok_or_else(wrong)?;
                patterns.insert(tag.to_owned(), compile(text, key)?);
            }
            Ok::<_, String>(patterns)
        };
        Ok(Some(Self {
            include: pattern("include")?,
            exclude: pattern("exclude")?,
            include_tags: tags("include.tags")?,
            exclude_tags: tags("exclude.tags")?,
        }))
    }

    /// Whether that name passes.
    #[must_use]
    pub fn accepts(&self, name: &str) -> bool {
        let fits = |pattern: &Option<Regex>| {
            let pattern = pattern.as_ref();
            pattern.is_some_and(|pattern| pattern.is_match(name))
        };
        let only_included = self.include.is_some() && self.exclude.is_none();
        fits(&self.include) || !fits(&self.exclude) && !only_included
    }

    /// Whether a record with those tags passes: one that fits is enough.
    #[must_use]
    pub fn accepts_tags(&self, tags: &[(String, Option<String>)]) -> bool {
        let fits = |patterns: &BTreeMap<String, Regex>| {
            tags.iter().any(|(tag, value)| {
                let pattern = patterns.get(tag).zip(value.as_ref());
                pattern.is_some_and(|(pattern, value)| pattern.is_match(value))
            })
        };
        let only_included = !self.include_tags.is_empty() && self.exclude_tags.is_empty();
        fits(&self.include_tags) || !fits(&self.exclude_tags) && !only_included
    }
}

/// A pattern that stands for all of a text.
fn compiled(text: &str, is_glob: bool) -> Result<Regex, String> {
    if text.len() > VALUE_MAX {
        return Err(format!("it is longer than {VALUE_MAX} bytes"));
    }
    let pattern = if is_glob {
        of_glob(text)?
    } else {
        text.to_owned()
    };
    let whole = format!(r"\A(?:{pattern})\z");
    let built = RegexBuilder::new(&whole)
        .size_limit(COMPILED_MAX)
        .dot_matches_new_line(is_glob)
        .build();
    // The last line says what is wrong, those before show where.
    built.map_err(|error| {
        let error = error.to_string();
        error.lines().last().unwrap_or_default().trim().to_owned()
    })
}

/// The regular expression of a pattern with `*`, `?`, `[...]` and `{a,b}`.
fn of_glob(glob: &str) -> Result<String, String> {
    let (mut pattern, mut in_set, mut groups) = (String::new(), false, 0_u32);
    let mut letters = glob.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                let next = letters.next().ok_or("it ends in \\")?;
                pattern.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
            }
            _ if in_set => {
                in_set = letter != ']';
                pattern.push(letter);
            }
            '[' => {
                in_set = true;
                let inverse = letters.next_if(|next| matches!(next, '!' | '^'));
                pattern.push_str(inverse.map_or("[", |_| "[^"));
            }
            '*' => pattern.push_str(".*"),
            '?' => pattern.push('.'),
            '{' => {
                groups += 1;
                pattern.push_str("(?:");
            }
            ',' if groups > 0 => pattern.push('|'),
            '}' if groups > 0 => {
                groups -= 1;
                pattern.push(')');
            }
            other => pattern.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    if in_set || groups > 0 {
        return Err("a bracket is not closed".to_owned());
    }
    Ok(pattern)
}
