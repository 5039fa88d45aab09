//! Directories of several hosts in one configuration, and VERSION files of pools that are cut.

use super::odd_directories::{
    contents, edit, pool_version, three, tolerating, try_start, with_uuid, with_value,
};
use super::*;

/// An empty or cut VERSION of a pool is that of the other volumes again.
#[tokio::test]
async fn the_version_of_a_pool_is_made_again_from_volumes_that_agree() {
    for keep in [0, 1, 30, 60, 90, 120] {
        for damaged in [vec![0], vec![1, 2]] {
            let dir = three().await;
            let at = |n: usize| pool_version(&dir.path().join(format!("data{n}")));
            let whole = std::fs::read_to_string(at(0)).expect("there");
            for n in &damaged {
                edit(&at(*n), |text| text[..keep.min(text.len() - 2)].to_owned());
            }
            let started = try_start(tolerating(dir.path(), 0)).await;
            let (store, _events) = started.unwrap_or_else(|e| panic!("{keep}: {e}"));
            assert_eq!(store.replica_count(), 6);
            assert!(store.failure_summary().failed_locations.is_empty());
            let lines =
                |text: &str| -> Vec<String> { text.lines().skip(1).map(str::to_owned).collect() };
            for n in damaged {
                let again = std::fs::read_to_string(at(n)).expect("there");
                assert_eq!(lines(&again), lines(&whole));
            }
            store.shutdown().await;
        }
    }
}

/// Where no other volume tells what it was, or they do not agree, nothing is made up.
#[tokio::test]
async fn the_version_of_a_pool_is_not_made_up() {
    let dir = three().await;
    for n in 0..3 {
        edit(&pool_version(&dir.path().join(format!("data{n}"))), |_| {
            String::new()
        });
    }
    let said = try_start(tolerating(dir.path(), 2))
        .await
        .expect_err("nothing tells");
    assert!(said.contains("data0") && said.contains("VERSION"), "{said}");

    let dir = three().await;
    let at = |n: usize| pool_version(&dir.path().join(format!("data{n}")));
    edit(&at(0), |_| String::new());
    // One of them has seen an upgrade of the NameNode that the other has not.
    let other = spec();
    edit(&at(1), |text| with_value(&text, "cTime", "5"));
    let newer = PoolSpec { ctime: 5, ..other };
    let (sender, _events) = mpsc::channel(100);
    let store = Store::open(tolerating(dir.path(), 1), sender)
        .await
        .expect("opens");
    store
        .add_pool(newer, StartOption::Regular)
        .await
        .expect("two are left");
    let failed = store.failure_summary().failed_locations;
    assert_eq!(failed, [dir.path().join("data0")]);
    store.shutdown().await;
}

/// Another host's two disks in two of three places: what the own directories remember decides.
#[tokio::test]
async fn disks_of_another_host_do_not_make_the_node_that_hosts() {
    let (ours, theirs) = (three().await, three().await);
    let uuid = with_uuid(&ours.path().join("data2"));
    for n in 0..2 {
        let (from, to) = (
            theirs.path().join(format!("data{n}")),
            ours.path().join(format!("data{n}")),
        );
        std::fs::remove_dir_all(&to).expect("removes");
        std::fs::rename(from, &to).expect("moves");
        // The other host's directories have the same names.
        let paths = [theirs.path(), ours.path()].map(|path| path.display().to_string());
        edit(&to.join(".hayloft-storages"), |text| {
            let text = text.replace(&paths[0], &paths[1]);
            let host = text
                .lines()
                .find(|line| line.contains("\"host\""))
                .expect("named")
                .to_owned();
            text.replace(&host, "  \"host\": \"elsewhere\",")
        });
    }
    let started = try_start(tolerating(ours.path(), 2)).await;
    let (store, _events) = started.expect("two failures are tolerated");
    assert_eq!((store.datanode_uuid(), store.replica_count()), (uuid, 2));
    let failed = store.failure_summary();
    assert_eq!(failed.failed_locations.len(), 2);
    assert!(failed.reasons[0].contains("datanodeUuid"), "{failed:?}");
    store.shutdown().await;
}

/// Apache's node takes the first. Where as many directories are of either and none remembers its
/// place, nothing tells: the node does not start under a name that may be another's.
#[tokio::test]
async fn a_node_whose_directories_are_of_two_hosts_and_remember_nothing_asks() {
    let (ours, theirs) = (three().await, three().await);
    std::fs::remove_dir_all(ours.path().join("data2")).expect("removes");
    std::fs::remove_dir_all(ours.path().join("data0")).expect("removes");
    std::fs::rename(theirs.path().join("data0"), ours.path().join("data0")).expect("moves");
    for n in 0..2 {
        let path = ours.path().join(format!("data{n}/.hayloft-storages"));
        std::fs::remove_file(path).expect("removes");
    }
    let before = contents(ours.path());
    let two = StoreConfig {
        failed_volumes_tolerated: 1,
        ..config(ours.path(), 2)
    };
    let said = try_start(two).await.expect_err("either is right");
    for part in ["nothing tells", "data0", "data1"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(contents(ours.path()) == before, "something was written");
}
