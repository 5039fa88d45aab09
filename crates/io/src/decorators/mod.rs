//! Wrappers around any engine: each is an [`Engine`](crate::Engine) and keeps its contract.
//!
//! - [`Metered`]: counts, bytes and latencies by class and operation.
//! - [`Throttled`]: bytes per second by class, adjustable while running.
//! - [`Faulty`]: errors, delays, short transfers and flipped bits by rule, for tests.

mod faults;
mod metering;
mod throttling;

pub use faults::{Effect, FaultId, FaultRule, Faults, Faulty, When};
pub use metering::{IoMetrics, Latencies, Metered, OpStats};
pub use throttling::{Throttle, Throttled};
