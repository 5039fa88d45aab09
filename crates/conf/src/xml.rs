//! Hadoop's configuration XML: bytes of one file to properties, includes followed.
//!
//! Accepted: `<configuration>` (nested ones too), `<property>` with `name`, `value` and `final` as
//! child elements or attributes, `<xi:include href>` with `<xi:fallback>`. No external entities, no
//! DTD. Bounded: file size, include depth, number of files, number of properties.

use std::path::{Path, PathBuf};

use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::bounded_file::read_bounded;
use super::error::ConfigError;
use super::uri::percent_decode;

/// Largest file accepted, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Includes inside includes.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Files read for one top-level file, all includes counted.
const FILES_MAX: usize = 256;
/// Properties in one top-level file, all includes counted.
const PROPERTIES_MAX: usize = 100_000;
/// Elements inside elements.
const ELEMENT_DEPTH_MAX: usize = 64;

/// One `<property>`, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) is_final: bool,
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

/// Reads `path` and everything that it includes, in document order.
pub(super) fn read_file(path: &Path) -> Result<Vec<Property>, ConfigError> {
    let mut loader = Loader {
        files: 0,
        properties: Vec::new(),
    };
    loader.file(path, 0, None)?;
    Ok(loader.properties)
}

struct Loader {
    files: usize,
    properties: Vec<Property>,
}

/// Where we are inside a document.
#[derive(Debug)]
enum Open {
    Configuration,
    Property(Draft),
    /// `name`, `value` or `final`; text is collected.
    Field(Field, String),
    Include {
        /// The include worked, so its fallback must be skipped.
        satisfied: bool,
        href: String,
        line: usize,
    },
    Fallback,
    /// Anything else, with all that is in it.
    Ignored,
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Name,
    Value,
    Final,
}

#[derive(Debug, Default)]
struct Draft {
    name: Option<String>,
    value: Option<String>,
    is_final: bool,
    line: usize,
}

impl Loader {
    fn file(&mut self, path: &Path, depth: usize, from: Option<String>) -> Result<(), ConfigError> {
        let bytes = read_bounded(path, FILE_BYTES_MAX).map_err(|source| ConfigError::Read {
            path: path.to_path_buf(),
            included_from: from,
            source,
        })?;
        self.files += 1;
        Document {
            loader: self,
            path,
            depth,
            bytes: &bytes,
            counted: 0,
            line: 1,
            stack: Vec::new(),
        }
        .parse()
    }
}

struct Document<'a> {
    loader: &'a mut Loader,
    path: &'a Path,
    depth: usize,
    bytes: &'a [u8],
    /// Bytes whose newlines `line` already counts.
    counted: usize,
    line: usize,
    stack: Vec<Open>,
}

