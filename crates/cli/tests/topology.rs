//! `hayloft topology` as a process, beside a metadata server that answers as Azure documents.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A server with one answer, which a test changes; none for an error.
struct Metadata {
    at: SocketAddr,
    body: Arc<Mutex<Option<String>>>,
    /// How often Azure's page was asked for.
    asked: Arc<AtomicUsize>,
}

impl Metadata {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let body = Arc::new(Mutex::new(None::<String>));
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, count) = (Arc::clone(&body), Arc::clone(&asked));
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let lines = BufReader::new(&socket).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let azure = head
                    .iter()
                    .any(|line| line.starts_with("GET /metadata/instance/"));
                count.fetch_add(usize::from(azure), Ordering::Relaxed);
                let body = answer.lock().expect("not poisoned").clone();
                let (status, body) = match (azure, body) {
                    (true, Some(body)) => (200, body),
                    (true, None) => (500, String::new()),
                    (false, _) => (404, String::new()),
                };
                let length = body.len();
                let _ = write!(
                    socket,
                    "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
        });
        Self { at, body, asked }
    }

    fn domain(&self, number: &str) {
        let body = format!(
            r#"{{"location": "westus", "zone": "2", "platformFaultDomain": "{number}",
            "host": {{"id": "/hostGroups/g/hosts/h{number}"}}}}"#
        );
        *self.body.lock().expect("not poisoned") = Some(body);
    }

    fn breaks(&self) {
        *self.body.lock().expect("not poisoned") = None;
    }
}

fn topology(words: &[&str], metadata: &Metadata) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayloft"));
    command.arg("topology").args(words);
    if words.first() != Some(&"suits") {
        let url = format!("http://{}", metadata.at);
        let node = [
            "--node",
            "dn1",
            "--address",
            "10.0.0.1",
            "--sys",
            "/no/such/sys",
        ];
        command.args(["--metadata-url", &url]).args(node);
    }
    // A proxy that would be asked, if one were.
    let dead = "http://127.0.0.1:9";
    command
        .env("http_proxy", dead)
        .env("HTTP_PROXY", dead)
        .env("ALL_PROXY", dead);
    command
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("NODE_NAME");
    command
}

fn run(words: &[&str], metadata: &Metadata) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = topology(words, metadata).output().expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn it_prints_where_the_node_is_and_how_that_was_found() {
    let metadata = Metadata::start();
    metadata.domain("3");
    let (code, said, talk) = run(&[], &metadata);
    assert_eq!(code, Some(0), "{talk}");
    assert!(
        said.contains("host      h3\nrack      /westus-2/fd3\n"),
        "{said}"
    );
    assert!(
        said.contains("found by  azure: instance metadata says zone westus-2"),
        "{said}"
    );
    let (code, said, _) = run(&["--json", "--flat"], &metadata);
    let answer: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(code, Some(0));
    assert_eq!(
        (&answer["rack"], &answer["host"]),
        (&"/westus-2-fd3".into(), &"h3".into())
    );
    assert_eq!(
        answer["asked"].as_array().map(Vec::len),
        Some(5),
        "{answer}"
    );
}

#[test]
fn none_found_says_whom_it_asked_and_what_each_said() {
    let metadata = Metadata::start();
    let (code, said, talk) = run(&[], &metadata);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{talk}");
    for (source, why) in [
        ("ec2", "404"),
        ("gcp", "not Google's"),
        ("azure", "answered 500"),
        ("kubernetes", "no pod"),
        ("hypervisor", "no text of an administrator"),
    ] {
        let line = talk.lines().find(|line| line.trim().starts_with(source));
        assert!(
            line.is_some_and(|line| line.contains(why)),
            "{source}: {talk}"
        );
    }
    let (code, said, _) = run(&["--json"], &metadata);
    let answer: Value = serde_json::from_str(&said).expect("JSON");
    assert!(code == Some(1) && answer["rack"].is_null(), "{said}");
    assert_eq!(run(&["--source", "moon"], &metadata).0, Some(2));
    assert_eq!(run(&["--metadata-url", "x"], &metadata).0, Some(2));
}

#[test]
fn it_writes_what_name_nodes_read_and_keeps_what_is_worth_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("topology");
    let to = ["write", "--to", file.to_str().expect("text")];
    let metadata = Metadata::start();
    let (code, _, talk) = run(&to, &metadata);
    assert!(code == Some(1) && !file.exists(), "{talk}");
    metadata.domain("3");
    let (code, said, talk) = run(&to, &metadata);
    assert_eq!(code, Some(0), "{talk}");
    assert_eq!(said.matches("wrote ").count(), 3, "{said}");
    let text = std::fs::read_to_string(&file).expect("written");
    assert!(
        text.ends_with("10.0.0.1    /westus-2/fd3\ndn1    /westus-2/fd3\n"),
        "{text}"
    );
    assert_eq!(run(&to, &metadata).1.matches("as before").count(), 3);
    // Less than before: no host and no fault domain.
    let less = r#"{"location": "westus", "zone": "2", "platformFaultDomain": ""}"#;
    *metadata.body.lock().expect("not poisoned") = Some(less.to_owned());
    let (code, _, talk) = run(&to, &metadata);
    assert!(code == Some(1) && talk.contains("says less now"), "{talk}");
    metadata.breaks();
    assert_eq!(run(&to, &metadata).0, Some(1));
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), text);
}

