//! Programs that rest on hflush and hsync, on three nodes that protect nothing. [`patterns`]: what
//! Flink and Accumulo do with files. [`hbase`]: HBase with each of its two kinds of log. [`times`]:
//! its rolls and recoveries, beside stock nodes. [`hedged`]: reads that pass a slow node.
//!
//! With `HAYLOFT_LAB_PEER=apache` it prints the times of stock nodes. These may lose the last chunk
//! when all are killed.

mod hbase;
#[path = "../securejobs/hbase_server.rs"]
mod hbase_server;
mod hedged;
mod patterns;
mod times;

fn main() -> std::process::ExitCode {
    hayloft_testkit::Suite::run("logs", |suite| {
        patterns::cases(suite);
        hedged::cases(suite);
        hbase::cases(suite);
        times::cases(suite);
        Ok(())
    })
}
