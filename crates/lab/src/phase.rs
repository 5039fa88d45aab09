//! What one phase of a workload gave, and what limited it.

use serde::Serialize;

use super::counters;
use super::disks::DiskCounters;
use super::sample::Sample;

/// Clients and nodes that wait for a processor for a smaller share of the time in which they could
/// go on are not held up by it.
pub(super) const WAITED_LITTLE: f64 = 0.2;

/// What one phase of one round gave.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadPhase {
    /// One of [`super::workload::WHATS`].
    pub what: &'static str,
    /// Counted from 0.
    pub round: usize,
    /// MB/s of all clients together: all bytes over the time until the last one was done.
    pub mbs: f64,
    /// Bytes of all clients.
    pub bytes: u64,
    /// MB/s of each client.
    pub client_mbs: Vec<f64>,
    /// Mean utilisation of each disk, 0 to 1.
    pub disk_busy: Vec<f64>,
    /// Share of the time in which two streams were on one disk while another had none, 0 to 1.
    pub conflicts: f64,
    /// Mean MB/s on the busiest storage link.
    pub link_mbs: f64,
    /// Mean share of the processors in use, 0 to 1, without what ran at a lower priority.
    pub cpu: f64,
    /// Mean share of the processors that ran at a lower priority: others' work.
    pub cpu_low: f64,
    /// Processor seconds of each host's processes, in the order of the description.
    pub host_cpu_s: Vec<f64>,
    /// Seconds that they waited for a processor meanwhile, all threads together.
    pub host_waited_s: Vec<f64>,
    /// What each modelled disk says of itself.
    pub model: Vec<DiskCounters>,
    /// Seconds after watching began: begin and end.
    pub span: (f64, f64),
}

/// Fills in what was seen during a phase.
#[expect(
    clippy::cast_precision_loss,
    reason = "shares of a few thousand samples"
)]
pub(super) fn describe(phase: &mut WorkloadPhase, samples: &[Sample]) {
    let (from, to) = phase.span;
    let seen: Vec<&Sample> = samples
        .iter()
        .filter(|s| s.at > from && s.at <= to)
        .collect();
    let Some(first) = seen.first() else { return };
    let mean = |of: &dyn Fn(&Sample) -> f64| {
        seen.iter().map(|sample| of(sample)).sum::<f64>() / seen.len() as f64
    };
    phase.disk_busy = (0..first.disks.len())
        .map(|at| mean(&|s: &Sample| s.disks[at].busy))
        .collect();
    phase.link_mbs = (0..first.links_mbs.len())
        .map(|at| mean(&|s: &Sample| s.links_mbs[at]))
        .fold(0.0, f64::max);
    phase.cpu = mean(&|s: &Sample| s.cpu);
    phase.cpu_low = mean(&|s: &Sample| s.cpu_low);
    let active = seen.iter().filter(|sample| sample.is_active()).count();
    let conflicts = seen.iter().filter(|sample| sample.is_conflict()).count();
    phase.conflicts = conflicts as f64 / active.max(1) as f64;
}

impl WorkloadPhase {
    /// Processor seconds of clients and nodes.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.host_cpu_s.iter().sum()
    }

    /// Share of the time in which clients and nodes wanted a processor and waited for one, 0 to 1:
    /// what tells whether processors were the limit, whichever process used them.
    #[must_use]
    pub fn waited(&self) -> f64 {
        counters::waited_share(self.cpu_s(), self.host_waited_s.iter().sum())
    }

    /// What limited this phase, as far as the figures tell. Processors that others kept busy were
    /// no limit as long as clients and nodes got one nearly whenever they wanted.
    #[must_use]
    pub fn limit(&self, link_mbit: u32) -> &'static str {
        let link = self.link_mbs * 8.0 / f64::from(link_mbit);
        let disk = self.disk_busy.iter().copied().fold(0.0, f64::max);
        let told = self.host_waited_s.iter().any(|waited| *waited > 0.0);
        let processors = if told && self.waited() < WAITED_LITTLE {
            0.0
        } else {
            self.cpu
        };
        let most = [
            ("processors", processors),
            ("a link", link),
            ("a disk", disk),
        ];
        let most = most.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        match most {
            Some((what, share)) if share > 0.8 => what,
            _ => "none above 80 %",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A phase with these shares and seconds of processors.
    pub(crate) fn phase(cpu: f64, used: f64, waited: f64) -> WorkloadPhase {
        WorkloadPhase {
            what: "write",
            round: 0,
            mbs: 1.0,
            bytes: 1,
            client_mbs: Vec::new(),
            disk_busy: vec![0.85],
            conflicts: 0.0,
            link_mbs: 1.0,
            cpu,
            cpu_low: 0.0,
            host_cpu_s: vec![used],
            host_waited_s: vec![waited],
            model: Vec::new(),
            span: (0.0, 1.0),
        }
    }

    #[test]
    fn busy_processors_are_the_limit_only_for_those_who_wait() {
        assert_eq!(phase(0.95, 1.0, 1.0).limit(100), "processors");
        assert_eq!(phase(0.95, 1.0, 0.1).limit(100), "a disk", "others' work");
        assert_eq!(phase(0.95, 1.0, 0.0).limit(100), "processors", "not told");
        assert_eq!(phase(0.50, 1.0, 1.0).limit(100), "a disk");
    }
}
