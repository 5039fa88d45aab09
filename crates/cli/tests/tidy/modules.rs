//! The modules of a crate, and which file names what of which other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::source::{group, tokens};

/// Imports that lead from one to the next: more are a riddle, or go round.
const IMPORTS_MAX: usize = 32;

/// Files, the files whose items each names, and the names.
pub type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A module: a file or a block in one.
#[derive(Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of items that are declared here.
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths in the code, as they are written.
    paths: Vec<Vec<String>>,
}

/// A leaf of a `use`.
struct Import {
    path: Vec<String>,
    /// The name that it has here; `*` for all names.
    name: String,
    public: bool,
}

/// What a path leads to.
enum Found {
    Module(usize),
    /// An item of the module.
    Item(usize),
}

/// The modules of a crate.
#[derive(Default)]
struct Modules(Vec<Module>);

/// Which file of the crate in `dir` names items of which other. Files have their names below `src`.
///
/// A declaration of a module, and a public import from below, are no arrows: an arrow goes to the
/// file that declares what is named, past all that hand it on.
pub fn arrows(dir: &Path) -> Arrows {
    let src = dir.join("src");
    let mut modules = Modules::default();
    let roots = ["lib.rs", "main.rs"].map(|root| src.join(root));
    for root in roots.iter().filter(|root| root.exists()) {
        modules.read(&src, root, &src, None);
    }
    modules.arrows()
}

impl Modules {
    /// Reads a module with those below it, which lie in `inner`.
    fn read(&mut self, src: &Path, file: &Path, inner: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file:?}: {e}"));
        let name = file.strip_prefix(src).expect("below src");
        let module = self.add(name.display().to_string(), parent);
        self.fill(src, inner, module, &tokens(&text));
        module
    }

    fn add(&mut self, file: String, parent: Option<usize>) -> usize {
        self.0.push(Module {
            file,
            parent,
            ..Module::default()
        });
        self.0.len() - 1
    }

    /// Takes in what a module declares and names.
    fn fill(&mut self, src: &Path, inner: &Path, module: usize, tokens: &[&str]) {
        let (mut at, mut depth) = (0, 0);
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += match rest {
                // Who may see an item is no use of what it names.
                ["pub", "(", ..] if rest.get(3) != Some(&"::") || rest[2] == "in" => {
                    1 + group(&rest[1..])
                }
                ["use", ..] => {
                    let end = rest.iter().position(|t| *t == ";").unwrap_or(rest.len());
                    let public = is_public(&tokens[..at]);
                    let tree = &rest[1..end];
                    imports(tree, &[], public, &mut self.0[module].imports);
                    end
                }
                ["mod", name, ";", ..] => {
                    let (file, below) = file_of(inner, name);
                    let child = self.read(src, &file, &below, Some(module));
                    self.0[module].children.insert((*name).to_owned(), child);
                    3
                }
                ["mod", name, "{", ..] => {
                    let len = group(&rest[2..]);
                    let child = self.add(self.0[module].file.clone(), Some(module));
                    self.0[module].children.insert((*name).to_owned(), child);
                    self.fill(src, &inner.join(name), child, &rest[3..1 + len]);
                    2 + len
                }
                ["{", ..] => {
                    depth += 1;
                    1
                }
                ["}", ..] => {
                    depth -= 1;
                    1
                }
                _ => {
                    if let Some(name) = declared(rest).filter(|_| depth == 0) {
                        self.0[module].items.insert(name.to_owned());
                    }
                    self.take_path(module, tokens, at)
                }
            };
        }
    }

    /// Takes in a path of several names; how many tokens it, or the token here, has.
    fn take_path(&mut self, module: usize, tokens: &[&str], at: usize) -> usize {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        let path = path(&tokens[at..]);
        if path.len() > 1 && !matches!(before, Some("::" | "$" | ".")) {
            let path = path.iter().map(|&name| name.to_owned()).collect();
            self.0[module].paths.push(path);
        }
        (path.len() * 2).max(2) - 1
    }

    fn arrows(&self) -> Arrows {
        let mut found = Arrows::new();
        for (from, module) in self.0.iter().enumerate() {
            let imported = module.imports.iter().filter(|import| {
                let target = self.find(from, &import.path, 0);
                !import.public || !target.is_some_and(|target| self.is_below(target, from))
            });
            let imported = imported.map(|import| &import.path);
            for path in imported.chain(&module.paths) {
                let all = path.last().is_some_and(|name| name == "*");
                let to = match self.find(from, path, 0) {
                    Some(Found::Item(to)) => to,
                    Some(Found::Module(to)) if all => to,
                    // A module that is imported is named when one of its items is.
                    _ => continue,
                };
                let to = &self.0[to].file;
                if *to != module.file {
                    let arrows = found.entry(module.file.clone()).or_default();
                    arrows
                        .entry(to.clone())
                        .or_default()
                        .insert(path.join("::"));
                }
            }
        }
        found
    }

    fn is_below(&self, found: Found, above: usize) -> bool {
        let (Found::Module(mut module) | Found::Item(mut module)) = found;
        while let Some(parent) = self.0[module].parent {
            if parent == above {
                return true;
            }
            module = parent;
        }
        false
    }

    /// What a path leads to that stands in `module`; nothing for what is not of this crate.
    fn find(&self, module: usize, path: &[String], imports: usize) -> Option<Found> {
        if imports > IMPORTS_MAX {
            return None;
        }
        let mut here = module;
        for (at, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => here = self.root(here),
                "super" => here = self.0[here].parent?,
                "self" | "*" => {}
                name => match self.name(here, name, imports) {
                    Some(Found::Module(to)) => here = to,
                    Some(Found::Item(to)) => return Some(Found::Item(to)),
                    // A macro may have made it.
                    None if at > 0 => return Some(Found::Item(here)),
                    None => return None,
                },
            }
        }
        Some(Found::Module(here))
    }

    fn name(&self, module: usize, name: &str, imports: usize) -> Option<Found> {
        let here = &self.0[module];
        if let Some(child) = here.children.get(name) {
            return Some(Found::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Found::Item(module));
        }
        // `use name::...` says of a crate's name, not of what `name` is here.
        let named = |import: &&Import| import.name == name && import.path.len() > 1;
        if let Some(import) = here.imports.iter().find(named) {
            return self.find(module, &import.path, imports + 1);
        }
        let all = here.imports.iter().filter(|import| import.name == "*");
        let mut all =
            all.filter_map(
                |import| match self.find(module, &import.path, imports + 1)? {
                    Found::Module(from) if from != module => self.name(from, name, imports + 1),
                    _ => None,
                },
            );
        all.next()
    }

    fn root(&self, mut module: usize) -> usize {
        while let Some(parent) = self.0[module].parent {
            module = parent;
        }
        module
    }
}

