//! A process is killed while replicas are being written, and Apache's node starts on what is left:
//! it has every acknowledged byte.
//!
//! Two files cannot be written at once. A kill between the two calls that write a last chunk again
//! and its checksum costs that chunk, as it does with Apache's own node. On a machine whose
//! processors are overcommitted that meets one file in several hundred; with a sync between the
//! calls, one in twelve.
//!
//! Its start is played by [`apaches_length`]. The suite `swap` starts the real one.

use super::*;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use hayloft_io::IoOp;
use hayloft_io::decorators::{Effect, FaultRule};
use hayloft_wire::checksum::META_HEADER_LEN;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

const CHILD_DIR: &str = "HAYLOFT_TEST_KILLED_DIR";
const CHILD_SEED: &str = "HAYLOFT_TEST_KILLED_SEED";
const CHILD_ENGINE: &str = "HAYLOFT_TEST_KILLED_ENGINE";
/// Rounds of each engine, and the seed of the first: for a longer look by hand.
const ROUNDS: &str = "HAYLOFT_TEST_KILLED_ROUNDS";
const ROUNDS_DEFAULT: u64 = 3;
/// Set: no end of a replica can be kept, so that a sync comes between data and checksum. To see
/// the losses.
const GUARDED: &str = "HAYLOFT_TEST_KILLED_GUARDED";
const WRITERS: i64 = 48;
/// A slot a writer: the length that it was told.
const ACKED: &str = "acked";

/// How many bytes of a replica being written Apache's node (`BlockPoolSlice`, 3.5.0) keeps at a
/// start. It goes by the length of the data file and that of the meta file, and verifies the last
/// chunk alone, which it keeps whole or not at all.
fn apaches_length(data: &Path, meta: &Path) -> u64 {
    let (data, meta) = (File::open(data), File::open(meta));
    let (data, meta) = (data.expect("opens"), meta.expect("opens"));
    let len = |file: &File| file.metadata().expect("has one").len();
    let (data_len, meta_len) = (len(&data), len(&meta));
    let header = META_HEADER_LEN as u64;
    if data_len == 0 || meta_len < header {
        return 0;
    }
    let chunks = data_len.div_ceil(512).min((meta_len - header) / 4);
    let Some(last) = chunks.checked_sub(1) else {
        return 0;
    };
    let start = last * 512;
    let end = data_len.min(start + 512);
    let mut chunk = vec![0; usize::try_from(end - start).expect("at most a chunk")];
    data.read_exact_at(&mut chunk, start).expect("is there");
    let mut sum = [0; 4];
    meta.read_exact_at(&mut sum, header + last * 4)
        .expect("is there");
    if crc32c().kind().crc(&chunk) == u32::from_be_bytes(sum) {
        end
    } else {
        start
    }
}

/// What Apache's node finds of a block.
fn found(pool_dir: &Path, id: i64) -> u64 {
    let rbw = pool_dir.join("current/rbw");
    let data = rbw.join(format!("blk_{id}"));
    if !data.exists() {
        let finalized = pool_dir.join("current/finalized/subdir0/subdir0");
        return fs::metadata(finalized.join(format!("blk_{id}"))).map_or(0, |file| file.len());
    }
    let metas = fs::read_dir(&rbw).expect("lists").flatten();
    let mut metas = metas.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("blk_{id}_"))
    });
    metas.next().map_or(0, |meta| apaches_length(&data, &meta))
}

/// One block: records of a log, each acknowledged, and now and then what other clients do.
struct Log<'a> {
    store: &'a Store,
    acked: &'a File,
    id: i64,
    gs: u64,
    len: usize,
    rng: StdRng,
}

impl Log<'_> {
    fn note_acked(&self) {
        let at = self.id.unsigned_abs() * 8;
        let told = (self.len as u64).to_le_bytes();
        self.acked.write_all_at(&told, at).expect("notes");
    }

    /// As a stock client sends a record: the last chunk again from its beginning.
    async fn record(&mut self, writer: &mut ReplicaWriter, bytes: usize) {
        let next = self.len + bytes;
        let from = self.len - self.len % 512;
        let packets = if next - from > 65_024 {
            let cut = from + 65_024;
            vec![packet(from, cut), packet(cut, next)]
        } else {
            vec![packet(from, next)]
        };
        writer.write(packets).await.expect("writes");
        self.len = next;
        writer.set_bytes_acked(next as u64);
        self.note_acked();
    }

    async fn write(mut self) {
        let new = block(self.id, self.gs, 0);
        let created = self.store.create_rbw(&new, WriteOptions::default());
        let mut writer = created.await.expect("creates");
        writer.set_checksum(crc32c()).await.expect("header");
        while self.len < 64 << 20 {
            let bytes = self.rng.random_range(1..1500);
            self.record(&mut writer, bytes).await;
            let what = self.rng.random_range(0..100);
            match self.id % 4 {
                0 if what < 20 => writer.sync().await.expect("syncs"),
                1 if what < 10 => self.record(&mut writer, 300_000).await,
                2 if what < 5 => writer = self.append(writer).await,
                3 if what < 5 => writer = self.take_over(writer).await,
                _ => {}
            }
        }
    }

    async fn append(&mut self, writer: ReplicaWriter) -> ReplicaWriter {
        writer.finalize().await.expect("finalizes");
        let (old, len) = (self.gs, self.len as u64);
        self.gs += 1;
        let block = block(self.id, old, len);
        let again = self.store.append(&block, self.gs, len).await;
        let mut writer = again.expect("appends");
        writer.set_checksum(crc32c()).await.expect("is known");
        writer
    }

    /// A pipeline is rebuilt: what was not acknowledged is cut off.
    async fn take_over(&mut self, mut writer: ReplicaWriter) -> ReplicaWriter {
        let beyond = self.len + self.rng.random_range(1..3000);
        let from = self.len - self.len % 512;
        let sent = writer.write(vec![packet(from, beyond)]).await;
        sent.expect("writes");
        drop(writer);
        let (old, len) = (self.gs, self.len as u64);
        self.gs += 1;
        let block = block(self.id, old, len);
        let taken = self
            .store
            .recover_rbw(&block, self.gs, len, beyond as u64)
            .await;
        let mut writer = taken.expect("is taken over");
        writer.set_checksum(crc32c()).await.expect("is known");
        writer
    }
}

