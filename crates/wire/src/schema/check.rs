//! The check of received bytes against the description of their message.

use bytes::Bytes;

use super::{
    FieldDesc, FieldKind, Label, MessageDesc, WIRE_FIXED32, WIRE_FIXED64, WIRE_LENGTH_DELIMITED,
    WIRE_VARINT, WireMessage,
};

/// Why bytes are not an acceptable message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The bytes are no protobuf encoding.
    #[error("malformed bytes in {message}: {what}")]
    Malformed {
        /// Hadoop's name of the message.
        message: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// A required field is absent.
    #[error("{message} lacks its required field {field}")]
    MissingField {
        /// Hadoop's name of the message.
        message: &'static str,
        /// Rust name of the field.
        field: &'static str,
    },
    /// The decoded form would need more memory than allowed.
    #[error("{message} would take more than {budget_bytes} bytes of memory")]
    TooLarge {
        /// Hadoop's name of the message.
        message: &'static str,
        /// The budget of the whole decode.
        budget_bytes: usize,
    },
}

/// Checks `bytes` against the description of `M`: well-formed, required fields present, and the
/// decoded form no larger than about `budget_bytes`. At worst it is twice that, as vectors grow by
/// doubling. Unknown fields pass, as protobuf wants; groups (long deprecated) do not.
pub fn check<M: WireMessage>(bytes: &[u8], budget_bytes: usize) -> Result<(), SchemaError> {
    let Some(desc) = M::DESC else { return Ok(()) };
    let mut checker = Checker {
        left_bytes: budget_bytes,
        budget_bytes,
    };
    checker.message(bytes, desc)
}

struct Checker {
    left_bytes: usize,
    budget_bytes: usize,
}

impl Checker {
    fn spend(&mut self, bytes: usize, desc: &MessageDesc) -> Result<(), SchemaError> {
        self.left_bytes = self
            .left_bytes
            .checked_sub(bytes)
            .ok_or(SchemaError::TooLarge {
                message: desc.full_name,
                budget_bytes: self.budget_bytes,
            })?;
        Ok(())
    }

    /// Depth is bounded by the descriptions: no message of ours contains itself.
    fn message(&mut self, bytes: &[u8], desc: &MessageDesc) -> Result<(), SchemaError> {
        let malformed = |what| SchemaError::Malformed {
            message: desc.full_name,
            what,
        };
        self.spend(desc.memory_bytes, desc)?;
        let mut seen = 0u64;
        let mut rest = Walker { bytes };
        while !rest.bytes.is_empty() {
            let key = rest.varint().ok_or_else(|| malformed("field key"))?;
            let number = u32::try_from(key >> 3).map_err(|_| malformed("field number"))?;
            let wire_type = u8::try_from(key & 7).map_err(|_| malformed("wire type"))?;
            if number == 0 || number > MAX_FIELD_NUMBER {
                return Err(malformed("field number"));
            }
            let payload = rest
                .payload(wire_type)
                .ok_or_else(|| malformed("field value"))?;
            let Some(index) = desc.fields.iter().position(|f| f.number == number) else {
                continue;
            };
            let field = &desc.fields[index];
            seen |= 1 << index;
            self.field(field, wire_type, payload, desc)?;
        }
        let missing = desc
            .fields
            .iter()
            .enumerate()
            .find(|(i, f)| f.label == Label::Required && seen & (1 << i) == 0);
        match missing {
            Some((_, field)) => Err(SchemaError::MissingField {
                message: desc.full_name,
                field: field.name,
            }),
            None => Ok(()),
        }
    }

    fn field(
        &mut self,
        field: &FieldDesc,
        wire_type: u8,
        payload: &[u8],
        desc: &MessageDesc,
    ) -> Result<(), SchemaError> {
        let expected = field.kind.wire_type();
        let scalar = expected != WIRE_LENGTH_DELIMITED;
        if wire_type == WIRE_LENGTH_DELIMITED && scalar && field.label == Label::Repeated {
            // Packed: at least one byte an element, at most eight bytes in memory.
            return self.spend(payload.len().saturating_mul(8), desc);
        }
        if wire_type != expected {
            return Err(SchemaError::Malformed {
                message: desc.full_name,
                what: "wire type",
            });
        }
        match (field.kind, field.nested) {
            (FieldKind::Message, Some(nested)) => self.message(payload, nested),
            (FieldKind::String | FieldKind::Bytes, _) => {
                let container = if field.label == Label::Repeated {
                    size_of::<Bytes>()
                } else {
                    0
                };
                self.spend(payload.len() + container, desc)
            }
            _ if field.label == Label::Repeated => self.spend(8, desc),
            _ => Ok(()),
        }
    }
}

const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

struct Walker<'a> {
    bytes: &'a [u8],
}

impl<'a> Walker<'a> {
    fn varint(&mut self) -> Option<u64> {
        crate::varint::read_u64(&mut self.bytes)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(len)?;
        self.bytes = tail;
        Some(head)
    }

    fn payload(&mut self, wire_type: u8) -> Option<&'a [u8]> {
        match wire_type {
            WIRE_VARINT => self.varint().map(|_| &[][..]),
            WIRE_FIXED64 => self.take(8),
            WIRE_FIXED32 => self.take(4),
            WIRE_LENGTH_DELIMITED => {
                let len = usize::try_from(self.varint()?).ok()?;
                self.take(len)
            }
            _ => None,
        }
    }
}
