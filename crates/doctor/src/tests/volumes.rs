//! Directories and their file systems.

use serde_json::json;

use super::{facts, one, said, sata, volume};
use crate::facts::disk::DiskFacts;
use crate::facts::volume::{FolderFacts, SpaceFacts, VolumeFacts};
use crate::finding::Severity::{Bad, Note, Slow};

fn with_version(dir: &str, version: Option<&str>) -> VolumeFacts {
    let mut of = volume(dir, sata("sda"));
    if let Ok(Some(folder)) = &mut of.folder {
        folder.version = version.map(str::to_owned);
    }
    of
}

fn version(storage: &str, cluster: &str) -> String {
    format!(
        "#Sat Nov 21 08:49:27 UTC 2026\nstorageID=DS-{storage}\nclusterID=CID-{cluster}\ncTime=0\n\
         datanodeUuid=4f5c\nstorageType=DATA_NODE\nlayoutVersion=-57"
    )
}

#[test]
fn file_systems_that_do_not_fit() {
    for (kind, severity) in [
        ("tmpfs", Bad),
        ("nfs4", Bad),
        ("overlay", Bad),
        ("fuseblk", Slow),
    ] {
        let mut of = volume("/data/1", sata("sda"));
        of.mount.as_mut().expect("mounted").fs_type = kind.into();
        let mut facts = facts(vec![of]);
        assert_eq!(one("file-system", &facts).0, severity, "{kind}");
        facts.subject.volumes[0].of_memory = true;
        assert_eq!(
            said("file-system", &facts).len(),
            usize::from(kind != "tmpfs")
        );
    }
}

#[test]
fn mount_options() {
    let with = |options: &str| {
        let mut of = volume("/data/1", sata("sda"));
        let words = options.split(',').map(str::to_owned).collect();
        of.mount.as_mut().expect("mounted").options = words;
        facts(vec![of])
    };
    let severities = |options| -> Vec<_> {
        said("mount-options", &with(options))
            .into_iter()
            .map(|of| of.0)
            .collect()
    };
    assert_eq!(severities("rw,relatime,rw"), []);
    assert_eq!(severities("rw,rw"), [Slow], "strictatime has no word");
    // As Linux 6.18 shows what was mounted with barrier=0,data=journal,strictatime,sync,discard.
    let odd = "rw,rw,sync,nodioread_nolock,discard,nodelalloc,nobarrier,data=journal";
    assert_eq!(severities(odd), [Bad, Slow, Slow, Slow, Note, Slow]);
    assert_eq!(severities("rw,noatime,rw,commit=600"), [Note]);
    // A device without a cache that forgets needs no barriers.
    let mut safe = with("rw,noatime,rw,nobarrier");
    let disk = super::but(sata("sda"), "queue/write_cache", "write through");
    safe.volumes[0].facts.as_mut().expect("seen").disks = Ok(vec![disk]);
    assert_eq!(one("mount-options", &safe).0, Note);
}

#[test]
fn two_directories_on_one_device() {
    let two = facts(vec![
        volume("/data/1", sata("sda")),
        volume("/data/2", sata("sda")),
    ]);
    let found = one("shared-device", &two);
    assert_eq!((found.0, found.1.as_str()), (Slow, "/dev/sda"));
    assert!(found.2.contains("/data/1 and /data/2"));
    // A mapped device stands for those below it.
    let mapped = |name: &str, on: &str| {
        let mut of = volume(name, sata(on));
        let top = DiskFacts {
            name: format!("dm-{name}"),
            ..DiskFacts::default()
        };
        of.disks.as_mut().expect("disks").insert(0, top);
        of
    };
    assert_eq!(
        said(
            "shared-device",
            &facts(vec![mapped("/a", "sda"), mapped("/b", "sdb")])
        ),
        []
    );
    assert_eq!(
        said(
            "shared-device",
            &facts(vec![mapped("/a", "sda"), mapped("/b", "sda")])
        )
        .len(),
        1
    );
}

#[test]
fn tiers_share_a_mount_on_purpose() {
    let mut two = facts(vec![
        volume("/data/1", sata("sda")),
        volume("/data/2", sata("sda")),
    ]);
    two.subject.tiering = true;
    two.subject.volumes[1].archive = true;
    assert_eq!(said("shared-device", &two), []);
}

#[test]
fn a_disk_that_is_not_mounted() {
    let memory = r#"{"at_ms": 5, "host": "h", "datanode_uuid": "4f5c", "storages": [
        {"directory": "/data/1", "storage_id": "DS-1", "mount": "/data/1"},
        {"directory": "/data/2", "storage_id": "DS-2", "mount": "/data/2"}]}"#;
    let mut first = with_version("/data/1", Some(&version("1", "a")));
    if let Ok(Some(folder)) = &mut first.folder {
        folder.memory = Some(memory.into());
    }
    let mut second = with_version("/data/2", None);
    second.mount.as_mut().expect("mounted").point = "/".into();
    let found = one("empty-mount-point", &facts(vec![first, second.clone()]));
    assert_eq!((found.0, found.1.as_str()), (Bad, "/data/2"));
    // Its own storage is there: it was copied to a disk of its own, or its mount has moved.
    let mut moved = second.clone();
    if let Ok(Some(folder)) = &mut moved.folder {
        let own = version("3", "a").replace("storageID=DS-3", "storageID=DS-2");
        assert!(own.contains("DS-2"), "{own}");
        (folder.version, folder.memory) = (Some(own), Some(memory.into()));
    }
    assert_eq!(said("empty-mount-point", &facts(vec![moved])), []);
    // Without a memory the table of the system tells.
    let mut alone = facts(vec![second]);
    let fstab = "# disks\nUUID=1 / ext4 defaults 0 1\nUUID=2 /data/2 xfs noatime 0 2\n";
    alone.host.texts.add("/etc/fstab", Ok(fstab.into()));
    let mounted = "24 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw";
    alone
        .host
        .texts
        .add("/proc/self/mountinfo", Ok(mounted.into()));
    assert!(one("empty-mount-point", &alone).2.contains("fstab"));
    // A node has begun to fill the disk above.
    if let Ok(Some(folder)) = &mut alone.volumes[0].facts.as_mut().expect("seen").folder {
        folder.version = Some(version("3", "a"));
    }
    let found = one("empty-mount-point", &alone);
    assert!(
        found.0 == Bad && found.2.contains("other blocks below"),
        "{found:?}"
    );
}

