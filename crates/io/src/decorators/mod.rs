//! Wrappers around any engine: each is an [`Engine`](crate::Engine) and keeps its contract.
//!
//! - [`Metered`]: counts, bytes and latencies by class and operation.
//! - [`Faulty`]: errors, delays, short transfers and flipped bits by rule, for tests.

mod counts;
mod fault_rules;
mod faulty_engine;
mod metering;
mod sampling;

pub use counts::{IoMetrics, OpStats};
pub use fault_rules::{Effect, FaultId, FaultRule, FaultWhen, Faults};
pub use faulty_engine::Faulty;
pub use metering::Metered;
pub use sampling::Sampling;
