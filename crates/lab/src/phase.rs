//! What one phase of a workload gave, and what limited it.

use hayloft_bench::fair::limit::Shares;
use hayloft_bench::fair::spread::Spread;
use serde::Serialize;

use super::counters;
use super::describe::Description;
use super::disks::DiskCounters;
use super::runner::record::PeerFigures;
use super::sample::Sample;

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
    /// Mean MB/s on each host's busiest link, in the order of the description.
    pub links_mbs: Vec<f64>,
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
    phase.links_mbs = (0..first.links_mbs.len())
        .map(|at| mean(&|s: &Sample| s.links_mbs[at]))
        .collect();
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

    /// Seconds that it took.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.span.1 - self.span.0
    }

    /// Share of the wall time in which threads of clients and nodes waited for a processor, all
    /// threads together.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.host_waited_s.iter().sum::<f64>() / self.seconds().max(1e-9)
    }

    /// Utilisation of each disk: by the account of modelled ones, else by the kernel's.
    fn disks(&self) -> Vec<f64> {
        if self.model.is_empty() {
            return self.disk_busy.clone();
        }
        self.model.iter().map(|disk| disk.utilisation).collect()
    }

    /// Mean MB/s on the busiest link.
    #[must_use]
    pub fn link_mbs(&self) -> f64 {
        self.links_mbs.iter().copied().fold(0.0, f64::max)
    }

    /// What was in use meanwhile.
    #[must_use]
    pub fn shares(&self, described: &Description) -> Shares {
        let most = |all: Vec<f64>| all.into_iter().reduce(f64::max);
        let storage = described.hosts().zip(&self.host_cpu_s);
        let storage = storage.filter(|((_, host), _)| !host.client && !host.nodes.is_empty());
        let used = storage.map(|(_, seconds)| seconds / self.seconds().max(1e-9));
        let links = described.hosts().zip(&self.links_mbs);
        let links = links.map(|((_, host), mbs)| {
            let mbit = host.link_mbit.unwrap_or(described.network.link_mbit);
            mbs * 8.0 / f64::from(mbit)
        });
        Shares {
            cpu: Some(self.cpu),
            waited: Some(self.waited()),
            disk: most(self.disks()),
            link: most(links.collect()),
            peer: most(used.collect()),
            client: None,
        }
    }

    /// Everything that was measured, by name.
    #[must_use]
    pub fn figures(&self, described: &Description) -> PeerFigures {
        let shares = self.shares(described);
        let held_up = counters::waited_share(self.cpu_s(), self.host_waited_s.iter().sum());
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let late = self.model.iter().map(|disk| disk.late).sum::<u64>() as f64;
        PeerFigures::of([
            ("mbs", self.mbs),
            ("seconds", self.seconds()),
            ("conflicts", self.conflicts),
            ("late", late),
            ("held_up", held_up),
        ])
        .with_some("disks", Spread::of(self.disks()).map(|disks| disks.median))
        .with_some("cpu", shares.cpu)
        .with_some("waited", shares.waited)
        .with_some("disk_busy", shares.disk)
        .with_some("link", shares.link)
        .with_some("peer", shares.peer)
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
            links_mbs: vec![1.0],
            cpu,
            cpu_low: 0.0,
            host_cpu_s: vec![used],
            host_waited_s: vec![waited],
            model: Vec::new(),
            span: (0.0, 1.0),
        }
    }

    #[test]
    fn a_phase_tells_what_limited_it_by_shares_of_its_time() {
        use hayloft_bench::fair::limit::Limit;
        let hosts = vec![crate::describe::HostSpec::client("c0")];
        let described = Description::one_rack("p", "stock", 100, hosts);
        let limit = |of: &WorkloadPhase| of.shares(&described).limit();
        assert_eq!(limit(&phase(0.95, 1.0, 0.0)), Limit::Processor);
        assert_eq!(
            limit(&phase(0.50, 1.0, 0.06)),
            Limit::Processor,
            "they waited"
        );
        assert_eq!(limit(&phase(0.50, 1.0, 0.04)), Limit::Disk);
        let link = WorkloadPhase {
            disk_busy: vec![0.5],
            links_mbs: vec![11.0],
            ..phase(0.5, 1.0, 0.0)
        };
        assert_eq!(limit(&link), Limit::Link);
        let mut slower = described.clone();
        slower.racks[0].hosts[0].link_mbit = Some(9);
        let slow = phase(0.5, 1.0, 0.0).shares(&slower);
        assert!((slow.link.unwrap_or(0.0) - 8.0 / 9.0).abs() < 1e-9);
        let figures = phase(0.5, 3.0, 0.04).figures(&described);
        assert_eq!(figures.get("seconds"), Some(1.0));
        assert_eq!(figures.get("disk_busy"), Some(0.85));
        let held_up = figures.get("held_up").expect("told");
        assert!((held_up - 0.04 / 3.04).abs() < 1e-9);
    }
}
