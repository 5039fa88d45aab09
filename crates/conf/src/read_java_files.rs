//! Files of Java's and of the shell: lines that go on, keys and values, words.

use std::io;
use std::path::{Path, PathBuf};

use crate::bounded_file::read_bounded;

/// Bytes of a file, at most.
const BYTES_MAX: u64 = 1 << 20;
/// Characters shown of what an operator wrote.
const SHOWN_MAX: usize = 120;

/// The file `name` of the directory, if there is one. What cannot be read is said.
pub(crate) fn read(conf: &Path, name: &str, said: &mut Vec<String>) -> Option<(PathBuf, String)> {
    let path = conf.join(name);
    match read_java_file(&path) {
        Ok(found) => found.map(|text| (path, text)),
        Err(error) => {
            let path = path.display();
            said.push(format!(
                "{path} was not looked at: it cannot be read: {error}"
            ));
            None
        }
    }
}

/// The text of such a file, of at most 1 MiB; `None`: there is none.
///
/// # Errors
/// When it is there, and cannot be read, is no file, or is larger.
pub fn read_java_file(path: &Path) -> io::Result<Option<String>> {
    match read_bounded(path, BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(String::from_utf8_lossy(&read?).into_owned())),
    }
}

/// Each line with its number from 1, those joined that a backslash at the end continues.
pub(crate) fn lines(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let (part, more) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match all.last_mut() {
            Some((_, begun)) if goes_on => begun.push_str(part.trim_start()),
            _ => all.push((number, part.to_owned())),
        }
        goes_on = more;
    }
    all
}

/// A key of a properties file, its value, and the line that has it.
#[derive(Debug)]
pub struct JavaProperty {
    /// Line, counted from 1.
    pub line: usize,
    /// The key, without escapes.
    pub key: String,
    /// The value, trimmed.
    pub value: String,
}

/// The properties of a file in Java's form, without escapes; a key may be there twice.
#[must_use]
pub fn java_properties(text: &str) -> Vec<JavaProperty> {
    let pairs = lines(text).into_iter().filter_map(|(line, text)| {
        let text = text.trim();
        if text.is_empty() || text.starts_with(['#', '!']) {
            return None;
        }
        let end = text.find(|c: char| c == '=' || c == ':' || c.is_whitespace());
        let (key, rest) = text.split_at(end.unwrap_or(text.len()));
        let rest = rest.trim_start();
        let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim();
        Some(JavaProperty {
            line,
            key: key.to_owned(),
            value: value.to_owned(),
        })
    });
    pairs.collect()
}

/// The words of a shell's line or of a variable, quotes taken away.
pub(crate) fn words(text: &str) -> Vec<String> {
    let text = text.replace(['"', '\''], " ");
    text.split_whitespace().map(str::to_owned).collect()
}

/// What an operator wrote, fit for a line on a terminal: at most 120 characters, none of control.
#[must_use]
pub fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let all = text.chars().count();
    let mut short: String = text.chars().take(SHOWN_MAX).map(plain).collect();
    if all > SHOWN_MAX {
        short.push_str("...");
    }
    short
}
