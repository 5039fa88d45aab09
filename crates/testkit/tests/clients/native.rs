//! The crate hdfs-native, with the ticket and the library of Kerberos that it finds by itself.

use bytes::Bytes;
use hayloft_testkit::TestkitError;
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, expect_eq};
use hdfs_native::{Client, ClientBuilder, HdfsError, WriteOptions};
use std::path::Path;

/// Bytes of a piece that is written at once: neither packets nor blocks are multiples of it.
const PIECE: usize = 70_001;

fn failed(error: HdfsError) -> TestkitError {
    TestkitError::Talk(format!("hdfs-native: {error}"))
}

/// A client of the configuration below `conf` writes `data` as `file` of `dir`, in three pieces one
/// behind the other, and reads that and the file `other`, which holds the same.
pub fn works(conf: &Path, data: &[u8], dir: &str, other: &str) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| TestkitError::Talk(error.to_string()))?;
    let builder = ClientBuilder::new().with_config_dir(conf.display().to_string());
    let builder = builder.with_io_runtime(runtime.handle().clone());
    let client = builder.build().map_err(failed)?;
    runtime.block_on(async {
        read(&client, other, data).await?;
        let (new, path) = (format!("{dir}/new"), format!("{dir}/file"));
        client.mkdirs(dir, 0o755, true).await.map_err(failed)?;
        write(&client, &new, data).await?;
        client.rename(&new, &path, false).await.map_err(failed)?;
        read(&client, &path, data).await?;
        let listed = client.list_status(dir, true).await.map_err(failed)?;
        let listed: Vec<_> = listed
            .iter()
            .map(|file| (&file.path, file.length))
            .collect();
        expect_eq("what is listed", listed, vec![(&path, data.len())])
    })
}

async fn write(client: &Client, path: &str, data: &[u8]) -> Result<()> {
    let (first, rest) = data.split_at(data.len() / 2);
    let (second, third) = rest.split_at(rest.len() - 777);
    let options = WriteOptions::default().overwrite(true);
    let mut file = client.create(path, options).await.map_err(failed)?;
    for part in [first, second, third] {
        for piece in part.chunks(PIECE) {
            let piece = Bytes::copy_from_slice(piece);
            file.write_bytes(piece).await.map_err(failed)?;
        }
        file.hsync().await.map_err(failed)?;
        file.close().await.map_err(failed)?;
        if !std::ptr::eq(part, third) {
            file = client.append(path).await.map_err(failed)?;
        }
    }
    Ok(())
}

async fn read(client: &Client, path: &str, data: &[u8]) -> Result<()> {
    let file = client.read(path).await.map_err(failed)?;
    let middle = data.len() / 2;
    let ranges = [
        (0, data.len()),
        (0, 1),
        (511, 3),
        ((1 << 20) - 1, 70_000),
        (middle, PIECE),
        (data.len() - 5, 5),
    ];
    for (at, length) in ranges {
        let got = file.read_range(at, length).await.map_err(failed)?;
        expect(got == data[at..at + length], || {
            format!("{path}: other bytes in {length} from {at}")
        })?;
    }
    Ok(())
}
