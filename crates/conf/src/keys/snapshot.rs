//! Snapshots that a node takes by itself.

use std::time::Duration;

use super::keys;

keys! {
    SNAPSHOT_TO: Option<String> = ("hayloft.snapshot.to", "",
        "Object store or directory for snapshots: s3://, gs://, azblob:// or file:///. With it the \
         node takes them by itself.");
    SNAPSHOT_INTERVAL: Duration = ("hayloft.snapshot.interval", "15m",
        "Pause between two snapshots of a node.").millis().min(1000);
    SNAPSHOT_RATE: u64 = ("hayloft.snapshot.rate", "0",
        "Most bytes a second that each node reads for snapshots; 0 for what the disks' schedulers \
         leave.").bytes_per_second();
    SNAPSHOT_RESTORE_FROM: Option<String> = ("hayloft.snapshot.restore-from", "",
        "Where a snapshot is that the node puts back while it serves, as above; `#UUID` behind it \
         where several nodes are there. Clear it afterwards.");
    SNAPSHOT_KEEP: u32 = ("hayloft.snapshot.keep", "0",
        "Snapshots that the node keeps. It removes older ones while nothing of it is missing; 0 \
         for never.").max(100_000);
}
