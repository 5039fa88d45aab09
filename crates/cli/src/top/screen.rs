//! The terminal: samples come in, keys are obeyed, and it is left as it was.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::ask_nodes::{ClusterView, Sampler};
use super::draw::TopScreen;
use crate::error::{CliError, INTERRUPTED};

/// How long a key, a sample or a signal waits at most.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Rows of disks that a page key moves.
const PAGE: usize = 5;

/// Gives the terminal back, however the screen ends; a panic does it before its message.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows samples until the user leaves.
pub fn run(sampler: Sampler, interval: Duration, color: bool) -> Result<ExitCode, CliError> {
    let started = |error: std::io::Error| CliError::new(format!("cannot start: {error}"), "", "");
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(started)?;
    crate::calibrate::watch_signals(&runtime, &stop)?;
    let samples = samples(sampler, interval).map_err(started)?;
    let mut screen = TopScreen::new(interval, color);
    let shown = {
        let mut terminal = ratatui::try_init().map_err(unusable)?;
        let _restore = Restore;
        show(&mut terminal, &mut screen, &samples, &stop)
    };
    shown?;
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::needless_pass_by_value, reason = "an adapter for map_err")]
fn unusable(error: std::io::Error) -> CliError {
    let advice = "use --once or --json where there is no terminal";
    CliError::new(format!("cannot use the terminal: {error}"), "", advice)
}

/// Samples as they are taken, from a thread of their own: nodes that do not answer never hold up
/// the keys. The thread ends with its receiver, or with the process.
fn samples(mut sampler: Sampler, interval: Duration) -> std::io::Result<Receiver<ClusterView>> {
    // One waits to be seen; more would only be old.
    let (sender, receiver) = sync_channel(1);
    let take = move || {
        loop {
            let began = Instant::now();
            if sender.send(sampler.sample()).is_err() {
                return;
            }
            std::thread::sleep(interval.saturating_sub(began.elapsed()));
        }
    };
    std::thread::Builder::new()
        .name("top-samples".into())
        .spawn(take)?;
    Ok(receiver)
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &mut TopScreen,
    samples: &Receiver<ClusterView>,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let mut stale = true;
    while !stop.load(Ordering::Relaxed) {
        match samples.try_recv() {
            Ok(view) => {
                screen.view = Some(view);
                stale = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                let what = "the samples ended";
                return Err(CliError::new(what, "", "start it again, and report this"));
            }
        }
        if std::mem::take(&mut stale) {
            terminal
                .draw(|frame| screen.draw(frame))
                .map_err(unusable)?;
        }
        if event::poll(LOOK_EVERY).map_err(unusable)? {
            match event::read().map_err(unusable)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if !obey(screen, key) {
                        return Ok(());
                    }
                    stale = true;
                }
                Event::Resize(..) => stale = true,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Does what a key asks for; false when it asks to leave.
fn obey(screen: &mut TopScreen, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if control => return false,
        KeyCode::Char('q') => return false,
        KeyCode::Esc if screen.help => screen.help = false,
        KeyCode::Char('?' | 'h') => screen.help = !screen.help,
        KeyCode::Char('s') => screen.order = screen.order.next(),
        KeyCode::Down | KeyCode::Right | KeyCode::Tab | KeyCode::Char('j') => screen.choose(true),
        KeyCode::Up | KeyCode::Left | KeyCode::BackTab | KeyCode::Char('k') => {
            screen.choose(false);
        }
        KeyCode::PageDown => screen.skipped = screen.skipped.saturating_add(PAGE),
        KeyCode::PageUp => screen.skipped = screen.skipped.saturating_sub(PAGE),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_obeyed() {
        let mut screen = TopScreen::new(LOOK_EVERY, true);
        let mut press = |code, modifiers| {
            let stays = obey(&mut screen, KeyEvent::new(code, modifiers));
            (stays, screen.help, screen.order.name(), screen.skipped)
        };
        let none = KeyModifiers::NONE;
        assert_eq!(press(KeyCode::Char('?'), none), (true, true, "slowest", 0));
        assert_eq!(press(KeyCode::Esc, none), (true, false, "slowest", 0));
        assert_eq!(press(KeyCode::Char('s'), none), (true, false, "busiest", 0));
        assert_eq!(
            press(KeyCode::PageDown, none),
            (true, false, "busiest", PAGE)
        );
        assert_eq!(press(KeyCode::PageUp, none).3, 0);
        assert!(press(KeyCode::Tab, none).0, "without nodes nothing happens");
        assert!(!press(KeyCode::Char('q'), none).0);
        assert!(!press(KeyCode::Char('c'), KeyModifiers::CONTROL).0);
    }
}
