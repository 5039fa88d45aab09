//! Peers that send garbage, lie about lengths, stop half way, or never read. After each, the
//! next good client is served, and memory and descriptors have not grown without bound.

mod bytes;

use bytes::{field, number, operation, rpc_call};
use hayloft_testkit::error::Result;
use hayloft_testkit::files::BlockOnNode;
use hayloft_testkit::node::{Kind, Node};
use hayloft_testkit::procfs::{self, Usage};
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError, pattern, ports};
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
        on.case("no_trace_in_the_namespace", |lab| lab.whole());
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("hostile")
        .nodes(1, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .start()?;
    let fs = cluster.driver()?;
    fs.put("/good", BLOCK, 1, json!({}))?;
    let block = fs.blocks("/good")?.remove(0);
    Lab::new(cluster, fs, block)
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
    pid: u32,
}

impl Lab {
    fn new(mut cluster: Cluster, fs: Driver, block: BlockOnNode) -> Result<Self> {
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
        let before = procfs::usage(self.pid)?;
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
            let now = procfs::usage(self.pid)?;
            let few = now.descriptors <= before.descriptors + 20;
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
        let now = procfs::usage(self.pid)?;
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

    /// The attacks below are spoiled forms of this request: unspoiled, it must work.
    fn good(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let mut socket = self.connect(port)?;
        let mut answer = vec![0; 5];
        let asked = socket.write_all(&self.request(port));
        let answered = asked.and_then(|()| socket.read_exact(&mut answer));
        answer.truncate(answered.map_or(0, |()| 5));
        expect(answer.len() > 4, || {
            format!("a good request was answered with {answer:?}")
        })?;
        passed()
    }

    fn garbage(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        for seed in 0..30 {
            let size = [1, 2, 7, 100, 5000, 1 << 20][seed % 6];
            let mut bytes = vec![0; size];
            pattern::fill(seed as u64, 0, &mut bytes);
            self.send(port, &bytes)?;
        }
        self.send(port, &vec![0; 100_000])?;
        self.send(port, &vec![0xFF; 100_000])?;
        passed()
    }

    fn log(&self) -> Result<String> {
        let log = self.cluster.nodes().next().map(Node::log);
        let log = log.ok_or_else(|| TestkitError::Talk("no node".into()))?;
        let text = std::fs::read(&log).map_err(TestkitError::file("reading", &log))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Garbage and a wrong version get a line with the sender's address; a flood of them does not
    /// get a flood of lines.
    fn named_in_the_log(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) || port == Port::Http {
            return Ok(Outcome::Skipped("nothing of ours listens there".into()));
        }
        let wrong: &[u8] = if port == Port::Transfer {
            &[0, 27, 81, 0]
        } else {
            b"hrpc\x08\x00\x00"
        };
        let mut garbage = vec![0; 300];
        pattern::fill(7, 0, &mut garbage);
        for bytes in [wrong, &garbage] {
            let mut socket = self.connect(port)?;
            let from = socket
                .local_addr()
                .map_err(|e| TestkitError::Talk(e.to_string()))?;
            let _ = socket.write_all(bytes);
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read(&mut [0; 4096]);
            wait::until(&format!("{from} in the log"), seconds(10), || {
                let log = self.log()?;
                let named = |line: &&str| {
                    line.contains(&from.to_string())
                        && ["WARN", "ERROR"].iter().any(|l| line.contains(l))
                };
                Ok(match log.lines().find(named) {
                    Some(_) => Seen::Done(()),
                    None => Seen::NotYet("no line with this address".into()),
                })
            })?;
        }
        let before = self.log()?.lines().count();
        for _ in 0..300 {
            let mut socket = self.connect(port)?;
            let _ = socket.write_all(wrong);
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read(&mut [0; 4096]);
        }
        let lines = self.log()?.lines().count() - before;
        // The stock node writes a line, or a stack trace, for each.
        expect(Kind::under_test() == Kind::Apache || lines < 60, || {
            format!("{lines} lines for 300 connections")
        })?;
        passed()
    }

    fn wrong_versions(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let body = [0u8; 64];
        let good = self.request(port);
        for head in [
            &[0u8, 27, 81][..],
            &[0, 29, 81],
            &[0xDE, 0xAD, 0xBE, 0xEF],
            b"hrpc\x08\x00\x00",
            b"hrpc\x09\x00\x77",
            b"hrpc\x0a\x00\x00",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            &[0, 28, 0],
            &[0, 28, 79],
            &[0, 28, 127],
            &[0, 28, 82],
            &[0, 28, 255],
        ] {
            self.send(port, &[head, &body].concat())?;
            self.send(port, &[head, &good].concat())?;
        }
        passed()
    }

    /// A good request of the port.
    fn request(&self, port: Port) -> Vec<u8> {
        match port {
            Port::Transfer => self.read_block(0, BLOCK, self.block.id),
            Port::Rpc => rpc_call("getDatanodeInfo"),
            Port::Http => b"GET /jmx HTTP/1.0\r\n\r\n".to_vec(),
        }
    }

    fn lying_lengths(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let huge: [&[u8]; 6] = [
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x07],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
            &[0xFF; 40],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
            &[0x00],
        ];
        let heads: Vec<Vec<u8>> = match port {
            Port::Transfer => (80..=90).map(|op| vec![0, 28, op]).collect(),
            Port::Rpc => {
                let frames = [
                    [0x7F, 0xFF, 0xFF, 0xFF],
                    [0xFF; 4],
                    [0; 4],
                    [0x80, 0, 0, 0],
                    [0, 0, 0, 9],
                    [8, 0, 0, 0],
                ];
                frames
                    .iter()
                    .map(|frame| [b"hrpc\x09\x00\x00".as_slice(), frame].concat())
                    .collect()
            }
            Port::Http => vec![
                b"POST /jmx HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
            ],
        };
        for head in heads {
            for lie in huge {
                self.send(port, &[head.as_slice(), lie, &[0x0A; 3000]].concat())?;
            }
        }
        if port == Port::Http {
            self.send(port, &[b"GET /".as_slice(), &vec![b'a'; 4 << 20]].concat())?;
            self.send(
                port,
                &[
                    b"GET / HTTP/1.1\r\n".as_slice(),
                    &b"X: y\r\n".repeat(500_000),
                ]
                .concat(),
            )?;
        }
        passed()
    }

