//! Peers that send garbage, lie about lengths, stop half way, or never read. After each, the
//! next good client is served, and memory and descriptors have not grown without bound. [`soak`]:
//! the same of good clients, for hours.

mod bytes;
mod every_port;
mod means;
mod soak;
mod transfer;
mod webhdfs;

use hayloft_testkit::error::Result;
use hayloft_testkit::files::BlockOnNode;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::process_usage::{self, Usage};
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, ClusterBuilder, Driver, Outcome, Suite, TestkitError, ports};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 4 << 20;
/// Connections held open at once.
const CROWD: usize = 400;
/// What a node may grow by under attack, KiB. Buffers of a few streams at work fit in it; one
/// believed length of 2 GiB, or a buffer for each of a crowd, does not.
const GROWTH_KIB: u64 = 96 << 10;
/// Descriptors of pipes that a node may keep behind an attack: three for each of the 16 by which it
/// reads into the page cache. It makes them when as many reads go on at once.
const KEPT_PIPES: usize = 16 * 3;

fn main() -> ExitCode {
    Suite::run("hostile", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        for port in [Port::Transfer, Port::Rpc, Port::Http] {
            let name = format!("{port:?}").to_lowercase();
            on.case(format!("{name}_good_request_is_answered"), move |lab| {
                lab.guarded(|lab| lab.good(port))
            });
            on.case(format!("{name}_senders_of_garbage_are_named"), move |lab| {
                lab.guarded(|lab| lab.named_in_the_log(port))
            });
            on.case(format!("{name}_garbage"), move |lab| {
                lab.guarded(|lab| lab.garbage(port))
            });
            on.case(format!("{name}_wrong_versions"), move |lab| {
                lab.guarded(|lab| lab.wrong_versions(port))
            });
            on.case(format!("{name}_lying_lengths"), move |lab| {
                lab.guarded(|lab| lab.lying_lengths(port))
            });
            on.case(format!("{name}_truncated"), move |lab| {
                lab.guarded(|lab| lab.truncated(port))
            });
            on.case(format!("{name}_half_open_crowd"), move |lab| {
                lab.guarded(|lab| lab.crowd(port))
            });
            on.case(format!("{name}_slow_senders"), move |lab| {
                lab.guarded(|lab| lab.slow_senders(port))
            });
        }
        on.case("transfer_lying_packets", |lab| {
            lab.guarded(Lab::lying_packets)
        });
        on.case("transfer_readers_that_do_not_read", |lab| {
            lab.guarded(Lab::silent_readers)
        });
        on.case("transfer_ranges_outside_of_the_block", |lab| {
            lab.guarded(Lab::wild_ranges)
        });
        on.case("webhdfs_readers_that_do_not_read", |lab| {
            lab.guarded(Lab::web_readers)
        });
        on.case("webhdfs_senders_that_stop", |lab| {
            lab.guarded(Lab::web_senders)
        });
        on.case("webhdfs_senders_that_hardly_move", |lab| {
            lab.guarded(|lab| lab.web_drips("PUT"))
        });
        on.case("webhdfs_readers_that_hardly_move", |lab| {
            lab.guarded(|lab| lab.web_drips("GET"))
        });
        on.case("webhdfs_requests_out_of_bounds", |lab| {
            lab.guarded(Lab::web_requests)
        });
        on.case("no_trace_in_the_namespace", |lab| lab.whole());
        let mut on = suite.group(striped, |lab, failed| lab.cluster.conclude(failed));
        on.case("webhdfs_striped_senders_that_hardly_move", |lab| {
            lab.guarded(Lab::web_striped_drips)
        });
        if Kind::under_test() == Kind::Hayloft {
            means::cases(suite);
            soak::cases(suite)?;
        }
        Ok(())
    })
}

fn start() -> Result<Lab> {
    on(Cluster::builder("hostile").nodes(1, Kind::under_test()))
}

fn on(cluster: ClusterBuilder) -> Result<Lab> {
    let cluster = cluster
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .start()?;
    let fs = cluster.driver()?;
    fs.put("/good", BLOCK, 1, json!({}))?;
    let block = fs.blocks("/good")?.remove(0);
    Lab::new(cluster, fs, block)
}

