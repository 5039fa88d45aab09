//! One pass of the watch: it looks, then gives back, then sets, then keeps what it knows.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hayloft_conf::Configuration;
use hayloft_console::progress::say;
use hayloft_wire::proto::file_status::FileType;
use tokio_util::sync::CancellationToken;

use super::super::age::{ColdBy, Cutoff, Precision, TimesAsked};
use super::super::ask_namenode::{ActiveNameNode, refused};
use super::super::choose_targets::Planner;
use super::super::cold_cluster::{ColdCluster, POLICY, scan_image};
use super::super::cold_directories::LeafLimit;
use super::super::namenode_conf;
use super::super::report::{self, ColdReport};
use super::super::scanned_file::FileSums;
use super::super::set_policies::{ChangeSums, PolicyChange};
use super::super::spool::{Spool, unspooled};
use super::super::undo::{ColdTarget, UndoWriter};
use super::access_times;
use super::arguments::ColdWatchArgs;
use super::clock::{self, ClockMark};
use super::memory::{PassOver, Thresholds};
use super::state::{StateDirectory, WatchState};
use super::status::PassReport;
use crate::error::CliError;

/// What passes are made with.
pub struct ColdWatch<'a> {
    /// What was asked for.
    pub args: &'a ColdWatchArgs,
    /// The cluster's configuration.
    pub config: &'a Configuration,
    /// Who is asked.
    pub namenode: Arc<ActiveNameNode>,
    /// Where the state is.
    pub directory: StateDirectory,
    /// Cancelled to end between two calls.
    pub stop: CancellationToken,
    /// No pass of this process has ended: warnings that stay true are still to be said.
    pub first: bool,
}

/// What a pass saw, before it changes anything.
struct Looked {
    cluster: ColdCluster,
    state: WatchState,
    over: PassOver,
    cutoff: Cutoff,
    report: PassReport,
}

