//! Links of pages: each leads to a file of the repository, and to a heading of it.

use std::collections::BTreeSet;
use std::path::Path;

/// Where the links of a page lead that stay within the repository.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let ends = page.split("](").skip(1);
    let targets = ends.filter_map(|rest| rest.split([')', ' ', '\n']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// How a heading is named in a link: small letters, digits, `_`, and `-` for spaces.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings.map(anchor).collect()
}

/// Number of links of the page at `path`, with this text, that lead nowhere.
pub fn dead(path: &Path, page: &str) -> usize {
    let folder = path.parent().expect("a page is in a folder");
    let leads_nowhere = |target: &&str| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let other = match file {
            "" => Some(page.to_owned()),
            file => {
                let file = folder.join(file);
                let text = std::fs::read_to_string(&file).ok();
                text.or_else(|| file.exists().then(String::new))
            }
        };
        let has = |text: String| heading.is_empty() || anchors(&text).contains(heading);
        !other.is_some_and(has)
    };
    targets(page).filter(leads_nowhere).count()
}

#[test]
fn links_that_lead_nowhere_are_counted() {
    let page = "# One `Word`\n[a](#one-word) [b](#two) [c](main.rs) [d](gone.md) [e](https://x)";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tidy/page.md");
    assert_eq!(dead(&path, page), 2);
}
