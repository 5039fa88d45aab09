//! Appends that find their disk dead go on from parity, on another one.

use super::*;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};

use super::dead_disk::{LEN, all, eight, lost, put_eight};
use super::refuses::faulty;

/// The disk has become read-only, say, and no check has found out yet.
#[tokio::test]
async fn an_append_that_finds_its_disk_dead_goes_on_elsewhere() {
    let mut node = eight(4, shape(2, 1)).await;
    let on_first = |id: &i64| volume_of(&node, *id) == 0;
    let id = all().into_iter().find(on_first).expect("on each");
    let of_pool = data_file(&node, id);
    let is_pool = |dir: &&Path| dir.ends_with(pool().as_str());
    let of_pool = of_pool.ancestors().find(is_pool).expect("of a pool");
    for dir in ["current/rbw", "tmp"] {
        let dir = of_pool.join(dir);
        std::fs::remove_dir_all(&dir).expect("removes");
        std::fs::write(&dir, "").expect("writes");
    }
    append_elsewhere(&mut node, id).await;
}

/// The disk dies when its files have moved to where replicas are written already.
#[tokio::test]
async fn an_append_whose_files_cannot_be_opened_any_more_goes_on_elsewhere() {
    let (mut node, faults) = faulty(shape(2, 1)).await;
    put_eight(&node).await;
    let on_first = |id: &i64| volume_of(&node, *id) == 0;
    let id = all().into_iter().find(on_first).expect("on each");
    faults.add(FaultRule::new(Effect::Errno(EIO)).on(&[IoOp::Open]));
    append_elsewhere(&mut node, id).await;
}

async fn append_elsewhere(node: &mut Node, id: i64) {
    let len = LEN as u64 + u64::try_from(id).expect("small");
    let wanted = block(id, 1001, len);
    let append = node.store.append(&wanted, 1002, len).await;
    let mut writer = append.expect("opens elsewhere");
    let from = usize::try_from(len / 512 * 512).expect("small");
    let rest = packet_of(&content(id, LEN + 5000)[from..], from);
    writer.write(vec![rest]).await.expect("writes");
    writer.finalize().await.expect("finalizes");
    assert_ne!(volume_of(node, id), 0);
    check(node, id, LEN + 5000).await;
    assert_eq!(lost(&events(node).await), [0_i64; 0]);
    for other in all().into_iter().filter(|other| *other != id) {
        check(node, other, LEN + usize::try_from(other).expect("small")).await;
    }
}
