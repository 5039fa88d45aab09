//! The web port beside a stock node's: what agents read is there, under the same names and types;
//! numbers move; a client that asks wrongly or slowly costs no other.

mod activity;
mod ask;
mod browser;
mod distcp;
mod exchange;
mod explorer;
mod metrics;
mod nodes;
mod page;
mod pair;
mod prometheus;
mod pushed;
mod striped;
mod texts;
mod tls;
mod webhdfs;

use ask::{ask, kind, request};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::http;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, ClusterBuilder, Driver, NodeSpec, Outcome, Suite, TestkitError};
use nodes::{both, web_of};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const BLOCK: u64 = 1 << 20;
const OURS: usize = 0;
const STOCK: usize = 1;
/// Connections that send nothing.
const IDLE: usize = 1000;

/// What Apache's pages and common agents read of a node: bean, by its beginning, and attributes.
const READ_BY_AGENTS: [(&str, &[&str]); 6] = [
    (
        "DataNodeInfo",
        &[
            "Version",
            "SoftwareVersion",
            "HttpPort",
            "RpcPort",
            "DataPort",
            "DatanodeHostname",
            "NamenodeAddresses",
            "BPServiceActorInfo",
            "VolumeInfo",
            "ClusterId",
            "XceiverCount",
            "XmitsInProgress",
            "DNStartedTimeInMillis",
            "SecurityEnabled",
        ],
    ),
    (
        "FSDatasetState",
        &[
            "Capacity",
            "DfsUsed",
            "Remaining",
            "NumFailedVolumes",
            "LastVolumeFailureDate",
        ],
    ),
    (
        "FSDatasetState-",
        &[
            "Capacity",
            "DfsUsed",
            "Remaining",
            "StorageInfo",
            "FailedStorageLocations",
        ],
    ),
    (
        "DataNodeActivity-",
        &[
            "BytesRead",
            "BytesWritten",
            "BlocksRead",
            "BlocksWritten",
            "VolumeFailures",
        ],
    ),
    (
        "DataNodeVolume-",
        &[
            "ReadIoRateNumOps",
            "ReadIoRateAvgTime",
            "WriteIoRateNumOps",
            "TotalDataFileIos",
        ],
    ),
    (
        "JvmMetrics",
        &["MemHeapUsedM", "MemHeapMaxM", "GcCount", "GcTimeMillis"],
    ),
];

