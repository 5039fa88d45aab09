//! Requests to the nodes by a client of our own, whose token does not permit them. Nodes of either
//! kind have to give the same answer.

use crate::{BLOCK, Lab};
use bytes::{Bytes, BytesMut};
use hayloft_rpc::{RpcClient, RpcOptions};
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect_eq, passed, seconds};
use hayloft_testkit::{Outcome, TestkitError};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{ExtendedBlock, StorageType};
use hayloft_wire::proto::client::{GetBlockLocationsRequest, GetBlockLocationsResponse};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::LocatedBlock;
use hayloft_wire::proto::security::Token;
use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
use hayloft_wire::transfer::{self, OpMessage, Stage, Status};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;

/// How a node answers: its status and `firstBadLink`, or nothing, and then it closes.
type Answer = Option<(Status, String)>;

impl Lab {
    pub fn attacks(&mut self) -> Result<Outcome> {
        self.cluster.heal()?;
        self.fs
            .put("/attacked", BLOCK, 61, json!({"replication": 5}))?;
        self.fs.wait_replicas("/attacked", 5, seconds(60))?;
        self.fs.put("/other", BLOCK, 62, json!({}))?;
        let good = self.located("/attacked")?;
        let other = self.located("/other")?.block_token;
        let refused = Some((Status::ErrorAccessToken, String::new()));
        let tokens = tokens(&good.block_token, other);
        for index in 0..self.cluster.node_count() {
            let xfer = self.cluster.node(index).xfer();
            for (what, token) in &tokens {
                let answer = read(&xfer, &good, token.clone())?;
                expect_eq(&format!("{xfer}: {what}"), &answer, &refused)?;
            }
            let answer = read(&xfer, &good, good.block_token.clone())?;
            let status = answer.map(|(status, _)| status);
            expect_eq("a good token", status, Some(Status::Success))?;
            // A reader's token, for a write: as a client, and as a node.
            let told = Some((Status::ErrorAccessToken, xfer.clone()));
            let answer = write(&xfer, &good, "client")?;
            expect_eq(&format!("{xfer}: a writer"), &answer, &told)?;
            let answer = write(&xfer, &good, "")?;
            expect_eq(&format!("{xfer}: a node that copies"), &answer, &None)?;
        }
        self.expired(&good)?;
        self.fs.check("/attacked", BLOCK, 61)?;
        passed()
    }

    /// A token that was good a minute ago.
    fn expired(&mut self, good: &LocatedBlock) -> Result<()> {
        sleep(seconds(62));
        for index in 0..self.cluster.node_count() {
            let xfer = self.cluster.node(index).xfer();
            let answer = read(&xfer, good, good.block_token.clone())?;
            let status = answer.map(|(status, _)| status);
            let refused = Some(Status::ErrorAccessToken);
            expect_eq(&format!("{xfer}: an expired token"), status, refused)?;
        }
        Ok(())
    }

    fn located(&mut self, path: &str) -> Result<LocatedBlock> {
        let rpc = self.cluster.namenode(0).rpc();
        let talk = |error: String| TestkitError::Talk(error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| talk(error.to_string()))?;
        let request = GetBlockLocationsRequest {
            src: path.to_owned(),
            offset: 0,
            length: BLOCK,
        };
        let answer: GetBlockLocationsResponse = runtime
            .block_on(async {
                let client = RpcClient::new(rpc, CLIENT_NAMENODE_PROTOCOL, RpcOptions::default());
                client.call("getBlockLocations", &request).await
            })
            .map_err(|error| talk(error.to_string()))?;
        let blocks = answer.locations.map(|located| located.blocks);
        let first = blocks.and_then(|blocks| blocks.into_iter().next());
        first.ok_or_else(|| talk(format!("{path} has no blocks")))
    }
}

/// Tokens that do not permit to read the block of `good`.
fn tokens(good: &Token, other: Token) -> Vec<(&'static str, Token)> {
    let flipped = |bytes: &Bytes| {
        let mut bytes = bytes.to_vec();
        if let Some(byte) = bytes.last_mut() {
            *byte ^= 1;
        }
        Bytes::from(bytes)
    };
    // Its expiry is moved, and it stays a valid identifier.
    let later = BlockTokenIdentifier::decode(&good.identifier).map(|identifier| {
        let later = BlockTokenIdentifier {
            expiry_millis: identifier.expiry_millis + 1,
            ..identifier
        };
        match good.identifier.first() {
            Some(1..=127) => later.encode_protobuf(),
            _ => later.encode_legacy(),
        }
    });
    let mut altered = good.clone();
    altered.identifier = later.unwrap_or_default();
    let mut forged = good.clone();
    forged.password = flipped(&good.password);
    let mut cut = good.clone();
    cut.password = good.password.slice(1..);
    vec![
        ("no token", Token::default()),
        ("the token of another block", other),
        ("an identifier that was altered", altered),
        ("a forged password", forged),
        ("a password that is cut", cut),
    ]
}

fn read(xfer: &str, located: &LocatedBlock, token: Token) -> Result<Answer> {
    let block = block(located)?;
    let request = pb::OpReadBlock {
        header: transfer::client_header(&block, token, "client"),
        offset: 0,
        len: 1000,
        ..pb::OpReadBlock::default()
    };
    ask(xfer, &request)
}

fn write(xfer: &str, located: &LocatedBlock, client: &str) -> Result<Answer> {
    let mut block = block(located)?;
    block.block.generation_stamp += 1;
    let checksum = DataChecksum::new(ChecksumKind::Crc32c, 512);
    let checksum = checksum.map_err(|error| TestkitError::Talk(error.to_string()))?;
    let request = pb::OpWriteBlock {
        header: transfer::client_header(&block, located.block_token.clone(), client),
        stage: Stage::PipelineSetupCreate.into(),
        pipeline_size: 1,
        requested_checksum: checksum.into(),
        storage_type: Some(StorageType::Disk.into()),
        ..pb::OpWriteBlock::default()
    };
    ask(xfer, &request)
}

fn block(located: &LocatedBlock) -> Result<ExtendedBlock> {
    ExtendedBlock::try_from(&located.b).map_err(|error| TestkitError::Talk(error.to_string()))
}

/// The first answer to a request; `None` when the node closes without one.
fn ask<M: OpMessage>(xfer: &str, request: &M) -> Result<Answer> {
    let talk = |error: std::io::Error| TestkitError::Talk(format!("{xfer}: {error}"));
    let mut stream = TcpStream::connect(xfer).map_err(talk)?;
    stream.set_read_timeout(Some(seconds(20))).map_err(talk)?;
    let mut out = BytesMut::new();
    transfer::encode_request(request, &mut out);
    stream.write_all(&out).map_err(talk)?;
    let mut inbox = BytesMut::new();
    let mut piece = [0; 4096];
    loop {
        let decoded = transfer::decode_response(&mut inbox);
        let decoded = decoded.map_err(|error| TestkitError::Talk(error.to_string()))?;
        if let Some(answer) = decoded {
            let link = answer.first_bad_link().to_owned();
            return Ok(Some((answer.outcome(), link)));
        }
        let got = match stream.read(&mut piece) {
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(talk(error)),
        };
        if got == 0 {
            return Ok(None);
        }
        inbox.extend_from_slice(&piece[..got]);
    }
}
