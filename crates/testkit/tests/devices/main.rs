//! A node whose blocks are on network block devices, behind stub files: stock clients cannot tell;
//! Apache's node refuses the directory; servers that die, hang or talk nonsense cost the volume.
//! Another whose blocks are objects of ADIOS2.

mod adios;
#[path = "../../../io/tests/plugin/compile.rs"]
mod compile;
mod odd_node;
mod server;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process::Signal;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec, ports};
use odd_node::{NODES, ODD, OddNode};
use rustix::fs::{XattrFlags, setxattr};
use serde_json::json;
use server::Server;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;
/// Room that a volume must have beyond a block, or others are taken first.
const ROOM_AHEAD: &str =
    "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space";
/// Bytes of the device.
const DEVICE: u64 = 512 << 20;

fn main() -> ExitCode {
    Suite::run("devices", |suite| {
        adios::cases(suite);
        let missing = ["nbdkit", "cc"].into_iter().find(|tool| !is_there(tool));
        let header = Path::new("/usr/include/libnbd.h");
        let missing = missing.or_else(|| (!header.exists()).then_some("libnbd-dev"));
        if let Some(missing) = missing {
            let why = format!("{missing} is not installed");
            suite.case("everything_on_nbd", move || Ok(Outcome::Skipped(why)));
            return Ok(());
        }
        let mut on = suite.group(start, |lab, failed| lab.odd.cluster.conclude(failed));
        on.case("stock_clients_cannot_tell", |lab| lab.served());
        on.case("room_of_deleted_files_comes_back", |lab| lab.deleted());
        on.case("a_kill_loses_nothing_acknowledged", |lab| lab.killed());
        on.case("apache_s_node_refuses_the_directory", |lab| lab.refused());
        on.case("exports_that_cannot_be_used_cost_the_volume", |lab| {
            lab.unusable()
        });
        on.case("a_server_that_is_silent_costs_the_volume", |lab| {
            lab.silent()
        });
        on.case("half_a_minute_of_silence_costs_the_volume", |lab| {
            lab.paused()
        });
        on.case("a_server_that_dies_costs_the_volume", |lab| lab.dead());
        on.case("servers_that_are_killed_at_work_lose_nothing", |lab| {
            lab.killed_at_work()
        });
        on.case("errors_at_a_start_are_not_taken_for_damage", |lab| {
            lab.errors_at_a_start()
        });
        // The NameNode replaces a damaged replica on another node than those that have one.
        let mut on = suite.group(start_with_spare, |lab, failed| {
            lab.odd.cluster.conclude(failed)
        });
        on.case("a_torn_stub_is_replaced", |lab| lab.torn());
        on.case("errors_of_the_device_are_read_around", |lab| lab.errors());
        Ok(())
    })
}

fn is_there(tool: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {tool} >/dev/null")])
        .status()
        .is_ok_and(|status| status.success())
}

fn start() -> Result<Lab> {
    start_with(NODES)
}

/// With a node more than replicas, and files.
fn start_with_spare() -> Result<Lab> {
    let mut lab = start_with(NODES + 1)?;
    lab.odd.put("/several", 19 * BLOCK + 12_345)?;
    lab.odd.wait_replicas()?;
    Ok(lab)
}

fn start_with(nodes: usize) -> Result<Lab> {
    let base = scratch("devices-")?;
    let plugin = base.path().join("nbd.so");
    let libraries = ["-lnbd", "-lpthread"].map(String::from);
    compile::plugin_with("../../plugins/nbd.c", &plugin, &[], &libraries);
    let device = base.path().join("device");
    let made = File::create(&device).and_then(|f| f.set_len(DEVICE));
    made.map_err(TestkitError::file("creating", &device))?;
    let port = ports::free()?;
    let mut server = Server::new(base.path(), port);
    server.start(&[], &[])?;
    let volume = base.path().join("volume");
    let key = format!("hayloft.io.engine.{}", volume.display());
    let uri = format!("nbd://127.0.0.1:{port} timeout=4");
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(vec![
            VolumeSpec::at(&volume),
            VolumeSpec::at(base.path().join("plain")),
        ])
        .conf("dfs.datanode.failed.volumes.tolerated", 1)
        .conf("dfs.datanode.disk.check.timeout", "8s")
        .conf(ROOM_AHEAD, 0)
        .conf(&key, format!("plugin:{} {uri}", plugin.display()));
    let cluster = Cluster::builder("devices")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", NODES)
        .conf("dfs.client.socket-timeout", 10_000)
        .node(spec)
        .nodes(nodes - 1, Kind::Hayloft)
        .start()?;
    Ok(Lab {
        odd: OddNode::new(cluster)?,
        server,
        volume,
        _base: base,
    })
}

struct Lab {
    odd: OddNode,
    server: Server,
    /// The directory of the stubs.
    volume: PathBuf,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

impl Lab {
    /// Data files of the volume with the device.
    fn stubs(&mut self) -> Vec<PathBuf> {
        let volume = self.volume.clone();
        let node = self.odd.cluster.node(ODD);
        let files = node.all_block_files().into_iter();
        files
            .filter(|file| file.starts_with(&volume))
            .filter(|file| file.extension().is_none())
            .collect()
    }

