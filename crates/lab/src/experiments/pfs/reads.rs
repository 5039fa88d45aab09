//! Figure 4: one client reads a file of another host's server in calls of growing size.

use std::path::Path;

use serde_json::json;

use super::moosefs::MooseFs;
use super::session::{self, PfsRow, Session, Way};
use crate::describe::{DataNodeSpec, Description, HostSpec};
use crate::experiments::ExperimentOptions;
use crate::up::Testbed;
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
    Description {
        conf: options.conf.clone(),
        ..Description::one_rack("pfs", "stock", link_mbit, (0..2).map(host).collect())
    }
}

/// Carries it out in `dir` with links of one rate.
pub(super) fn run(
    options: &ExperimentOptions,
    (figure, link_mbit): (&'static str, u32),
    dir: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<PfsRow>> {
    let described = described(options, link_mbit);
    crate::up::down(&described.name, dir)?;
    let mut testbed = Testbed::up(described, dir, false, tell)?;
    let moose = MooseFs::start(&testbed)?;
    let clients = session::clients(&testbed, &["s0".into()])?;
    let bytes = (u64::from(options.mib) * FILE_OF_MIB) << 20;
    let remote = testbed.nodes()[1].address.clone();
    let mut rows = Vec::new();
    let mut ways = PLAIN.to_vec();
    ways.push(Way::Hdfs(Way::STOCK, 1));
    for kind in [Way::STOCK, Way::HAYLOFT] {
        if kind == Way::HAYLOFT {
            testbed.exchange_nodes("hayloft")?;
            ways = vec![Way::Hdfs(kind, 1)];
        }
        let mut session = Session::begin(figure, (&testbed, &moose), &clients)?;
        for way in [ways[0], ways[ways.len() - 1]] {
            let file = || (place(way), json!({"bytes": bytes, "favored": [&remote]}));
            session.all((way, "write"), None, "writeStreams", |_| file())?;
        }
        // The first round loads and compiles classes.
        for round in 0..=options.rounds {
            tell(&format!("Figure {figure}, {kind}: round {round}"));
            for &way in &ways {
                read(&mut session, way, round.checked_sub(1))?;
            }
        }
        rows.extend(session.end());
    }
    Ok(rows)
}

/// Where a way has the file.
fn place(way: Way) -> String {
    match way {
        Way::Hdfs(name, _) => format!("remote/{}", name.len()),
        _ => "on-s1/remote".into(),
    }
}

/// Every size once.
fn read(session: &mut Session<'_>, way: Way, round: Option<usize>) -> Result<()> {
    for (buffer, what) in SIZES {
        let file = |_| (place(way), json!({ "buffer": buffer }));
        session.all((way, what), round, "readStreams", file)?;
    }
    if matches!(way, Way::Plain(BUFFERED, ..) | Way::File(FILE, _)) {
        let file = |_| (place(way), json!({"buffer": 64 << 10, "pread": true}));
        session.all((way, PREADS), round, "readStreams", file)?;
    }
    Ok(())
}
