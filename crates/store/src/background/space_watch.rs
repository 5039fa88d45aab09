//! Reading the space of volumes, and noticing disks that hang or die while nothing asks for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::IoClass;
use hayloft_io::locks;

use crate::state::StoreState;
use crate::transitions::{check_volume, volume_failure};
use crate::volume::Volume;

/// Reads the space of a volume's file system every now and then, so that reports need no disk. So
/// it also notices a disk that hangs while it is idle. Checks the volume once in a period.
pub async fn watch_space(store: Arc<StoreState>, volume: Arc<Volume>) {
    let interval = store.config.space_interval.max(Duration::from_millis(100));
    let limit = store.config.check_timeout;
    let mut checked = Instant::now();
    let watch = async {
        loop {
            tokio::time::sleep(interval).await;
            let period = store.config.check_period;
            if !period.is_zero() && checked.elapsed() + interval > period {
                checked = Instant::now();
                check_idle(&store, &volume);
            }
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
                Ok(Err(error)) if error.kind().suspects_volume() => {
                    check_volume::suspect(&store, &volume, &error);
                }
                // The check tells what it is: a directory that is gone, for example.
                Ok(Err(_)) => check_volume::check_soon(&store, &volume),
                Err(_) => {
                    let reason = format!("no answer for {} s", limit.as_secs());
                    return reason;
                }
            }
        }
    };
    let reason = tokio::select! {
        () = store.stop.cancelled() => return,
        () = volume.gone.cancelled() => return,
        reason = watch => reason,
    };
    volume_failure::fail(&store, &volume, &reason).await;
}

/// Checks the volume beside the watch, unless a check runs: one takes as long as its disk does. A
/// volume without pools may be a new one, which has nothing yet.
fn check_idle(store: &Arc<StoreState>, volume: &Arc<Volume>) {
    let has_pools = !locks::read(&volume.slices).is_empty();
    if has_pools && volume.checked.try_lock().is_ok() {
        check_volume::check_soon(store, volume);
    }
}
