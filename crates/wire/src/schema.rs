//! What the messages look like on the wire, and a check of received bytes against it.
//!
//! - `check`: the check of received bytes against the description of their message
//!
//! prost alone is too trusting for a server: it takes an absent required field for a zero. Two
//! bytes of input, an empty element of a repeated message, can cost hundreds of bytes of memory.
//! [`check()`] walks the bytes once, before prost, against the description that
//! [`wire_messages!`](crate::proto) made from the same text as the struct. It allocates nothing.

use bytes::Bytes;

mod check;

pub use check::{SchemaError, check};

/// How often a field may and must occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Exactly once; a message without it is rejected.
    Required,
    /// At most once.
    Optional,
    /// Any number of times, within the memory budget of the decoder.
    Repeated,
}

/// Encoding of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "protobuf's own type names")]
pub enum FieldKind {
    Bool,
    Bytes,
    Double,
    Enum,
    Fixed32,
    Int32,
    Int64,
    Message,
    Sfixed32,
    Sfixed64,
    Sint32,
    Sint64,
    String,
    Uint32,
    Uint64,
}

impl FieldKind {
    const ALL: [(&'static str, FieldKind); 15] = [
        ("bool", FieldKind::Bool),
        ("bytes", FieldKind::Bytes),
        ("double", FieldKind::Double),
        ("enumeration", FieldKind::Enum),
        ("fixed32", FieldKind::Fixed32),
        ("int32", FieldKind::Int32),
        ("int64", FieldKind::Int64),
        ("message", FieldKind::Message),
        ("sfixed32", FieldKind::Sfixed32),
        ("sfixed64", FieldKind::Sfixed64),
        ("sint32", FieldKind::Sint32),
        ("sint64", FieldKind::Sint64),
        ("string", FieldKind::String),
        ("uint32", FieldKind::Uint32),
        ("uint64", FieldKind::Uint64),
    ];

    /// Protobuf's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FieldKind::Enum => "enum",
            other => FieldKind::ALL
                .iter()
                .find(|(_, kind)| *kind == other)
                .map_or("?", |(name, _)| name),
        }
    }

    const fn wire_type(self) -> u8 {
        match self {
            FieldKind::Double | FieldKind::Sfixed64 => WIRE_FIXED64,
            FieldKind::Fixed32 | FieldKind::Sfixed32 => WIRE_FIXED32,
            FieldKind::Bytes | FieldKind::Message | FieldKind::String => WIRE_LENGTH_DELIMITED,
            FieldKind::Bool
            | FieldKind::Enum
            | FieldKind::Int32
            | FieldKind::Int64
            | FieldKind::Sint32
            | FieldKind::Sint64
            | FieldKind::Uint32
            | FieldKind::Uint64 => WIRE_VARINT,
        }
    }
}

const WIRE_VARINT: u8 = 0;
const WIRE_FIXED64: u8 = 1;
const WIRE_LENGTH_DELIMITED: u8 = 2;
const WIRE_FIXED32: u8 = 5;

/// One field of a message.
#[derive(Debug)]
pub struct FieldDesc {
    /// Name of the Rust field.
    pub name: &'static str,
    /// Field number.
    pub number: u32,
    /// Encoding.
    pub kind: FieldKind,
    /// How often it occurs.
    pub label: Label,
    /// Whether repeated scalars are sent packed. Both forms are accepted.
    pub packed: bool,
    /// The prost attribute, from which the other values are taken.
    attr: &'static str,
    /// Description of the message in it, for [`FieldKind::Message`].
    pub nested: Option<&'static MessageDesc>,
}

/// One message.
#[derive(Debug)]
pub struct MessageDesc {
    /// Hadoop's full name, such as `hadoop.hdfs.BlockProto`.
    pub full_name: &'static str,
    /// Size of the Rust struct, without what it points to.
    pub memory_bytes: usize,
    /// Fields in the order of declaration.
    pub fields: &'static [FieldDesc],
}

impl MessageDesc {
    pub(crate) const fn new(
        full_name: &'static str,
        memory_bytes: usize,
        fields: &'static [FieldDesc],
    ) -> MessageDesc {
        assert!(
            fields.len() <= MAX_FIELDS,
            "the check keeps one bit a field"
        );
        MessageDesc {
            full_name,
            memory_bytes,
            fields,
        }
    }
}

/// Most fields of a message of ours.
const MAX_FIELDS: usize = 64;

