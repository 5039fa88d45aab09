//! Orders by the thousand.

use super::*;

/// More replicas than fit, some damaged, gone or unknown: what is ordered ten thousand times leaves
/// no memory, mapping or descriptor behind.
#[tokio::test]
async fn ten_thousand_orders_leave_nothing_behind() {
    const FIT: u64 = 100;
    let _alone = alone().await;
    let budget = FIT * in_pages(9000);
    let node = node_with(budget, |_| {}).await;
    let ids: Vec<i64> = (1..=300).collect();
    for id in &ids {
        node.put(*id, 1001, 9000).await;
    }
    for id in 1..=5 {
        let damaged = node.file_of(id, None).write_all_at(b"x", 4321);
        damaged.expect("writes");
        node.file_of(id + 5, None).set_len(0).expect("cut");
    }
    // Until their commit round new replicas are open.
    let (before, _) = block_files_open(&node);
    let unknown = 1000..1010;
    let orders = ids.iter().copied().chain(unknown).cycle();
    let orders: Vec<i64> = orders.take(10_000).collect();
    for some in orders.chunks(500) {
        node.cache(some);
        node.uncache(&some[..250]);
        assert!(locked() <= budget && node.store.cache_use().used <= budget);
    }
    // A NameNode says again what it wants. Replicas that cannot be cached have room until that is
    // found out, so here they are not among it.
    for again in 0.. {
        node.cache(&ids[10..]);
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(locked() <= budget);
        let cached = node.cached().len() as u64;
        if cached == FIT {
            break;
        }
        assert!(again < 240, "{cached} of {FIT} are cached");
    }
    assert!(node.cached().iter().all(|id| *id > 10), "none is damaged");
    let (open, mapped) = block_files_open(&node);
    assert!(
        open <= before && mapped == 100,
        "{open} open, {mapped} mapped"
    );
    node.uncache(&ids);
    until("nothing is locked", || locked() == 0).await;
    until("nothing is mapped or open", || {
        let (open, mapped) = block_files_open(&node);
        open <= before && mapped == 0
    })
    .await;
    let numbers = node.store.cache_use();
    assert_eq!((numbers.used, numbers.blocks), (0, 0));
    assert_eq!(numbers.cached, numbers.uncached);
    assert!(numbers.failed_to_cache > 0);
}

/// Block files of a node that this process has descriptors of, and those that it maps.
fn block_files_open(node: &Node) -> (usize, usize) {
    let is_block = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        path.starts_with(node.dir.path()) && name.as_encoded_bytes().starts_with(b"blk_")
    };
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux says so");
    let open = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says so");
    let mapped = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let mapped = mapped.filter(|path| is_block(Path::new(path))).count();
    (open.filter(|path| is_block(path)).count(), mapped)
}
