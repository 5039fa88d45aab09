//! Damaged replicas: no reader meets the damage, and the NameNode believes in them again.

use crate::Lab;
use hayloft_rpc::{RpcClient, RpcOptions};
use hayloft_testkit::Outcome;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::files::flip_byte;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_wire::proto::datanode::{ReportBadBlocksRequest, ReportBadBlocksResponse};
use hayloft_wire::proto::hdfs::{DatanodeInfo, ExtendedBlock, LocatedBlock};
use hayloft_wire::proto::namespace::{
    DatanodeReportType, GetDatanodeStorageReportRequest, GetDatanodeStorageReportResponse,
};
use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
use std::fs::File;
use std::path::{Path, PathBuf};

const HOST: usize = 0;
const OTHER: usize = 1;
/// Bytes of a meta file before its checksums.
const HEADER: usize = 7;
/// Bytes for each checksum.
const CHUNK: usize = 512;

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(TestkitError::file("reading", path))
}

/// The meta file beside a data file.
fn meta_of(data: &Path) -> Result<PathBuf> {
    let name = format!("{}_", data.file_name().unwrap_or_default().display());
    let dir = data.parent().unwrap_or(data);
    let entries = std::fs::read_dir(dir).map_err(TestkitError::file("listing", dir))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let found = paths.find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&name) && file.ends_with(".meta")
    });
    found.ok_or_else(|| TestkitError::Expectation(format!("no meta file of {}", data.display())))
}

fn cut(path: &Path, len: u64) -> Result<()> {
    let cut = |file: File| file.set_len(len);
    let file = File::options().write(true).open(path);
    file.and_then(cut)
        .map_err(TestkitError::file("cutting", path))
}

/// Damages the files of a replica in way `n`; gives the file that is damaged.
fn damage(data: &Path, n: usize) -> Result<PathBuf> {
    let meta = meta_of(data)?;
    match n % 8 {
        // The first and the last byte of the block, and some between.
        0 => flip_byte(data, 0)?,
        1 => flip_byte(data, (1 << 20) - 1)?,
        2 => (0..9).try_for_each(|n| flip_byte(data, n * 100_000))?,
        3 => cut(data, 500_000)?,
        4 => flip_byte(&meta, HEADER + 4 * 700)?,
        // The type and the size of the chunks.
        5 => flip_byte(&meta, 2)?,
        6 => flip_byte(&meta, HEADER - 2)?,
        _ => cut(&meta, (HEADER + 4 * CHUNK) as u64)?,
    }
    Ok(if n % 8 < 4 { data.to_owned() } else { meta })
}

impl Lab {
    /// Of a host whose partner is away clients get each byte, however replicas are damaged, and the
    /// NameNode hears of nothing.
    pub fn read_damaged(&mut self) -> Result<Outcome> {
        for host in 0..crate::HOSTS {
            self.some_protected(host)?;
        }
        let mut way = 0;
        // A group has one replica on a disk, and can do without it.
        for disk in 0..2 {
            // No file is open any more: what is in memory of one is not damaged.
            self.cluster.node(HOST).stop()?;
            self.cluster.start_node(HOST)?;
            self.cluster.wait_all_live()?;
            self.wait_protected(HOST)?;
            let on_it = self.disk(HOST, disk).data();
            let mut files = Vec::new();
            for data in self.data_files(HOST) {
                if data.starts_with(&on_it) {
                    let meta = meta_of(&data)?;
                    files.push([(data.clone(), read(&data)?), (meta.clone(), read(&meta)?)]);
                    damage(&data, way)?;
                    way += 1;
                }
            }
            self.cluster.node(OTHER).stop()?;
            let read_all = self.check_all();
            self.cluster.start_node(OTHER)?;
            self.cluster.wait_all_live()?;
            read_all?;
            self.expect_none_corrupt()?;
            wait::until("all damage mended", seconds(60), || {
                let files = files.iter().flatten();
                let bad = files.filter(|(path, good)| read(path).ok().as_ref() != Some(good));
                let bad: Vec<_> = bad.map(|(path, _)| path.display().to_string()).collect();
                Ok(if bad.is_empty() {
                    Seen::Done(())
                } else {
                    Seen::NotYet(bad.join(" "))
                })
            })?;
        }
        println!("parity: all read with {way} replicas damaged");
        expect(way >= 8, || format!("{way} replicas were damaged"))?;
        self.expect_none_corrupt()?;
        for (path, ..) in &self.files {
            self.fs.wait_replicas(path, crate::HOSTS, seconds(60))?;
        }
        self.check_all()?;
        passed()
    }

