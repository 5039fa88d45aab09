//! The scheduler over an abstract clock and a device that takes 10 ms a seek and moves 100 MB/s.

use std::time::Duration;

use proptest::prelude::*;

use super::rotating::{STREAM_DEPTH, stream_id};
use super::*;

const MIB: u64 = 1 << 20;
const BUSY: [IoClass; 3] = [
    IoClass::ClientWrite,
    IoClass::ClientRead,
    IoClass::Replication,
];
const SEEK: Duration = Duration::from_millis(10);

fn policy(media: Media) -> Policy {
    Policy {
        media,
        quantum: 32 * MIB,
        depth: 4,
        cached_max: 3,
        background_max: 3,
        anticipation: Duration::from_millis(8),
    }
}

fn request(class: IoClass, stream: u64, offset: u64, bytes: u64) -> Request {
    Request {
        class,
        stream: (stream > 0).then_some(Stream { id: stream, offset }),
        bytes,
    }
}

/// A client that asks for something, again after each answer when told to.
#[derive(Clone, Debug)]
struct Client {
    class: IoClass,
    /// 0 for requests that do not reach the device.
    stream: u64,
    bytes: u64,
    starts: Duration,
    /// Requests, one after the other, and the time between an answer and the next.
    count: usize,
    thinks: Duration,
}

#[derive(Clone, Debug)]
struct Done {
    client: usize,
    ticket: Ticket,
    ended: Instant,
}

/// Runs all clients to their end on one device; checks at each step what must always hold.
fn simulate(policy: Policy, clients: &[Client]) -> (Instant, Vec<Done>) {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(policy);
    let mut arrivals: Vec<(Instant, usize, usize)> = clients
        .iter()
        .enumerate()
        .map(|(i, c)| (start + c.starts, i, 0))
        .collect();
    let mut running: Vec<(Instant, Ticket, usize, usize)> = Vec::new();
    let mut done: Vec<Done> = Vec::new();
    let (mut now, mut device_free, mut head) = (start, start, 0);
    for _ in 0..1_000_000 {
        arrivals.sort_by_key(|(at, ..)| *at);
        while arrivals.first().is_some_and(|(at, ..)| *at <= now) {
            let (_, client, round) = arrivals.remove(0);
            let c = &clients[client];
            let wanted = request(c.class, c.stream, round as u64 * c.bytes, c.bytes);
            scheduler.push(now, wanted, (client, round));
        }
        let ask_at = loop {
            match scheduler.next(now) {
                Next::Serve(ticket, (client, round)) => {
                    let moving = Duration::from_nanos(ticket.request.bytes * 10);
                    let ends = match ticket.request.stream {
                        None => now + Duration::from_micros(100),
                        Some(stream) => {
                            let seek = if stream.id == head {
                                Duration::ZERO
                            } else {
                                SEEK
                            };
                            head = stream.id;
                            device_free = device_free.max(now) + seek + moving;
                            device_free
                        }
                    };
                    running.push((ends, ticket, client, round));
                    check(&policy, &scheduler, &running);
                }
                Next::At(at) => {
                    assert!(at > now, "asked to ask in the past");
                    break Some(at);
                }
                Next::Nothing => break None,
            }
        };
        let ends = running.iter().map(|r| r.0).min();
        let arrives = arrivals.first().map(|a| a.0);
        let Some(next) = [ends, arrives, ask_at].into_iter().flatten().min() else {
            assert_eq!(scheduler.waiting(), 0, "nothing runs and something waits");
            return (start, done);
        };
        now = next.max(now);
        while let Some(at) = running.iter().position(|r| r.0 <= now) {
            let (ended, ticket, client, round) = running.remove(at);
            scheduler.finished(now, &ticket, ticket.request.bytes);
            done.push(Done {
                client,
                ticket,
                ended,
            });
            if round + 1 < clients[client].count {
                arrivals.push((now + clients[client].thinks, client, round + 1));
            }
        }
    }
    panic!("does not come to an end");
}

