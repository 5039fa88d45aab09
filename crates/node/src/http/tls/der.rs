//! Bytes of keystores and keys, taken apart: big-endian numbers, and values with their kind and
//! length (DER).

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BITS: u8 = 0x03;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;

/// Bytes that are not read yet.
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?.try_into().expect("four bytes");
        Ok(u32::from_be_bytes(bytes))
    }

    /// Bytes behind their length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.number()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Text behind its length.
    pub(super) fn text(&mut self) -> Result<&'a [u8], String> {
        let len = self.take(2)?.try_into().expect("two bytes");
        self.take(u16::from_be_bytes(len).into())
    }

    /// The content of the next value, which must be of this kind (DER).
    pub(super) fn value(&mut self, kind: u8) -> Result<&'a [u8], String> {
        let head = self.take(2)?;
        if head[0] != kind {
            return Err("a key has another form".into());
        }
        let len = match head[1] {
            short @ 0..=0x7F => usize::from(short),
            long @ 0x81..=0x83 => {
                let bytes = self.take(usize::from(long & 0x7F))?;
                bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b))
            }
            _ => return Err("a key has a length that cannot be".into()),
        };
        self.take(len)
    }
}

/// A value of this kind; `None` for 64 KiB and more.
pub(super) fn encoded(kind: u8, content: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(content.len()).ok()?;
    let head = match len.to_be_bytes() {
        [0, short @ 0..=0x7F] => vec![kind, short],
        [0, long] => vec![kind, 0x81, long],
        [high, low] => vec![kind, 0x82, high, low],
    };
    Some([&head, content].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read() {
        for len in [0, 1, 127, 128, 255, 256, 65_535] {
            let content = vec![7; len];
            let value = encoded(OCTETS, &content).expect("short");
            let mut rest = Rest(&value);
            assert_eq!(rest.value(OCTETS), Ok(&*content));
            assert!(rest.0.is_empty());
            assert!(Rest(&value).value(SEQUENCE).is_err(), "another kind");
            assert!(Rest(&value[..value.len() - 1]).value(OCTETS).is_err());
        }
        assert_eq!(encoded(OCTETS, &vec![7; 65_536]), None);
    }
}
