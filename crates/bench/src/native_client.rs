//! The crate hdfs-native as its users have it: its own threads, its own checksums.

use super::rig::BLOCK_BYTES;
use ::hdfs_native::{Client, ClientBuilder, WriteOptions};
use bytes::Bytes;
use futures_util::StreamExt as _;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::load::{LatencyTally, LoadOutcome, Offsets, Preads};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Bytes of a piece that is written at once, and after which the data repeats.
const PIECE: usize = 1 << 20;

/// A client whose files go to certain nodes.
pub(super) struct NativeClient {
    runtime: Runtime,
    client: Client,
    data: Bytes,
    replication: u32,
}

fn failed(error: impl std::fmt::Display) -> TestkitError {
    TestkitError::Talk(format!("hdfs-native: {error}"))
}

impl NativeClient {
    /// A client of the NameNode at `namenode` (`host:port`) whose new files lie on `nodes`.
    ///
    /// # Errors
    /// When threads cannot be started or no port is free.
    pub(super) fn new(namenode: &str, nodes: &[String]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.map_err(failed)?;
        let relay = listener.local_addr().map_err(failed)?;
        let serving = super::relay::serve(listener, namenode.to_owned(), nodes.to_vec());
        runtime.spawn(serving);
        let builder = ClientBuilder::new().with_url(format!("hdfs://{relay}"));
        let client = builder.with_io_runtime(runtime.handle().clone()).build();
        let mut data = vec![0; PIECE];
        hayloft_testkit::pattern::fill(1, 0, &mut data);
        Ok(Self {
            client: client.map_err(failed)?,
            runtime,
            data: data.into(),
            replication: u32::try_from(nodes.len()).unwrap_or(1),
        })
    }

    /// Runs `streams` tasks at the same time.
    fn run<F>(&self, streams: usize, work: impl Fn(usize) -> F) -> Result<LoadOutcome>
    where
        F: Future<Output = Result<LatencyTally>> + Send + 'static,
    {
        let tasks: Vec<F> = (0..streams).map(work).collect();
        let mut tally = LatencyTally::default();
        let began = Instant::now();
        self.runtime.block_on(async {
            let running: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
            for task in running {
                tally.add(&task.await.map_err(failed)??);
            }
            Ok::<_, TestkitError>(())
        })?;
        let took = began.elapsed();
        Ok(LoadOutcome { tally, took })
    }

    fn writing(&self) -> Writing {
        let options = WriteOptions::default()
            .block_size(BLOCK_BYTES)
            .replication(self.replication)
            .overwrite(true)
            .create_parent(true);
        Writing {
            client: self.client.clone(),
            options,
            data: self.data.clone(),
        }
    }

    /// Writes files of `bytes` bytes at the same time, each to all of its nodes.
    ///
    /// # Errors
    /// What the client says.
    pub(super) fn write(&self, dir: &str, streams: usize, bytes: u64) -> Result<LoadOutcome> {
        self.run(streams, |stream| {
            let (writing, path) = (self.writing(), format!("{dir}/s{stream}"));
            async move {
                let mut tally = LatencyTally::default();
                writing.file(&path, bytes, &mut tally).await?;
                Ok(tally)
            }
        })
    }

    /// Creates `files` files of `bytes` bytes one after the other, by so many clients.
    ///
    /// # Errors
    /// What the client says.
    pub(super) fn create(
        &self,
        dir: &str,
        clients: usize,
        files: usize,
        bytes: u64,
    ) -> Result<LoadOutcome> {
        self.run(clients, |client| {
            let (writing, dir) = (self.writing(), format!("{dir}/c{client}"));
            async move {
                let mut tally = LatencyTally::default();
                for number in 0..files {
                    let path = format!("{dir}/s{number}");
                    writing.file(&path, bytes, &mut tally).await?;
                }
                Ok(tally)
            }
        })
    }

