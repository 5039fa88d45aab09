//! No circles of files: what a file names does not name it in turn.
//!
//! Circles that are known are in `circles.txt`, a file a line, with a blank line between two. The
//! list may only shrink: a file that is in no circle any more leaves it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::modules::{Arrows, arrows};
use crate::text::repository;

/// Files of one circle.
type Circle = BTreeSet<String>;

#[test]
fn files_do_not_name_each_other_in_circles() {
    let mut all = Arrows::new();
    let crates = repository().join("crates");
    for dir in std::fs::read_dir(crates).expect("the folder is there") {
        let dir = dir.expect("readable");
        let name = dir.file_name().to_string_lossy().into_owned();
        let full = |file: String| format!("crates/{name}/src/{file}");
        for (from, to) in arrows(&dir.path()) {
            let to = to.into_iter().map(|(file, names)| (full(file), names));
            all.insert(full(from), to.collect());
        }
    }
    let found = circles(&all);
    let known = known();
    let mut wrong = String::new();
    for circle in &found {
        if !known.iter().any(|known| circle.is_subset(known)) {
            let text = inside(circle, &all);
            let _ = write!(wrong, "\nthis circle is not in circles.txt:\n{text}");
        }
    }
    let opened = known.iter().flatten();
    let opened = opened.filter(|file| !found.iter().any(|circle| circle.contains(*file)));
    for file in opened {
        let _ = write!(wrong, "\nin no circle, take it out of circles.txt: {file}");
    }
    assert!(
        wrong.is_empty(),
        "move what two files share to a third, below both\n{wrong}"
    );
}

fn known() -> BTreeSet<Circle> {
    let text = include_str!("circles.txt");
    let blocks = text.split("\n\n").map(|block| {
        let files = block.lines().map(str::trim);
        let files = files.filter(|line| !line.is_empty() && !line.starts_with('#'));
        files.map(str::to_owned).collect::<Circle>()
    });
    blocks.filter(|circle| !circle.is_empty()).collect()
}

/// Files that reach each other, of two or more.
///
/// A folder's own file, such as `mod.rs`, uses the files in the folder, and they use what it
/// declares for them. So it is left out of a circle that lies all in its folder.
fn circles(arrows: &Arrows) -> BTreeSet<Circle> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = arrows
        .keys()
        .map(|file| (file, reached(arrows, file)))
        .collect();
    let circle = |file: &String| -> Circle {
        let back = reached[file].iter().filter(|other| {
            let from_there = reached.get(**other);
            from_there.is_some_and(|there| there.contains(file))
        });
        back.map(|other| (*other).clone()).collect()
    };
    let found: BTreeSet<Circle> = arrows.keys().map(circle).collect();
    let found = found.into_iter().filter(|circle| circle.len() > 1);
    found
        .flat_map(|circle| {
            let holds = |file: &&String| {
                let folder = folder(file);
                circle
                    .iter()
                    .all(|other| other == *file || other.starts_with(&folder))
            };
            match circle.iter().find(holds) {
                Some(own) => circles(&among(arrows, &circle, own)),
                None => BTreeSet::from([circle]),
            }
        })
        .collect()
}

/// The folder whose own file this is, or would be.
fn folder(file: &str) -> String {
    let name = file.strip_suffix(".rs").unwrap_or(file);
    let own = ["/mod", "/lib", "/main"]
        .iter()
        .find_map(|own| name.strip_suffix(own));
    format!("{}/", own.unwrap_or(name))
}

/// The arrows between the files of a circle, without those of one of them.
fn among(arrows: &Arrows, circle: &Circle, without: &str) -> Arrows {
    let stays = |file: &String| circle.contains(file) && file != without;
    let inner = arrows
        .iter()
        .filter(|(from, _)| stays(from))
        .map(|(from, to)| {
            let to = to.iter().filter(|(to, _)| stays(to));
            let to = to.map(|(to, names)| (to.clone(), names.clone())).collect();
            (from.clone(), to)
        });
    inner.collect()
}

fn reached<'a>(arrows: &'a Arrows, from: &'a String) -> BTreeSet<&'a String> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let more = arrows.get(file).into_iter().flat_map(BTreeMap::keys);
        next.extend(more.filter(|file| found.insert(*file)));
    }
    found
}

/// The files of a circle, and what ties them.
fn inside(circle: &Circle, arrows: &Arrows) -> String {
    let mut text: String = circle.iter().map(|file| format!("{file}\n")).collect();
    text.push_str("by\n");
    for from in circle {
        for (to, names) in arrows[from].iter().filter(|(to, _)| circle.contains(*to)) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let _ = writeln!(text, "  {from} -> {to}: {}", names.join(", "));
        }
    }
    text
}

#[test]
fn a_circle_is_found() {
    let arrow = |from: &str, to: &[&str]| {
        let to = to.iter().map(|to| ((*to).to_owned(), BTreeSet::new()));
        (from.to_owned(), to.collect())
    };
    let arrows = Arrows::from([
        arrow("a", &["b", "d"]),
        arrow("b", &["c"]),
        arrow("c", &["a"]),
        arrow("d", &["e"]),
        arrow("e", &[]),
    ]);
    let circle = ["a", "b", "c"].map(str::to_owned);
    assert_eq!(circles(&arrows), BTreeSet::from([Circle::from(circle)]));
    let family = Arrows::from([
        arrow("a/mod.rs", &["a/b.rs", "a/c.rs"]),
        arrow("a/b.rs", &["a/mod.rs"]),
        arrow("a/c.rs", &["a/mod.rs", "a/b.rs"]),
    ]);
    assert_eq!(circles(&family), BTreeSet::new());
    let outside = Arrows::from([
        arrow("a/mod.rs", &["b.rs", "a/c.rs"]),
        arrow("b.rs", &["a/c.rs"]),
        arrow("a/c.rs", &["a/mod.rs"]),
    ]);
    assert_eq!(circles(&outside).len(), 1);
}
