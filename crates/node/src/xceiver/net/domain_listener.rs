//! A domain socket that clients of this host connect to.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::{UnixListener, UnixStream};

use super::domain_path;

/// Everyone may connect: what they may have is a matter of tokens.
const MODE: u32 = 0o666;

/// A listener whose socket file goes with it.
#[derive(Debug)]
pub struct DomainListener {
    listener: UnixListener,
    path: Arc<Path>,
    /// Device and inode of the file: another one of that name is not removed.
    file: (u64, u64),
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum NoListener {
    /// Another process answers at the path.
    #[error("another node listens there: stop it, or give each its own by _PORT in the path")]
    InUse,
    /// More than one node of this process would.
    #[error("more than one virtual node would have it: put _PORT in the path, for each its own")]
    Shared,
    /// The path will not do; says what to do.
    #[error("{0}")]
    Path(String),
    /// Of the system.
    #[error("{0}; choose another path, or correct what is in its way")]
    Io(#[from] io::Error),
}

impl DomainListener {
    /// Listens at `path`. A socket there that no process listens on any more is replaced.
    ///
    /// # Errors
    /// Others could take the node's place there; it is in use, or no socket; of the system.
    pub fn bind(path: &Path) -> Result<Self, NoListener> {
        domain_path::check(path).map_err(NoListener::Path)?;
        Self::bind_unchecked(path)
    }

    /// As [`bind`](Self::bind), with no look at who may write there.
    pub(in crate::xceiver) fn bind_unchecked(path: &Path) -> Result<Self, NoListener> {
        clear(path)?;
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Err(NoListener::InUse),
            other => other?,
        };
        let found = fs::symlink_metadata(path)?;
        let this = Self {
            listener,
            path: path.into(),
            file: (found.dev(), found.ino()),
        };
        fs::set_permissions(path, PermissionsExt::from_mode(MODE))?;
        Ok(this)
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The next connection.
    ///
    /// # Errors
    /// As of any listener.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for DomainListener {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            // What stays is replaced by the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes what an earlier process left.
fn clear(path: &Path) -> Result<(), NoListener> {
    let found = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !found.file_type().is_socket() {
        let text = format!("{} is no socket: move it away", path.display());
        return Err(NoListener::Path(text));
    }
    if is_answered(path)? {
        return Err(NoListener::InUse);
    }
    Ok(fs::remove_file(path)?)
}

/// Whether a process listens on a socket. Asks without waiting.
fn is_answered(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        // So many wait for it that there is no room for one more.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// The path with the port of the node for `_PORT`.
#[must_use]
pub fn path_of(path: &str, port: u16) -> PathBuf {
    path.replace("_PORT", &port.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_there_while_it_is_served_and_replaces_a_stale_one() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("dn.sock");
        // A process that was killed leaves its file.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
        assert!(path.exists());
        let listener = DomainListener::bind_unchecked(&path).expect("replaces it");
        let mode = fs::metadata(&path).expect("there").mode() & 0o777;
        assert_eq!(mode, 0o666);
        let second = DomainListener::bind_unchecked(&path).expect_err("in use");
        assert!(matches!(second, NoListener::InUse) && second.to_string().contains("_PORT"));
        let (client, served) = tokio::join!(UnixStream::connect(&path), async {
            let probe = listener.accept().await;
            drop(probe); // What asked whether this listens.
            listener.accept().await
        });
        assert!(client.is_ok() && served.is_ok());
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_of_its_own_stays() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("dn.sock");
        fs::write(&path, "data").expect("writes");
        let refused = DomainListener::bind_unchecked(&path).expect_err("no socket");
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read(&path).expect("there"), b"data");
        fs::remove_file(&path).expect("removes");

        let listener = DomainListener::bind_unchecked(&path).expect("binds");
        fs::remove_file(&path).expect("removes");
        let next = DomainListener::bind_unchecked(&path).expect("another one's");
        drop(listener);
        assert!(path.exists(), "the other node's");
        drop(next);
    }

    #[tokio::test]
    async fn a_directory_of_everyone_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("sets");
        let refused = DomainListener::bind(&dir.path().join("dn.sock")).expect_err("unsafe");
        assert!(matches!(refused, NoListener::Path(_)), "{refused}");
        assert!(refused.to_string().contains("everyone"), "{refused}");
    }

    #[test]
    fn each_node_has_its_path() {
        let path = path_of("/run/hdfs/dn._PORT", 9866);
        assert_eq!(path, Path::new("/run/hdfs/dn.9866"));
    }
}
