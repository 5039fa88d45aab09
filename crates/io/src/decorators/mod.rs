//! Wrappers around any engine: each is an [`Engine`](crate::Engine) and keeps its contract.
//!
//! - [`Metered`]: counts, bytes and latencies by class and operation.
//! - [`Faulty`]: errors, delays, short transfers and flipped bits by rule, for tests.

mod fault_rules;
mod faults;
mod metering;
mod metrics;
mod sampling;

pub use fault_rules::{Effect, FaultId, FaultRule, FaultWhen, Faults};
pub use faults::Faulty;
pub use metering::Metered;
pub use metrics::{IoMetrics, OpStats};
pub use sampling::Sampling;
