//! The data directories: whether they are there, whose they are, what they share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hayloft_console::size;
use serde::Deserialize;

use crate::facts::Facts;
use crate::facts::volume::{FolderFacts, SpaceFacts, VolumeFacts};
use crate::finding::Verdicts;

/// Below so many hundredths of room a directory is nearly full, or as good as full.
const ROOM_PERCENT: (u64, u64) = (10, 2);
/// What becomes of a full volume.
const NO_BLOCKS: &str = "the node takes no new blocks there";

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
        let folder = match &of.folder {
            Ok(folder) => folder,
            Err(why) => {
                let effect = "a node of this user cannot use it: the volume fails at its start";
                let mend = "run the doctor as the node's user (sudo -u hdfs), give that user the \
                    directory (chown -R hdfs, chmod 700), or name another in dfs.datanode.data.dir";
                out.bad(&place, [why, effect, mend]);
                continue;
            }
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
    #[serde(default)]
    storage_id: String,
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
        let used = folder(of).is_some_and(|folder| folder.version.is_some());
        let remembered = newest.iter().flat_map(|memory| &memory.storages);
        let mut remembered = remembered.filter(|storage| Path::new(&storage.directory) == of.dir);
        let storage = remembered.next();
        // A storage that is there may have moved to another mount, with its blocks.
        let version = folder(of).and_then(|folder| folder.version.as_deref());
        let here = version.and_then(|version| value(version, "storageID"));
        if here.is_some() && here == storage.map(|storage| storage.storage_id.as_str()) {
            continue;
        }
        let other = storage.filter(|storage| storage.mount != mount.point);
        let (now, effect) = match used {
            false => (
                "now it is empty",
                "the node would fill the disk above, and lose sight of the blocks",
            ),
            true => (
                "now there are other blocks below the mount point",
                "the node fills the disk above, and has lost sight of the blocks of its own",
            ),
        };
        let mend = |point: &Path| match used {
            false => format!("mount {}", point.display()),
            true => format!(
                "stop the node, move {place} away, then mount {}; keep what was moved until hdfs \
                 fsck finds no block missing",
                point.display()
            ),
        };
        if let Some(storage) = other {
            let was = storage.mount.display();
            let seen = format!("a node had a storage there, with {was} mounted; {now}");
            out.bad(&place, [&seen, effect, &mend(&storage.mount)]);
            continue;
        }
        let planned = planned_mounts(fstab).into_iter();
        let mut planned = planned.filter(|point| of.dir.starts_with(point));
        let missing =
            planned.find(|point| point.components().count() > 1 && !mounted.contains(point));
        if let Some(point) = missing {
            let shown = point.display();
            let seen = match used {
                false => format!("/etc/fstab has {shown}, which is not mounted"),
                true => format!("/etc/fstab has {shown}, which is not mounted; {now}"),
            };
            out.bad(&place, [&seen, effect, &mend(&point)]);
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
            Some((of.place(), value(version, key)?))
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
    of_namenodes(facts, out);
}

/// A value of a VERSION file.
fn value<'a>(version: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = version.lines().filter_map(|line| line.split_once('='));
    Some(lines.find(|(name, _)| *name == key)?.1)
}

/// Whether the NameNodes are those of the blocks.
fn of_namenodes(facts: &Facts, out: &mut Verdicts) {
    let Some(network) = &facts.network else {
        return;
    };
    let mend = "name the NameNode of these blocks in the configuration. If it was formatted anew, \
        stop it and bring its fsimage back from a copy; format nothing";
    let all_told = network.all_told();
    'volumes: for of in facts.seen() {
        let (place, Some(folder)) = (of.place(), folder(of)) else {
            continue;
        };
        let cluster = folder
            .version
            .as_deref()
            .and_then(|text| value(text, "clusterID"));
        for (namenode, info) in network.active() {
            let (Some(cluster), Some(other)) = (cluster, info["ClusterId"].as_str()) else {
                continue;
            };
            if cluster != other {
                let seen = format!(
                    "its clusterID is {cluster}, that of {} is {other}",
                    namenode.rpc
                );
                let effect = "the node is refused: its blocks are another cluster's";
                out.bad(&place, [&seen, effect, mend]);
                continue 'volumes;
            }
        }
        let known = network
            .active()
            .filter_map(|(_, info)| info["BlockPoolId"].as_str());
        let known: Vec<&str> = known.collect();
        let strange = folder
            .pools
            .iter()
            .all(|pool| !known.contains(&pool.as_str()));
        if all_told && strange && !folder.pools.is_empty() && !known.is_empty() {
            let seen = format!(
                "its block pool is {}, that of the NameNode is {}",
                folder.pools.join(", "),
                known.join(", ")
            );
            let effect = "the node begins an empty pool beside it, and no client sees the blocks";
            out.bad(&place, [&seen, effect, mend]);
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
        let seen = |percent: u64| {
            format!(
                "{} of {} are free for blocks, less than {percent} %, beside \
                 dfs.datanode.du.reserved of {}",
                size::show(free),
                size::show(space.capacity),
                size::show(reserved)
            )
        };
        let mend = "run hdfs balancer or hdfs diskbalancer, add disks, or lower \
            dfs.datanode.du.reserved if it keeps more than others there need";
        if below(ROOM_PERCENT.1) {
            out.bad(&place, [&seen(ROOM_PERCENT.1), NO_BLOCKS, mend]);
        } else if free < 2 * facts.subject.block_bytes {
            let seen = format!(
                "{} are free for blocks, less than two have",
                size::show(free)
            );
            out.bad(&place, [&seen, NO_BLOCKS, mend]);
        } else if below(ROOM_PERCENT.0) {
            let effect = "file systems that are nearly full scatter what they write";
            out.slow(&place, [&seen(ROOM_PERCENT.0), effect, mend]);
        }
        inodes(&place, space, out);
    }
}

/// Two files a replica.
fn inodes(place: &str, space: &SpaceFacts, out: &mut Verdicts) {
    let below = |percent: u64| {
        space.files_available.saturating_mul(100) < space.files.saturating_mul(percent)
    };
    if space.files == 0 || !below(ROOM_PERCENT.0) {
        return;
    }
    let seen = format!(
        "{} of {} inodes are free, less than {} %",
        space.files_available, space.files, ROOM_PERCENT.0
    );
    let effect = "each replica has two files: without inodes no block can be made";
    let mend = "move replicas to other disks (hdfs diskbalancer), keep fewer and larger files, or \
        remove what else lies on this disk. Only a new file system has more inodes (mkfs.ext4 -i), \
        and making one removes all replicas of this disk: decommission the node before";
    match below(ROOM_PERCENT.1) {
        true => out.bad(place, [&seen, effect, mend]),
        false => out.slow(place, [&seen, effect, mend]),
    }
}
