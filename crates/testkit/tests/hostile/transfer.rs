//! Lies that only the data transfer protocol lets a peer tell.

use crate::bytes::{field, number, operation};
use crate::{BLOCK, Lab, Port};
use hayloft_testkit::Outcome;
use hayloft_testkit::error::Result;
use hayloft_testkit::process_usage;
use hayloft_testkit::suite::{expect, passed, seconds};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;

impl Lab {
    pub fn read_block(&self, offset: u64, length: u64, id: i64) -> Vec<u8> {
        let block = self.block_proto(id, self.block.generation);
        let base = field(1, &block);
        let header = [field(1, &base), field(2, b"hostile")].concat();
        operation(
            81,
            &[field(1, &header), number(2, offset), number(3, length)].concat(),
        )
    }

    pub fn block_proto(&self, id: i64, generation: u64) -> Vec<u8> {
        let id = u64::from_ne_bytes(id.to_ne_bytes());
        [
            field(1, self.block.pool.as_bytes()),
            number(2, id),
            number(3, generation),
            number(4, 0),
        ]
        .concat()
    }

    /// Set-up of a write of a new block by a client, one node in the pipeline.
    pub fn write_block(&self, id: i64) -> Vec<u8> {
        let base = field(1, &self.block_proto(id, 1_000_000));
        let header = [field(1, &base), field(2, b"hostile")].concat();
        let checksum = [number(1, 2), number(2, 512)].concat();
        let body = [
            field(1, &header),
            number(4, 6), // stage PIPELINE_SETUP_CREATE
            number(5, 1),
            number(6, 0),
            number(7, 0),
            number(8, 0),
            field(9, &checksum),
        ];
        operation(80, &body.concat())
    }

    /// Packets whose lengths do not fit each other, in a write that began well.
    pub fn lying_packets(&self) -> Result<Outcome> {
        let header = |offset: u64, sequence: u64, last: u8, data: u32| {
            let mut bytes = vec![0x09];
            bytes.extend(offset.to_le_bytes());
            bytes.push(0x11);
            bytes.extend(sequence.to_le_bytes());
            bytes.extend([0x18, last, 0x25]);
            bytes.extend(data.to_le_bytes());
            bytes
        };
        let packet = |plen: u32, hlen: u16, header: &[u8], rest: &[u8]| {
            [
                plen.to_be_bytes().as_slice(),
                &hlen.to_be_bytes(),
                header,
                rest,
            ]
            .concat()
        };
        let plain = header(0, 0, 0, 512);
        let attacks = [
            packet(0xFFFF_FFFF, 25, &plain, &[1; 600]),
            packet(0x7FFF_FFFF, 25, &plain, &[1; 600]),
            packet(0, 25, &plain, &[1; 600]),
            packet(3, 25, &plain, &[1; 600]),
            packet(17 << 20, 25, &plain, &[1; 600]),
            packet(4 + 516, 0, &plain, &[1; 600]),
            packet(4 + 516, 0xFFFF, &plain, &[1; 600]),
            packet(4 + 516, 25, &header(0, 0, 0, 0xFFFF_FFFF), &[1; 600]),
            packet(4 + 516, 25, &header(0, 0, 0, 513), &[1; 600]),
            packet(4 + 516, 25, &header(0, 0, 0, 0), &[1; 600]),
            packet(4 + 516, 25, &header(1 << 60, 0, 0, 512), &[1; 600]),
            packet(4 + 516, 25, &header(u64::MAX, 0, 0, 512), &[1; 600]),
            packet(4 + 516, 25, &header(0, u64::MAX - 5, 0, 512), &[1; 600]),
            packet(4 + 516, 25, &header(77, 0, 1, 0), &[]),
            packet(4 + 516, 25, &plain, &[1; 100]),
            packet(4 + 516, 25, &plain, &[1; 516]), // wrong checksum
            vec![0xFF; 100],
            Vec::new(),
        ];
        for (id, attack) in (7_000_000_000_i64..).zip(attacks) {
            let mut socket = self.connect(Port::Transfer)?;
            let _ = socket.write_all(&self.write_block(id));
            let mut answer = [0; 256];
            let got = socket.read(&mut answer).unwrap_or(0);
            expect(got > 1 && answer[1] == 8 && answer[2] == 0, || {
                format!("the set-up of a write was refused: {:?}", &answer[..got])
            })?;
            let _ = socket.write_all(&attack);
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read(&mut answer);
        }
        let finalized =
            |path: &std::path::PathBuf| path.components().any(|c| c.as_os_str() == "finalized");
        let files = self
            .cluster
            .nodes()
            .next()
            .map(|n| n.all_block_files())
            .unwrap_or_default();
        let bad = files
            .iter()
            .filter(|path| finalized(path))
            .find(|path| path.to_string_lossy().contains("blk_70000000"));
        expect(bad.is_none(), || format!("a lie was finalized: {bad:?}"))?;
        passed()
    }

    pub fn silent_readers(&self) -> Result<Outcome> {
        let before = process_usage::usage(self.pid)?;
        let mut readers = Vec::new();
        for _ in 0..100 {
            let mut socket = self.connect(Port::Transfer)?;
            let _ = socket.write_all(&self.read_block(0, BLOCK, self.block.id));
            readers.push(socket);
        }
        // The node sends what sockets take, and no count says when they take no more.
        std::thread::sleep(seconds(2));
        self.serves_within(seconds(15))?;
        self.memory_bounded(before)?;
        passed()
    }

    pub fn wild_ranges(&self) -> Result<Outcome> {
        for (offset, length, id) in [
            (0, BLOCK + 1, self.block.id),
            (BLOCK, 1, self.block.id),
            (BLOCK + 1, 1, self.block.id),
            (u64::MAX, 1, self.block.id),
            (1, u64::MAX, self.block.id),
            (1 << 62, 1 << 62, self.block.id),
            (0, 1, self.block.id + 12_345_678),
            (0, 1, -1),
            (0, 1, i64::MIN),
        ] {
            let answer = self.send(Port::Transfer, &self.read_block(offset, length, id))?;
            // A varint of length, then field 1 (status): anything but SUCCESS.
            let prefix = answer.iter().take_while(|byte| **byte >= 0x80).count() + 1;
            let status = answer.get(prefix..prefix + 2);
            let refused = answer.is_empty() || status.is_some_and(|s| s[0] == 8 && s[1] != 0);
            expect(refused, || {
                format!(
                    "range {offset}+{length} of {id}: {:?}",
                    &answer[..answer.len().min(40)]
                )
            })?;
        }
        passed()
    }
}
