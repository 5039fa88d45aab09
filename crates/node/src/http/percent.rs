//! Percent-encoded text.

use std::fmt::Write as _;

/// Why text cannot be decoded, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadEscape {
    /// The text ends in the middle of it.
    Cut { at: usize },
    /// These are no hexadecimal digits.
    Digits { at: usize, digits: [char; 2] },
}

/// Whether a `+` is a space, as it is in parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plus {
    IsSpace,
    IsPlus,
}

/// The bytes that a text stands for.
pub(super) fn decoded(text: &str, plus: Plus) -> Result<Vec<u8>, BadEscape> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let at = text.len() - rest.len();
        rest = after;
        bytes.push(match byte {
            b'+' if plus == Plus::IsSpace => b' ',
            b'%' => {
                let [high, low, after @ ..] = rest else {
                    return Err(BadEscape::Cut { at });
                };
                rest = after;
                let digits = [*high, *low].map(char::from);
                let value = digits.iter().try_fold(0, |value, digit| {
                    Some(value * 16 + u8::try_from(digit.to_digit(16)?).ok()?)
                });
                value.ok_or(BadEscape::Digits { at, digits })?
            }
            other => *other,
        });
    }
    Ok(bytes)
}

/// Text of which letters, digits and these bytes stay as they are.
pub(super) fn encoded(text: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let text = "a b/ä%+";
        let there = encoded(text, b"/");
        assert_eq!(there, "a%20b/%C3%A4%25%2B");
        assert_eq!(decoded(&there, Plus::IsPlus), Ok(text.into()));
        assert_eq!(decoded("a+b", Plus::IsSpace), Ok(b"a b".to_vec()));
        assert_eq!(decoded("a%4", Plus::IsPlus), Err(BadEscape::Cut { at: 1 }));
        let digits = ['z', '0'];
        assert_eq!(
            decoded("%z0", Plus::IsPlus),
            Err(BadEscape::Digits { at: 0, digits })
        );
    }
}
