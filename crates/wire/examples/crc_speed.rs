//! Shows what a chunk checksum costs on this machine, by algorithm and chunk size.

use std::hint::black_box;
use std::time::Instant;

use hayloft_wire::checksum::{ChecksumKind, DataChecksum};

const DATA_BYTES: u32 = 1 << 20;
const ROUNDS: u32 = 200;

fn main() {
    let data: Vec<u8> = (0..DATA_BYTES)
        .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1])
        .collect();
    for kind in [ChecksumKind::Crc32, ChecksumKind::Crc32c] {
        for chunk_bytes in [512, 4096, 65536] {
            let checksum = DataChecksum::new(kind, chunk_bytes).expect("a valid chunk size");
            let mut sums = Vec::with_capacity(checksum.sums_len(data.len()));
            let start = Instant::now();
            for _ in 0..ROUNDS {
                sums.clear();
                checksum.compute(black_box(&data), &mut sums);
                black_box(&sums);
            }
            let seconds = start.elapsed().as_secs_f64() / f64::from(ROUNDS);
            let chunks = f64::from(DATA_BYTES / chunk_bytes);
            println!(
                "{kind:6} {chunk_bytes:6} bytes a chunk: {:7.1} ns a chunk, {:5.1} GB/s",
                seconds / chunks * 1e9,
                f64::from(DATA_BYTES) / seconds / 1e9
            );
        }
    }
}
