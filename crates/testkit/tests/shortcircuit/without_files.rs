//! Replicas without a plain, whole file of their own: on a device, and those that parity mends. A
//! client is told so for this read alone. It takes TCP for it, and asks again for the next.

#[path = "../../../io/tests/plugin/compile.rs"]
mod compile;

use super::local_client::Local;
use super::{BLOCK, Lab, request_for};
use hayloft_testkit::error::Result;
use hayloft_testkit::files::flip_byte;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{NodeSpec, Outcome, Suite, TestkitError, VolumeSpec, parity};
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::transfer::Status;
use serde_json::json;
use std::fs::File;
use std::path::PathBuf;

/// Bytes of the device.
const DEVICE: u64 = 256 << 20;
/// Room that a volume must have beyond a block, or others are taken first.
const ROOM_AHEAD: &str =
    "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space";

pub fn cases(suite: &mut Suite) {
    let end = |on: WithoutFiles, failed: bool| on.lab.end(failed);
    let mut on = suite.group(device_beside_files, end);
    on.case("blocks_of_a_device_come_over_tcp", |on| on.of_a_device());
    let mut on = suite.group(with_parity, end);
    on.case("what_parity_mends_comes_over_tcp", |on| on.mended());
}

struct WithoutFiles {
    lab: Lab,
    /// The directory of the stubs, where there is a device.
    stubs: PathBuf,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

/// A volume whose engine, a plug-in, keeps blocks on a device, beside one of files.
fn device_beside_files() -> Result<WithoutFiles> {
    let base = scratch("sc-device-")?;
    let [plugin, device, stubs] = ["raw.so", "device", "stubs"].map(|it| base.path().join(it));
    compile::plugin("../../plugins/raw.c", &plugin, &[]);
    let made = File::create(&device).and_then(|file| file.set_len(DEVICE));
    made.map_err(TestkitError::file("creating", &device))?;
    let plain = base.path().join("plain");
    let node = NodeSpec::new(Kind::Hayloft)
        .volumes(vec![VolumeSpec::at(&stubs), VolumeSpec::at(plain)])
        .conf(ROOM_AHEAD, 0)
        .conf(
            &format!("hayloft.io.engine.{}", stubs.display()),
            format!("plugin:{} {}", plugin.display(), device.display()),
        );
    Ok(WithoutFiles {
        lab: Lab::with(node)?,
        stubs,
        _base: base,
    })
}

/// Three directories that count as disks.
fn with_parity() -> Result<WithoutFiles> {
    let base = scratch("sc-parity-")?;
    let volumes = ["a", "b", "c"].map(|name| VolumeSpec::at(base.path().join(name)));
    let node = NodeSpec::new(Kind::Hayloft)
        .volumes(volumes.into())
        .conf("hayloft.parity", "2+1")
        .conf("hayloft.parity.disks", "directories")
        .conf("hayloft.parity.patience", "5s");
    Ok(WithoutFiles {
        lab: Lab::with(node)?,
        stubs: PathBuf::new(),
        _base: base,
    })
}

impl WithoutFiles {
    /// Whether the node passes the files of a block. If not, it must say so for this read alone.
    fn passes(&mut self, block: &ExtendedBlock) -> Result<bool> {
        let mut client = Local::connect(&self.lab.socket())?;
        let (answer, files) = client.files(&request_for(block, None))?;
        if answer.outcome() == Status::Success {
            expect_eq("descriptors", files.len(), 2)?;
            return Ok(true);
        }
        let said = (answer.outcome(), answer.short_circuit_access_version);
        let wanted = (Status::ErrorUnsupported, Some(1));
        expect_eq(answer.message(), said, wanted)?;
        Ok(false)
    }

    /// Clients read the other volume's blocks by themselves, also after they were told of these.
    fn of_a_device(&mut self) -> Result<Outcome> {
        let bytes = 8 * BLOCK + 12_345;
        self.lab.fs.put("/both", bytes, 1, json!({}))?;
        let (mut plain, mut left) = (0, bytes);
        for block in self.lab.blocks_of("/both")? {
            let files = self.lab.cluster.node(0).block_files(block.block.id);
            let has_stub = files.iter().any(|file| file.starts_with(&self.stubs));
            expect_eq("passed", self.passes(&block)?, !has_stub)?;
            let here = left.min(BLOCK);
            left -= here;
            plain += if has_stub { 0 } else { here };
        }
        expect(plain > 0 && plain < bytes, || {
            format!("{plain} of {bytes} bytes are in files: one volume has all")
        })?;
        for more in [json!({}), json!({}), json!({"pread": true})] {
            let alone = self.lab.read("/both", bytes, 1, more)?;
            expect_eq("bytes read by short circuit", alone, plain)?;
        }
        passed()
    }

    /// Another process would get the damage, and report it.
    fn mended(&mut self) -> Result<Outcome> {
        let bytes = 6 * BLOCK;
        self.lab.fs.put("/protected", bytes, 2, json!({}))?;
        wait::until("all to be protected", seconds(120), || {
            let (_, now) = parity::said(self.lab.cluster.node(0), &["status"])?;
            Ok(match now["protected_bytes"].as_u64() == Some(bytes) {
                true => Seen::Done(()),
                false => Seen::NotYet(now.to_string()),
            })
        })?;
        let block = self.lab.block_of("/protected")?;
        let mut files = self.lab.cluster.node(0).block_files(block.block.id);
        files.retain(|file| file.extension().is_none());
        let read = || std::fs::read(&files[0]).map_err(TestkitError::file("reading", &files[0]));
        let whole = read()?;
        flip_byte(&files[0], 4321)?;
        expect_eq("passed", self.passes(&block)?, false)?;
        let alone = self.lab.read("/protected", bytes, 2, json!({}))?;
        expect_eq("bytes read by short circuit", alone, 0)?;
        wait::until("the damage to be mended", seconds(60), || {
            Ok(match read()? == whole {
                true => Seen::Done(()),
                false => Seen::NotYet("the file is still damaged".into()),
            })
        })?;
        passed()
    }
}
