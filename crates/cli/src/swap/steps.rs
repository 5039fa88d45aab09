//! What a swap does in turn: look, check, change, wait, try the node, and go back if it does not
//! serve.

use std::time::{Duration, Instant};

use hayloft_conf::keys;

use super::ask::{self, LiveNode, NameServiceView};
use super::change::change;
use super::host::{Action, SwapHost};
use super::report::{StepResult, SwapReport, starts_next};
use super::running::{HoldingNode, WhichNode, running};
use super::{probe, profile};

/// Between two looks at a node that starts.
const PAUSE: Duration = Duration::from_millis(500);
/// For a node that is started again, until it holds its directories.
const AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// Seconds without a heartbeat that a node which serves does not have.
const CONTACT_MAX: u64 = 30;
/// Bytes that a directory has to have free: the log and the notes of a start.
const FREE_MIN: u64 = 16 << 20;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Turnover {
    pub to: WhichNode,
    pub dry_run: bool,
    /// Until the node is live and has reported its blocks.
    pub within: Duration,
    pub although_missing: bool,
}

/// What was there before.
struct Before {
    blocks: Option<u64>,
    some: Vec<probe::OldBlock>,
    services: usize,
}

/// `hayloft swap status`.
pub fn look(host: &SwapHost) -> SwapReport {
    let mut report = SwapReport::new(host);
    report.settle(host);
    if starts_next(host) == WhichNode::Hayloft {
        say_protection(host, &mut report);
    }
    match ask::name_services(host) {
        Ok(services) => report.live = services.into_iter().filter_map(|of| of.node).collect(),
        Err(why) => report.add("NameNode", StepResult::Note, why),
    }
    if report.runs.is_none() {
        report.well = false;
    }
    report
}

/// `hayloft swap in` and `out`.
pub fn turn_over(host: &SwapHost, wanted: Turnover) -> SwapReport {
    let mut report = SwapReport::new(host);
    let outcome = turn(host, wanted, &mut report);
    report.settle(host);
    if outcome.is_some() && !wanted.dry_run {
        report.live = live(host);
    }
    report
}

/// `None` when it stopped at a check.
fn turn(host: &SwapHost, wanted: Turnover, report: &mut SwapReport) -> Option<()> {
    let runs = match running(&host.volumes) {
        Ok(runs) => runs,
        Err(why) => {
            report.add("look", StepResult::Failed, why);
            return None;
        }
    };
    let name = wanted.to.name();
    let already = runs.as_ref().is_some_and(|of| of.node == wanted.to);
    if already && starts_next(host) == wanted.to {
        report.add("look", StepResult::Done, format!("{name} runs already"));
        return Some(());
    }
    let now = runs.as_ref().map_or("no node", |of| of.node.name());
    report.add("look", StepResult::Done, format!("{now} runs"));
    let before = check(host, wanted, runs.as_ref(), report)?;
    report.blocks_before = before.blocks;
    if wanted.dry_run {
        would(host, wanted, report);
        return Some(());
    }
    let changed = change(host, &host.again, wanted.to);
    let changed = changed.map(|()| format!("{name} was started"));
    if !report.try_step("change", changed) {
        await_any(host);
        return Some(());
    }
    if serves(host, wanted, &before, report) {
        return Some(());
    }
    report.went_back = true;
    let back = wanted.to.other();
    let changed = change(host, &host.again, back);
    report.try_step(
        "go back",
        changed.map(|()| format!("{} was started", back.name())),
    );
    let wanted = Turnover { to: back, ..wanted };
    let live = await_live(host, wanted, before.services, None);
    report.try_step("wait", live.map(|_| "live again".to_owned()));
    Some(())
}

fn would(host: &SwapHost, wanted: Turnover, report: &mut SwapReport) {
    let path = profile::path(&host.conf);
    let path = path.display();
    let of_profile = match wanted.to {
        WhichNode::Hayloft => format!("write {path}"),
        WhichNode::Apache => format!("remove {path}"),
    };
    for (step, said) in [
        ("stop", host.command_line(Action::Stop)),
        ("change", of_profile),
        ("start", host.command_line(Action::Start)),
        (
            "wait",
            format!(
                "at most {} s until it is live and has reported",
                wanted.within.as_secs()
            ),
        ),
        ("try", format!("read {} blocks, write one", probe::READ)),
    ] {
        report.add(step, StepResult::Would, said);
    }
}

/// Says what protects Hayloft's node under this configuration.
fn say_protection(host: &SwapHost, report: &mut SwapReport) {
    for of in crate::given::protection(&host.config) {
        let lines = of.lines();
        lines.for_each(|line| report.add("protection", StepResult::Note, line));
    }
}

/// Looks for what is in the way of a swap; changes nothing.
fn check(
    host: &SwapHost,
    wanted: Turnover,
    runs: Option<&HoldingNode>,
    report: &mut SwapReport,
) -> Option<Before> {
    if wanted.to == WhichNode::Hayloft {
        for warning in host.config.warnings() {
            report.add("configuration", StepResult::Note, warning);
        }
        let usable = crate::given::usable(&host.config).map_err(|error| error.to_string());
        let fits = "Hayloft starts with it".to_owned();
        if !report.try_step("configuration", usable.map(|()| fits)) {
            return None;
        }
        say_protection(host, report);
    }
    if host.config.has_kerberos() {
        let why = "NameNodes with Kerberos are not asked by this version: swap by hand";
        report.add("NameNode", StepResult::Failed, why);
        return None;
    }
    report.try_step("room", room(host)).then_some(())?;
    let services = match ask::name_services(host) {
        Ok(services) => services,
        Err(why) => {
            report.add("NameNode", StepResult::Failed, why);
            return None;
        }
    };
    for service in &services {
        let healthy = healthy(service, runs.is_some());
        let gone = missing(service);
        if let (Err(why), true) = (&gone, wanted.although_missing) {
            report.add("NameNode", StepResult::Note, why.clone());
        }
        let healthy = match wanted.although_missing {
            true => healthy,
            false => healthy.and_then(|well| gone.map(|()| well)),
        };
        report.try_step("NameNode", healthy).then_some(())?;
    }
    Some(Before {
        blocks: blocks_of(&services),
        some: probe::blocks_on(&host.volumes),
        services: services.len(),
    })
}