impl ColdWatch<'_> {
    /// Makes a pass; none when it was to stop before it changed anything.
    ///
    /// # Errors
    /// What stopped it. The state on disk is that of the last pass, and what this one has set is in
    /// its undo file.
    pub async fn pass(&mut self) -> Result<Option<PassReport>, CliError> {
        let start = Instant::now();
        let looked = tokio::select! {
            looked = self.look() => looked?,
            () = self.stop.cancelled() => return Ok(None),
        };
        self.first = false;
        let mut report = self.change(looked).await?;
        report.took_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Some(report))
    }

    async fn look(&self) -> Result<Looked, CliError> {
        let mut state = self.directory.load(self.namenode.name())?;
        let clock = ClockMark::now();
        let before = state.clock.replace(clock.clone());
        let hold = before.is_some_and(|before| clock.jumped_since(&before));
        if hold {
            say(
                "warning: the clock was set by more than an hour: nothing is set in this pass, and \
                 counts of passes begin anew",
            );
        }
        let cluster = ColdCluster::of(Arc::clone(&self.namenode)).await?;
        let mut room = u64::MAX;
        if self.args.apply {
            room = self.check_cluster(&cluster, clock.wall_ms).await?;
        }
        let (paths, mut missing_paths) = self.paths_there().await?;
        let (cutoff, precision) = self.cutoff(clock.wall_ms)?;
        let logs = &self.args.audit_log;
        if !logs.is_empty() {
            // A dry pass has not compared its clock.
            let forget_ms = (!hold && self.args.apply).then_some(cutoff.at_ms);
            state.audit.read_on(logs, forget_ms, clock.wall_ms)?;
        }
        self.warn_of_old_image();
        let thresholds = Thresholds {
            after_passes: self.args.after_passes,
            back_after: self.args.back_after,
            files: self.args.files_per_pass,
            bytes: self.args.bytes_per_pass,
            room,
            hold,
            apply: self.args.apply,
        };
        let mut over = PassOver::new(std::mem::take(&mut state.memory), thresholds);
        let (mut total, mut read_later) = (FileSums::default(), 0);
        for path in paths {
            let plan = self.plan(&cluster, path, cutoff, &precision, &state, &mut over);
            let Some((sums, read)) = plan.await? else {
                missing_paths.push(path.to_owned());
                continue;
            };
            total.add(&sums);
            read_later += read;
        }
        state.read_later |= read_later > 0;
        let is_told = state.read_later || self.args.times != TimesAsked::Auto;
        if logs.is_empty() && !is_told {
            self.refuse_times(access_times::seem_off(&total, cutoff.by))?;
        }
        state.pass += 1;
        let report = PassReport {
            pass: state.pass,
            started_ms: clock.wall_ms,
            apply: self.args.apply,
            total,
            missing_paths,
            clock_was_set: hold,
            reads_known_since_ms: (!logs.is_empty()).then(|| state.audit.uses.since_ms()),
            ..PassReport::default()
        };
        Ok(Looked {
            cluster,
            state,
            over,
            cutoff,
            report,
        })
    }

    /// Refuses a pass that could set nothing, or would go by a wrong clock. Returns the room of the
    /// ARCHIVE storages.
    async fn check_cluster(&self, cluster: &ColdCluster, now_ms: u64) -> Result<u64, CliError> {
        let (namenode, place) = (&cluster.namenode, self.namenode.name());
        let space = cluster.archive_space().await?;
        let heard_ms = space.heard_ms;
        if heard_ms > 0 && clock::are_apart(now_ms, heard_ms) {
            let is = if now_ms > heard_ms {
                "ahead of"
            } else {
                "behind"
            };
            let what = format!(
                "the clock of this host is {} min {is} that of the NameNode",
                now_ms.abs_diff(heard_ms) / 60_000
            );
            return Err(CliError::new(what, place, "set the one that is wrong"));
        }
        let safe = namenode.is_in_safe_mode().await;
        if safe.map_err(|error| refused("ask for safe mode", place, &error))? {
            let what = "the NameNode is in safe mode, where no policy is set";
            return Err(CliError::new(what, place, "wait until it has left it"));
        }
        Ok(space.free)
    }

    fn refuse_times(&self, why: Option<String>) -> Result<(), CliError> {
        let advice = "give --audit-log FILE, or --times modification; --times access if they are \
                      kept";
        why.map_or(Ok(()), |what| {
            Err(CliError::new(what, self.namenode.name(), advice).lasting())
        })
    }

    fn warn_of_old_image(&self) {
        let Some(image) = &self.args.image else {
            return;
        };
        let saved = std::fs::metadata(image).and_then(|about| about.modified());
        let age = saved.ok().and_then(|saved| saved.elapsed().ok());
        if age.is_some_and(|age| age > self.args.every) {
            say(&format!(
                "warning: {} is older than --every: fetch it anew before each pass",
                image.display()
            ));
        }
    }

    /// The paths that are directories now, and those that are not.
    async fn paths_there(&self) -> Result<(Vec<&str>, Vec<String>), CliError> {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for path in &self.args.paths {
            let status = self.namenode.status(path).await;
            let status = status.map_err(|error| refused("look at a directory", path, &error))?;
            match status {
                Some(status) if status.file_type() == FileType::IsDir => there.push(&**path),
                _ => missing.push(path.clone()),
            }
        }
        Ok((there, missing))
    }

    /// What is cold now. Times of changes alone are taken only when they were asked for: no user is
    /// there to read the warning that files which are read look cold too.
    fn cutoff(&self, now_ms: u64) -> Result<(Cutoff, Precision), CliError> {
        let age = self.args.age();
        if !self.args.audit_log.is_empty() {
            let precision = Precision::Unknown;
            let cutoff = Cutoff::new(age, now_ms, TimesAsked::Access, &precision);
            return Ok((cutoff, precision));
        }
        let asked = namenode_conf::precision(self.config, self.args.nameservice.as_deref());
        let precision = asked.unwrap_or_else(|| Precision::of(Some(self.config)));
        let cutoff = Cutoff::new(age, now_ms, self.args.times, &precision);
        if cutoff.by == ColdBy::Modification && self.args.times == TimesAsked::Auto {
            let what = "access times are switched off, so files that are read look cold";
            self.refuse_times(Some(what.to_owned()))?;
        }
        self.refuse_times(access_times::too_coarse(&precision, cutoff.by, age))?;
        if self.first {
            report::warn_of_times(&precision, cutoff.by, age);
        }
        Ok((cutoff, precision))
    }

    /// Takes what is found below a path; returns its sums, and the files of it that were read after
    /// their last change. None when the image has no such path.
    async fn plan(
        &self,
        cluster: &ColdCluster,
        path: &str,
        cutoff: Cutoff,
        precision: &Precision,
        state: &WatchState,
        over: &mut PassOver,
    ) -> Result<Option<(FileSums, u64)>, CliError> {
        let mut spool = Spool::create(self.directory.path()).map_err(|e| unspooled(&e))?;
        let uses = (!self.args.audit_log.is_empty()).then_some(&state.audit.uses);
        let tree = match &self.args.image {
            Some(image) => scan_image(image, path, cutoff, Some(&mut spool))?,
            None => Some(cluster.scan(path, cutoff, uses, Some(&mut spool)).await?),
        };
        let Some(tree) = tree else {
            return Ok(None);
        };
        let tree = tree.limited(Some(LeafLimit {
            files: self.args.files_per_pass,
            bytes: self.args.bytes_per_pass,
        }));
        if self.first && uses.is_none() {
            ColdReport::new(&tree, cutoff, precision, 0, 0).warn_of_unread();
        }
        let planner = Planner {
            namenode: &cluster.namenode,
            names: &cluster.names,
            cold_policy: cluster.cold_policy,
            cutoff,
            spool_dir: self.directory.path(),
            told: &|_, _| {},
        };
        let mut sink = |found| {
            over.take(found);
            Ok(())
        };
        if self.args.image.is_some() {
            planner.of_image(&tree, spool, &mut sink).await?;
        } else {
            planner.of_live(&tree, spool, &mut sink).await?;
        }
        Ok(Some((*tree.total(), tree.read_later())))
    }

    async fn change(&self, looked: Looked) -> Result<PassReport, CliError> {
        let Looked {
            cluster,
            mut state,
            mut over,
            cutoff,
            mut report,
        } = looked;
        let back = over.count_uses();
        let mut due = std::mem::take(&mut over.due);
        report.waiting_paths = over.waiting;
        report.due_paths = due.len() as u64;
        report.due_files = over.due_files;
        report.due_bytes = over.due_bytes;
        report.back_paths = back.len() as u64;
        let (mut set, mut given): (&[ColdTarget], &[ColdTarget]) = (&[], &[]);
        if self.args.apply && !back.is_empty() {
            let put_back = PolicyChange::PutBack(cluster.cold_policy);
            report.given_back = self.change_all(&cluster, &back, put_back).await?;
            // One that was refused has its turn again; one that has its policy is left alone then.
            if report.given_back.failed == 0 && !self.stop.is_cancelled() {
                given = &back;
            }
        }
        if over.without_room > 0 {
            report.not_set = Some(format!(
                "{} paths wait: the ARCHIVE storages have no room for one replica of them",
                over.without_room
            ));
        }
        if self.args.apply && !due.is_empty() && !self.stop.is_cancelled() {
            report.undo_file = Some(self.write_undo(state.pass, &due)?);
            let change = PolicyChange::SetIfCold(POLICY.to_owned(), cutoff);
            report.set = self.change_all(&cluster, &due, change).await?;
            let unset: HashSet<String> = report.set.unchanged.drain(..).collect();
            due.retain(|target| !unset.contains(&target.path));
            set = &due;
        }
        state.memory = over.end(set, state.pass, given);
        report.archived_paths = state.memory.archived.len() as u64;
        self.directory.save(&state)?;
        Ok(report)
    }

    /// What is about to be set, durable before it is.
    fn write_undo(&self, pass: u64, due: &[ColdTarget]) -> Result<PathBuf, CliError> {
        let path = self.directory.undo_file(pass);
        let made_at_s = hayloft_store::now_ms() / 1000;
        let mut undo = UndoWriter::create(&path, self.namenode.name(), POLICY, made_at_s)?;
        for target in due {
            undo.push(target)?;
        }
        undo.finish()?;
        Ok(path)
    }

    /// Changes targets, until the watch is to stop: what is under way then is waited for.
    async fn change_all(
        &self,
        cluster: &ColdCluster,
        targets: &[ColdTarget],
        change: PolicyChange,
    ) -> Result<ChangeSums, CliError> {
        let until_stopped = targets.iter().take_while(|_| !self.stop.is_cancelled());
        let until_stopped = until_stopped.cloned().map(Ok);
        cluster
            .change(until_stopped, targets.len() as u64, change)
            .await
    }
}
