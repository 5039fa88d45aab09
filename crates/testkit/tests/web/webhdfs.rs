//! WebHDFS on a node of ours and a stock one, in one cluster.

use crate::exchange::{Exchange, Reply, bytes, fetch, upload};
use crate::nodes::{both, expect_done, web_of, webhdfs};
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, TestkitError};
use serde_json::json;

const BLOCK: u64 = 1 << 20;
const OURS: usize = 0;
const STOCK: usize = 1;
/// Sizes around the borders of chunks, packets and blocks.
const SIZES: [u64; 9] = [
    0,
    1,
    511,
    512,
    513,
    126 * 512 + 1,
    BLOCK,
    BLOCK + 1,
    3 * BLOCK + 777,
];

/// Requests that do not change anything: method, path, parameters.
const QUESTIONS: [(&str, &str, &str); 42] = [
    ("GET", "/f", "op=OPEN&length=5"),
    ("GET", "/f", "op=open&offset=7&length=99999999"),
    ("GET", "/small", "op=OPEN&user.name=alice"),
    ("GET", "/small", "op=OPEN;length=2;offset=3"),
    ("GET", "/small", "op=OPEN&offset=10"),
    ("GET", "/small", "op=OPEN&offset=11"),
    ("GET", "/small", "op=OPEN&offset=-1"),
    ("GET", "/small", "op=OPEN&offset=x"),
    ("GET", "/small", "op=OPEN&offset="),
    ("GET", "/small", "op=OPEN&length=-5"),
    ("GET", "/small", "op=OPEN&length=99999999999999999999"),
    ("GET", "/small", "op=OPEN&buffersize=0"),
    ("GET", "/small", "op=OPEN&user.name="),
    ("GET", "/small", "op=OPEN&user.name=1bad%20name"),
    ("GET", "/small", "op=OPEN&user.name=alice&doas=bob"),
    ("GET", "/small", "op=OPEN&user.name=alice&doas="),
    ("GET", "/secret", "op=OPEN&user.name=alice"),
    ("GET", "/secret", "op=OPEN&user.name=carol&doas=alice"),
    ("GET", "/secret", "op=OPEN&user.name=carol&doas=root"),
    (
        "GET",
        "/secret",
        "op=GETFILECHECKSUM&user.name=carol&doas=root",
    ),
    ("GET", "/secret", "op=GETFILECHECKSUM&user.name=alice"),
    ("GET", "/nope", "op=OPEN"),
    ("GET", "/", "op=OPEN"),
    ("GET", "", "op=OPEN"),
    ("GET", "/empty", "op=OPEN"),
    ("GET", "/small", ""),
    ("GET", "/small", "op=LISTSTATUS"),
    ("GET", "/small", "op=NONSENSE"),
    ("DELETE", "/small", "op=OPEN"),
    ("POST", "/small", "op=OPEN"),
    ("GET", "/f", "op=GETFILECHECKSUM"),
    ("GET", "/small", "op=getfilechecksum"),
    ("GET", "/empty", "op=GETFILECHECKSUM"),
    ("GET", "/nope", "op=GETFILECHECKSUM"),
    ("GET", "/", "op=GETFILECHECKSUM"),
    ("OPTIONS", "/any", "op=APPEND"),
    ("OPTIONS", "/any", ""),
    ("GET", "/a/../small", "op=OPEN"),
    ("GET", "/small", "OP=OPEN"),
    ("GET", "/small%2", "op=OPEN"),
    ("GET", "/small", "op=OPEN&length=%zz&offset=1"),
    ("GET", "/small", "op=OPEN;;&=&a=%4"),
];

/// Parameters of `CREATE`, each on a file that is there and one that is not.
const CREATIONS: [&str; 24] = [
    "",
    "overwrite=true",
    "overwrite=false",
    "overwrite=xx",
    "permission=9",
    "permission=2777",
    "permission=600",
    "permission=644&unmaskedpermission=666",
    "unmaskedpermission=abc",
    "blocksize=0",
    "blocksize=512",
    "blocksize=1048576&overwrite=true",
    "replication=0",
    "replication=99999",
    "replication=600",
    "replication=1&overwrite=true",
    "createflag=NOPE",
    "createflag=CREATE,OVERWRITE,SYNC_BLOCK",
    "createflag=",
    "createflag=APPEND",
    "createflag=CREATE%252COVERWRITE",
    "createflag=CREATE%25",
    "createparent=false",
    "user.name=alice&overwrite=true",
];

pub fn files() -> Result<Files> {
    let cluster = Cluster::builder("webhdfs")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 2)
        .conf("hadoop.proxyuser.carol.hosts", "*")
        .conf("hadoop.proxyuser.carol.groups", "*")
        .node(NodeSpec::new(Kind::Hayloft))
        .node(NodeSpec::new(Kind::Apache))
        .start()?;
    let fs = cluster.driver()?;
    fs.put("/f", 3 * BLOCK, 1, json!({}))?;
    fs.put("/small", 10, 1, json!({}))?;
    fs.put("/secret", 10, 1, json!({}))?;
    fs.fs(&["-chmod", "600", "/secret"])?;
    fs.put("/empty", 0, 1, json!({}))?;
    Ok(Files { cluster, fs })
}

