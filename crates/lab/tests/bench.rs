//! The benchmark itself, with tiny sizes: every row, the stock peer included, measures something.

use hayloft_lab::bench::figures::Figure;
use hayloft_lab::bench::record::Record;
use hayloft_lab::bench::rows::{self, Client, Workload};
use hayloft_lab::bench::{self, Disk, Options};
use hayloft_lab::error::Result;
use hayloft_lab::suite::{expect, passed};
use hayloft_lab::{LabError, Outcome, Suite};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    Suite::run("bench", |suite| {
        let dir = tempfile::tempdir_in(hayloft_lab::hadoop::repository_root().join("target"))
            .map_err(|error| LabError::Talk(format!("a temporary directory: {error}")))?;
        suite.case("every_row_measures_something", || tiny_run(dir.path()));
        Ok(())
    })
}

fn tiny_run(dir: &Path) -> Result<Outcome> {
    let cold = rustix::process::geteuid().is_root();
    let needs_root = |workload: Workload| {
        matches!(
            workload,
            Workload::Cold(_) | Workload::Pread(_) | Workload::ReadBack | Workload::Mixed
        )
    };
    let mut rows = rows::all();
    // O_DIRECT is a matter of the file system, and has a test of its own.
    rows.retain(|row| row.client != Client::None && (cold || !needs_root(row.workload)));
    let (disk, out) = (dir.join("disk"), dir.join("out"));
    let options = Options {
        rounds: 1,
        mib: 16,
        rows: rows.clone(),
        peers: ["stock", "posix", "null"].map(str::to_owned).to_vec(),
        blocks: 0,
        jvm_flags: vec!["-Xmx256m".into()],
        define: Vec::new(),
        disk: Disk::Directory(disk.clone()),
        out: out.clone(),
        command: "a test".into(),
        progress: Arc::new(|line| println!("    {line}")),
    };
    let record = bench::run(&options)?;
    let failures: Vec<_> = record.failures().collect();
    expect(failures.is_empty(), || format!("{failures:#?}"))?;
    for row in rows {
        for peer in ["stock", "posix", "null"] {
            let wanted = peer != "null" || row.workload.writes_only();
            let name = row.workload.to_string();
            let rate = record.values(&name, row.client, peer, Figure::Rate);
            let good = rate.len() == usize::from(wanted) && rate.iter().all(|rate| *rate > 0.0);
            expect(good, || format!("{row}, {peer}: {rate:?} MB/s"))?;
        }
    }
    let read = |name: &str| {
        let path = out.join(name);
        std::fs::read_to_string(&path).map_err(LabError::file("reading", path))
    };
    let again = Record::from_json(&read("results.json")?)?;
    expect(again.samples.len() == record.samples.len(), || {
        "results.json holds other samples than were measured".into()
    })?;
    expect(read("README.md")?.contains("## Bars"), || {
        "the page has no bars".into()
    })?;
    expect(read("rate.svg")?.contains("</svg>"), || {
        "the plot is not whole".into()
    })?;
    let left = std::fs::read_dir(&disk).map_or(0, Iterator::count);
    expect(left == 0, || {
        format!("{left} directories are left on the disk")
    })?;
    passed()
}
