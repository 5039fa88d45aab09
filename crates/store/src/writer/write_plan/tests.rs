use hayloft_wire::checksum::ChecksumKind;
use proptest::prelude::*;

use crate::types::PacketDataError;
use crate::writer::write_plan::*;

fn checksum(kind: ChecksumKind, chunk: u32) -> DataChecksum {
    DataChecksum::new(kind, chunk).expect("valid")
}

fn block(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 7 + i / 13) % 256).expect("below 256"))
        .collect()
}

/// A packet as a client makes it: checksums on the block's chunk grid, the first over what the
/// packet has of its chunk.
fn packet(client: DataChecksum, block: &[u8], from: usize, to: usize) -> PacketData {
    let mut sums = Vec::new();
    let mut at = from;
    while at < to {
        let end = to.min((at / client.chunk_size() + 1) * client.chunk_size());
        client.compute(&block[at..end], &mut sums);
        at = end;
    }
    let data = Bytes::copy_from_slice(&block[from..to]);
    PacketData::new(client, from as u64, data.into(), sums.into()).expect("agrees")
}

/// The two files, as plans change them.
struct Files {
    data: Vec<u8>,
    sums: Vec<u8>,
    tail: Tail,
}

impl Files {
    fn apply(&mut self, disk: DataChecksum, plan: &Plan) {
        for piece in &plan.data {
            self.data.extend_from_slice(piece);
        }
        let at = usize::try_from(plan.first_chunk).expect("small") * disk.sum_size();
        if !plan.data.is_empty() {
            assert!(at <= self.sums.len());
            self.sums.truncate(at);
            self.sums.extend_from_slice(&plan.sums);
        }
        self.tail = plan.tail;
    }
}

fn sums_of(disk: DataChecksum, data: &[u8]) -> Vec<u8> {
    let mut sums = Vec::new();
    disk.compute(data, &mut sums);
    sums
}

const CRC32C: ChecksumKind = ChecksumKind::Crc32c;

#[test]
fn aligned_packets_are_taken_as_they_are() {
    let c = checksum(CRC32C, 4);
    let b = block(20);
    let plan = plan(
        Tail::default(),
        c,
        &[packet(c, &b, 0, 8), packet(c, &b, 8, 18)],
    )
    .expect("fits");
    assert_eq!(plan.sums, sums_of(c, &b[..18]));
    assert_eq!(
        (plan.first_chunk, plan.completes_chunk, plan.tail.len),
        (0, false, 18)
    );
    assert_eq!(plan.tail.crc, c.kind().crc(&b[16..18]));
}

#[test]
fn a_gap_is_refused_and_so_are_wrong_checksum_counts() {
    let c = checksum(CRC32C, 4);
    let b = block(20);
    let at = Tail {
        len: 3,
        crc: c.kind().crc(&b[..3]),
    };
    assert_eq!(
        plan(at, c, &[packet(c, &b, 4, 8)]),
        Err(PlanError::Gap { offset: 4, len: 3 })
    );
    let good = packet(c, &b, 3, 9);
    let bad = PacketData::new(c, 3, good.data().clone(), good.sums().slice(4..));
    assert!(matches!(
        bad,
        Err(PacketDataError::Sums {
            expected: 12,
            sums_len: 8,
            ..
        })
    ));
    let abc = Bytes::from_static(b"abc");
    for offset in [u64::MAX - 1, i64::MAX.unsigned_abs() - 2] {
        assert!(matches!(
            PacketData::new(c, offset, abc.clone().into(), Bytes::new()),
            Err(PacketDataError::TooLong { .. })
        ));
    }
}

#[test]
fn other_bytes_under_the_same_chunk_are_noticed() {
    let c = checksum(CRC32C, 8);
    let b = block(20);
    let disk = Tail {
        len: 5,
        crc: c.kind().crc(b"other"),
    };
    let again = packet(c, &b, 0, 12);
    assert_eq!(
        plan(disk, c, &[again]),
        Err(PlanError::Mismatch { chunk_start: 0 })
    );
}

proptest! {
    /// Whatever pieces a client sends, with whatever it sends again, the files end up as if the
    /// block had been written at once.
    #[test]
    fn any_run_of_overlapping_packets_makes_the_same_files(
        len in 1..200_usize,
        cuts in proptest::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            1..12,
        ),
        chunk in 1..20_u32, client_chunk in 1..20_u32, same: bool,
        disk_kind in prop::sample::select(vec![ChecksumKind::Crc32, CRC32C, ChecksumKind::Null]),
        client_kind in prop::sample::select(vec![ChecksumKind::Crc32, CRC32C, ChecksumKind::Null]),
        per_run in 1..4_usize,
    ) {
        let disk = checksum(disk_kind, chunk);
        let client = if same { disk } else { checksum(client_kind, client_chunk) };
        let b = block(len);
        // Packets that begin at or before what is there.
        let mut reached = 0;
        let mut packets = Vec::new();
        for (from, to) in &cuts {
            let from = from.index(reached + 1);
            let to = from + to.index(len - from + 1);
            packets.push(packet(client, &b, from, to));
            reached = reached.max(to);
        }
        packets.push(packet(client, &b, reached, len));
        let mut files = Files { data: Vec::new(), sums: Vec::new(), tail: Tail::default() };
        for run in packets.chunks(per_run) {
            let before = files.tail;
            let plan = plan(before, disk, run).expect("no gaps");
            prop_assert_eq!(plan.first_chunk, before.len / u64::from(chunk));
            files.apply(disk, &plan);
            let done = files.data.len();
            prop_assert_eq!(files.tail.len, done as u64);
            prop_assert_eq!(&files.sums, &sums_of(disk, &b[..done]));
            let start = done - done % disk.chunk_size();
            prop_assert_eq!(files.tail.crc, disk.kind().crc(&b[start..done]));
        }
        prop_assert_eq!(files.data, b);
    }
}
