//! Flink's file as keys and values: the flat lines of `flink-conf.yaml`, and the nested maps of
//! `config.yaml`. Lists and what else YAML has are no values of the profile.

use std::collections::HashSet;

use hayloft_conf::JavaProperty;

/// The keys of `flink-conf.yaml`, of which Flink reads each line by itself.
pub fn flat_flink_lines(text: &str) -> Vec<JavaProperty> {
    let pairs = (1..).zip(text.lines()).filter_map(|(line, text)| {
        let (key, value) = without_comment(text).trim().split_once(": ")?;
        Some(JavaProperty {
            line,
            key: key.trim().to_owned(),
            value: value.trim().to_owned(),
        })
    });
    pairs.collect()
}

/// The keys of `config.yaml`, those of maps joined by dots.
///
/// # Errors
/// The second line of a key that a map has twice, which Flink refuses.
pub fn flink_lines(text: &str) -> Result<Vec<JavaProperty>, JavaProperty> {
    // Keys that may hold what follows, with their indent and line.
    let mut open: Vec<(usize, String, usize)> = Vec::new();
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (line, text) in (1..).zip(text.lines()) {
        let plain = without_comment(text);
        let Some((own, value)) = key_and_value(plain.trim()) else {
            continue;
        };
        let indent = plain.len() - plain.trim_start().len();
        while open.last().is_some_and(|(of, ..)| *of >= indent) {
            open.pop();
        }
        let (key, map) = match open.last() {
            Some((_, map, begin)) => (format!("{map}.{own}"), *begin),
            None => (own.to_owned(), 0),
        };
        open.push((indent, key.clone(), line));
        let is_map = value.is_empty();
        let value = unquoted(value).to_owned();
        let one = JavaProperty { line, key, value };
        // Items of a list may have the same keys.
        if !own.starts_with("- ") && !seen.insert((map, own)) {
            return Err(one);
        }
        if !is_map {
            found.push(one);
        }
    }
    Ok(found)
}

/// A comment begins a line, or follows a space.
fn without_comment(line: &str) -> &str {
    let begin = match line.starts_with('#') {
        true => Some(0),
        false => line.find(" #"),
    };
    &line[..begin.unwrap_or(line.len())]
}

fn key_and_value(text: &str) -> Option<(&str, &str)> {
    let (key, value) = match text.split_once(": ") {
        Some((key, value)) => (key, value.trim()),
        None => (text.strip_suffix(':')?, ""),
    };
    Some((unquoted(key.trim()), value))
}

fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_lines_and_nested_maps_have_the_same_keys() {
        let text = "# yarn.a: 0\nyarn.heartbeat.interval: 5 # seconds\nyarn:\n  heartbeat:\n    \
            container-request-interval: \"300 ms\"\n  queue: 'x'\nenv:\n- a\n\
            flink: {hadoop: {a: 1}}\n";
        let lines = flink_lines(text).expect("no key twice");
        let all: Vec<_> = lines
            .iter()
            .map(|one| (one.line, one.key.as_str(), one.value.as_str()))
            .collect();
        assert_eq!(
            all,
            [
                (2, "yarn.heartbeat.interval", "5"),
                (5, "yarn.heartbeat.container-request-interval", "300 ms"),
                (6, "yarn.queue", "x"),
                (9, "flink", "{hadoop: {a: 1}}"),
            ]
        );
    }

    #[test]
    fn a_map_has_each_key_once() {
        for (text, line, key) in [
            ("a.b: 1\nc: 2\na.b: 1\n", 3, "a.b"),
            ("yarn:\n  a: 1\nb: 2\nyarn:\n  c: 1\n", 4, "yarn"),
            ("x:\n  y:\n    z: 1\n    'z': 2\n", 4, "x.y.z"),
        ] {
            let twice = flink_lines(text).expect_err(text);
            assert_eq!((twice.line, twice.key.as_str()), (line, key), "{text}");
        }
        let lists = "a:\n  b: 1\nc:\n  b: 1\nd:\n- e: 1\n  f: 1\n- e: 2\n  f: 2\n";
        assert!(flink_lines(lists).is_ok());
    }

    #[test]
    fn the_old_file_has_no_maps() {
        let text = "yarn:\n  queue: a\nb: 1#2\nb: '3' # c\n# c: 4\n";
        let lines = flat_flink_lines(text);
        let all: Vec<_> = lines
            .iter()
            .map(|one| (one.line, one.key.as_str(), one.value.as_str()))
            .collect();
        assert_eq!(all, [(2, "queue", "a"), (3, "b", "1#2"), (4, "b", "'3'")]);
    }
}