/// What holds at every moment.
fn check<T>(
    policy: &Policy,
    scheduler: &Scheduler<T>,
    running: &[(Instant, Ticket, usize, usize)],
) {
    let count =
        |what: &dyn Fn(&Request) -> bool| running.iter().filter(|r| what(&r.1.request)).count();
    let on_device = count(&|r| r.stream.is_some());
    assert!(count(&|r| r.stream.is_none()) <= policy.cached_max);
    assert!(count(&|r| r.class.is_background()) <= policy.background_max);
    match policy.media {
        Media::Flash => assert!(on_device <= policy.depth),
        Media::Rotating => {
            let mut streams: Vec<_> = running.iter().filter_map(|r| r.1.request.stream).collect();
            streams.dedup_by_key(|s| s.id);
            assert!(streams.len() <= 1, "two streams at once: {streams:?}");
            assert!(on_device <= STREAM_DEPTH);
        }
    }
    // The last one served is of the background only if no client waits, or it is the only one.
    let last = running.last().expect("just served").1.request;
    let waits = (0..3).any(|c| scheduler.is_active(c));
    if last.class.is_background() && waits {
        assert_eq!(count(&|r| r.class.is_background()), 1);
    }
}

fn client() -> impl Strategy<Value = Client> {
    let class = prop::sample::select(IoClass::ALL.to_vec());
    (
        class,
        0..6_u64,
        1..8 * MIB,
        0..3000_u64,
        1..6_usize,
        0..30_u64,
    )
        .prop_map(|(class, stream, bytes, starts, count, thinks)| Client {
            class,
            stream,
            bytes,
            starts: Duration::from_millis(starts),
            count,
            thinks: Duration::from_millis(thinks),
        })
}

/// A writer or reader that always wants more.
fn saturating(class: IoClass, stream: u64) -> Client {
    Client {
        class,
        stream,
        bytes: 8 * MIB,
        starts: Duration::ZERO,
        count: 400,
        thinks: Duration::from_millis(2),
    }
}

