//! Calibration: what a volume's device was measured to do, and what to do about it.
//!
//! - [`file`]: the result beside the data, `.hayloft-calibration.json`, read by the node.

pub mod file;

pub use file::{Calibration, CalibrationError, DepthPoint, EnginePoint, Media, MixPoint, RunPoint};
