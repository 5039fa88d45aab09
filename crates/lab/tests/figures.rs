//! Keeps `bench/results/0.1.0/experiments.md` equal to the raw data beside it: a table a set of
//! figures. With `HAYLOFT_BLESS=1` the page is written anew instead.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder of the raw data and the page.
const FOLDER: &str = "../../bench/results/0.1.0";

const HEAD: &str = "# Figures of the experiments

This page is generated from [experiments.json](experiments.json) by
`HAYLOFT_BLESS=1 cargo test -p hayloft-lab --test figures`: do not edit it.
[The experiments](../../../docs/evaluate/experiments.md) says what follows from which figure.

Commands are as they were given then; `hayloft lab` is `hayloft-lab` now. Three figures in a cell
are the median (lowest to highest) of the rounds. Figures with commas
between them are one a round, or one for writing and one for reading. Shares are from 0 to 1.
Answers of a modelled disk that came more than 2 ms late are counted as late.
";

/// The tables. `== title = set = path of its rows` begins one. `heading = path` is a column. `~` is
/// before three values that are median, lowest and highest, `|` between paths whose values belong
/// together.
const TABLES: &str = include_str!("figures.txt");

/// A table of the page.
struct Table<'a> {
    title: &'a str,
    set: &'a str,
    rows: &'a str,
    /// Heading and path.
    columns: Vec<(&'a str, &'a str)>,
}

fn tables() -> Vec<Table<'static>> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    for line in TABLES.lines().filter(|line| !line.is_empty()) {
        let parts: Vec<&str> = line.trim_start_matches("== ").split(" = ").collect();
        match (parts.as_slice(), tables.last_mut()) {
            ([title, set, rows], _) => tables.push(Table {
                title,
                set,
                rows,
                columns: Vec::new(),
            }),
            ([heading, path], Some(table)) => table.columns.push((heading, path)),
            _ => panic!("no table and no column: {line}"),
        }
    }
    tables
}

/// The values at a path; `*` stands for each element of an array.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let Some((name, rest)) = path
        .split_once('/')
        .or((!path.is_empty()).then_some((path, "")))
    else {
        return vec![value];
    };
    if name == "*" {
        let each = value.as_array().into_iter().flatten();
        return each.flat_map(|one| at(one, rest)).collect();
    }
    let index = name
        .parse::<usize>()
        .ok()
        .and_then(|index| value.get(index));
    let inner = index.or_else(|| value.get(name));
    inner.map_or_else(Vec::new, |inner| at(inner, rest))
}

fn number(value: f64) -> String {
    match value.abs() {
        whole if whole >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        tens if tens >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Number(of) => number(of.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(word).collect::<Vec<_>>().join(", "),
        Value::Object(all) => {
            let named = all
                .iter()
                .map(|(name, value)| format!("{name} {}", word(value)));
            named.collect::<Vec<_>>().join(", ")
        }
    }
}

fn cell(row: &Value, path: &str) -> String {
    if let Some(path) = path.strip_prefix('~') {
        let values = at(row, path).into_iter().flat_map(|all| at(all, "*"));
        return match values.map(word).collect::<Vec<_>>().as_slice() {
            [middle, low, high] if low != high => format!("{middle} ({low} to {high})"),
            [middle, ..] => middle.clone(),
            [] => "-".into(),
        };
    }
    let values = path.split('|').flat_map(|path| at(row, path));
    let words: Vec<String> = values.map(word).collect();
    let between = if path.contains('|') { "/" } else { ", " };
    match words.as_slice() {
        [] => "-".into(),
        words => words.join(between),
    }
}

/// The commands and machine that a set names, if it does.
fn origin(set: &Value) -> String {
    let paths = ["command", "storage_command", "*/command"];
    let commands = paths.iter().flat_map(|path| at(set, path));
    let commands: Vec<String> = commands
        .map(|text| format!("- `{}`\n", word(text)))
        .collect();
    if commands.is_empty() {
        return "The raw data names no command.\n".into();
    }
    commands.concat()
}

fn page(raw: &Value) -> String {
    let mut text = HEAD.to_owned();
    for table in tables() {
        let (title, name, set) = (table.title, table.set, &raw[table.set]);
        text += &format!("\n## {title}\n\n`{name}`\n\n{}\n", origin(set));
        let headings: Vec<&str> = table.columns.iter().map(|(heading, _)| *heading).collect();
        let bars = "---|".repeat(headings.len());
        text += &format!("| {} |\n|{bars}\n", headings.join(" | "));
        for row in at(set, table.rows) {
            let cells = table.columns.iter().map(|(_, path)| cell(row, path));
            text += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    text
}

#[test]
fn the_page_is_what_the_raw_data_makes() {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let read = |name: &str| std::fs::read_to_string(folder.join(name));
    let raw = read("experiments.json").expect("the raw data is there");
    let raw: Value = serde_json::from_str(&raw).expect("it is JSON");
    for set in raw.as_object().expect("sets by name").keys() {
        let shown = tables().iter().any(|table| table.set == set);
        assert!(shown, "no table shows the set {set}");
    }
    let made = page(&raw);
    if std::env::var_os("HAYLOFT_BLESS").is_some() {
        std::fs::write(folder.join("experiments.md"), &made).expect("written");
    }
    assert!(
        read("experiments.md").is_ok_and(|page| page == made),
        "experiments.md is not what experiments.json makes: run 'HAYLOFT_BLESS=1 cargo test \
            -p hayloft-lab --test figures'"
    );
}
