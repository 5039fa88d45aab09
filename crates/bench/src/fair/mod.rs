//! What makes a comparison fair, in one place for the benchmark and for every experiment: the stock
//! node at its best, medians, what limited a row, and where raw data comes from.

pub mod counters;
pub mod limit;
pub mod origin;
pub mod signs;
pub mod spread;
pub mod stock;
pub mod table;
