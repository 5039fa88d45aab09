//! The published figures, made from one file of results: a part of docs/evaluate/benchmarks.md and
//! of README.md, and a page beside the file with every figure. `bench/targets.toml` names the file.

use super::cells::{Cells, JUDGED, ahead, better_stock};
use super::fair::limit::Lead;
use super::fair::origin;
use super::fair::signs;
use super::fair::spread::Spread;
use super::fair::stock::is_stock;
use super::figures::Figure;
use super::page;
use super::record::BenchRecord;
use super::results::PublishedRuns;
use super::rows::{BenchRow, Client};
use super::start;
use super::targets::{BenchTargets, PageSource, ReadmeRow};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::repository_root;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const BEGIN: &str =
    "<!-- made by `hayloft-lab bench --pages`: edit bench/targets.toml instead -->\n";
const END: &str = "<!-- end of what is made -->\n";
const PAGE: &str = "docs/evaluate/benchmarks.md";
const README: &str = "README.md";

/// Columns of a line, at most.
const COLUMNS: usize = 100;

/// A page of the repository with its part made anew.
#[derive(Debug)]
pub struct MadePage {
    /// Below the repository's root.
    pub path: PathBuf,
    /// What stands there.
    pub committed: String,
    /// What should.
    pub made: String,
}

/// Makes the pages from the results that `bench/targets.toml` names; writes nothing. How old the
/// results are is taken from git when the pages are made `anew`, else from the pages themselves.
///
/// # Errors
/// When a file cannot be read or a page has no place for its part.
pub fn make(anew: bool) -> Result<Vec<MadePage>> {
    let targets = BenchTargets::load()?;
    let root = repository_root();
    let results = root.join(&targets.page.results);
    let parts = targets.page.runs.iter();
    let parts = parts.map(|run| PublishedRuns::named(&format!("{}#{run}", results.display())));
    let parts = parts.collect::<Result<Vec<_>>>()?.into_iter().flatten();
    let record = super::results::joined(parts.map(|(_, record)| record))?;
    let cells = Cells::new(&record);
    type Make<'a> = &'a dyn Fn(&str, &str) -> Result<String>;
    let page = |path: PathBuf, made: Make<'_>| {
        let committed = match std::fs::read_to_string(root.join(&path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(TestkitError::file("reading", root.join(&path))),
        }?;
        let since = |commit: &str| match anew {
            true => origin::commits_since(commit),
            false => origin::recorded(&committed).get(commit).copied(),
        };
        let stands = record.origin.line(record.origin.signed().and_then(since));
        let made = made(&committed, &stands)?;
        Ok(MadePage {
            path,
            committed,
            made,
        })
    };
    Ok(vec![
        page(PAGE.into(), &|text, stands| {
            spliced(PAGE, text, &page_block(&cells, &targets.page, stands))
        })?,
        page(README.into(), &|text, stands| {
            spliced(README, text, &readme_block(&cells, &targets, stands))
        })?,
        page(targets.page.results.with_extension("md"), &|_, stands| {
            let whole = page::markdown(&record, &targets.targets, stands);
            Ok(format!("{BEGIN}\n{whole}"))
        })?,
    ])
}

/// Writes the pages that differ; what was done, in words.
///
/// # Errors
/// As [`make`], and when a page cannot be written.
pub fn write() -> Result<String> {
    let mut said = String::new();
    for page in make(true)? {
        let path = repository_root().join(&page.path);
        let changed = page.made != page.committed;
        if changed {
            std::fs::write(&path, page.made).map_err(TestkitError::file("writing", &path))?;
        }
        let what = if changed { "written" } else { "as it was" };
        let _ = writeln!(said, "{}: {what}", page.path.display());
    }
    Ok(said)
}

fn spliced(path: &str, text: &str, block: &str) -> Result<String> {
    let place = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let Some((before, after)) = place else {
        let problem = format!("{path} lacks its lines {BEGIN:?} and {END:?}: put them in again");
        return Err(TestkitError::Talk(problem));
    };
    Ok(format!("{before}{BEGIN}\n{block}\n{END}{after}"))
}

fn machine(record: &BenchRecord) -> String {
    let of = |name: &str| {
        record
            .origin
            .conditions
            .get(name)
            .map_or("?", String::as_str)
    };
    let (cores, memory, kernel) = (of("cores"), of("memory"), of("kernel"));
    format!("{cores} processors, {memory} of memory, {kernel}")
}

