//! From measured curves to settings: pure functions, and the reasons in words.

use super::calibration_file::{DepthPoint, EnginePoint, QUANTUM_MAX, QUANTUM_MIN, RunPoint};
use crate::disk::Media;

/// A quantum must reach this share of the plateau.
const ENOUGH: f64 = 0.95;
/// From this time on, what a run waits for before its first byte is a seek, in seconds.
///
/// A hard disk turns half a round for it, 4.2 ms at 7200 rpm and 2 ms at 15 000, after its arm has
/// moved. Flash takes 0.05 to 2 ms, a LUN of a storage network about 1 ms. Only the time tells
/// them apart: the share of the bandwidth that short runs lose to it is as large on flash that
/// moves 7 GB/s as on a hard disk.
const SEEK_S: f64 = 0.0025;
/// More requests in flight are worth it while they bring at least this factor.
const DEPTH_GAIN: f64 = 1.05;
/// On flash a quantum below this only makes more requests.
const FLASH_QUANTUM_MIN: u64 = 4 << 20;
/// Engines within this share of the fastest count as equally fast.
const AS_FAST: f64 = 0.9;

/// The settings that follow from a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What kind of device it behaves like.
    pub media: Media,
    /// Bytes for one stream before the next.
    pub quantum_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Name of the engine.
    pub engine: String,
    /// Why, in sentences.
    pub reason: String,
}

/// What follows from the curves; defaults of the media for what was not measured.
#[must_use]
pub fn propose(runs: &[RunPoint], depths: &[DepthPoint], engines: &[EnginePoint]) -> Proposal {
    let media = media(runs);
    let read = quantum(&curve(runs, |p| p.read_bytes_s));
    let write = quantum(&curve(runs, |p| p.write_bytes_s));
    let measured = read.max(write);
    let (kind, floor) = match media {
        Media::Rotating => ("a hard disk", QUANTUM_MIN),
        Media::Flash => ("flash", FLASH_QUANTUM_MIN),
    };
    let quantum_bytes = measured
        .unwrap_or(FLASH_QUANTUM_MIN)
        .clamp(floor, QUANTUM_MAX);
    let mib = |bytes: u64| format!("{:.4} MiB", in_mib(bytes)).replace(".0000", "");
    let mut reason = format!("It behaves like {kind}. ");
    match measured {
        Some(measured) if measured < floor => reason.push_str(&format!(
            "Runs of {} already reach 95 % of the bandwidth of long ones; a quantum of {} keeps \
                the number of requests low. ",
            mib(measured),
            mib(floor),
        )),
        Some(_) => reason.push_str(&format!(
            "Runs of {} between seeks are the shortest that reach 95 % of the bandwidth of long \
                ones. ",
            mib(quantum_bytes),
        )),
        None => reason.push_str("Bandwidth against run length was not measured. "),
    }
    let depth = depth(depths);
    reason.push_str(&match media {
        Media::Rotating => {
            format!("{depth} requests in flight: more bring less than 5 % at short random reads. ")
        }
        Media::Flash => format!("{depth} requests in flight fill the device. "),
    });
    let engine = engine(engines);
    reason.push_str(&engine.1);
    Proposal {
        media,
        quantum_bytes,
        depth,
        engine: engine.0,
        reason,
    }
}

fn curve(runs: &[RunPoint], rate: impl Fn(&RunPoint) -> Option<f64>) -> Vec<(u64, f64)> {
    let points = runs.iter();
    points
        .filter_map(|p| Some((p.run_bytes, rate(p)?)))
        .collect()
}

/// What a curve says of its device: so long until a run begins, so many bytes a second from there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Seconds before a run's first byte: a seek and half a turn, or a request's own cost.
    pub begin_s: f64,
    /// Bytes a second within a run: the plateau of the curve.
    pub bytes_s: f64,
}

impl Fit {
    /// The share of the plateau that runs of `bytes` reach, 0 to 1.
    #[must_use]
    pub fn share(&self, bytes: u64) -> f64 {
        let transfer = size(bytes) / self.bytes_s;
        transfer / (transfer + self.begin_s)
    }

    /// How far a curve is from this one: the sum of the points' deviations, as logarithms, so
    /// that a point counts by its ratio and a bad one no more than that.
    fn distance(&self, curve: &[(u64, f64)]) -> f64 {
        let off = |(run, rate): &(u64, f64)| (self.share(*run) * self.bytes_s / rate).ln().abs();
        curve.iter().map(off).sum()
    }
}

