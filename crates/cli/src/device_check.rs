//! `hayloft engine fsck`: whether the stubs of a data directory fit to its device.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hayloft_conf::{Configuration, keys};
use hayloft_console::size;
use hayloft_io::{DeviceCheck, IoError, RecordLock, check_device, must_have_device};

use crate::error::{CliError, FINDING};
use crate::given::{WhereArgs, conf_dir};
use crate::json::print_json;

/// `hayloft engine fsck`.
#[derive(Debug, Args)]
pub struct FsckArgs {
    /// The data directory. No node may use it.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Its engine, as the configuration has it [default: what the configuration says].
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    #[command(flatten)]
    place: WhereArgs,
}

/// Checks a data directory and prints what was found.
pub fn run(args: &FsckArgs) -> Result<ExitCode, CliError> {
    let dir = std::fs::canonicalize(&args.dir).map_err(CliError::file("find", &args.dir))?;
    let engine = match &args.engine {
        Some(engine) => engine.clone(),
        None => configured(&dir, &args.place)?,
    };
    // A lock file that root makes where there is none stops the node of another user.
    must_have_device(&dir).map_err(|error| unusable(&error, ""))?;
    let host = rustix::system::uname();
    let note = format!(
        "{}@{}",
        std::process::id(),
        host.nodename().to_string_lossy()
    );
    let _lock = RecordLock::acquire(&dir.join("in_use.lock"), note.as_bytes())
        .map_err(|error| unusable(&error, "stop the node that uses it first"))?;
    let found = check_device(&engine, &dir).map_err(|error| unusable(&error, ""))?;
    if args.place.json {
        print_json(&found)?;
    } else {
        say(&dir, &found);
    }
    let code = if found.is_well() { 0 } else { FINDING };
    Ok(ExitCode::from(code))
}

fn unusable(error: &IoError, advice: &str) -> CliError {
    CliError::new(error.to_string(), "", advice)
}

/// The engine that the configuration has for `dir`.
fn configured(dir: &Path, place: &WhereArgs) -> Result<String, CliError> {
    let config = Configuration::load(&conf_dir(place.conf.as_deref())?, &[])?;
    let nodes = config.virtual_nodes()?;
    let each = nodes.iter().map(|node| &node.config);
    for config in each.chain([&config]) {
        let dirs = config.get(&keys::DATA_DIRS);
        let is_it = |path: &Path| std::fs::canonicalize(path).is_ok_and(|path| path == dir);
        if let Some(found) = dirs.iter().find(|it| is_it(&it.path)) {
            return Ok(config.engine_for(found));
        }
    }
    let place = dir.display().to_string();
    let advice = "name its engine: --engine 'plugin:/path/of/engine.so options'";
    Err(CliError::new(
        "dfs.datanode.data.dir has no such directory",
        place,
        advice,
    ))
}

fn say(dir: &Path, found: &DeviceCheck) {
    let size = |bytes| size::show(bytes);
    println!("{}", dir.display());
    println!("  device            {}, {}", found.device, size(found.size));
    println!("  stubs             {}, {}", found.stubs, size(found.bytes));
    println!(
        "  room used, free   {}, {} (in units of {})",
        size(found.used),
        size(found.free),
        size(found.unit)
    );
    println!(
        "  extents           {}, {} on average",
        found.extents,
        size(found.mean_extent)
    );
    println!(
        "  free stretches    {}, the longest {}",
        found.free_runs,
        size(found.longest_free_run)
    );
    for finding in &found.device_findings {
        println!("FOUND  {finding}");
    }
    for (path, why) in &found.unusable {
        println!("FOUND  {}: {why}", path.display());
    }
    for (path, why) in &found.unread {
        println!(
            "FOUND  {}: it cannot be read, a start refuses the volume: {why}",
            path.display()
        );
    }
    let shared = "it names a place that another stub names too: checksums say whose it is";
    for path in &found.overlapping {
        println!("FOUND  {}: {shared}", path.display());
    }
    println!(
        "{} of the device, {} stubs without a place, {} that share one, {} that cannot be read",
        found.device_findings.len(),
        found.unusable_count,
        found.overlapping_count,
        found.unread_count
    );
}
