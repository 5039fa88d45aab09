//! What a swap tells: its steps, and what runs at their end.

use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;

use super::host::SwapHost;
use super::profile;
use super::running::{HoldingNode, WhichNode, running};
use super::view::LiveNode;
use crate::error::{BAD, CliError, FINDING};
use crate::given::{NodeProtection, protection};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepResult {
    Done,
    /// It would be done.
    Would,
    Failed,
    /// Worth to know; nothing is wrong.
    Note,
}

#[derive(Debug, Serialize)]
struct SwapStep {
    step: &'static str,
    result: StepResult,
    said: String,
    /// Since the command began.
    seconds: f64,
}

/// What is told at the end.
#[derive(Debug, Serialize)]
pub struct SwapReport {
    /// The node that runs now.
    pub runs: Option<HoldingNode>,
    /// The node that Hadoop's shell starts next.
    starts_next: WhichNode,
    /// How NameNodes see it.
    pub live: Vec<LiveNode>,
    pub blocks_before: Option<u64>,
    pub blocks_after: Option<u64>,
    pub went_back: bool,
    /// What protects Hayloft's node under this configuration; none where it would not start.
    protection: Vec<NodeProtection>,
    /// Whether all went as it was wanted.
    pub well: bool,
    steps: Vec<SwapStep>,
    #[serde(skip)]
    began: Option<Instant>,
}

impl SwapReport {
    pub fn new(host: &SwapHost) -> Self {
        Self {
            runs: None,
            starts_next: starts_next(host),
            live: Vec::new(),
            blocks_before: None,
            blocks_after: None,
            went_back: false,
            protection: protection(&host.config),
            well: true,
            steps: Vec::new(),
            began: Some(Instant::now()),
        }
    }

    pub fn add(&mut self, step: &'static str, result: StepResult, said: impl Into<String>) {
        let said = said.into();
        let seconds = self
            .began
            .map_or(0.0, |began| began.elapsed().as_secs_f64());
        self.well &= result != StepResult::Failed;
        if result == StepResult::Failed {
            eprintln!("hayloft: {step}: {said}");
        }
        self.steps.push(SwapStep {
            step,
            result,
            said,
            seconds,
        });
    }

    /// Notes how it went; whether it went well.
    pub fn try_step(&mut self, step: &'static str, done: Result<String, String>) -> bool {
        let well = done.is_ok();
        let result = if well {
            StepResult::Done
        } else {
            StepResult::Failed
        };
        self.add(step, result, done.unwrap_or_else(|why| why));
        well
    }

    /// What runs at the end.
    pub fn settle(&mut self, host: &SwapHost) {
        self.starts_next = starts_next(host);
        match running(&host.volumes) {
            Ok(runs) => self.runs = runs,
            Err(why) => self.add("look", StepResult::Failed, why),
        }
    }

    /// Prints it: exit code 0 when all is well, 1 when it is not, 3 when no node runs.
    pub fn tell(&self, json: bool) -> Result<ExitCode, CliError> {
        if json {
            crate::json::print_json(self)?;
        } else {
            for step in &self.steps {
                let result = match step.result {
                    StepResult::Done => "ok   ",
                    StepResult::Would => "would",
                    StepResult::Failed => "NOT  ",
                    StepResult::Note => "note ",
                };
                println!(
                    "{result} {:>6.1} s  {}: {}",
                    step.seconds, step.step, step.said
                );
            }
            match &self.runs {
                Some(of) => println!("{} runs, as process {}.", of.node.name(), of.pid),
                None => println!("No node runs."),
            }
            println!("Hadoop's shell starts {} next.", self.starts_next.name());
            for of in &self.live {
                let blocks = of
                    .blocks
                    .map_or_else(String::new, |of| format!(", {of} blocks"));
                println!("{} is live: {}{blocks}.", of.name, of.state);
            }
        }
        Ok(match (self.well, &self.runs) {
            (_, None) => ExitCode::from(BAD),
            (false, _) => ExitCode::from(FINDING),
            (true, _) => ExitCode::SUCCESS,
        })
    }
}

/// The node that Hadoop's shell starts on this host.
pub fn starts_next(host: &SwapHost) -> WhichNode {
    match profile::path(&host.conf).exists() {
        true => WhichNode::Hayloft,
        false => WhichNode::Apache,
    }
}
