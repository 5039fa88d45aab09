//! Clients whose thread waits for a disk hear from elsewhere that their replica is lost to them.

use std::io;
use std::time::Duration;

use hayloft_io::MayWait;
use rustix::net::{Shutdown, shutdown};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::xceiver::context::Xceivers;
use crate::xceiver::net::conn::Conn;

/// How long the thread itself may take to tell the client more than that.
const ITSELF: Duration = Duration::from_secs(1);

/// Ends the client's connection when `cancel` is: the volume has failed, or another writer has
/// the replica. Until what is given back is dropped; nothing where this thread waits for no disk.
///
/// # Errors
/// Out of descriptors.
pub fn cut_off_when(
    x: &Xceivers,
    conn: &Conn,
    cancel: &CancellationToken,
) -> io::Result<Option<DropGuard>> {
    if !MayWait::is_set() {
        return Ok(None);
    }
    let socket = conn.socket()?;
    let (over, cancel) = (CancellationToken::new(), cancel.clone());
    let guard = over.clone().drop_guard();
    x.store().run_aside(async move {
        let hangs = async {
            cancel.cancelled().await;
            tokio::time::sleep(ITSELF).await;
        };
        tokio::select! {
            () = over.cancelled() => {}
            () = hangs => {
                let _gone_already = shutdown(&socket, Shutdown::Both);
            }
        }
    });
    Ok(Some(guard))
}
