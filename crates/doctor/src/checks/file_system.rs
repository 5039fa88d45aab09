//! The file systems of the data directories: their kinds, options and errors.

use crate::facts::Facts;
use crate::facts::volume::{MountFacts, VolumeFacts};
use crate::finding::{Severity, Verdicts, count};

/// Seconds between commits of a journal, beyond which much is lost with the power.
const COMMIT_S: u64 = 60;

pub fn kind(facts: &Facts, out: &mut Verdicts) {
    for of in facts.seen() {
        let place = of.place();
        let Some(mount) = out.look(&place, &of.mount) else {
            continue;
        };
        let subject = facts
            .subject
            .volumes
            .iter()
            .find(|volume| volume.dir == of.dir);
        let of_memory = subject.is_some_and(|volume| volume.of_memory);
        let disk = "use ext4 or XFS on a disk of the host";
        let judged = match mount.fs_type.as_str() {
            "tmpfs" | "ramfs" if of_memory => None,
            "tmpfs" | "ramfs" => Some((
                Severity::Bad,
                "it is memory: a reboot takes all blocks, and blocks take the host's memory",
                "mount a disk there, or declare it as [RAM_DISK]",
            )),
            "overlay" | "aufs" => Some((
                Severity::Bad,
                "it is a layer of a container: blocks go with it, and each write goes through \
                 another file system",
                "mount a volume of the host there",
            )),
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "glusterfs" => Some((
                Severity::Bad,
                "each block crosses the network again, and one server's end takes all of them",
                disk,
            )),
            "vfat" | "exfat" | "ntfs" | "ntfs3" | "msdos" | "hfsplus" => Some((
                Severity::Bad,
                "it has no journal, no owners, or no files above 4 GiB",
                disk,
            )),
            kind if kind.starts_with("fuse") => Some((
                Severity::Slow,
                "each request goes through a process more, and its end takes the volume",
                disk,
            )),
            "btrfs" | "zfs" | "bcachefs" => Some((
                Severity::Note,
                "it keeps checksums and copies of its own: blocks are written where they fit, and \
                 not in a run",
                disk,
            )),
            "ext2" | "ext3" | "reiserfs" | "jfs" => Some((
                Severity::Slow,
                "it has no extents: allocating ahead is not known, and deletes of blocks take long",
                "move its replicas away (hdfs diskbalancer), then make the file system anew as \
                 ext4 or XFS, which removes what is left",
            )),
            _ => None,
        };
        if let Some((severity, effect, mend)) = judged {
            let seen = format!("the file system is {}", mount.fs_type);
            out.add(severity, &place, [&seen, effect, mend]);
        }
    }
}

/// Options, how bad they are, what they do, and what is to be mounted instead.
const OPTIONS: [(&str, Severity, &str, &str); 7] = [
    (
        "ro",
        Severity::Bad,
        "nothing can be written: the volume fails at its start",
        "remount,rw",
    ),
    (
        "sync",
        Severity::Slow,
        "each write waits for the disk, packet by packet",
        "remount,async",
    ),
    (
        "dirsync",
        Severity::Slow,
        "each file that is made or removed waits for the disk",
        "remount,async",
    ),
    (
        "data=journal",
        Severity::Slow,
        "all data is written twice, and none goes around the page cache",
        "data=ordered",
    ),
    (
        "nodelalloc",
        Severity::Slow,
        "blocks written through the page cache are scattered",
        "remount,delalloc",
    ),
    (
        "data=writeback",
        Severity::Note,
        "after a power cut a file may show what was deleted before",
        "data=ordered",
    ),
    (
        "discard",
        Severity::Note,
        "each delete of a block waits for the device to trim it; fstrim.timer does it at night",
        "remount,nodiscard",
    ),
];

pub fn options(facts: &Facts, out: &mut Verdicts) {
    for of in facts.seen() {
        let place = of.place();
        let Some(mount) = out.look(&place, &of.mount) else {
            continue;
        };
        barriers(of, mount, out);
        let has_options = OPTIONS.iter().filter(|(option, ..)| has(mount, option));
        for (option, severity, effect, instead) in has_options {
            let seen = format!("it is mounted with {option}");
            out.add(*severity, &place, [&seen, effect, &with(mount, instead)]);
        }
        if !has(mount, "noatime") && !has(mount, "relatime") && !has(mount, "ro") {
            let effect = "each read of a block writes the time of it";
            let seen = "it is mounted with strictatime";
            out.slow(&place, [seen, effect, &with(mount, "remount,noatime")]);
        }
        let mut commits = mount
            .options
            .iter()
            .filter_map(|o| o.strip_prefix("commit="));
        let commit = commits.next().and_then(|seconds| seconds.parse().ok());
        if let Some(seconds) = commit.filter(|seconds: &u64| *seconds > COMMIT_S) {
            let seen = format!("its journal commits every {seconds} s");
            let effect = "names and lengths of that time go with the power";
            out.note(&place, [&seen, effect, &with(mount, "remount,commit=5")]);
        }
    }
}

/// Without barriers the device is not told to keep what was synced.
fn barriers(of: &VolumeFacts, mount: &MountFacts, out: &mut Verdicts) {
    if !["nobarrier", "barrier=0"]
        .iter()
        .any(|option| has(mount, option))
    {
        return;
    }
    let disks = of.disks.as_deref().unwrap_or_default();
    let volatile = |text: &str| text.contains("write back");
    let caches = disks
        .iter()
        .filter_map(|disk| disk.texts.get("queue/write_cache"));
    // Without a cache that forgets there is nothing to be told.
    let safe = disks.iter().any(|disk| disk.lowest) && !caches.into_iter().any(volatile);
    let mend = with(mount, "remount,barrier");
    let seen = "it is mounted without barriers";
    if safe {
        let effect = "the device says that its cache forgets nothing: then it is safe";
        out.note(&of.place(), [seen, effect, &mend]);
    } else {
        let effect = "the device's cache forgets what clients have hsynced when the power fails";
        out.bad(&of.place(), [seen, effect, &mend]);
    }
}

fn has(mount: &MountFacts, option: &str) -> bool {
    mount.options.iter().any(|has| has == option)
}

/// A command that mounts it otherwise. Some options want an unmount before.
fn with(mount: &MountFacts, options: &str) -> String {
    let point = mount.point.display();
    let again = match options.strip_prefix("remount,") {
        Some(_) => format!("mount -o {options} {point}"),
        None => format!(
            "umount {point} && mount -o {options} {} {point}",
            mount.source
        ),
    };
    format!("{again}; and in /etc/fstab")
}

pub fn errors(facts: &Facts, out: &mut Verdicts) {
    for of in facts.seen() {
        let Some(errors) = of.errors.number("errors_count").filter(|has| *has > 0) else {
            continue;
        };
        let at = of
            .errors
            .get("last_error_func")
            .unwrap_or("a function not named");
        let errors = count(errors, "error", "errors");
        let seen = format!("the file system has counted {errors}, the last in {at}");
        let effect = "its structures are damaged: files may be lost, or it becomes read-only";
        let device = of
            .mount
            .as_ref()
            .map_or("DEVICE", |mount| mount.source.as_str());
        let mend = format!("stop the node, unmount it, then: fsck.ext4 -f {device}");
        out.bad(&of.place(), [&seen, effect, &mend]);
    }
}
