//! Limits of processes, control groups and logins.

use std::path::Path;

use hayloft_console::size;

use crate::facts::Facts;
use crate::finding::{Verdicts, count};
use crate::seen::number;

/// Descriptors that a node with many blocks and clients uses, and below which it fails soon.
const OPEN_FILES: (u64, u64) = (32_768, 4_096);
/// Memory below which the page cache of a group has no room, bytes.
const MEMORY: i64 = 4 << 30;
/// Capabilities that lift the limit on a user's threads: SYS_ADMIN and SYS_RESOURCE.
const LIFTING: u64 = 1 << 21 | 1 << 24;
/// Users below this number are the system's: they do not log in.
const FIRST_USER: u32 = 1000;

/// The hard limit, `None` for none. Nodes raise the soft one to it.
fn hard_limit(limits: &str, name: &str) -> Option<Result<u64, String>> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name));
    let Some(line) = line else {
        return Some(Err(format!("/proc has no {name}")));
    };
    match line.split_whitespace().nth(1) {
        Some("unlimited") => None,
        text => Some(
            text.and_then(|text| text.parse().ok())
                .ok_or_else(|| line.to_owned()),
        ),
    }
}

pub fn open_files(facts: &Facts, out: &mut Verdicts) {
    let whose = &facts.host.whose;
    let limits = match facts.host.texts.want("limits") {
        Ok(limits) => limits,
        Err(why) => return out.unseen("host", &why),
    };
    match hard_limit(limits, "Max open files") {
        Some(Ok(limit)) if limit < OPEN_FILES.0 => {
            let files = count(limit, "file", "files");
            let seen = format!("{whose} may open {files} at most");
            let effect = "each client and each open block takes some: at the limit connections \
                are refused";
            let mend = "LimitNOFILE=1048576 in the unit, or hdfs - nofile 1048576 in \
                /etc/security/limits.d";
            match limit < OPEN_FILES.1 {
                true => out.bad("host", [&seen, effect, mend]),
                false => out.slow("host", [&seen, effect, mend]),
            }
        }
        Some(Err(why)) => out.unseen("host", &why),
        _ => {}
    }
    let most = facts.host.texts.number("/proc/sys/fs/file-max");
    let open = facts.host.texts.get("/proc/sys/fs/file-nr");
    let open = open.and_then(|text| number(text.split_whitespace().next()?));
    if let (Some(most), Some(open)) = (most, open)
        && open > most / 10 * 9
    {
        let seen = format!("the host has {open} files open, of {most}");
        let effect = "no program can open more";
        out.bad(
            "host",
            [&seen, effect, "sysctl fs.file-max=9223372036854775807"],
        );
    }
}

pub fn locked_memory(facts: &Facts, out: &mut Verdicts) {
    let wanted = facts.subject.locked_bytes;
    if wanted == 0 {
        return;
    }
    let limits = match facts.host.texts.want("limits") {
        Ok(limits) => limits,
        Err(why) => return out.unseen("host", &why),
    };
    match hard_limit(limits, "Max locked memory") {
        Some(Ok(limit)) if limit < wanted => {
            let seen = format!(
                "dfs.datanode.max.locked.memory is {}, and {} may lock {}",
                size::show(wanted),
                facts.host.whose,
                size::show(limit)
            );
            let effect = "the node does not start, and nor does Apache's";
            let mend = "LimitMEMLOCK=infinity in the unit, or hdfs - memlock unlimited in \
                /etc/security/limits.d";
            out.bad("host", [&seen, effect, mend]);
        }
        Some(Err(why)) => out.unseen("host", &why),
        _ => {}
    }
}

pub fn threads(facts: &Facts, out: &mut Verdicts) {
    // Those that the process has already are not missing.
    let status = facts.host.texts.get("status").unwrap_or_default();
    let of_status = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let has = of_status("Threads:").and_then(number).unwrap_or(0);
    let groups = &facts.host.groups;
    for (file, text) in groups.all() {
        if let (Some(group), Some(limit)) = (file.strip_suffix("/pids.max"), number(text)) {
            let taken = groups.number(&format!("{group}/pids.current")).unwrap_or(0);
            let mend = "TasksMax=infinity in the unit, --pids-limit of the container, or raise \
                pids.max of the group";
            few_threads(
                facts,
                group,
                ("pids.max", limit, limit - taken + has),
                mend,
                out,
            );
        }
    }
    let lifted = of_status("CapEff:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    if of_status("Uid:") == Some("0") || lifted.is_some_and(|mask| mask & LIFTING != 0) {
        return;
    }
    let limits = facts.host.texts.get("limits").unwrap_or_default();
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max processes"));
    let soft = soft.and_then(|line| number(line.split_whitespace().next()?));
    if let Some(limit) = soft {
        let mend = "LimitNPROC=infinity in the unit, or hdfs - nproc unlimited in \
            /etc/security/limits.d";
        few_threads(facts, "host", ("RLIMIT_NPROC", limit, limit), mend, out);
    }
}

