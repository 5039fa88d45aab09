//! A small HTTP server that answers as a test says. What real servers answer is written from the
//! documentation that the sources cite.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hayloft_topology::{
    BaseUrl, SourcePanel, SourceSaid, SourceSettings, Whereabouts, sources_by_name,
};

/// A question as the server got it.
#[derive(Debug, Default)]
pub struct Got {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// An answer of the server.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Status, further head lines, body.
    Says(u16, &'static str, String),
    /// The same bytes, and nothing of HTTP around them.
    Raw(&'static [u8]),
    /// Nothing, for so long.
    Late(Duration),
    /// A byte now and then, for ever.
    Drips,
    /// A head that promises more than comes.
    Half,
}

pub fn ok(body: &str) -> Answer {
    Answer::Says(200, "", body.to_owned())
}

pub fn status(code: u16) -> Answer {
    Answer::Says(code, "", "an error".to_owned())
}

pub struct FakeServer {
    pub at: SocketAddr,
    pub asked: Arc<AtomicUsize>,
}

impl FakeServer {
    pub fn start(answer: impl Fn(&Got) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (count, answer) = (Arc::clone(&count), Arc::clone(&answer));
                std::thread::spawn(move || {
                    if let Some(got) = read(&socket) {
                        count.fetch_add(1, Ordering::Relaxed);
                        reply(socket, &answer(&got));
                    }
                });
            }
        });
        Self { at, asked }
    }

    pub fn url(&self) -> BaseUrl {
        format!("http://{}", self.at).parse().expect("an address")
    }

    pub fn count(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn read(socket: &TcpStream) -> Option<Got> {
    let mut lines = BufReader::new(socket).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let mut got = Got {
        method: words.next()?,
        path: words.next()?,
        headers: BTreeMap::new(),
    };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        got.headers
            .insert(name.to_lowercase(), value.trim().to_owned());
    }
    Some(got)
}

fn reply(mut socket: TcpStream, answer: &Answer) {
    let _ = match answer {
        Answer::Says(code, head, body) => write!(
            socket,
            "HTTP/1.1 {code} Said\r\n{head}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ),
        Answer::Raw(bytes) => socket.write_all(bytes),
        Answer::Late(pause) => {
            std::thread::sleep(*pause);
            Ok(())
        }
        Answer::Drips => {
            while socket.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }
        Answer::Half => write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
    };
}

pub fn settings(server: &FakeServer) -> SourceSettings {
    SourceSettings {
        metadata: Some(server.url()),
        ec2_endpoint: Some(server.url()),
        sys: Some("/no/such/sys".into()),
        ..SourceSettings::default()
    }
}

pub fn ask_all(name: &str, settings: &SourceSettings) -> Vec<SourceSaid> {
    let sources = sources_by_name(name, settings).expect("a source");
    SourcePanel::new(sources).ask()
}

/// What one source says.
pub fn ask(name: &str, settings: &SourceSettings) -> Result<Whereabouts, String> {
    let said = ask_all(name, settings).remove(0).answer;
    said.map_err(|problem| problem.to_string())
}

/// Rack and host.
pub fn place(found: &Result<Whereabouts, String>) -> (&str, Option<&str>) {
    let found = found.as_ref().expect("a place");
    let host = found.host.as_ref().map(|host| host.as_str());
    (found.rack.as_str(), host)
}

/// What a source asks first, answered badly: it must say so in time, and give no place.
pub fn bad_answers() -> Vec<(&'static str, Answer, &'static str)> {
    let huge = "x".repeat(1 << 20);
    vec![
        ("not there", status(404), ""),
        ("broken", status(500), "500"),
        ("late", Answer::Late(Duration::from_secs(3)), "within 1s"),
        ("dripping", Answer::Drips, "within 1s"),
        (
            "huge",
            Answer::Says(200, "Metadata-Flavor: Google\r\n", huge),
            "larger",
        ),
        (
            "garbage",
            Answer::Raw(b"\x16\x03\x01 no HTTP at all\r\n\r\n"),
            "HTTP",
        ),
        ("half", Answer::Half, "cut short"),
        (
            "not text",
            Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe"),
            "UTF-8",
        ),
        ("nothing", ok(""), ""),
        (
            "unsafe",
            Answer::Says(200, "Metadata-Flavor: Google\r\n", "a/../b c\n#".to_owned()),
            "",
        ),
    ]
}
