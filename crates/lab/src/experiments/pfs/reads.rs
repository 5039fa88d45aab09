//! Figure 4: one client reads a file of another host's server in calls of growing size.

use hayloft_bench::fair::stock::Medium;
use serde_json::json;

use super::session::{Hosts, Session, Way};
use crate::describe::{DataNodeSpec, Description, HostSpec};
use crate::experiments::testbeds::peers_on;
use crate::runner::Run;
use crate::runner::options::ExperimentOptions;
use hayloft_testkit::error::Result;

/// Links of the paper's two clusters, Mbit/s, by what their rows are called.
pub(super) const LINKS: [(&str, u32); 2] = [("4, 1 Gbit/s", 1000), ("4, 10 Gbit/s", 10_000)];
/// The file is so many times `--mib` long.
const FILE_OF_MIB: u64 = 4;
/// Sizes of calls with their names.
pub(super) const SIZES: [(u32, &str); 4] = [
    (4 << 10, "4 KiB"),
    (64 << 10, "64 KiB"),
    (1 << 20, "1 MiB"),
    (4 << 20, "4 MiB"),
];
pub(super) const PREADS: &str = "64 KiB, positioned";
pub(super) const BUFFERED: &str = "pfs://";
pub(super) const UNBUFFERED: &str = "pfs://, no buffer";
pub(super) const BUFFERED_DIRECT: &str = "pfs://, direct mount";
pub(super) const FILE: &str = "file://";
pub(super) const FILE_DIRECT: &str = "file://, direct mount";
const PLAIN: [Way; 6] = [
    Way::Plain(BUFFERED, "", false),
    Way::Plain(UNBUFFERED, "random", false),
    Way::Plain(BUFFERED_DIRECT, "", true),
    Way::Plain("pfs://, no buffer, direct mount", "random", true),
    Way::File(FILE, false),
    Way::File(FILE_DIRECT, true),
];

fn described(options: &ExperimentOptions, link_mbit: u32) -> Description {
    let host = |at| HostSpec {
        name: format!("s{at}"),
        client: at == 0,
        nodes: vec![DataNodeSpec {
            kind: "apache".into(),
            ..DataNodeSpec::default()
        }],
        ..HostSpec::default()
    };
    let mut described = Description {
        sync_on_close: true,
        conf: options.conf.clone(),
        ..Description::one_rack("pfs", "stock", link_mbit, (0..2).map(host).collect())
    };
    described.workload.block_mib = options.block_mib;
    described
}

/// Carries it out with links of one rate.
pub(super) fn carry_out(run: &mut Run<'_>, (figure, link_mbit): (&'static str, u32)) -> Result<()> {
    let (described, dir) = (
        described(run.options, link_mbit),
        run.work.join("read-sizes"),
    );
    let mut hosts = Hosts::start(described, &["s0".into()], &dir, run.tell)?;
    let remote = hosts.testbed.nodes()[1].address.clone();
    let bytes = (u64::from(run.options.mib) * FILE_OF_MIB) << 20;
    let file = |way: Way| (place(way), json!({"bytes": bytes, "favored": [&remote]}));
    Session::begin(&hosts)?.all((PLAIN[0], "write"), "writeStreams", |_| file(PLAIN[0]))?;
    let nodes = peers_on(Medium::Own).into_iter();
    let nodes = nodes.map(|(name, kind)| (Way::Hdfs(name, 1), Some(kind)));
    let ways: Vec<_> = PLAIN
        .map(|way| (way, None))
        .into_iter()
        .chain(nodes)
        .collect();
    let peers: Vec<_> = ways.iter().map(|(way, _)| ("2", way.name())).collect();
    run.rounds(figure, &peers, &mut |turn, at| {
        let (way, kind) = ways[at];
        hosts.be(kind, turn)?;
        let warm = hosts.warm(way, turn)?;
        let mut session = Session::begin(&hosts)?;
        // A kind of nodes reads what it wrote itself.
        let wrote = usize::from(kind.is_some());
        if wrote > 0 {
            session.all((way, "write"), "writeStreams", |_| file(way))?;
        }
        read(&mut session, way)?;
        if wrote > 0 {
            session.remove(way, &place(way))?;
        }
        session.give(turn, warm, wrote);
        Ok(())
    })
}

/// Where a way has the file.
fn place(way: Way) -> String {
    match way {
        Way::Hdfs(name, _) => format!("remote/{name}"),
        _ => "on-s1/remote".into(),
    }
}

/// Every size once.
fn read(session: &mut Session<'_>, way: Way) -> Result<()> {
    for (buffer, what) in SIZES {
        let file = |_| (place(way), json!({ "buffer": buffer }));
        session.all((way, what), "readStreams", file)?;
    }
    if matches!(way, Way::Plain(BUFFERED, ..) | Way::File(FILE, _)) {
        let file = |_| (place(way), json!({"buffer": 64 << 10, "pread": true}));
        session.all((way, PREADS), "readStreams", file)?;
    }
    Ok(())
}
