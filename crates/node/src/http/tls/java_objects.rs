//! Objects as Java writes them (`ObjectOutputStream`, protocol version 5), as far as keystores hold
//! them: fields of text and of bytes, of a class and those above it.

use super::der::Rest;

const HEAD: [u8; 4] = [0xAC, 0xED, 0, 5];
const NULL: u8 = 0x70;
const REFERENCE: u8 = 0x71;
const CLASS: u8 = 0x72;
const OBJECT: u8 = 0x73;
const TEXT: u8 = 0x74;
const ARRAY: u8 = 0x75;
const END: u8 = 0x78;
/// The number of the first thing that can be referred to.
const FIRST: u32 = 0x7E_0000;
/// Flag of a class that Java writes field by field.
const BY_FIELDS: u8 = 2;
/// Classes of one object, fields of a class, and things that can be referred to.
const CLASSES_MAX: usize = 8;
const FIELDS_MAX: u16 = 16;
const HANDLES_MAX: usize = 64;

/// An object: its class, and its fields with text or bytes.
#[derive(Debug)]
pub(super) struct JavaObject<'a> {
    class: &'a [u8],
    fields: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> JavaObject<'a> {
    /// Reads a stream of one object; what follows it is left.
    ///
    /// # Errors
    /// In words: it ends early, or has another form.
    pub(super) fn read(rest: &mut Rest<'a>) -> Result<Self, String> {
        if rest.take(HEAD.len())? != HEAD {
            return Err(other_form());
        }
        let mut stream = Stream {
            rest,
            handles: Vec::new(),
            classes: Vec::new(),
        };
        stream.object()
    }

    /// Whether it is of that class.
    pub(super) fn is_a(&self, class: &str) -> bool {
        self.class == class.as_bytes()
    }

    /// Bytes, or those of a text.
    pub(super) fn field(&self, name: &str) -> Result<&'a [u8], String> {
        let found = self.fields.iter().find(|(of, _)| *of == name.as_bytes());
        found
            .map(|(_, bytes)| *bytes)
            .ok_or_else(|| format!("an entry has no {name}"))
    }
}

fn other_form() -> String {
    "an entry has another form than Hadoop writes".to_owned()
}

/// What can be referred to.
#[derive(Clone, Copy)]
enum Handle<'a> {
    Class(usize),
    Text(&'a [u8]),
    Other,
}

struct Class<'a> {
    name: &'a [u8],
    flags: u8,
    /// Kind and name.
    fields: Vec<(u8, &'a [u8])>,
    above: Option<usize>,
}

struct Stream<'s, 'a> {
    rest: &'s mut Rest<'a>,
    handles: Vec<Handle<'a>>,
    classes: Vec<Class<'a>>,
}

impl<'a> Stream<'_, 'a> {
    fn byte(&mut self) -> Result<u8, String> {
        let byte = self.rest.take(1)?.first().copied();
        byte.ok_or_else(other_form)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        let found = self.byte()?;
        (found == wanted).then_some(()).ok_or_else(other_form)
    }

    fn remember(&mut self, handle: Handle<'a>) -> Result<(), String> {
        if self.handles.len() == HANDLES_MAX {
            return Err(other_form());
        }
        self.handles.push(handle);
        Ok(())
    }

    fn referred(&mut self) -> Result<Handle<'a>, String> {
        let index = self.rest.number()?.checked_sub(FIRST);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let handle = index.and_then(|index| self.handles.get(index));
        handle.copied().ok_or_else(other_form)
    }

    /// A class, by its place in the list.
    fn class(&mut self) -> Result<Option<usize>, String> {
        match self.byte()? {
            NULL => Ok(None),
            REFERENCE => match self.referred()? {
                Handle::Class(class) => Ok(Some(class)),
                _ => Err(other_form()),
            },
            CLASS => self.new_class().map(Some),
            _ => Err(other_form()),
        }
    }

    fn new_class(&mut self) -> Result<usize, String> {
        let place = self.classes.len();
        if place == CLASSES_MAX {
            return Err(other_form());
        }
        let name = self.rest.text()?;
        let _version = self.rest.take(8)?;
        self.remember(Handle::Class(place))?;
        let flags = self.byte()?;
        self.classes.push(Class {
            name,
            flags,
            fields: Vec::new(),
            above: None,
        });
        let count = self.rest.take(2)?.try_into().map_err(|_| other_form())?;
        let count = u16::from_be_bytes(count);
        if count > FIELDS_MAX {
            return Err(other_form());
        }
        let mut fields = Vec::new();
        for _ in 0..count {
            let kind = self.byte()?;
            fields.push((kind, self.rest.text()?));
            if matches!(kind, b'L' | b'[') {
                self.text()?;
            }
        }
        // No more is said of a class by those that keystores hold.
        self.expect(END)?;
        let above = self.class()?;
        // Java knows no circles; a stream could make one up.
        if above.is_some_and(|above| above <= place) {
            return Err(other_form());
        }
        let class = self.classes.get_mut(place).ok_or_else(other_form)?;
        (class.fields, class.above) = (fields, above);
        Ok(place)
    }

    fn text(&mut self) -> Result<Option<&'a [u8]>, String> {
        match self.byte()? {
            NULL => Ok(None),
            REFERENCE => match self.referred()? {
                Handle::Text(text) => Ok(Some(text)),
                _ => Err(other_form()),
            },
            TEXT => {
                let text = self.rest.text()?;
                self.remember(Handle::Text(text))?;
                Ok(Some(text))
            }
            _ => Err(other_form()),
        }
    }

    fn array(&mut self) -> Result<Option<&'a [u8]>, String> {
        match self.byte()? {
            NULL => return Ok(None),
            ARRAY => {}
            _ => return Err(other_form()),
        }
        let class = self.class()?.and_then(|class| self.classes.get(class));
        if class.is_none_or(|class| class.name != b"[B") {
            return Err(other_form());
        }
        self.remember(Handle::Other)?;
        self.rest.bytes().map(Some)
    }

    fn object(&mut self) -> Result<JavaObject<'a>, String> {
        self.expect(OBJECT)?;
        let class = self.class()?;
        self.remember(Handle::Other)?;
        let mut chain = Vec::new();
        let mut next = class;
        while let Some(class) = next.and_then(|place| self.classes.get(place)) {
            if class.flags != BY_FIELDS {
                return Err(other_form());
            }
            chain.push(class.fields.clone());
            next = class.above;
        }
        let class = class.and_then(|place| self.classes.get(place));
        let class = class.ok_or_else(other_form)?.name;
        let mut fields = Vec::new();
        // Those of the uppermost class come first.
        for (kind, name) in chain.into_iter().rev().flatten() {
            let value = match kind {
                b'L' => self.text()?,
                b'[' => self.array()?,
                b'B' | b'Z' => self.rest.take(1).map(|_| None)?,
                b'C' | b'S' => self.rest.take(2).map(|_| None)?,
                b'I' | b'F' => self.rest.take(4).map(|_| None)?,
                b'J' | b'D' => self.rest.take(8).map(|_| None)?,
                _ => return Err(other_form()),
            };
            fields.extend(value.map(|value| (name, value)));
        }
        Ok(JavaObject { class, fields })
    }
}
