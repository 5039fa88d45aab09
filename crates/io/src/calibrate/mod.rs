//! Calibration: what a volume's device was measured to do, and what to do about it.
//!
//! - [`calibration_file`]: the result beside the data, `.hayloft-calibration.json`, read by the
//!   node;
//! - [`measure()`]: run lengths, queue depth, mixes, around the page cache and every engine;
//! - [`compare`]: the engines side by side;
//! - [`propose_settings`]: from curves to settings, pure functions;
//! - [`DiskSettings`]: what holds for a disk, the operator's word or the calibration.

pub mod calibration_file;
mod compare_engines;
mod disk_settings;
mod measure;
mod measured_file;
pub mod propose_settings;

pub use calibration_file::{
    Calibration, CalibrationError, DepthPoint, EnginePoint, MixPoint, RunPoint,
};
pub use compare_engines::{SPACE as ENGINE_SPACE, compare, device_name};
pub use disk_settings::DiskSettings;
pub use measure::{Curves, MeasureError, MeasurePlan, SPACE_MIN, check_space, measure};
pub use measured_file::Scratch;
pub use propose_settings::{Proposal, propose};
