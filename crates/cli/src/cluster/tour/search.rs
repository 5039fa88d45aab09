//! The stock MapReduce `grep` example over a text, its count checked with our own.

use std::path::PathBuf;

use hayloft_console::progress::ProgressStep;
use serde::Serialize;

use super::shell::{ROOT, Shell, listing_of, remove};
use crate::cluster::state_directory::{Copied, CopiedFile};
use crate::error::CliError;

const EXAMPLES: &str = "org.apache.hadoop.examples.ExampleDriver";

/// One search.
#[derive(Debug, Serialize)]
pub struct Search {
    pub(super) text: String,
    pub(super) word: String,
    pub(super) matches: u64,
    pub(super) seconds: f64,
}

/// Runs the stock `grep` example over a text of the copy, and checks its count with our own. With
/// Kerberos it does nothing: a reducer wants Hadoop's native library, which is in no jar.
pub(super) fn search(shell: &Shell<'_, '_>, copied: &Copied) -> Result<Option<Search>, CliError> {
    let has_examples = |jar: &PathBuf| jar.to_string_lossy().contains("hadoop-mapreduce-examples");
    let hadoop = &shell.launcher.hadoop;
    if hadoop.has_realm() || !hadoop.jars().iter().any(has_examples) {
        return Ok(None);
    }
    let is_text = |file: &&CopiedFile| {
        let name = file.path.to_ascii_lowercase();
        (1..64 << 20).contains(&file.bytes)
            && [".txt", ".md", ".log", ".csv", ".xml", ".html"]
                .iter()
                .any(|end| name.ends_with(end))
    };
    let text = match copied
        .files
        .iter()
        .filter(is_text)
        .max_by_key(|file| file.bytes)
    {
        Some(file) => format!("{}/{}", copied.target, file.path),
        None => listing_of(&copied.target),
    };
    let local = shell.scratch("text");
    remove(&local)?;
    shell.fs(&["-get", &text, &local.display().to_string()], None)?;
    let contents = std::fs::read(&local).map_err(CliError::file("read", &local))?;
    remove(&local)?;
    let Some((word, expected)) = frequent_word(&contents) else {
        return Ok(None);
    };
    let output = format!("{ROOT}/grep-output");
    shell.fs(&["-rm", "-r", "-f", "-skipTrash", &output], None)?;
    let step = ProgressStep::spinner(format!("searching {text} for '{word}' with MapReduce"));
    shell.run(
        "grep",
        EXAMPLES,
        &["grep", &text, &output, &word],
        Some((&step, &|| 0)),
    )?;
    let took = step.done("");
    let part = shell.scratch("grep-result");
    remove(&part)?;
    shell.fs(&["-getmerge", &output, &part.display().to_string()], None)?;
    let result = std::fs::read_to_string(&part).map_err(CliError::file("read", &part))?;
    remove(&part)?;
    let matches = result
        .split_ascii_whitespace()
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(0);
    if matches != expected {
        let what = format!("MapReduce found '{word}' {matches} times, {expected} are there");
        return Err(CliError::new(
            what,
            text,
            format!("see {}", shell.launcher.state.logs().display()),
        )
        .finding());
    }
    Ok(Some(Search {
        text,
        word,
        matches,
        seconds: took.as_secs_f64(),
    }))
}

/// The most frequent word of at least four ASCII letters, and how often it occurs anywhere.
fn frequent_word(text: &[u8]) -> Option<(String, u64)> {
    let mut counts: std::collections::BTreeMap<&[u8], u64> = std::collections::BTreeMap::new();
    let sample = &text[..text.len().min(4 << 20)];
    for word in sample
        .split(|byte| !byte.is_ascii_alphabetic())
        .filter(|word| (4..=32).contains(&word.len()))
    {
        *counts.entry(word).or_default() += 1;
    }
    let (word, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let mut occurrences = 0;
    let mut at = 0;
    // As a regular expression finds them: from left to right, not overlapping.
    while at + word.len() <= text.len() {
        if &text[at..at + word.len()] == word {
            occurrences += 1;
            at += word.len();
        } else {
            at += 1;
        }
    }
    Some((String::from_utf8_lossy(word).into_owned(), occurrences))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_as_a_regular_expression_finds_them() {
        assert_eq!(
            frequent_word(b"jarjar jarjar xjarjarjarjarx a b c"),
            Some(("jarjar".into(), 4))
        );
        assert_eq!(frequent_word(b"a b 123"), None);
    }
}
