//! Memory of the area: found when it is wanted, given back when it is not, and what is done without.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::*;
use crate::mapping::HUGE_PAGE;

/// Waiting for longer is waiting forever.
const LIMIT: Duration = Duration::from_secs(60);

/// An area of at most `arenas` in shared memory.
fn area(arenas: usize) -> Arc<Area> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd: OwnedFd = memfd_create("staging-test", flags).expect("shared memory");
    area_in(fd.into(), arenas)
}

fn area_in(file: File, arenas: usize) -> Arc<Area> {
    Arc::new(Area::new(file, PathBuf::from("/nowhere"), arenas).expect("an area"))
}

/// Kilobytes of huge pages in the mapping that begins at `start`.
fn huge_kb(start: usize) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").expect("reads");
    let lines = maps.lines();
    let mut of_mapping = lines.skip_while(|line| !line.starts_with(&format!("{start:x}-")));
    let line = of_mapping.find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    let kb = line.and_then(|line| line.trim().split(' ').next());
    kb.and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn data_lies_in_huge_pages_also_after_memory_was_given_back() {
    let area = area(3);
    for _ in 0..2 {
        let all = area.take(3 * ARENA_SEGMENTS).await.expect("all there are");
        let maps = area.lock().maps();
        let starts = maps.iter().map(|map| map.start().addr().get());
        let starts: Vec<usize> = starts.collect();
        for start in &starts {
            assert!((start + data_at(0)).is_multiple_of(HUGE_PAGE));
        }
        if !area.lock().wants_huge() {
            println!("skipped: the kernel gave no huge pages (madvise(MADV_COLLAPSE))");
            return;
        }
        for start in starts {
            let whole = ARENA_SEGMENTS * SEGMENT_BYTES / 1024;
            assert_eq!(huge_kb(start), whole as u64);
        }
        drop(all);
        area.shrink_when_idle(Duration::ZERO);
        assert_eq!(area.backed_bytes(), ARENA_BYTES);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_memory_gets_all_of_the_budget() {
    const ARENAS: usize = 6;
    let area = area(ARENAS);
    let all = ARENAS * ARENA_SEGMENTS;
    for _ in 0..3 {
        // More than there is memory for at first; nobody gives anything back before all have theirs.
        let takes = (0..all / 4).map(|_| {
            let area = Arc::clone(&area);
            tokio::spawn(async move { area.take(4).await })
        });
        let takes = futures_util::future::join_all(takes.collect::<Vec<_>>());
        let taken = tokio::time::timeout(LIMIT, takes).await.expect("all come");
        let taken: Vec<_> = taken
            .into_iter()
            .flat_map(|taken| taken.expect("no panic").expect("an area in use"))
            .collect();
        assert_eq!(taken.len(), all);
        assert_eq!(area.segments_in_use(), all);
        assert_eq!(area.backed_bytes(), ARENAS * ARENA_BYTES);
        drop(taken);
        assert_eq!(area.free_segments(), all, "the budget has not shrunk");
        area.shrink_when_idle(Duration::ZERO);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_for_the_budget_what_there_is_goes_round() {
    const THERE: usize = 2;
    // Shared memory that ends with the second arena.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("staging-test", flags).expect("shared memory");
    let file = File::from(fd);
    let end = arena_offset(THERE - 1) + ARENA_BYTES as u64;
    file.set_len(end).expect("is resized");
    fcntl_add_seals(&file, SealFlags::GROW).expect("is sealed");
    let area = area_in(file, 8);
    let all = area.take(THERE * ARENA_SEGMENTS).await.expect("all");
    // Nothing is free any more: these want memory that is not there.
    let takes = (0..40).map(|n| {
        let area = Arc::clone(&area);
        tokio::spawn(async move {
            let taken = area.take(1 + n % 5).await.expect("an area in use");
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(taken);
        })
    });
    let takes = futures_util::future::join_all(takes.collect::<Vec<_>>());
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(all);
    for done in tokio::time::timeout(LIMIT, takes).await.expect("all come") {
        done.expect("no panic");
    }
    assert_eq!(area.backed_bytes(), THERE * ARENA_BYTES);
    // The budget is smaller by what was looked for and not there; all that is there can be taken at once.
    let free = area.free_segments();
    assert!(
        (THERE * ARENA_SEGMENTS..8 * ARENA_SEGMENTS).contains(&free),
        "{free}"
    );
    let all = area.take(THERE * ARENA_SEGMENTS).await.expect("all");
    assert_eq!(all.len(), THERE * ARENA_SEGMENTS);
    drop(all);
    // Files share what is there, until it is worth asking again; then the budget is whole, and who asks hears.
    assert_eq!(area.segments_there(), THERE * ARENA_SEGMENTS);
    area.try_again();
    assert_eq!(area.segments_there(), THERE * ARENA_SEGMENTS, "just now");
    tokio::time::sleep(Duration::from_millis(3500)).await;
    area.try_again();
    let whole = 8 * ARENA_SEGMENTS;
    assert_eq!(
        (area.segments_there(), area.free_segments()),
        (whole, whole)
    );
    area.try_again();
    assert_eq!(area.free_segments(), whole, "given back once");
}

#[tokio::test]
async fn who_waits_for_memory_hears_of_the_end() {
    let area = area(2);
    let first = area.take(ARENA_SEGMENTS).await.expect("the first arena");
    let waits = tokio::spawn({
        let area = Arc::clone(&area);
        async move { area.take(2 * ARENA_SEGMENTS).await }
    });
    tokio::task::yield_now().await;
    area.close();
    let end = tokio::time::timeout(LIMIT, waits).await.expect("an answer");
    end.expect("no panic").expect_err("nobody gets any more");
    assert!(!area.lacks_memory(1), "nobody finds any more");
    drop(first);
}
