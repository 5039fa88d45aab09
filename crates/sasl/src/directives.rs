//! Lists of names and values, such as `realm="0",qop=auth`.

use super::error::SaslError;

/// Most names in a list: RFC 2831 has 13, and allows for more.
const MAX_DIRECTIVES: usize = 32;

/// The names and values of a message, each name once; `realm` may come several times.
#[derive(Debug)]
pub(crate) struct Directives(Vec<(String, String)>);

impl Directives {
    /// Reads a list of at most `limit` bytes.
    ///
    /// # Errors
    /// `Format`: it is longer, no such list, or says something twice.
    pub(crate) fn parse(bytes: &[u8], limit: usize) -> Result<Self, SaslError> {
        if bytes.len() > limit {
            return Err(SaslError::format(format!(
                "a message of {} bytes; at most {limit} are read",
                bytes.len()
            )));
        }
        let text =
            std::str::from_utf8(bytes).map_err(|_| SaslError::format("a message is no text"))?;
        let mut found: Vec<(String, String)> = Vec::new();
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
            if rest.is_empty() {
                return Ok(Self(found));
            }
            let (name, value, behind) = directive(rest)?;
            let again = found.iter().any(|(known, _)| *known == name) && name != "realm";
            if again || found.len() == MAX_DIRECTIVES {
                return Err(SaslError::format("a message says too much"));
            }
            found.push((name, value));
            rest = behind;
        }
    }

    /// The value of `name`, the first of several.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let known = self.0.iter().find(|(known, _)| known == name);
        known.map(|(_, value)| value.as_str())
    }

    /// The value of `name`.
    ///
    /// # Errors
    /// `Format`: it is not there, or empty.
    pub(crate) fn need(&self, name: &'static str) -> Result<&str, SaslError> {
        let value = self.get(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| SaslError::format(format!("a message has no {name}")))
    }
}

/// The first name and value of `text`, and what is behind them.
fn directive(text: &str) -> Result<(String, String, &str), SaslError> {
    let wrong = || SaslError::format("a message is no list of names and values");
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let name = name.trim_end();
    let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(wrong());
    }
    let rest = rest.trim_start();
    let (value, behind) = match rest.strip_prefix('"') {
        Some(quoted) => unquoted(quoted).ok_or_else(wrong)?,
        None => {
            let end = rest.find(',').unwrap_or(rest.len());
            let (value, behind) = rest.split_at(end);
            (value.trim_end().to_owned(), behind)
        }
    };
    let behind = behind.trim_start();
    if !(behind.is_empty() || behind.starts_with(',')) {
        return Err(wrong());
    }
    Ok((name.to_ascii_lowercase(), value, behind))
}

/// What is before the closing quotation mark, and what is behind it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// `value` in quotation marks.
pub(crate) fn quoted(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}
