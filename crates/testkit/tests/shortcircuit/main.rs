//! Short-circuit reads by stock clients with libhadoop, and what ends them. [`local_client`]: one
//! that attacks; [`killed`]: those that are killed; [`zero_copy`]: those that map; [`in_memory`]:
//! replicas on a RAM_DISK; [`without_files`]: those that the node alone reads.
//! Skipped where `scripts/fetch-libhadoop` has not made a libhadoop.
//!
//! Apache's node as the node under test needs that library too: `HAYLOFT_LAB_PEER=apache` and
//! `JAVA_TOOL_OPTIONS=-Djava.library.path=.../target/libhadoop`.

mod in_memory;
mod killed;
mod local_client;
mod without_files;
mod zero_copy;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::{BlockOnNode, flip_byte};
use hayloft_testkit::hadoop::{SMALL_JVM_FLAGS, repository_root, scratch};
use hayloft_testkit::node::Kind;
use hayloft_testkit::process_usage::{self, Usage};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, BlockOpResponse, Status};
use local_client::{Local, Shared, ask_over_tcp};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 2 << 20;

fn main() -> ExitCode {
    if let Some(code) = killed::as_a_client() {
        return code;
    }
    let native = repository_root().join("target/libhadoop/libhadoop.so");
    Suite::run("shortcircuit", |suite| {
        if !native.is_file() {
            suite.case("stock_clients_read_by_themselves", || {
                let why = "there is no libhadoop: run scripts/fetch-libhadoop";
                Ok(Outcome::Skipped(why.into()))
            });
            return Ok(());
        }
        let mut on = suite.group(Lab::start, Lab::end);
        on.case("stock_clients_read_by_themselves", Lab::reads)
            .case("data_goes_over_the_socket", Lab::data_traffic)
            .case("a_file_is_deleted_under_its_reader", Lab::deleted)
            .case("what_was_appended_is_read", Lab::appended)
            .case("clients_find_and_tell_damage", Lab::damaged)
            .case("files_are_mapped", Lab::mapped)
            .case("a_mapped_file_is_uncached", Lab::uncached)
            .case("wrong_slots_are_refused", Lab::wrong_slots)
            .case("garbage_and_half_requests", Lab::garbage)
            .case("no_descriptor_over_tcp", Lab::over_tcp)
            .case("a_client_cannot_take_memory_away", Lab::truncated)
            .case("killed_clients_leave_nothing", Lab::killed)
            .case("a_killed_stock_client_leaves_nothing", Lab::killed_jvm)
            .case("the_socket_goes_and_comes_with_the_node", Lab::restarts);
        let mut on = suite.group(in_memory::start, Lab::end);
        on.case(
            "a_replica_leaves_memory_under_its_reader",
            Lab::leaves_memory,
        );
        without_files::cases(suite);
        Ok(())
    })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    sockets: tempfile::TempDir,
}

/// Flags of a stock client that finds libhadoop.
fn with_libhadoop() -> Vec<String> {
    let mut flags: Vec<String> = SMALL_JVM_FLAGS.map(String::from).to_vec();
    let dir = repository_root().join("target/libhadoop");
    flags.push("-Xmx512m".into());
    flags.push(format!("-Djava.library.path={}", dir.display()));
    flags
}

impl Lab {
    fn start() -> Result<Self> {
        Self::with(NodeSpec::new(Kind::under_test()))
    }

    fn with(node: NodeSpec) -> Result<Self> {
        let sockets = scratch("sc-")?;
        let cluster = Cluster::builder("shortcircuit")
            .node(node)
            .conf("dfs.replication", 1)
            .conf("dfs.blocksize", BLOCK)
            .conf("dfs.client.read.shortcircuit", true)
            .conf("dfs.datanode.max.locked.memory", 2 * BLOCK)
            .conf("dfs.namenode.path.based.cache.refresh.interval.ms", 1000)
            .conf(
                "dfs.domain.socket.path",
                sockets.path().join("dn._PORT").display(),
            )
            .start()?;
        let fs = cluster.driver_with_flags(with_libhadoop())?;
        Ok(Self {
            cluster,
            fs,
            sockets,
        })
    }

