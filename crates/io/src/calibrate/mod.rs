//! Calibration: what a volume's device was measured to do, and what to do about it.
//!
//! - [`mod@file`]: the result beside the data, `.hayloft-calibration.json`, read by the node;
//! - [`measure()`]: run lengths, queue depth, mixes, around the page cache and every engine;
//! - [`compare`]: the engines side by side;
//! - [`choose`]: from curves to settings, pure functions;
//! - [`DiskSettings`]: what holds for a disk, the operator's word or the calibration.

pub mod choose;
mod engines;
pub mod file;
mod measure;
mod settings;
mod target;

pub use choose::{Proposal, propose};
pub use engines::{SPACE as ENGINE_SPACE, compare, device_name};
pub use file::{Calibration, CalibrationError, DepthPoint, EnginePoint, MixPoint, RunPoint};
pub use measure::{Curves, MeasureError, MeasurePlan, SPACE_MIN, check_space, measure};
pub use settings::DiskSettings;
pub use target::Scratch;
