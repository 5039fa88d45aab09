//! Whether the data directories are those of one node or of virtual nodes, as configured.
//!
//! A node that started in the wrong place would find no replica and report none: the NameNode
//! would miss them all. A single odd one among directories that are as configured is a disk of
//! another host: the store makes it a failed volume. Blocking, a few small reads of each directory.

use std::path::PathBuf;

use hayloft_conf::{Configuration, keys};
use hayloft_store::{is_volume, nodes_below};

/// Compares directories and configuration; gives remarks for the log.
///
/// # Errors
/// Why the node must not start, and what to do: replicas lie where it would not look.
pub(super) fn check(config: &Configuration) -> Result<Vec<String>, String> {
    let names = config.get(&keys::NODES);
    let key = keys::NODES.name();
    let configured = config.get(&keys::DATA_DIRS);
    let roots: Vec<PathBuf> = configured.iter().map(|dir| dir.path.clone()).collect();
    let listed = |found: &String| names.iter().any(|name| name.as_str() == found);
    let looks = roots
        .iter()
        .map(|root| (root, is_volume(root), nodes_below(root, &roots)));
    let looks: Vec<_> = looks.collect();
    let as_configured = looks
        .iter()
        .any(|(_, of_one, below)| match names.is_empty() {
            true => *of_one,
            false => !of_one && below.iter().any(listed),
        });
    let mut remarks = Vec::new();
    for (root, of_one, below) in looks {
        let shown = root.display();
        match (names.first(), of_one) {
            (Some(_), true) | (None, false) if as_configured => {}
            (Some(first), true) => {
                return Err(format!(
                    "{shown} holds the replicas of a node without {key}, and {key} ({}) asks for \
                     virtual nodes: unset it, or move 'current' of each data directory into its \
                     directory of one node, such as {shown}/{first}",
                    config.origin(key)
                ));
            }
            (None, false) if !below.is_empty() => {
                return Err(format!(
                    "{shown} holds the replicas of the virtual nodes {0}, and {key} is not set: \
                     set it to {0}",
                    below.join(",")
                ));
            }
            (None, true) if !below.is_empty() => remarks.push(format!(
                "{shown} also holds the replicas of the virtual nodes {}, which are not served \
                 without {key}",
                below.join(", ")
            )),
            _ => {}
        }
        let left_out = below.into_iter().filter(|found| !listed(found));
        remarks.extend(left_out.filter(|_| !names.is_empty()).map(|found| {
            format!(
                "{shown}/{found} holds the replicas of a virtual node that {key} ({}) does not \
                 list: they are not served",
                config.origin(key)
            )
        }));
    }
    Ok(remarks)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The directory of the test, and a configuration with two data directories in it.
    fn configured(dir: &Path, nodes: &str) -> Configuration {
        let dirs = format!("{0}/1,{0}/2", dir.display());
        let properties = [
            ("dfs.datanode.data.dir", dirs.as_str()),
            ("hayloft.nodes", nodes),
        ];
        Configuration::from_properties(properties).expect("valid")
    }

    fn make_volume(path: &Path, kind: &str) {
        let current = path.join("current");
        std::fs::create_dir_all(&current).expect("created");
        let version = format!(
            "#x\nstorageID=DS-1\nclusterID=CID-1\ncTime=0\ndatanodeUuid=u\nstorageType={kind}\n\
             layoutVersion=-57\n"
        );
        std::fs::write(current.join("VERSION"), version).expect("written");
    }

    #[test]
    fn new_directories_and_those_of_the_listed_nodes_are_fine() {
        let dir = tempfile::tempdir().expect("a directory");
        let found = |nodes: &str| check(&configured(dir.path(), nodes));
        assert_eq!((found(""), found("a,b")), (Ok(vec![]), Ok(vec![])));
        make_volume(&dir.path().join("1/a"), "DATA_NODE");
        // A NameNode's directory below is none of a node.
        make_volume(&dir.path().join("2/name"), "NAME_NODE");
        assert_eq!(found("a,b"), Ok(vec![]));
        let left_out = found("b").expect("may start");
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(left_out[0].contains("1/a holds the replicas"));
    }

    #[test]
    fn replicas_of_another_number_of_nodes_are_not_overlooked() {
        let dir = tempfile::tempdir().expect("a directory");
        let found = |nodes: &str| check(&configured(dir.path(), nodes));
        make_volume(&dir.path().join("2/a"), "DATA_NODE");
        make_volume(&dir.path().join("2/b"), "DATA_NODE");
        let said = found("").expect_err("refused");
        assert!(
            said.contains("/2 holds") && said.ends_with("set it to a,b"),
            "{said}"
        );
        make_volume(&dir.path().join("2"), "DATA_NODE");
        let said = found("").expect("the node has its own");
        assert!(said[0].contains("a, b, which are not served"), "{said:?}");
        let said = found("a,b").expect_err("refused");
        assert!(
            said.contains("without hayloft.nodes") && said.contains("/2/a"),
            "{said}"
        );
    }

    #[test]
    fn a_directory_of_another_layout_among_others_is_left_to_the_store() {
        let dir = tempfile::tempdir().expect("a directory");
        let found = |nodes: &str| check(&configured(dir.path(), nodes));
        make_volume(&dir.path().join("1"), "DATA_NODE");
        make_volume(&dir.path().join("2/a"), "DATA_NODE");
        assert_eq!((found(""), found("a")), (Ok(vec![]), Ok(vec![])));
        found("b").expect_err("none is as configured");
    }

    #[test]
    fn a_directory_that_is_configured_by_itself_is_no_virtual_node() {
        let dir = tempfile::tempdir().expect("a directory");
        make_volume(&dir.path().join("1/x"), "DATA_NODE");
        let dirs = format!("{0}/1,{0}/1/x", dir.path().display());
        let config = Configuration::from_properties([("dfs.datanode.data.dir", dirs)]);
        assert_eq!(check(&config.expect("valid")), Ok(vec![]));
    }
}