    fn end(self, failed: bool) {
        self.cluster.conclude(failed);
    }

    fn socket(&mut self) -> PathBuf {
        let xfer = self.cluster.node(0).xfer();
        let port = xfer.rsplit_once(':').map_or("", |(_, port)| port);
        self.sockets.path().join(format!("dn.{port}"))
    }

    fn usage(&mut self) -> Result<Usage> {
        process_usage::usage(self.cluster.node(0).process()?.pid())
    }

    /// Reads a file as stock clients do; how much of it they read by themselves.
    fn read(&self, path: &str, bytes: u64, seed: u64, more: Value) -> Result<u64> {
        let mut request = json!({"path": path, "seed": seed});
        if let (Some(request), Value::Object(more)) = (request.as_object_mut(), more) {
            request.extend(more);
        }
        let answer = self.fs.call("read", request)?;
        let seen = (answer["bytes"].as_u64(), answer["mismatch"].as_i64());
        expect_eq("bytes and first mismatch", seen, (Some(bytes), Some(-1)))?;
        Ok(answer["shortCircuit"].as_u64().unwrap_or_default())
    }

    fn reads(&mut self) -> Result<Outcome> {
        let bytes = 3 * BLOCK + 12_345;
        self.fs.put("/read", bytes, 1, json!({}))?;
        for more in [json!({}), json!({"pread": true})] {
            let alone = self.read("/read", bytes, 1, more)?;
            expect_eq("bytes read by short circuit", alone, bytes)?;
        }
        let off = json!({"conf": {"dfs.client.read.shortcircuit": false}});
        expect_eq("without", self.read("/read", bytes, 1, off)?, 0)?;
        passed()
    }

    /// Established connections of the socket, by what the kernel says.
    fn connections(&mut self) -> Result<usize> {
        let path = "/proc/net/unix";
        let all = std::fs::read_to_string(path).map_err(TestkitError::file("reading", path))?;
        let socket = self.socket().display().to_string();
        let established = |line: &&str| line.split_whitespace().nth(5) == Some("03");
        let of = all.lines().filter(|line| line.ends_with(&socket));
        Ok(of.filter(established).count())
    }

    fn data_traffic(&mut self) -> Result<Outcome> {
        let conf = json!({
            "dfs.client.domain.socket.data.traffic": true,
            "dfs.client.read.shortcircuit": false,
            "dfs.client.context": "traffic",
        });
        let bytes = 2 * BLOCK + 7;
        self.fs.put("/traffic", bytes, 2, json!({ "conf": conf }))?;
        let before = self.connections()?;
        let more = json!({"path": "/traffic", "seed": 2, "conf": conf,
            "buffer": 64 << 10, "pauseMillis": 50});
        let reading = self.fs.begin("read", more)?;
        wait::until("a connection to the socket", seconds(20), || {
            let now = self.connections()?;
            Ok(if now > before {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{now}"))
            })
        })?;
        let answer = reading.wait()?;
        let seen = (answer["bytes"].as_u64(), answer["mismatch"].as_i64());
        expect_eq("bytes and first mismatch", seen, (Some(bytes), Some(-1)))?;
        expect_eq("read alone", answer["shortCircuit"].as_u64(), Some(0))?;
        passed()
    }

    /// What a reader has open it reads to the end; then the space is given back.
    fn deleted(&mut self) -> Result<Outcome> {
        self.fs.put("/deleted", BLOCK, 3, json!({}))?;
        let block = self.block_of("/deleted")?;
        let more = json!({"path": "/deleted", "seed": 3, "buffer": 64 << 10, "pauseMillis": 100});
        let reading = self.fs.begin("read", more)?;
        std::thread::sleep(Duration::from_millis(600));
        self.fs.call("delete", json!({"path": "/deleted"}))?;
        let (id, name) = (block.block.id, format!("blk_{}", block.block.id));
        wait::until("the block to be deleted", seconds(30), || {
            let left = self.cluster.node(0).block_files(id);
            Ok(if left.is_empty() {
                Seen::Done(())
            } else {
                Seen::NotYet(name.clone())
            })
        })?;
        let answer = reading.wait()?;
        let seen = (answer["bytes"].as_u64(), answer["mismatch"].as_i64());
        expect_eq("bytes and first mismatch", seen, (Some(BLOCK), Some(-1)))?;
        expect_eq("read alone", answer["shortCircuit"].as_u64(), Some(BLOCK))?;
        passed()
    }

