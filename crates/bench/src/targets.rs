//! `bench/targets.toml`: what Hayloft is to reach, and what the published pages show.

use super::figures::Figure;
use super::limits;
use super::peers;
use super::rows::{BenchRow, Client};
use hayloft_testkit::error::{Result, TestkitError};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Rows of the README's table, at most.
const README_ROWS: usize = 8;

/// The file, checked.
#[derive(Debug)]
pub struct BenchTargets {
    /// What the pages are made from.
    pub page: PageSource,
    /// Rows of the README's table.
    pub readme: Vec<ReadmeRow>,
    /// The targets.
    pub targets: Vec<BenchTarget>,
}

/// Where the published figures are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSource {
    /// A file of published runs, below the repository's root.
    pub results: PathBuf,
    /// The run, or its parts: of a row in several the last one counts.
    pub runs: Vec<String>,
    /// The engine that stands for Hayloft.
    pub engine: String,
}

/// A row of the README's table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadmeRow {
    /// What the reader sees.
    pub name: String,
    /// The workload; without one, the largest value of all rows.
    pub row: Option<String>,
    /// The client; none without a workload.
    pub client: Option<Client>,
    /// The figure.
    pub figure: Figure,
}

/// What a value is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// Another peer in the same row.
    Peer(String),
    /// Another row of the same peer and client.
    Row(String),
    /// What another row of the same peer and client has: the difference is judged.
    Above(String),
    /// What the hardware gives without a node.
    Limit(String),
    /// Nothing: the value itself is judged.
    Value,
}

/// At least or at most so much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Want {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
}

