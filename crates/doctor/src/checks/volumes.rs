//! The data directories: whether they are there, whose they are, what they share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hayloft_console::size;
use serde::Deserialize;

use crate::facts::Facts;
use crate::facts::volume::{FolderFacts, VolumeFacts};
use crate::finding::Verdicts;

/// Below so many hundredths of room a directory is nearly full, or as good as full.
const ROOM_PERCENT: (u64, u64) = (10, 2);

pub fn directory(facts: &Facts, out: &mut Verdicts) {
    for volume in &facts.volumes {
        let place = volume.dir.display().to_string();
        let Ok(of) = &volume.facts else {
            let why = volume.facts.as_ref().err().map_or("", String::as_str);
            let effect = "a node that starts waits for this disk; one that runs gives it up";
            out.bad(
                &place,
                [
                    why,
                    effect,
                    "look for the disk in dmesg; unmount or replace it",
                ],
            );
            continue;
        };
        let Some(folder) = out.look(&place, &of.folder) else {
            continue;
        };
        let temporary = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
        let real = folder.as_ref().map_or(&of.dir, |folder| &folder.real);
        if let Some(below) = temporary.iter().find(|below| real.starts_with(below)) {
            let seen = format!("the directory is below {below}");
            let effect = "systems remove what lies there at a start or after some days, blocks too";
            let mend = "set dfs.datanode.data.dir to directories on disks of their own";
            out.bad(&place, [&seen, effect, mend]);
        }
        if folder.is_none() {
            let effect = "a node makes it at its start, on the disk that is there";
            let mend = format!("mount its disk, then: install -d -m 700 -o hdfs {place}");
            out.note(&place, ["there is no such directory", effect, &mend]);
        }
    }
}

/// A node's memory of its storages, as far as it matters here.
#[derive(Deserialize)]
struct Memory {
    at_ms: u64,
    storages: Vec<Storage>,
}

#[derive(Deserialize)]
struct Storage {
    directory: String,
    mount: PathBuf,
}

pub fn empty_mount_point(facts: &Facts, out: &mut Verdicts) {
    let memories = facts.seen().filter_map(|of| folder(of)?.memory.as_deref());
    let memories = memories.filter_map(|text| serde_json::from_str::<Memory>(text).ok());
    let newest = memories.max_by_key(|memory| memory.at_ms);
    let fstab = facts.host.texts.get("/etc/fstab").unwrap_or_default();
    let mounted = mount_points(
        facts
            .host
            .texts
            .get("/proc/self/mountinfo")
            .unwrap_or_default(),
    );
    for of in facts.seen() {
        let (place, Ok(mount)) = (of.place(), &of.mount) else {
            out.unseen(&of.place(), "its mount is not known");
            continue;
        };
        if folder(of).is_some_and(|folder| folder.version.is_some()) {
            continue;
        }
        let remembered = newest.iter().flat_map(|memory| &memory.storages);
        let mut remembered = remembered.filter(|storage| Path::new(&storage.directory) == of.dir);
        let other = remembered
            .next()
            .filter(|storage| storage.mount != mount.point);
        let effect = "the node would fill the disk above, and lose sight of the blocks";
        if let Some(storage) = other {
            let was = storage.mount.display();
            let seen = format!("a node had a storage there, with {was} mounted; now it is empty");
            out.bad(&place, [&seen, effect, &format!("mount {was}")]);
            continue;
        }
        let planned = planned_mounts(fstab).into_iter();
        let mut planned = planned.filter(|point| of.dir.starts_with(point));
        let missing =
            planned.find(|point| point.components().count() > 1 && !mounted.contains(point));
        if let Some(point) = missing {
            let point = point.display();
            let seen = format!("/etc/fstab has {point}, which is not mounted");
            out.bad(&place, [&seen, effect, &format!("mount {point}")]);
        }
    }
}

/// Mount points of `/etc/fstab` that are to be mounted at a start.
fn planned_mounts(fstab: &str) -> Vec<PathBuf> {
    let lines = fstab
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'));
    let points = lines.filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (point, _, options) = (words.next()?, words.next()?, words.next().unwrap_or(""));
        let wanted = point.starts_with('/') && !options.split(',').any(|o| o == "noauto");
        wanted.then(|| PathBuf::from(point))
    });
    points.collect()
}

