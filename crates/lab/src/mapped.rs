//! A disk of one host mapped to another over the network, block by block: what the thesis did with
//! ATA over Ethernet and clouds do with iSCSI, here with nbdkit on the disk's host and nbdfuse on
//! the node's, in user space because not every kernel has a network block device.
//!
//! nbdkit serves the modelled disk itself, without a cache of its own, so a block that was written
//! is on the platter. On the node's host nbdfuse's file carries a loop device with ext4.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::mounts::{loop_device, run};
use hayloft_testkit::process::{Process, Spawn};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::where_processes_run::Place;

/// First port of nbdkit; the registered one of the protocol.
pub(super) const FIRST_PORT: u16 = 10809;
/// How long each step may take.
const LIMIT: Duration = Duration::from_secs(60);

/// From where to where a disk is mapped.
#[derive(Clone, Debug)]
pub struct Route {
    /// The host with the disk.
    pub server: Place,
    /// The host with the node.
    pub client: Place,
    /// Port of nbdkit at the disk's host.
    pub port: u16,
}

/// Maps the disk that is described in `log` to `dir`, with a fresh ext4: the programs that carry
/// it, and where the disk tells what it did.
///
/// # Errors
/// When a program is missing or does not come up, with the end of its log.
pub(super) fn mount(
    carrier: &mut Process,
    log: &Path,
    dir: &Path,
    route: &Route,
) -> Result<(Vec<Process>, PathBuf)> {
    let stats = carried(carrier, log)?.stats;
    let disk = stats.with_file_name("disk");
    let server = serve(&disk, dir, route)?;
    let (client, file) = attach(dir, route)?;
    let device = loop_device(&file)?;
    let made = run(Command::new("mkfs.ext4")
        .args([
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
        ])
        .arg(&device))
    .and_then(|_| {
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", "noatime"])
            .args([&device, dir]))
    });
    // While it is mounted this means: when no process uses it any more.
    let detached = run(Command::new("losetup").arg("--detach").arg(&device));
    made.and(detached)?;
    Ok((vec![server, client], stats))
}

/// What the disk's carrier says of where it is, as far as it is needed here.
#[derive(Deserialize)]
struct Carried {
    stats: PathBuf,
}

/// Waits for it.
fn carried(carrier: &mut Process, log: &Path) -> Result<Carried> {
    wait::until("a modelled disk", LIMIT, || {
        carrier.check_alive()?;
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let said = text
            .lines()
            .find_map(|line| serde_json::from_str(line).ok());
        Ok(said.map_or_else(|| Seen::NotYet("nothing said".into()), Seen::Done))
    })
}

fn serve(disk: &Path, dir: &Path, route: &Route) -> Result<Process> {
    let (address, port) = (route.server.address().to_string(), route.port.to_string());
    let mut argv: Vec<String> = ["nbdkit", "--foreground", "--ipaddr", &address]
        .map(String::from)
        .to_vec();
    argv.extend(["--port", &port, "file"].map(String::from));
    argv.push(format!("file={}", disk.display()));
    let mut process = start("nbdkit", &route.server, argv, dir)?;
    let alive = || process.check_alive();
    route.server.wait_open(route.port, LIMIT, alive)?;
    Ok(process)
}

fn attach(dir: &Path, route: &Route) -> Result<(Process, PathBuf)> {
    let point = dir.with_extension("nbd");
    std::fs::create_dir_all(&point).map_err(TestkitError::file("creating", &point))?;
    let file = point.join("disk");
    let argv = vec![
        "nbdfuse".into(),
        file.display().to_string(),
        format!("nbd://{}", route.server.at(route.port)),
    ];
    let mut process = start("nbdfuse", &route.client, argv, dir)?;
    wait::until("nbdfuse", LIMIT, || {
        process.check_alive()?;
        let size = std::fs::metadata(&file).map_or(0, |m| m.len());
        Ok(if size > 0 {
            Seen::Done(())
        } else {
            Seen::NotYet("no file yet".into())
        })
    })?;
    Ok((process, file))
}

fn start(name: &str, place: &Place, argv: Vec<String>, dir: &Path) -> Result<Process> {
    let log = dir.with_extension(format!("{name}.log"));
    place.put(Spawn::new(name, argv, log)).start()
}
