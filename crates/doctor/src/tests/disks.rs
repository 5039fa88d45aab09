//! Devices.

use super::{but, facts, one, said, sata, volume};
use crate::facts::disk::{DiskFacts, FileFacts};
use crate::facts::trial::TrialFacts;
use crate::facts::volume::CalibrationFacts;
use crate::finding::Severity::{Bad, Note, Slow};
use crate::seen::Texts;

fn on(disk: DiskFacts) -> crate::facts::Facts {
    facts(vec![volume("/data/1", disk)])
}

/// A disk of a virtual machine without virtio: `-drive if=ide` of QEMU.
fn qemu_ide() -> DiskFacts {
    let disk = but(sata("sda"), "device/model", "QEMU HARDDISK   ");
    DiskFacts {
        drivers: ["sd", "ata_piix"].map(String::from).to_vec(),
        pci: Some([0x8086, 0x7010, 0x1af4]),
        ..disk
    }
}

/// A loop device (Linux 6.18).
fn on_file(allocated: u64) -> DiskFacts {
    DiskFacts {
        name: "loop0".into(),
        texts: Texts::from([
            ("queue/scheduler", "[none] mq-deadline kyber bfq"),
            ("queue/read_ahead_kb", "2560"),
            ("queue/max_sectors_kb", "1280"),
            ("queue/max_hw_sectors_kb", "1280"),
            ("queue/rotational", "1"),
            ("queue/write_cache", "write back"),
            ("loop/backing_file", "/vm/disk.img"),
        ]),
        file: Some(Ok(FileFacts {
            len: 268_435_456,
            allocated,
        })),
        ..DiskFacts::default()
    }
}

#[test]
fn schedulers_fit_the_medium() {
    let with = |text: &str| on(but(sata("sda"), "queue/scheduler", text));
    assert_eq!(one("scheduler", &with("none mq-deadline [bfq]")).0, Slow);
    assert_eq!(one("scheduler", &with("[none] mq-deadline")).0, Slow);
    // Of a controller that orders requests itself nothing else can be chosen.
    assert_eq!(said("scheduler", &with("none")), []);
    let flash = but(sata("sda"), "queue/rotational", "0");
    assert_eq!(
        said(
            "scheduler",
            &on(but(flash, "queue/scheduler", "[none] mq-deadline"))
        ),
        []
    );
}

#[test]
fn a_measured_medium_counts() {
    let disk = but(sata("vda"), "queue/scheduler", "[none] mq-deadline");
    let mut of = volume("/data/1", disk);
    assert_eq!(said("scheduler", &facts(vec![of.clone()])), []);
    of.calibration = Ok(Some(CalibrationFacts {
        rotating: true,
        rates: [Some(150e6), Some(1.3e6)],
        elsewhere: None,
    }));
    let facts = facts(vec![of]);
    assert_eq!(one("scheduler", &facts).0, Slow);
    assert!(
        one("slow-disk", &facts)
            .2
            .contains("writes of long runs at 1.3 MB/s")
    );
}

#[test]
fn read_ahead_and_requests() {
    let with = |name, text| on(but(sata("sda"), name, text));
    for (read_ahead, wrong) in [("64", 1), ("128", 0), ("16384", 0), ("65536", 1)] {
        assert_eq!(
            said("read-ahead", &with("queue/read_ahead_kb", read_ahead)).len(),
            wrong
        );
    }
    let small = with("queue/max_sectors_kb", "128");
    assert!(one("request-size", &small).2.contains("at most 128 KiB"));
    // Many flash disks take no more, and are as fast.
    let flash = but(
        but(sata("sda"), "queue/rotational", "0"),
        "queue/max_hw_sectors_kb",
        "128",
    );
    assert_eq!(
        said(
            "request-size",
            &on(but(flash, "queue/max_sectors_kb", "128"))
        ),
        []
    );
}

#[test]
fn caches_that_are_off_or_not_flushed() {
    let through = but(sata("sda"), "queue/write_cache", "write through");
    let lied = one("write-cache", &on(through.clone()));
    assert_eq!((lied.0, lied.1.as_str()), (Bad, "/dev/sda"));
    let off = but(through, "device/cache_type", "write through");
    assert_eq!(one("write-cache", &on(off.clone())).0, Slow);
    // Disks of SAS and controllers with a battery say the same and are well.
    assert_eq!(
        said("write-cache", &on(but(off, "device/vendor", "SEAGATE "))),
        []
    );
}

#[test]
fn errors_of_disks() {
    let with = |failed, late| {
        let disk = but(sata("sda"), "device/ioerr_cnt", failed);
        on(but(disk, "device/iotmo_cnt", late))
    };
    assert_eq!(said("disk-errors", &with("0x8", "0x0")), []);
    assert_eq!(one("disk-errors", &with("0x20", "0x0")).0, Note);
    assert_eq!(one("disk-errors", &with("0x1f4", "0x0")).0, Slow);
    assert_eq!(one("disk-errors", &with("0x0", "0x3")).0, Slow);
    let offline = on(but(sata("sda"), "device/state", "offline"));
    assert_eq!(one("disk-errors", &offline).0, Bad);
}

#[test]
fn arrays() {
    let array = but(sata("md0"), "md/level", "raid6");
    assert_eq!(one("raid", &on(array.clone())).0, Note);
    let facts = on(but(
        but(array, "md/degraded", "1"),
        "md/sync_action",
        "recover",
    ));
    let all: Vec<_> = said("raid", &facts).into_iter().map(|of| of.0).collect();
    assert_eq!(all, [Bad, Slow, Note]);
}

#[test]
fn virtual_disks() {
    let found = one("emulated-disk", &on(qemu_ide()));
    assert_eq!(
        found.2,
        "QEMU HARDDISK is behind an emulated controller, driver ata_piix"
    );
    let q35 = DiskFacts {
        drivers: ["sd", "ahci"].map(String::from).to_vec(),
        ..qemu_ide()
    };
    assert_eq!(said("emulated-disk", &on(q35)).len(), 1);
    assert_eq!(said("emulated-disk", &on(sata("sda"))), []);
    let found = one("sparse-disk", &on(on_file(8_794_112)));
    assert_eq!((found.0, found.1.as_str()), (Slow, "/dev/loop0"));
    assert!(found.2.contains("8.3 MiB of 256 MiB"), "{}", found.2);
    assert_eq!(said("sparse-disk", &on(on_file(268_435_456))), []);
    let thin = but(sata("dm-3"), "dm/name", "vg-pool-tpool");
    assert!(one("sparse-disk", &on(thin)).2.contains("thin"));
}

#[test]
fn first_writes() {
    let with = |first_us, again_us| {
        let mut facts = on(sata("sda"));
        facts.volumes[0].trial = Some(Ok(TrialFacts {
            allocates: true,
            direct: true,
            nowait: true,
            cachestat: true,
            first_us,
            again_us,
            parts: 64,
        }));
        facts
    };
    // The paper's: 1.3 MB/s, then 62.6.
    assert_eq!(one("first-write", &with(806_600, 16_750)).0, Slow);
    assert_eq!(said("first-write", &with(16_750, 9_500)), []);
    assert_eq!(said("first-write", &with(4_000, 300)), []);
    let mut facts = with(1, 1);
    if let Some(Ok(trial)) = &mut facts.volumes[0].trial {
        (trial.direct, trial.allocates, trial.cachestat) = (false, false, false);
    }
    let all: Vec<_> = said("kernel-features", &facts)
        .into_iter()
        .map(|of| of.0)
        .collect();
    assert_eq!(all, [Slow, Slow, Note]);
}
