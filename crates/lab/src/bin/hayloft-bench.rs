//! `make bench`: the stock DataNode and Hayloft in one run, results under `bench/runs/`.

use clap::Parser;
use hayloft_lab::bench::{Options, run};
use hayloft_lab::hadoop::repository_root;
use std::process::ExitCode;

/// Stock DataNode against Hayloft: same NameNode, client, directory and data.
#[derive(Debug, Parser)]
#[command(name = "hayloft-bench")]
struct Args {
    /// Name of the run; results go to bench/runs/DATE-NAME
    #[arg(long, default_value = "local")]
    name: String,
    /// Rounds; each measures both nodes
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// MiB moved per row, over all streams
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Numbers of concurrent streams
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    streams: Vec<u32>,
    /// Blocks of the start-up measurement; 0 leaves it out
    #[arg(long, default_value_t = 100_000)]
    blocks: u64,
    /// A flag for the stock DataNode's JVM, repeatable; none means the JVM's defaults
    #[arg(long = "jvm-flag", allow_hyphen_values = true)]
    jvm_flags: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let date = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    let out =
        repository_root()
            .join("bench/runs")
            .join(format!("{}-{}", civil_date(date), args.name));
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let options = Options {
        rounds: args.rounds,
        mib: args.mib,
        streams: args.streams,
        blocks: args.blocks,
        jvm_flags: args.jvm_flags,
        out,
        command: format!("cargo run --release -p hayloft-lab --bin hayloft-bench -- {words}")
            .trim_end()
            .to_owned(),
    };
    match run(&options) {
        Ok(report) => {
            println!(
                "{}\nwritten to {}",
                report.to_markdown(),
                options.out.display()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hayloft-bench: error: {error}");
            ExitCode::from(2)
        }
    }
}

/// `YYYY-MM-DD` of a Unix time (days to civil date by the 400-year cycle of the calendar).
fn civil_date(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::civil_date;

    #[test]
    fn dates() {
        assert_eq!(civil_date(0), "1970-01-01");
        assert_eq!(civil_date(951_782_400), "2000-02-29");
        assert_eq!(civil_date(1_767_225_600), "2026-01-01");
    }
}
