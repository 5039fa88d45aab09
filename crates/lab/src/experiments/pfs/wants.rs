//! What was asked of `pfs://`.

use super::jobs;
use super::layouts::{COPIES, FILES, FOUR_STREAMS, MEMORY, ONE_STREAM, READ, SERVERS, WRITE};
use super::reads::{BUFFERED, BUFFERED_DIRECT, FILE, FILE_DIRECT, LINKS, PREADS, SIZES};
use crate::runner::OURS;
use crate::runner::table::{Bar, Pick, WantedRatio, pick};

/// The better of the stock settings, and ours.
const HDFS: [&str; 2] = ["stock", OURS];

/// Everything.
pub(super) fn all() -> Vec<WantedRatio> {
    [of_reads(), of_layouts(), of_jobs()].concat()
}

fn want(text: String, (of, over): (Pick, Pick), bar: Bar) -> WantedRatio {
    WantedRatio {
        text,
        of,
        over,
        bar,
    }
}

fn of_reads() -> Vec<WantedRatio> {
    let mut wants = Vec::new();
    for (figure, _) in LINKS {
        let of = |way: &str, what: &str| pick(figure, "2", way, what, "mbs");
        for (_, size) in &SIZES[1..] {
            let both = (of(BUFFERED, SIZES[0].1), of(BUFFERED, size));
            wants.push(want(
                format!("{figure}: 4 KiB reads to {size}"),
                both,
                Bar::Least(0.9),
            ));
        }
        for (ours, theirs) in [(BUFFERED, FILE), (BUFFERED_DIRECT, FILE_DIRECT)] {
            let cold = SIZES.map(|(_, size)| (size, 1.3));
            for (what, least) in cold.into_iter().chain([(PREADS, 1.0)]) {
                let text = format!("{figure}: cold reads of {what} to {theirs}");
                wants.push(want(
                    text,
                    (of(ours, what), of(theirs, what)),
                    Bar::Least(least),
                ));
            }
        }
    }
    wants
}

fn of_layouts() -> Vec<WantedRatio> {
    let mut wants = Vec::new();
    let of =
        |servers: usize, way: &str, what: &str| pick(FILES, &servers.to_string(), way, what, "mbs");
    // With as many copies as servers every layout is the same.
    for servers in SERVERS.into_iter().filter(|servers| *servers > COPIES) {
        for (what, least) in [(WRITE, 1.15), (READ, 1.5)] {
            let text = format!("{what}, hybrid to round-robin, {servers} servers");
            let both = (
                of(servers, "hybrid", what),
                of(servers, "round-robin", what),
            );
            wants.push(want(text, both, Bar::Least(least)));
        }
        for what in [WRITE, READ] {
            #[expect(clippy::cast_precision_loss, reason = "a few servers")]
            let linear = servers as f64 / SERVERS[0] as f64;
            let text = format!("{what}, hybrid, {servers} servers to {}", SERVERS[0]);
            let both = (of(servers, "hybrid", what), of(SERVERS[0], "hybrid", what));
            wants.push(want(text, both, Bar::Least(0.9 * linear)));
        }
    }
    for hdfs in HDFS {
        for what in [ONE_STREAM, FOUR_STREAMS] {
            let of = |way| pick(MEMORY, "4", way, what, "mbs");
            let text = format!("memory: {what}, hybrid to {hdfs}");
            wants.push(want(text, (of("hybrid"), of(hdfs)), Bar::Least(0.8)));
        }
    }
    wants
}

fn of_jobs() -> Vec<WantedRatio> {
    let of = |way: &str, job: &str, figure| pick(jobs::PART, "", way, job, figure);
    let mut wants = Vec::new();
    for job in ["write", "read", jobs::GREP, "sort"] {
        for hdfs in HDFS {
            let most = if job == jobs::GREP { 1.05 } else { 1.1 };
            let both = (of(jobs::BOTH, job, "seconds"), of(hdfs, job, "seconds"));
            wants.push(want(
                format!("{job}, time of pfs:// to {hdfs}"),
                both,
                Bar::Most(most),
            ));
        }
        let both = (
            of(jobs::BOTH, job, "maps_local"),
            of(jobs::BOTH, job, "maps"),
        );
        let text = format!("{job}, map tasks of pfs:// beside their data");
        wants.push(want(text, both, Bar::Least(0.9)));
    }
    let grep = |way| of(way, jobs::GREP, "seconds");
    let both = (grep(jobs::NEITHER), grep(jobs::BOTH));
    wants.push(want(
        "grep, time of neither module to both".into(),
        both,
        Bar::Least(5.0),
    ));
    wants
}

#[cfg(test)]
mod tests {
    use super::super::PFS;
    use super::*;
    use crate::runner::page::ExperimentPage;
    use crate::runner::record::{PeerFigures, PeerSample, Record};

    fn judged(samples: Vec<PeerSample>) -> Vec<String> {
        let record = Record::signed(samples);
        let text = ExperimentPage::new(&PFS.shown, &record).body(2);
        text.lines()
            .filter(|line| line.contains("(asked: "))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_bar_is_judged_when_both_of_its_rows_are_there() {
        let of = |part, row, way, what, mbs| {
            PeerSample::first((part, row, way, what), PeerFigures::of([("mbs", mbs)]))
        };
        let figure = LINKS[0].0;
        let said = judged(vec![
            of(FILES, "6", "hybrid", WRITE, 23.0),
            of(FILES, "6", "round-robin", WRITE, 20.0),
            of(FILES, "4", "hybrid", WRITE, 20.0),
            of(figure, "2", BUFFERED, "4 KiB", 80.0),
            of(figure, "2", BUFFERED, "1 MiB", 100.0),
            of(figure, "2", BUFFERED_DIRECT, "4 KiB", 130.0),
            of(figure, "2", FILE_DIRECT, "4 KiB", 50.0),
        ]);
        let wanted = [
            "- 4, 1 Gbit/s: 4 KiB reads to 1 MiB: 0.80 (asked: at least 0.90): NOT met",
            "- 4, 1 Gbit/s: cold reads of 4 KiB to file://, direct mount: 2.60 (asked: at least \
             1.30): met",
            "- write, hybrid to round-robin, 6 servers: 1.15 (asked: at least 1.15): met",
        ];
        assert_eq!(said, wanted);
    }

    #[test]
    fn a_job_is_compared_with_both_kinds_of_nodes() {
        let of = |way, seconds, local| {
            let figures = [("seconds", seconds), ("maps_local", local), ("maps", 8.0)];
            PeerSample::first((jobs::PART, "", way, jobs::GREP), PeerFigures::of(figures))
        };
        let said = judged(vec![
            of(jobs::BOTH, 10.0, 8.0),
            of("stock-sync", 10.0, 8.0),
            of(OURS, 9.0, 8.0),
            of(jobs::NEITHER, 55.0, 0.0),
        ]);
        let met: Vec<bool> = said.iter().map(|line| !line.contains("NOT")).collect();
        assert_eq!(met, [true, false, true, true], "{said:?}");
    }
}
