//! How the layouts read as text.

use std::fmt::Write as _;

use super::super::rules::BoundBy;
use super::layouts::{LayoutCost, NeededFor};
use super::prices::Prices;

/// What `plan durability` takes at most: disks of a node, and TB of a disk.
const DISKS_MAX: u32 = 512;
const DISK_TB_MAX: f64 = 1000.0;
/// The least that it takes on a disk, TB: one of its blocks, of 128 MiB.
const USED_TB_LEAST: f64 = 134_217_728.0 / 1e12;

/// What each layout needs, what it costs, and what `plan durability` can be asked about it.
pub fn text(prices: &Prices, rows: &[LayoutCost]) -> String {
    let want = &prices.want;
    // Writing to a string cannot fail.
    let mut out = format!(
        "{} hosts compute; files of {} TB and {} MB/s are wanted at least\n\n\
         layout          kept    hosts for        compute  disks for        usable TB    MB/s by\n",
        want.compute_hosts,
        want.usable_tb.get(),
        want.rate_mbs.get(),
    );
    for row in rows {
        let by = match row.rate_by {
            BoundBy::Links => "links",
            BoundBy::Disks => "disks",
        };
        let _ = writeln!(
            out,
            "{:15} {:6} {:6} {:8} {:9} {:6} {:8} {:11.1} {:7.0} {by}",
            name(row),
            row.keep.to_string(),
            row.hosts,
            purpose(row.hosts_for),
            row.compute_hosts,
            row.disks,
            purpose(row.disks_for),
            row.usable_tb,
            row.rate_mbs,
        );
    }
    out.push_str(
        "\nlayout               an hour      a month       a year   TB a month    watts  ratio\n",
    );
    for row in rows {
        let money = |price: f64| format!("{}{price:.2}", prices.currency);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(
            out,
            "{:15} {:>12} {:>12} {:>12} {:>12} {:>8} {:>6}",
            name(row),
            money(row.price_hour),
            money(row.price_month),
            money(row.price_year),
            money(row.price_tb_month),
            or_none(row.watts.map(|watts| format!("{watts:.0}"))),
            or_none(row.ratio.map(|ratio| format!("{ratio:.2}"))),
        );
    }
    out.push('\n');
    for row in rows.iter().skip(1) {
        compared(&rows[0], row, &mut out);
    }
    out.push_str(
        "for: what decides the number; count is the hosts that compute, hosts for replicas, or \
         the\ndisks that hosts have anyway. A month has 730 hours. What a year loses:\n",
    );
    for row in rows {
        durability(row, want.fill_percent.get(), &mut out);
    }
    out
}

fn name(row: &LayoutCost) -> &'static str {
    match row.layout {
        "local" => "local disks",
        "network" => "network disks",
        _ => "SuperDataNodes",
    }
}

fn purpose(needed: NeededFor) -> &'static str {
    match needed {
        NeededFor::Count => "count",
        NeededFor::Capacity => "capacity",
        NeededFor::Rate => "rate",
    }
}

fn compared(first: &LayoutCost, row: &LayoutCost, out: &mut String) {
    let (less, more) = if row.price_hour < first.price_hour {
        (row, first)
    } else {
        (first, row)
    };
    if more.price_hour > 0.0 {
        let percent = (1.0 - less.price_hour / more.price_hour) * 100.0;
        let (less, more) = (name(less), name(more));
        let _ = writeln!(out, "{less} cost {percent:.0} % less than {more}");
    }
}

/// The command that says what a year loses, where it takes such disks.
fn durability(row: &LayoutCost, fill: f64, out: &mut String) {
    let disks = row.disks / row.hosts.max(1);
    // As it is printed.
    let disk_tb = (row.disk_tb * 1000.0).round() / 1000.0;
    let taken = disk_tb <= DISK_TB_MAX && disk_tb * fill / 100.0 >= USED_TB_LEAST;
    if taken && (1..=DISKS_MAX).contains(&disks) {
        let _ = write!(
            out,
            "  hayloft plan durability --domains 1 --keep {} --nodes {} --disks {disks} \
             --capacity {disk_tb:.3} --fill {fill} --disk-rate {}",
            row.keep, row.hosts, row.disk_mbs
        );
        if let Some(link_mbs) = row.link_mbs {
            // In Gbit/s.
            let _ = write!(out, " --link {}", link_mbs * 8.0 / 1000.0);
        }
        out.push('\n');
    }
}
