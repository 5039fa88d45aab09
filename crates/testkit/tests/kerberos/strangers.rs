//! What callers that prove nothing get of a node's RPC port: no answer to a call, and nothing of
//! the node that grows with them.

use bytes::Bytes;
use hayloft_rpc::{
    CLIENT_DATANODE_PROTOCOL, RpcClient, RpcError, RpcOptions, RpcQuality, TokenProof,
};
use hayloft_testkit::error::Result;
use hayloft_testkit::process_usage::{Usage, usage};
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, TestkitError};
use hayloft_wire::frame;
use hayloft_wire::proto::client::{GetBlockLocationsRequest, GetBlockLocationsResponse};
use hayloft_wire::proto::clientdatanode::{GetDatanodeInfoRequest, GetDatanodeInfoResponse};
use hayloft_wire::proto::security::Token;
use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
use hayloft_wire::rpc::{RpcSasl, SaslAuth, SaslState, encode_sasl_request, parse_response};
use serde_json::json;
use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use crate::both_sides::{on_threads, proving};
use crate::{BLOCK, at_localhost};

/// The nodes whose ports are called: ours, and Apache's behind two of ours.
const OURS: usize = 0;
const STOCK: usize = 2;
/// Callers of each sort, and how many of them came before a node is measured.
const CALLERS: usize = 1000;
const BEFORE: usize = 100;
/// Connections that stay open at a time.
const OPEN: usize = 300;
/// What a node may have more than before: memory in KiB, descriptors, threads.
const MORE: (u64, usize, u64) = (8 << 10, 8, 4);
/// Lines that its log may have more.
const LINES: usize = 200;
/// What opens a connection with SASL.
const HEADER: &[u8] = b"hrpc\x09\x00\xdf";
/// What a caller hears whose ticket is not believed.
const NOT_BELIEVED: &str = "GSS initiate failed";

fn failed(error: impl Display) -> TestkitError {
    TestkitError::Talk(error.to_string())
}

fn connected(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(seconds(40))).map_err(failed)?;
    Ok(stream)
}

/// The next frame, with its length before it.
fn next_frame(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(failed)?;
    let bytes = u32::from_be_bytes(length) as usize;
    expect(bytes <= 1 << 20, || format!("a frame of {bytes} bytes"))?;
    let mut rest = vec![0; bytes];
    stream.read_exact(&mut rest).map_err(failed)?;
    Ok([&length[..], &rest].concat())
}

/// The state of the exchange that an answer brings; or the words of a refusal.
fn said(answer: Vec<u8>) -> Result<String> {
    let response = parse_response(Bytes::from(answer).slice(4..)).map_err(failed)?;
    let body = match response.outcome {
        Ok(body) => body,
        Err(error) => return Ok(format!("{}: {}", error.class_name, error.message)),
    };
    let message: RpcSasl = frame::decode(body).map_err(failed)?;
    let state = SaslState::try_from(message.state).map_err(failed)?;
    Ok(format!("{state:?}"))
}

/// A connection as it was on the network up to the node's answer to the caller's first token.
struct Opening {
    /// The header, and the question what there is.
    begin: Vec<u8>,
    /// The caller's first token.
    initiate: Vec<u8>,
    answer: Vec<u8>,
}

/// Passes callers on to a node, and breaks off behind its answer to their first token.
struct Halfway {
    address: String,
    openings: Receiver<Result<Opening>>,
}

impl Halfway {
    fn to(node: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let node = node.to_owned();
        let (record, openings) = channel();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                if record.send(Self::opening(caller, &node)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { address, openings })
    }

    fn opening(mut caller: TcpStream, node: &str) -> Result<Opening> {
        let mut stream = connected(node)?;
        let mut begin = vec![0; HEADER.len()];
        caller.read_exact(&mut begin).map_err(failed)?;
        begin.extend(next_frame(&mut caller)?);
        stream.write_all(&begin).map_err(failed)?;
        let offers = next_frame(&mut stream)?;
        caller.write_all(&offers).map_err(failed)?;
        let initiate = next_frame(&mut caller)?;
        stream.write_all(&initiate).map_err(failed)?;
        let answer = next_frame(&mut stream)?;
        Ok(Opening {
            begin,
            initiate,
            answer,
        })
    }

