//! A replica that may be damaged.

use std::ops::Range;

use hayloft_wire::ids::PoolId;

/// A replica to look at soon.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// Its pool.
    pub pool: PoolId,
    /// Its block id.
    pub id: i64,
    /// Why.
    pub why: Why,
}

/// Why it is suspect.
#[derive(Clone, Debug)]
pub enum Why {
    /// Its data may differ from its checksums.
    Damage,
    /// The disk did not give its files, or this range of its data.
    Unreadable(Option<Range<u64>>),
}
