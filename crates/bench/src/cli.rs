//! The command `hayloft-lab bench`.

use super::encryption::BenchCipher;
use super::fair::origin::today;
use super::fair::stock::{Medium, libhadoop};
use super::results::PublishedRuns;
use super::rows::{self, BenchRow};
use super::targets::BenchTargets;
use super::{BenchDisk, BenchOptions, page, peers, published, results};
use clap::Args;
use hayloft_testkit::congestion;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::hbase;
use hayloft_testkit::modelled::MEDIA;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The stock DataNode and Hayloft side by side: same NameNode, clients, device and data.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// List the rows and the peers, and stop.
    #[arg(long)]
    list: bool,
    /// Two rounds of 256 MiB after at most two that warm up: a first look.
    #[arg(long)]
    quick: bool,
    /// Only the rows that a target of bench/targets.toml depends on.
    #[arg(long, alias = "bars")]
    targets: bool,
    /// Only rows whose name contains one of these, such as write-1,cold or write*java.
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Rounds [default: 5, quick 2].
    #[arg(long)]
    rounds: Option<u32>,
    /// Rounds that a peer repeats a row before it counts, at most; it ends when two in a row are
    /// within 5 % [default: 8, quick 2].
    #[arg(long)]
    warm_ups: Option<usize>,
    /// MiB moved per row, over all streams [default: 1024, quick 256].
    #[arg(long)]
    mib: Option<u64>,
    /// Who takes part: names of --list, "scraped" (asked by an agent meanwhile) or plugin:/path.so,
    /// separated by commas [default: all of --list].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    peers: Vec<String>,
    /// The binary of an earlier version of Hayloft, which takes part as "before".
    #[arg(long, value_name = "BINARY")]
    before: Option<PathBuf>,
    /// Where the nodes keep their data: a directory, or "modelled" for a modelled hard disk
    /// [default: below the repository's target directory].
    #[arg(long, value_name = "DIR")]
    disk: Option<String>,
    /// Measure starts with so many blocks too, and their deletion: about 10 KB of disk each.
    #[arg(long, default_value_t = 0)]
    blocks: u64,
    /// Volumes that these are spread over: directories of one disk.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    volumes: u16,
    /// A flag for the stock DataNode's JVM, repeatable; none means the JVM's defaults.
    #[arg(long = "jvm-flag", allow_hyphen_values = true)]
    jvm_flags: Vec<String>,
    /// A property of Hayloft's nodes, KEY=VALUE, repeatable.
    #[arg(short = 'D', value_parser = key_value)]
    define: Vec<(String, String)>,
    /// Run everything in a network namespace of its own with this TCP congestion control, such as
    /// cubic, reno or bbr; nothing on the machine changes. Needs root.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Measure the rows of clients that users have a second time with encrypted data, write-1-aes
    /// beside write-1: by aes, privacy (the 3DES of SASL) or rc4, separated by commas. The ciphers
    /// of SASL move a sixteenth of --mib.
    #[arg(long, value_delimiter = ',', value_name = "CIPHERS")]
    encrypt: Vec<BenchCipher>,
    /// Name of the run: results go to target/bench/DATE-NAME.
    #[arg(long, default_value = "local")]
    name: String,
    /// Also add the run, by its name, to this file of published runs, such as
    /// bench/results/0.1.0/two-core-epyc.json.
    #[arg(long, value_name = "FILE")]
    add_to: Option<PathBuf>,
    /// Where results go instead.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print every sample as JSON instead of the page.
    #[arg(long)]
    json: bool,
    /// Show the page of runs measured earlier instead of measuring: a results.json, or one run of a
    /// file of published ones. Of a row in several runs the last one counts.
    #[arg(long, value_name = "FILE[#RUN]")]
    show: Vec<String>,
    /// Make the published pages again, from the results that bench/targets.toml names.
    #[arg(long)]
    pages: bool,
}

fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("want KEY=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// What the command printed and how it went.
#[derive(Debug)]
pub struct BenchReport {
    /// For standard output.
    pub text: String,
    /// Where the results are; `None` when nothing was measured.
    pub out: Option<PathBuf>,
    /// Whether the run was ended before its time.
    pub interrupted: bool,
    /// Whether every row worked.
    pub whole: bool,
    /// What the reader has to know about the figures, if anything.
    pub note: Option<String>,
}

/// Deletes of a volume that wait in a node of ours at most, as `Invalidations` of the store has it:
/// a node drops what is above. A bench asks for all at once.
const DELETES_MAX: u64 = 131_072;

impl BenchArgs {
    /// Measures; `progress` is told a line now and then, `words` are the command's for the record.
    ///
    /// # Errors
    /// What is wrong with the arguments, or what ended the run.
    pub fn run(
        self,
        words: &[String],
        progress: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<BenchReport> {
        let said = |text| BenchReport {
            text,
            out: None,
            interrupted: false,
            whole: true,
            note: None,
        };
        if self.pages {
            return Ok(said(published::write()?));
        }
        let targets = BenchTargets::load()?;
        if self.list {
            return Ok(said(list(&targets)));
        }
        if !self.show.is_empty() {
            let named = self.show.iter().map(|run| PublishedRuns::named(run));
            let named = named.collect::<Result<Vec<_>>>()?.into_iter().flatten();
            let shown = results::joined(named.map(|(_, record)| record))?;
            return Ok(said(page::markdown(
                &shown,
                &targets.targets,
                &page::stands(&shown),
            )));
        }
        let (json, add_to, name) = (self.json, self.add_to.clone(), self.name.clone());
        // Before anything is started: what is started belongs to the network that it is started in.
        let network = self.congestion.as_deref().map(congestion::enter);
        let network = network.transpose()?;
        let options = BenchOptions {
            network,
            ..self.options(&targets, words, progress)?
        };
        let record = super::run(&options, &targets)?;
        let text = if json {
            record.to_json()?
        } else {
            page::markdown(&record, &targets.targets, &page::stands(&record))
        };
        let note = congestion::note(&record.origin.conditions);
        if let Some(file) = add_to {
            PublishedRuns::add(&file, &name, &record)?;
        }
        Ok(BenchReport {
            text,
            out: (!record.samples.is_empty()).then_some(options.out),
            interrupted: record.interrupted,
            whole: record.failures().next().is_none(),
            note,
        })
    }

    /// Those that were asked for and can be measured here; `progress` is told why others cannot.
    fn rows(&self, targets: &BenchTargets, progress: &dyn Fn(&str)) -> Vec<BenchRow> {
        let wanted = |row: &BenchRow| {
            let only = self.only.as_deref();
            (!self.targets || targets.concern(*row))
                && only.is_none_or(|pattern| fits(pattern, &row.to_string()))
        };
        let mut rows: Vec<BenchRow> = rows::all().into_iter().filter(wanted).collect();
        for cipher in &self.encrypt {
            let plain = rows.clone().into_iter();
            let plain = plain.filter(|row| row.cipher.is_none());
            rows.extend(plain.filter_map(|row| row.encrypted(*cipher)));
        }
        if let Err(why) = libhadoop()
            && rows.iter().any(|row| row.workload.needs_libhadoop())
        {
            progress(&format!("rows of local reads are left out: {why}"));
            rows.retain(|row| !row.workload.needs_libhadoop());
        }
        if let Err(why) = hbase::installed()
            && rows.iter().any(|row| row.workload.needs_hbase())
        {
            progress(&format!("rows of HBase's logs are left out: {why}"));
            rows.retain(|row| !row.workload.needs_hbase());
        }
        rows
    }

    fn options(
        self,
        targets: &BenchTargets,
        words: &[String],
        progress: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<BenchOptions> {
        let rows = self.rows(targets, progress.as_ref());
        if rows.is_empty() && self.blocks == 0 {
            return Err(TestkitError::Talk("no row fits: see --list".into()));
        }
        if self.blocks > DELETES_MAX * u64::from(self.volumes) {
            return Err(TestkitError::Talk(format!(
                "--blocks: a node takes {DELETES_MAX} deletes of a volume: give more --volumes"
            )));
        }
        let disk = match self.disk.as_deref() {
            None => BenchDisk::Directory(repository_root().join("target/lab")),
            Some("modelled") => BenchDisk::Modelled,
            Some(dir) => BenchDisk::Directory(dir.into()),
        };
        let medium = match &disk {
            BenchDisk::Directory(_) => Medium::Own,
            BenchDisk::Modelled => Medium::Rotating,
        };
        let mut peers = match self.peers.as_slice() {
            [] => peers::names_on(medium)
                .into_iter()
                .map(str::to_owned)
                .collect(),
            some => some.to_vec(),
        };
        match &self.before {
            Some(binary) if !binary.is_file() => {
                let problem = format!("--before: there is no file {}", binary.display());
                return Err(TestkitError::Talk(problem));
            }
            Some(_) if !peers.iter().any(|name| name == peers::BEFORE) => {
                peers.push(peers::BEFORE.to_owned());
            }
            None if peers.iter().any(|name| name == peers::BEFORE) => {
                return Err(TestkitError::Talk(
                    "the peer \"before\" needs --before BINARY".into(),
                ));
            }
            _ => {}
        }
        for name in &peers {
            peers::peer(name, &[])?;
        }
        let mut define = self.define;
        if disk == BenchDisk::Modelled && !define.iter().any(|(key, _)| key == MEDIA.0) {
            define.push((MEDIA.0.to_owned(), MEDIA.1.to_owned()));
        }
        let date = today();
        let runs = repository_root().join("target/bench");
        Ok(BenchOptions {
            rounds: self.rounds.unwrap_or(if self.quick { 2 } else { 5 }).max(1),
            mib: self
                .mib
                .unwrap_or(if self.quick { 256 } else { 1024 })
                .max(4),
            warm_ups: self.warm_ups.unwrap_or(if self.quick { 2 } else { 8 }),
            rows,
            before: self.before,
            peers,
            blocks: self.blocks,
            volumes: self.volumes.into(),
            jvm_flags: self.jvm_flags,
            define,
            disk,
            network: None,
            out: self
                .out
                .unwrap_or_else(|| runs.join(format!("{date}-{}", self.name))),
            command: recorded(words),
            progress,
        })
    }
}

/// The command for the record. Where this machine keeps things is no part of a published run: of a
/// directory the last name is kept.
fn recorded(words: &[String]) -> String {
    let shortened = words.iter().map(|word| {
        let (option, value) = word.split_at(word.find('=').map_or(0, |at| at + 1));
        match Path::new(value).file_name() {
            Some(name) if value.starts_with('/') => format!("{option}{}", name.display()),
            _ => word.clone(),
        }
    });
    shortened.collect::<Vec<_>>().join(" ")
}

/// Whether a name fits a pattern: one of its comma-separated parts occurs in it, `*` standing for
/// anything. A part that ends in a digit does not stop inside a number: `write-1` is not
/// `write-16`.
fn fits(pattern: &str, name: &str) -> bool {
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    pattern.split(',').map(str::trim).any(|part| {
        let mut rest = name;
        !part.is_empty()
            && part.split('*').all(|piece| match rest.find(piece) {
                Some(at) => {
                    rest = &rest[at + piece.len()..];
                    let ends_in_digit = piece.ends_with(|c: char| c.is_ascii_digit());
                    !(ends_in_digit && digit(rest))
                }
                None => false,
            })
    })
}

fn list(targets: &BenchTargets) -> String {
    let mut text = String::from("rows (workload/client):\n");
    for row in rows::all() {
        let target = if targets.concern(row) {
            " (target)"
        } else {
            ""
        };
        text.push_str(&format!(
            "  {:24} {}{target}\n",
            row.to_string(),
            row.workload.about()
        ));
    }
    text.push_str(&format!("peers: {}\n", peers::names().join(", ")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(fits("write", "write-16/load"));
        assert!(fits("cold, pread-16", "pread-16/load"));
        assert!(fits("write*java", "write-4/java"));
        assert!(!fits("write*java", "write-4/load"));
        assert!(!fits("", "write-4/load"));
        assert!(!fits("write-1", "write-16/load") && fits("write-1", "write-1/java"));
    }

    #[test]
    fn the_record_names_no_place_of_this_machine() {
        let words = "hayloft-lab bench --only write*,cold --out /some/where/mine --disk=/data/1/ \
            -D a.b=/c/d --mib 4";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(
            recorded(&words),
            "hayloft-lab bench --only write*,cold --out mine --disk=1 -D a.b=d --mib 4"
        );
    }
}