/// Not a test of its own: the process that the next one kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of another test, which starts it"]
async fn child_logs_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let text = |name| std::env::var(name).expect("the parent sets it");
    let mut config = config(Path::new(&dir), 1);
    text(CHILD_ENGINE).clone_into(&mut config.volumes[0].engine);
    if std::env::var_os(GUARDED).is_some() {
        let faults = Faults::new(1);
        let attributes = FaultRule::new(Effect::Errno(EOPNOTSUPP)).on(&[IoOp::Other]);
        faults.add(attributes.at(|path| path.extension() == Some("meta".as_ref())));
        config.faults = Some((config.volumes[0].path.clone(), faults));
    }
    let seed: u64 = text(CHILD_SEED).parse().expect("a number");
    let (store, _events) = open(config).await;
    let acked = File::create(Path::new(&dir).join(ACKED)).expect("creates");
    let acked = Arc::new(acked);
    let logs = (0..WRITERS).map(|id| {
        let (store, acked) = (store.clone(), Arc::clone(&acked));
        tokio::spawn(async move {
            let log = Log {
                store: &store,
                acked: &acked,
                id,
                gs: 1001,
                len: 0,
                rng: StdRng::seed_from_u64(seed ^ (id.unsigned_abs() << 32)),
            };
            log.write().await;
        })
    });
    futures_util::future::join_all(logs).await;
}

/// Kills one process, and gives what Apache's node would lose: (files, lost ones in words).
fn killed(engine: &str, seed: u64) -> (usize, Vec<String>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let after = StdRng::seed_from_u64(seed).random_range(800..3000);
    let (number, engine) = (seed.to_string(), OsStr::new(engine));
    let env = [
        (CHILD_DIR, dir.path().as_os_str()),
        (CHILD_SEED, OsStr::new(&number)),
        (CHILD_ENGINE, engine),
    ];
    let name = "tests::killed_then_apache::child_logs_until_it_is_killed";
    run_and_kill(name, &env, Duration::from_millis(after));
    let acked = fs::read(dir.path().join(ACKED)).unwrap_or_default();
    let pool_dir = dir.path().join("data0/current").join(pool().as_str());
    let told = acked.chunks_exact(8).map(|slot| {
        let told: [u8; 8] = slot.try_into().expect("eight bytes");
        u64::from_le_bytes(told)
    });
    let (mut files, mut lost) = (0, Vec::new());
    for (id, acked) in (0..).zip(told).filter(|(_, acked)| *acked > 0) {
        files += 1;
        let there = found(&pool_dir, id);
        if there < acked {
            assert_eq!(
                there,
                acked - acked % 512,
                "seed {seed}, blk_{id}: of {acked}"
            );
            lost.push(format!("seed {seed}, blk_{id}: {there} of {acked}"));
        }
    }
    (files, lost)
}

#[test]
fn apaches_start_finds_what_a_killed_process_acknowledged() {
    let rounds = std::env::var(ROUNDS).ok();
    let rounds = rounds.map_or(ROUNDS_DEFAULT, |text| text.parse().expect("a number"));
    let first = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    for engine in ["direct", "posix"] {
        let (mut all, mut all_lost) = (0, Vec::new());
        for seed in first..first + rounds {
            let (files, lost) = killed(engine, seed);
            all += files;
            all_lost.extend(lost);
        }
        let lost = all_lost.len();
        println!("{engine}: seeds from {first}, {rounds} kills, {all} files, {lost} lost a chunk");
        assert!(all > 0, "nothing was acknowledged: this shows nothing");
        assert!(
            lost * 33 <= all,
            "{lost} of {all}:\n{}",
            all_lost.join("\n")
        );
    }
}
