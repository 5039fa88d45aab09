//! The table of keys.

use std::path::Path;

use crate::*;

#[test]
fn the_table_is_sound() {
    let names: Vec<&str> = keys::all().map(|key| key.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "a key is declared twice");
    for key in keys::all() {
        assert!(
            key.doc.ends_with('.'),
            "{} has no sentence for a doc",
            key.name
        );
        if !key.default.contains("${") {
            assert!(
                key.empty_is_value || key.parse(key.default).is_ok(),
                "{}: bad default",
                key.name
            );
        }
    }
    assert_eq!(
        keys::reconfigurable().count(),
        25,
        "Apache's DataNode lists 25 reconfigurable keys"
    );
    for entry in super::unsupported::all() {
        assert!(
            !entry.ignored.is_empty() && !entry.ignored.ends_with('.'),
            "{}",
            entry.name
        );
    }
}

/// Sources below a folder.
fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("readable"));
        }
    }
}

/// `NAME: Type = ("key"` of every declaration in the table's sources.
fn declared(text: &str) -> Vec<(String, String)> {
    let text = text.replace("(\n        \"", "(\"");
    let starts = text.split("\n    ").filter(|part| part.contains(" = ("));
    let pairs = starts.filter_map(|part| {
        let (ident, rest) = part.split_once(": ")?;
        let key = rest.split('"').nth(1)?;
        let is_ident = ident.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        is_ident.then(|| (ident.to_owned(), key.to_owned()))
    });
    pairs.collect()
}

#[test]
fn every_key_has_an_effect_or_says_that_it_has_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut table, mut used) = (String::new(), String::new());
    sources(&root.join("src/keys"), &mut table);
    sources(&root.join("../node/src"), &mut used);
    sources(&root.join("../client/src"), &mut used);
    for file in [
        "domain_socket.rs",
        "kerberos.rs",
        "namenodes.rs",
        "review.rs",
        "secrets.rs",
        "transfer_protection.rs",
        "virtual_nodes.rs",
        "volume_settings.rs",
        "web_address.rs",
    ] {
        used.push_str(&std::fs::read_to_string(root.join("src").join(file)).expect("readable"));
    }
    let declared = declared(&table);
    assert_eq!(
        declared.len(),
        keys::all().count(),
        "this test misreads the table"
    );
    let without: Vec<&str> = unsupported::all().map(|entry| entry.name).collect();
    // Read by `${...}` of other keys only.
    let by_reference = ["hadoop.tmp.dir"];
    for (ident, key) in declared {
        let is_used = used
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == ident);
        let is_excused = without.contains(&key.as_str()) || by_reference.contains(&key.as_str());
        assert!(
            is_used || is_excused,
            "{key} is in the table and nothing reads {ident}: use it, or list it as unsupported"
        );
        assert!(
            !(is_used && is_excused),
            "{key} is used and listed as unsupported"
        );
    }
}

proptest::proptest! {
    /// Whatever an operator types is a value or an error, never a panic, and never grows without
    /// end.
    #[test]
    fn any_text_is_a_value_or_an_error(text in "\\PC{0,40}|[-0-9a-z${}:.,/\\[\\] ]{0,40}") {
        for key in keys::all() {
            let _ = key.parse(&text);
        }
        let properties = [("x", text.as_str()), ("y", "${x}${x}")];
        if let Ok(config) = Configuration::from_properties(properties) {
            let _ = config.text("y");
        }
    }
}