    /// A client tells the NameNode of a damaged replica. Once it is mended the NameNode counts it
    /// again, with another replica and as the only one.
    pub fn told_and_mended(&mut self) -> Result<Outcome> {
        for host in 0..crate::HOSTS {
            self.some_protected(host)?;
        }
        for replication in ["2", "1"] {
            let (path, bytes, seed) = self.files[0].clone();
            self.fs.fs(&["-setrep", "-w", replication, &path])?;
            let wanted = if replication == "2" { 2 } else { 1 };
            self.fs.wait_replicas(&path, wanted, seconds(60))?;
            let block = self.fs.blocks(&path)?.remove(0);
            let host = self.cluster.node_at(&block.nodes[0]).unwrap_or(HOST);
            let files = self.cluster.node(host).block_files(block.id);
            let data = files.into_iter().find(|path| path.extension().is_none());
            let data = data.ok_or_else(|| TestkitError::Expectation("no replica".into()))?;
            let good = read(&data)?;
            flip_byte(&data, 4321)?;
            self.report_bad(
                &block.nodes[0],
                ExtendedBlock {
                    pool_id: block.pool.clone(),
                    block_id: block.id.cast_unsigned(),
                    generation_stamp: block.generation,
                    num_bytes: Some(block.length),
                },
            )?;
            self.wait_corrupt(1)?;
            let (code, answer) = self.parity(host, &["scrub", "--wait", "60"])?;
            expect(code == Some(0), || answer.to_string())?;
            self.wait_corrupt(0)?;
            expect(read(&data)? == good, || "it is not mended".into())?;
            let now = self.fs.blocks(&path)?.remove(0);
            expect_eq("replicas", now.nodes.len(), wanted)?;
            expect(!now.corrupt, || format!("{now:?}"))?;
            self.fs.wait_healthy(&path, seconds(10))?;
            self.fs.check(&path, bytes, seed)?;
        }
        let path = self.files[0].0.clone();
        self.fs.fs(&["-setrep", "-w", "2", &path])?;
        passed()
    }

    fn wait_corrupt(&self, wanted: u64) -> Result<()> {
        let what = format!("{wanted} corrupt blocks at the NameNode");
        wait::until(&what, seconds(60), || {
            let corrupt = &self.cluster.namenode_bean(0, "FSNamesystem")?["CorruptBlocks"];
            Ok(if corrupt.as_u64() == Some(wanted) {
                Seen::Done(())
            } else {
                Seen::NotYet(corrupt.to_string())
            })
        })
    }

    /// Says what a client says that has found a replica damaged.
    fn report_bad(&mut self, node: &str, block: ExtendedBlock) -> Result<()> {
        let rpc = self.cluster.namenode(0).rpc();
        let talk = |error: String| TestkitError::Talk(error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| talk(error.to_string()))?;
        let reported = async {
            let client = RpcClient::new(rpc, CLIENT_NAMENODE_PROTOCOL, RpcOptions::default());
            let request = GetDatanodeStorageReportRequest {
                r#type: DatanodeReportType::Live.into(),
            };
            let answer: GetDatanodeStorageReportResponse =
                client.call("getDatanodeStorageReport", &request).await?;
            let mut nodes = answer.datanode_storage_reports.into_iter();
            let holder: Option<DatanodeInfo> = nodes.find_map(|report| {
                let id = &report.datanode_info.id;
                let here = format!("{}:{}", id.ip_addr, id.xfer_port) == node;
                here.then_some(report.datanode_info)
            });
            let located = LocatedBlock {
                b: block,
                locs: holder.into_iter().collect(),
                ..LocatedBlock::default()
            };
            let request = ReportBadBlocksRequest {
                blocks: vec![located],
            };
            let answer: std::result::Result<ReportBadBlocksResponse, _> =
                client.call("reportBadBlocks", &request).await;
            answer
        };
        runtime
            .block_on(reported)
            .map(drop)
            .map_err(|error| talk(error.to_string()))
    }
}
