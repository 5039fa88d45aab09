//! Whether this machine should run a DataNode: for an init container, or `ExecCondition=`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use hayloft_topology::disks::{DiskPlace, SeenDisk, seen_disks};
use serde_json::json;

use crate::error::{CliError, FINDING};

/// What a DataNode wants of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// A disk in the machine, or in the one that it runs on.
    LocalDisk,
    /// A disk behind a network.
    NetworkDisk,
}

/// `hayloft topology suits`.
#[derive(Debug, Args)]
pub struct SuitsArgs {
    /// What the machine must have.
    #[arg(long, value_enum, default_value_t = Wanted::LocalDisk)]
    want: Wanted,
    /// Count disks of a hypervisor that does not say where they are.
    #[arg(long)]
    count_virtual: bool,
    /// Another /sys, such as the host's in a container.
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sys: PathBuf,
    /// Report as JSON on stdout.
    #[arg(long)]
    json: bool,
}

/// Looks at the disks, and judges.
pub fn run(args: &SuitsArgs) -> Result<ExitCode, CliError> {
    let disks = seen(&args.sys)?;
    let counts = |disk: &SeenDisk| match disk.place {
        DiskPlace::Local => args.want == Wanted::LocalDisk,
        DiskPlace::Network => args.want == Wanted::NetworkDisk,
        DiskPlace::Virtual => args.count_virtual,
    };
    let count = disks.iter().filter(|disk| counts(disk)).count();
    let suits = count > 0;
    if args.json {
        crate::json::print_json(&json!({"suits": suits, "count": count, "disks": disks}))?;
    } else {
        for disk in &disks {
            let place = match disk.place {
                DiskPlace::Local => "local",
                DiskPlace::Network => "network",
                DiskPlace::Virtual => "virtual",
            };
            println!("{:<10} {place:<8} {}", disk.name, disk.reason);
        }
        let wanted = match args.want {
            Wanted::LocalDisk => "local",
            Wanted::NetworkDisk => "network",
        };
        let verdict = if suits { "suits" } else { "does not suit" };
        println!(
            "this machine {verdict}: {count} of {} disks count as {wanted}",
            disks.len()
        );
    }
    if !suits && !args.count_virtual && disks.iter().any(|disk| disk.place == DiskPlace::Virtual) {
        eprintln!("hayloft: if the hypervisor keeps its disks as wanted, add --count-virtual");
    }
    Ok(ExitCode::from(if suits { 0 } else { FINDING }))
}

fn seen(sys: &Path) -> Result<Vec<SeenDisk>, CliError> {
    seen_disks(sys).map_err(|problem| {
        CliError::new(
            format!("cannot list block devices: {problem}"),
            "",
            "name the directory where /sys is with --sys",
        )
    })
}
