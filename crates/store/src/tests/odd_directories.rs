//! One directory of several that cannot be used is a failed volume with its sentence: the node goes
//! on with the others, as far as that is tolerated, and writes nothing there.

use super::*;

/// What is done to a directory, and what the node says of it.
struct Oddity {
    name: &'static str,
    spoil: fn(&Path),
    says: &'static str,
    /// Its VERSION tells before anything is written there, a lock or a mark too.
    untouched: bool,
}

pub(super) fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(path).expect("there");
    std::fs::write(path, change(text)).expect("writes");
}

fn edit_version(root: &Path, change: impl FnOnce(String) -> String) {
    edit(&root.join("current/VERSION"), change);
}

fn pool_dir(root: &Path) -> PathBuf {
    root.join("current").join(pool().as_str())
}

pub(super) fn pool_version(root: &Path) -> PathBuf {
    pool_dir(root).join("current/VERSION")
}

/// The value of a line `key=value` in a VERSION file becomes another.
pub(super) fn with_value(text: &str, key: &str, value: &str) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some((found, _)) if found == key => format!("{key}={value}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

const ODDITIES: &[Oddity] = &[
    Oddity {
        name: "VERSION empty",
        spoil: |root| edit_version(root, |_| String::new()),
        says: "VERSION is empty",
        untouched: true,
    },
    Oddity {
        name: "VERSION cut",
        spoil: |root| edit_version(root, |text| text[..text.len() / 2].to_owned()),
        says: "VERSION cannot be used",
        untouched: true,
    },
    Oddity {
        name: "another node's",
        spoil: |root| edit_version(root, |text| with_value(&text, "datanodeUuid", "another")),
        says: "datanodeUuid another",
        untouched: true,
    },
    Oddity {
        name: "another cluster's",
        spoil: |root| edit_version(root, |text| with_value(&text, "clusterID", "CID-9")),
        says: "clusterID CID-9",
        untouched: true,
    },
    Oddity {
        name: "a later layout",
        spoil: |root| edit_version(root, |text| with_value(&text, "layoutVersion", "-58")),
        says: "layoutVersion is -58",
        untouched: true,
    },
    Oddity {
        name: "stubs",
        spoil: |root| edit_version(root, |text| with_value(&text, "layoutVersion", "-1057")),
        says: "on a device",
        untouched: false,
    },
    Oddity {
        name: "another namespace's pool",
        spoil: |root| {
            edit(&pool_version(root), |text| {
                with_value(&text, "namespaceID", "78")
            })
        },
        says: "namespaceID = 78",
        untouched: false,
    },
    Oddity {
        name: "a pool of a later layout",
        spoil: |root| {
            edit(&pool_version(root), |text| {
                with_value(&text, "layoutVersion", "-58")
            })
        },
        says: "layoutVersion is -58",
        untouched: false,
    },
    Oddity {
        name: "a pool that no upgrade leaves so",
        spoil: |root| {
            for name in ["previous.tmp", "removed.tmp"] {
                std::fs::create_dir(pool_dir(root).join(name)).expect("makes");
            }
        },
        says: "no upgrade or rollback leaves",
        untouched: false,
    },
    Oddity {
        name: "a file for a pool",
        spoil: |root| {
            std::fs::remove_dir_all(pool_dir(root)).expect("removes");
            std::fs::write(pool_dir(root), "").expect("writes");
        },
        says: "BP-1",
        untouched: false,
    },
    Oddity {
        name: "a file",
        spoil: |root| {
            std::fs::remove_dir_all(root).expect("removes");
            std::fs::write(root, "").expect("writes");
        },
        says: "data0",
        untouched: false,
    },
];

/// All files of a directory, with what they hold.
pub(super) fn contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.expect("reads").path();
            if path.is_dir() {
                found.push((path.clone(), Vec::new()));
                dirs.push(path);
            } else {
                found.push((path.clone(), std::fs::read(&path).expect("reads")));
            }
        }
    }
    found.sort();
    found
}

/// What a start came to: the error's text, or the store.
pub(super) async fn try_start(
    config: StoreConfig,
) -> Result<(Store, mpsc::Receiver<StoreEvent>), String> {
    let (sender, events) = mpsc::channel(100);
    let store = Store::open(config, sender).await;
    let store = store.map_err(|e| e.to_string())?;
    match store.add_pool(spec(), StartOption::Regular).await {
        Ok(()) => Ok((store, events)),
        Err(error) => {
            store.shutdown().await;
            Err(error.to_string())
        }
    }
}

