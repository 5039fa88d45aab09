//! Block devices: their queues, caches, errors and arrays.

use hayloft_console::size;

use crate::facts::Facts;
use crate::facts::disk::DiskFacts;
use crate::facts::volume::VolumeFacts;
use crate::finding::{Verdicts, count};
use crate::seen::chosen;

/// Read-ahead of a device, KiB: below the first long reads are slow, above the second short ones
/// load much that is not asked for.
const READ_AHEAD_KB: (i64, i64) = (128, 16 << 10);
/// Requests below this many KiB cost a disk much of its rate.
const REQUEST_KB: i64 = 256;
/// Failed requests that a start of a healthy disk may have: questions that it does not know.
const ERRORS_AT_START: i64 = 16;
/// Failed requests that no healthy disk has.
const ERRORS_MANY: i64 = 100;

/// Calls `judge` with each device below each directory.
fn each(
    facts: &Facts,
    out: &mut Verdicts,
    judge: impl Fn(&VolumeFacts, &DiskFacts, &mut Verdicts),
) {
    for of in facts.seen() {
        if let Some(disks) = out.look(&of.place(), &of.disks) {
            disks.iter().for_each(|disk| judge(of, disk, out));
        }
    }
}

/// Whether heads move: as it was measured, else as the kernel says.
fn rotates(of: &VolumeFacts, disk: &DiskFacts) -> bool {
    let measured = of.calibration.as_ref().ok().and_then(Option::as_ref);
    let measured = measured.filter(|measured| measured.elsewhere.is_none());
    measured.map_or_else(|| disk.rotates(), |measured| measured.rotating)
}

/// A command that writes to a file of the device's, and how it stays.
fn set(disk: &DiskFacts, file: &str, value: &str) -> String {
    let (name, key) = (&disk.name, file.trim_start_matches("queue/"));
    format!(
        "echo {value} > /sys/block/{name}/{file}; and a udev rule: KERNEL==\"{name}\", \
         ATTR{{queue/{key}}}=\"{value}\""
    )
}

pub fn errors(facts: &Facts, out: &mut Verdicts) {
    each(facts, out, |_, disk, out| {
        let number = |name: &str| disk.texts.number(name).unwrap_or(0);
        let (failed, late) = (number("device/ioerr_cnt"), number("device/iotmo_cnt"));
        let mend = format!(
            "smartctl -a {0}; replace it when it reallocates",
            disk.node()
        );
        let failures = count(failed, "request failed", "requests failed");
        let seen = format!("{failures} and {late} had no answer in time");
        let effect = "reads are tried again for seconds, and blocks may be lost";
        if failed > ERRORS_MANY || late > 0 {
            out.slow(&disk.node(), [&seen, effect, &mend]);
        } else if failed > ERRORS_AT_START {
            out.note(&disk.node(), [&seen, effect, &mend]);
        }
        if let Some(state) = disk.texts.get("device/state")
            && !["running", "live"].contains(&state)
        {
            let seen = format!("the kernel calls the device {state}");
            out.bad(
                &disk.node(),
                [&seen, "requests to it fail", "look for it in dmesg"],
            );
        }
    });
}

pub fn raid(facts: &Facts, out: &mut Verdicts) {
    each(facts, out, |_, disk, out| {
        let degraded = disk.texts.number("md/degraded").unwrap_or(0);
        let detail = format!("mdadm --detail {}", disk.node());
        if degraded > 0 {
            let missing = count(degraded, "disk", "disks");
            let seen = format!("the array lacks {missing}");
            let effect = "reads are reckoned from the others, and the next failure takes all";
            let mend = format!("{detail}; then mdadm --add a new disk");
            out.bad(&disk.node(), [&seen, effect, &mend]);
        }
        let action = disk.texts.get("md/sync_action").unwrap_or("idle");
        if !["idle", "frozen"].contains(&action) {
            let seen = format!("the array is at work: {action}");
            let effect = "clients share its disks with that until it ends";
            out.slow(
                &disk.node(),
                [&seen, effect, "cat /proc/mdstat says when it ends"],
            );
        }
        let level = disk.texts.get("md/level").unwrap_or_default();
        if ["raid4", "raid5", "raid6"].contains(&level) {
            let seen = format!("the array is {level}");
            let effect = "it writes parity for blocks that HDFS keeps elsewhere anyway, and its \
                disks seek together";
            out.note(
                &disk.node(),
                [&seen, effect, "give the node each disk by itself"],
            );
        }
    });
}

