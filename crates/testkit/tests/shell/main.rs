//! Stock shell and client operations on healthy nodes, one at a time.

mod checks;
mod files;
mod writes;

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::class;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, passed, seconds};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, Suite, TestkitError};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Block size of the cluster's clients, bytes.
const BLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    Suite::run("shell", |suite| {
        let mut on = suite.group(start, |lab, failed| lab.cluster.conclude(failed));
        on.case("put_and_get_of_every_size", |lab| lab.put_and_get());
        on.case("cat_tail_head_text", |lab| lab.cat_tail_head_text());
        on.case("text_of_a_sequence_file", |lab| lab.sequence_file());
        on.case("tail_follows_a_growing_file", |lab| lab.tail_follow());
        on.case("get_with_crc_and_put_with_threads", |lab| {
            lab.get_and_put_options()
        });
        on.case("append_to_file", |lab| lab.append_to_file());
        on.case("copy_move_getmerge_rm_expunge", |lab| lab.copies());
        on.case("checksums_of_files", |lab| lab.checksums());
        on.case("truncate", |lab| lab.truncate());
        on.case("namespace_commands", |lab| lab.namespace_commands());
        on.case("setrep_down_and_up", |lab| lab.setrep());
        on.case("ranges", |lab| lab.ranges());
        on.case("checksum_types_and_sizes", |lab| lab.checksum_types());
        on.case("append_at_every_chunk_position", |lab| lab.appends());
        on.case("append_with_another_checksum", |lab| {
            lab.append_other_checksum()
        });
        on.case("hflush_and_hsync_visibility", |lab| lab.visibility());
        on.case("read_while_being_written", |lab| lab.read_while_written());
        on.case("idle_writer_keeps_its_pipeline", |lab| lab.idle_writer());
        on.case("packet_sizes_and_caching_hints", |lab| {
            lab.client_settings()
        });
        on.case("clients_set_for_protection", |lab| lab.protected_clients());
        on.case("concat", |lab| lab.concat());
        on.case("many_small_files", |lab| lab.many_small_files());
        on.case("closes_find_their_block_reported", |lab| lab.closes());
        on.case("eight_streams_at_once", |lab| lab.streams());
        on.case("admin_queries", |lab| lab.admin_queries());
        on.case("cache_directives_do_no_harm", |lab| lab.cache_directives());
        on.case("verify_meta_of_all_replicas", |lab| lab.verify_metas());
        on.case("verify_meta_notices_a_flipped_byte", |lab| {
            lab.verify_meta_can_fail()
        });
        on.case("fsck_healthy", |lab| lab.fsck());
        let mut on = suite.group(told_to_encrypt, |(cluster, _fs), failed| {
            cluster.conclude(failed);
        });
        on.case("client_told_to_encrypt_is_refused_in_time", |(_, fs)| {
            refused_in_time(fs)
        });
        Ok(())
    })
}

fn start() -> Result<Lab> {
    let cluster = Cluster::builder("shell")
        .nodes(3, Kind::under_test())
        .conf("dfs.blocksize", BLOCK)
        .conf(
            "dfs.client.block.write.replace-datanode-on-failure.policy",
            "NEVER",
        )
        .start()?;
    let local = cluster.dir().join("local");
    std::fs::create_dir_all(&local).map_err(TestkitError::file("creating", &local))?;
    Ok(Lab {
        fs: cluster.driver()?,
        cluster,
        local,
    })
}

/// A NameNode that tells clients to encrypt their data transfer, over a node that cannot: the
/// client gets an error in time, and a client of another NameNode could go on.
fn told_to_encrypt() -> Result<(Cluster, Driver)> {
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
    Ok((cluster, fs))
}

fn refused_in_time(fs: &Driver) -> Result<Outcome> {
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
}

struct Lab {
    // Dropped first to last: the client ends before its cluster.
    fs: Driver,
    cluster: Cluster,
    local: PathBuf,
}

impl Lab {
    fn local(&self, name: &str) -> (PathBuf, String) {
        let path = self.local.join(name);
        let text = path.display().to_string();
        (path, text)
    }

    fn shell(&self, args: &[&str], more: Value) -> Result<hayloft_testkit::driver::ToolRun> {
        self.fs.tool_with(class::FS_SHELL, args, more)
    }
}
