//! Stock shell and client operations on healthy nodes, one at a time.

mod checks;
mod files;
mod writes;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Suite, TestkitError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    Suite::run("shell", |suite| {
        let mut cluster = Cluster::builder("shell")
            .nodes(3, Kind::under_test())
            .conf("dfs.blocksize", BLOCK)
            .conf(
                "dfs.client.block.write.replace-datanode-on-failure.policy",
                "NEVER",
            )
            .start()?;
        let driver = cluster.driver()?;
        let local = cluster.dir().join("local");
        std::fs::create_dir_all(&local).map_err(TestkitError::file("creating", &local))?;
        let lab = Lab {
            fs: &driver,
            local: &local,
        };
        suite.case("put_and_get_of_every_size", || lab.put_and_get());
        suite.case("cat_tail_head_text", || lab.cat_tail_head_text());
        suite.case("text_of_a_sequence_file", || lab.sequence_file());
        suite.case("tail_follows_a_growing_file", || lab.tail_follow());
        suite.case("get_with_crc_and_put_with_threads", || {
            lab.get_and_put_options()
        });
        suite.case("append_to_file", || lab.append_to_file());
        suite.case("copy_move_getmerge_rm_expunge", || lab.copies());
        suite.case("checksums_of_files", || lab.checksums());
        suite.case("truncate", || lab.truncate());
        suite.case("namespace_commands", || lab.namespace_commands());
        suite.case("setrep_down_and_up", || lab.setrep());
        suite.case("ranges", || lab.ranges());
        suite.case("checksum_types_and_sizes", || lab.checksum_types(&cluster));
        suite.case("append_at_every_chunk_position", || lab.appends());
        suite.case("append_with_another_checksum", || {
            lab.append_other_checksum()
        });
        suite.case("hflush_and_hsync_visibility", || lab.visibility());
        suite.case("read_while_being_written", || lab.read_while_written());
        suite.case("idle_writer_keeps_its_pipeline", || lab.idle_writer());
        suite.case("packet_sizes_and_caching_hints", || lab.client_settings());
        suite.case("clients_set_for_protection", || lab.protected_clients());
        suite.case("concat", || lab.concat());
        suite.case("many_small_files", || lab.many_small_files());
        let log = cluster.namenode(0).log();
        suite.case("closes_find_their_block_reported", || lab.closes(&log));
        suite.case("eight_streams_at_once", || lab.streams());
        suite.case("admin_queries", || lab.admin_queries(cluster.node(0)));
        suite.case("cache_directives_do_no_harm", || lab.cache_directives());
        suite.case("verify_meta_of_all_replicas", || lab.verify_metas(&cluster));
        suite.case("verify_meta_notices_a_flipped_byte", || {
            lab.verify_meta_can_fail(&cluster)
        });
        suite.case("fsck_healthy", || lab.fsck());
        suite.conclude(cluster);
        drop(driver);
        told_to_encrypt(suite)
    })
}

/// A NameNode that tells clients to encrypt their data transfer, over a node that cannot: the
/// client gets an error in time, and a client of another NameNode could go on.
fn told_to_encrypt(suite: &mut Suite) -> Result<()> {
    let node = NodeSpec::new(Kind::under_test())
        .conf("dfs.encrypt.data.transfer", false)
        .conf("dfs.block.access.token.enable", false);
    let cluster = Cluster::builder("encrypt")
        .node(node)
        .conf("dfs.replication", 1)
        .conf("dfs.encrypt.data.transfer", true)
        // The maker of block tokens makes the key to encrypt with.
        .conf("dfs.block.access.token.enable", true)
        .conf("dfs.client.block.write.retries", 1)
        .start()?;
    let fs = cluster.driver()?;
    suite.case("client_told_to_encrypt_is_refused_in_time", || {
        let start = Instant::now();
        let refused = fs.put("/secret", 1000, 1, json!({}));
        let took = start.elapsed();
        let Err(TestkitError::Client { class, .. }) = refused else {
            return Err(TestkitError::Expectation(format!(
                "written in the clear or failed otherwise: {refused:?}"
            )));
        };
        expect(
            class.ends_with("IOException") || class.ends_with("RemoteException"),
            || class,
        )?;
        expect(took < seconds(60), || format!("it took {took:?}"))?;
        passed()
    });
    suite.conclude(cluster);
    Ok(())
}

struct Lab<'a> {
    fs: &'a Driver,
    local: &'a Path,
}

impl Lab<'_> {
    fn local(&self, name: &str) -> (PathBuf, String) {
        let path = self.local.join(name);
        let text = path.display().to_string();
        (path, text)
    }

    fn shell(&self, args: &[&str], more: Value) -> Result<hayloft_testkit::driver::ToolRun> {
        self.fs.tool_with(class::FS_SHELL, args, more)
    }
}