fn room(host: &SwapHost) -> Result<String, String> {
    for dir in &host.volumes {
        let of = rustix::fs::statvfs(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        if of.f_bavail.saturating_mul(of.f_frsize) < FREE_MIN {
            return Err(format!("{} is full: free 16 MiB", dir.display()));
        }
    }
    Ok(format!("{} data directories have some", host.volumes.len()))
}

fn healthy(service: &NameServiceView, node_runs: bool) -> Result<String, String> {
    let address = &service.address;
    if !service.safe_mode.is_empty() {
        return Err(format!("{address} is in safe mode: wait for its end"));
    }
    match &service.node {
        None if node_runs => Err(format!(
            "{address} does not call this node live: wait for it"
        )),
        Some(node) if node.web.is_empty() => {
            Err("the node's web port speaks TLS alone: swap by hand".to_owned())
        }
        _ => Ok(format!("{address} is active and well")),
    }
}

fn missing(service: &NameServiceView) -> Result<(), String> {
    let advice = "mend that first, or give --although-missing";
    let address = &service.address;
    if !service.dead.is_empty() {
        let dead = service.dead.len();
        let first = service.dead.first().map_or("", |name| name);
        return Err(format!(
            "{address} misses {dead} other nodes ({first}): {advice}"
        ));
    }
    if service.missing_blocks > 0 {
        let blocks = service.missing_blocks;
        return Err(format!("{address} misses {blocks} blocks: {advice}"));
    }
    Ok(())
}

/// Of all name services; `None` when this node is not live.
fn blocks_of(services: &[NameServiceView]) -> Option<u64> {
    services
        .iter()
        .map(|of| Some(of.node.as_ref()?.blocks))
        .sum()
}

fn live(host: &SwapHost) -> Vec<LiveNode> {
    let services = ask::name_services(host).unwrap_or_default();
    services.into_iter().filter_map(|of| of.node).collect()
}

/// Whether the node that was started serves what the other one did.
fn serves(host: &SwapHost, wanted: Turnover, before: &Before, report: &mut SwapReport) -> bool {
    let (node, blocks) = match await_live(host, wanted, before.services, before.blocks) {
        Ok(found) => found,
        Err(why) => {
            report.add("wait", StepResult::Failed, why);
            return false;
        }
    };
    report.blocks_after = Some(blocks);
    let were = before
        .blocks
        .map_or("not known".to_owned(), |count| count.to_string());
    let said = format!("live, with {blocks} blocks; before: {were}");
    report.add("wait", StepResult::Done, said);
    if host.config.get(&keys::BLOCK_ACCESS_TOKEN_ENABLE) {
        let said = "no old block was read: that needs a block token";
        report.add("read", StepResult::Note, said);
    } else {
        let read = probe::read(&node, &before.some);
        let read = read.map(|(count, bytes)| format!("{count} old blocks, {bytes} bytes"));
        if !report.try_step("read", read) {
            return false;
        }
    }
    let written = probe::write(host, &node);
    report.try_step("write", written.map(|()| "a new block".to_owned()))
}

/// Waits until the node has reported its blocks and each NameNode calls it live.
fn await_live(
    host: &SwapHost,
    wanted: Turnover,
    services: usize,
    blocks: Option<u64>,
) -> Result<(LiveNode, u64), String> {
    let began = Instant::now();
    loop {
        match is_live(host, wanted.to, services, blocks) {
            Ok(found) => return Ok(found),
            Err(why) if began.elapsed() > wanted.within => {
                let seconds = wanted.within.as_secs();
                return Err(format!("after {seconds} s: {why}"));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits for the node that was started again: it holds its directories some seconds later.
fn await_any(host: &SwapHost) {
    let began = Instant::now();
    while began.elapsed() < AGAIN_WITHIN && matches!(running(&host.volumes), Ok(None)) {
        std::thread::sleep(PAUSE);
    }
}

fn is_live(
    host: &SwapHost,
    to: WhichNode,
    services: usize,
    blocks: Option<u64>,
) -> Result<(LiveNode, u64), String> {
    let name = to.name();
    match running(&host.volumes)? {
        Some(of) if of.node == to => {}
        Some(of) => return Err(format!("{} runs, and not {name}", of.node.name())),
        None => return Err(format!("{name} does not run, or holds no directory yet")),
    }
    let views = ask::name_services(host)?;
    let mut nodes = views.iter().filter_map(|of| of.node.clone());
    let node = nodes
        .next()
        .ok_or_else(|| format!("no NameNode calls {name} live"))?;
    if nodes.count() + 1 < services {
        return Err(format!("not every NameNode calls {name} live"));
    }
    if node.last_contact > CONTACT_MAX {
        return Err(format!("the last heartbeat is {} s old", node.last_contact));
    }
    let reports = ask::counts(&node.web)?.full_reports;
    if reports < services as u64 {
        return Err(format!("{name} has not reported all its blocks yet"));
    }
    let now = blocks_of(&views).unwrap_or(0);
    // Some may be deleted meanwhile, or be known before their report.
    let before = blocks.unwrap_or(0);
    if now + (before / 100).max(10) < before {
        return Err(format!(
            "{now} blocks are reported: {before} were there before"
        ));
    }
    Ok((node, now))
}