/// One request in the middle of it.
fn single(class: IoClass, stream: u64) -> Client {
    Client {
        bytes: MIB,
        starts: Duration::from_secs(1),
        count: 1,
        ..saturating(class, stream)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn everything_is_served_once_within_the_limits(
        clients in prop::collection::vec(client(), 1..16),
        rotates: bool,
    ) {
        let media = if rotates { Media::Rotating } else { Media::Flash };
        let (_, done) = simulate(policy(media), &clients);
        for (i, client) in clients.iter().enumerate() {
            prop_assert_eq!(done.iter().filter(|d| d.client == i).count(), client.count);
        }
    }

    /// A request waits at most for the deadline of its class, and then for two turns of each
    /// stream that came before: every second choice is by weight.
    #[test]
    fn nobody_starves(
        busy in prop::collection::vec((prop::sample::select(BUSY.to_vec()), 1..9_u64), 1..6),
        late in prop::sample::select(IoClass::ALL.to_vec()),
        rotates: bool,
    ) {
        let media = if rotates { Media::Rotating } else { Media::Flash };
        let saturated = busy.iter().map(|(class, stream)| saturating(*class, *stream));
        let mut clients: Vec<Client> = saturated.collect();
        clients.push(single(late, 20));
        let (_, done) = simulate(policy(media), &clients);
        let single = done.iter().find(|d| d.client == clients.len() - 1).expect("served");
        let waited = single.ticket.served - single.ticket.queued;
        let turn = SEEK * 5 + Duration::from_nanos((32 + 16) * MIB * 10);
        let turns = 2 * u32::try_from(clients.len() + 1).expect("few");
        let bound = DEADLINES[late.index()] + turn * turns;
        prop_assert!(waited <= bound, "{} waited {:?}, more than {:?}", late, waited, bound);
    }
}

#[test]
fn rotating_media_serve_whole_quanta() {
    let clients: Vec<Client> = (1..=6)
        .map(|i| saturating(IoClass::ClientWrite, i))
        .collect();
    let (start, mut done) = simulate(policy(Media::Rotating), &clients);
    done.sort_by_key(|d| d.ticket.served);
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for d in &done {
        let id = stream_id(&d.ticket.request);
        match runs.last_mut() {
            Some((last, bytes)) if *last == id => *bytes += d.ticket.request.bytes,
            _ => runs.push((id, d.ticket.request.bytes)),
        }
    }
    runs.pop();
    assert!(runs.len() > 20, "{} runs", runs.len());
    // Before its second request it is unknown that a stream goes on; and each ends somewhere.
    for (id, bytes) in &runs[clients.len()..runs.len() - clients.len()] {
        assert!(*bytes >= 32 * MIB, "stream {id} had only {bytes}");
    }
    let bytes: u64 = done.iter().map(|d| d.ticket.request.bytes).sum();
    let took = done.iter().map(|d| d.ended).max().expect("some") - start;
    let ideal = Duration::from_nanos(bytes * 10);
    assert!(
        took.as_secs_f64() < ideal.as_secs_f64() * 1.06,
        "{took:?} for {ideal:?}"
    );
}

#[test]
fn the_elevator_goes_up_and_starts_again_below() {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(policy(Media::Rotating));
    let mut order = Vec::new();
    let class = IoClass::ClientWrite;
    scheduler.push(start, request(class, 4, 0, 32 * MIB), 4);
    for stream in [9, 1, 5, 3] {
        scheduler.push(start, request(class, stream, 0, 32 * MIB), stream);
    }
    // The first choice starts from nowhere.
    for _ in 0..5 {
        let Next::Serve(ticket, id) = scheduler.next(start) else {
            panic!("a client waits");
        };
        order.push(id);
        assert!(
            matches!(scheduler.next(start), Next::Nothing),
            "one stream at a time"
        );
        scheduler.finished(start, &ticket, 32 * MIB);
    }
    assert_eq!(order, [1, 3, 4, 5, 9]);
    scheduler.push(start, request(class, 2, 0, 1), 2);
    scheduler.push(start, request(class, 11, 0, 1), 11);
    assert!(matches!(scheduler.next(start), Next::Serve(_, 11)));
}

#[test]
fn the_disk_waits_a_moment_for_more_of_a_stream() {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(policy(Media::Rotating));
    let class = IoClass::ClientRead;
    scheduler.push(start, request(class, 1, 0, MIB), 1);
    scheduler.push(start, request(class, 2, 0, MIB), 2);
    let Next::Serve(ticket, 1) = scheduler.next(start) else {
        panic!("the first");
    };
    assert!(matches!(scheduler.next(start), Next::Nothing), "it runs");
    scheduler.push(start, request(class, 1, MIB, MIB), 1);
    scheduler.finished(start, &ticket, MIB);
    let Next::Serve(ticket, 1) = scheduler.next(start) else {
        panic!("it goes on");
    };
    scheduler.finished(start, &ticket, MIB);
    let Next::At(until) = scheduler.next(start) else {
        panic!("a moment");
    };
    scheduler.push(start, request(class, 1, 2 * MIB, MIB), 3);
    let Next::Serve(ticket, 3) = scheduler.next(start) else {
        panic!("what it waited for");
    };
    scheduler.finished(start, &ticket, MIB);
    assert!(
        matches!(scheduler.next(until), Next::Serve(_, 2)),
        "not for ever"
    );
}

#[test]
fn classes_share_by_weight_and_the_background_gets_what_is_left() {
    let together = [
        saturating(IoClass::ClientWrite, 1),
        saturating(IoClass::ClientRead, 2),
        saturating(IoClass::Scan, 3),
    ];
    for media in [Media::Flash, Media::Rotating] {
        let mut clients = together.to_vec();
        for c in &mut clients {
            c.thinks = Duration::ZERO;
        }
        // More of each than the depth, so that there is always a choice.
        clients = clients.iter().flat_map(|c| vec![c.clone(); 6]).collect();
        let (start, done) = simulate(policy(media), &clients);
        let until = start + Duration::from_secs(60);
        let bytes = |class| -> u64 {
            let of = done
                .iter()
                .filter(|d| d.ended <= until && d.ticket.request.class == class);
            of.map(|d| d.ticket.request.bytes).sum()
        };
        let (write, read) = (bytes(IoClass::ClientWrite), bytes(IoClass::ClientRead));
        let scan = bytes(IoClass::Scan);
        assert!(
            write.abs_diff(read) <= write.max(read) / 5,
            "{media:?}: {write} {read}"
        );
        assert!(
            scan > 0 && scan * 8 <= write,
            "{media:?}: {scan} beside {write}"
        );
    }
    let (start, done) = simulate(policy(Media::Flash), &[single(IoClass::Scan, 1)]);
    assert!(
        done[0].ended - start < Duration::from_millis(1100),
        "alone it does not wait"
    );
}

/// The id of the stream that is served next, now; `None` when the disk waits.
fn served(scheduler: &mut Scheduler<u64>, now: Instant) -> Option<Ticket> {
    match scheduler.next(now) {
        Next::Serve(ticket, _) => Some(ticket),
        Next::At(_) | Next::Nothing => None,
    }
}

#[test]
fn a_stream_is_waited_for_only_when_it_goes_on_where_it_ended() {
    let mut scheduler = Scheduler::new(policy(Media::Rotating));
    let now = Instant::now();
    let push = |scheduler: &mut Scheduler<u64>, stream, offset| {
        let class = IoClass::ClientRead;
        scheduler.push(now, request(class, stream, offset, MIB), stream);
    };
    // Checksums of a reader, and the data of another one behind them.
    push(&mut scheduler, 3, 7);
    let sums = served(&mut scheduler, now).expect("the only one");
    push(&mut scheduler, 5, 0);
    scheduler.finished(now, &sums, MIB);
    let data = served(&mut scheduler, now).expect("nothing is waited for");
    assert_eq!(stream_id(&data.request), 5);
    // The data goes on where it ended, after another stream had the disk.
    push(&mut scheduler, 6, 0);
    scheduler.finished(now, &data, MIB);
    let other = served(&mut scheduler, now).expect("a stream is not known by one request");
    push(&mut scheduler, 5, MIB);
    scheduler.finished(now, &other, MIB);
    let data = served(&mut scheduler, now).expect("queued");
    assert_eq!(stream_id(&data.request), 5);
    push(&mut scheduler, 6, MIB);
    scheduler.finished(now, &data, MIB);
    assert!(served(&mut scheduler, now).is_none(), "more of 5 may come");
    let later = now + Duration::from_millis(9);
    assert!(served(&mut scheduler, later).is_some(), "but not for ever");
}

#[test]
fn a_writer_of_long_requests_is_waited_for_at_once_and_wherever_it_ended() {
    let mut scheduler = Scheduler::new(policy(Media::Rotating));
    let now = Instant::now();
    let push = |scheduler: &mut Scheduler<u64>, stream, offset, bytes| {
        let wanted = request(IoClass::ClientWrite, stream, offset, bytes);
        scheduler.push(now, wanted, stream);
    };
    push(&mut scheduler, 5, 0, 8 * MIB);
    let first = served(&mut scheduler, now).expect("the only one");
    push(&mut scheduler, 6, 0, MIB);
    // What was written while it ran was more than was asked for when it was queued.
    scheduler.finished(now, &first, 15 * MIB);
    assert!(
        served(&mut scheduler, now).is_none(),
        "its end gives the writer room, and more of 5 comes"
    );
    let later = now + Duration::from_millis(9);
    let other = served(&mut scheduler, later).expect("not for ever");
    assert_eq!(stream_id(&other.request), 6);
    // Short, but where 5 really ended.
    push(&mut scheduler, 5, 15 * MIB, MIB);
    scheduler.finished(later, &other, MIB);
    let more = served(&mut scheduler, later).expect("nothing is waited for");
    assert_eq!(stream_id(&more.request), 5);
    push(&mut scheduler, 6, MIB, MIB);
    scheduler.finished(later, &more, MIB);
    assert!(
        served(&mut scheduler, later).is_none(),
        "more of 5 may come"
    );
}

#[test]
fn the_head_goes_to_a_stream_for_its_first_request_alone() {
    let mut scheduler = Scheduler::new(policy(Media::Rotating));
    let now = Instant::now();
    for piece in 0..3 {
        let wanted = request(IoClass::ClientRead, 1, piece * MIB, MIB);
        scheduler.push(now, wanted, piece);
    }
    let first = served(&mut scheduler, now).expect("the lowest");
    assert!(served(&mut scheduler, now).is_none(), "it moves");
    scheduler.finished(now, &first, MIB);
    let then = [0; 2].map(|_| served(&mut scheduler, now).map(|ticket| ticket.request.stream));
    let at = |offset| Some(Some(Stream { id: 1, offset }));
    assert_eq!(then, [at(MIB), at(2 * MIB)]);
}