fn mount_points(table: &str) -> BTreeSet<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(PathBuf::from).collect()
}

fn folder(of: &VolumeFacts) -> Option<&FolderFacts> {
    of.folder.as_ref().ok()?.as_ref()
}

pub fn identity(facts: &Facts, out: &mut Verdicts) {
    for key in ["storageID", "clusterID", "datanodeUuid"] {
        let of_key = facts.seen().filter_map(|of| {
            let version = folder(of)?.version.as_deref()?;
            let mut lines = version.lines().filter_map(|line| line.split_once('='));
            let (_, value) = lines.find(|(name, _)| *name == key)?;
            Some((of.place(), value))
        });
        let of_key: Vec<(String, &str)> = of_key.collect();
        let mend = "take one of the two out of dfs.datanode.data.dir";
        for (at, (place, value)) in of_key.iter().enumerate() {
            let mut before = of_key[..at].iter();
            let (other, effect) = match key {
                "storageID" => (
                    before.find(|(_, other)| other == value),
                    "one is a copy of the other, and their replicas count once",
                ),
                _ => (
                    before.find(|(_, other)| other != value),
                    "it is another node's or cluster's: the node refuses one of them",
                ),
            };
            if let Some((at, other)) = other {
                let seen = format!("its {key} is {value}, that of {at} is {other}");
                out.bad(place, [&seen, effect, mend]);
                break;
            }
        }
    }
}

pub fn shared_device(facts: &Facts, out: &mut Verdicts) {
    let mut on: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let tiers = |of: &VolumeFacts| {
        let subject = facts
            .subject
            .volumes
            .iter()
            .find(|volume| volume.dir == of.dir);
        facts.subject.tiering && subject.is_some_and(|volume| volume.archive)
    };
    for of in facts.seen().filter(|of| !tiers(of)) {
        let place = of.place();
        let Some(disks) = out.look(&place, &of.disks) else {
            continue;
        };
        let lowest = disks.iter().filter(|disk| disk.lowest);
        for disk in lowest {
            on.entry(&disk.name).or_default().push(place.clone());
        }
        if of
            .mount
            .as_ref()
            .is_ok_and(|mount| mount.point == Path::new("/"))
        {
            let effect = "logs and blocks take each other's room, and a full disk stops the host";
            let mend = "mount a disk of its own there";
            out.note(&place, ["it is on the root file system", effect, mend]);
        }
    }
    for (disk, dirs) in on.into_iter().filter(|(_, dirs)| dirs.len() > 1) {
        let seen = format!("{} are on this device", dirs.join(" and "));
        let effect = "their streams make it seek, its end costs all of them, and where they share \
            a file system its room is counted for each";
        let mend = "keep one of them in dfs.datanode.data.dir";
        out.slow(&format!("/dev/{disk}"), [&seen, effect, mend]);
    }
}

pub fn space(facts: &Facts, out: &mut Verdicts) {
    for of in facts.seen() {
        let place = of.place();
        let Some(space) = out.look(&place, &of.space) else {
            continue;
        };
        let subject = facts
            .subject
            .volumes
            .iter()
            .find(|volume| volume.dir == of.dir);
        let reserved = subject.map_or(0, |volume| volume.reserved_bytes);
        let free = space.available.saturating_sub(reserved);
        let below = |percent: u64| free < space.capacity / 100 * percent;
        let seen = format!(
            "{} of {} are free for blocks",
            size::show(free),
            size::show(space.capacity)
        );
        let mend = "run hdfs balancer, or add disks";
        if below(ROOM_PERCENT.1) || free < 2 * facts.subject.block_bytes {
            let effect = "the node takes no new blocks there";
            out.bad(&place, [&seen, effect, mend]);
        } else if below(ROOM_PERCENT.0) {
            let effect = "file systems that are nearly full scatter what they write";
            out.slow(&place, [&seen, effect, mend]);
        }
        // Two files a replica.
        if space.files > 0 && space.files_available < space.files / 50 {
            let seen = format!(
                "{} of {} inodes are free",
                space.files_available, space.files
            );
            let effect = "each replica has two files: without inodes no block can be made";
            out.bad(
                &place,
                [
                    &seen,
                    effect,
                    "make the file system anew with more (mkfs.ext4 -i)",
                ],
            );
        }
    }
}