impl Document<'_> {
    fn parse(mut self) -> Result<(), ConfigError> {
        let mut reader = Reader::from_reader(self.bytes);
        reader.config_mut().expand_empty_elements = true;
        let mut seen_root = false;
        loop {
            let event = reader.read_event();
            // Inside a tag that spans lines this is the line of its end, which is near enough.
            self.advance(usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX));
            match event {
                Err(error) => {
                    self.advance(usize::try_from(reader.error_position()).unwrap_or(usize::MAX));
                    return Err(self.syntax(format!("not well-formed XML: {error}")));
                }
                Ok(Event::Start(tag)) => {
                    seen_root = true;
                    self.open(&tag)?;
                }
                Ok(Event::End(_)) => self.close()?,
                Ok(Event::Text(text)) => self.text(&text.xml10_content()),
                Ok(Event::CData(text)) => self.text(&text.xml10_content()),
                Ok(Event::GeneralRef(reference)) => {
                    let text = self.reference(&reference)?;
                    self.text(&text);
                }
                Ok(Event::Eof) => break,
                Ok(_) => {}
            }
        }
        if !self.stack.is_empty() {
            return Err(
                self.syntax("the file ends inside an element: a closing tag is missing".into())
            );
        }
        if !seen_root {
            return Err(self.syntax("no <configuration> element".into()));
        }
        Ok(())
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Result<(), ConfigError> {
        if self.stack.len() >= ELEMENT_DEPTH_MAX {
            return Err(self.syntax(format!(
                "elements nested more than {ELEMENT_DEPTH_MAX} deep"
            )));
        }
        let local = tag.local_name();
        let element: &str = local.as_ref();
        let in_properties = matches!(
            self.stack.last(),
            Some(Open::Configuration | Open::Fallback)
        );
        let opened = match element {
            "configuration" if self.stack.is_empty() || in_properties => Open::Configuration,
            _ if self.stack.is_empty() => {
                return Err(self.syntax(format!(
                    "the root element is <{element}>, must be <configuration>"
                )));
            }
            "property" if in_properties => Open::Property(self.draft(tag)?),
            "include" if in_properties => self.include(tag)?,
            "fallback" => match self.stack.last() {
                Some(Open::Include {
                    satisfied: false, ..
                }) => {
                    if let Some(Open::Include { satisfied, .. }) = self.stack.last_mut() {
                        *satisfied = true;
                    }
                    Open::Fallback
                }
                _ => Open::Ignored,
            },
            "name" if self.in_property() => Open::Field(Field::Name, String::new()),
            "value" if self.in_property() => Open::Field(Field::Value, String::new()),
            "final" if self.in_property() => Open::Field(Field::Final, String::new()),
            _ => Open::Ignored,
        };
        self.stack.push(opened);
        Ok(())
    }

    fn close(&mut self) -> Result<(), ConfigError> {
        match self.stack.pop() {
            Some(Open::Field(field, text)) => {
                if let Some(Open::Property(draft)) = self.stack.last_mut() {
                    draft.set(field, text);
                }
                Ok(())
            }
            Some(Open::Property(draft)) => self.finish(draft),
            Some(Open::Include {
                satisfied: false,
                href,
                line,
            }) => {
                self.line = line;
                Err(self.syntax(format!(
                    "cannot include '{href}': no such file, and no <xi:fallback> beside it"
                )))
            }
            _ => Ok(()),
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(Open::Field(_, collected)) = self.stack.last_mut() {
            collected.push_str(text);
        }
    }

    fn in_property(&self) -> bool {
        matches!(self.stack.last(), Some(Open::Property(_)))
    }

    fn draft(&mut self, tag: &BytesStart<'_>) -> Result<Draft, ConfigError> {
        let mut draft = Draft {
            line: self.line,
            ..Draft::default()
        };
        for (name, value) in self.attributes(tag)? {
            match name.as_str() {
                "name" => draft.set(Field::Name, value),
                "value" => draft.set(Field::Value, value),
                "final" => draft.set(Field::Final, value),
                _ => {}
            }
        }
        Ok(draft)
    }

    fn finish(&mut self, draft: Draft) -> Result<(), ConfigError> {
        let Some(name) = draft.name.filter(|name| !name.is_empty()) else {
            return Err(self.syntax("a <property> without a <name>".into()));
        };
        // As in Hadoop, a property without a value, or with an empty one, says nothing at all.
        let Some(value) = draft.value.filter(|value| !value.is_empty()) else {
            return Ok(());
        };
        if self.loader.properties.len() >= PROPERTIES_MAX {
            return Err(self.syntax(format!("more than {PROPERTIES_MAX} properties")));
        }
        let (file, line) = (self.path.to_path_buf(), draft.line);
        self.loader.properties.push(Property {
            name,
            value,
            is_final: draft.is_final,
            file,
            line,
        });
        Ok(())
    }

    /// Follows an include at once, so that properties stay in document order.
    fn include(&mut self, tag: &BytesStart<'_>) -> Result<Open, ConfigError> {
        let line = self.line;
        let href = self
            .attributes(tag)?
            .into_iter()
            .find(|(name, _)| name == "href");
        let Some((_, href)) = href else {
            return Err(self.syntax("an <xi:include> without href".into()));
        };
        if self.depth >= INCLUDE_DEPTH_MAX {
            return Err(self.syntax(format!(
                "includes nested more than {INCLUDE_DEPTH_MAX} deep (a file that includes itself?)"
            )));
        }
        if self.loader.files >= FILES_MAX {
            return Err(self.syntax(format!("more than {FILES_MAX} included files")));
        }
        let target = self.target(&href)?;
        if !target.exists() {
            return Ok(Open::Include {
                satisfied: false,
                href,
                line,
            });
        }
        let from = format!("{}:{line}", self.path.display());
        self.loader.file(&target, self.depth + 1, Some(from))?;
        Ok(Open::Include {
            satisfied: true,
            href,
            line,
        })
    }

    fn target(&self, href: &str) -> Result<PathBuf, ConfigError> {
        let path = match href.split_once(':') {
            Some(("file", rest)) => percent_decode(rest.strip_prefix("//").unwrap_or(rest))
                .ok_or_else(|| self.syntax(format!("cannot read the href '{href}'")))?,
            Some((scheme, _))
                if scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) =>
            {
                return Err(self.syntax(format!(
                    "cannot include '{href}': only files can be included"
                )));
            }
            _ => href.to_owned(),
        };
        let base = self.path.parent().unwrap_or(Path::new(""));
        Ok(base.join(path))
    }

    fn attributes(&self, tag: &BytesStart<'_>) -> Result<Vec<(String, String)>, ConfigError> {
        let mut found = Vec::new();
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|e| self.syntax(e.to_string()))?;
            let local = attribute.key.local_name();
            let name: &str = local.as_ref();
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|e| self.syntax(e.to_string()))?;
            found.push((name.to_owned(), value.into_owned()));
        }
        Ok(found)
    }

    fn reference(&self, reference: &BytesRef<'_>) -> Result<String, ConfigError> {
        if let Some(c) = reference
            .resolve_char_ref()
            .map_err(|e| self.syntax(e.to_string()))?
        {
            return Ok(c.to_string());
        }
        let name: &str = reference;
        quick_xml::escape::resolve_predefined_entity(name)
            .map(str::to_owned)
            .ok_or_else(|| {
                self.syntax(format!(
                    "unknown entity &{name};: entities are not expanded here, write the text itself"
                ))
            })
    }

    fn advance(&mut self, position: usize) {
        let end = position.min(self.bytes.len());
        if end > self.counted {
            self.line += self.bytes[self.counted..end]
                .iter()
                .filter(|b| **b == b'\n')
                .count();
            self.counted = end;
        }
    }

    fn syntax(&self, what: String) -> ConfigError {
        ConfigError::Syntax {
            path: self.path.to_path_buf(),
            line: self.line,
            what,
        }
    }
}

impl Draft {
    fn set(&mut self, field: Field, text: String) {
        match field {
            Field::Name => self.name = Some(text.trim().to_owned()),
            Field::Value => self.value = Some(text),
            Field::Final => self.is_final = text.trim().eq_ignore_ascii_case("true"),
        }
    }
}
