//! A JVM that stays up for a whole test file and runs stock client code on request.
//!
//! Requests and answers are JSON objects, one a line, matched by `id`; several may be under way.
//! The operations are listed in `hadoop/driver` (class `LabDriver`).

use crate::error::{Result, TestkitError};
use crate::hadoop::{Hadoop, Jvm, class, driver_jar};
use crate::process::Process;
use crate::wait::{self, Seen};
use crate::where_processes_run::Place;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// No single request takes longer; a hang becomes an error.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

type Waiting = Arc<Mutex<BTreeMap<u64, Sender<Value>>>>;

/// A running driver. Dropping it kills the JVM: writers it has open are left as a dead client
/// would.
#[derive(Debug)]
pub struct Driver {
    process: Arc<Mutex<Process>>,
    stdin: Mutex<ChildStdin>,
    waiting: Waiting,
    next_id: AtomicU64,
}

/// What a stock command line tool did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRun {
    /// Exit code.
    pub code: i64,
    /// Standard output (bytes that are not UTF-8 replaced).
    pub out: String,
    /// Standard error.
    pub err: String,
    /// How long it took, milliseconds.
    pub millis: u64,
}

impl ToolRun {
    /// `self` when the exit code is 0.
    ///
    /// # Errors
    /// [`TestkitError::Expectation`] with all output otherwise.
    pub fn ok(self) -> Result<Self> {
        if self.code == 0 {
            return Ok(self);
        }
        Err(TestkitError::Expectation(format!(
            "exit code {}\nstdout: {}\nstderr: {}",
            self.code, self.out, self.err
        )))
    }
}

impl From<Value> for ToolRun {
    fn from(answer: Value) -> Self {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Self {
            code: answer["code"].as_i64().unwrap_or(-1),
            out: text("out"),
            err: text("err"),
            millis: answer["millis"].as_u64().unwrap_or_default(),
        }
    }
}

impl Driver {
    /// Starts a driver with the given client configuration directory; it logs to `log_dir`.
    ///
    /// # Errors
    /// When it has not been built or does not answer.
    pub fn start(hadoop: &Hadoop, conf_dir: &Path, log_dir: &Path) -> Result<Self> {
        Self::start_in(hadoop, &Jvm::small(conf_dir, log_dir, 768))
    }

