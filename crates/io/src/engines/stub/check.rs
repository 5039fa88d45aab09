//! Whether the stubs of a volume and its device fit together.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::free_units::UNIT;
use super::headers::{self, HEADER};
use super::inventory::{Inventory, Unread};
use super::whose_device;
use crate::blocking_engine::Blocking;
use crate::error::IoError;

/// Stubs that share a place, named at most.
const CONTESTED_MAX: usize = 1000;

/// What a check of a volume on a device found. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceCheck {
    /// Identity of the device, 32 hexadecimal digits, as `hayloft.device` of the directory has it.
    pub device: String,
    /// Size of the device.
    pub size: u64,
    /// What room is given out in.
    pub unit: u64,
    /// Stubs, each once, whatever its names.
    pub stubs: u64,
    /// What their lengths come to.
    pub bytes: u64,
    /// Extents that they name.
    pub extents: u64,
    /// Room that they name.
    pub used: u64,
    /// Room that no stub names.
    pub free: u64,
    /// Stretches of free room that lie apart.
    pub free_runs: u64,
    /// The longest of them.
    pub longest_free_run: u64,
    /// Mean length of an extent; 0 without any.
    pub mean_extent: u64,
    /// What is wrong with the device, as sentences.
    pub device_findings: Vec<String>,
    /// Stubs without a place that can be trusted, and why; the first thousand.
    pub unusable: Vec<(PathBuf, String)>,
    /// How many there are.
    pub unusable_count: u64,
    /// Files and directories that cannot be read, and why; the first thousand. What they name
    /// counts as free here, and a start refuses the volume.
    pub unread: Vec<(PathBuf, String)>,
    /// How many there are.
    pub unread_count: u64,
    /// Stubs that name a place which another names too; the first thousand names.
    pub overlapping: Vec<PathBuf>,
    /// How many there are.
    pub overlapping_count: u64,
}

impl DeviceCheck {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let stubs = self.unusable_count + self.unread_count + self.overlapping_count;
        self.device_findings.is_empty() && stubs == 0
    }
}

/// Compares all stubs below `root` with `device`. Changes nothing. No node may use them meanwhile.
///
/// # Errors
/// When the directory has no device; those of the device.
pub(in crate::engines) fn check<D: Blocking>(
    device: &D,
    root: &Path,
) -> Result<DeviceCheck, IoError> {
    let (id, size, device_findings) = whose_device::look_at(device, root)?;
    let units = size / UNIT;
    let inventory = Inventory::of(root, &id, units, Unread::IsNoted)?;
    let overlapping = inventory.contested_paths(root, CONTESTED_MAX);
    let (room, tally) = (inventory.room, inventory.tally);
    let free = room.free_units() * UNIT;
    let used = (units * UNIT).saturating_sub(HEADER + free);
    let (free_runs, longest) = room.runs();
    Ok(DeviceCheck {
        device: headers::hex(&id),
        size,
        unit: UNIT,
        stubs: tally.stubs,
        bytes: tally.bytes,
        extents: tally.extents,
        used,
        free,
        free_runs,
        longest_free_run: longest * UNIT,
        mean_extent: used.checked_div(tally.extents).unwrap_or(0),
        device_findings,
        unusable: tally.unusable,
        unusable_count: tally.unusable_count,
        unread: tally.unread,
        unread_count: tally.unread_count,
        overlapping,
        overlapping_count: inventory.contested.len() as u64,
    })
}
