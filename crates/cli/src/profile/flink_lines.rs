//! Flink's file as keys and values: the flat lines of `flink-conf.yaml`, and the nested maps of
//! `config.yaml`. Lists and what else YAML has are no values of the profile.

use hayloft_conf::JavaProperty;

/// The keys of a file, those of maps joined by dots.
pub fn flink_lines(text: &str) -> Vec<JavaProperty> {
    // Maps that are open, with the indent of their keys.
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let plain = without_comment(text);
        let Some((key, value)) = key_and_value(plain.trim()) else {
            continue;
        };
        let indent = plain.len() - plain.trim_start().len();
        while open.last().is_some_and(|(of, _)| *of >= indent) {
            open.pop();
        }
        let key = match open.last() {
            Some((_, map)) => format!("{map}.{key}"),
            None => key.to_owned(),
        };
        if value.is_empty() {
            open.push((indent, key));
        } else {
            let value = unquoted(value).to_owned();
            found.push(JavaProperty { line, key, value });
        }
    }
    found
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
        let lines = flink_lines(text);
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
}