/// A cluster that stripes what is below `/endless`.
fn striped() -> Result<Lab> {
    let lab = on(Cluster::builder("hostile-striped").nodes(3, Kind::under_test()))?;
    let policy = ["-policy", "XOR-2-1-1024k"];
    let ec = |args: &[&str]| lab.fs.tool(class::EC, &[args, &policy].concat())?.ok();
    ec(&["-enablePolicy"])?;
    lab.fs.fs(&["-mkdir", "/endless"])?;
    ec(&["-setPolicy", "-path", "/endless"])?;
    Ok(lab)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Port {
    Transfer,
    Rpc,
    Http,
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
    block: BlockOnNode,
    transfer: SocketAddr,
    rpc: SocketAddr,
    http: SocketAddr,
    namenode: String,
    pid: u32,
}

impl Lab {
    fn new(mut cluster: Cluster, fs: Driver, block: BlockOnNode) -> Result<Self> {
        let namenode = cluster.namenode(0).rpc();
        let node = cluster.node(0);
        let parse = |text: String| {
            text.parse()
                .map_err(|e| TestkitError::Talk(format!("{text}: {e}")))
        };
        let (transfer, rpc) = (parse(node.xfer())?, parse(node.ipc())?);
        let http = ports::local(node.http_port());
        let pid = node.process()?.pid();
        Ok(Self {
            cluster,
            fs,
            block,
            transfer,
            rpc,
            http,
            namenode,
            pid,
        })
    }

    fn addr(&self, port: Port) -> SocketAddr {
        match port {
            Port::Transfer => self.transfer,
            Port::Rpc => self.rpc,
            Port::Http => self.http,
        }
    }

    fn connect(&self, port: Port) -> Result<TcpStream> {
        let addr = self.addr(port);
        let fail = |e: std::io::Error| TestkitError::Talk(format!("connecting to {addr}: {e}"));
        let socket = TcpStream::connect_timeout(&addr, seconds(5)).map_err(fail)?;
        socket.set_read_timeout(Some(seconds(5))).map_err(fail)?;
        socket.set_write_timeout(Some(seconds(5))).map_err(fail)?;
        Ok(socket)
    }

    /// Runs an attack, then checks that the node is as it was: alive, serving, not grown.
    fn guarded(&mut self, attack: impl FnOnce(&Self) -> Result<Outcome>) -> Result<Outcome> {
        let before = process_usage::usage(self.pid)?;
        let outcome = attack(self)?;
        self.cluster.node(0).process()?.check_alive()?;
        self.serves_within(seconds(15))?;
        self.settled(before)?;
        Ok(outcome)
    }

    fn serves_within(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        self.fs.check("/good", BLOCK, 1)?;
        self.fs.put("/next", 100_000, 2, json!({}))?;
        self.fs.check("/next", 100_000, 2)?;
        self.fs
            .dfsadmin(&["-getDatanodeInfo", &self.rpc.to_string()])?;
        expect(start.elapsed() < limit, || {
            format!("the next good client took {:?}", start.elapsed())
        })
    }

    fn settled(&self, before: Usage) -> Result<()> {
        wait::until("descriptors to be given back", seconds(30), || {
            let now = process_usage::usage(self.pid)?;
            let few = now.descriptors <= before.descriptors + 20
                && now.pipes <= before.pipes + KEPT_PIPES;
            Ok(if few {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{before:?} -> {now:?}"))
            })
        })?;
        self.memory_bounded(before)
    }

    /// A JVM takes what its heap limit lets it: only ours is held to a bound.
    fn memory_bounded(&self, before: Usage) -> Result<()> {
        let now = process_usage::usage(self.pid)?;
        let bounded =
            Kind::under_test() == Kind::Apache || now.rss_kib <= before.rss_kib + GROWTH_KIB;
        expect(bounded, || format!("memory grew: {before:?} -> {now:?}"))
    }

    /// Sends and waits until the node closes, answers, or five seconds pass; none is an error.
    fn send(&self, port: Port, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut socket = self.connect(port)?;
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = vec![0; 4096];
        let got = socket.read(&mut answer).unwrap_or(0);
        answer.truncate(got);
        Ok(answer)
    }

    fn listens(&self, port: Port) -> bool {
        self.connect(port).is_ok()
    }

    fn whole(&mut self) -> Result<Outcome> {
        self.fs.wait_healthy("/", seconds(30))?;
        let text = self.log()?;
        expect(!text.contains("panicked at"), || {
            "the node panicked, see its log".into()
        })?;
        expect(text.len() < 64 << 20, || {
            format!("{} bytes of log", text.len())
        })?;
        passed()
    }
}