    /// Reads whole files at the same time and compares every byte.
    ///
    /// # Errors
    /// What the client says; [`TestkitError::Expectation`] when bytes differ.
    pub(super) fn read(&self, dir: &str, streams: usize) -> Result<LoadOutcome> {
        self.run(streams, |stream| {
            let (client, path) = (self.client.clone(), format!("{dir}/s{stream}"));
            let data = self.data.clone();
            async move {
                let began = Instant::now();
                let reader = client.read(&path).await.map_err(failed)?;
                let mut coming = reader.read_range_stream(0, reader.file_length());
                let mut at = 0;
                while let Some(bytes) = coming.next().await {
                    at = compared(&data, at, &bytes.map_err(failed)?)?;
                }
                let mut tally = LatencyTally::default();
                tally.count(at as u64, began.elapsed());
                Ok(tally)
            }
        })
    }

    /// Reads ranges at random places of the files, and compares them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn pread(&self, dir: &str, files: usize, preads: &Preads) -> Result<LoadOutcome> {
        let open = async {
            let mut readers = Vec::new();
            for file in 0..files {
                let path = format!("{dir}/s{file}");
                readers.push(self.client.read(&path).await.map_err(failed)?);
            }
            Ok::<_, TestkitError>(readers)
        };
        let readers = Arc::new(self.runtime.block_on(open)?);
        let share = preads.ops.div_ceil(preads.in_flight.max(1) as u64);
        let len = usize::try_from(preads.bytes).map_err(failed)?;
        let seed = preads.seed;
        self.run(preads.in_flight, |seat| {
            let (readers, data) = (Arc::clone(&readers), self.data.clone());
            let mut offsets = Offsets::new(seed.wrapping_add((seat as u64) << 32));
            async move {
                let mut below = move |limit: usize| {
                    let number = offsets.below(limit as u64);
                    usize::try_from(number).expect("it is below a usize")
                };
                let mut tally = LatencyTally::default();
                for _ in 0..share {
                    let reader = &readers[below(readers.len())];
                    let places = reader.file_length().saturating_sub(len) + 1;
                    let at = below(places);
                    let began = Instant::now();
                    let bytes = reader.read_range(at, len).await.map_err(failed)?;
                    tally.count(len as u64, began.elapsed());
                    compared(&data, at, &bytes)?;
                }
                Ok(tally)
            }
        })
    }
}

/// What a stream needs to write files.
struct Writing {
    client: Client,
    options: WriteOptions,
    data: Bytes,
}

impl Writing {
    async fn file(&self, path: &str, bytes: u64, tally: &mut LatencyTally) -> Result<()> {
        let began = Instant::now();
        let options = self.options.clone();
        let mut out = self.client.create(path, options).await.map_err(failed)?;
        let mut left = bytes;
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let written = out.write_bytes(self.data.slice(..piece)).await;
            left -= written.map_err(failed)? as u64;
        }
        out.close().await.map_err(failed)?;
        tally.count(bytes, began.elapsed());
        Ok(())
    }
}

/// Compares bytes at `at` of a file with what was written; where they end.
fn compared(data: &[u8], mut at: usize, mut bytes: &[u8]) -> Result<usize> {
    while !bytes.is_empty() {
        let from = at % PIECE;
        let piece = bytes.len().min(PIECE - from);
        let (now, rest) = bytes.split_at(piece);
        if now != &data[from..from + piece] {
            let problem = format!("hdfs-native read other bytes than were written, at {at}");
            return Err(TestkitError::Expectation(problem));
        }
        at += piece;
        bytes = rest;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_compared_across_the_pieces() {
        let mut data = vec![0; PIECE];
        hayloft_testkit::pattern::fill(1, 0, &mut data);
        let across = [&data[PIECE - 10..], &data[..20]].concat();
        assert_eq!(
            compared(&data, PIECE - 10, &across).expect("equal"),
            PIECE + 20
        );
        compared(&data, PIECE - 9, &across).expect_err("they lie elsewhere");
    }
}
