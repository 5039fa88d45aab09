//! How the plan reads as text, with its verdict.

use std::fmt::Write as _;

use super::DurabilityPlan;
use super::check_by_simulation::{CheckedRow, RUNS, WITHIN};
use super::described_cluster::Keeping;
use super::model::LossForecast;

/// Nines by which one way may be behind another and still stand for it.
const SAME_NINES: f64 = 0.3;

/// The table, what it assumes, and the verdict on two replicas.
pub fn text(plan: &DurabilityPlan) -> String {
    let mut out = String::new();
    let cluster = &plan.cluster;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} nodes of {} disks in {}, {:.1} TB in use on each disk, a scrub each {:.0} days\n\n\
         kept     replicas        data TB  raw  rebuilt h  host h    nines  any loss    lost \
         a year    most by",
        cluster.nodes,
        cluster.disks,
        domains(cluster.domains),
        cluster.used_bytes / 1e12,
        cluster.scrub * 365.25,
    );
    for row in &plan.rows {
        let _ = writeln!(
            out,
            "{:8} {:12} {:10.0} {:4.2} {:10.1} {:7.1} {:>8} {:>9} {:>12}    {}",
            row.keeping.to_string(),
            place(row, cluster.domains),
            row.stored_bytes / 1e12,
            row.keeping.raw(),
            row.disk_hours,
            row.host_hours,
            nines(row),
            chance(row.any),
            bytes(row.lost_bytes),
            most_by(row),
        );
    }
    let _ = writeln!(
        out,
        "\nnines: of the durability of a byte over a year. any loss: chance that a year loses a \
         block.\nrebuilt h: hours until a dead disk's replicas are there again; host h: those of a \
         lost host."
    );
    down(plan, &mut out);
    out.push('\n');
    for row in &plan.disks_alone {
        let _ = writeln!(
            out,
            "When only disks and sectors fail, {:8} has {} nines.",
            row.keeping.to_string(),
            nines(row)
        );
    }
    verdict(plan, &mut out);
    out.push_str(ASSUMES);
    checked(&plan.checked, &mut out);
    out
}

const ASSUMES: &str = "\nThe formulas assume constant rates and replicas on nodes at random. \
    Disks of one age\nand make, which die together, and mistakes of people and programs are not in \
    them: they say\nwhat is possible, not what comes.\n";

fn domains(count: u32) -> String {
    match count {
        1 => "one failure domain".to_owned(),
        _ => format!("{count} failure domains"),
    }
}

fn place(row: &LossForecast, domains: u32) -> &'static str {
    match (domains, row.apart) {
        (1, _) => "one domain",
        (_, true) => "apart",
        (_, false) => "not told",
    }
}

fn nines(row: &LossForecast) -> String {
    row.nines
        .map_or("all".to_owned(), |nines| format!("{nines:.1}"))
}

fn chance(any: f64) -> String {
    match any {
        0.0 => "0".to_owned(),
        any if any >= 0.001 => format!("{:.1} %", any * 100.0),
        any => format!("{any:.0e}"),
    }
}

fn bytes(lost: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    match units.iter().find(|(unit, _)| lost >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", lost / unit),
        None if lost >= 1.0 => format!("{lost:.0} bytes"),
        None => "< 1 byte".to_owned(),
    }
}

fn most_by(row: &LossForecast) -> &'static str {
    let parts = [
        (row.one_by_one, "failures one by one"),
        (row.by_domain, "a lost domain"),
        (row.by_outage, "power cuts"),
    ];
    let most = parts.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    most.filter(|(part, _)| *part > 0.0)
        .map_or("nothing", |(_, name)| name)
}

fn down(plan: &DurabilityPlan, out: &mut String) {
    let untold = plan.rows.iter().filter(|row| row.unreadable > 0.0);
    for row in untold {
        let _ = writeln!(
            out,
            "While one domain is down, {:.1} % of the blocks kept as {} cannot be read ({}).",
            row.unreadable * 100.0,
            row.keeping,
            place(row, plan.cluster.domains),
        );
    }
}

/// Whether two replicas with parity do for three.
fn verdict(plan: &DurabilityPlan, out: &mut String) {
    let find = |rows: &[LossForecast], wanted: &dyn Fn(&Keeping) -> bool| {
        let mut found = rows.iter().filter(|row| row.apart && wanted(&row.keeping));
        found.next().cloned()
    };
    let three = |keeping: &Keeping| keeping.replicas == 3 && keeping.parity.is_none();
    let two = |keeping: &Keeping| keeping.replicas == 2 && keeping.parity.is_some();
    let of = |rows| Some((find(rows, &two)?, find(rows, &three)?));
    let (Some((two_all, three_all)), Some((two_disks, three_disks))) =
        (of(&plan.rows), of(&plan.disks_alone))
    else {
        return;
    };
    let behind = |two: &LossForecast, three: &LossForecast| {
        let nines = |row: &LossForecast| row.nines.unwrap_or(f64::INFINITY);
        nines(two) + SAME_NINES < nines(three)
    };
    let does = |behind: bool| if behind { "do not do" } else { "do" };
    let _ = writeln!(
        out,
        "\nVerdict: two replicas with parity ({}) {} for three against disks that die,\nand {} for \
         three in all: they lose {:.1e} of the data in a year, three replicas {:.1e}.",
        two_all.keeping,
        does(behind(&two_disks, &three_disks)),
        does(behind(&two_all, &three_all)),
        two_all.lost_share,
        three_all.lost_share,
    );
    if behind(&two_all, &three_all) && !behind(&two_disks, &three_disks) {
        let _ = writeln!(
            out,
            "Parity inside a node does not outlive the node: hosts that are lost with their \
             disks\nmake the difference."
        );
    }
}

fn checked(rows: &[CheckedRow], out: &mut String) {
    let Some(first) = rows.first() else {
        return;
    };
    let _ = writeln!(
        out,
        "\nThe formulas against the simulation: a small cluster with raised rates, {:.0} years in \
         {RUNS} runs,\nseeds {} to {}. A cell says: model, simulation with its 95 % interval.\n\
         kept     replicas           blocks lost a year                  events a year",
        first.years,
        first.seed,
        first.seed.wrapping_add(u64::from(RUNS) - 1),
    );
    let cell = |(model, counted, half): (f64, f64, f64)| {
        format!("{model:9.4}  {counted:9.4} +- {half:<7.4}")
    };
    for row in rows {
        let agrees = if row.agrees { "agrees" } else { "DISAGREES" };
        let _ = writeln!(
            out,
            "{:8} {:8} {}  {}  {agrees}",
            row.keeping.to_string(),
            if row.apart { "apart" } else { "not told" },
            cell(row.blocks),
            cell(row.events),
        );
    }
    let _ = writeln!(
        out,
        "agrees: the model's blocks lie in the interval, or miss it by at most {:.0} % of \
         themselves;\nits events are an upper bound, and at most twice those of the simulation.",
        WITHIN * 100.0
    );
}
