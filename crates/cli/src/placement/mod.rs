//! `hayloft placement`: which blocks break the rule on failure domains, and mending them.
//!
//! - `fsck`: the stock `hdfs fsck`, run and read
//!
//! The NameNode's own `fsck` judges and orders the copies; this reads its words, so it sees what
//! the policy that runs there sees, and works with each of them.

mod fsck;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use hayloft_console::progress::{ProgressStep, say};
use serde_json::json;

use crate::error::{CliError, FINDING};

use self::fsck::{Fsck, Placement};

/// `hayloft placement`.
#[derive(Debug, Args)]
pub struct PlacementArgs {
    /// What to do.
    #[command(subcommand)]
    command: PlacementCommand,
}

#[derive(Debug, Subcommand)]
enum PlacementCommand {
    /// Count the blocks whose replicas share a failure domain or a rack without need
    /// (exit code 1 if there are any).
    Check(CheckArgs),
    /// Have the NameNode copy such blocks, and wait until it is done
    /// (exit code 1 if some are left).
    Mend(MendArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The file or directory.
    #[arg(default_value = "/")]
    path: String,
    /// Directory of core-site.xml and hdfs-site.xml
    /// [default: $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop or /etc/hadoop/conf].
    #[arg(long, value_name = "DIR")]
    conf: Option<PathBuf>,
    /// An installed Hadoop to use
    /// [default: $HADOOP_HOME, else the one that scripts/fetch-hadoop fetched].
    #[arg(long, value_name = "DIR")]
    hadoop_home: Option<PathBuf>,
    /// Name so many of these blocks at most.
    #[arg(long, value_name = "N", default_value_t = 20)]
    list: usize,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct MendArgs {
    #[command(flatten)]
    check: CheckArgs,
    /// Give up when the number of such blocks has not fallen for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
}

/// Checks, or mends.
pub fn run(args: &PlacementArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        PlacementCommand::Check(check) => {
            let found = fsck_of(check)?.look(false)?;
            Ok(report(check, &found, None))
        }
        PlacementCommand::Mend(mend) => {
            let fsck = fsck_of(&mend.check)?;
            let before = fsck.look(false)?;
            let after = if before.misplaced == 0 {
                before.clone()
            } else {
                wait(&fsck, &before, Duration::from_secs(mend.patience))?
            };
            Ok(report(&mend.check, &after, Some(before.misplaced)))
        }
    }
}

fn fsck_of(args: &CheckArgs) -> Result<Fsck, CliError> {
    let conf = crate::given::conf_dir(args.conf.as_deref())?;
    let home = args
        .hadoop_home
        .clone()
        .or_else(|| crate::given::environment("HADOOP_HOME"));
    Fsck::new(&conf, home.as_deref(), &args.path, args.list)
}

/// A pause between two looks: a namespace that takes long to walk is walked seldom.
fn pause(look_took: Duration) -> Duration {
    (look_took * 3).clamp(Duration::from_secs(3), Duration::from_secs(300))
}

/// Orders the copies, then looks until no block is left or their number has stopped falling.
fn wait(fsck: &Fsck, before: &Placement, patience: Duration) -> Result<Placement, CliError> {
    let step = ProgressStep::bytes("mending", before.misplaced);
    fsck.look(true)?;
    let (mut now, mut fell) = (before.clone(), Instant::now());
    while now.misplaced > 0 && fell.elapsed() < patience {
        let left = patience.saturating_sub(fell.elapsed());
        std::thread::sleep(pause(now.took).min(left.max(Duration::from_secs(1))));
        let next = fsck.look(false)?;
        if next.misplaced < now.misplaced {
            fell = Instant::now();
        }
        now = next;
        step.at(before.misplaced.saturating_sub(now.misplaced));
    }
    step.done(&format!(
        "{} of {} blocks left",
        now.misplaced, before.misplaced
    ));
    Ok(now)
}

/// Says what was found; `before`: what there was before mending.
fn report(args: &CheckArgs, found: &Placement, before: Option<u64>) -> ExitCode {
    if args.json {
        let blocks: Vec<_> = found.listed.iter().map(fsck::Misplaced::to_json).collect();
        let mut answer = json!({
            "path": args.path,
            "blocks": found.blocks,
            "misplaced": found.misplaced,
            "listed": blocks,
        });
        if let Some(before) = before {
            answer["misplaced_before"] = json!(before);
        }
        println!("{answer}");
    } else {
        for block in &found.listed {
            println!("{block}");
        }
        let more = found.misplaced.saturating_sub(found.listed.len() as u64);
        if more > 0 {
            println!("... and {more} more (--list N names more of them)");
        }
        println!(
            "{} of {} blocks are misplaced",
            found.misplaced, found.blocks
        );
    }
    if found.misplaced == 0 {
        return ExitCode::SUCCESS;
    }
    say(match before {
        None => "'hayloft placement mend' has the NameNode copy them",
        Some(_) => {
            "the NameNode finds no better place for what is left: it needs nodes with room in \
             other domains"
        }
    });
    ExitCode::from(FINDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_namespace_is_looked_at_seldom() {
        let seconds = |s| pause(Duration::from_secs(s)).as_secs();
        assert_eq!([0, 1, 10, 1000].map(seconds), [3, 3, 30, 300]);
    }
}