/// Where the data is from, machine, conditions and raw data; `results` is the way to the folder of
/// the results.
fn head(cells: &Cells<'_>, source: &PageSource, results: &str, stands: &str) -> String {
    let record = cells.record;
    let mut text = format!("{stands}\n\n| | |\n|---|---|\n");
    let _ = writeln!(text, "| machine | {} |", machine(record));
    for (name, value) in &record.origin.conditions {
        if !["cores", "memory", "kernel"].contains(&name.as_str()) {
            let _ = writeln!(text, "| {name} | {value} |");
        }
    }
    let runs = source.runs.join("`, `#");
    let name = source.results.file_name().unwrap_or_default().display();
    let _ = writeln!(
        text,
        "| data | {} MiB a row, {} rounds; every byte that is read is compared |\n\
         |raw data|[{name}]({results}{name}) `#{runs}`|\n",
        record.mib, record.rounds
    );
    let _ = writeln!(
        text,
        "Cells are medians (lowest-highest); Hayloft's engine is `{}`. The last column is \
         Hayloft's\nvalue as a share of the better stock setting's.\n{}",
        source.engine,
        Lead::MEANING,
    );
    if record.warm_ups.is_empty() {
        text.push_str("Rows of this run were not repeated until they were warm.\n");
    }
    text
}

/// A table of every row's main figure, and of all figures in which Hayloft is worse.
fn page_block(cells: &Cells<'_>, source: &PageSource, stands: &str) -> String {
    let folder = source.results.parent().map(Path::display);
    let folder = folder.map_or_else(String::new, |folder| format!("../../{folder}/"));
    let mut text = head(cells, source, &folder, stands);
    let whole = source.results.with_extension("md");
    let mut rows_text = String::new();
    let mut rows = cells.record.rows();
    rows.sort_by_key(|row| !row.1.is_of_users());
    for row in rows {
        let main = main_figure(row);
        let others = JUDGED.into_iter().filter(|&figure| figure != main);
        for figure in std::iter::once(main).chain(others) {
            let Some(lead) = ahead(cells, row, &source.engine, figure) else {
                continue;
            };
            if figure != main && lead >= 1.0 || !is_told(row, figure) {
                continue;
            }
            let stock = better_stock(cells, row, figure).unwrap_or_default();
            let cell = |peer| cells.text(row, peer, figure, Spread::text);
            let (name, heading) = (format!("{}/{}", row.0, row.1.name()), figure.heading());
            let (stock, own) = (cell(stock), cell(&source.engine));
            let share = cells.share(row, &source.engine, figure).unwrap_or_default();
            let limit = cells.limit(row, &source.engine).name();
            let _ = writeln!(
                rows_text,
                "|{name}|{heading}|{stock}|{own}|{share}|{limit}|"
            );
        }
    }
    let _ = write!(
        text,
        "Every row is here with its main figure, and every figure in which Hayloft is worse.\n\
         [All figures](../../{}).\n`stock` is the better of the stock node's settings. \
         The client `load` shows limits: no user has it.\n{}\n\
         |row|figure|stock|Hayloft|share|limit|\n|---|---|---|---|---|---|\n{rows_text}",
        whole.display(),
        signs::legend(&rows_text),
    );
    text
}

/// The figure that a row is about.
fn main_figure((name, client): (&str, Client)) -> Figure {
    let workload = BenchRow::named(name, client).map(|row| row.workload);
    match workload {
        Some(workload) if workload.counts_operations() => Figure::Ops,
        Some(workload) if workload.settles() => Figure::SettledRate,
        Some(_) => Figure::Rate,
        None if name == start::DELETE => Figure::Deleted,
        None => Figure::Reported, // Starts.
    }
}

/// How many bytes operations come to tells nothing.
fn is_told(row: (&str, Client), figure: Figure) -> bool {
    let by_bytes = [Figure::Rate, Figure::SettledRate].contains(&figure);
    !(by_bytes && main_figure(row) == Figure::Ops)
}

/// A row for people: what is done, and by whom.
fn row_name((workload, client): (&str, Client)) -> String {
    let about = BenchRow::named(workload, client).map(|row| row.workload.about());
    format!(
        "{}, {}",
        about.as_deref().unwrap_or(workload),
        client.name()
    )
}

