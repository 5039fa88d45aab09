//! What a swap does in turn: look, check, change, wait, try the node, and go back if it does not
//! serve.

use std::path::Path;
use std::time::{Duration, Instant};

use hayloft_client::login;
use hayloft_conf::keys;

use super::ask;
use super::change::change;
use super::clients::wait_for;
use super::host::{Action, SwapHost};
use super::report::{StepResult, SwapReport, starts_next};
use super::running::{HoldingNode, WhichNode, running};
use super::view::{IN_SERVICE, LiveNode, NameServiceView, StartedNode};
use super::{probe, profile, scripts};

/// Between two looks at a node that starts.
const PAUSE: Duration = Duration::from_millis(500);
/// For a node that was started without a swap, until it holds its directories.
const AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// For NameNodes that are asked where nothing is waited for.
const ASK_WITHIN: Duration = Duration::from_secs(60);
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
    /// Of each name service; `None` where its NameNode does not say it, or the node was not live.
    blocks: Vec<Option<u64>>,
    some: Vec<probe::OldBlock>,
}

/// `hayloft swap status`.
pub fn look(host: &SwapHost) -> SwapReport {
    let mut report = SwapReport::new(host);
    report.settle(host);
    if starts_next(host) == WhichNode::Hayloft {
        say_protection(host, &mut report);
    }
    say_live(host, &mut report);
    if report.runs.is_none() {
        report.well = false;
    }
    report
}

/// `hayloft swap in` and `out`.
pub fn turn_over(host: &SwapHost, wanted: Turnover) -> SwapReport {
    let mut report = SwapReport::new(host);
    if let Err(why) = host.alone() {
        report.add("look", StepResult::Failed, why);
        report.settle(host);
        return report;
    }
    let outcome = turn(host, wanted, &mut report);
    report.settle(host);
    if outcome.is_some() && !wanted.dry_run {
        say_live(host, &mut report);
    }
    report
}

/// How NameNodes see the node now. It is not well while one of them does not know it.
fn say_live(host: &SwapHost, report: &mut SwapReport) {
    let services = match ask::name_services(host, Instant::now() + ASK_WITHIN) {
        Ok(services) => services,
        Err(why) => {
            report.add("NameNode", StepResult::Failed, why);
            return;
        }
    };
    for service in services {
        match service.node {
            Some(node) => report.live.push(node),
            None => {
                let why = format!("{} does not call this node live", service.address);
                report.add("NameNode", StepResult::Failed, why);
            }
        }
    }
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
        if !wanted.dry_run && profile::is_old(&host.conf, &host.program) {
            let renewed = profile::install(&host.conf, &host.program);
            let renewed = renewed.map(|()| "the profile is this version's now".to_owned());
            report.try_step("profile", renewed.map_err(|error| error.to_string()));
        }
        return Some(());
    }
    let now = runs.as_ref().map_or("no node", |of| of.node.name());
    report.add("look", StepResult::Done, format!("{now} runs"));
    if host.is_for_roots_shell() {
        let safe = scripts::refuse_writable(&host.conf).map_err(|error| error.to_string());
        let safe = safe.map(|()| "root alone may change what its shell runs".to_owned());
        report.try_step("scripts", safe).then_some(())?;
    }
    let before = check(host, wanted, runs.as_ref(), report)?;
    report.blocks_before = before.blocks.iter().copied().sum();
    if wanted.dry_run {
        would(host, wanted, report);
        return Some(());
    }
    report
        .try_step(
            "write",
            probe::may_write(host, Instant::now() + wanted.within),
        )
        .then_some(())?;
    let mut started = StartedNode::from_now();
    let changed = change(host, &host.again, wanted.to);
    let changed = changed.map(|()| format!("{name} was started"));
    if !report.try_step("change", changed) {
        await_any(host);
        return Some(());
    }
    if serves(host, wanted, &before, &mut started, report) {
        return Some(());
    }
    report.went_back = true;
    let back = wanted.to.other();
    let mut started = StartedNode::from_now();
    let changed = change(host, &host.again, back);
    report.try_step(
        "go back",
        changed.map(|()| format!("{} was started", back.name())),
    );
    let wanted = Turnover { to: back, ..wanted };
    let before = vec![None; before.blocks.len()];
    let live = await_live(host, wanted, &before, &mut started);
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
        (
            "write",
            "make a file without a block, and delete it".to_owned(),
        ),
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
        let fit = host.fits_hayloft();
        report.try_step("directories", fit).then_some(())?;
    }
    if host.config.has_kerberos() {
        report.try_step("Kerberos", logs_in(host)).then_some(())?;
    }
    report.try_step("room", room(host)).then_some(())?;
    let services = match ask::name_services(host, Instant::now() + wanted.within) {
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
        blocks: services.iter().map(blocks_of).collect(),
        some: probe::blocks_on(&host.volumes),
    })
}