/// The device that a curve comes closest to; `None` without a point above 0.
///
/// Of the devices through every two points (and those without any cost of beginning, through
/// every one) the closest to all of them. A machine that was busy while some points were taken
/// does not move it. One that was busy all the time lowers the plateau, but leaves the time that a
/// seek takes: the quantum follows from that.
#[must_use]
pub fn fit(curve: &[(u64, f64)]) -> Option<Fit> {
    let usable = |(run, rate): &&(u64, f64)| *run > 0 && *rate > 0.0 && rate.is_finite();
    let curve: Vec<(u64, f64)> = curve.iter().filter(usable).copied().collect();
    let flat = curve.iter().map(|(_, rate)| Fit {
        begin_s: 0.0,
        bytes_s: *rate,
    });
    let pairs = curve.iter().enumerate();
    let pairs = pairs.flat_map(|(n, short)| curve[n + 1..].iter().map(move |long| (short, long)));
    let through = pairs.filter_map(|((a, a_rate), (b, b_rate))| {
        let (a, b) = (size(*a), size(*b));
        let bytes_s = (b - a) / (b / b_rate - a / a_rate);
        let begin_s = a / a_rate - a / bytes_s;
        let possible = bytes_s > 0.0 && bytes_s.is_finite() && begin_s >= 0.0;
        possible.then_some(Fit { begin_s, bytes_s })
    });
    let all = flat.chain(through);
    all.min_by(|a, b| a.distance(&curve).total_cmp(&b.distance(&curve)))
}

/// The shortest run, a power of two, that reaches 95 % of the fitted plateau; from the shortest
/// that was measured to twice the longest, and at most [`QUANTUM_MAX`]. `None` without a curve.
#[must_use]
pub fn quantum(curve: &[(u64, f64)]) -> Option<u64> {
    let fit = fit(curve)?;
    let runs = || curve.iter().map(|(run, _)| *run);
    let longest = runs().max()?.saturating_mul(2).min(QUANTUM_MAX);
    let mut run = runs().min()?.next_power_of_two();
    while run < longest && fit.share(run) < ENOUGH {
        run *= 2;
    }
    Some(run)
}

/// A hard disk waits milliseconds for each random access, flash does not.
#[must_use]
pub fn media(runs: &[RunPoint]) -> Media {
    let read = curve(runs, |p| p.read_bytes_s);
    let fitted = fit(&read).or_else(|| fit(&curve(runs, |p| p.write_bytes_s)));
    match fitted {
        Some(fit) if fit.begin_s >= SEEK_S => Media::Rotating,
        _ => Media::Flash,
    }
}

/// The smallest depth after which doubling brings less than 5 %.
#[must_use]
pub fn depth(depths: &[DepthPoint]) -> u32 {
    let mut chosen: Option<&DepthPoint> = None;
    for point in depths {
        match chosen {
            Some(best) if point.bytes_s < best.bytes_s * DEPTH_GAIN => {}
            _ => chosen = Some(point),
        }
    }
    chosen.map_or(1, |point| point.depth)
}

/// Of the engines that are about as fast as the fastest, the one that costs least.
fn engine(engines: &[EnginePoint]) -> (String, String) {
    let rate = |p: &EnginePoint| p.read_bytes_s.min(p.write_bytes_s);
    let Some(best) = engines.iter().map(rate).max_by(f64::total_cmp) else {
        return (
            "posix".into(),
            "The engines were not compared: posix works everywhere.".into(),
        );
    };
    let fast = engines.iter().filter(|p| rate(p) >= AS_FAST * best);
    let cheapest = fast.min_by(|a, b| a.cpu_s_per_gib.total_cmp(&b.cpu_s_per_gib));
    let Some(chosen) = cheapest else {
        return ("posix".into(), String::new());
    };
    (
        chosen.engine.clone(),
        format!(
            "Of the engines that move within 10 % of the fastest, {} costs least: {:.2} processor \
                seconds a GiB.",
            chosen.engine, chosen.cpu_s_per_gib
        ),
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a run of at most a few gigabytes"
)]
fn size(bytes: u64) -> f64 {
    bytes as f64
}

