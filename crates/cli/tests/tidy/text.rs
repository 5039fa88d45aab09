//! Files of the repository, and what their text holds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("two levels up").to_owned()
}

/// Folders that hold what is built, fetched, measured or left by a stock DataNode.
const LEFT_OUT: [&str; 6] = ["target", ".git", "runs", "results", "golden", ".hayloft"];

/// Files below `dir` with one of these extensions, in order.
pub fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("the folder is there") {
        let path = entry.expect("readable").path();
        let name = path
            .file_name()
            .expect("named")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if !LEFT_OUT.contains(&name.as_str()) {
                found.extend(files(&path, extensions));
            }
            continue;
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let script = extension.is_empty() && path.parent().is_some_and(|p| p.ends_with("scripts"));
        if extensions.contains(&extension.as_ref()) && (!extension.is_empty() || script) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Words of a text, of letters only.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
}

/// A source without the tests at its end.
pub fn code_of(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text)
}

/// Names of public types that are declared at the left margin.
pub fn public_types(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let rest = line.strip_prefix("pub ")?;
        let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
    })
}

/// Sentences of a page: of its paragraphs and list items, not of tables, headings and code.
pub fn sentences(page: &str) -> Vec<String> {
    let (mut found, mut paragraph, mut fenced) = (Vec::new(), String::new(), false);
    let mut end = |paragraph: &mut String| {
        let text = std::mem::take(paragraph);
        let mut sentence = String::new();
        for word in text.split_whitespace() {
            sentence.push_str(word);
            sentence.push(' ');
            if word.ends_with(['.', '?', '!', ':', ';']) && !word.ends_with("e.g.") {
                found.push(std::mem::take(&mut sentence));
            }
        }
        found.push(sentence);
    };
    for line in page.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
        }
        let item = line.starts_with("- ") || line.starts_with("* ");
        let apart = fenced || line.is_empty() || line.starts_with(['|', '#', '<', '`']);
        if apart || item {
            end(&mut paragraph);
        }
        if !apart {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    end(&mut paragraph);
    found
}

/// How the first sentence of a page begins that a command makes.
const GENERATED: &str = "This page is generated from ";
/// How the part of a page begins that a command makes, and the line that ends it.
const MADE: (&str, &str) = ("<!-- made by ", "<!-- end of what is made -->");

/// What is written by hand on a page: nothing of a page that a command makes, and of others what is
/// outside the parts that a command makes.
pub fn by_hand(page: &str) -> String {
    let mut lines = page.lines().filter(|line| !line.trim().is_empty()).skip(1);
    if lines.next().is_some_and(|line| line.starts_with(GENERATED)) {
        return String::new();
    }
    let mut made = false;
    let lines = page.lines().filter(|line| {
        made = (made || line.starts_with(MADE.0)) && !line.starts_with(MADE.1);
        !made && !line.starts_with(MADE.1)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Folders of sources, as `crate/room` or `crate/room/inner`, and the crates themselves.
pub fn rooms(crates: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in folders(crates) {
        found.insert(name.clone());
        below(&crates.join(&name).join("src"), &name, &mut found);
    }
    found
}

fn below(dir: &Path, name: &str, found: &mut BTreeSet<String>) {
    for inner in folders(dir) {
        let test = ["tests", "bin", "golden"].contains(&inner.as_str());
        let path = dir.join(&inner);
        // A folder with nothing but the tests of the file beside it is no room.
        let sources = files(&path, &["rs"]);
        let only_tests = sources.iter().all(|path| path.ends_with("tests.rs"));
        if test || only_tests {
            continue;
        }
        let name = format!("{name}/{inner}");
        found.insert(name.clone());
        below(&path, &name, found);
    }
}

fn folders(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let dirs = entries.flatten().filter(|entry| entry.path().is_dir());
    dirs.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Rooms that the picture of a page shows: in the block that begins with `crates/` a line is a
/// room when its first word ends with `/`, and two more columns of indent are one level more.
pub fn drawn_rooms(page: &str) -> BTreeSet<String> {
    let block = page
        .split("```")
        .find(|b| b.trim_start_matches('\n').starts_with("crates/"));
    let mut path: Vec<&str> = Vec::new();
    let mut found = BTreeSet::new();
    for line in block
        .expect("a picture that begins with crates/")
        .lines()
        .skip(2)
    {
        let indent = (line.len() - line.trim_start().len()) / 2;
        let Some(name) = line
            .split_whitespace()
            .next()
            .and_then(|w| w.strip_suffix('/'))
        else {
            continue;
        };
        path.truncate(indent.saturating_sub(1));
        path.push(name);
        found.insert(path.join("/"));
    }
    found
}