    /// As [`Driver::start`], in a JVM of the caller's choice.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn start_in(hadoop: &Hadoop, jvm: &Jvm) -> Result<Self> {
        Self::start_at(hadoop, jvm, &Place::local())
    }

    /// As [`Driver::start_in`], at a place. It ends with us wherever that is.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn start_at(hadoop: &Hadoop, jvm: &Jvm, place: &Place) -> Result<Self> {
        Self::start_program(hadoop, jvm, place, class::LAB_DRIVER)
    }

    /// As [`Driver::start_at`] with another program: a class or a source that serves the same
    /// operations and more.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn start_program(hadoop: &Hadoop, jvm: &Jvm, place: &Place, main: &str) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut hadoop = hadoop.clone();
        hadoop.add_jar(driver_jar()?);
        let name = format!("driver-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut spawn = hadoop.java(&name, jvm, main, &[]);
        spawn.piped = true;
        let mut process = place.put(spawn).start()?;
        let pipes = process.take_pipes();
        let (stdin, stdout) = pipes.ok_or_else(|| process.error("has no pipes"))?;
        let waiting = Waiting::default();
        let inbox = Arc::clone(&waiting);
        std::thread::spawn(move || receive(stdout, &inbox));
        let driver = Self {
            process: Arc::new(Mutex::new(process)),
            stdin: Mutex::new(stdin),
            waiting,
            next_id: AtomicU64::new(1),
        };
        driver.call("ping", json!({}))?;
        Ok(driver)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`TestkitError::Client`] when the stock client threw, [`TestkitError::Process`] when the JVM
    /// is gone, [`TestkitError::Talk`] after five minutes without an answer.
    pub fn call(&self, operation: &str, arguments: Value) -> Result<Value> {
        self.begin(operation, arguments)?.wait()
    }

    /// Sends a request without waiting.
    ///
    /// # Errors
    /// [`TestkitError::Process`] when the JVM is gone.
    pub fn begin(&self, operation: &str, arguments: Value) -> Result<PendingCall> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut request = match arguments {
            Value::Object(map) => map,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        request.insert("id".into(), id.into());
        request.insert("op".into(), operation.into());
        let (answer, inbox) = channel();
        lock(&self.waiting).insert(id, answer);
        let line = format!("{}\n", Value::Object(request));
        let mut stdin = lock(&self.stdin);
        let sent = stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.flush());
        sent.map_err(|error| lock(&self.process).error(format!("{operation}: {error}")))?;
        Ok(PendingCall {
            process: Arc::clone(&self.process),
            operation: operation.into(),
            inbox,
        })
    }

    /// Runs a stock command line tool by its class.
    ///
    /// # Errors
    /// When the driver fails; a non-zero exit code is not an error here, see [`ToolRun::ok`].
    pub fn tool(&self, class: &str, args: &[&str]) -> Result<ToolRun> {
        self.tool_with(class, args, json!({}))
    }

    /// As [`Driver::tool`] with client configuration and other request fields (`conf`, `stdin`,
    /// `user`).
    ///
    /// # Errors
    /// As [`Driver::tool`].
    pub fn tool_with(&self, class: &str, args: &[&str], more: Value) -> Result<ToolRun> {
        Ok(self.begin_tool(class, args, more)?.wait()?.into())
    }

    /// As [`Driver::tool_with`] without waiting; the answer becomes a [`ToolRun`].
    ///
    /// # Errors
    /// [`TestkitError::Process`] when the JVM is gone.
    pub fn begin_tool(&self, class: &str, args: &[&str], mut more: Value) -> Result<PendingCall> {
        more["class"] = class.into();
        more["args"] = args.into();
        self.begin("tool", more)
    }

    /// What makes [`Driver::tool_with`] run a MapReduce program in the driver's own JVM, at most
    /// two tasks at a time, with its files in `dir`.
    #[must_use]
    pub fn local_jobs(dir: &Path) -> Value {
        json!({ "conf": {
            "mapreduce.framework.name": "local",
            "mapreduce.cluster.local.dir": dir.display().to_string(),
            "mapreduce.task.io.sort.mb": 16,
            "mapreduce.local.map.tasks.maximum": 2,
        }})
    }

    /// `hadoop fs ARGS`, which must succeed; its standard output.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub fn fs(&self, args: &[&str]) -> Result<String> {
        let run = self.tool(class::FS_SHELL, args)?.ok();
        run.map(|run| run.out)
            .map_err(|e| TestkitError::Expectation(format!("fs {}: {e}", args.join(" "))))
    }

    /// `hdfs dfsadmin ARGS`, which must succeed; its standard output.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub fn dfsadmin(&self, args: &[&str]) -> Result<String> {
        let run = self.tool(class::DFSADMIN, args)?.ok();
        run.map(|run| run.out)
            .map_err(|e| TestkitError::Expectation(format!("dfsadmin {}: {e}", args.join(" "))))
    }

    /// Waits until a node takes a block: it has registered, and the NameNode has its report.
    ///
    /// # Errors
    /// When none does within `limit`.
    pub fn wait_takes_blocks(&self, limit: Duration) -> Result<()> {
        wait::until("a node that takes blocks", limit, || {
            Ok(match self.put("/probe", 1, 1, json!({})) {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        self.fs(&["-rm", "-skipTrash", "/probe"]).map(drop)
    }

    /// Sets the storage policy of a directory.
    ///
    /// # Errors
    /// When the command fails.
    pub fn set_policy(&self, path: &str, policy: &str) -> Result<()> {
        let args = ["-setStoragePolicy", "-path", path, "-policy", policy];
        self.tool(class::STORAGE_POLICIES, &args)?.ok().map(drop)
    }

    /// Has the node at the IPC address `ipc` reread its configuration (`dfsadmin -reconfig`), and
    /// waits until it has done what follows from it: what `status` says then, errors of single
    /// properties included.
    ///
    /// # Errors
    /// When it does not begin, or does not end within `limit`.
    pub fn reconfigure(&self, ipc: &str, limit: Duration) -> Result<String> {
        self.reconfigure_server(("datanode", ipc), limit)
    }

    /// As [`reconfigure`](Self::reconfigure), of the NameNode at the RPC address `rpc`.
    ///
    /// # Errors
    /// When it does not begin, or does not end within `limit`.
    pub fn reconfigure_namenode(&self, rpc: &str, limit: Duration) -> Result<String> {
        self.reconfigure_server(("namenode", rpc), limit)
    }

    fn reconfigure_server(&self, (kind, at): (&str, &str), limit: Duration) -> Result<String> {
        let started = self.dfsadmin(&["-reconfig", kind, at, "start"])?;
        if !started.contains("Started reconfiguration task on node") {
            return Err(TestkitError::Expectation(started));
        }
        wait::until("the end of the reconfiguration", limit, || {
            let status = self.tool(class::DFSADMIN, &["-reconfig", kind, at, "status"])?;
            let said = format!("{}{}", status.out, status.err);
            Ok(if said.contains("finished at") {
                Seen::Done(said)
            } else {
                Seen::NotYet(said)
            })
        })
    }

    /// Process id of the JVM.
    #[must_use]
    pub fn pid(&self) -> u32 {
        lock(&self.process).pid()
    }

    /// Kills the JVM now: a client that died.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(self) -> Result<()> {
        lock(&self.process).kill().map(drop)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands answers to the callers that wait, until the driver closes its end; then all waiters are
/// told by the drop of their channel.
fn receive(stdout: ChildStdout, waiting: &Waiting) {
    for line in BufReader::new(stdout)
        .lines()
        .map_while(std::io::Result::ok)
    {
        let Ok(answer) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let waiter = answer["id"]
            .as_u64()
            .and_then(|id| lock(waiting).remove(&id));
        if let Some(waiter) = waiter {
            let _ = waiter.send(answer);
        }
    }
    lock(waiting).clear();
}

/// A request under way.
#[derive(Debug)]
pub struct PendingCall {
    process: Arc<Mutex<Process>>,
    operation: String,
    inbox: Receiver<Value>,
}

impl PendingCall {
    /// Waits for the answer.
    ///
    /// # Errors
    /// As [`Driver::call`].
    pub fn wait(self) -> Result<Value> {
        self.wait_at_most(ANSWER_LIMIT)
    }

    /// Waits for the answer at most `limit`.
    ///
    /// # Errors
    /// As [`Driver::call`].
    pub fn wait_at_most(self, limit: Duration) -> Result<Value> {
        self.wait_briefly(limit)?.ok_or_else(|| {
            TestkitError::Talk(format!(
                "driver: no answer to {} within {limit:?}",
                self.operation
            ))
        })
    }

    /// The answer if it comes within `limit`; ask again if it does not.
    ///
    /// # Errors
    /// As [`Driver::call`], but for the time.
    pub fn wait_briefly(&self, limit: Duration) -> Result<Option<Value>> {
        let answer = match self.inbox.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(
                    lock(&self.process).error(format!("went away during {}", self.operation))
                );
            }
        };
        match answer["error"].as_object() {
            None => Ok(Some(answer)),
            Some(error) => {
                let text = |name: &str| {
                    error
                        .get(name)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                Err(TestkitError::Client {
                    operation: self.operation.clone(),
                    class: text("class"),
                    message: text("message"),
                })
            }
        }
    }
}
