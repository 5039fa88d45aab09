//! `/blockScannerReport`: what the block scanners have done, in the lines of Apache's report, which
//! programs read.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hayloft_conf::keys;
use hayloft_store::ScanReport;

use super::WebHost;

const OFF: &str = "Periodic block scanner is not running. \
    Please check the datanode log if this is unexpected.";

/// The report as of now.
pub fn page(host: &dyn WebHost) -> String {
    let period = host.config().get(&keys::SCAN_PERIOD).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, millis);
    report(&host.store().scan_reports(), millis(period), now_ms)
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

fn report(scans: &[ScanReport], period_ms: u64, now_ms: u64) -> String {
    if scans.is_empty() {
        return OFF.to_owned();
    }
    let mut text = String::from("Block Scanner Statistics\n\n");
    for scan in scans {
        add(&mut text, scan, period_ms, now_ms);
    }
    text
}

fn add(text: &mut String, scan: &ScanReport, period_ms: u64, now_ms: u64) {
    let _ = writeln!(
        text,
        "Block scanner information for volume {} with base path {}",
        scan.storage.id,
        scan.path.display()
    );
    let ends = scan.round_began_ms.saturating_add(period_ms);
    let ends = if scan.round_began_ms == 0 { 0 } else { ends };
    let next = if scan.at_end { ends } else { 0 };
    let last = scan.last.as_ref();
    let rows = [
        (
            "Bytes verified in last hour",
            scan.bytes_in_hour.to_string(),
        ),
        (
            "Blocks scanned in current period",
            scan.blocks_in_period.to_string(),
        ),
        ("Blocks scanned since restart", scan.blocks.to_string()),
        ("Block pool scans since restart", scan.rounds.to_string()),
        ("Block scan errors since restart", scan.errors.to_string()),
        ("Hours until next block pool scan", hours(next, now_ms)),
        ("Hours until possible pool rescan", hours(ends, now_ms)),
        (
            "Last block scanned",
            last.map_or("none".to_owned(), ToString::to_string),
        ),
        ("More blocks to scan in period", (!scan.at_end).to_string()),
    ];
    for (what, value) in rows {
        let _ = writeln!(text, "{what:<34}: {value:>57}");
    }
    text.push('\n');
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn hours(until_ms: u64, now_ms: u64) -> String {
    let hours = until_ms.saturating_sub(now_ms) as f64 / 3_600_000.0;
    format!("{hours:.3}")
}

#[cfg(test)]
mod tests {
    use hayloft_store::StorageInfo;
    use hayloft_wire::ids::StorageType;

    use super::*;

    #[test]
    fn lines_are_apache_s() {
        assert_eq!(report(&[], 1, 1), OFF);
        let scan = ScanReport {
            path: "/d".into(),
            storage: StorageInfo {
                id: "DS-1".into(),
                storage_type: StorageType::Disk,
            },
            bytes_in_hour: 0,
            blocks_in_period: 2,
            blocks: 3,
            rounds: 1,
            errors: 0,
            round_began_ms: 3_600_000,
            at_end: true,
            last: None,
        };
        let text = report(std::slice::from_ref(&scan), 503 * 3_600_000, 3_600_000);
        let line = |text: &str, begins: &str| {
            let mut lines = text.lines();
            lines
                .find(|line| line.starts_with(begins))
                .map(str::to_owned)
        };
        let wanted = format!("Blocks scanned in current period  : {:>57}", 2);
        assert_eq!(line(&text, "Blocks scanned in"), Some(wanted));
        let wanted = format!("Hours until next block pool scan  : {:>57}", "503.000");
        assert_eq!(line(&text, "Hours until next"), Some(wanted));
        let more = line(&text, "More blocks").unwrap_or_default();
        assert!(more.ends_with(" false") && text.ends_with("\n\n"), "{text}");
        let running = ScanReport {
            at_end: false,
            ..scan
        };
        let text = report(&[running], 503 * 3_600_000, 3_600_000);
        let next = line(&text, "Hours until next").unwrap_or_default();
        assert!(next.ends_with(" 0.000"), "{next}");
    }
}