/// One target.
#[derive(Clone, Debug)]
pub struct BenchTarget {
    /// Whether it is for modelled disks, else for real ones.
    pub modelled: bool,
    /// The workload.
    pub row: String,
    /// Who may do it.
    pub clients: Vec<Client>,
    /// What is compared.
    pub figure: Figure,
    /// With what.
    pub against: Against,
    /// What is wanted.
    pub want: Want,
    /// The one peer that is judged, or each engine that keeps data.
    pub only: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetsFile {
    page: PageSource,
    readme: Vec<ReadmeRow>,
    target: Vec<WrittenTarget>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTarget {
    #[serde(default)]
    disk: TargetDisk,
    row: String,
    clients: Vec<Client>,
    figure: Figure,
    against: Option<String>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    only: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TargetDisk {
    #[default]
    Real,
    Modelled,
}

impl BenchTargets {
    /// The repository's own.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and when the file cannot be read.
    pub fn load() -> Result<Self> {
        let file = hayloft_testkit::hadoop::repository_root().join("bench/targets.toml");
        let text = std::fs::read_to_string(&file).map_err(TestkitError::file("reading", &file))?;
        Self::parse(&text, &file)
    }

    /// Reads the text of `file`.
    ///
    /// # Errors
    /// [`TestkitError::Talk`] that names the file, the entry, and what may stand there.
    pub fn parse(text: &str, file: &Path) -> Result<Self> {
        let wrong = |what: String| TestkitError::Talk(format!("{}: {what}", file.display()));
        let read: TargetsFile = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if read.page.runs.is_empty() {
            return Err(wrong("[page]: runs names no run".into()));
        }
        known_peer(&read.page.engine).map_err(|e| wrong(format!("[page]: engine: {e}")))?;
        if read.readme.len() > README_ROWS {
            let has = read.readme.len();
            let problem = format!("{has} entries of [[readme]], at most {README_ROWS} are shown");
            return Err(wrong(problem));
        }
        for row in &read.readme {
            let outcome = match (&row.row, row.client) {
                (Some(workload), Some(client)) => known_row(workload, client),
                (None, None) => Ok(()),
                _ => Err("row and client go together".to_owned()),
            };
            outcome.map_err(|e| wrong(format!("[[readme]] {:?}: {e}", row.name)))?;
        }
        let numbered = (1..).zip(read.target);
        let targets = numbered.map(|(number, target)| {
            let name = format!("[[target]] {number} ({})", target.row);
            checked(target).map_err(|e| wrong(format!("{name}: {e}")))
        });
        Ok(Self {
            targets: targets.collect::<Result<_>>()?,
            page: read.page,
            readme: read.readme,
        })
    }

    /// Whether a target for real disks judges the row, or compares another with it; the limits are
    /// wanted always.
    #[must_use]
    pub fn concern(&self, row: BenchRow) -> bool {
        let name = row.name();
        let mut real = self.targets.iter().filter(|target| !target.modelled);
        row.client == Client::None
            || real.any(|target| {
                let beside = match &target.against {
                    Against::Row(beside) | Against::Above(beside) => *beside == name,
                    _ => false,
                };
                (target.row == name || beside) && target.clients.contains(&row.client)
            })
    }
}

fn checked(written: WrittenTarget) -> std::result::Result<BenchTarget, String> {
    if written.clients.is_empty() {
        return Err("clients names no client".into());
    }
    for client in &written.clients {
        known_row(&written.row, *client)?;
    }
    let against = match written.against.as_deref() {
        None => Against::Value,
        Some(text) => match text.split_once(':') {
            None => {
                known_peer(text)?;
                Against::Peer(text.to_owned())
            }
            Some((how @ ("row" | "above"), row)) => {
                let clients = &written.clients;
                clients.iter().try_for_each(|&by| known_row(row, by))?;
                match how {
                    "row" => Against::Row(row.to_owned()),
                    _ => Against::Above(row.to_owned()),
                }
            }
            Some(("limit", limit)) if limits::ROWS.contains(&limit) => {
                Against::Limit(limit.to_owned())
            }
            Some(("limit", limit)) => {
                let known = limits::ROWS.join(", ");
                return Err(format!("no limit is named {limit:?}; known are {known}"));
            }
            Some(_) => {
                return Err(format!(
                    "against = {text:?}: want PEER, row:ROW, above:ROW or limit:ROW"
                ));
            }
        },
    };
    let want = match (written.at_least, written.at_most) {
        (Some(least), None) => Want::AtLeast(least),
        (None, Some(most)) => Want::AtMost(most),
        _ => return Err("want one of at_least and at_most".into()),
    };
    let (Want::AtLeast(number) | Want::AtMost(number)) = want;
    if !(number.is_finite() && number > 0.0) {
        return Err(format!("{number} cannot be reached: want a number above 0"));
    }
    if let Some(only) = &written.only {
        known_peer(only)?;
    }
    Ok(BenchTarget {
        modelled: written.disk == TargetDisk::Modelled,
        row: written.row,
        clients: written.clients,
        figure: written.figure,
        against,
        want,
        only: written.only,
    })
}

fn known_row(workload: &str, client: Client) -> std::result::Result<(), String> {
    let found = BenchRow::named(workload, client);
    let client = client.name();
    found.map(drop).ok_or_else(|| {
        format!("no row is named {workload}/{client}: `hayloft-lab bench --list` names them")
    })
}

fn known_peer(name: &str) -> std::result::Result<(), String> {
    let outcome = peers::peer(name, &[]);
    outcome.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "[page]\nresults = 'r.json'\nruns = ['a']\nengine = 'direct'\n";

    fn parsed(rest: &str) -> std::result::Result<BenchTargets, String> {
        let text = format!("{PAGE}{rest}");
        BenchTargets::parse(&text, Path::new("targets.toml")).map_err(|error| error.to_string())
    }

    fn target(lines: &str) -> std::result::Result<BenchTargets, String> {
        parsed(&format!(
            "[[readme]]\nname = 'memory'\nfigure = 'memory_peak'\n[[target]]\n{lines}\n"
        ))
    }

    #[test]
    fn the_repositorys_own_can_be_read() {
        let own = BenchTargets::load().expect("it is well");
        let concerned = |name, client| own.concern(BenchRow::named(name, client).expect("a row"));
        assert!(concerned("write-1", Client::Java) && concerned("limits", Client::None));
        assert!(!concerned("mixed", Client::Load));
        // Another row is compared with it.
        assert!(concerned("tcp-cold-1", Client::Java) && !concerned("tcp-pread-1", Client::Java));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_may_stand_there() {
        let good = "row = 'write-1'\nclients = ['java']\nfigure = 'rate'\n";
        let whole = format!("{good}against = 'stock'\nat_least = 2.5");
        let read = target(&whole).expect("it is well");
        assert_eq!(read.targets[0].against, Against::Peer("stock".into()));
        for (lines, said) in [
            (good.to_owned(), "want one of at_least and at_most"),
            (format!("{good}at_least = -1.0"), "above 0"),
            (
                format!("{good}at_most = 1.0\nagainst = 'stok'"),
                "known are stock",
            ),
            (
                format!("{good}at_most = 1.0\nagainst = 'limit:disk'"),
                "device-write",
            ),
            (format!("{good}at_most = 1.0\nagainst = 'col:x'"), "row:ROW"),
            (
                format!("{good}at_most = 1.0\nonly = 'fast'"),
                "known are stock",
            ),
            (
                whole.replace("write-1", "write-7"),
                "[[target]] 1 (write-7): no row",
            ),
            (whole.replace("'java'", "'jav'"), "hdfs-native"),
            (whole.replace("'java'", ""), "no client"),
            (whole.replace("'rate'", "'rat'"), "settled_rate"),
            (format!("{whole}\nwish = 1"), "wish"),
        ] {
            let error = target(&lines).expect_err("it is wrong");
            assert!(
                error.contains("targets.toml") && error.contains(said),
                "{said}: {error}"
            );
        }
        let nine = "[[readme]]\nname = 'memory'\nfigure = 'memory_peak'\n".repeat(9);
        let error = parsed(&format!("{nine}[[target]]\n{whole}\n")).expect_err("too many");
        assert!(error.contains("at most 8"), "{error}");
    }
}