/// Three directories with two replicas each, stopped.
pub(super) async fn three() -> TempDir {
    let node = Node::with_volumes(3).await;
    for id in 0..6 {
        node.put(id, 1001, 3000).await;
    }
    node.store.shutdown().await;
    node.dir
}

pub(super) fn tolerating(dir: &Path, tolerated: i32) -> StoreConfig {
    StoreConfig {
        failed_volumes_tolerated: tolerated,
        ..config(dir, 3)
    }
}

/// The first of the directories is odd: whose the node is must not hang on the order.
#[tokio::test]
async fn an_odd_directory_is_a_failed_volume_where_that_is_tolerated() {
    for odd in ODDITIES {
        let dir = three().await;
        let uuid = with_uuid(&dir.path().join("data1"));
        let root = dir.path().join("data0");
        (odd.spoil)(&root);
        let before = contents(&root);
        let started = try_start(tolerating(dir.path(), 1)).await;
        let (store, _events) = started.unwrap_or_else(|e| panic!("{}: {e}", odd.name));
        assert_eq!(store.replica_count(), 4, "{}", odd.name);
        assert_eq!(store.datanode_uuid(), uuid, "{}", odd.name);
        let failed = store.failure_summary();
        assert_eq!(
            failed.failed_locations,
            std::slice::from_ref(&root),
            "{}",
            odd.name
        );
        assert!(
            failed.reasons[0].contains(odd.says),
            "{}: {failed:?}",
            odd.name
        );
        store.shutdown().await;
        unchanged(&before, &contents(&root), odd);
    }
}

/// By default none is tolerated: the node does not start, and its sentence names the directory.
#[tokio::test]
async fn an_odd_directory_ends_the_start_where_none_is_tolerated() {
    for odd in ODDITIES {
        let dir = three().await;
        let root = dir.path().join("data0");
        (odd.spoil)(&root);
        let before = contents(&root);
        let said = try_start(tolerating(dir.path(), 0)).await;
        let said = said.expect_err(odd.name);
        assert!(
            said.contains("data0") && said.contains(odd.says),
            "{}: {said}",
            odd.name
        );
        unchanged(&before, &contents(&root), odd);
    }
}

/// A look says so before: the directories are another node's then, which holds them.
#[tokio::test]
async fn a_look_tells_what_a_start_would_refuse() {
    for odd in ODDITIES {
        let dir = three().await;
        let volumes = [0, 1, 2].map(|n| dir.path().join(format!("data{n}")));
        assert_eq!(crate::check_start(&volumes, 0), Ok(()));
        (odd.spoil)(&volumes[0]);
        let before = contents(dir.path());
        let told = crate::check_start(&volumes, 0);
        // The engine and the NameNode tell these.
        if ["stubs", "another namespace's pool"].contains(&odd.name) {
            assert_eq!(told, Ok(()), "{}", odd.name);
            continue;
        }
        let said = told.expect_err(odd.name);
        let names = said.contains("data0") || said.contains("BP-1");
        assert!(names && !said.contains("data1"), "{}: {said}", odd.name);
        assert_eq!(crate::check_start(&volumes, 1), Ok(()), "{}", odd.name);
        assert!(contents(dir.path()) == before, "something was written");
    }
    // What would be taken for a new directory is one in the midst of an upgrade.
    let dir = three().await;
    let volumes = [0, 1, 2].map(|n| dir.path().join(format!("data{n}")));
    let current = volumes[1].join("current");
    std::fs::rename(&current, volumes[1].join("previous.tmp")).expect("moves");
    let said = crate::check_start(&volumes, 0).expect_err("its blocks are aside");
    assert!(said.contains("has not ended: start Apache's"), "{said}");
    // A start ends one of a pool.
    std::fs::rename(volumes[1].join("previous.tmp"), &current).expect("moves");
    let pool = pool_dir(&volumes[1]);
    std::fs::rename(pool.join("current"), pool.join("previous.tmp")).expect("moves");
    assert_eq!(crate::check_start(&volumes, 0), Ok(()));
    let new = [dir.path().join("data7")];
    assert_eq!(crate::check_start(&new, 0), Ok(()), "made at a start");
}

pub(super) fn with_uuid(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("current/VERSION")).expect("there");
    let line = text.lines().find_map(|l| l.strip_prefix("datanodeUuid="));
    line.expect("has one").to_owned()
}

