//! Keeps the house in order: columns, words, names, lengths of files and pages, circles of files,
//! and the picture of the rooms in ARCHITECTURE.md.
//!
//! A rule that some files do not meet yet has a list of them in `known.txt`, with the number that
//! each had. The number may fall and must not rise; a file that meets the rule leaves the list.

mod budget;
mod circles;
mod links;
mod modules;
mod source;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use text::{code_of, files, repository, sentences, words};

/// Columns of a line of source, script or page.
const COLUMNS: usize = 100;
/// Lines of a source file, its tests included.
const FILE_LINES: usize = 450;
/// Lines of a decision.
const DECISION_LINES: usize = 20;
/// Words of a page.
const PAGES: [(&str, usize); 3] = [
    ("README.md", 700),
    ("ARCHITECTURE.md", 900),
    ("CONTRIBUTING.md", 400),
];
/// Words of all pages below docs that are written by hand: what is new replaces what is old.
const DOCS_WORDS: usize = 15_000;
/// Words of a sentence on a page.
const SENTENCE_WORDS: usize = 25;

/// Words that hide who does something, or that mean nothing to a newcomer.
const UNWANTED: [&str; 6] = [
    "whoever",
    "somebody",
    "nobody",
    "everybody",
    "anybody",
    "mourn",
];

/// What `known.txt` allows: rule, file, number.
fn known(rule: &str) -> BTreeMap<String, usize> {
    let lines = include_str!("known.txt").lines();
    let parts = lines.filter_map(|line| {
        let mut parts = line.split_whitespace();
        let (of, file, number) = (parts.next()?, parts.next()?, parts.next()?);
        (of == rule).then(|| (file.to_owned(), number.parse().expect("a number")))
    });
    parts.collect()
}

/// Compares what breaks a rule with what is known to.
fn judge(rule: &str, found: &BTreeMap<String, usize>, todo: &str) {
    let known = known(rule);
    let mut wrong = Vec::new();
    for (file, number) in found {
        match known.get(file) {
            Some(allowed) if number <= allowed => {}
            Some(allowed) => wrong.push(format!("{file}: {number}, it had {allowed}")),
            None => wrong.push(format!("{file}: {number}")),
        }
    }
    let mended = known.keys().filter(|file| !found.contains_key(*file));
    let mended: Vec<_> = mended
        .map(|file| format!("{file}: take it out of known.txt"))
        .collect();
    wrong.extend(mended);
    assert!(wrong.is_empty(), "{rule}: {todo}\n  {}", wrong.join("\n  "));
}

fn count<'a>(
    extensions: &[&str],
    of: impl Fn(&Path, &str) -> usize + 'a,
) -> BTreeMap<String, usize> {
    let root = repository();
    let found = files(&root, extensions).into_iter().filter_map(|path| {
        let text = std::fs::read_to_string(&path).expect("readable");
        let number = of(&path, &text);
        let name = path.strip_prefix(&root).expect("below the root");
        (number > 0).then(|| (name.display().to_string(), number))
    });
    found.collect()
}

#[test]
fn lines_have_at_most_100_columns() {
    let found = count(
        &["rs", "md", "java", "toml", "xml", "sh", ""],
        |path, text| {
            let page = path.extension().is_some_and(|extension| extension == "md");
            let long = |line: &&str| {
                // A link cannot be wrapped.
                let link = page && line.trim_start().starts_with("[") && line.contains("]: http");
                line.chars().count() > COLUMNS && !link
            };
            text.lines().filter(long).count()
        },
    );
    judge("columns", &found, "wrap these lines");
}

#[test]
fn words_name_the_actor() {
    let found = count(&["rs", "md", "java"], |path, text| {
        if path.ends_with("tests/tidy/main.rs") {
            return 0;
        }
        let text = text.to_lowercase();
        words(&text).filter(|word| UNWANTED.contains(word)).count()
    });
    judge(
        "words",
        &found,
        "name the actor: the writer, the caller, the operator",
    );
}