fn in_mib(bytes: u64) -> f64 {
    size(bytes) / 1_048_576.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const RUNS: [u64; 9] = [
        64 * KIB,
        256 * KIB,
        MIB,
        4 * MIB,
        8 * MIB,
        16 * MIB,
        32 * MIB,
        64 * MIB,
        128 * MIB,
    ];

    #[expect(clippy::cast_precision_loss, reason = "a small size")]
    fn synthetic(rate: f64, seek_s: f64, noise: &[f64]) -> Vec<RunPoint> {
        let noise = noise.iter().cycle();
        RUNS.iter()
            .zip(noise)
            .map(|(&run, noise)| {
                let measured = run as f64 / (run as f64 / rate + seek_s) * noise;
                RunPoint {
                    run_bytes: run,
                    read_bytes_s: Some(measured),
                    write_bytes_s: None,
                }
            })
            .collect()
    }

    fn chosen(points: &[RunPoint]) -> Option<u64> {
        quantum(&curve(points, |p| p.read_bytes_s))
    }

    #[test]
    fn a_hard_disk_is_flat_from_32_mib() {
        let disk = synthetic(105e6, 0.0127, &[1.0]);
        assert_eq!(media(&disk), Media::Rotating);
        assert_eq!(chosen(&disk), Some(32 * MIB));
    }

    #[test]
    fn a_disk_with_short_seeks_needs_half_of_it() {
        let disk = synthetic(105e6, 0.006, &[1.0]);
        assert_eq!(chosen(&disk), Some(16 * MIB));
    }

    #[test]
    fn noise_moves_the_choice_by_a_step_at_most() {
        for noise in [
            &[1.0, 0.97, 1.03, 0.98][..],
            &[1.02, 1.0, 0.96, 1.01, 1.0],
            &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 1.0],
        ] {
            let disk = synthetic(105e6, 0.0127, noise);
            assert_eq!(media(&disk), Media::Rotating);
            let chosen = chosen(&disk).expect("there is a curve");
            assert!(
                (16 * MIB..=64 * MIB).contains(&chosen),
                "{noise:?}: {chosen}"
            );
        }
    }

    #[test]
    fn flash_is_told_from_a_disk_and_gets_a_quantum_that_keeps_requests_few() {
        let flash = synthetic(1e9, 0.000_08, &[1.0]);
        assert_eq!(media(&flash), Media::Flash);
        let proposal = propose(&flash, &[], &[]);
        assert_eq!(proposal.quantum_bytes, FLASH_QUANTUM_MIN);
        assert!(proposal.reason.contains("flash"), "{}", proposal.reason);
    }

    #[test]
    fn the_time_of_a_random_access_tells_a_disk_from_flash() {
        for (device, rate, access_s, expected) in [
            ("fast flash", 7e9, 0.000_07, Media::Flash),
            ("an SD card", 40e6, 0.001_5, Media::Flash),
            ("a slow SD card", 12e6, 0.002, Media::Flash),
            ("a LUN of a storage network", 1.2e9, 0.001, Media::Flash),
            ("7200 rpm", 250e6, 0.012, Media::Rotating),
            (
                "7200 rpm, seeks within a short file",
                250e6,
                0.006,
                Media::Rotating,
            ),
            ("15 000 rpm", 200e6, 0.003, Media::Rotating),
        ] {
            for noise in [&[1.0][..], &[1.0, 0.97, 1.03, 0.98]] {
                let points = synthetic(rate, access_s, noise);
                assert_eq!(media(&points), expected, "{device}, noise {noise:?}");
            }
        }
    }

    #[test]
    fn a_machine_that_was_busy_while_long_runs_were_taken_does_not_shrink_the_quantum() {
        // At 1 MiB the rate is 95 % of what long runs got, as seen once.
        let busy = [1.0, 1.0, 1.0, 0.6, 0.55, 0.5, 0.48, 0.46, 0.45];
        let disk = synthetic(105e6, 0.0127, &busy);
        assert_eq!(media(&disk), Media::Rotating);
        assert!(chosen(&disk).expect("there is a curve") >= 8 * MIB);
        let always = synthetic(50e6, 0.0127, &[1.0]);
        assert_eq!(chosen(&always), Some(16 * MIB));
    }

    #[test]
    fn a_fit_gives_back_the_device_it_was_made_of() {
        for (rate, seek) in [(105e6, 0.0127), (2e9, 0.000_05), (5e8, 0.0)] {
            let points = synthetic(rate, seek, &[1.0]);
            let fit = fit(&curve(&points, |p| p.read_bytes_s)).expect("there is a curve");
            assert!((fit.bytes_s / rate - 1.0).abs() < 1e-6, "{fit:?}");
            assert!((fit.begin_s - seek).abs() < 1e-9, "{fit:?}");
        }
    }

    #[test]
    fn a_lucky_point_is_not_the_plateau() {
        let mut disk = synthetic(105e6, 0.0127, &[1.0]);
        disk[4].read_bytes_s = Some(130e6);
        assert!(chosen(&disk).expect("there is a curve") >= 8 * MIB);
    }

    #[test]
    fn nothing_measured_gives_defaults() {
        assert_eq!(quantum(&[]), None);
        assert_eq!(quantum(&[(1, 0.0)]), None);
        let proposal = propose(&[], &[], &[]);
        assert_eq!((proposal.depth, proposal.engine.as_str()), (1, "posix"));
    }

    #[test]
    fn depth_stops_where_it_brings_nothing() {
        let point = |depth, bytes_s| DepthPoint {
            depth,
            bytes_s,
            median_us: 1.0,
            p99_us: 1.0,
        };
        let saturating = [
            point(1, 1e8),
            point(2, 1.9e8),
            point(4, 3e8),
            point(8, 3.1e8),
            point(16, 3.1e8),
        ];
        assert_eq!(depth(&saturating), 4);
        assert_eq!(depth(&[point(1, 5e6), point(2, 5.1e6), point(32, 9e6)]), 32);
    }

    #[test]
    fn of_engines_as_fast_the_cheapest_is_taken() {
        let point = |engine: &str, rate, cpu| EnginePoint {
            engine: engine.into(),
            read_bytes_s: rate,
            write_bytes_s: rate,
            cpu_s_per_gib: cpu,
        };
        let engines = [
            point("posix", 9.5e7, 0.6),
            point("direct", 1e8, 0.2),
            point("slow", 5e7, 0.1),
        ];
        assert_eq!(engine(&engines).0, "direct");
    }
}
