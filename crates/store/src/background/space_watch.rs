//! Reading the space of volumes, and noticing disks that hang.

use std::sync::Arc;
use std::time::Duration;

use hayloft_io::IoClass;

use crate::state::StoreState;
use crate::volume::Volume;

/// Reads the space of a volume's file system every now and then, so that reports need no disk. So
/// it also notices a disk that hangs while it is idle.
pub async fn watch_space(inner: Arc<StoreState>, volume: Arc<Volume>) {
    let interval = inner.config.space_interval.max(Duration::from_millis(100));
    let limit = inner.config.check_timeout;
    let watch = async {
        loop {
            tokio::time::sleep(interval).await;
            // Reading the space may be served from memory while every transfer hangs.
            let disk = volume.engine.disk();
            let transfer = disk.longest_transfer().map(|time| (time, "transfer"));
            let longest = transfer
                .into_iter()
                .chain(disk.longest_other(&volume.root))
                .max();
            if let Some((hangs, what)) = longest.filter(|(time, _)| *time >= limit) {
                let (name, s) = (disk.name(), hangs.as_secs());
                return format!("one operation of disk {name} has not ended for {s} s: {what}");
            }
            let meta = volume.meta(IoClass::ClientRead);
            match tokio::time::timeout(limit, meta.space(&volume.root)).await {
                Ok(Ok(space)) => volume.set_space(space),
                // Nothing is known of the volume: it is asked again.
                Ok(Err(error)) if error.lacks().is_some() => {}
                Ok(Err(error)) => {
                    crate::lifecycle::volume_failure::suspect(&inner, &volume, &error.to_string());
                }
                Err(_) => {
                    let reason = format!("no answer for {} s", limit.as_secs());
                    return reason;
                }
            }
        }
    };
    let reason = tokio::select! {
        () = inner.stop.cancelled() => return,
        () = volume.gone.cancelled() => return,
        reason = watch => reason,
    };
    crate::lifecycle::volume_failure::fail(&inner, &volume, &reason).await;
}