fn main() -> ExitCode {
    Suite::run("web", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("beans_have_apache_s_names_and_types", |lab| lab.beans());
        // Before the stock node is started again, after which it lacks some for a while.
        on.case("texts_in_beans_are_apache_s", |lab| lab.texts());
        on.case("beans_that_count_are_whole", |lab| lab.whole_beans());
        on.case("the_same_work_counts_the_same", |lab| lab.same_work());
        on.case("rpc_calls_are_counted", |lab| lab.rpc_counts());
        on.case("audit_trail_is_apache_s", |lab| lab.trail());
        on.case("scanner_report_is_apache_s", |lab| lab.scanner_report());
        on.case("logs_are_the_log_and_nothing_else", |lab| lab.logs());
        on.case("numbers_are_those_of_the_work", |lab| lab.numbers());
        on.case("answers_have_hadoop_s_headers_and_codes", |lab| lab.codes());
        on.case("daemonlog_gets_and_sets_levels", |lab| lab.levels());
        on.case("prometheus_can_read_the_metrics", |lab| lab.metrics());
        on.case("page_s_data_are_those_of_the_node", |lab| lab.live());
        on.case("page_draws_what_happens", |lab| lab.drawn());
        on.case("idle_and_slow_connections_cost_no_other", |lab| lab.idle());
        let mut on = suite.group(start_with_stock_names, |lab, failed| {
            lab.cluster.conclude(failed);
        });
        on.case("prometheus_finds_stock_names", |lab| lab.stock_names());
        on.case("dashboard_asks_for_what_is_there", |lab| lab.dashboard());
        on.case("queries_of_the_dashboard_are_answered", |lab| {
            lab.dashboard_answers()
        });
        on.case("pushed_names_are_apache_s", |lab| lab.pushed());
        let mut on = suite.group(tls::secure, |lab, failed| lab.cluster.conclude(failed));
        on.case("tls_serves_the_same", |lab| lab.served());
        on.case("distcp_both_ways_over_swebhdfs", |lab| lab.copied());
        on.case("tls_refuses_what_is_no_tls", |lab| lab.refused());
        on.case("tls_takes_a_new_keystore", |lab| lab.renewed());
        on.case("tls_demands_certificates_of_clients", |lab| lab.demanded());
        let mut on = suite.group(webhdfs::files, |lab, failed| lab.cluster.conclude(failed));
        on.case("webhdfs_answers_questions_as_apache_s", |lab| {
            lab.questions()
        });
        on.case("webhdfs_creates_as_apache_s", |lab| lab.creations());
        on.case("webhdfs_files_of_every_size", |lab| lab.sizes());
        on.case("webhdfs_appends_anywhere", |lab| lab.appends());
        on.case("webhdfs_ranges", |lab| lab.ranges());
        on.case("webhdfs_open_files", |lab| lab.open_files());
        on.case("webhdfs_client_that_goes_away", |lab| lab.gone());
        on.case("webhdfs_preflight", |lab| lab.preflight());
        on.case("webhdfs_talks_to_no_other", |lab| lab.refusals());
        let mut on = suite.group(striped::losses, |lab, failed| lab.cluster.conclude(failed));
        on.case("webhdfs_striped_files", |lab| lab.striped());
        on.case("webhdfs_appends_to_striped_files", |lab| lab.append());
        on.case("webhdfs_corrupt_replica", |lab| lab.corrupt());
        on.case("webhdfs_nodes_killed_mid_write", |lab| lab.killed());
        on.case("webhdfs_after_the_nodes_are_back", |lab| lab.back());
        let mut on = suite.group(
            || pair::alone(Kind::Hayloft),
            |lab, failed| lab.cluster.conclude(failed),
        );
        on.case("webhdfs_through_the_namenode", |lab| lab.redirected());
        on.case("distcp_both_ways", |lab| lab.copied());
        let mut on = suite.group(
            || pair::alone(Kind::Apache),
            |lab, failed| lab.cluster.conclude(failed),
        );
        on.case("webhdfs_through_the_namenode_to_a_stock_node", |lab| {
            lab.redirected()
        });
        on.case("distcp_both_ways_with_a_stock_node", |lab| lab.copied());
        suite.case("explorer_page_as_before_a_stock_node", explorer::explored);
        let mut on = suite.group(pair::two_namenodes, |lab, failed| {
            lab.cluster.conclude(failed);
        });
        on.case("webhdfs_finds_the_active_namenode", |lab| lab.fails_over());
        on.case("webhdfs_rules_say_who_may_read", |lab| lab.readers());
        on.case("webhdfs_refuses_pages_of_others", |lab| lab.csrf());
        Ok(())
    })
}

fn start() -> Result<Lab> {
    start_as(Cluster::builder("web"))
}

/// Apache's node collects its metrics for a sink then, and `/jmx` has the means of other times.
fn start_with_stock_names() -> Result<Lab> {
    start_as(Cluster::builder("web-stock-names").conf("hadoop.prometheus.endpoint.enabled", true))
}

fn start_as(builder: ClusterBuilder) -> Result<Lab> {
    let cluster = builder
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 2)
        .node(NodeSpec::new(Kind::Hayloft))
        .node(NodeSpec::new(Kind::Apache))
        .start()?;
    let fs = cluster.driver()?;
    fs.put("/both", 3 * BLOCK, 1, json!({}))?;
    fs.check("/both", 3 * BLOCK, 1)?;
    Ok(Lab { cluster, fs })
}

struct Lab {
    cluster: Cluster,
    fs: Driver,
}

impl Lab {
    fn web(&mut self, node: usize) -> SocketAddr {
        web_of(&mut self.cluster, node)
    }

