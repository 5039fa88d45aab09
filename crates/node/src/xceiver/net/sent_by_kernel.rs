//! Bytes that the kernel takes from elsewhere to a connection's socket.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::conn::Conn;

impl Conn {
    /// Whether bytes may go to the socket from elsewhere; not where they are protected.
    #[must_use]
    pub fn takes_files(&self) -> bool {
        self.stream.is_plain()
    }

    /// Another descriptor of the socket, for a thread that sends to it without waiting. It keeps
    /// the connection open; nothing else may be sent while it is used.
    ///
    /// # Errors
    /// Out of descriptors; or the connection does not [take files](Self::takes_files).
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        if !self.takes_files() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.stream.as_fd().try_clone_to_owned()
    }

    /// Waits until the socket has room, after a write through [`duplicate`](Self::duplicate) that
    /// found none.
    ///
    /// # Errors
    /// The peer took nothing for longer than the limit.
    pub async fn wait_for_room(&self) -> io::Result<()> {
        // The runtime knows of no refusal: asking the kernel again has it wait for the next event.
        let room = self.stream.try_write_io(|| {
            let mut fds = [PollFd::new(&self.stream, PollFlags::OUT)];
            match poll(&mut fds, Some(&Timespec::default()))? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        match room {
            Ok(()) => Ok(()),
            Err(error) => self.after_refused_write(error).await,
        }
    }
}
