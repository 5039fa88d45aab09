//! Memory, limits, processors.

use super::{STAT, facts, one, said};
use crate::facts::Facts;
use crate::finding::Severity::{Bad, Note, Slow};

fn with(texts: &[(&str, &str)]) -> Facts {
    let mut facts = facts(Vec::new());
    for (name, text) in texts {
        facts.host.texts.add(*name, Ok((*text).to_owned()));
    }
    facts
}

fn in_group(texts: &[(&str, &str)]) -> Facts {
    let mut facts = facts(Vec::new());
    for (name, text) in texts {
        facts.host.groups.add(*name, Ok((*text).to_owned()));
    }
    facts
}

#[test]
fn huge_pages() {
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    assert_eq!(
        one("huge-pages", &with(&[(enabled, "[always] madvise never")])).0,
        Slow
    );
    assert_eq!(
        one("huge-pages", &with(&[(enabled, "always madvise [never]")])).0,
        Note
    );
    let defrag = "/sys/kernel/mm/transparent_hugepage/defrag";
    let eager = with(&[(defrag, "[always] defer defer+madvise madvise never")]);
    assert!(one("huge-pages", &eager).2.contains("defrag"));
}

#[test]
fn memory() {
    let swap = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition\t8388604\t0\t-2";
    assert!(
        one("memory", &with(&[("/proc/swaps", swap)]))
            .2
            .contains("swappiness is 60")
    );
    for (name, text) in [
        ("overcommit_memory", "2"),
        ("zone_reclaim_mode", "1"),
        ("dirty_ratio", "80"),
    ] {
        let name = format!("/proc/sys/vm/{name}");
        assert_eq!(one("memory", &with(&[(&name, text)])).0, Slow, "{name}");
    }
}

#[test]
fn limits_of_processes() {
    let limits = |files: u64| {
        format!(
            "Max open files            1024                 {files}                 files     \n\
             Max locked memory         65536                65536                bytes     "
        )
    };
    assert_eq!(
        one("open-files", &with(&[("limits", &limits(1024))])).0,
        Bad
    );
    assert_eq!(
        one("open-files", &with(&[("limits", &limits(20_000))])).0,
        Slow
    );
    assert_eq!(
        said("open-files", &with(&[("limits", &limits(65_536))])),
        []
    );
    let mut locked = with(&[("limits", &limits(65_536))]);
    assert_eq!(said("locked-memory", &locked), []);
    locked.subject.locked_bytes = 1 << 30;
    assert_eq!(one("locked-memory", &locked).0, Bad);
    let full = with(&[
        ("/proc/sys/fs/file-max", "100000"),
        ("/proc/sys/fs/file-nr", "99000\t0\t100000"),
    ]);
    assert_eq!(one("open-files", &full).0, Bad);
}

#[test]
fn control_groups_of_both_versions() {
    for (texts, word) in [
        (
            &[("/sys/fs/cgroup/a/cpu.max", "150000 100000")][..],
            "1.50 of 4 processors",
        ),
        (
            &[
                ("/cg/cpu/cpu.cfs_quota_us", "50000"),
                ("/cg/cpu/cpu.cfs_period_us", "100000"),
            ][..],
            "0.50 of 4 processors",
        ),
        (
            &[("/sys/fs/cgroup/a/memory.max", "536870912")][..],
            "512 MiB of memory",
        ),
        (
            &[(
                "/sys/fs/cgroup/a/io.max",
                "8:0 rbps=1048576 wbps=max riops=max wiops=max",
            )][..],
            "rbps",
        ),
        (
            &[("/cg/blkio/blkio.throttle.write_bps_device", "7:0 1048576")][..],
            "7:0 1048576",
        ),
    ] {
        let found = one("cgroup", &in_group(texts));
        assert!(found.0 == Slow && found.2.contains(word), "{found:?}");
    }
    let wide = in_group(&[
        ("/sys/fs/cgroup/a/cpu.max", "max 100000"),
        ("/sys/fs/cgroup/a/memory.max", "max"),
        ("/sys/fs/cgroup/a/io.max", ""),
        ("/cg/cpu/cpu.cfs_quota_us", "-1"),
        ("/cg/memory/memory.limit_in_bytes", "9223372036854771712"),
    ]);
    assert_eq!(said("cgroup", &wide), []);
}