    fn all_beans(&mut self, node: usize) -> Result<Vec<Value>> {
        let text = http::get(self.web(node), "/jmx?qry=Hadoop:*")?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| TestkitError::Talk(format!("/jmx is no JSON: {error}")))?;
        Ok(value["beans"].as_array().cloned().unwrap_or_default())
    }

    /// The bean whose name begins so; the one without more when there are several.
    fn bean<'a>(beans: &'a [Value], begins: &str) -> Result<&'a Value> {
        let wanted = format!("Hadoop:service=DataNode,name={begins}");
        let named = |bean: &&Value| {
            let name = bean["name"].as_str().unwrap_or_default();
            name == wanted || begins.ends_with('-') && name.starts_with(&wanted)
        };
        let missing = || TestkitError::Expectation(format!("no bean {wanted}"));
        beans.iter().find(named).ok_or_else(missing)
    }

    fn beans(&mut self) -> Result<Outcome> {
        let (ours, stock) = (self.all_beans(OURS)?, self.all_beans(STOCK)?);
        for (begins, attributes) in READ_BY_AGENTS {
            let (own, apache) = (Self::bean(&ours, begins)?, Self::bean(&stock, begins)?);
            expect_eq("class", own["modelerType"].is_string(), true)?;
            for attribute in attributes {
                expect(!own[attribute].is_null(), || {
                    format!("{begins} lacks {attribute}")
                })?;
            }
            // What else ours has, Apache's has too, and as the same kind of value.
            for (name, value) in own.as_object().into_iter().flatten() {
                let theirs = &apache[name];
                expect(kind(value) == kind(theirs), || {
                    format!(
                        "{begins} {name}: {value} is {}, Apache's {theirs}",
                        kind(value)
                    )
                })?;
            }
            println!(
                "web: {begins}: {} of Apache's {} attributes",
                own.as_object().map_or(0, serde_json::Map::len),
                apache.as_object().map_or(0, serde_json::Map::len)
            );
        }
        passed()
    }

    fn number(&mut self, bean: &str, attribute: &str) -> Result<u64> {
        let beans = self.all_beans(OURS)?;
        let value = &Self::bean(&beans, bean)?[attribute];
        let missing = || TestkitError::Expectation(format!("{bean} {attribute} is {value}"));
        value.as_u64().ok_or_else(missing)
    }

    fn numbers(&mut self) -> Result<Outcome> {
        let activity = "DataNodeActivity-";
        let before = self.number(activity, "BytesWritten")?;
        expect(before >= 3 * BLOCK, || format!("{before} bytes written"))?;
        let (blocks, read) = (
            self.number(activity, "BlocksWritten")?,
            self.number(activity, "BytesRead")?,
        );
        self.fs.put("/more", 2 * BLOCK, 2, json!({}))?;
        let written = self.number(activity, "BytesWritten")? - before;
        expect_eq("bytes written", written, 2 * BLOCK)?;
        expect_eq(
            "blocks written",
            self.number(activity, "BlocksWritten")? - blocks,
            2,
        )?;
        // An append counts for what it adds.
        self.fs.append("a", "/more", 2, json!({}))?;
        self.fs.write("a", 1000)?;
        self.fs.handle("close", "a")?;
        let appended = self.number(activity, "BytesWritten")? - before - written;
        expect_eq("bytes appended", appended, 1000)?;
        // From this node alone.
        self.cluster.node(STOCK).stop()?;
        self.fs.check("/more", 2 * BLOCK + 1000, 2)?;
        let sent = self.number(activity, "BytesRead")? - read;
        expect(sent >= 2 * BLOCK, || format!("{sent} bytes read"))?;
        self.cluster.start_node(STOCK)?;
        self.cluster.wait_all_live()?;
        let used = self.number("FSDatasetState", "DfsUsed")?;
        expect(used >= 5 * BLOCK, || format!("{used} bytes used"))?;
        passed()
    }

    fn codes(&mut self) -> Result<Outcome> {
        let beans = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeInfo";
        let attribute = "/jmx?get=Hadoop:service=DataNode,name=DataNodeInfo::Version";
        for path in [
            beans,
            attribute,
            "/jmx?get=nope",
            "/conf",
            "/conf?name=dfs.blocksize",
            "/conf?name=no.such.key",
            "/stacks",
            "/nope",
            "/../../etc/passwd",
            "/%2e%2e/%2e%2e/etc/passwd",
        ] {
            let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
                ask(web, &request("GET", path, ""))
            })?;
            expect_eq(&format!("code of {path}"), ours.code(), stock.code())?;
            expect(!ours.body.contains("root:"), || {
                format!("{path}: {}", ours.body)
            })?;
            for header in [
                "X-Content-Type-Options: nosniff",
                "X-FRAME-OPTIONS: SAMEORIGIN",
                "X-XSS-Protection: 1; mode=block",
            ] {
                expect(ours.has(header), || {
                    format!("{path} lacks {header}: {}", ours.head)
                })?;
            }
        }
        // What Hadoop's own clients ask first.
        for path in ["/jmx", "/conf", "/logLevel"] {
            let [ours, stock] = both(&mut self.cluster, [OURS, STOCK], |web| {
                ask(web, &request("OPTIONS", path, ""))
            })?;
            println!(
                "web: OPTIONS {path}: {}, Apache's {}",
                ours.head, stock.head
            );
            expect_eq(path, ours.code(), stock.code())?;
        }
        let web = self.web(OURS);
        for method in ["POST", "DELETE"] {
            let answer = ask(web, &request(method, "/jmx", ""))?;
            expect_eq(method, answer.code(), Some(405))?;
        }
        let bad = ask(web, &request("GET", "/jmx?qry=nonsense", ""))?;
        expect_eq("a pattern that is none", bad.code(), Some(400))?;
        let json = ask(
            web,
            &request("GET", "/conf", "Accept: application/json\r\n"),
        )?;
        expect(json.body.contains("\"properties\""), || json.body.clone())?;
        let long = "x".repeat(100_000);
        let long = ask(web, &request("GET", "/", &format!("X-Long: {long}\r\n")));
        // It may have closed the connection while the rest was on its way.
        let refused = long.as_ref().is_ok_and(|answer| answer.code() == Some(431));
        expect(refused || long.is_err(), || {
            "a head of 100 kB is taken".into()
        })?;
        passed()
    }

    fn levels(&mut self) -> Result<Outcome> {
        let logger = "org.apache.hadoop.hdfs.server.datanode.DataXceiver";
        let web = self.web(OURS).to_string();
        let daemonlog = |asks: &[&str]| {
            let end = ["-protocol", "http"];
            let arguments = [&asks[..1], &[&web, logger], &asks[1..], &end].concat();
            Ok::<_, TestkitError>(self.fs.tool(class::DAEMONLOG, &arguments)?.ok()?.out)
        };
        for (asks, wanted) in [
            (&["-getlevel"][..], "INFO"),
            (&["-setlevel", "DEBUG"], "DEBUG"),
            (&["-getlevel"], "DEBUG"),
        ] {
            let said = daemonlog(asks)?;
            let effective = format!("Effective Level: {wanted}");
            expect(said.contains(&effective), || format!("{asks:?}: {said}"))?;
        }
        let log = self.cluster.node(OURS).log();
        let debug = || {
            let text = std::fs::read_to_string(&log);
            let text = text.map_err(TestkitError::file("reading", &log))?;
            Ok::<_, TestkitError>(text.matches("DEBUG hayloft_node::xceiver").count())
        };
        let before = debug()?;
        self.fs.check("/both", 3 * BLOCK, 1)?;
        self.fs.put("/logged", BLOCK, 3, json!({}))?;
        let more = debug()?;
        daemonlog(&["-setlevel", "INFO"])?;
        expect(more > before, || format!("{before} and {more} lines"))?;
        passed()
    }

    fn idle(&mut self) -> Result<Outcome> {
        let web = self.web(OURS);
        let mut idle = Vec::new();
        for n in 0..IDLE {
            let mut socket = TcpStream::connect(web)
                .map_err(TestkitError::file("connecting to", "the web port"))?;
            if n % 2 == 0 {
                // The beginning of a request, and no more.
                let _ = socket.write_all(b"GET /jmx HTT");
            }
            idle.push(socket);
        }
        let began = Instant::now();
        http::get(web, "/prom")?;
        expect(began.elapsed() < seconds(5), || {
            format!("a good client waited for {:?}", began.elapsed())
        })?;
        self.fs.check("/both", 3 * BLOCK, 1)?;
        let last = idle.last_mut();
        let last = last.ok_or_else(|| TestkitError::Talk("no connection".into()))?;
        wait::until("the end of idle connections", seconds(30), || {
            let _ = last.set_read_timeout(Some(Duration::from_millis(200)));
            Ok(match last.read(&mut [0; 64]) {
                Ok(_) => Seen::Done(()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Seen::Done(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })?;
        passed()
    }
}
