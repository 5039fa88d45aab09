//! Clients that are killed, in every stage of a request: the node keeps nothing of theirs.

use super::local_client::{Local, Shared};
use super::{BLOCK, Lab, request_for, with_libhadoop};
use hayloft_testkit::Outcome;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::process_usage::{Usage, mappings};
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::transfer::BlockOpResponse;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

/// Clients that are killed.
const KILLED: u32 = 300;
/// What segments are called among the mappings of a process.
const SEGMENT: &str = "HadoopShortCircuitShm";
/// By this a process of this program is told to be a client, and which.
const CLIENT: &str = "HAYLOFT_TEST_LOCAL_CLIENT";

/// How far a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has both files, and a slot.
    WithFiles,
    /// It has asked for them, and does not say that it has them.
    WithoutReceipt,
    /// It has a segment, and has marked a slot in it.
    WithSegment,
}

const STAGES: [Stage; 3] = [Stage::WithFiles, Stage::WithoutReceipt, Stage::WithSegment];

/// A process that is such a client until it is killed.
struct ClientProcess(Child);

impl ClientProcess {
    /// Starts one, and waits until it is as far as it gets.
    fn start(socket: &Path, stage: Stage, block: &ExtendedBlock) -> Result<Self> {
        let (
            pool,
            Block {
                id,
                generation_stamp,
                ..
            },
        ) = (&block.pool, block.block);
        let which = format!(
            "{stage:?} {pool} {id} {generation_stamp} {}",
            socket.display()
        );
        let program = std::env::current_exe();
        let program = program.map_err(TestkitError::file("finding", "this program"))?;
        let mut command = Command::new(&program);
        let started = command.env(CLIENT, which).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(TestkitError::file("starting", &program))?;
        let says = child.stdout.take();
        let process = Self(child);
        let said = says.map(|mut out| out.read_exact(&mut [0]));
        expect(matches!(said, Some(Ok(()))), || {
            format!("a client {stage:?} ended: {said:?}")
        })?;
        Ok(process)
    }
}

impl Drop for ClientProcess {
    /// Kills it.
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// What this process ends with if it was told to be a client; it is one for as long as it lives.
pub fn as_a_client() -> Option<ExitCode> {
    let which = std::env::var(CLIENT).ok()?;
    let ended = be_a_client(&which);
    eprintln!("a client {which:?}: {ended:?}");
    Some(ExitCode::FAILURE)
}

fn be_a_client(which: &str) -> Result<()> {
    let wrong = || TestkitError::Expectation("it is not known".into());
    let words: Vec<&str> = which.splitn(5, ' ').collect();
    let [stage, pool, id, stamp, socket] = words[..] else {
        return Err(wrong());
    };
    let id = id.parse().map_err(|_| wrong())?;
    let stamp = stamp.parse().map_err(|_| wrong())?;
    let pool = PoolId::new(pool).map_err(|_| wrong())?;
    let block = ExtendedBlock::new(pool, Block::new(id, stamp, 0));
    let stage = STAGES.into_iter().find(|it| format!("{it:?}") == stage);
    let socket = Path::new(socket);
    let (shared, mut client) = (Shared::at(socket)?, Local::connect(socket)?);
    let request = request_for(&block, Some(shared.take(7)?));
    let mut files = Vec::new();
    match stage.ok_or_else(wrong)? {
        Stage::WithFiles => files = client.files(&request)?.1,
        Stage::WithoutReceipt => {
            let _no_receipt: BlockOpResponse = client.ask(&request)?;
        }
        Stage::WithSegment => {}
    }
    let mut out = std::io::stdout();
    let told = out.write_all(b".").and_then(|()| out.flush());
    told.map_err(TestkitError::file("writing", "standard output"))?;
    loop {
        std::thread::park();
        expect_eq("files that are held", files.len() % 2, 0)?;
    }
}

impl Lab {
    pub fn segments(&mut self) -> Result<usize> {
        mappings(self.cluster.node(0).process()?.pid(), SEGMENT)
    }

    /// The node has as many descriptors as before but for connections that are kept for their next
    /// request, no more threads, and as many segments.
    pub fn settled(&mut self, before: Usage, segments: usize) -> Result<()> {
        wait::until("what clients had to be given back", seconds(40), || {
            let (now, mapped) = (self.usage()?, self.segments()?);
            let is_back = now.descriptors <= before.descriptors + 4
                && now.threads <= before.threads + 4
                && mapped <= segments;
            Ok(match is_back {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{before:?} -> {now:?}, {mapped} segments")),
            })
        })
    }

    /// All at once, while each has what it got.
    pub fn killed(&mut self) -> Result<Outcome> {
        self.fs.put("/killed", BLOCK, 8, json!({}))?;
        let (socket, block) = (self.socket(), self.block_of("/killed")?);
        let (before, segments) = (self.usage()?, self.segments()?);
        let start = |stage: &Stage| ClientProcess::start(&socket, *stage, &block);
        let stages = STAGES.iter().cycle().take(KILLED as usize);
        let clients: Vec<ClientProcess> = stages.map(start).collect::<Result<_>>()?;
        let (during, mapped) = (self.usage()?, self.segments()?);
        expect(mapped >= segments + KILLED as usize, || {
            format!("{mapped} segments of {KILLED} clients, {segments} before")
        })?;
        drop(clients);
        self.settled(before, segments)?;
        let after = self.usage()?;
        println!("{KILLED} clients: {during:?}; before {before:?}; after {after:?}");
        self.reads()
    }

    pub fn killed_jvm(&mut self) -> Result<Outcome> {
        let (before, segments) = (self.usage()?, self.segments()?);
        for _ in 0..3 {
            let client = self.cluster.driver_with_flags(with_libhadoop())?;
            let more = json!({"path": "/killed", "seed": 8, "buffer": 64 << 10,
                "pauseMillis": 500});
            let _never_answered = client.begin("read", more)?;
            std::thread::sleep(seconds(3));
            client.kill()?;
        }
        self.settled(before, segments)?;
        passed()
    }
}
