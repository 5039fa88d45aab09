//! The fuzzing targets on a stable toolchain: random and mutated inputs for a bounded time.
//!
//! `HAYLOFT_FUZZ_SECONDS` sets the time for all targets together (2 by default),
//! `HAYLOFT_FUZZ_SEED` repeats a run. A failure names the target, the seed and the input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

mod targets;

use targets::{FuzzTarget, TARGETS, seeds};

/// SplitMix64: small, and good enough to choose mutations.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        const TELLING: [u8; 8] = [0, 1, 0x7F, 0x80, 0xFF, 0x08, 0x0A, 0x12];
        match self.below(3) {
            0 => TELLING[self.below(TELLING.len())],
            _ => self.next().to_le_bytes()[0],
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }
}

fn mutate(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut input = seed.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len());
        match random.below(6) {
            0 => input.truncate(at),
            1 if !input.is_empty() => input[at] = random.byte(),
            2 if !input.is_empty() => input[at] ^= 1 << random.below(8),
            3 => {
                let len = random.below(9);
                let inserted = random.bytes(len);
                input.splice(at..at, inserted);
            }
            4 => {
                let end = (at + random.below(20)).min(input.len());
                let piece = input[at..end].to_vec();
                input.extend(piece);
            }
            _ => {
                let end = (at + random.below(9)).min(input.len());
                input.drain(at..end);
            }
        }
    }
    input
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(target: FuzzTarget, random: &mut Random, seed: u64, until: Instant) -> u64 {
    let seeds = (target.seeds)();
    let mut runs = 0;
    while runs < 50 || Instant::now() < until {
        let input = if runs < seeds.len() as u64 {
            seeds[usize::try_from(runs).expect("few seeds")].to_vec()
        } else if random.below(4) == 0 {
            let len = random.below(200);
            random.bytes(len)
        } else {
            let chosen = random.below(seeds.len());
            mutate(random, &seeds[chosen])
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        assert!(
            outcome.is_ok(),
            "target {} failed (HAYLOFT_FUZZ_SEED={seed}) on {input:02x?}",
            target.name
        );
        runs += 1;
    }
    runs
}

#[test]
fn random_and_mutated_inputs() {
    let seed = environment("HAYLOFT_FUZZ_SEED").unwrap_or_else(|| {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        since.as_secs() << 20 ^ u64::from(since.subsec_nanos())
    });
    let seconds = environment("HAYLOFT_FUZZ_SECONDS").unwrap_or(2);
    println!("HAYLOFT_FUZZ_SEED={seed} HAYLOFT_FUZZ_SECONDS={seconds}");
    let share = Duration::from_secs(seconds) / u32::try_from(TARGETS.len()).expect("few targets");
    for (index, target) in TARGETS.iter().enumerate() {
        let mut random = Random(seed.wrapping_add(index as u64));
        let runs = run(*target, &mut random, seed, Instant::now() + share);
        println!("{}: {runs} inputs", target.name);
    }
}

/// The seeds are valid, so that mutations start from where decoders go deep.
#[test]
fn seeds_are_valid() {
    for seed in seeds::op_requests() {
        let request = hayloft_wire::transfer::decode_request(&mut bytes::BytesMut::from(&seed[..]));
        assert!(matches!(request, Ok(Some(_))), "{request:?}");
    }
    for seed in seeds::rpc_requests() {
        hayloft_wire::rpc::parse_request(seed).expect("valid");
    }
    for seed in seeds::rpc_responses() {
        hayloft_wire::rpc::parse_response(seed).expect("valid");
    }
    for seed in seeds::block_tokens() {
        hayloft_wire::block_token::BlockTokenIdentifier::decode(&seed).expect("valid");
    }
    for seed in seeds::packets() {
        let mut buf = bytes::BytesMut::from(&seed[..]);
        let parser = hayloft_wire::packet::PacketParser::default();
        while parser.parse(&mut buf).expect("valid").is_some() {}
        assert!(buf.is_empty());
    }
}

/// cargo-fuzz has a file for each target, and no other.
#[test]
fn fuzz_targets_are_complete() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("the repository has fuzz_targets")
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    files.sort();
    let mut names: Vec<String> = TARGETS.iter().map(|t| format!("{}.rs", t.name)).collect();
    names.sort();
    assert_eq!(files, names);
}
