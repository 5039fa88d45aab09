//! What a reader has to know of a row before believing it: processors may have limited it, its JVMs
//! were not warm, or it moved too little to tell processor time by.

use std::fmt::Write as _;

use crate::phase::{WAITED_LITTLE, WorkloadPhase};
use crate::report::spread;
use crate::warm;
use hayloft_testkit::machine::CPU_MIB;

/// A row that processors may have limited.
const HELD_UP: &str = " †";
/// A row whose JVMs were not warm.
const COLD: &str = " \\*";

/// The signs of a row that waited this share of the time for a processor, and was warm or not, when
/// that is known.
pub(super) fn signs(waited: f64, warm: Option<bool>) -> String {
    let held_up = if waited < WAITED_LITTLE { "" } else { HELD_UP };
    let cold = if warm == Some(false) { COLD } else { "" };
    format!("{held_up}{cold}")
}

/// What the signs say, a paragraph of a page.
pub(super) fn legend(warm: bool) -> String {
    let mut text = format!(
        "\n†: processors may have limited this row. Clients and nodes waited for one in {:.0} % or \
         more of the time in which they could have gone on.\n",
        WAITED_LITTLE * 100.0
    );
    if warm {
        let _ = writeln!(
            text,
            "\\*: not warm. Of {} rounds that did not count, no two in a row took processor time \
             within 5 %.",
            warm::ROUNDS_MOST
        );
    }
    text
}

/// Processor seconds a GiB of a host, by its position: median, lowest and highest of the rounds.
/// `None` where they moved less than 4 GiB together.
pub(super) fn cpu_s_gib(phases: &[&WorkloadPhase], host: usize) -> Option<(f64, f64, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let mib = |phase: &&WorkloadPhase| phase.bytes as f64 / f64::from(1 << 20);
    if phases.iter().map(mib).sum::<f64>() < CPU_MIB {
        return None;
    }
    let of = |phase: &&WorkloadPhase| {
        let seconds = phase.host_cpu_s.get(host).copied().unwrap_or(0.0);
        seconds / (mib(phase) / 1024.0)
    };
    Some(spread(phases.iter().map(of).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::tests::phase;

    #[test]
    fn who_waits_for_a_processor_or_is_cold_gets_a_sign() {
        assert_eq!(signs(0.19, None), "");
        assert_eq!(signs(0.20, Some(true)), " †");
        assert_eq!(signs(0.9, Some(false)), " † \\*");
        assert!(legend(true).contains("20 % or more"));
    }

    #[test]
    fn processor_seconds_need_4_gib() {
        let moved = |mib: u64| WorkloadPhase {
            bytes: mib << 20,
            host_cpu_s: vec![3.0, 6.0],
            ..phase(0.5, 0.0, 0.0)
        };
        let enough = [moved(1024), moved(3072)];
        let all: Vec<&WorkloadPhase> = enough.iter().collect();
        assert_eq!(cpu_s_gib(&all, 0), Some((3.0, 1.0, 3.0)));
        assert_eq!(cpu_s_gib(&all, 1), Some((6.0, 2.0, 6.0)));
        let little = [moved(1024), moved(3071)];
        assert_eq!(cpu_s_gib(&little.iter().collect::<Vec<_>>(), 0), None);
    }
}
