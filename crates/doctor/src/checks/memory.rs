//! How the kernel treats memory.

use crate::facts::Facts;
use crate::finding::Verdicts;
use crate::seen::chosen;

/// Swappiness up to which idle memory of processes stays.
const SWAPPINESS: i64 = 10;
/// Dirty memory above this many hundredths makes writers wait for long.
const DIRTY_PERCENT: i64 = 40;

pub fn huge_pages(facts: &Facts, out: &mut Verdicts) {
    let dir = "/sys/kernel/mm/transparent_hugepage";
    let texts = &facts.host.texts;
    let Some(enabled) = texts.get(&format!("{dir}/enabled")).map(chosen) else {
        return;
    };
    let mend = format!("echo madvise > {dir}/enabled; and transparent_hugepage=madvise at boot");
    match enabled {
        "always" => {
            let effect = "all memory grows by whole huge pages, and processes wait while the \
                kernel joins small ones; the node asks for huge pages where they help";
            out.slow("host", ["transparent huge pages are always", effect, &mend]);
        }
        "never" => {
            let effect = "buffers of disk requests lie in many pieces: sixteen readers had 1359 \
                MB/s without huge pages, 1640 with them";
            out.note("host", ["transparent huge pages are never", effect, &mend]);
        }
        _ => {}
    }
    if enabled != "never" && texts.get(&format!("{dir}/defrag")).map(chosen) == Some("always") {
        let effect = "processes wait while the kernel moves memory about for a huge page";
        let mend = format!("echo madvise > {dir}/defrag");
        out.slow(
            "host",
            [
                "huge pages are made at once (defrag is always)",
                effect,
                &mend,
            ],
        );
    }
}

pub fn memory(facts: &Facts, out: &mut Verdicts) {
    let texts = &facts.host.texts;
    let vm = |name: &str| texts.number(&format!("/proc/sys/vm/{name}"));
    let swap = texts
        .get("/proc/swaps")
        .is_some_and(|swaps| swaps.lines().count() > 1);
    if let Some(has) = vm("swappiness").filter(|has| swap && *has > SWAPPINESS) {
        let seen = format!("vm.swappiness is {has}, and there is swap");
        let effect = "while blocks fill the page cache, memory of the node and of JVMs goes to \
            disk; heartbeats and reads wait for it";
        out.slow(
            "host",
            [
                &seen,
                effect,
                "sysctl vm.swappiness=1; and in /etc/sysctl.d",
            ],
        );
    }
    if vm("overcommit_memory") == Some(2) {
        let effect = "memory is refused while much is free: JVMs and threads do not start";
        let mend = "sysctl vm.overcommit_memory=0; and in /etc/sysctl.d";
        out.slow("host", ["vm.overcommit_memory is 2", effect, mend]);
    }
    if let Some(mode @ 1..) = vm("zone_reclaim_mode") {
        let seen = format!("vm.zone_reclaim_mode is {mode}");
        let effect = "the page cache of one processor's memory is dropped while others' is free";
        out.slow(
            "host",
            [
                &seen,
                effect,
                "sysctl vm.zone_reclaim_mode=0; and in /etc/sysctl.d",
            ],
        );
    }
    let by_bytes = vm("dirty_bytes").is_some_and(|bytes| bytes > 0);
    if let Some(has) = vm("dirty_ratio").filter(|has| !by_bytes && *has > DIRTY_PERCENT) {
        let seen = format!("vm.dirty_ratio is {has}");
        let effect = "other programs may fill memory with what the disks have not taken, and all \
            wait for it at once";
        out.slow(
            "host",
            [
                &seen,
                effect,
                "sysctl vm.dirty_ratio=20; and in /etc/sysctl.d",
            ],
        );
    }
}