    fn appended(&mut self) -> Result<Outcome> {
        let mut bytes = 700;
        self.fs.put("/appended", bytes, 4, json!({}))?;
        for more in [1, 511, 100_000] {
            let alone = self.read("/appended", bytes, 4, json!({}))?;
            expect_eq("read alone", alone, bytes)?;
            self.fs.append("a", "/appended", 4, json!({}))?;
            self.fs
                .call("write", json!({"handle": "a", "bytes": more}))?;
            self.fs.call("close", json!({"handle": "a"}))?;
            bytes += more;
        }
        self.read("/appended", bytes, 4, json!({}))?;
        passed()
    }

    /// A client that reads by itself is the one that compares: it says what is damaged.
    fn damaged(&mut self) -> Result<Outcome> {
        self.fs.put("/damaged", BLOCK, 10, json!({}))?;
        let mut files = self.block_files("/damaged")?;
        files.retain(|file| file.extension().is_none());
        flip_byte(&files[0], 1_234_567)?;
        let request = json!({"path": "/damaged", "seed": 10});
        let error = match self.fs.call("read", request) {
            Ok(answer) => return Err(TestkitError::Expectation(answer.to_string())),
            Err(error) => error.to_string(),
        };
        expect(error.contains("Checksum"), || error.clone())?;
        wait::until("a block that is known as corrupt", seconds(60), || {
            let block = self.fs.blocks("/damaged")?.remove(0);
            Ok(match block.corrupt {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{block:?}")),
            })
        })?;
        self.fs.fs(&["-rm", "-skipTrash", "/damaged"])?;
        self.reads()
    }

    fn block_files(&mut self, path: &str) -> Result<Vec<PathBuf>> {
        let block = self.block_of(path)?.block;
        Ok(self.cluster.node(0).block_files(block.id))
    }

    fn blocks_of(&self, path: &str) -> Result<Vec<ExtendedBlock>> {
        let named = |block: BlockOnNode| {
            let wrong = |e| TestkitError::Expectation(format!("{}: {e}", block.pool));
            let pool = PoolId::new(block.pool.as_str()).map_err(wrong)?;
            let number = Block::new(block.id, block.generation, 0);
            Ok(ExtendedBlock::new(pool, number))
        };
        self.fs.blocks(path)?.into_iter().map(named).collect()
    }

    fn block_of(&self, path: &str) -> Result<ExtendedBlock> {
        Ok(self.blocks_of(path)?.remove(0))
    }

    /// A request for the files of the first block.
    fn request(
        &self,
        path: &str,
        slot: Option<pb::ShortCircuitShmSlot>,
    ) -> Result<pb::OpRequestShortCircuitAccess> {
        Ok(request_for(&self.block_of(path)?, slot))
    }

    fn wrong_slots(&mut self) -> Result<Outcome> {
        self.fs.put("/slots", 1000, 5, json!({}))?;
        let socket = self.socket();
        let (shared, mut client) = (Shared::at(&socket)?, Local::connect(&socket)?);
        let taken = self.request("/slots", Some(shared.take(3)?))?;
        let (answer, files) = client.files(&taken)?;
        expect_eq(
            "the first",
            (answer.outcome(), files.len()),
            (Status::Success, 2),
        )?;
        for (slot, says) in [
            (-1, "invalid negative slot index -1"),
            (128, "invalid slot index 128"),
            (i32::MIN, "invalid negative slot index"),
            (3, "slot 3 is already in use."),
            (4, "slot 4 is not marked as valid."),
        ] {
            let request = self.request("/slots", Some(shared.slot(slot)))?;
            let (answer, _) = client.files(&request)?;
            expect(
                answer.outcome() == Status::Error && answer.message().contains(says),
                || format!("slot {slot}: {answer:?}"),
            )?;
            if slot == 3 {
                continue;
            }
            let release = pb::ReleaseShortCircuitAccessRequest {
                slot_id: shared.slot(slot),
                trace_info: None,
            };
            let answer: pb::ReleaseShortCircuitAccessResponse = client.ask(&release)?;
            expect_eq("its release", answer.status, Status::ErrorInvalid.into())?;
        }
        self.fs.call("delete", json!({"path": "/slots"}))?;
        wait::until("the slot to be invalid", seconds(30), || {
            let valid = shared.is_valid(3)?;
            Ok(if valid {
                Seen::NotYet("valid".into())
            } else {
                Seen::Done(())
            })
        })?;
        passed()
    }

