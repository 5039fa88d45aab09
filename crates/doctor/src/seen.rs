//! What a probe saw, or why it could not look. Small reads with limits, all of them blocking.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// What was seen, or why it was not looked at, in words.
pub type Looked<T> = Result<T, String>;

/// Bytes of a file of the kernel's that are read, at most.
const TEXT_MAX: u64 = 256 << 10;

/// The text of a small file; nothing where there is none.
///
/// # Errors
/// Why it cannot be read.
pub fn text_if_any(path: &Path) -> Looked<Option<String>> {
    let read = || -> std::io::Result<String> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(TEXT_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    };
    match read() {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(shown(path, &error)),
    }
}

/// The text of a small file that should be there.
///
/// # Errors
/// Why it cannot be read.
pub fn text(path: &Path) -> Looked<String> {
    text_if_any(path)?.ok_or_else(|| format!("{} is not there", path.display()))
}

/// An error at a path, in words.
pub fn shown(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Texts of the kernel's by their names. What is not there has no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Texts(BTreeMap<String, Looked<String>>);

impl Texts {
    /// Reads these files below `dir`.
    #[must_use]
    pub fn read(dir: &Path, names: &[&str]) -> Self {
        let read = names.iter().filter_map(|name| {
            let seen = text_if_any(&dir.join(name.trim_start_matches('/')));
            Some(((*name).to_owned(), seen.transpose()?))
        });
        Self(read.collect())
    }

    /// Adds a text.
    pub fn add(&mut self, name: impl Into<String>, text: Looked<String>) {
        self.0.insert(name.into(), text);
    }

    /// A text, if it could be read.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_ref().ok().map(String::as_str)
    }

    /// A text that should be there.
    ///
    /// # Errors
    /// Why it is not.
    pub fn want(&self, name: &str) -> Looked<&str> {
        match self.0.get(name) {
            Some(Ok(text)) => Ok(text),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("{name} is not there")),
        }
    }

    /// A text that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        number(self.get(name)?)
    }

    /// All that could be read, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let seen = self.0.iter();
        seen.filter_map(|(name, text)| Some((name.as_str(), text.as_deref().ok()?)))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Texts {
    fn from(texts: [(&str, &str); N]) -> Self {
        let all = texts.map(|(name, text)| (name.to_owned(), Ok(text.to_owned())));
        Self(all.into())
    }
}

/// A number as the kernel writes it, `0x` included.
#[must_use]
pub fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// What is chosen of a list such as `none [mq-deadline] kyber`.
#[must_use]
pub fn chosen(text: &str) -> &str {
    let marked = text.split_whitespace();
    let mut marked = marked.filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    marked.next().unwrap_or(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel() {
        assert_eq!(chosen("none [mq-deadline] kyber bfq"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
        assert_eq!(
            (number("0x1a\n"), number("-1"), number("x")),
            (Some(26), Some(-1), None)
        );
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let texts = Texts::read(Path::new("/"), &["/proc/self/stat", "/proc/none", "/proc"]);
        assert!(texts.get("/proc/self/stat").is_some());
        assert!(texts.want("/proc/none").unwrap_err().contains("not there"));
        assert!(texts.want("/proc").unwrap_err().contains("directory"));
    }
}