    /// Has an honest caller begin, whose ticket the node has to believe.
    fn opened(&self, options: &RpcOptions) -> Result<Opening> {
        let _broken_off = connection(&self.address, options)?;
        let opening = self.openings.recv_timeout(seconds(60)).map_err(failed)??;
        let answer = said(opening.answer.clone())?;
        expect_eq("a good ticket", answer.as_str(), "Challenge")?;
        Ok(opening)
    }
}

/// How the attempt to prove who one is ends: empty when it is believed.
fn connection(address: &str, options: &RpcOptions) -> Result<String> {
    on_threads(async { Ok(proof(address, options).await) })
}

async fn proof(address: &str, options: &RpcOptions) -> String {
    let client = RpcClient::new(address, CLIENT_DATANODE_PROTOCOL, options.clone());
    let refused = client.connection().await.err();
    let told = refused.map(|error: RpcError| error.to_string());
    told.unwrap_or_default()
}

/// Who holds a ticket that nodes believe.
fn honest(realm: &Realm) -> Result<RpcOptions> {
    let keytab = realm.keytab("honest.keytab", &["honest"])?;
    let of = ("honest", keytab.as_path());
    Ok(proving(of, &at_localhost("dn"), &[RpcQuality::Privacy]))
}

/// Sends what was recorded on a connection of its own; what the node says to the token.
fn again(node: &str, recorded: &Opening) -> Result<(TcpStream, String)> {
    let mut stream = connected(node)?;
    stream.write_all(&recorded.begin).map_err(failed)?;
    let _offers = next_frame(&mut stream)?;
    stream.write_all(&recorded.initiate).map_err(failed)?;
    let told = said(next_frame(&mut stream)?)?;
    Ok((stream, told))
}

/// The first token of an honest caller is good once.
pub fn recorded(cluster: &mut Cluster, realm: &Realm) -> Result<Outcome> {
    let options = honest(realm)?;
    for node in [OURS, STOCK] {
        let ipc = cluster.node(node).ipc();
        let network = Halfway::to(&ipc)?;
        let first = network.opened(&options)?;
        let _other = network.opened(&options)?;
        let (mut stream, told) = again(&ipc, &first)?;
        expect(
            told.contains("SaslException") && told.contains(NOT_BELIEVED),
            || format!("node {node}: {told}"),
        )?;
        let closed = match stream.read(&mut [0; 16]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        expect(closed, || format!("node {node} goes on"))?;
    }
    let log = cluster.node(OURS).log();
    wait::until("the log says why", seconds(10), || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        Ok(match log.contains("Request is a replay") {
            true => Seen::Done(()),
            false => Seen::NotYet(log.lines().last().unwrap_or_default().to_owned()),
        })
    })?;
    passed()
}

/// Callers of all sorts at one node.
struct Crowd {
    ipc: String,
    network: Halfway,
    honest: RpcOptions,
    recorded: Opening,
    token: Token,
}

impl Crowd {
    fn come(&self, count: usize) -> Result<()> {
        self.wrong_passwords(count)?;
        self.no_tickets(count)?;
        self.halfway(count)
    }

    fn with_token(token: Token) -> RpcOptions {
        RpcOptions {
            token: Some(TokenProof::new(token, [RpcQuality::Privacy].into())),
            ..RpcOptions::default()
        }
    }

    /// They know of a good token, and not its password.
    fn wrong_passwords(&self, count: usize) -> Result<()> {
        let mut forged = self.token.clone();
        forged.password = Bytes::from_static(&[7; 20]);
        let options = Self::with_token(forged);
        on_threads(async {
            for _ in 0..count {
                let told = proof(&self.ipc, &options).await;
                expect(told.contains("Mismatched response"), || told.clone())?;
            }
            Ok(())
        })
    }

    /// Every other one has recorded another's token, the rest make one up.
    fn no_tickets(&self, count: usize) -> Result<()> {
        let offer = SaslAuth {
            method: "KERBEROS".to_owned(),
            mechanism: "GSSAPI".to_owned(),
            protocol: Some("dn".to_owned()),
            server_id: Some("localhost".to_owned()),
            challenge: None,
        };
        let initiate = encode_sasl_request(&RpcSasl {
            auths: vec![offer],
            ..RpcSasl::step(SaslState::Initiate, &b"no token"[..])
        });
        let made_up = Opening {
            begin: self.recorded.begin.clone(),
            initiate: initiate.to_vec(),
            answer: Vec::new(),
        };
        for n in 0..count {
            let opening = if n % 2 == 0 { &made_up } else { &self.recorded };
            let (_stream, told) = again(&self.ipc, opening)?;
            expect(told.contains(NOT_BELIEVED), || told.clone())?;
        }
        Ok(())
    }

