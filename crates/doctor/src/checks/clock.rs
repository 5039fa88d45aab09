//! The clock, beside a server of time and beside the NameNodes.

use crate::facts::Facts;
use crate::finding::Verdicts;

/// Seconds by which clocks may differ, and by which tickets are refused soon.
const AHEAD_S: (f64, f64) = (2.0, 60.0);

pub fn clock(facts: &Facts, out: &mut Verdicts) {
    let Some(network) = &facts.network else {
        return;
    };
    let mend = "systemctl enable --now chronyd (or systemd-timesyncd)";
    if let Some((false, _)) = out.look("host", &network.synchronised) {
        let effect = "it drifts by seconds a day: times of files and logs do not fit, and beyond \
            five minutes Kerberos refuses the node";
        out.slow(
            "host",
            ["the kernel's clock follows no server of time", effect, mend],
        );
    }
    for namenode in &network.namenodes {
        let Some(ahead) = out.look(&namenode.rpc, &namenode.ahead_s) else {
            continue;
        };
        if ahead.abs() < AHEAD_S.0 {
            continue;
        }
        let which = if *ahead > 0.0 { "ahead of" } else { "behind" };
        let seen = format!("the clock is {:.0} s {which} the NameNode's", ahead.abs());
        let effect = "times of files and leases come out wrong, logs do not fit, and beyond five \
            minutes Kerberos refuses the node";
        match ahead.abs() >= AHEAD_S.1 {
            true => out.bad(&namenode.rpc, [&seen, effect, mend]),
            false => out.slow(&namenode.rpc, [&seen, effect, mend]),
        }
    }
}
