//! What a monitoring agent and an open page ask of a node while it works.

use hayloft_testkit::http;
use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// An agent asks so often.
const EVERY: Duration = Duration::from_secs(1);
/// The page's script asks at every second turn of the agent.
const PAGE_TURNS: u32 = 2;

/// Asks until it is dropped.
#[derive(Debug)]
pub(super) struct Scraper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scraper {
    /// Asks the web ports of `nodes` for `/prom` and `/jmx` each second, and for `/live` as the
    /// page does.
    pub(super) fn start(nodes: Vec<SocketAddr>) -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            for turn in 0_u32.. {
                for node in &nodes {
                    ask(*node, turn);
                }
                if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

/// A node that does not answer is seen by the row that is measured.
fn ask(node: SocketAddr, turn: u32) {
    for path in ["/prom", "/jmx"] {
        let _ = http::get(node, path);
    }
    if turn.is_multiple_of(PAGE_TURNS) {
        let _ = http::get(node, "/live");
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
