//! The `replicas` file of a clean stop, which saves walking the directories at the next start.
//!
//! Apache's format is protobuf. Field 1 is the number of replicas, field 2 their entries as in a
//! block report: zigzag id, length, generation stamp, state, all varints. Field 3 is ours, and
//! Apache skips it: ids of pinned replicas. A file without it was not written by us; it does not
//! say which replicas are pinned, so the directories are walked then.

use hayloft_wire::ids::{Block, ReplicaState};
use hayloft_wire::varint::{len_u64, read_u64, unzigzag, write_u64, zigzag};

/// Longest file that is read, in bytes: 20 million replicas and more.
pub const REPLICAS_BYTES_MAX: usize = 512 << 20;

const NUMBER: u64 = 1 << 3;
const ENTRIES: u64 = (2 << 3) | 2;
const PINNED: u64 = (3 << 3) | 2;
/// Shortest entry, in bytes.
const ENTRY_BYTES_MIN: usize = 4;

/// One replica in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedReplica {
    /// Id, generation stamp and length.
    pub block: Block,
    /// State: FINALIZED, RBW, RWR or RUR.
    pub state: ReplicaState,
    /// Pinned.
    pub pinned: bool,
}

/// The file's contents.
#[must_use]
pub fn encode(replicas: &[CachedReplica]) -> Vec<u8> {
    let mut entries = Vec::with_capacity(replicas.len() * 16);
    let mut pinned = Vec::new();
    for r in replicas {
        write_u64(&mut entries, zigzag(r.block.id));
        write_u64(&mut entries, r.block.num_bytes);
        write_u64(&mut entries, r.block.generation_stamp);
        write_u64(&mut entries, u64::from(state_number(r.state)));
        if r.pinned {
            write_u64(&mut pinned, zigzag(r.block.id));
        }
    }
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).expect("usize fits in u64");
    let mut out = Vec::with_capacity(entries.len() + pinned.len() + 4 * len_u64(u64::MAX));
    write_u64(&mut out, NUMBER);
    write_u64(
        &mut out,
        u64::try_from(replicas.len()).expect("usize fits in u64"),
    );
    write_u64(&mut out, ENTRIES);
    write_u64(&mut out, length(&entries));
    out.extend_from_slice(&entries);
    write_u64(&mut out, PINNED);
    write_u64(&mut out, length(&pinned));
    out.extend_from_slice(&pinned);
    out
}

/// Reads a file that we wrote; `None` when another program wrote it, or it is cut short or garbled.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Vec<CachedReplica>> {
    let mut rest = bytes;
    let (mut number, mut entries, mut pinned) = (None, None, None);
    while !rest.is_empty() {
        match read_u64(&mut rest)? {
            NUMBER => number = Some(usize::try_from(read_u64(&mut rest)?).ok()?),
            ENTRIES => entries = Some(take_bytes(&mut rest)?),
            PINNED => pinned = Some(take_bytes(&mut rest)?),
            _ => return None,
        }
    }
    let (number, mut entries, mut pinned) = (number?, entries?, pinned?);
    if number > entries.len() / ENTRY_BYTES_MIN {
        return None;
    }
    let mut pinned_ids = std::collections::HashSet::new();
    while !pinned.is_empty() {
        pinned_ids.insert(unzigzag(read_u64(&mut pinned)?));
    }
    let mut replicas = Vec::with_capacity(number);
    for _ in 0..number {
        let id = unzigzag(read_u64(&mut entries)?);
        let num_bytes = read_u64(&mut entries)?;
        let generation_stamp = read_u64(&mut entries)?;
        let state = state_of(read_u64(&mut entries)?)?;
        let block = Block::from_wire(id.cast_unsigned(), generation_stamp, num_bytes).ok()?;
        replicas.push(CachedReplica {
            block,
            state,
            pinned: pinned_ids.contains(&id),
        });
    }
    entries.is_empty().then_some(replicas)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(read_u64(rest)?).ok()?;
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn state_number(state: ReplicaState) -> u8 {
    match state {
        ReplicaState::Finalized => 0,
        ReplicaState::Rbw => 1,
        ReplicaState::Rwr => 2,
        ReplicaState::Rur => 3,
        ReplicaState::Temporary => 4,
    }
}

fn state_of(number: u64) -> Option<ReplicaState> {
    i32::try_from(number)
        .ok()
        .and_then(|n| ReplicaState::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replica() -> impl Strategy<Value = CachedReplica> {
        let limit = i64::MAX.unsigned_abs();
        (any::<i64>(), 0..=limit, 0..=limit, 0..4_u64, any::<bool>()).prop_map(
            |(id, gs, len, state, pinned)| {
                let state = state_of(state).expect("a state");
                CachedReplica {
                    block: Block::new(id, gs, len),
                    state,
                    pinned,
                }
            },
        )
    }

    #[test]
    fn the_bytes_are_apaches() {
        let one = CachedReplica {
            block: Block::new(-1, 1001, 300),
            state: ReplicaState::Finalized,
            pinned: true,
        };
        assert_eq!(
            encode(&[one]),
            [0x08, 1, 0x12, 6, 1, 0xac, 2, 0xe9, 7, 0, 0x1a, 1, 1]
        );
    }

    #[test]
    fn a_file_of_apaches_is_left_alone() {
        assert_eq!(parse(&[0x08, 1, 0x12, 6, 1, 0xac, 2, 0xe9, 7, 0]), None);
    }

    #[test]
    fn a_count_that_lies_allocates_nothing() {
        assert_eq!(
            parse(&[0x08, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x12, 0, 0x1a, 0]),
            None
        );
    }

    proptest! {
        #[test]
        fn replicas_come_back(list in proptest::collection::vec(replica(), 0..50)) {
            let mut list = list;
            list.sort_by_key(|r| r.block.id);
            list.dedup_by_key(|r| r.block.id);
            let bytes = encode(&list);
            prop_assert_eq!(parse(&bytes), Some(list));
            prop_assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
