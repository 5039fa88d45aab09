//! `hayloft node`: the daemon, from configuration to a clean stop.

use std::path::Path;
use std::process::ExitCode;

use hayloft_conf::{Configuration, Setting, SharedConfig, VirtualNode, keys};
use hayloft_node::daemon::{self, OpenedPorts};
use hayloft_store::StartOption;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::args::{NodeArgs, RollingUpgrade};
use crate::check_live;
use crate::error::{CliError, FINDING, INTERRUPTED};
use crate::given::{NodeProtection, conf_dir, protection, usable, volumes};
use crate::log_filter;
use crate::secure_user::SecureUser;

/// Runs the node until SIGTERM or SIGINT, or answers a question about it.
pub fn run(args: &NodeArgs) -> Result<ExitCode, CliError> {
    if args.print_config && args.markdown {
        print!("{}", hayloft_conf::to_markdown());
        return Ok(ExitCode::SUCCESS);
    }
    let config = load(args)?;
    if args.print_config {
        return print_config(&config, args.json);
    }
    if args.check_swap {
        return check_swap(&config);
    }
    if args.check_live {
        return check_live::run(&config);
    }
    // Refused here already, before anything is logged or locked.
    usable(&config)?;
    let (config, opened) = match secure_user() {
        None => (config, OpenedPorts::default()),
        Some(user) => {
            let opened = user.open_and_become(&config)?;
            // Its values may name the user, who may read less.
            (load(args)?, opened)
        }
    };
    let dir = config.directory().unwrap_or(Path::new("")).to_owned();
    let file = log_filter::start(&dir)?;
    let conf = dir.display();
    info!(version = env!("HAYLOFT_VERSION"), %conf, "hayloft node");
    if let Some(user) = secure_user() {
        info!(
            "the ports were opened as root, which was given up for {}",
            user.name
        );
    }
    raise_descriptor_limit();
    let outcome = serve(config, start_option(args), opened);
    if let (Some(_), Err(why)) = (&file, &outcome) {
        // It goes to stderr, too, which `hdfs --daemon` keeps in another file.
        error!("gave up: {why}");
    }
    outcome
}

fn load(args: &NodeArgs) -> Result<Configuration, CliError> {
    let dir = conf_dir(args.conf.as_deref())?;
    Ok(Configuration::load(&dir, &args.define)?)
}

fn secure_user() -> Option<SecureUser> {
    SecureUser::wanted(|name| std::env::var(name).ok())
}

/// The answer of `--print-config --json`.
#[derive(serde::Serialize)]
struct PrintedConfig {
    /// Of the node or of each virtual node; none where the node would not start.
    protection: Vec<NodeProtection>,
    /// Where metrics are pushed to.
    metrics_sinks: Vec<String>,
    settings: Vec<Setting>,
}

/// Prints the configuration, what protects the node, what is remarkable and, as an error, what a
/// node would refuse in it.
fn print_config(config: &Configuration, json: bool) -> Result<ExitCode, CliError> {
    let sinks = config.metrics_sinks().sinks;
    let sinks: Vec<String> = sinks.iter().map(ToString::to_string).collect();
    if json {
        crate::json::print_json(&PrintedConfig {
            protection: protection(config),
            metrics_sinks: sinks,
            settings: config.settings(),
        })?;
    } else {
        print!("{}", config.to_text());
        // What is wrong with them is said below.
        for node in config.virtual_nodes().unwrap_or_default() {
            print!("{}", of_virtual_node(&node));
        }
        for of in protection(config) {
            let node = of.node.as_deref().unwrap_or("this node");
            println!("# What protects {node}:");
            of.lines().for_each(|line| println!("#   {line}"));
        }
        if let Some(SecureUser { name, variable }) = secure_user() {
            println!("# {variable}: a start as root opens the ports and becomes {name}");
        }
        for sink in sinks {
            println!("# Metrics are pushed to {sink}");
        }
    }
    for warning in config.warnings() {
        eprintln!("hayloft: warning: {warning}");
    }
    usable(config)?;
    Ok(ExitCode::SUCCESS)
}

