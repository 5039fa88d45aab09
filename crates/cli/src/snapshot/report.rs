//! What the commands print.

use std::process::ExitCode;

use hayloft_console::size;
use hayloft_snapshot::{
    CreateReport, PruneReport, RestoreReport, SnapshotListed, Target, VerifyReport,
};

use crate::error::{CliError, FINDING};
use crate::json::print_json;

fn code(findings: u64) -> ExitCode {
    match findings {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(FINDING),
    }
}

/// The problems that a report names, and how many more there are.
fn warn(problems: &[String], count: u64) {
    for problem in problems {
        eprintln!("hayloft: {problem}");
    }
    let more = count.saturating_sub(problems.len() as u64);
    if more > 0 {
        eprintln!("hayloft: and {more} more");
    }
}

/// What `create` did.
pub fn created(
    target: &Target,
    reports: &[CreateReport],
    json: bool,
) -> Result<ExitCode, CliError> {
    if json {
        print_json(&reports)?;
    }
    for report in reports {
        if !json {
            println!("{} in {target}, node {}", report.snapshot, report.node);
            println!(
                "  {} replicas, {}; written now: {} replicas, {}",
                report.replicas,
                size::show(report.bytes),
                report.uploaded_replicas,
                size::show(report.uploaded_bytes)
            );
            if report.changed > 0 {
                println!(
                    "  changed meanwhile, and left to the next one: {}",
                    report.changed
                );
            }
        }
        warn(&report.problems, report.damaged);
    }
    Ok(code(reports.iter().map(|report| report.damaged).sum()))
}

/// How long ago something was, for people.
fn ago(now_ms: u64, then_ms: u64) -> String {
    let minutes = now_ms.saturating_sub(then_ms) / 60_000;
    match minutes {
        0..=119 => format!("{minutes} min ago"),
        120..=2879 => format!("{} h ago", minutes / 60),
        _ => format!("{} days ago", minutes / 1440),
    }
}

/// What `list` found.
pub fn listed(
    target: &Target,
    listed: &[SnapshotListed],
    now_ms: u64,
    json: bool,
) -> Result<ExitCode, CliError> {
    if json {
        print_json(&listed)?;
    } else if listed.is_empty() {
        println!("no snapshots in {target}");
    }
    let mut node = "";
    for one in listed {
        if !json && node != one.node {
            println!("node {} of cluster {}", one.node, one.cluster_id);
            node = &one.node;
        }
        match &one.problem {
            Some(problem) => eprintln!("hayloft: {} cannot be used: {problem}", one.name),
            None if json => {}
            None => println!(
                "  {}  {:>12}  {:>9} replicas  {:>10}  taken on {}",
                one.name,
                ago(now_ms, one.taken_ms),
                one.replicas,
                size::show(one.bytes),
                one.host
            ),
        }
    }
    Ok(code(
        listed.iter().filter(|one| one.problem.is_some()).count() as u64,
    ))
}

/// What `verify` found.
pub fn verified(report: &VerifyReport, quick: bool, json: bool) -> Result<ExitCode, CliError> {
    if json {
        print_json(report)?;
    } else {
        let how = match quick {
            true => "names and lengths compared, no block read",
            false => "all bytes compared",
        };
        println!(
            "{} of node {}, cluster {}: {how}",
            report.snapshot, report.node, report.cluster_id
        );
        println!(
            "  {} replicas, {}; missing or altered: {}",
            report.replicas,
            size::show(report.bytes),
            report.broken
        );
    }
    warn(&report.problems, report.broken);
    if let Some(advice) = report.advice() {
        eprintln!("hayloft: {advice}");
    }
    Ok(code(report.broken))
}

/// What `restore` did.
pub fn restored(report: &RestoreReport, json: bool) -> Result<ExitCode, CliError> {
    if json {
        print_json(report)?;
    } else {
        println!(
            "{} of node {}, now node {} of cluster {}",
            report.snapshot, report.node, report.identity, report.cluster_id
        );
        println!(
            "  {} replicas: put back {} ({}), there already {}, missing or altered {}",
            report.replicas,
            report.restored_replicas,
            size::show(report.restored_bytes),
            report.there_already,
            report.broken
        );
        if report.other_type > 0 {
            println!(
                "  on a storage of another type than before: {}",
                report.other_type
            );
        }
    }
    warn(&report.problems, report.broken);
    Ok(code(report.broken))
}

/// What `prune` did, or would.
pub fn pruned(reports: &[PruneReport], json: bool) -> Result<ExitCode, CliError> {
    let left_out = reports.iter().filter_map(|report| report.problem.as_ref());
    let left_out: Vec<String> = left_out.cloned().collect();
    let code = code(left_out.len() as u64);
    warn(&left_out, left_out.len() as u64);
    if json {
        print_json(&reports)?;
        return Ok(code);
    }
    for report in reports.iter().filter(|report| report.problem.is_none()) {
        let what = if report.removed {
            "removed"
        } else {
            "would go"
        };
        println!(
            "node {}: {} snapshots stay; {what}: {} snapshots, {} objects, {}",
            report.node,
            report.kept.len(),
            report.pruned.len(),
            report.objects,
            size::show(report.bytes)
        );
        for name in &report.pruned {
            println!("  {name}");
        }
        if !report.removed && report.objects + report.pruned.len() as u64 > 0 {
            println!("nothing was removed: --yes does that");
        }
    }
    Ok(code)
}