#[test]
fn blocks_of_another_name_node() {
    let with = |told: serde_json::Value, pools: &[&str]| {
        let mut of = with_version("/data/1", Some(&version("1", "a")));
        if let Ok(Some(folder)) = &mut of.folder {
            folder.pools = pools.iter().map(ToString::to_string).collect();
        }
        let network = super::network::with(|network| network.namenodes[0].info = Ok(told)).network;
        crate::facts::Facts {
            network,
            ..facts(vec![of])
        }
    };
    let told = |cluster: &str, pool: &str| json!({"ClusterId": cluster, "BlockPoolId": pool});
    let ours = told("CID-a", "BP-1");
    assert_eq!(said("identity", &with(ours.clone(), &["BP-1", "BP-2"])), []);
    assert_eq!(
        said("identity", &with(ours.clone(), &[])),
        [],
        "not used yet"
    );
    let found = one("identity", &with(told("CID-b", "BP-1"), &["BP-1"]));
    assert!(
        found.0 == Bad && found.2.contains("that of nn:8020 is CID-b"),
        "{found:?}"
    );
    let mut anew = with(ours, &["BP-2"]);
    let found = one("identity", &anew);
    assert!(
        found.0 == Bad && found.2.contains("block pool is BP-2"),
        "{found:?}"
    );
    // One that does not answer may have that pool.
    let namenodes = &mut anew.network.as_mut().expect("a network").namenodes;
    namenodes.push(crate::facts::network::NameNodeFacts {
        info: Err("no answer".into()),
        ..namenodes[0].clone()
    });
    assert_eq!(said("identity", &anew), []);
}

#[test]
fn directories_of_others() {
    let of = |two: String| {
        let first = with_version("/data/1", Some(&version("1", "a")));
        facts(vec![first, with_version("/data/2", Some(&two))])
    };
    assert_eq!(said("identity", &of(version("2", "a"))), []);
    assert!(
        one("identity", &of(version("1", "a")))
            .2
            .contains("storageID")
    );
    assert!(
        one("identity", &of(version("2", "b")))
            .2
            .contains("clusterID")
    );
}

#[test]
fn room() {
    let with = |available, files_available| {
        let mut of = volume("/data/1", sata("sda"));
        of.space = Ok(SpaceFacts {
            capacity: 4 << 40,
            available,
            files: 1 << 20,
            files_available,
        });
        facts(vec![of])
    };
    assert_eq!(said("space", &with(1 << 40, 1 << 19)), []);
    assert_eq!(one("space", &with(300 << 30, 1 << 19)).0, Slow);
    assert_eq!(one("space", &with(40 << 30, 1 << 19)).0, Bad);
    let found = one("space", &with(1 << 40, 1000));
    assert!(found.0 == Bad && found.2.contains("inodes"), "{found:?}");
    assert_eq!(
        one("space", &with(1 << 40, 90_000)).0,
        Slow,
        "more than 90 % are used"
    );
    for check in ["space", "file-system"] {
        let mut few = with(1 << 40, 1000);
        few.volumes[0]
            .facts
            .as_mut()
            .expect("seen")
            .mount
            .as_mut()
            .expect("mounted")
            .fs_type = "ext3".into();
        let made = crate::judge(&few, &[crate::named(check).expect("a check")]);
        let mend = &made.found[0].mend;
        assert!(
            mend.contains("removes") && mend.contains("diskbalancer"),
            "{mend}"
        );
    }
    let mut reserved = with(1 << 40, 1 << 19);
    reserved.subject.volumes[0].reserved_bytes = 1 << 40;
    let found = one("space", &reserved);
    assert!(
        found.0 == Bad && found.2.contains("less than 2 %"),
        "{found:?}"
    );
    assert!(
        found.2.contains("dfs.datanode.du.reserved of 1 TiB"),
        "{found:?}"
    );
}

#[test]
fn where_a_directory_is() {
    let mut of = volume("/data/1", sata("sda"));
    of.folder = Ok(Some(FolderFacts {
        real: "/tmp/hadoop-hdfs/dfs/data".into(),
        ..FolderFacts::default()
    }));
    assert_eq!(one("directory", &facts(vec![of.clone()])).0, Bad);
    of.folder = Ok(None);
    assert_eq!(one("directory", &facts(vec![of.clone()])).0, Note);
    of.folder = Err("/data/1/current: Permission denied (os error 13)".into());
    assert_eq!(one("directory", &facts(vec![of.clone()])).0, Bad);
    let mut hung = facts(vec![of]);
    hung.volumes[0].facts = Err("its disk gave no answer for 10 s".into());
    assert_eq!(one("directory", &hung).0, Bad);
}

#[test]
fn errors_of_file_systems() {
    let mut of = volume("/data/1", sata("sda"));
    of.errors.add("errors_count", Ok("3".into()));
    of.errors.add("last_error_func", Ok("ext4_lookup".into()));
    let found = one("file-system-errors", &facts(vec![of]));
    assert!(found.0 == Bad && found.2.contains("3 errors, the last in ext4_lookup"));
}