fn readme_block(cells: &Cells<'_>, targets: &BenchTargets, stands: &str) -> String {
    let engine = &targets.page.engine;
    let mut text = String::from("||stock|Hayloft|\n|---|---|---|\n");
    for row in &targets.readme {
        if let Some((stock, own)) = readme_cells(cells, engine, row) {
            let _ = writeln!(text, "|{}|{stock}|{own}|", row.name);
        }
    }
    if let Some((row, figure, ahead)) = worst(cells, engine) {
        let stock = better_stock(cells, row, figure).unwrap_or_default();
        let median = |peer| cells.text(row, peer, figure, Spread::median_text);
        let what = if ahead < 1.0 {
            "we lose"
        } else {
            "least ahead"
        };
        let heading = figure.heading();
        let (stock, own) = (median(stock), median(engine));
        let line = |name| format!("|**{what}:** {name}, {heading}|{stock}|{own}|");
        let (short, long) = (format!("{}/{}", row.0, row.1.name()), row_name(row));
        let long = line(long);
        let fits = long.chars().count() <= COLUMNS;
        let _ = writeln!(text, "{}", if fits { long } else { line(short) });
    }
    let _ = writeln!(
        text,
        "\n{}, one disk; Hadoop's Java client unless a row says\notherwise. `stock` is the better \
         of the stock node's settings in each row.",
        machine(cells.record),
    );
    text += &signs::legend(&text);
    let _ = writeln!(text, "{stands}");
    text
}

/// Both cells of a row that was measured.
fn readme_cells(cells: &Cells<'_>, engine: &str, row: &ReadmeRow) -> Option<(String, String)> {
    let figure = row.figure;
    if let (Some(workload), Some(client)) = (&row.row, row.client) {
        let row = (workload.as_str(), client);
        let stock = better_stock(cells, row, figure)?;
        let median = |peer| cells.text(row, peer, figure, Spread::median_text);
        let own = median(engine);
        return (!own.is_empty()).then(|| (median(stock), own));
    }
    // The setting of the stock node that does best, by its name.
    let most = |peer: &str| {
        let of_peer = cells.record.samples.iter().filter(|s| s.peer == peer);
        let values = of_peer.filter_map(|sample| sample.figures.get(&figure));
        values.copied().reduce(f64::max)
    };
    let text = |most: f64| Some(Spread::of(vec![most])?.median_text());
    let stock = cells.record.peers.iter().filter(|peer| is_stock(peer));
    let least = stock.filter_map(|peer| Some((most(peer)?, peer)));
    let (least, setting) = least.min_by(|one, other| one.0.total_cmp(&other.0))?;
    Some((
        format!("{} (`{setting}`)", text(least)?),
        text(most(engine)?)?,
    ))
}

type WorstRow<'a> = ((&'a str, Client), Figure, f64);

/// The row and figure in which Hayloft is the furthest behind stock, with any client.
fn worst<'a>(cells: &Cells<'a>, engine: &str) -> Option<WorstRow<'a>> {
    let rows = cells.record.rows().into_iter();
    let leads = rows.flat_map(|row| {
        let judged = JUDGED.into_iter();
        judged.filter_map(move |figure| Some((row, figure, ahead(cells, row, engine, figure)?)))
    });
    leads.min_by(|one, other| one.2.total_cmp(&other.2))
}

#[cfg(test)]
mod tests {
    use super::super::fair::origin::DataOrigin;
    use super::*;

    #[test]
    fn the_committed_pages_are_what_the_committed_results_make() {
        // As `hayloft-lab bench --pages`, without the program.
        if std::env::var_os("HAYLOFT_BLESS").is_some() {
            write().expect("the pages can be written");
        }
        for page in make(false).expect("the pages can be made") {
            assert!(
                page.made == page.committed,
                "{} is not what bench/targets.toml and the results make: run `hayloft-lab bench \
                    --pages`\n{}",
                page.path.display(),
                page.made
            );
        }
    }

    /// The results that the pages are made from.
    fn shown() -> DataOrigin {
        let targets = BenchTargets::load().expect("the targets can be read");
        let results = repository_root().join(&targets.page.results);
        let run = format!("{}#{}", results.display(), targets.page.runs[0]);
        let mut runs = PublishedRuns::named(&run).expect("the run is there");
        runs.remove(0).1.origin
    }

    #[test]
    fn no_page_passes_for_a_result_that_is_not_signed_or_is_old() {
        let origin = shown();
        let now = origin.signed().and_then(origin::commits_since);
        for page in make(false).expect("the pages can be made") {
            let fault = origin.fault_of(&page.committed, now);
            assert_eq!(fault, None, "{}", page.path.display());
        }
    }

    #[test]
    fn a_page_without_a_place_is_named() {
        let error = spliced("x.md", "text\n", "block")
            .expect_err("no place")
            .to_string();
        assert!(
            error.contains("x.md") && error.contains("put them in"),
            "{error}"
        );
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        let made = spliced("x.md", &page, "new").expect("there is one");
        assert_eq!(made, format!("a\n{BEGIN}\nnew\n{END}b\n"));
    }
}
