//! What the kernel can do for a node, and what it does with the processors.

use crate::facts::Facts;
use crate::finding::Verdicts;

/// Hundredths of the processors' time that a hypervisor may take for others.
const STEAL_PERCENT: u64 = 5;
/// Fields of a line of `/proc/stat` that count; the rest is in these already.
const FIELDS: usize = 8;
/// Of these the time that was stolen.
const STEAL: usize = 7;

pub fn features(facts: &Facts, out: &mut Verdicts) {
    for volume in &facts.volumes {
        let place = volume.dir.display().to_string();
        let Some(trial) = volume
            .trial
            .as_ref()
            .and_then(|trial| out.look(&place, trial))
        else {
            continue;
        };
        let another = "use ext4 or XFS there";
        if !trial.direct {
            let seen = "its file system knows no O_DIRECT";
            let effect = "the node falls back to its engine posix: large writes go through the \
                page cache";
            out.slow(&place, [seen, effect, another]);
        }
        if !trial.allocates {
            let seen = "its file system cannot allocate ahead";
            let effect = "blocks that are written at the same time are mixed on the disk, and \
                later reads lose 30 to 42 % of their rate";
            out.slow(&place, [seen, effect, another]);
        }
        if !trial.nowait {
            let effect = "each small read goes through a thread of the disk";
            out.note(
                &place,
                ["its file system knows no RWF_NOWAIT", effect, another],
            );
        }
        if trial.nowait && !trial.cachestat {
            let seen = "the kernel does not say what is in the page cache";
            let effect = "the node reads from the disk what is in memory already";
            let mend = "use Linux 6.5 or later, and allow cachestat(2) in the container";
            out.note(&place, [seen, effect, mend]);
        }
    }
    let disabled = facts
        .host
        .texts
        .number("/proc/sys/kernel/io_uring_disabled");
    if let Some(level @ 1..) = disabled {
        let seen = format!("kernel.io_uring_disabled is {level}");
        let effect = "Hayloft's own engines do without it; plug-ins of others may not";
        out.note("host", [&seen, effect, "sysctl kernel.io_uring_disabled=0"]);
    }
}

pub fn processor(facts: &Facts, out: &mut Verdicts) {
    let texts = &facts.host.texts;
    let [before, after] = facts.host.processors.each_ref().map(|stat| times(stat));
    match (before, after) {
        (Some(before), Some(after)) => {
            let lately: Vec<u64> = after
                .iter()
                .zip(&before)
                .map(|(now, was)| now.saturating_sub(*was))
                .collect();
            for (times, when) in [(&lately, "in the last second"), (&after, "since the start")] {
                let percent = times[STEAL] * 100 / times.iter().sum::<u64>().max(1);
                if percent >= STEAL_PERCENT {
                    let seen = format!("the hypervisor took {percent} % of the time {when}");
                    let effect = "all answers of the node wait for that long at times";
                    let mend = "use a host with processors of its own, or a larger machine";
                    out.slow("host", [&seen, effect, mend]);
                    break;
                }
            }
        }
        _ => out.unseen("host", "/proc/stat cannot be read"),
    }
    let source = texts.get("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Some(source) = source.filter(|source| ["hpet", "acpi_pm", "jiffies"].contains(source)) {
        let seen = format!("the clock source is {source}");
        let effect = "each look at the time is a call into the kernel, or slower; a node does it \
            for each packet";
        let dir = "/sys/devices/system/clocksource/clocksource0";
        let mend = format!("echo tsc > {dir}/current_clocksource, if available_clocksource has it");
        out.slow("host", [&seen, effect, &mend]);
    }
    let file = |name: &str| texts.get(&format!("/sys/devices/system/cpu/cpu0/cpufreq/{name}"));
    // With these drivers the processor itself decides, and powersave is no fault.
    let own = ["intel_pstate", "amd-pstate-epp", "amd_pstate_epp"];
    if file("scaling_governor") == Some("powersave")
        && !file("scaling_driver").is_some_and(|driver| own.contains(&driver))
    {
        let effect = "the processors stay at their lowest frequency";
        let mend = "cpupower frequency-set -g performance";
        out.slow(
            "host",
            ["the processors' governor is powersave", effect, mend],
        );
    }
}

/// The times of all processors together, in the order of `/proc/stat`.
fn times(stat: &str) -> Option<Vec<u64>> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times = line
        .split_whitespace()
        .take(FIELDS)
        .map(|time| time.parse().ok());
    let times: Vec<u64> = times.collect::<Option<_>>()?;
    (times.len() == FIELDS).then_some(times)
}
