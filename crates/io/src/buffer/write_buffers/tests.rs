use super::*;

fn bytes(from: usize, len: usize) -> Vec<u8> {
    let byte = |i: usize| u8::try_from(i % 251).expect("below 256");
    (from..from + len).map(byte).collect()
}

fn pool() -> BufferPool {
    BufferPool::new(16 << 20)
}

/// Receives `len` bytes in place, as a socket would in two reads.
fn receive(buffers: &WriteBuffers, from: usize, len: usize) -> Vec<Bytes> {
    let mut room = buffers
        .try_reserve(from as u64, len)
        .expect("there is room");
    let mut pieces = Vec::new();
    for (at, n) in [(0, len / 3), (len / 3, len - len / 3)] {
        let wanted = bytes(from + at, n);
        let mut rest = &wanted[..];
        for slice in &mut room.unfilled() {
            let now = rest.len().min(slice.len());
            slice[..now].copy_from_slice(&rest[..now]);
            rest = &rest[now..];
        }
        room.advance(n);
        pieces.extend(room.take());
    }
    pieces
}

#[test]
fn what_is_received_in_place_lies_in_one_aligned_piece() {
    let buffers = WriteBuffers::new(&pool(), 0);
    let first = receive(&buffers, 0, 700_001);
    buffers.append(&first, true);
    let second = receive(&buffers, 700_001, 900_000);
    buffers.append(&second, true);
    assert_eq!(buffers.appended(), 1_600_001);
    let taken = buffers.take(WRITE_BUFFER);
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].as_ptr().addr() % 4096, 0);
    assert!(taken[0] == bytes(0, WRITE_BUFFER));
    let rest = buffers.take(1_600_001 - WRITE_BUFFER);
    assert_eq!(rest.len(), 1);
    assert!(rest[0] == bytes(WRITE_BUFFER, 1_600_001 - WRITE_BUFFER));
}

#[test]
fn other_bytes_are_copied_between_those_in_place() {
    let buffers = WriteBuffers::new(&pool(), 5000);
    buffers.append(&[Bytes::from(bytes(5000, 3000))], true);
    let pieces = receive(&buffers, 8000, 2000);
    // While it is lent nothing is copied behind it; what is received waits to be appended.
    buffers.append(&pieces, true);
    buffers.append(&[Bytes::from(bytes(10_000, 20_000))], true);
    let taken = buffers.take(25_000);
    assert_eq!(taken.len(), 1, "one buffer");
    assert!(taken[0] == bytes(5000, 25_000));
    assert_eq!(taken[0].as_ptr().addr() % 4096, 5000 % 4096);
}

#[test]
fn without_memory_the_pieces_are_kept_as_they_are() {
    let pool = BufferPool::new(4096);
    let buffers = WriteBuffers::new(&pool, 0);
    assert!(buffers.try_reserve(0, 100).is_none());
    let piece = Bytes::from(bytes(0, 3000));
    buffers.append(std::slice::from_ref(&piece), true);
    buffers.append(&[Bytes::from(bytes(3000, 100))], false);
    let taken = buffers.take(3050);
    assert_eq!(taken[0].as_ptr(), piece.as_ptr());
    assert_eq!(taken.iter().map(Bytes::len).collect::<Vec<_>>(), [3000, 50]);
    assert!(buffers.take(50)[0] == bytes(3050, 50));
}

#[test]
fn bytes_that_were_received_and_given_up_are_overwritten() {
    let buffers = WriteBuffers::new(&pool(), 0);
    let mut room = buffers.try_reserve(0, 8192).expect("there is room");
    room.unfilled()[0].fill(9);
    room.advance(8192);
    assert!(buffers.try_reserve(0, 1).is_none(), "it is lent");
    drop(room);
    let pieces = receive(&buffers, 0, 8192);
    buffers.append(&pieces, true);
    assert!(buffers.take(8192)[0] == bytes(0, 8192));
}

#[test]
fn memory_goes_back_with_the_last_slice() {
    let pool = pool();
    let buffers = WriteBuffers::new(&pool, 0);
    let pieces = receive(&buffers, 0, 3 * WRITE_BUFFER);
    buffers.append(&pieces, true);
    drop(buffers.take(3 * WRITE_BUFFER));
    assert!(pool.in_use() >= 3 * WRITE_BUFFER);
    drop(pieces);
    drop(buffers);
    assert_eq!(pool.in_use(), 0);
}