    fn garbage(&mut self) -> Result<Outcome> {
        let (before, segments) = (self.usage()?, self.segments()?);
        let socket = self.socket();
        let pieces: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\n\r\n",
            &[0xDE, 0xAD, 0xBE, 0xEF, 0],
            &[0, 28, 87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0, 28, 87, 4, 1, 2, 3, 4],
            &[0, 28, 89],
        ];
        for piece in pieces {
            for _ in 0..20 {
                let mut client = Local::connect(&socket)?;
                let _closed_already = client.0.write_all(piece);
                let _ = client.0.shutdown(std::net::Shutdown::Write);
                let mut rest = Vec::new();
                let _reset = client.0.read_to_end(&mut rest);
                expect(rest.is_empty(), || {
                    format!("{piece:?} was answered {rest:?}")
                })?;
            }
        }
        self.settled(before, segments)?;
        self.reads()
    }

    fn over_tcp(&mut self) -> Result<Outcome> {
        self.fs.put("/tcp", 1000, 6, json!({}))?;
        let xfer = self.cluster.node(0).xfer();
        let answer: BlockOpResponse = ask_over_tcp(&xfer, &self.request("/tcp", None)?)?;
        let says = "You cannot pass file descriptors over anything but a UNIX domain socket.";
        let said = (answer.outcome(), answer.message());
        expect_eq("over TCP", said, (Status::Error, says))?;
        passed()
    }

    /// A node that looked at memory that is gone would be ended by a signal.
    fn truncated(&mut self) -> Result<Outcome> {
        self.fs.put("/truncated", 1000, 7, json!({}))?;
        let socket = self.socket();
        let shared = Shared::at(&socket)?;
        let request = self.request("/truncated", Some(shared.take(0)?))?;
        let (answer, _) = Local::connect(&socket)?.files(&request)?;
        expect_eq("before", answer.outcome(), Status::Success)?;
        expect(shared.file.set_len(0).is_err(), || {
            "it was truncated".into()
        })?;
        self.fs.call("delete", json!({"path": "/truncated"}))?;
        wait::until("the slot to be invalid", seconds(30), || {
            let valid = shared.is_valid(0)?;
            Ok(if valid {
                Seen::NotYet("valid".into())
            } else {
                Seen::Done(())
            })
        })?;
        self.cluster.node(0).process()?.check_alive()?;
        passed()
    }

    fn restarts(&mut self) -> Result<Outcome> {
        let socket = self.socket();
        self.cluster.node(0).stop()?;
        expect(!is_there(&socket), || {
            "a stopped node leaves its socket".into()
        })?;
        self.cluster.start_node(0)?;
        expect(is_there(&socket), || "no socket after a start".into())?;
        self.cluster.node(0).kill()?;
        expect(is_there(&socket), || "the file is gone".into())?;
        self.cluster.start_node(0)?;
        self.cluster.wait_all_live()?;
        // Clients that saw it gone would not ask for ten minutes.
        self.fs = self.cluster.driver_with_flags(with_libhadoop())?;
        self.reads()
    }
}

fn request_for(
    block: &ExtendedBlock,
    slot: Option<pb::ShortCircuitShmSlot>,
) -> pb::OpRequestShortCircuitAccess {
    pb::OpRequestShortCircuitAccess {
        header: transfer::base_header(block, Token::default()),
        max_version: 1,
        slot_id: slot,
        supports_receipt_verification: Some(true),
    }
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
