//! A node without a NameNode, on a disk that gives no answer any more: what waits for the disk
//! holds up no other file.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{lab_binary, scratch};
use hayloft_testkit::load::{
    Check, Data, LatencyTally, LoadPlace, LoadSettings, Reader, run_write,
};
use hayloft_testkit::modelled::{self, HostedDisk, HostedFileSystem, ModelledDisk, Params};
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, Suite, TestkitError};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// As `hayloft-load` has it.
const POOL: &str = "BP-1-127.0.0.1-1";
const GENERATION: u64 = 1001;
/// Of the block that stays in the page cache.
const WARM: i64 = 1;
const WARM_BYTES: u64 = 64 << 10;
/// Connections that ask all the time: some on each of the node's threads.
const ASKING: usize = 16;
/// Answers from memory come in milliseconds; this machine may be busy.
const SOON: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    Suite::run("hung", |suite| {
        for (engine, file_system) in [
            ("posix", HostedFileSystem::Ext4),
            ("direct", HostedFileSystem::Ext4),
            ("direct", HostedFileSystem::Xfs),
        ] {
            let on = file_system.name();
            let name = format!("nobody_else_waits_for_a_hung_disk_with_{engine}_on_{on}");
            suite.case(name, move || match modelled::missing(file_system) {
                Some(missing) => Ok(Outcome::Skipped(missing.to_string())),
                None => others_go_on(engine, file_system),
            });
        }
        Ok(())
    })
}

/// A process that is killed with its owner.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both can only fail when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load(arguments: &[&str]) -> Result<Killed> {
    let program = env!("CARGO_BIN_EXE_hayloft-load");
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child
        .map(Killed)
        .map_err(TestkitError::file("running", program))
}

/// A node.
fn serve(engine: &str, dir: &Path, port: &Path) -> Result<Killed> {
    let text = |path: &Path| path.display().to_string();
    let (dir, port) = (text(dir), text(port));
    let named = ["--engine", engine, "--dir", &dir, "--port-file", &port];
    load(&[&["serve"], &named[..]].concat())
}

fn disk(base: &Path, file_system: HostedFileSystem) -> Result<ModelledDisk> {
    let fast = 400_000_000;
    let disk = HostedDisk {
        size: 4 << 30,
        file_system,
        params: Params {
            read_bytes_s: fast,
            write_bytes_s: fast,
            buffer_bytes: 0,
            ..Params::default()
        },
        dir: base.join("disk"),
        backing: None,
    };
    ModelledDisk::mount(&lab_binary()?, &disk, &base.join("disk.log"))
}

fn warm_block(node: SocketAddr) -> LoadPlace {
    let id = DatanodeId {
        ip_addr: node.ip().to_string(),
        host_name: node.ip().to_string(),
        datanode_uuid: "hung".to_owned(),
        xfer_port: node.port().into(),
        ..DatanodeId::default()
    };
    let pool = PoolId::new(POOL).expect("a pool's name");
    LoadPlace {
        block: ExtendedBlock::new(pool, Block::new(WARM, GENERATION, 0)),
        len: WARM_BYTES,
        nodes: vec![DatanodeInfo {
            id,
            ..DatanodeInfo::default()
        }],
        storage_ids: Vec::new(),
        client: "hung".to_owned(),
    }
}

/// Writers and readers wait for the disk, and their clients die. Clients that want nothing of it
/// are answered all the time.
fn others_go_on(engine: &str, file_system: HostedFileSystem) -> Result<Outcome> {
    let base = scratch("hung-")?;
    let disk = disk(base.path(), file_system)?;
    let port = base.path().join("port");
    let node = serve(engine, &disk.dir().join("data"), &port)?;
    let address = wait::until("the node", seconds(30), || {
        let said = std::fs::read_to_string(&port).unwrap_or_default();
        Ok(match said.trim().parse::<SocketAddr>() {
            Ok(address) => Seen::Done(address),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })?;
    let data = Data::new();
    let warm = warm_block(address);
    run_write(&LoadSettings::default(), &data, &[vec![warm.clone()]])?;
    let mut asking: Vec<Reader<'_>> = (0..ASKING)
        .map(|_| Reader::new(&data, Check::Bytes, 256 << 10))
        .collect();
    ask_all(&mut asking, &warm)?;

    let address = address.to_string();
    let streams = |what: &str, first: &str, more: &[&str]| {
        let same = [what, "--addr", &address, "--streams", "4", "--mib", "2048"];
        load(&[&same[..], &["--block-mib", "64", "--first-id", first], more].concat())
    };
    let mut written = streams("write", "1000", &[])?;
    // Of the 20 s that this takes: all of its streams are at work then.
    std::thread::sleep(seconds(3));
    let hung = disk.hang()?;
    // Readers of what is in no cache, and writers of which some want everything on the device.
    let clients = [
        streams("write", "3000", &[])?,
        streams("write", "5000", &["--hsync-every", "4"])?,
        streams("read", "1000", &["--check", "nothing"])?,
    ];
    let slowest = ask_for(&mut asking, &warm, seconds(3))?;
    // The clients die: all of what they had is given up by the threads that served them.
    drop(clients);
    let _ = written.0.kill();
    let slowest = slowest.max(ask_for(&mut asking, &warm, seconds(4))?);
    drop(hung);
    expect(slowest < SOON, || {
        format!("an answer took {} ms", slowest.as_millis())
    })?;
    ask_all(&mut asking, &warm)?;
    drop((written, asking, node));
    passed()
}

fn ask_all(asking: &mut [Reader<'_>], warm: &LoadPlace) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for reader in asking {
        let began = Instant::now();
        reader.read(warm, 0, 0, WARM_BYTES, &mut LatencyTally::default())?;
        slowest = slowest.max(began.elapsed());
    }
    Ok(slowest)
}

/// The time that the slowest answer took.
fn ask_for(asking: &mut [Reader<'_>], warm: &LoadPlace, time: Duration) -> Result<Duration> {
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < time {
        slowest = slowest.max(ask_all(asking, warm)?);
        // A rate that leaves the processors to the node.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(slowest)
}