    /// They stop somewhere in the exchange, and the last of them stay for a while.
    fn halfway(&self, count: usize) -> Result<()> {
        let Opening {
            begin, initiate, ..
        } = &self.recorded;
        let half = initiate.get(..initiate.len() / 2).unwrap_or_default();
        let mut open = VecDeque::new();
        for n in 0..count {
            let sent = match n % 4 {
                0 => HEADER.to_vec(),
                1 => begin.clone(),
                2 => [&begin[..], half].concat(),
                _ => {
                    let _believed_so_far = self.network.opened(&self.honest)?;
                    continue;
                }
            };
            let mut stream = connected(&self.ipc)?;
            stream.write_all(&sent).map_err(failed)?;
            open.push_back(stream);
            if open.len() > OPEN {
                open.pop_front();
            }
        }
        self.served()
    }

    /// A good caller is answered.
    fn served(&self) -> Result<()> {
        let by_token = connection(&self.ipc, &Self::with_token(self.token.clone()))?;
        expect_eq("the holder of the token", by_token.as_str(), "")?;
        on_threads(async {
            let client = RpcClient::new(&self.ipc, CLIENT_DATANODE_PROTOCOL, self.honest.clone());
            let answer: std::result::Result<GetDatanodeInfoResponse, _> = client
                .call("getDatanodeInfo", &GetDatanodeInfoRequest {})
                .await;
            answer.map(drop).map_err(failed)
        })
    }
}

/// The token of a file's first block, for its superuser.
fn token_of(cluster: &mut Cluster, realm: &Realm, path: &str) -> Result<Token> {
    let rpc = cluster.namenode(0).rpc();
    let keytab = realm.dir().join("services.keytab");
    let of = ("hdfs", keytab.as_path());
    let options = proving(of, &at_localhost("nn"), &[RpcQuality::Privacy]);
    let request = GetBlockLocationsRequest {
        src: path.to_owned(),
        offset: 0,
        length: BLOCK,
    };
    let answer: GetBlockLocationsResponse = on_threads(async {
        let client = RpcClient::new(rpc, CLIENT_NAMENODE_PROTOCOL, options);
        let answer = client.call("getBlockLocations", &request).await;
        answer.map_err(failed)
    })?;
    let blocks = answer.locations.map(|located| located.blocks);
    let first = blocks.and_then(|blocks| blocks.into_iter().next());
    let token = first.map(|block| block.block_token);
    token.ok_or_else(|| failed(format!("{path} has no blocks")))
}

/// Wrong passwords, no tickets and exchanges that stop halfway: afterwards the node is as before.
pub fn come_and_go(cluster: &mut Cluster, fs: &Driver, realm: &Realm) -> Result<Outcome> {
    fs.put("/of-the-token", BLOCK, 3, json!({}))?;
    let (ipc, log) = (cluster.node(OURS).ipc(), cluster.node(OURS).log());
    let pid = cluster.node(OURS).process()?.pid();
    let honest = honest(realm)?;
    let network = Halfway::to(&ipc)?;
    let crowd = Crowd {
        recorded: network.opened(&honest)?,
        token: token_of(cluster, realm, "/of-the-token")?,
        ipc,
        network,
        honest,
    };
    let lines = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.lines().count()
    };
    crowd.come(BEFORE)?;
    std::thread::sleep(seconds(3));
    let (before, lines_before) = (usage(pid)?, lines());
    crowd.come(CALLERS)?;
    wait::until("the node is as before", seconds(60), || {
        let now = usage(pid)?;
        Ok(match as_before(before, now) {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{before:?}, now {now:?}")),
        })
    })?;
    crowd.served()?;
    let more = lines().saturating_sub(lines_before);
    expect(more <= LINES, || format!("{more} lines more in its log"))?;
    fs.check("/of-the-token", BLOCK, 3)?;
    passed()
}

fn as_before(before: Usage, now: Usage) -> bool {
    let (memory, descriptors, threads) = MORE;
    now.rss_kib <= before.rss_kib + memory
        && now.descriptors <= before.descriptors + descriptors
        && now.threads <= before.threads + threads
}