/// The node has written nothing there but, where only the pool tells, what marks its use.
fn unchanged(before: &[(PathBuf, Vec<u8>)], after: &[(PathBuf, Vec<u8>)], odd: &Oddity) {
    let of_ours = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str).expect("named");
        name == "in_use.lock" || name.starts_with(".hayloft-")
    };
    let theirs = |all: &[(PathBuf, Vec<u8>)]| -> Vec<(PathBuf, Vec<u8>)> {
        let all = all
            .iter()
            .filter(|(path, _)| odd.untouched || !of_ours(path));
        all.cloned().collect()
    };
    let names = |all: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
        all.iter().map(|(path, _)| path.clone()).collect()
    };
    let (before, after) = (theirs(before), theirs(after));
    assert_eq!(names(&before), names(&after), "{}", odd.name);
    for ((path, was), (_, is)) in before.iter().zip(&after) {
        assert!(was == is, "{}: {} was changed", odd.name, path.display());
    }
}

/// Each virtual node has a part of each directory: what is odd about one's is not the others'.
#[tokio::test]
async fn of_virtual_nodes_only_the_one_with_the_odd_directory_lacks_it() {
    for odd in ODDITIES {
        let dir = tempfile::tempdir().expect("temporary directory");
        let shared = || StoreShared::new(8 << 20);
        let of_node = |name: &str| StoreConfig {
            volumes: (0..3)
                .map(|n| VolumeConfig::new(dir.path().join(format!("data{n}")).join(name)))
                .collect(),
            preallocate: false,
            ..tolerating(dir.path(), 1)
        };
        let open_both = async |shared: StoreShared| {
            let mut stores = Vec::new();
            for name in ["a", "b"] {
                let (sender, _events) = mpsc::channel(100);
                let opened = Store::open_sharing(of_node(name), sender, shared.clone(), None).await;
                let store = opened.unwrap_or_else(|e| panic!("{}: {e}", odd.name));
                let added = store.add_pool(spec(), StartOption::Regular).await;
                added.unwrap_or_else(|e| panic!("{}: {e}", odd.name));
                stores.push(store);
            }
            stores
        };
        for store in open_both(shared()).await {
            store.shutdown().await;
        }
        let root = dir.path().join("data0/b");
        (odd.spoil)(&root);
        let stores = open_both(shared()).await;
        let failed = |n: usize| stores[n].failure_summary().failed_locations;
        assert_eq!((failed(0), failed(1)), (vec![], vec![root]), "{}", odd.name);
        for store in stores {
            store.shutdown().await;
        }
    }
}

#[tokio::test]
async fn an_odd_directory_is_not_put_in_while_the_node_runs() {
    for odd in ODDITIES.iter().filter(|odd| odd.untouched) {
        let dir = three().await;
        let root = dir.path().join("data2");
        (odd.spoil)(&root);
        let before = contents(&root);
        let (sender, _events) = mpsc::channel(100);
        let store = Store::open(config(dir.path(), 2), sender)
            .await
            .expect("opens");
        store
            .add_pool(spec(), StartOption::Regular)
            .await
            .expect("loads");
        let results = store
            .reconfigure_volumes(config(dir.path(), 3).volumes)
            .await;
        let [(path, Err(error))] = &results[..] else {
            panic!("{}: {results:?}", odd.name);
        };
        assert!(
            *path == root && error.to_string().contains(odd.says),
            "{error}"
        );
        store.shutdown().await;
        unchanged(&before, &contents(&root), odd);
    }
}

/// A disk of a host with virtual nodes in a host without, and the reverse.
#[tokio::test]
async fn a_disk_of_a_host_of_another_kind_is_a_failed_volume() {
    let (dir, other) = (three().await, three().await);
    let root = dir.path().join("data0");
    std::fs::remove_dir_all(&root).expect("removes");
    std::fs::create_dir(&root).expect("makes");
    std::fs::rename(other.path().join("data0"), root.join("a")).expect("moves");
    let before = contents(&root);
    let started = try_start(tolerating(dir.path(), 1)).await;
    let (store, _events) = started.expect("one failure is tolerated");
    let failed = store.failure_summary();
    assert!(failed.reasons[0].contains("virtual nodes a"), "{failed:?}");
    store.shutdown().await;
    assert!(contents(&root) == before, "something was written");

    let mut virtual_one = tolerating(dir.path(), 1);
    virtual_one.volumes[0].path = dir.path().join("data1/a");
    virtual_one.volumes.truncate(1);
    let (sender, _events) = mpsc::channel(100);
    let refused = Store::open_sharing(virtual_one, sender, StoreShared::new(8 << 20), None).await;
    let said = refused.expect_err("is none of its").to_string();
    assert!(said.contains("not virtual"), "{said}");
    assert!(!dir.path().join("data1/a").exists());
}
