//! What ended jobs did, by the histories that ApplicationMasters write.

use crate::driver::Driver;
use crate::error::{Result, TestkitError};
use crate::hadoop::class;
use serde_json::Value;
use std::collections::BTreeMap;

/// The first line of every history.
const FORMAT: &str = "Avro-Json\n";

/// Counters of a job by name, over all groups; the framework's names are in one group only.
pub type JobCounters = BTreeMap<String, u64>;

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedJob {
    /// Its id, `job_TIME_NUMBER`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Time from its submission to its end, milliseconds; zero when it failed.
    pub millis: u64,
    /// When its first map task was started, and when its last one had ended: milliseconds since
    /// 1970. `None` where no map task has ended.
    pub mapped: Option<(u64, u64)>,
    /// Totals over all tasks; none when it failed.
    pub counters: JobCounters,
}

impl FinishedJob {
    /// A counter, such as `DATA_LOCAL_MAPS`; a job does not write those that are zero.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }
}

/// Reads all histories in a directory of the file system; none is no error.
pub(super) fn read_all(fs: &Driver, dir: &str) -> Result<Vec<FinishedJob>> {
    // One directory a user.
    let all = format!("{dir}/*/*.jhist");
    let run = fs.tool(class::FS_SHELL, &["-cat", &all])?;
    if run.code != 0 && run.err.contains("No such file or directory") {
        return Ok(Vec::new());
    }
    let text = run.ok()?.out;
    let histories = text.split(FORMAT).filter(|part| !part.trim().is_empty());
    let jobs = histories.map(|part| {
        let no_history = || TestkitError::Talk(format!("{all} holds what is no job's history"));
        parse(part).ok_or_else(no_history)
    });
    let mut jobs = jobs.collect::<Result<Vec<_>>>()?;
    jobs.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(jobs)
}

/// A line of the schema, then one an event, with empty ones between.
fn parse(text: &str) -> Option<FinishedJob> {
    let (mut job, mut first_map) = (None, None::<u64>);
    for line in text.trim().lines().skip(1).filter(|line| !line.is_empty()) {
        let entry: Value = serde_json::from_str(line).ok()?;
        let event = entry["event"].as_object()?.values().next()?;
        match entry["type"].as_str()? {
            "JOB_SUBMITTED" => {
                let begun = event["submitTime"].as_u64()?;
                let text = |key: &str| Some(event[key].as_str()?.to_owned());
                let submitted = FinishedJob {
                    id: text("jobid")?,
                    name: text("jobName")?,
                    succeeded: false,
                    millis: 0,
                    mapped: None,
                    counters: JobCounters::new(),
                };
                job = Some((begun, submitted));
            }
            "MAP_ATTEMPT_STARTED" => {
                let at = event["startTime"].as_u64()?;
                first_map = Some(first_map.map_or(at, |first| at.min(first)));
            }
            "MAP_ATTEMPT_FINISHED" => {
                let (at, (_, job)) = (event["finishTime"].as_u64()?, job.as_mut()?);
                let last = job.mapped.map_or(at, |(_, last)| at.max(last));
                job.mapped = first_map.map(|first| (first, last));
            }
            "JOB_FINISHED" => {
                let (begun, job) = job.as_mut()?;
                job.succeeded = true;
                job.millis = event["finishTime"].as_u64()?.saturating_sub(*begun);
                job.counters = counters(&event["totalCounters"])?;
            }
            _ => {}
        }
    }
    job.map(|(_, job)| job)
}

fn counters(totals: &Value) -> Option<JobCounters> {
    let groups = totals["groups"].as_array()?.iter();
    let counts = groups
        .filter_map(|group| group["counts"].as_array())
        .flatten();
    let pair = |count: &Value| {
        let value = count["value"].as_u64().unwrap_or_default();
        Some((count["name"].as_str()?.to_owned(), value))
    };
    counts.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = r#"{"type":"record","name":"Event"}
{"type":"JOB_SUBMITTED","event":{"a.JobSubmitted":{"jobid":"job_1_2","jobName":"x",
"submitTime":1000}}}"#;

    #[test]
    fn totals_of_all_groups_are_read() {
        let end = r#"{"type":"MAP_ATTEMPT_STARTED","event":{"a.S":{"startTime":1200}}}
{"type":"MAP_ATTEMPT_STARTED","event":{"a.S":{"startTime":1100}}}
{"type":"MAP_ATTEMPT_FINISHED","event":{"a.F":{"finishTime":1400}}}
{"type":"MAP_ATTEMPT_FINISHED","event":{"a.F":{"finishTime":1300}}}
{"type":"JOB_FINISHED","event":{"a.JobFinished":{"finishTime":1500,
"totalCounters":{"groups":[{"counts":[{"name":"DATA_LOCAL_MAPS","value":3}]},
{"counts":[{"name":"MAP_INPUT_RECORDS","value":7}]}]}}}}"#;
        let whole = |text: &str| text.replace(",\n", ",");
        let text = format!("{}\n\n{}\n", whole(BEGIN), whole(end));
        let job = parse(&text).expect("it is one");
        assert_eq!(
            (job.id.as_str(), job.millis, job.succeeded),
            ("job_1_2", 500, true)
        );
        assert_eq!(job.counter("DATA_LOCAL_MAPS"), 3);
        assert_eq!(job.counter("MAP_INPUT_RECORDS"), 7);
        assert_eq!(job.mapped, Some((1100, 1400)), "first to last");
        assert_eq!(job.counter("OTHER_LOCAL_MAPS"), 0);
        let failed = parse(&whole(BEGIN)).expect("it has begun");
        assert!(!failed.succeeded && failed.counters.is_empty());
        assert_eq!(parse("{}\n{\"type\":"), None, "cut off");
    }
}
