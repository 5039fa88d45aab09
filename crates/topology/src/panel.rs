//! Sources asked side by side, each from a thread of its own.
//!
//! A source that hangs, as a file on a dead mount may, holds one thread and nothing else: it is
//! not asked again before it has answered.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use crate::http::HttpAsker;
use crate::place::Whereabouts;
use crate::source::{SourceSilence, TopologySource};

/// How long a round takes at most. A request has a second, and a source that answers asks several.
const ROUND_LIMIT: Duration = Duration::from_secs(4);

/// What one source said in a round.
#[derive(Clone, Debug)]
pub struct SourceSaid {
    /// Its name.
    pub source: &'static str,
    /// The place, or why there is none.
    pub answer: Result<Whereabouts, SourceSilence>,
}

/// The sources, ready to be asked.
pub struct SourcePanel {
    seats: Vec<Seat>,
}

struct Seat {
    source: &'static str,
    questions: SyncSender<()>,
    answers: Receiver<Result<Whereabouts, SourceSilence>>,
    /// When it was asked what it has not answered.
    since: Option<Instant>,
}

impl SourcePanel {
    /// Starts a thread a source.
    pub fn new(sources: Vec<Box<dyn TopologySource>>) -> Self {
        Self {
            seats: sources.into_iter().map(Seat::new).collect(),
        }
    }

    /// Asks all, and waits for all, four seconds at most.
    pub fn ask(&mut self) -> Vec<SourceSaid> {
        let end = Instant::now() + ROUND_LIMIT;
        for seat in &mut self.seats {
            seat.question();
        }
        let seats = self.seats.iter_mut();
        seats.map(|seat| seat.answer(end)).collect()
    }
}

impl Seat {
    fn new(source: Box<dyn TopologySource>) -> Self {
        // One question and one answer are under way at most.
        let (questions, asked) = sync_channel::<()>(1);
        let (answer, answers) = sync_channel(1);
        let name = source.name();
        std::thread::spawn(move || {
            let http = HttpAsker::new();
            while asked.recv().is_ok() {
                let said = match &http {
                    Ok(http) => source.ask(http),
                    Err(problem) => Err(SourceSilence(problem.clone())),
                };
                if answer.send(said).is_err() {
                    return;
                }
            }
        });
        Self {
            source: name,
            questions,
            answers,
            since: None,
        }
    }

    fn question(&mut self) {
        if self.since.is_some() {
            match self.answers.try_recv() {
                // It answers an old round: what it said is not of now.
                Ok(_) => self.since = None,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
        if self.questions.try_send(()).is_ok() {
            self.since = Some(Instant::now());
        }
    }

    fn answer(&mut self, end: Instant) -> SourceSaid {
        let asked = self.since.unwrap_or_else(Instant::now);
        let left = end.saturating_duration_since(Instant::now());
        let answer = match self.answers.recv_timeout(left) {
            Ok(answer) => {
                self.since = None;
                answer
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let seconds = asked.elapsed().as_secs();
                Err(format!("asked {seconds} s ago, and it has not answered").into())
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                Err("its thread has ended: start this command again".into())
            }
        };
        SourceSaid {
            source: self.source,
            answer,
        }
    }
}
