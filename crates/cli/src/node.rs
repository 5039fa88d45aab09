//! `hayloft node`: the daemon, from configuration to a clean stop.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hayloft_node::config::{self, Configuration, SharedConfig, keys};
use hayloft_node::daemon;
use hayloft_store::StartOption;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::args::{NodeArgs, RollingUpgrade, environment};
use crate::error::CliError;
use crate::logging;

/// Runs the node until SIGTERM or SIGINT, or prints its configuration.
pub fn run(args: &NodeArgs) -> Result<ExitCode, CliError> {
    if args.print_config && args.markdown {
        print!("{}", config::to_markdown());
        return Ok(ExitCode::SUCCESS);
    }
    let config = Configuration::load(&conf_dir(args.conf.as_deref())?, &args.define)?;
    if args.print_config {
        return print_config(&config, args.json);
    }
    refuse_start_options(args)?;
    config.refuse_unprotected()?;
    config::namenodes(&config)?;
    logging::start();
    serve(config)
}

/// The directory given, else Hadoop's usual places.
fn conf_dir(given: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(dir) = given
        .map(Path::to_path_buf)
        .or_else(|| environment("HADOOP_CONF_DIR"))
    {
        return Ok(dir);
    }
    let home = environment("HADOOP_HOME").map(|home| home.join("etc/hadoop"));
    let usual = home.into_iter().chain([PathBuf::from("/etc/hadoop/conf")]);
    usual
        .into_iter()
        .find(|dir| dir.join("hdfs-site.xml").is_file())
        .ok_or_else(|| {
            let advice = "give the directory of hdfs-site.xml with --conf DIR";
            CliError::new("no configuration", "HADOOP_CONF_DIR is not set", advice)
        })
}

fn print_config(config: &Configuration, json: bool) -> Result<ExitCode, CliError> {
    if json {
        let text = serde_json::to_string_pretty(&config.settings())
            .map_err(|error| CliError::new(format!("cannot write JSON: {error}"), "", ""))?;
        println!("{text}");
    } else {
        print!("{}", config.to_text());
    }
    for warning in config.warnings() {
        eprintln!("hayloft: warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A start option that is not carried out must not look as if it were.
fn refuse_start_options(args: &NodeArgs) -> Result<(), CliError> {
    let option = match (args.rollback, args.rollingupgrade) {
        (true, _) => "-rollback",
        (false, Some(RollingUpgrade::Rollback)) => "-rollingupgrade rollback",
        (false, None) => return Ok(()),
    };
    Err(CliError::new(
        format!("{option} is not carried out by this version"),
        "",
        "run Apache's DataNode once with it on the same directories, stop it, then start this node",
    ))
}

fn serve(config: Configuration) -> Result<ExitCode, CliError> {
    let data_dirs: Vec<String> = config
        .get(&keys::DATA_DIRS)
        .iter()
        .map(ToString::to_string)
        .collect();
    info!(
        version = env!("CARGO_PKG_VERSION"),
        dirs = data_dirs.join(","),
        "starting"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("hayloft-net")
        .enable_all()
        .build()
        .map_err(|error| {
            let advice = "raise the limit on processes (ulimit -u)";
            CliError::new(format!("cannot start threads: {error}"), "", advice)
        })?;
    let outcome = runtime.block_on(run_until_signalled(config));
    // Whatever did not end in its time is cut off, not waited for.
    runtime.shutdown_background();
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn run_until_signalled(config: Configuration) -> Result<(), CliError> {
    let stop = CancellationToken::new();
    let mut signals = Signals::new()
        .map_err(|error| CliError::new(format!("cannot listen for signals: {error}"), "", ""))?;
    let on_signal = stop.clone();
    tokio::spawn(async move {
        let name = signals.next().await;
        info!("{name} received: stopping");
        on_signal.cancel();
    });
    daemon::run(SharedConfig::new(config), StartOption::Regular, stop)
        .await
        .map_err(CliError::from)
}

/// The signals that end a daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
