//! What the kernel counts: of processes that wait for a processor, of devices.

use std::fs::DirEntry;

/// Seconds that the threads of a process have waited for a processor; 0 where the kernel does not
/// say.
#[must_use]
pub fn waited_s(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let seconds = |task: DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let nanos: f64 = text.split_whitespace().nth(1)?.parse().ok()?;
        Some(nanos / 1e9)
    };
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.filter_map(seconds).sum()
}

/// Seconds so far in which some process of the machine could have gone on and waited for a
/// processor, threads that have ended among them; none where the kernel does not count pressure.
#[must_use]
pub fn pressed_s() -> Option<f64> {
    pressure(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn pressure(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let total = some
        .split_whitespace()
        .find_map(|word| word.strip_prefix("total="))?;
    Some(total.parse::<f64>().ok()? / 1e6)
}

/// Sectors read and written by a device of this name, and milliseconds in which it had a request.
#[must_use]
pub fn device(name: &str) -> (u64, u64, u64) {
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap_or_default();
    let field = |at: usize| {
        let field = text.split_whitespace().nth(at);
        field.and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    (field(2), field(6), field(9))
}

/// Processors of this machine.
#[expect(clippy::cast_precision_loss, reason = "a few processors")]
#[must_use]
pub fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_in_seconds() {
        let text = "some avg10=57.36 avg60=39.01 avg300=54.68 total=2500000\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(text), Some(2.5));
        assert_eq!(pressure("full avg10=0.00 total=7\n"), None);
        assert_eq!(pressure("some avg10=0.00\n"), None);
    }
}
