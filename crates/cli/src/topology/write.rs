//! The files that NameNodes read, once or as the place changes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use hayloft_console::progress::say;
use hayloft_topology::{
    KnownPlace, PlaceVerdict, RackPath, SafeName, SourceSaid, TableError, TopologyTable, choose,
    judge,
};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{CliError, INTERRUPTED};

use super::sources::SourceArgs;

/// Where to write.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// The table of racks; the failure domains go to FILE.domains, the script to FILE.sh.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Whom to ask.
    #[command(flatten)]
    sources: SourceArgs,
    /// Take over FILE.sh and FILE.domains that this command did not write.
    #[arg(long)]
    force: bool,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Where to write, and how often to look.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    write: WriteArgs,
    /// Ask again after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    period: u64,
}

/// What a round came to.
#[derive(Debug)]
enum Round {
    /// The files now say this; those that changed.
    Written(&'static str, RackPath, Option<SafeName>, Vec<PathBuf>),
    /// They said it before.
    Same(&'static str, RackPath, Option<SafeName>),
    /// They keep what they say.
    Kept(String),
    /// No source gave an answer.
    Silent,
}

impl WriteArgs {
    fn table(&self) -> TopologyTable {
        TopologyTable::new(&self.to, self.sources.keys()).forced(self.force)
    }

    /// Refuses what cannot be written before anyone is asked.
    fn begin(&self) -> Result<(), CliError> {
        self.table().is_ours().map_err(unwritten)?;
        if self.sources.keys().addresses.is_empty() {
            say(
                "warning: no address of this node was found, and NameNodes look it up by one: \
                 name it with --address",
            );
        }
        Ok(())
    }

    /// Writes what was said, unless it is worth less than what is there.
    fn settle(&self, said: &[SourceSaid]) -> Result<Round, TableError> {
        let table = self.table();
        let known = table.known()?;
        let Some((source, place)) = choose(said, known.source.as_deref()) else {
            return Ok(Round::Silent);
        };
        let rack = self.sources.rack_of(place);
        let host = place.host.clone();
        let verdict = judge(&known, source, &rack, host.as_ref(), self.sources.is_one());
        Ok(match verdict {
            PlaceVerdict::Keep(why) => Round::Kept(kept(&why, &known)),
            // Written in either case: a script or an address may be missing.
            PlaceVerdict::Same | PlaceVerdict::Write => {
                let changed = table.write(source, &rack, host.as_ref())?;
                match changed.is_empty() {
                    true => Round::Same(source, rack, host),
                    false => Round::Written(source, rack, host, changed),
                }
            }
        })
    }
}

fn kept(why: &str, known: &KnownPlace) -> String {
    let rack = known.rack.as_ref().map_or("", RackPath::as_str);
    format!("{why}; the file keeps {rack}")
}

/// `hayloft topology write`.
pub fn write(args: &WriteArgs) -> Result<ExitCode, CliError> {
    args.begin()?;
    let said = args.sources.panel()?.ask();
    let (source, rack, host, changed) = match args.settle(&said).map_err(unwritten)? {
        Round::Silent => return Err(super::none_found(&said)),
        Round::Kept(why) => {
            let place = args.to.display().to_string();
            let advice = "take this node's lines out of the files to find its place anew";
            return Err(CliError::new(why, place, advice).finding());
        }
        Round::Written(source, rack, host, changed) => (source, rack, host, changed),
        Round::Same(source, rack, host) => (source, rack, host, Vec::new()),
    };
    let [table, domains, script] = args.table().paths();
    if args.json {
        let answer = json!({
            "source": source, "rack": rack.as_str(), "host": host,
            "table": table, "domains": domains, "script": script, "changed": changed,
        });
        crate::json::print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", place_line(source, &rack, host.as_ref()));
    for (path, key) in [
        (
            &table,
            "net.topology.table.file.name or hayloft.topology.file",
        ),
        (&domains, "hayloft.placement.domains.file"),
        (&script, "net.topology.script.file.name"),
    ] {
        let what = if changed.contains(path) {
            "wrote"
        } else {
            "as before"
        };
        println!("{what:<9} {}, for {key}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn place_line(source: &str, rack: &RackPath, host: Option<&SafeName>) -> String {
    let host = host.map_or("not known", SafeName::as_str);
    format!("rack {rack}, host {host}, by {source}")
}

fn unwritten(error: TableError) -> CliError {
    CliError::new(error.to_string(), "", "")
}

/// What was said last, so that a line is said once.
#[derive(Default)]
struct Told {
    /// Sources that answered, and why others did not.
    silent: BTreeMap<&'static str, bool>,
    line: String,
}

impl Told {
    /// Says which sources stopped answering since the last round, and which answer again.
    fn hear(&mut self, said: &[SourceSaid]) {
        for SourceSaid { source, answer } in said {
            let silent = answer.is_err();
            let before = self.silent.insert(source, silent);
            match answer {
                Err(problem) if before == Some(false) => {
                    say(&format!("{source} has stopped answering: {problem}"));
                }
                Ok(_) if before == Some(true) => say(&format!("{source} answers again")),
                _ => {}
            }
        }
    }

    fn once(&mut self, line: String) {
        if self.line != line {
            say(&line);
            self.line = line;
        }
    }
}

/// `hayloft topology watch`: ends with a signal. What a round cannot do, the next may.
pub fn watch(args: &WatchArgs) -> Result<ExitCode, CliError> {
    let deaf = |error| CliError::new(format!("cannot listen for signals: {error}"), "", "");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(deaf)?;
    let (mut terminate, mut interrupt) = {
        let _context = runtime.enter();
        let listen = |kind| signal(kind).map_err(deaf);
        (
            listen(SignalKind::terminate())?,
            listen(SignalKind::interrupt())?,
        )
    };
    args.write.begin()?;
    let mut panel = args.write.sources.panel()?;
    let period = Duration::from_secs(args.period);
    let mut told = Told::default();
    loop {
        let begin = Instant::now();
        let said = panel.ask();
        told.hear(&said);
        round(args, &said, &mut told)?;
        let ended = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => Some(ExitCode::SUCCESS),
                _ = interrupt.recv() => Some(ExitCode::from(INTERRUPTED)),
                () = tokio::time::sleep(period.saturating_sub(begin.elapsed())) => None,
            }
        });
        if let Some(code) = ended {
            return Ok(code);
        }
    }
}

fn round(args: &WatchArgs, said: &[SourceSaid], told: &mut Told) -> Result<(), CliError> {
    match args.write.settle(said) {
        Ok(Round::Written(source, rack, host, changed)) => {
            let line = place_line(source, &rack, host.as_ref());
            if args.write.json {
                let place = json!({"source": source, "rack": rack.as_str(), "host": host,
                    "changed": changed});
                print(&place.to_string());
            } else {
                print(&format!("wrote {line}"));
            }
            told.line = line;
        }
        Ok(Round::Same(source, rack, host)) => {
            told.once(place_line(source, &rack, host.as_ref()));
        }
        Ok(Round::Kept(why)) => told.once(why),
        Ok(Round::Silent) => {
            let known = args.write.table().known().map_err(unwritten)?;
            let rack = known.rack.as_ref();
            let keeps = rack.map_or("nothing is known yet".to_owned(), |rack| {
                format!("the file keeps {rack}")
            });
            // The reasons may differ each time; which sources there are does not.
            if !told.line.ends_with(&keeps) {
                say(&super::none_found(said).to_string());
                told.once(keeps);
            }
        }
        Err(error) => told.once(format!("{error}; the next round tries again")),
    }
    Ok(())
}

/// A line on standard output. A watch goes on without it, and says the line where the log is.
fn print(line: &str) {
    if let Err(error) = writeln!(std::io::stdout().lock(), "{line}") {
        say(&format!("{line} (standard output: {error})"));
    }
}