/// Neither node starts where it cannot log in, and the one that runs may have a ticket from before.
fn logs_in(host: &SwapHost) -> Result<String, String> {
    if let Some(keytab) = host.config.get(&keys::DATANODE_KEYTAB) {
        host.node_may_read(Path::new(&keytab))?;
    }
    wait_for(async {
        login::log_node_in(&host.config).await?;
        let principal = login::node_principal(&host.config).unwrap_or_default();
        Ok(format!("the node logs in as {principal}"))
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
        Some(node) if node.state != IN_SERVICE => Err(format!(
            "{address} says of this node {:?}, and gives it no blocks: swap it when it is in \
             service",
            node.state
        )),
        Some(node) if node.web.as_deref() == Some("") => {
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

/// Blocks of the node, as far as the NameNode says it.
fn blocks_of(service: &NameServiceView) -> Option<u64> {
    service.node.as_ref()?.blocks
}

/// Whether the node that was started serves what the other one did.
fn serves(
    host: &SwapHost,
    wanted: Turnover,
    before: &Before,
    started: &mut StartedNode,
    report: &mut SwapReport,
) -> bool {
    let live = await_live(host, wanted, &before.blocks, started);
    let (node, blocks) = match live {
        Ok(found) => found,
        Err(why) => {
            report.add("wait", StepResult::Failed, why);
            return false;
        }
    };
    report.blocks_after = blocks.iter().copied().sum();
    report.add("wait", StepResult::Done, counted(&before.blocks, &blocks));
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
    let said = |services| match services {
        1 => "a new block, which was read".to_owned(),
        more => format!("a new block in each of {more} name services, which were read"),
    };
    report.try_step("write", written.map(said))
}

/// What is said of the counts before and after. None is compared with one that was not told.
fn counted(before: &[Option<u64>], after: &[Option<u64>]) -> String {
    let sum = |counts: &[Option<u64>]| counts.iter().copied().sum::<Option<u64>>();
    match (sum(before), sum(after)) {
        (Some(before), Some(after)) => format!("live, with {after} blocks; before: {before}"),
        (None, Some(after)) => format!("live, with {after} blocks; before: not known"),
        (_, None) => "live, and has reported. How many blocks a NameNode before 3.3.2 knows of it \
                      is not told by RPC: they were not compared"
            .to_owned(),
    }
}

/// Waits until the node has reported its blocks and each NameNode calls it live.
fn await_live(
    host: &SwapHost,
    wanted: Turnover,
    before: &[Option<u64>],
    started: &mut StartedNode,
) -> Result<(LiveNode, Vec<Option<u64>>), String> {
    let until = Instant::now() + wanted.within;
    loop {
        match is_live(host, (wanted.to, until), before, started) {
            Ok(found) => return Ok(found),
            // Before an ask that has no time: what was found says more.
            Err(why) if Instant::now() + PAUSE >= until => {
                let seconds = wanted.within.as_secs();
                return Err(format!("after {seconds} s: {why}"));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits for the node that a failed change started: it holds its directories some seconds later.
fn await_any(host: &SwapHost) {
    let began = Instant::now();
    while began.elapsed() < AGAIN_WITHIN && matches!(running(&host.volumes), Ok(None)) {
        std::thread::sleep(PAUSE);
    }
}

fn is_live(
    host: &SwapHost,
    (to, until): (WhichNode, Instant),
    before: &[Option<u64>],
    started: &mut StartedNode,
) -> Result<(LiveNode, Vec<Option<u64>>), String> {
    let name = to.name();
    match running(&host.volumes)? {
        Some(of) if of.node == to => {}
        Some(of) => return Err(format!("{} runs, and not {name}", of.node.name())),
        None => return Err(format!("{name} does not run, or holds no directory yet")),
    }
    let views = ask::name_services(host, until)?;
    let nodes: Vec<LiveNode> = views.iter().filter_map(|of| of.node.clone()).collect();
    let node = nodes
        .first()
        .ok_or_else(|| format!("no NameNode calls {name} live"))?;
    if nodes.len() < before.len() {
        return Err(format!("not every NameNode calls {name} live"));
    }
    if let Some(seconds) = node.last_contact.filter(|seconds| *seconds > CONTACT_MAX) {
        return Err(format!("the last heartbeat is {seconds} s old"));
    }
    let reported = match &node.web {
        Some(web) => ask::full_reports(web, until)? >= before.len() as u64,
        None => started.has_reported(&nodes),
    };
    if !reported {
        return Err(format!("{name} has not reported all its blocks yet"));
    }
    let now: Vec<_> = views.iter().map(blocks_of).collect();
    for (view, before) in views.iter().zip(before) {
        let (Some(now), Some(before)) = (blocks_of(view), *before) else {
            continue;
        };
        // Some may be deleted meanwhile, or be known before their report.
        if now + (before / 100).max(10) < before {
            return Err(format!(
                "{}: {now} blocks are reported: {before} were there before",
                view.address
            ));
        }
    }
    Ok((node.clone(), now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_no_namenode_told_are_not_compared() {
        let said = counted(&[Some(7), Some(5)], &[Some(7), Some(4)]);
        assert_eq!(said, "live, with 11 blocks; before: 12");
        let said = counted(&[Some(7), None], &[Some(7), Some(5)]);
        assert_eq!(said, "live, with 12 blocks; before: not known");
        let said = counted(&[None, Some(0)], &[None, Some(0)]);
        assert!(
            said.contains("were not compared") && !said.contains('0'),
            "{said}"
        );
    }
}