#[test]
fn threads_that_are_left() {
    let with = |max: &str, current: &str, nproc: &str, uid: &str| {
        let group = "/sys/fs/cgroup/a";
        let (of_max, of_current) = (format!("{group}/pids.max"), format!("{group}/pids.current"));
        let mut facts = in_group(&[(&of_max, max), (&of_current, current)]);
        let limits = format!("Max processes             {nproc}       63432    processes");
        let status = format!("Uid:\t{uid}\t{uid}\nThreads:\t4\nCapEff:\t0000000000000000");
        facts.host.texts.add("limits", Ok(limits));
        facts.host.texts.add("status", Ok(status));
        facts.host.whose = "the node".into();
        facts.subject.threads = (20, 150);
        facts
    };
    assert_eq!(said("threads", &with("max", "9", "unlimited", "998")), []);
    assert_eq!(said("threads", &with("200", "54", "150", "998")), []);
    let found = one("threads", &with("24", "9", "1000", "998"));
    assert_eq!((found.0, found.1.as_str()), (Bad, "/sys/fs/cgroup/a"));
    let seen = "pids.max is 24, with 19 threads left for the node, and the node wants 20 to 150";
    assert_eq!(found.2, seen);
    assert_eq!(one("threads", &with("200", "55", "1000", "998")).0, Slow);
    let found = one("threads", &with("max", "9", "12", "998"));
    assert!(
        found.0 == Bad && found.2.contains("RLIMIT_NPROC is 12"),
        "{found:?}"
    );
    assert_eq!(
        said("threads", &with("max", "9", "12", "0")),
        [],
        "root has no such limit"
    );
}

#[test]
fn shared_memory_of_users() {
    let with = |conf: Option<&str>, uid| {
        let mut of = super::volume("/data/1", super::sata("sda"));
        if let Ok(Some(folder)) = &mut of.folder {
            folder.uid = uid;
        }
        let mut facts = facts(vec![of]);
        facts.host.remove_ipc = conf.map(|conf| Ok(conf.to_owned()));
        said("remove-ipc", &facts).len()
    };
    let default = "[Login]\n#RemoveIPC=yes\n";
    assert_eq!(with(Some(default), 1001), 1);
    assert_eq!(with(Some(default), 998), 0);
    assert_eq!(with(Some("[Login]\n#RemoveIPC=yes\nRemoveIPC=no"), 1001), 0);
    assert_eq!(with(None, 1001), 0, "no systemd");
}

#[test]
fn processors() {
    let mut stolen = facts(Vec::new());
    let later = "cpu  5196 131401 24653 39297 1438 0 378 126 0 0";
    stolen.host.processors = [STAT, later].map(String::from);
    assert!(one("processor", &stolen).2.contains("in the last second"));
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert!(
        one("processor", &with(&[(source, "hpet")]))
            .2
            .contains("hpet")
    );
    assert_eq!(said("processor", &with(&[(source, "kvm-clock")])), []);
    let dir = "/sys/devices/system/cpu/cpu0/cpufreq";
    let (governor, driver) = (
        format!("{dir}/scaling_governor"),
        format!("{dir}/scaling_driver"),
    );
    let saving = [(governor.as_str(), "powersave"), (&driver, "acpi-cpufreq")];
    assert_eq!(one("processor", &with(&saving)).0, Slow);
    let own = [(governor.as_str(), "powersave"), (&driver, "intel_pstate")];
    assert_eq!(said("processor", &with(&own)), []);
}

#[test]
fn io_uring_is_no_fault_of_ours() {
    let off = with(&[("/proc/sys/kernel/io_uring_disabled", "2")]);
    assert_eq!(one("kernel-features", &off).0, Note);
}