pub fn write_cache(facts: &Facts, out: &mut Verdicts) {
    each(facts, out, |_, disk, out| {
        let Some(kernel) = disk.texts.get("queue/write_cache") else {
            return;
        };
        let through = kernel == "write through";
        let own = disk
            .texts
            .get("device/cache_type")
            .or(disk.texts.get("cache_type"));
        // A loop device always passes flushes on, so it is the same.
        let volatile = own.is_some_and(|own| own.starts_with("write back")) || disk.file.is_some();
        if through && volatile {
            let seen = "the kernel was told that it has no cache, and the device has one";
            let effect = "no flush is sent: what clients have hsynced goes with the power";
            out.bad(
                &disk.node(),
                [seen, effect, &set(disk, "queue/write_cache", "write back")],
            );
            return;
        }
        let ata = disk
            .texts
            .get("device/vendor")
            .is_some_and(|vendor| vendor.trim() == "ATA");
        if through && ata && disk.rotates() {
            let seen = "the write cache of this hard disk is off";
            let effect = "each request waits for the platter: writes take several times as long; \
                flushes keep what was synced either way";
            out.slow(
                &disk.node(),
                [seen, effect, &format!("hdparm -W1 {}", disk.node())],
            );
        }
    });
}

pub fn scheduler(facts: &Facts, out: &mut Verdicts) {
    each(facts, out, |of, disk, out| {
        let Some(list) = disk.texts.get("queue/scheduler") else {
            return;
        };
        let (has, rotating) = (chosen(list), rotates(of, disk));
        let better = if rotating { "mq-deadline" } else { "none" };
        let effect = match has {
            "bfq" | "cfq" => {
                "it lets the device idle for one process at a time and takes processor time for \
                 each request; the node orders its requests itself"
            }
            "kyber" if rotating => "it is made for flash, and lets a hard disk seek",
            "none" | "noop" if rotating && list.contains("mq-deadline") => {
                "requests of other programs and of the file system reach the hard disk unordered"
            }
            _ => return,
        };
        let medium = if rotating {
            "a hard disk"
        } else {
            "flash or a virtual disk"
        };
        let seen = format!("the scheduler is {has}, on {medium}");
        out.slow(
            &disk.node(),
            [&seen, effect, &set(disk, "queue/scheduler", better)],
        );
    });
}

pub fn read_ahead(facts: &Facts, out: &mut Verdicts) {
    each(facts, out, |_, disk, out| {
        let Some(has) = disk.texts.number("queue/read_ahead_kb") else {
            return;
        };
        let seen = format!("the read-ahead is {has} KiB");
        let mend = set(disk, "queue/read_ahead_kb", "4096");
        if has < READ_AHEAD_KB.0 {
            let effect = "reads through the page cache wait for the device piece by piece";
            out.slow(&disk.node(), [&seen, effect, &mend]);
        } else if has > READ_AHEAD_KB.1 {
            let effect = "a short read loads much that no client asked for, and pushes other data \
                out of the page cache";
            out.slow(&disk.node(), [&seen, effect, &mend]);
        }
    });
}

pub fn request_size(facts: &Facts, out: &mut Verdicts) {
    each(facts, out, |of, disk, out| {
        let number = |name: &str| disk.texts.number(name);
        let (Some(has), Some(hardware)) = (
            number("queue/max_sectors_kb"),
            number("queue/max_hw_sectors_kb"),
        ) else {
            return;
        };
        if has >= REQUEST_KB {
            return;
        }
        let shown = |kb: i64| size::show(u64::try_from(kb).unwrap_or(0) << 10);
        let seen = format!(
            "a request has at most {}, the device takes {}",
            shown(has),
            shown(hardware)
        );
        let effect = "large writes reach the device in pieces: a virtual disk with requests of 15 \
            KB wrote 1.3 MB/s, with 128 KB 62.6, with 512 KB 110";
        if hardware > has {
            let value = hardware.min(1280).to_string();
            out.slow(
                &disk.node(),
                [&seen, effect, &set(disk, "queue/max_sectors_kb", &value)],
            );
        } else if rotates(of, disk) || disk.is_emulated() {
            let mend = "use another controller: virtio in a virtual machine";
            out.slow(&disk.node(), [&seen, effect, mend]);
        }
    });
}