/// Judges a limit on threads, and how many of it are left.
fn few_threads(
    facts: &Facts,
    place: &str,
    (name, limit, left): (&str, i64, i64),
    mend: &str,
    out: &mut Verdicts,
) {
    let (fewest, most) = facts.subject.threads;
    let left = usize::try_from(left).unwrap_or(0);
    let seen = format!(
        "{name} is {limit}, with {} left for {}, and the node wants {fewest} to {most}",
        count(left, "thread", "threads"),
        facts.host.whose
    );
    if left < fewest {
        out.bad(place, [&seen, "the node does not start", mend]);
    } else if left < most {
        let effect = "under load work waits for threads, and clients are refused";
        out.slow(place, [&seen, effect, mend]);
    }
}

pub fn groups(facts: &Facts, out: &mut Verdicts) {
    for (file, text) in facts.host.groups.all() {
        let file = Path::new(file);
        let group = file.parent().unwrap_or(file).display().to_string();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let limit = number(text).filter(|limit| *limit > 0);
        let limit_and_effect = match &*name {
            "cpu.max" | "cpu.cfs_quota_us" => {
                share_of_processors(facts, &group, text).map(|share| {
                    let effect =
                        "the node stands still for the rest of each period, heartbeats too";
                    (share, effect)
                })
            }
            "memory.max" | "memory.high" | "memory.limit_in_bytes" => {
                limit.filter(|limit| *limit < MEMORY).map(|limit| {
                    let effect = "the page cache counts: written blocks are pushed out at once, \
                        and at the limit the node is killed";
                    let limit = size::show(u64::try_from(limit).unwrap_or(0));
                    (format!("{limit} of memory"), effect)
                })
            }
            name if name == "io.max" || name.starts_with("blkio.throttle.") => {
                let lines: Vec<&str> = text.lines().filter(|line| line.contains(' ')).collect();
                let limit = format!("{name} {}", lines.join("; "));
                (!lines.is_empty()).then_some((limit, "its disks give no more than that"))
            }
            _ => None,
        };
        if let Some((limit, effect)) = limit_and_effect {
            let seen = format!("{} are limited to {limit}", facts.host.whose);
            let mend = format!("raise {name} of the group, or the limit in the unit or container");
            out.slow(&group, [&seen, effect, &mend]);
        }
    }
}

/// The processors that a group has, where it does not have all.
fn share_of_processors(facts: &Facts, group: &str, text: &str) -> Option<String> {
    let online = facts.host.texts.get("/sys/devices/system/cpu/online");
    let processors = online.map_or(1, count_of_list);
    let mut words = text.split_whitespace();
    let quota = words.next().and_then(number).filter(|quota| *quota > 0)?;
    let period = match words.next() {
        Some(period) => number(period),
        None => facts
            .host
            .groups
            .number(&format!("{group}/cpu.cfs_period_us")),
    };
    let hundredths = quota.saturating_mul(100) / period.filter(|period| *period > 0)?;
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    (whole < processors).then(|| format!("{whole}.{rest:02} of {processors} processors"))
}

/// How many numbers a list such as `0-3,8` has.
fn count_of_list(list: &str) -> i64 {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(number(to)? - number(from)? + 1)
    };
    list.split(',').filter_map(range).sum()
}

pub fn remove_ipc(facts: &Facts, out: &mut Verdicts) {
    let Some(conf) = &facts.host.remove_ipc else {
        return;
    };
    let Some(conf) = out.look("host", conf) else {
        return;
    };
    let mut said = conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("RemoveIPC="));
    let off = said.next_back().is_some_and(|value| {
        ["no", "false", "off", "0"].contains(&&*value.trim().to_ascii_lowercase())
    });
    if off {
        return;
    }
    // Users of the system are spared.
    for of in facts.seen() {
        let owner = of
            .folder
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(|folder| folder.uid);
        if let Some(uid) = owner.filter(|uid| *uid >= FIRST_USER) {
            let seen =
                format!("the directory's owner {uid} is no system user, and RemoveIPC is on");
            let effect = "when that user logs out, shared memory is removed under the node: \
                clients that read past it fail";
            let mend = "RemoveIPC=no in /etc/systemd/logind.conf, then systemctl restart \
                systemd-logind";
            out.slow(&of.place(), [&seen, effect, mend]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_limits_of_the_kernel() {
        assert_eq!((count_of_list("0-3,8"), count_of_list("0")), (5, 1));
        let limits = "Max open files            1024                 524288               files\n\
            Max locked memory         unlimited            unlimited            bytes";
        assert_eq!(hard_limit(limits, "Max open files"), Some(Ok(524_288)));
        assert_eq!(hard_limit(limits, "Max locked memory"), None);
        assert!(matches!(hard_limit(limits, "Max nice"), Some(Err(_))));
    }
}
