//! The judgements, on what kernels, disks and NameNodes said.

mod disks;
mod host;
mod network;
mod volumes;

use crate::facts::disk::DiskFacts;
use crate::facts::host::HostFacts;
use crate::facts::volume::{FolderFacts, MountFacts, SpaceFacts, VolumeFacts};
use crate::facts::{Facts, VolumeSeen};
use crate::finding::{Severity, Verdicts};
use crate::seen::Texts;
use crate::subject::{DirSubject, Subject};

/// A directory on a disk that is well.
fn volume(dir: &str, disk: DiskFacts) -> VolumeFacts {
    VolumeFacts {
        dir: dir.into(),
        folder: Ok(Some(FolderFacts {
            real: dir.into(),
            ..FolderFacts::default()
        })),
        mount: Ok(MountFacts {
            point: dir.into(),
            fs_type: "ext4".into(),
            source: disk.node(),
            options: ["rw", "noatime", "rw"].map(String::from).to_vec(),
        }),
        disks: Ok(vec![disk]),
        space: Ok(SpaceFacts {
            capacity: 4 << 40,
            available: 2 << 40,
            files: 1 << 28,
            files_available: 1 << 27,
        }),
        errors: Texts::from([("errors_count", "0")]),
        calibration: Ok(None),
    }
}

/// A hard disk at a SATA port of a server (Linux 6.1).
fn sata(name: &str) -> DiskFacts {
    DiskFacts {
        name: name.to_owned(),
        texts: Texts::from([
            ("queue/scheduler", "none [mq-deadline] kyber bfq"),
            ("queue/read_ahead_kb", "4096"),
            ("queue/max_sectors_kb", "1280"),
            ("queue/max_hw_sectors_kb", "32767"),
            ("queue/rotational", "1"),
            ("queue/write_cache", "write back"),
            ("device/model", "ST8000NM000A-2KE"),
            ("device/vendor", "ATA     "),
            ("device/ioerr_cnt", "0x2"),
            ("device/iotmo_cnt", "0x0"),
            ("device/state", "running"),
            ("device/cache_type", "write back"),
        ]),
        drivers: ["sd", "ahci"].map(String::from).to_vec(),
        pci: Some([0x8086, 0xa352, 0x1028]),
        file: None,
        lowest: true,
    }
}

/// The same with another text.
fn but(mut disk: DiskFacts, name: &str, text: &str) -> DiskFacts {
    disk.texts.add(name, Ok(text.to_owned()));
    disk
}

fn facts(volumes: Vec<VolumeFacts>) -> Facts {
    let subjects = volumes.iter().map(|of| DirSubject {
        dir: of.dir.clone(),
        of_memory: false,
        archive: false,
        reserved_bytes: 0,
    });
    Facts {
        subject: Subject {
            volumes: subjects.collect(),
            block_bytes: 128 << 20,
            ..Subject::default()
        },
        volumes: volumes
            .into_iter()
            .map(|of| VolumeSeen {
                dir: of.dir.clone(),
                facts: Ok(of),
                trial: None,
            })
            .collect(),
        host: well(),
        network: None,
    }
}

/// A host that is well, as far as it is asked.
fn well() -> HostFacts {
    let limits = "Max open files            524288               524288               files     \n\
        Max locked memory         8388608              8388608              bytes     \n\
        Max processes             63432                63432                processes ";
    HostFacts {
        texts: Texts::from([
            ("/proc/sys/vm/swappiness", "60"),
            (
                "/proc/swaps",
                "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority",
            ),
            ("/proc/sys/vm/dirty_ratio", "20"),
            (
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never",
            ),
            ("/proc/sys/net/ipv4/tcp_congestion_control", "cubic"),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
            ("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"),
            ("/sys/devices/system/cpu/online", "0-3"),
            ("limits", limits),
        ]),
        processors: [STAT, STAT].map(String::from),
        ..HostFacts::default()
    }
}

/// The first line of `/proc/stat` of a machine that is its own.
const STAT: &str = "cpu  5186 131391 24653 39287 1438 0 378 96 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0";

/// What one check says: how bad, where, what was seen.
fn said(check: &str, facts: &Facts) -> Vec<(Severity, String, String)> {
    let check = crate::named(check).expect("a check of that name");
    let said = crate::judge(facts, &[check]);
    assert!(said.unseen.is_empty(), "{:?}", said.unseen);
    let found = said.found.into_iter();
    found.map(|of| (of.severity, of.place, of.seen)).collect()
}

/// What one check says, where it is one thing.
fn one(check: &str, facts: &Facts) -> (Severity, String, String) {
    let mut all = said(check, facts);
    assert_eq!(all.len(), 1, "{check}: {all:?}");
    all.remove(0)
}

#[test]
fn a_host_that_is_well_gives_nothing() {
    let facts = facts(vec![
        volume("/data/1", sata("sda")),
        volume("/data/2", sata("sdb")),
    ]);
    for check in crate::CHECKS {
        assert_eq!(said(check.name, &facts), [], "{}", check.name);
    }
}

#[test]
fn what_was_not_seen_is_never_well() {
    let mut facts = facts(vec![volume("/data/1", sata("sda"))]);
    facts.volumes[0].facts = Ok(VolumeFacts {
        disks: Err("permission denied".into()),
        ..volume("/data/1", sata("sda"))
    });
    for check in ["read-ahead", "scheduler", "sparse-disk", "shared-device"] {
        let mut out = Verdicts::default();
        (crate::named(check).expect("a check").judge)(&facts, &mut out);
        assert_eq!(out.unseen.len(), 1, "{check}");
        assert_eq!(out.unseen[0].why, "permission denied");
    }
}

#[test]
fn names_are_used_once() {
    let mut names: Vec<_> = crate::CHECKS.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), crate::CHECKS.len());
}

#[test]
fn a_report_has_the_worst_first() {
    let disk = but(sata("sda"), "queue/read_ahead_kb", "8");
    let mut of = volume("/data/1", disk);
    of.mount.as_mut().expect("mounted").options[0] = "ro".into();
    let checks: Vec<_> = crate::CHECKS.iter().collect();
    let facts = facts(vec![of]);
    let report = crate::Report::new(&checks, crate::judge(&facts, &checks));
    let worst: Vec<_> = report
        .findings
        .iter()
        .map(|of| (of.severity, of.check))
        .collect();
    assert_eq!(
        worst,
        [
            (Severity::Bad, "mount-options"),
            (Severity::Slow, "read-ahead")
        ]
    );
    let text = report.text();
    assert!(
        text.starts_with("bad mount-options: /data/1\n  seen "),
        "{text}"
    );
    assert!(text.ends_with("1 bad, 1 slow, 0 notes\n"), "{text}");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(
        (&json["worst"], &json["version"]),
        (&"bad".into(), &1.into())
    );
}