/// The file of the module `name`, and the folder of those below it.
fn file_of(inner: &Path, name: &str) -> (PathBuf, PathBuf) {
    let below = inner.join(name);
    let beside = inner.join(format!("{name}.rs"));
    let file = if beside.exists() {
        beside
    } else {
        below.join("mod.rs")
    };
    (file, below)
}

/// Whether what comes behind these tokens has a visibility.
fn is_public(before: &[&str]) -> bool {
    match before {
        [.., "pub"] => true,
        [.., ")"] => {
            let open = before.iter().rposition(|token| *token == "(");
            open.is_some_and(|open| open > 0 && before[open - 1] == "pub")
        }
        _ => false,
    }
}

/// The name that an item gets, where one is declared.
fn declared<'a>(tokens: &[&'a str]) -> Option<&'a str> {
    match tokens {
        [
            "struct" | "enum" | "union" | "trait" | "type" | "fn" | "static",
            name,
            ..,
        ] => Some(name),
        ["const", name, ":", ..] => Some(name),
        _ => None,
    }
}

/// The names of a path at the start of the tokens.
fn path<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let is_name = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut names = Vec::new();
    for pair in tokens.chunks(2) {
        if !is_name(pair[0]) {
            break;
        }
        names.push(pair[0]);
        if pair.get(1) != Some(&"::") {
            break;
        }
    }
    names
}

/// The leaves of the tree of a `use`.
fn imports(tree: &[&str], above: &[String], public: bool, found: &mut Vec<Import>) {
    let mut path = above.to_vec();
    for (at, token) in tree.iter().enumerate() {
        match *token {
            "{" => {
                let inner = &tree[at + 1..at + group(&tree[at..]) - 1];
                for leaf in leaves(inner) {
                    imports(leaf, &path, public, found);
                }
                return;
            }
            "as" => break,
            "::" => {}
            name => path.push(name.to_owned()),
        }
    }
    let alias = match tree {
        [.., "as", alias] => Some((*alias).to_owned()),
        _ => path.iter().rfind(|name| *name != "self").cloned(),
    };
    if let Some(name) = alias {
        found.push(Import { path, name, public });
    }
}

/// The parts between the commas of a list.
fn leaves<'a, 'b>(mut list: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let mut found = Vec::new();
    while !list.is_empty() {
        let mut at = 0;
        while at < list.len() && list[at] != "," {
            at += if list[at] == "{" {
                group(&list[at..])
            } else {
                1
            };
        }
        found.push(&list[..at]);
        list = list.get(at + 1..).unwrap_or_default();
    }
    found
}