    fn served(&mut self) -> Result<Outcome> {
        self.odd.write_all_ways(9, BLOCK)?;
        self.odd.check_odd()?;
        let stubs = self.stubs();
        expect(!stubs.is_empty(), || "no block is on the device".into())?;
        for stub in &stubs {
            let bytes = std::fs::read(stub).map_err(TestkitError::file("reading", stub))?;
            expect(bytes.iter().all(|b| *b == 0), || {
                format!("{} has the content itself", stub.display())
            })?;
        }
        let version = self.volume.join("current/VERSION");
        let text = std::fs::read_to_string(&version);
        let text = text.map_err(TestkitError::file("reading", &version))?;
        expect(text.contains("layoutVersion=-1057"), || text.clone())?;
        let log = self.odd.log()?;
        expect(log.contains("plugin:nbd"), || "no engine is named".into())?;
        passed()
    }

    /// More than the device has in all, half of it at a time.
    fn deleted(&mut self) -> Result<Outcome> {
        for round in 0..4 {
            let name = format!("/round-{round}");
            self.odd
                .fs
                .put(&name, DEVICE * 3 / 5, 77, json!({"replication": 1}))?;
            self.odd.fs.check(&name, DEVICE * 3 / 5, 77)?;
            self.odd.fs.fs(&["-rm", "-skipTrash", &name])?;
            let volume = self.volume.clone();
            wait::until("the deletes", seconds(60), || {
                let files = self.odd.cluster.node(ODD).all_block_files();
                let left = files.iter().filter(|f| f.starts_with(&volume)).count();
                Ok(if left < 40 {
                    Seen::Done(())
                } else {
                    Seen::NotYet(format!("{left} files"))
                })
            })?;
        }
        self.odd.check_all()?;
        passed()
    }

    fn killed(&mut self) -> Result<Outcome> {
        for round in 0..3 {
            self.odd.kill_while_writing(round, BLOCK)?;
        }
        passed()
    }

    fn refused(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        let before = self.stubs().len();
        // With the stubs alone it ends, and tells no NameNode of a block.
        let alone = NodeSpec::new(Kind::Apache).volumes(vec![VolumeSpec::at(&self.volume)]);
        let (_, log) = self.odd.cluster.refused_node(alone)?;
        let told = log.contains("Successfully sent block report");
        expect(log.contains("-1057") && !told, || log.clone())?;
        // With a volume of files beside it goes on with that one.
        self.odd.cluster.node(ODD).become_kind(Kind::Apache)?;
        self.odd.cluster.rewrite_node_conf(ODD)?;
        self.odd.start()?;
        wait::until("a log that says -1057", seconds(60), || {
            Ok(match self.odd.log()? {
                log if log.contains("-1057") => Seen::Done(()),
                _ => Seen::NotYet("nothing of the layout".into()),
            })
        })?;
        self.odd.check_all()?;
        self.odd.cluster.node(ODD).kill()?;
        self.odd.cluster.swap_node(ODD, Kind::Hayloft)?;
        self.odd.cluster.wait_all_live()?;
        expect_eq("blocks", self.stubs().len(), before)?;
        self.odd.check_odd()?;
        passed()
    }

    /// Restarts the node on an export; it says `what` and goes on without the volume.
    fn start_without(&mut self, what: &str) -> Result<()> {
        self.odd.start()?;
        self.odd.wait_failed(1)?;
        let log = self.odd.log()?;
        expect(log.contains(what), || format!("the log lacks {what:?}"))?;
        self.odd.stop()?;
        self.server.stop()
    }

    fn unusable(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        self.server.stop()?;
        self.start_without("onnect")?;
        self.server.start(&["--readonly"], &[])?;
        self.start_without("the export is read-only")?;
        self.server.start_without_flush()?;
        self.start_without("the server has no FLUSH")?;
        self.server
            .start(&["--filter=truncate"], &["truncate=256M"])?;
        self.start_without("give it its size back")?;
        self.server.start(&["--filter=offset"], &["offset=4M"])?;
        self.start_without("this is no device of Hayloft's")?;
        self.server.start_nonsense()?;
        self.start_without("does not open the volume")?;
        self.server.start(&[], &[])?;
        self.odd.start()?;
        self.odd.wait_failed(0)?;
        self.odd.check_odd()?;
        passed()
    }

    fn silent(&mut self) -> Result<Outcome> {
        self.server.signal(Signal::STOP)?;
        self.without("/while-it-is-silent")?;
        self.server.signal(Signal::CONT)?;
        self.back()
    }

    /// The server takes connections and requests, and answers none for 30 s.
    fn paused(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        self.server.stop()?;
        self.server.start_that_pauses()?;
        self.odd.start()?;
        self.odd.wait_failed(0)?;
        let began = Instant::now();
        self.server.pause()?;
        self.without("/while-it-is-paused")?;
        let left = seconds(30).saturating_sub(began.elapsed());
        std::thread::sleep(left);
        self.odd.check_alive()?;
        self.server.resume()?;
        self.odd.check_all()?;
        self.back()
    }