pub struct Files {
    pub cluster: Cluster,
    fs: Driver,
}

impl Files {
    fn same(what: &str, ours: &Reply, stock: &Reply) -> Result<()> {
        expect_eq(&format!("{what}: code"), ours.code, stock.code)?;
        expect_eq(&format!("{what}: headers"), ours.headers(), stock.headers())?;
        if ours.code >= 400 {
            return expect_eq(&format!("{what}: error"), ours.error(), stock.error());
        }
        expect(ours.body == stock.body, || format!("{what}: other bytes"))
    }

    pub fn questions(&mut self) -> Result<Outcome> {
        for (method, path, parameters) in QUESTIONS {
            let target = webhdfs(&mut self.cluster, path, parameters);
            let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
                fetch(web, method, &target)
            })?;
            Self::same(&format!("{method} {target}"), &ours, &stock)?;
        }
        passed()
    }

    pub fn creations(&mut self) -> Result<Outcome> {
        self.fs.fs(&["-mkdir", "-p", "/made"])?;
        for (index, parameters) in CREATIONS.into_iter().enumerate() {
            for path in ["/made/there", &format!("/made/new {index}/ä+%25")] {
                let path = path.replace(' ', "%20").replace('ä', "%C3%A4");
                let target = webhdfs(&mut self.cluster, &path, &format!("op=CREATE&{parameters}"));
                let mut seen = Vec::new();
                for node in [OURS, STOCK] {
                    self.fs.fs(&["-rm", "-r", "-f", "-skipTrash", "/made"])?;
                    self.fs.put("/made/there", 3, 1, json!({}))?;
                    let web = web_of(&mut self.cluster, node);
                    let reply = upload(web, "PUT", &target, 1000, 7)?;
                    let stat = "%a %b %g %o %r %u %n";
                    let listed = self.fs.fs(&["-stat", stat, "/made/*", "/made/*/*"]);
                    seen.push((reply, listed.unwrap_or_default()));
                }
                let [(ours, our_files), (stock, stock_files)] = &seen[..] else {
                    continue;
                };
                let what = format!("PUT {target}");
                expect_eq(&format!("{what}: files"), our_files, stock_files)?;
                // Java leaves letters as they are, which are none of HTTP's.
                if path.contains("%C3") && ours.code == 201 {
                    let place = ours.header("location").unwrap_or_default();
                    expect(place.ends_with("/%C3%A4+%25"), || place.to_owned())?;
                    continue;
                }
                Self::same(&what, ours, stock)?;
            }
        }
        passed()
    }

    pub fn sizes(&mut self) -> Result<Outcome> {
        for size in SIZES {
            for (writer, reader) in [(OURS, STOCK), (STOCK, OURS), (OURS, OURS)] {
                let path = format!("/sizes/{writer}-{size}");
                let target = webhdfs(&mut self.cluster, &path, "op=CREATE&overwrite=true");
                let web = web_of(&mut self.cluster, writer);
                let reply = upload(web, "PUT", &target, size, size)?;
                expect_done(&path, &reply, 201)?;
                self.fs.check(&path, size, size)?;
                let target = webhdfs(&mut self.cluster, &path, "op=OPEN");
                let web = web_of(&mut self.cluster, reader);
                let read = fetch(web, "GET", &target)?;
                expect_eq("code of a read", read.code, 200)?;
                expect(read.body == bytes(size, 0, size), || {
                    format!("{path} of {} bytes", read.body.len())
                })?;
                let target = webhdfs(&mut self.cluster, &path, "op=GETFILECHECKSUM");
                let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
                    fetch(web, "GET", &target)
                })?;
                Self::same(&target, &ours, &stock)?;
            }
        }
        passed()
    }

    /// Every beginning within a chunk, a packet and a block is appended to.
    pub fn appends(&mut self) -> Result<Outcome> {
        let path = "/appended";
        self.fs.put(path, 0, 3, json!({}))?;
        let mut at = 0;
        for more in [
            1,
            510,
            1,
            300,
            70_000,
            BLOCK - 70_812,
            5,
            BLOCK,
            0,
            2 * BLOCK + 9,
        ] {
            let target = webhdfs(&mut self.cluster, path, "op=APPEND");
            let web = web_of(&mut self.cluster, OURS);
            let mut exchange = Exchange::begin(web, "POST", &target, Some(more))?;
            exchange.send(3, at, at + more)?;
            let reply = exchange.reply()?;
            expect_done("append", &reply, 200)?;
            at += more;
            self.fs.check(path, at, 3)?;
        }
        let target = webhdfs(&mut self.cluster, "/nope", "op=APPEND");
        let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
            upload(web, "POST", &target, 5, 1)
        })?;
        Self::same("append to nothing", &ours, &stock)?;
        passed()
    }

    pub fn ranges(&mut self) -> Result<Outcome> {
        let size = 3 * BLOCK;
        for (offset, length) in [
            (0, 1),
            (511, 2),
            (BLOCK - 1, 2),
            (BLOCK, BLOCK),
            (BLOCK + 513, BLOCK),
            (size - 1, 10),
            (5, size),
        ] {
            let parameters = format!("op=OPEN&offset={offset}&length={length}");
            let target = webhdfs(&mut self.cluster, "/f", &parameters);
            let web = web_of(&mut self.cluster, OURS);
            let read = fetch(web, "GET", &target)?;
            let end = (offset + length).min(size);
            expect(read.body == bytes(1, offset, end), || parameters)?;
        }
        passed()
    }

    /// What another client has flushed can be read, with its length.
    pub fn open_files(&mut self) -> Result<Outcome> {
        let path = "/open";
        self.fs.create("o", path, 5, json!({}))?;
        let mut written = 0;
        for more in [0, 100, BLOCK - 100, 1, 2 * BLOCK, 77] {
            if more > 0 {
                self.fs.write("o", more)?;
                self.fs.handle("hflush", "o")?;
            }
            written += more;
            let target = webhdfs(&mut self.cluster, path, "op=OPEN");
            let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
                fetch(web, "GET", &target)
            })?;
            Self::same(&format!("{written} bytes"), &ours, &stock)?;
            expect_eq("bytes", ours.body.len() as u64, written)?;
            expect(ours.body == bytes(5, 0, written), || "other bytes".into())?;
        }
        let target = webhdfs(&mut self.cluster, path, "op=GETFILECHECKSUM");
        let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
            fetch(web, "GET", &target)
        })?;
        Self::same("checksum of an open file", &ours, &stock)?;
        self.fs.handle("close", "o")?;
        passed()
    }

    /// A client that goes away in the middle leaves what Apache's node leaves.
    pub fn gone(&mut self) -> Result<Outcome> {
        let mut left = Vec::new();
        for node in [OURS, STOCK] {
            let path = format!("/gone/{node}");
            let target = webhdfs(&mut self.cluster, &path, "op=CREATE");
            let web = web_of(&mut self.cluster, node);
            let mut exchange = Exchange::begin(web, "PUT", &target, Some(BLOCK))?;
            exchange.send(9, 0, 100_000)?;
            drop(exchange);
            let length = wait::until("the end of the file", seconds(60), || {
                // It has no checksum until it is closed.
                let target = webhdfs(&mut self.cluster, &path, "op=GETFILECHECKSUM");
                let web = web_of(&mut self.cluster, STOCK);
                let sum = fetch(web, "GET", &target)?;
                let status = self.fs.call("status", json!({"path": path}));
                Ok(match status {
                    Ok(status) if sum.code == 200 => Seen::Done(status["length"].as_u64()),
                    other => Seen::NotYet(format!("{other:?} {}", sum.code)),
                })
            })?;
            left.push(length);
        }
        println!("web: a client that went away leaves {left:?} bytes, closed");
        let some = |left: &Option<u64>| left.is_some_and(|left| left > 0 && left <= 100_000);
        expect(left.iter().all(some), || format!("{left:?}"))?;
        passed()
    }

    pub fn preflight(&mut self) -> Result<Outcome> {
        let target = webhdfs(&mut self.cluster, "/any", "op=CREATE");
        let web = web_of(&mut self.cluster, OURS);
        let head = "Origin: http://nn\r\nAccess-Control-Request-Method: PUT\r\n";
        let answer = crate::ask::ask(web, &crate::ask::request("OPTIONS", &target, head))?;
        expect_eq("code", answer.code(), Some(200))?;
        for header in [
            "access-control-allow-origin: *",
            "access-control-allow-headers: accept, content-type",
            "access-control-allow-methods: PUT",
            "access-control-max-age: 1728000",
            "content-length: 0",
        ] {
            expect(answer.has(header), || answer.head.clone())?;
        }
        passed()
    }

    /// No request makes the node talk to others, or act with a token.
    pub fn refusals(&mut self) -> Result<Outcome> {
        let web = web_of(&mut self.cluster, OURS);
        let listener = std::net::TcpListener::bind("127.0.0.1:0");
        let listener = listener.map_err(TestkitError::file("listening on", "a port"))?;
        let own = listener
            .local_addr()
            .map_err(TestkitError::file("listening on", "a port"))?;
        let target = format!("/webhdfs/v1/f?op=OPEN&namenoderpcaddress={own}");
        let reply = fetch(web, "GET", &target)?;
        expect_eq("another NameNode", reply.code, 403)?;
        expect(reply.error().1.contains("none of the NameNodes"), || {
            format!("{:?}", reply.error())
        })?;
        let _ = listener.set_nonblocking(true);
        expect(listener.accept().is_err(), || "it was asked".into())?;
        let target = webhdfs(&mut self.cluster, "/f", "op=OPEN&delegation=abc");
        let reply = fetch(web, "GET", &target)?;
        expect_eq("a token", reply.code, 403)?;
        expect(
            reply.error().1.contains("a token with a bad identifier"),
            || format!("{:?}", reply.error()),
        )?;
        let reply = fetch(web, "GET", "/webhdfs/v1/f?op=OPEN")?;
        expect_eq("no NameNode", reply.code, 400)?;
        passed()
    }
}
