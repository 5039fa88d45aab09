use super::*;

const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;

/// Round numbers, to be computed by hand: 100 bytes a microsecond, a turn of 10 ms (so a track of
/// 1 MB), seeks of 1 ms and 8/15 * 15/8 * 7 = 7 ms more on average, 15 ms more over 1 GB... less
/// the shortest.
fn round() -> Params {
    Params {
        retries_us: 0,
        read_bytes_s: 100 * MB,
        write_bytes_s: 50 * MB,
        seek_average_us: 9_000,
        seek_shortest_us: 1_000,
        rpm: 6_000,
        buffer_bytes: MB,
        interface_bytes_s: 1_000 * MB,
        queue_depth: 4,
        patience_us: 50_000,
    }
}

fn read(offset: u64, length: u64, arrived: u64) -> Request {
    Request {
        kind: MediaKind::Read,
        offset,
        length,
        arrived,
    }
}

fn write(offset: u64, length: u64, arrived: u64) -> Request {
    Request {
        kind: MediaKind::Write,
        ..read(offset, length, arrived)
    }
}

#[test]
fn a_queued_sequential_stream_runs_at_the_rate_of_the_medium() {
    for (kind, expected) in [(MediaKind::Read, 10 * MS), (MediaKind::Write, 20 * MS)] {
        let mut model = Model::new(round(), 1_000 * MB);
        model.last = kind;
        for n in 0..10 {
            let request = Request {
                kind,
                ..read(n * MB, MB, 0)
            };
            let service = model.serve(&request);
            assert_eq!(service.end, (n + 1) * expected);
            assert!(service.sequential && !service.positioned);
        }
    }
}

#[test]
fn the_buffer_hides_pauses_of_a_stream_up_to_its_size() {
    let mut model = Model::new(round(), 1_000 * MB);
    assert_eq!(model.serve(&read(0, MB, 0)).end, 10 * MS);
    // 3 ms late: 7 ms of its transfer are left.
    assert_eq!(model.serve(&read(MB, MB, 13 * MS)).end, 20 * MS);
    // 10 ms late, all of it is in the buffer: the interface takes 1 ms.
    assert_eq!(model.serve(&read(2 * MB, MB, 30 * MS)).end, 31 * MS);
    // 11 ms late, more than the buffer holds: the place was at the head at 31 ms and is again
    // after the rest of this turn, at 50 ms (3 MB are 3 tracks: angle 0).
    let late = model.serve(&read(3 * MB, MB, 42 * MS));
    assert_eq!((late.rotation, late.end), (8 * MS, 60 * MS));
    assert!(late.positioned && late.seek == 0);
}

#[test]
fn a_pause_does_not_hide_across_directions() {
    let mut model = Model::new(round(), 1_000 * MB);
    model.serve(&read(0, MB, 0));
    let service = model.serve(&write(MB, MB, 13 * MS));
    assert_eq!(service.end, 33 * MS, "its own 20 ms, from its arrival on");
}

#[test]
fn seek_and_rotation_are_as_computed_by_hand() {
    let mut model = Model::new(round(), 1_000 * MB);
    // A quarter of the disk: 1 ms + 15 ms * sqrt(1/4) = 8.5 ms. 250.25 MB is at a quarter of its
    // track, at 2.5 ms of the turn: it comes by at 12.5 ms.
    let service = model.serve(&read(250 * MB + MB / 4, 64_000, 0));
    let share = (250.25_f64 / 1000.0).sqrt() * 15.0;
    assert!(service.seek.abs_diff(MS + as_time(share * 1e6)) <= 1);
    assert_eq!(service.seek + service.rotation, 12_500_000);
    assert_eq!(service.transfer, 640_000);
    assert_eq!(service.end, 13_140_000);
    // Back to the start: the whole way again, and angle 0 comes by at 30 ms.
    let back = model.serve(&read(0, MB, 0));
    assert_eq!(back.start, 13_140_000);
    assert_eq!(back.end, 40 * MS);
}

#[test]
fn short_forward_gaps_pass_under_the_head_and_backward_ones_do_not() {
    let mut model = Model::new(round(), 1_000 * MB);
    model.serve(&read(0, MB, 0));
    let forward = model.serve(&read(MB + 200_000, 100_000, 0));
    assert_eq!((forward.seek, forward.rotation), (0, 2 * MS));
    assert!(!forward.positioned && !forward.sequential);
    assert_eq!(forward.end, 13 * MS);
    // 1.2 MB lies 1 ms behind 1.3 MB: the head must come round again.
    let backward = model.serve(&read(MB + 200_000, 100_000, 0));
    assert!(backward.positioned);
    assert_eq!(backward.end, 23 * MS);
    // Over 50 tracks a seek is sooner than letting them pass.
    assert!(model.serve(&read(51 * MB, 1_000, 0)).positioned);
}

#[test]
fn two_alternating_streams_pay_for_every_turn_between_them() {
    let mut model = Model::new(round(), 1_000 * MB);
    let mut end = 0;
    for n in 0..20 {
        for base in [0, 500 * MB] {
            end = model.serve(&read(base + n * 100_000, 100_000, end)).end;
        }
    }
    // Each 1 ms of data costs a seek of 1 ms + 15 ms * sqrt(1/2) = 11.6 ms and a rotation.
    let each = end / 40;
    assert!(
        (12_600_000..22_600_000).contains(&each),
        "{each} ns a request"
    );
}

