//! Keeps `bench/results/0.1.0/experiments.md` equal to the raw data beside it, and refuses it where
//! it shows raw data without a commit, or old data, as a result. With `HAYLOFT_BLESS=1` the page is
//! written anew instead.

use std::path::{Path, PathBuf};

use hayloft_lab::published::PublishedFigures;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/0.1.0")
}

fn figures() -> PublishedFigures {
    PublishedFigures::read(&folder().join("experiments.json")).expect("the raw data is there")
}

fn committed() -> String {
    std::fs::read_to_string(folder().join("experiments.md")).expect("the page is there")
}

#[test]
fn the_page_is_what_the_raw_data_makes_and_passes_for_no_more() {
    let figures = figures();
    if std::env::var_os("HAYLOFT_BLESS").is_some() {
        std::fs::write(folder().join("experiments.md"), figures.page(None)).expect("written");
    }
    let page = committed();
    assert!(
        figures.page(Some(&page)) == page,
        "experiments.md is not what experiments.json makes: run 'HAYLOFT_BLESS=1 cargo test \
            -p hayloft-lab --test figures'"
    );
    assert_eq!(figures.faults_of(&page), Vec::<String>::new());
}

/// Keys and flags of stock nodes stand in one place.
#[test]
fn no_experiment_sets_what_the_stock_node_has() {
    let words = [
        "synconclose",
        "behind.writes",
        "io.file.buffer.size",
        "readahead.bytes",
        "-XX:",
        "-Xm",
        "preferIPv4Stack",
        ".jvm_flags = Some(vec",
        "Jvm::small",
        "SMALL_JVM_FLAGS",
    ];
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    let mut dirs = vec![own.join("src"), own.join("../bench/src")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("readable");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let set = |line: &str| words.iter().any(|word| line.contains(word));
            let found = lines.filter(|line| set(line)).map(str::to_owned);
            if !path.ends_with("bench/src/fair/stock.rs") {
                wrong.extend(found.map(|line| format!("{}: {line}", path.display())));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these belong to fair/stock.rs:\n{}",
        wrong.join("\n")
    );
}
