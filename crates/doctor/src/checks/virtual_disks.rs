//! Virtual disks: files with holes, emulated controllers, first writes. The figures are those of
//! Shafer's thesis, table 7.4.

use hayloft_console::size;

use crate::facts::Facts;
use crate::facts::disk::DiskFacts;
use crate::finding::Verdicts;

/// Hundredths of a file that may be holes.
const HOLES_PERCENT: u64 = 5;
/// A first write that takes so many times as long as the next one is no accident.
const TIMES: u64 = 4;
/// First writes of 1 MiB that are quicker than this do not matter, microseconds.
const QUICK_US: u64 = 5_000;
/// A disk below this rate is broken, or is no disk, bytes a second.
const SLOW_BYTES_S: f64 = 30e6;

/// What a virtual disk costs.
const PAPER: &str = "wrote 1.3 MB/s on a file with holes, 62.6 on a full one, 110 with virtio on \
    a disk";

fn disks<'a>(facts: &'a Facts, out: &mut Verdicts) -> Vec<&'a DiskFacts> {
    let mut all = Vec::new();
    for of in facts.seen() {
        all.extend(out.look(&of.place(), &of.disks).into_iter().flatten());
    }
    all
}

pub fn sparse(facts: &Facts, out: &mut Verdicts) {
    for disk in disks(facts, out) {
        let place = disk.node();
        let effect = format!(
            "the first write of each place waits for room to be found: a virtual machine {PAPER}"
        );
        if let Some(file) = &disk.file {
            let name = disk.texts.get("loop/backing_file").unwrap_or("its file");
            let Some(file) = out.look(&place, file) else {
                continue;
            };
            if file.allocated < file.len / 100 * (100 - HOLES_PERCENT) {
                let seen = format!(
                    "{name} has {} of {}: the rest are holes",
                    size::show(file.allocated),
                    size::show(file.len)
                );
                let mend = format!("fallocate -l {} {name}", file.len);
                out.slow(&place, [&seen, &effect, &mend]);
            }
        }
        let thin = disk
            .texts
            .get("dm/name")
            .is_some_and(|name| name.ends_with("-tpool"));
        if thin {
            let seen = "the volume is thin: it is given room as it is written";
            let mend = "use a logical volume that has its room: lvcreate without --thin";
            out.slow(&place, [seen, &effect, mend]);
        }
    }
}

pub fn emulated(facts: &Facts, out: &mut Verdicts) {
    // Of controllers that hypervisors emulate and servers have not had for long.
    let old = [
        "ata_piix",
        "pata_acpi",
        "sym53c8xx",
        "BusLogic",
        "mptspi",
        "pata_mpiix",
    ];
    for disk in disks(facts, out) {
        let driver = disk.drivers.iter().find(|driver| {
            let usual = ["ahci", "megaraid_sas", "mptsas", "mpt3sas"].contains(&driver.as_str());
            old.contains(&driver.as_str()) || usual && disk.is_emulated()
        });
        let Some(driver) = driver else {
            continue;
        };
        let model = disk.texts.get("device/model").unwrap_or("a disk").trim();
        let seen = format!("{model} is behind an emulated controller, driver {driver}");
        let effect = format!(
            "each request costs the hypervisor several exits, and few are on their way at once: \
             a virtual machine {PAPER}"
        );
        let mend =
            "give the disk to the virtual machine by virtio: libvirt's <target bus='virtio'/>";
        out.slow(&disk.node(), [&seen, &effect, mend]);
    }
}

pub fn first_write(facts: &Facts, out: &mut Verdicts) {
    for volume in &facts.volumes {
        let place = volume.dir.display().to_string();
        let Some(trial) = volume
            .trial
            .as_ref()
            .and_then(|trial| out.look(&place, trial))
        else {
            continue;
        };
        let (first, again) = (trial.first_us, trial.again_us.max(1));
        if first < QUICK_US || first < TIMES * again {
            continue;
        }
        let seen = format!(
            "1 MiB takes {first} us where nothing was written before and {again} us where it was, \
             the median of {}",
            trial.parts
        );
        let effect = format!(
            "new blocks are written at the slower rate: the disk is given room as it is written; \
             a virtual machine {PAPER}"
        );
        let mend = "write the disk once from end to end before it is used, or preallocate its file";
        out.slow(&place, [&seen, &effect, mend]);
    }
}

pub fn slow(facts: &Facts, out: &mut Verdicts) {
    for of in facts.seen() {
        let place = of.place();
        let again = format!("hayloft calibrate {place}");
        let Some(Some(measured)) = out.look(&place, &of.calibration) else {
            continue;
        };
        if let Some(elsewhere) = &measured.elsewhere {
            let effect = "the node does not use what was measured";
            out.note(
                &place,
                [&format!("the calibration is {elsewhere}"), effect, &again],
            );
            continue;
        }
        for (rate, what) in measured.rates.iter().zip(["reads", "writes"]) {
            let Some(rate) = rate.filter(|rate| *rate < SLOW_BYTES_S) else {
                continue;
            };
            let seen = format!("calibrated: {what} of long runs at {:.1} MB/s", rate / 1e6);
            let effect = "files with a block there are as slow as this disk";
            let mend = format!("smartctl -a, and the other checks; then {again}");
            out.slow(&place, [&seen, effect, &mend]);
        }
    }
}