    fn truncated(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let whole = self.request(port);
        for cut in 0..whole.len() {
            self.send(port, &whole[..cut])?;
        }
        passed()
    }

    /// Hundreds connect and say nothing, or half of something, and stay.
    fn crowd(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let before = procfs::usage(self.pid)?;
        let whole = self.request(port);
        let mut crowd = Vec::new();
        for number in 0..CROWD {
            let Ok(mut socket) = self.connect(port) else {
                break;
            };
            let _ = socket.write_all(&whole[..number % 8.min(whole.len())]);
            crowd.push(socket);
        }
        if port == Port::Http {
            // An HTTP server may make the next one wait; the other ports may not.
            self.fs.check("/good", BLOCK, 1)?;
        } else {
            self.serves_within(seconds(15))?;
        }
        let during = procfs::usage(self.pid)?;
        // The stock node's threads have some descriptors each.
        let each = if Kind::under_test() == Kind::Apache {
            5
        } else {
            1
        };
        let limit = before.descriptors + CROWD * each + 100;
        expect(during.descriptors <= limit, || {
            format!("{before:?} -> {during:?}")
        })?;
        self.memory_bounded(before)?;
        drop(crowd);
        passed()
    }

    fn slow_senders(&self, port: Port) -> Result<Outcome> {
        if !self.listens(port) {
            return Ok(Outcome::Skipped("nothing listens there".into()));
        }
        let whole = self.request(port);
        let mut slow = Vec::new();
        for _ in 0..50 {
            slow.push(self.connect(port)?);
        }
        for byte in whole.iter().take(20) {
            for socket in &mut slow {
                let _ = socket.write_all(&[*byte]);
            }
            // A byte at a time is what a slow sender is.
            std::thread::sleep(Duration::from_millis(50));
        }
        self.fs.check("/good", BLOCK, 1)?;
        passed()
    }

    fn read_block(&self, offset: u64, length: u64, id: i64) -> Vec<u8> {
        let block = self.block_proto(id, self.block.generation);
        let base = field(1, &block);
        let header = [field(1, &base), field(2, b"hostile")].concat();
        operation(
            81,
            &[field(1, &header), number(2, offset), number(3, length)].concat(),
        )
    }

    fn block_proto(&self, id: i64, generation: u64) -> Vec<u8> {
        let id = u64::from_ne_bytes(id.to_ne_bytes());
        [
            field(1, self.block.pool.as_bytes()),
            number(2, id),
            number(3, generation),
            number(4, 0),
        ]
        .concat()
    }

    /// Set-up of a write of a new block by a client, one node in the pipeline.
    fn write_block(&self, id: i64) -> Vec<u8> {
        let base = field(1, &self.block_proto(id, 1_000_000));
        let header = [field(1, &base), field(2, b"hostile")].concat();
        let checksum = [number(1, 2), number(2, 512)].concat();
        let body = [
            field(1, &header),
            number(4, 6), // stage PIPELINE_SETUP_CREATE
            number(5, 1),
            number(6, 0),
            number(7, 0),
            number(8, 0),
            field(9, &checksum),
        ];
        operation(80, &body.concat())
    }