    /// A file is written while the device does not answer: its volume fails, the node goes on.
    fn without(&mut self, path: &str) -> Result<()> {
        self.odd.put(path, 4 * BLOCK)?;
        self.odd.wait_failed(1)?;
        self.odd.check_all()?;
        self.odd.check_alive()
    }

    /// A restarted node uses the device again.
    fn back(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        self.odd.start()?;
        self.odd.wait_failed(0)?;
        self.odd.check_odd()?;
        passed()
    }

    fn dead(&mut self) -> Result<Outcome> {
        self.odd.fs.create("d", "/while-it-dies", 90, json!({}))?;
        self.odd.fs.write("d", 2 * BLOCK + 5_000)?;
        self.odd.fs.handle("hflush", "d")?;
        self.server.stop()?;
        self.odd.fs.write("d", 3 * BLOCK)?;
        self.odd.fs.handle("hsync", "d")?;
        self.odd.fs.handle("close", "d")?;
        self.odd.files.add("/while-it-dies", 5 * BLOCK + 5_000, 90);
        self.without("/after-it-died")?;
        self.server.start(&[], &[])?;
        self.back()
    }

    /// The server dies while files are written, then while they are read: a slow one, so that
    /// requests are on their way.
    fn killed_at_work(&mut self) -> Result<Outcome> {
        let write = json!({
            "path": "/at-work", "streams": 4, "bytes": 12 * BLOCK, "replication": NODES,
            "blockSize": BLOCK, "favored": [self.odd.cluster.node(ODD).xfer()],
        });
        let read = json!({"path": "/at-work", "streams": 4});
        for (operation, request) in [
            ("writeStreams", write.clone()),
            ("readStreams", read.clone()),
        ] {
            if operation == "readStreams" {
                // What the first kill left is on other volumes for the most part.
                self.odd.fs.call("writeStreams", write.clone())?;
            }
            self.odd.stop()?;
            self.server.stop()?;
            self.server
                .start(&["--filter=delay"], &["rdelay=1", "wdelay=100ms"])?;
            self.odd.start()?;
            self.odd.wait_failed(0)?;
            let pending = self.odd.fs.begin(operation, request)?;
            let early = pending.wait_briefly(Duration::from_millis(500))?;
            expect(early.is_none(), || format!("{operation} was too fast"))?;
            self.server.stop()?;
            let answer = pending.wait_at_most(seconds(180))?;
            expect(answer["equal"] != false, || {
                format!("other bytes: {answer}")
            })?;
            self.odd.wait_failed(1)?;
            self.odd.check_alive()?;
            self.server.start(&[], &[])?;
            self.back()?;
        }
        let answer = self.odd.fs.call("readStreams", read)?;
        expect(answer["equal"] == true, || format!("other bytes: {answer}"))?;
        passed()
    }

    /// After a kill the node looks at recent replicas. What cannot be read then is whole later.
    fn errors_at_a_start(&mut self) -> Result<Outcome> {
        self.odd.put("/recent", 20 * BLOCK)?;
        self.odd.wait_replicas()?;
        let before = self.stubs().len();
        self.odd.cluster.node(ODD).kill()?;
        self.server.stop()?;
        self.server
            .start(&["--filter=error"], &["error-pread-rate=15%"])?;
        self.odd.start()?;
        self.odd.wait_failed(1)?;
        self.odd.check_all()?;
        self.odd.stop()?;
        self.server.stop()?;
        self.server.start(&[], &[])?;
        self.odd.start()?;
        self.odd.wait_failed(0)?;
        expect_eq("blocks", self.stubs().len(), before)?;
        self.odd.check_odd()?;
        passed()
    }

    /// A stub that names no place any more: its replica is reported, and comes from the other node.
    fn torn(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        let stubs = self.stubs();
        expect(!stubs.is_empty(), || "no block is on the device".into())?;
        for stub in &stubs {
            let torn = setxattr(stub, "user.hayloft.at", b"torn", XattrFlags::empty());
            torn.map_err(|e| TestkitError::file("tearing", stub)(e.into()))?;
        }
        self.odd.start()?;
        wait::until("reports of all torn replicas", seconds(60), || {
            self.odd.check_all()?;
            let log = self.odd.log()?;
            let told = log.matches("replica is corrupt: reported").count();
            Ok(if told >= stubs.len() {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{told} of {}", stubs.len()))
            })
        })?;
        self.odd.wait_replicas()?;
        self.odd.check_all()?;
        passed()
    }

    fn errors(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        self.server.stop()?;
        self.server
            .start(&["--filter=error"], &["error-pread-rate=30%"])?;
        self.odd.start()?;
        self.odd.check_all()?;
        self.odd.check_all()?;
        self.odd.check_alive()?;
        self.odd.stop()?;
        self.server.stop()?;
        self.server.start(&[], &[])?;
        self.odd.start()?;
        // What the scanner found damaged is replaced.
        self.odd.wait_replicas()?;
        self.odd.check_all()?;
        passed()
    }
}
