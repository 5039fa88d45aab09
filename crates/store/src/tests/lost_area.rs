//! A staging area that somebody removes under a running node.

use super::*;

use hayloft_wire::ids::ReplicaState;

/// As many bytes as Java's packets have.
const PACKET: usize = 64_512;

fn area(node: &Node) -> Option<PathBuf> {
    let entries = std::fs::read_dir(node.dir.path()).expect("there");
    let names = entries.map(|e| e.expect("reads").path());
    names.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("hayloft-staging")
    })
}

/// Brings the next packet to the replica as a connection does: committed at once, else written. A packet begins with
/// a chunk. Says whether it was committed at once.
async fn bring(writer: &mut ReplicaWriter, at: usize, to: usize) -> bool {
    let next = [packet(at - at % 512, to)];
    let kept = writer.stage(&next).expect("no error") == Staged::Kept;
    if !kept {
        let [next] = next;
        writer.write(vec![next]).await.expect("is written");
    }
    kept
}

/// Brings packets until the loss of the area is noticed; gives the length then.
async fn until_noticed(writer: &mut ReplicaWriter, mut at: usize) -> usize {
    let noticed = async {
        loop {
            // Now and then one that ends inside a chunk.
            let next = at + PACKET - at / PACKET % 3 * 77;
            let kept = bring(writer, at, next).await;
            at = next;
            if !kept {
                return at;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), noticed)
        .await
        .expect("is noticed")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_goes_on_and_nothing_acknowledged_is_lost() {
    for killed in [false, true] {
        let node = Node::new().await;
        let mut writer = node.writer(5, 1001).await;
        let mut quiet = node.writer(6, 1001).await;
        bring(&mut quiet, 0, 1000).await;
        let mut at = 0;
        for _ in 0..7 {
            bring(&mut writer, at, at + PACKET).await;
            at += PACKET;
        }
        std::fs::remove_file(area(&node).expect("an area")).expect("removes");
        at = until_noticed(&mut writer, at).await;
        let reader = node.store.open_reader(&block(5, 1001, 0)).await;
        check_reader(&reader.expect("opens"), at).await;
        bring(&mut writer, at, at + 3000).await;
        at += 3000;
        if killed {
            let node = node.kill_and_start().await;
            drop((writer, quiet));
            for (id, len) in [(5, at), (6, 1000)] {
                let replica = node.store.replica(&pool(), id).expect("there");
                let found = (replica.state, replica.bytes_on_disk);
                assert_eq!(found, (ReplicaState::Rwr, len as u64));
            }
            continue;
        }
        writer.sync().await.expect("syncs");
        for _ in 0..40 {
            bring(&mut writer, at, at + PACKET).await;
            at += PACKET;
        }
        writer.finalize().await.expect("finalizes");
        node.check(5, 1001, at).await;
        quiet.finalize().await.expect("finalizes");
        node.check(6, 1001, 1000).await;
        // New streams have a fresh area.
        let fresh = async {
            while area(&node).is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), fresh)
            .await
            .expect("a fresh area");
        let mut next = node.writer(7, 1001).await;
        assert!(bring(&mut next, 0, PACKET).await, "it is staged");
        let node = node.kill_and_start().await;
        drop(next);
        let replica = node.store.replica(&pool(), 7).expect("there");
        assert_eq!(replica.bytes_on_disk, PACKET as u64);
    }
}