#[test]
fn random_requests_take_the_average_seek_and_half_a_turn() {
    let params = Params::default();
    let capacity = 100 * GIB;
    let mut model = Model::new(params, capacity);
    let (mut state, mut end, mut seek, mut rotation) = (1_u64, 0, 0, 0);
    let count = 4_000;
    for _ in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let offset = (state >> 20) % (capacity / 65_536) * 65_536;
        let service = model.serve(&read(offset, 65_536, end));
        end = service.end;
        seek += service.seek;
        rotation += service.rotation;
    }
    let mean = |sum: u64| as_f64(sum) / as_f64(count) / 1e6;
    assert!((8.3..8.7).contains(&mean(seek)), "{} ms", mean(seek));
    assert!((4.0..4.35).contains(&mean(rotation)), "{}", mean(rotation));
    // 8.5 + 4.17 + 0.62 ms: about 75 requests, 4.9 MB a second.
    let rate = as_f64(count * 65_536) / (as_f64(end) / 1e9);
    assert!((4.7e6..5.1e6).contains(&rate), "{rate} B/s");
}

/// The shape of Shafer's Fig 3.3: bandwidth rises with the run between seeks and is about flat
/// from 32 MB.
#[test]
fn bandwidth_against_run_length_is_flat_from_32_mib() {
    let capacity = 100 * GIB;
    let mut rates = Vec::new();
    for run in [64 << 10, 512 << 10, 4 * MIB, 32 * MIB, 128 * MIB] {
        let mut model = Model::new(Params::default(), capacity);
        let (mut state, mut end, mut bytes) = (7_u64, 0, 0);
        for _ in 0..200 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let base = (state >> 20) % (capacity / run) * run;
            let request = run.min(MIB);
            for at in (base..base + run).step_by(usize::try_from(request).expect("small")) {
                end = model.serve(&read(at, request, end)).end;
                bytes += request;
            }
        }
        rates.push(as_f64(bytes) / as_f64(end) * 1e9 / 105e6);
    }
    assert!(rates.is_sorted(), "{rates:?}");
    assert!(rates[0] < 0.06 && rates[1] < 0.35, "{rates:?}");
    assert!((0.65..0.85).contains(&rates[2]), "{rates:?}");
    assert!(rates[3] >= 0.95, "{rates:?}");
}

#[test]
fn the_queue_is_served_nearest_first_within_its_depth_and_patience() {
    let mut model = Model::new(round(), 1_000 * MB);
    model.serve(&read(0, MB, 0));
    let far = read(900 * MB, 1_000, 0);
    let near = read(MB, 1_000, 0);
    assert_eq!(model.choose([far, far, near], 10 * MS), 2);
    assert_eq!(model.choose([far, far, far, near], 10 * MS), 3);
    let chosen = model.choose([far, far, far, far, near], 10 * MS);
    assert_ne!(chosen, 4, "beyond the depth of 4");
    assert_eq!(
        model.choose([far, near], 51 * MS),
        0,
        "older than the patience"
    );
}

#[test]
fn requests_that_go_on_from_each_other_are_served_in_order() {
    let mut model = Model::new(round(), 1_000 * MB);
    model.serve(&read(0, MB, 0));
    // At 10 ms angle 0 is under the head; after the seek the place of the second comes by before
    // that of the first does, and still the first is served first.
    let first = read(100 * MB, 700_000, 10 * MS);
    let second = read(100 * MB + 700_000, 700_000, 10 * MS);
    let (to_first, to_second) = (
        model.way(first.offset, 10 * MS),
        model.way(second.offset, 10 * MS),
    );
    assert!(to_second.seek + to_second.rotation < to_first.seek + to_first.rotation);
    assert_eq!(model.choose([second, first], 10 * MS), 1);
    model.serve(&first);
    assert_eq!(model.choose([read(0, 1, 10 * MS), second], 10 * MS), 1);
}

#[test]
fn parameters_are_checked() {
    assert_eq!(Params::default().check(), Ok(()));
    assert_eq!(round().check(), Ok(()));
    let zero_rate = Params {
        read_bytes_s: 0,
        ..round()
    };
    let seeks = Params {
        seek_shortest_us: 10_000,
        ..round()
    };
    let depth = Params {
        queue_depth: 0,
        ..round()
    };
    for bad in [zero_rate, seeks, depth] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

#[test]
fn a_disk_that_becomes_slower_goes_on_where_it_was() {
    let mut model = Model::new(round(), 1_000 * MB);
    let before = model.serve(&read(0, MB, 0));
    let params = Params {
        read_bytes_s: round().read_bytes_s / 10,
        ..round()
    };
    model.become_like(params);
    assert_eq!(model.params(), &params);
    let next = model.serve(&read(MB, MB, 0));
    assert!(next.sequential && next.start == before.end);
    assert_eq!(next.transfer, 10 * before.transfer);
}