#[test]
fn what_cannot_be_written_is_refused_before_anyone_is_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("topology");
    let to = ["write", "--to", file.to_str().expect("text")];
    let metadata = Metadata::start();
    metadata.domain("3");
    let script = dir.path().join("topology.sh");
    std::fs::write(&script, "#!/bin/sh\necho /mine\n").expect("written");
    let (code, _, talk) = run(&to, &metadata);
    assert_eq!(code, Some(2), "{talk}");
    assert!(
        talk.contains("topology.sh was not written by hayloft"),
        "{talk}"
    );
    assert!(!file.exists() && metadata.asked.load(Ordering::Relaxed) == 0);
    assert_eq!(run(&["watch", "--to", to[2]], &metadata).0, Some(2));
    assert_eq!(run(&[&to[..], &["--force"]].concat(), &metadata).0, Some(0));
    assert_eq!(run(&["write", "--to", "/dev/null"], &metadata).0, Some(2));
    for none in ["0.0.0.0", "::", "239.0.0.1", "x"] {
        assert_eq!(run(&["--address", none], &metadata).0, Some(2), "{none}");
    }
}

/// A watch that ends with the test.
struct Watch {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Watch {
    fn start(file: &Path, metadata: &Metadata) -> Self {
        let to = file.to_str().expect("text");
        let mut command = topology(&["watch", "--to", to, "--period", "1"], metadata);
        // Nothing can be printed there, and a watch goes on.
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("opens");
        let mut child = command
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let said = Arc::new(Mutex::new(String::new()));
        let (lines, heard) = (child.stderr.take().expect("piped"), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                *heard.lock().expect("not poisoned") += &format!("{line}\n");
            }
        });
        Self { child, said }
    }

    fn said(&self) -> String {
        self.said.lock().expect("not poisoned").clone()
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < end, "{what}: {}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn watch_writes_at_changes_and_keeps_the_last_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let file: PathBuf = dir.path().join("topology");
    let has = |part: &str| std::fs::read_to_string(&file).is_ok_and(|text| text.contains(part));
    let metadata = Metadata::start();
    let mut watch = Watch::start(&file, &metadata);
    watch.until("nothing yet", || {
        watch.said().contains("nothing is known yet")
    });
    assert!(!file.exists());
    metadata.domain("1");
    watch.until("the first place", || has("/westus-2/fd1"));
    watch.until("what was not printed", || {
        watch
            .said()
            .contains("wrote rack /westus-2/fd1, host h1, by azure (standard output: ")
    });
    metadata.breaks();
    watch.until("silence", || {
        watch.said().contains("azure has stopped answering")
    });
    watch.until("what is kept", || {
        watch.said().contains("the file keeps /westus-2/fd1")
    });
    assert!(has("/westus-2/fd1"));
    metadata.domain("2");
    watch.until("another place", || has("/westus-2/fd2"));
    assert!(
        watch.said().contains("azure answers again"),
        "{}",
        watch.said()
    );
    let before = std::fs::metadata(&file)
        .expect("there")
        .modified()
        .expect("a time");
    let asked = metadata.asked.load(Ordering::Relaxed);
    watch.until("two more rounds", || {
        metadata.asked.load(Ordering::Relaxed) >= asked + 3
    });
    let after = std::fs::metadata(&file)
        .expect("there")
        .modified()
        .expect("a time");
    assert_eq!(before, after, "written without a change");
    let pid = watch.child.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(killed.expect("runs").success());
    assert_eq!(watch.child.wait().expect("ends").code(), Some(0));
}

/// A `/sys` with one NVMe disk.
fn sys(model: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = dir.path().join("block/nvme0n1");
    std::fs::create_dir_all(disk.join("device")).expect("made");
    std::fs::write(disk.join("size"), "4096\n").expect("written");
    std::fs::write(disk.join("device/model"), model).expect("written");
    dir
}

#[test]
fn suits_says_by_its_exit_code_whether_disks_are_local() {
    let metadata = Metadata::start();
    let suits = |sys: &Path, more: &[&str]| {
        let words = [&["suits", "--sys", sys.to_str().expect("text")], more].concat();
        run(&words, &metadata)
    };
    let local = sys("Amazon EC2 NVMe Instance Storage");
    let network = sys("Amazon Elastic Block Store");
    let (code, said, _) = suits(local.path(), &[]);
    assert!(
        code == Some(0) && said.contains("suits: 1 of 1 disks"),
        "{said}"
    );
    let (code, said, _) = suits(network.path(), &["--want", "local-disk"]);
    assert!(
        code == Some(1) && said.contains("Elastic Block Store"),
        "{said}"
    );
    assert_eq!(
        suits(network.path(), &["--want", "network-disk"]).0,
        Some(0)
    );
    let unsaid = sys("QEMU NVMe Ctrl");
    let (code, _, talk) = suits(unsaid.path(), &[]);
    assert!(
        code == Some(1) && talk.contains("--count-virtual"),
        "{talk}"
    );
    let (code, said, _) = suits(unsaid.path(), &["--count-virtual", "--json"]);
    let answer: Value = serde_json::from_str(&said).expect("JSON");
    assert!(
        code == Some(0) && answer["disks"][0]["place"] == "virtual",
        "{said}"
    );
    assert_eq!(suits(Path::new("/no/such"), &[]).0, Some(2));
}
