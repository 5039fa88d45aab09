//! A node whose blocks are objects of ADIOS2, behind stub files.

use super::compile;
use super::odd_node::{NODES, ODD, OddNode};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::scratch;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, NodeSpec, Outcome, Suite, TestkitError, VolumeSpec};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Block size of the cluster's clients, bytes: three objects and a part of one.
const BLOCK: u64 = (3 << 20) + 512_000;

pub fn cases(suite: &mut Suite) {
    match library() {
        Err(why) => suite.case("objects_of_adios", move || Ok(Outcome::Skipped(why))),
        Ok(library) => {
            let start = move || start(&library);
            let mut on = suite.group(start, |lab, failed| lab.odd.cluster.conclude(failed));
            on.case("objects_of_adios", |lab| lab.served());
            on.case("apache_s_node_ends_on_objects_of_adios", |lab| {
                lab.refused()
            });
        }
    }
}

fn library() -> std::result::Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/adios");
    let dir = std::env::var_os("HAYLOFT_ADIOS_DIR").map_or(target, PathBuf::from);
    let library = dir.join("adios2/libadios2_c.so").canonicalize();
    library.map_err(|_| "ADIOS2 is not here: run scripts/fetch-adios".into())
}

fn start(library: &Path) -> Result<AdiosLab> {
    let base = scratch("adios-")?;
    let plugin = base.path().join("adios.so");
    let libraries = ["-ldl", "-lpthread"].map(String::from);
    compile::plugin_with("../../plugins/adios.c", &plugin, &[], &libraries);
    let volume = base.path().join("volume");
    let (so, library) = (plugin.display(), library.display());
    let engine = format!("plugin:{so} library={library} size=257M chunk=1M step=256K");
    let spec = NodeSpec::new(Kind::Hayloft)
        .volumes(vec![VolumeSpec::at(&volume)])
        .conf("hayloft.io.engine", engine);
    let cluster = Cluster::builder("adios")
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.namenode.fs-limits.min-block-size", 1 << 20)
        .conf("dfs.replication", NODES)
        .node(spec)
        .nodes(NODES - 1, Kind::Hayloft)
        .start()?;
    Ok(AdiosLab {
        odd: OddNode::new(cluster)?,
        volume,
        _base: base,
    })
}

struct AdiosLab {
    odd: OddNode,
    volume: PathBuf,
    // Dropped after the nodes have ended.
    _base: tempfile::TempDir,
}

impl AdiosLab {
    /// Objects and tails of blocks, by their ends.
    fn chunks(&self) -> Result<(usize, usize)> {
        let dir = self.volume.join("hayloft.adios");
        let list = std::fs::read_dir(&dir).map_err(TestkitError::file("listing", &dir))?;
        let names = list.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: Vec<String> = names.filter(|name| name != "0.tail").collect();
        let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
        Ok((count(".bp"), count(".tail")))
    }

    fn served(&mut self) -> Result<Outcome> {
        self.odd.write_all_ways(9, BLOCK)?;
        self.odd.check_odd()?;
        // Those that close late become objects behind the writer.
        wait::until("objects of whole chunks", seconds(30), || {
            let (objects, tails) = self.chunks()?;
            Ok(if objects > 20 && tails > 0 {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{objects} objects, {tails} tails"))
            })
        })?;
        for round in 0..3 {
            self.odd.kill_while_writing(round, BLOCK)?;
        }
        // More than the device has in all, half of it at a time.
        for _ in 0..4 {
            let write = json!({
                "path": "/round", "streams": 1, "bytes": 130 << 20, "replication": 1,
                "blockSize": BLOCK, "favored": [self.odd.cluster.node(ODD).xfer()],
            });
            self.odd.fs.call("writeStreams", write)?;
            let read = json!({"path": "/round", "streams": 1});
            let answer = self.odd.fs.call("readStreams", read)?;
            expect(answer["equal"] == true, || format!("other bytes: {answer}"))?;
            let there = self.odd.cluster.node(ODD).all_block_files().len();
            expect(there > 60, || format!("{there} files: they went elsewhere"))?;
            self.odd.fs.fs(&["-rm", "-r", "-skipTrash", "/round"])?;
            self.odd.wait_removed(60)?;
        }
        self.odd.check_all()?;
        passed()
    }

    /// It tells no NameNode of a block, and changes nothing.
    fn refused(&mut self) -> Result<Outcome> {
        self.odd.stop()?;
        let before = self.chunks()?;
        let spec = NodeSpec::new(Kind::Apache).volumes(vec![VolumeSpec::at(&self.volume)]);
        let (_, log) = self.odd.cluster.refused_node(spec)?;
        let told = log.contains("Successfully sent block report");
        expect(log.contains("-1057") && !told, || log.clone())?;
        expect_eq("objects and tails", self.chunks()?, before)?;
        self.odd.start()?;
        self.odd.check_odd()?;
        passed()
    }
}