/// What a virtual node makes of the configuration: a comment and the keys that are its own.
fn of_virtual_node(node: &VirtualNode) -> String {
    let own = [
        keys::DATANODE_ADDRESS.name(),
        keys::DATANODE_IPC_ADDRESS.name(),
        keys::DATANODE_HTTP_ADDRESS.name(),
        keys::DATANODE_HOSTNAME.name(),
        keys::DATA_DIRS.name(),
    ];
    let mut text = format!("# Virtual node {}:\n", node.name);
    for key in own {
        let value = node.config.text(key).unwrap_or_default();
        text += &format!("# {key} = {value}\n");
    }
    text + "\n"
}

/// Says whether Apache's DataNode may start on the directories of this configuration. A
/// configuration that this node refuses for its protection is no reason against that.
fn check_swap(config: &Configuration) -> Result<ExitCode, CliError> {
    hayloft_conf::namenodes(config)?;
    let nodes = config.virtual_nodes()?;
    // The directories of each node: a stock DataNode starts on those of one.
    let each = match nodes.as_slice() {
        [] => vec![volumes(config)],
        nodes => nodes.iter().map(|node| volumes(&node.config)).collect(),
    };
    // On stderr: no answer to the question, and no reason against a swap.
    if let Some(conf) = config.directory() {
        let variable = |name: &str| std::env::var(name).ok();
        for line in hayloft_conf::missed_from_java(conf, &variable) {
            eprintln!("hayloft: warning: {line}");
        }
    }
    let mut all = each.iter();
    let found = all.try_for_each(|volumes| hayloft_store::check_swap(volumes));
    if let Err(obstacle) = found {
        println!("no: {obstacle}");
        return Ok(ExitCode::from(FINDING));
    }
    let count: usize = each.iter().map(Vec::len).sum();
    let who = match nodes.len() {
        0 => "Apache's DataNode may start".to_owned(),
        nodes => format!("{nodes} of Apache's DataNodes, one a virtual node, may start"),
    };
    println!("yes: {who} on the {count} data directories");
    Ok(ExitCode::SUCCESS)
}

fn start_option(args: &NodeArgs) -> StartOption {
    match (args.rollback, args.rollingupgrade) {
        (true, _) => StartOption::Rollback,
        (false, Some(RollingUpgrade::Rollback)) => StartOption::RollingUpgradeRollback,
        (false, None) => StartOption::Regular,
    }
}

/// Takes as many descriptors as the system allows, as a JVM does: start scripts count on it.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(
            "cannot raise the limit of open files from {:?}: {error}",
            limit.current
        );
    }
}

fn serve(
    config: Configuration,
    start: StartOption,
    opened: OpenedPorts,
) -> Result<ExitCode, CliError> {
    // The runtime panics where it gets none, and a node without a few serves nothing.
    let nodes = config.virtual_nodes()?.len().max(1);
    let volumes = config.get(&keys::DATA_DIRS).len();
    let wanted = daemon::ThreadsWanted::of(volumes, nodes, config.get(&keys::IO_DEPTH));
    let room = hayloft_io::has_room_for_threads(wanted.fewest);
    room.map_err(|why| CliError::new(format!("cannot start threads: {why}"), "", ""))?;
    let advice = "raise the limits on processes and open files (ulimit -u, -n)";
    let refused = |error| CliError::new(format!("cannot start threads: {error}"), "", advice);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("hayloft-net")
        .enable_all()
        .build()
        .map_err(refused)?;
    let outcome = runtime.block_on(run_until_signalled(config, start, opened));
    // Whatever did not end in its time is cut off, not waited for.
    runtime.shutdown_background();
    outcome
}

async fn run_until_signalled(
    config: Configuration,
    start: StartOption,
    opened: OpenedPorts,
) -> Result<ExitCode, CliError> {
    let stop = CancellationToken::new();
    let signals = Signals::new()
        .map_err(|error| CliError::new(format!("cannot listen for signals: {error}"), "", ""))?;
    let watch = tokio::spawn(signals.watch(stop.clone()));
    daemon::run(SharedConfig::new(config), start, opened, stop).await?;
    // Finished only if a signal is why the node stopped.
    let interrupted = watch.is_finished() && watch.await.unwrap_or(false);
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

/// The signals that end a daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Asks for a clean stop at the first signal; whether it was an interrupt from a terminal.
    async fn watch(mut self, stop: CancellationToken) -> bool {
        let (name, interrupted) = tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", false),
            _ = self.interrupt.recv() => ("SIGINT", true),
            _ = self.hang_up.recv() => ("SIGHUP", false),
        };
        info!("{name} received: stopping");
        stop.cancel();
        interrupted
    }
}
