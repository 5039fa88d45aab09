//! A plan, and how it reads as text.

use std::fmt::Write as _;

use hayloft_console::size;
use hayloft_io::Media;
use serde::Serialize;

use super::disks::PlannedDisk;
use super::rules::{Assumptions, BoundBy, LinkPlan, Links};

/// Everything that is reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuperPlan {
    /// Disks of the SuperDataNode.
    pub disks: u64,
    /// Bytes a second that one moves on average.
    pub disk_bytes_s: u64,
    /// The calibrated disks that this is the mean of; empty when the rate was typed.
    pub calibrated: Vec<PlannedDisk>,
    /// Share of the bytes that is read, per cent.
    pub read_percent: u32,
    /// What the rules assume.
    pub assumptions: Assumptions,
    /// What follows, for each choice of links.
    pub links: Vec<LinkPlan>,
}

/// The disks, the table of links, and how to read it.
pub fn text(plan: &SuperPlan) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    if !plan.calibrated.is_empty() {
        let _ = writeln!(
            out,
            "Calibrated disks, MB/s in runs of their quantum ({} % reads)\n\
             device      media       quantum      read     write   on average",
            plan.read_percent
        );
    }
    for disk in &plan.calibrated {
        let media = match disk.media {
            Media::Rotating => "rotating",
            Media::Flash => "flash",
        };
        let _ = writeln!(
            out,
            "{:11} {media:9} {:>9} {:9.1} {:9.1} {:>12}",
            disk.device,
            size::show(disk.quantum_bytes),
            disk.read_bytes_s / 1e6,
            disk.write_bytes_s / 1e6,
            megabytes_s(disk.bytes_s),
        );
    }
    let _ = writeln!(
        out,
        "{} disks of {} MB/s, together {} MB/s\n\n\
         links       MB/s  disks a link  disks  in a pool  workers     served  bound by",
        plan.disks,
        megabytes_s(plan.disk_bytes_s),
        megabytes_s(plan.disk_bytes_s.saturating_mul(plan.disks)),
    );
    for row in &plan.links {
        let bound = match row.bound_by {
            BoundBy::Links => "links",
            BoundBy::Disks => "disks",
        };
        let _ = writeln!(
            out,
            "{:9} {:>6} {:13} {:6} {:10} {:>8} {:>10}  {bound}",
            row.links.name(),
            megabytes_s(row.links_bytes_s),
            row.disks_per_link,
            row.disks,
            row.disks_pooled,
            workers(row.workers),
            megabytes_s(row.served_bytes_s),
        );
    }
    explain(plan, &mut out);
    out
}

fn explain(plan: &SuperPlan, out: &mut String) {
    let assume = &plan.assumptions;
    let (least, most) = assume.disks_per_worker;
    let _ = writeln!(
        out,
        "\ndisks: what the links feed when each has disks of its own; in a pool: when all links \
         reach all disks.\nDisks beyond that add room, not speed. A worker keeps {least} to {most} \
         disks busy; {} % of a link's bits are data.",
        assume.link_use_percent
    );
    if assume.oversubscription > 1 {
        let _ = writeln!(
            out,
            "For an archive: {} workers where the bandwidth is enough for one at full speed.",
            assume.oversubscription
        );
    }
    let needed = plan
        .links
        .iter()
        .filter(|row| row.bound_by == BoundBy::Links);
    for row in needed.take(1) {
        let one = Links {
            count: 1,
            ..row.links
        };
        let _ = writeln!(
            out,
            "All {} disks at full speed need {} links of {}.",
            plan.disks,
            row.links_for_all_disks,
            one.name()
        );
    }
    let slower = |row: &&LinkPlan| row.disks_per_link == 0;
    if let Some(row) = plan.links.iter().find(slower) {
        let _ = writeln!(
            out,
            "One disk is faster than a link of {}: a single stream is bound by the link.",
            Links {
                count: 1,
                ..row.links
            }
            .name()
        );
    }
}

fn workers((fewest, most): (u64, u64)) -> String {
    if most == 0 {
        "< 1".to_owned()
    } else if fewest.max(1) == most {
        most.to_string()
    } else {
        format!("{}-{most}", fewest.max(1))
    }
}

/// Bytes a second as MB/s, a decimal where it tells something.
fn megabytes_s(bytes_s: u64) -> String {
    let tenths = bytes_s.saturating_add(50_000) / 100_000;
    if tenths.is_multiple_of(10) || tenths >= 10_000 {
        (tenths / 10).to_string()
    } else {
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_workers_for_people() {
        assert_eq!(megabytes_s(100_000_000), "100");
        assert_eq!(megabytes_s(83_360_000), "83.4");
        assert_eq!(megabytes_s(1_234_560_000), "1234");
        assert_eq!(workers((10, 20)), "10-20");
        assert_eq!(
            (workers((0, 0)), workers((0, 1))),
            ("< 1".into(), "1".into())
        );
    }
}