/// One enum.
#[derive(Debug)]
pub struct EnumDesc {
    /// Hadoop's full name, such as `hadoop.hdfs.Status`.
    pub full_name: &'static str,
    /// Name of the Rust enum.
    pub rust_name: &'static str,
    /// Names and numbers of the values.
    pub values: &'static [(&'static str, i32)],
}

/// Types that occur in messages; messages among them have a description.
pub trait Described {
    /// The description, for messages and containers of messages.
    const DESC: Option<&'static MessageDesc>;
}

/// A message declared with `wire_messages!`.
pub trait WireMessage: prost::Message + Default + Described {}

macro_rules! scalars {
    ($($ty:ty),*) => {$(
        impl Described for $ty {
            const DESC: Option<&'static MessageDesc> = None;
        }
    )*};
}
scalars!(bool, f64, i32, i64, u32, u64, String, Bytes);

impl<T: Described> Described for Option<T> {
    const DESC: Option<&'static MessageDesc> = T::DESC;
}

impl<T: Described> Described for Vec<T> {
    const DESC: Option<&'static MessageDesc> = T::DESC;
}

impl FieldDesc {
    /// Reads a prost attribute at compile time; a form it does not know stops the build.
    pub(crate) const fn parse(
        name: &'static str,
        attr: &'static str,
        nested: Option<&'static MessageDesc>,
    ) -> FieldDesc {
        let label = if has_word(attr, "required") {
            Label::Required
        } else if has_word(attr, "repeated") {
            Label::Repeated
        } else {
            assert!(has_word(attr, "optional"), "a field needs a label");
            Label::Optional
        };
        let mut kind = None;
        let mut i = 0;
        while i < FieldKind::ALL.len() {
            if starts_with_word(attr, FieldKind::ALL[i].0) {
                kind = Some(FieldKind::ALL[i].1);
            }
            i += 1;
        }
        let Some(kind) = kind else {
            panic!("a field's attribute starts with its type")
        };
        let number = number_after(attr, "tag");
        assert!(number > 0, "a field needs a tag");
        let packed = matches!(value_after(attr, "packed"), Some(b't'));
        FieldDesc {
            name,
            number,
            kind,
            label,
            packed,
            attr,
            nested,
        }
    }

    /// Rust name of the enum of an enum field.
    #[must_use]
    pub fn enum_name(&self) -> Option<&'static str> {
        let rest = self.attr.strip_prefix("enumeration")?;
        rest.split('"').nth(1)
    }

    /// Default declared in the attribute.
    #[must_use]
    pub fn default(&self) -> Option<&'static str> {
        let (_, rest) = self.attr.split_once("default")?;
        rest.split('"').nth(1)
    }
}

const fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

const fn matches_at(text: &[u8], at: usize, word: &[u8]) -> bool {
    if at + word.len() > text.len() {
        return false;
    }
    let mut i = 0;
    while i < word.len() {
        if text[at + i] != word[i] {
            return false;
        }
        i += 1;
    }
    let end = at + word.len();
    let starts = at == 0 || !is_word_byte(text[at - 1]);
    starts && (end == text.len() || !is_word_byte(text[end]))
}

const fn find_word(text: &str, word: &str) -> Option<usize> {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    let mut at = 0;
    while at < text.len() {
        if matches_at(text, at, word) {
            return Some(at + word.len());
        }
        at += 1;
    }
    None
}

const fn has_word(text: &str, word: &str) -> bool {
    find_word(text, word).is_some()
}

const fn starts_with_word(text: &str, word: &str) -> bool {
    matches_at(text.as_bytes(), 0, word.as_bytes())
}

/// First byte inside the quotes after `word`.
const fn value_after(text: &str, word: &str) -> Option<u8> {
    let Some(mut at) = find_word(text, word) else {
        return None;
    };
    let text = text.as_bytes();
    while at + 1 < text.len() {
        if text[at] == b'"' {
            return Some(text[at + 1]);
        }
        at += 1;
    }
    None
}

/// The quoted decimal number after `word`, or 0.
const fn number_after(text: &str, word: &str) -> u32 {
    let Some(mut at) = find_word(text, word) else {
        return 0;
    };
    let text = text.as_bytes();
    while at < text.len() && !text[at].is_ascii_digit() {
        at += 1;
    }
    let mut number = 0;
    while at < text.len() && text[at].is_ascii_digit() {
        number = number * 10 + (text[at] - b'0') as u32;
        at += 1;
    }
    number
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