    /// Packets whose lengths do not fit each other, in a write that began well.
    fn lying_packets(&self) -> Result<Outcome> {
        let header = |offset: u64, sequence: u64, last: u8, data: u32| {
            let mut bytes = vec![0x09];
            bytes.extend(offset.to_le_bytes());
            bytes.push(0x11);
            bytes.extend(sequence.to_le_bytes());
            bytes.extend([0x18, last, 0x25]);
            bytes.extend(data.to_le_bytes());
            bytes
        };
        let packet = |plen: u32, hlen: u16, header: &[u8], rest: &[u8]| {
            [
                plen.to_be_bytes().as_slice(),
                &hlen.to_be_bytes(),
                header,
                rest,
            ]
            .concat()
        };
        let plain = header(0, 0, 0, 512);
        let attacks = [
            packet(0xFFFF_FFFF, 25, &plain, &[1; 600]),
            packet(0x7FFF_FFFF, 25, &plain, &[1; 600]),
            packet(0, 25, &plain, &[1; 600]),
            packet(3, 25, &plain, &[1; 600]),
            packet(17 << 20, 25, &plain, &[1; 600]),
            packet(4 + 516, 0, &plain, &[1; 600]),
            packet(4 + 516, 0xFFFF, &plain, &[1; 600]),
            packet(4 + 516, 25, &header(0, 0, 0, 0xFFFF_FFFF), &[1; 600]),
            packet(4 + 516, 25, &header(0, 0, 0, 513), &[1; 600]),
            packet(4 + 516, 25, &header(0, 0, 0, 0), &[1; 600]),
            packet(4 + 516, 25, &header(1 << 60, 0, 0, 512), &[1; 600]),
            packet(4 + 516, 25, &header(u64::MAX, 0, 0, 512), &[1; 600]),
            packet(4 + 516, 25, &header(0, u64::MAX - 5, 0, 512), &[1; 600]),
            packet(4 + 516, 25, &header(77, 0, 1, 0), &[]),
            packet(4 + 516, 25, &plain, &[1; 100]),
            packet(4 + 516, 25, &plain, &[1; 516]), // wrong checksum
            vec![0xFF; 100],
            Vec::new(),
        ];
        for (id, attack) in (7_000_000_000_i64..).zip(attacks) {
            let mut socket = self.connect(Port::Transfer)?;
            let _ = socket.write_all(&self.write_block(id));
            let mut answer = [0; 256];
            let got = socket.read(&mut answer).unwrap_or(0);
            expect(got > 1 && answer[1] == 8 && answer[2] == 0, || {
                format!("the set-up of a write was refused: {:?}", &answer[..got])
            })?;
            let _ = socket.write_all(&attack);
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read(&mut answer);
        }
        let finalized =
            |path: &std::path::PathBuf| path.components().any(|c| c.as_os_str() == "finalized");
        let files = self
            .cluster
            .nodes()
            .next()
            .map(|n| n.all_block_files())
            .unwrap_or_default();
        let bad = files
            .iter()
            .filter(|path| finalized(path))
            .find(|path| path.to_string_lossy().contains("blk_70000000"));
        expect(bad.is_none(), || format!("a lie was finalized: {bad:?}"))?;
        passed()
    }

    fn silent_readers(&self) -> Result<Outcome> {
        let before = procfs::usage(self.pid)?;
        let mut readers = Vec::new();
        for _ in 0..100 {
            let mut socket = self.connect(Port::Transfer)?;
            let _ = socket.write_all(&self.read_block(0, BLOCK, self.block.id));
            readers.push(socket);
        }
        // The node sends what sockets take, and no count says when they take no more.
        std::thread::sleep(seconds(2));
        self.serves_within(seconds(15))?;
        self.memory_bounded(before)?;
        passed()
    }

    fn wild_ranges(&self) -> Result<Outcome> {
        for (offset, length, id) in [
            (0, BLOCK + 1, self.block.id),
            (BLOCK, 1, self.block.id),
            (BLOCK + 1, 1, self.block.id),
            (u64::MAX, 1, self.block.id),
            (1, u64::MAX, self.block.id),
            (1 << 62, 1 << 62, self.block.id),
            (0, 1, self.block.id + 12_345_678),
            (0, 1, -1),
            (0, 1, i64::MIN),
        ] {
            let answer = self.send(Port::Transfer, &self.read_block(offset, length, id))?;
            // A varint of length, then field 1 (status): anything but SUCCESS.
            let prefix = answer.iter().take_while(|byte| **byte >= 0x80).count() + 1;
            let status = answer.get(prefix..prefix + 2);
            let refused = answer.is_empty() || status.is_some_and(|s| s[0] == 8 && s[1] != 0);
            expect(refused, || {
                format!(
                    "range {offset}+{length} of {id}: {:?}",
                    &answer[..answer.len().min(40)]
                )
            })?;
        }
        passed()
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