#[test]
fn pages_have_short_sentences() {
    let found = count(&["md"], |_, text| {
        let long = |sentence: &String| sentence.split_whitespace().count() > SENTENCE_WORDS;
        sentences(text).iter().filter(|s| long(s)).count()
    });
    judge("sentences", &found, "split sentences of more than 25 words");
}

#[test]
fn links_of_pages_lead_somewhere() {
    let found = count(&["md"], links::dead);
    judge(
        "links",
        &found,
        "name a file that is there, and a heading of it",
    );
}

/// Crates whose code is in no package.
const TOOLS: [&str; 3] = ["crates/bench/", "crates/lab/", "crates/testkit/"];

#[test]
fn programs_do_not_know_where_they_were_built() {
    let root = repository();
    let found = count(&["rs"], |path, text| {
        let name = path.strip_prefix(&root).expect("below the root");
        let name = name.display().to_string();
        let packaged = name.starts_with("crates/") && name.contains("/src/");
        let test = name.contains("/tests/") || name.ends_with("tests.rs");
        if !packaged || test || TOOLS.iter().any(|tools| name.starts_with(tools)) {
            return 0;
        }
        code_of(text).matches("CARGO_MANIFEST_DIR").count()
    });
    // There it is left out of packages.
    let known = BTreeMap::from([("crates/cluster/src/hadoop.rs".to_owned(), 1)]);
    assert_eq!(found, known, "find it at run time: packages name no path");
}

#[test]
fn files_are_short() {
    let found = count(&["rs", "java"], |_, text| {
        let lines = text.lines().count();
        if lines > FILE_LINES { lines } else { 0 }
    });
    judge("lines", &found, "split files of more than 450 lines");
}

#[test]
fn a_public_type_has_its_name_alone() {
    let root = repository();
    let mut seen: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for path in files(&root.join("crates"), &["rs"]) {
        let inner = path.to_string_lossy().into_owned();
        if inner.contains("/tests/") || inner.contains("/examples/") || inner.contains("/proto/") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        for name in text::public_types(code_of(&text)) {
            seen.entry(name.to_owned())
                .or_default()
                .insert(path.clone());
        }
    }
    let twice = seen.iter().filter(|(_, paths)| paths.len() > 1);
    let twice: Vec<_> = twice
        .map(|(name, paths)| format!("{name}: {paths:?}"))
        .collect();
    assert!(
        twice.is_empty(),
        "two public types share a name: {twice:#?}"
    );
}

#[test]
fn pages_are_short() {
    let root = repository();
    let read = |path: &Path| std::fs::read_to_string(path).expect("the page is there");
    // The bars of a table are no words.
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    let words = |text: &str| text.split_whitespace().filter(is_word).count();
    for (page, most) in PAGES {
        let has = words(&read(&root.join(page)));
        assert!(has <= most, "{page} has {has} words of at most {most}");
    }
    let pages = files(&root.join("docs"), &["md"]);
    let by_hand = pages.iter().map(|path| text::by_hand(&read(path)));
    let docs: usize = by_hand.map(|text| words(&text)).sum();
    assert!(
        docs <= DOCS_WORDS,
        "the pages below docs have {docs} words of at most {DOCS_WORDS}"
    );
}

#[test]
fn decisions_are_short() {
    for path in files(&repository().join("docs/decisions"), &["md"]) {
        let text = std::fs::read_to_string(&path).expect("readable");
        let index = path.ends_with("README.md");
        assert!(
            index || text.lines().count() <= DECISION_LINES,
            "{} has more than {DECISION_LINES} lines",
            path.display()
        );
    }
}

/// The picture is the block of ARCHITECTURE.md that begins with `crates/`.
#[test]
fn the_picture_of_the_tree_matches_the_folders() {
    let root = repository();
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the page is there");
    let drawn = text::drawn_rooms(&page);
    let there = text::rooms(&root.join("crates"));
    let missing: Vec<_> = there.difference(&drawn).collect();
    let gone: Vec<_> = drawn.difference(&there).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "ARCHITECTURE.md does not show {missing:?}, and shows {gone:?}, which is not there"
    );
}
