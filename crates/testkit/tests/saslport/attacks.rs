//! Connections to a protected data transfer port that prove nothing.

use hayloft_testkit::TestkitError;
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, seconds};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

/// What a handshake begins with: four bytes and an empty message.
const BEGIN: [u8; 9] = [0xDE, 0xAD, 0xBE, 0xEF, 4, 8, 0, 18, 0];

/// Connections that are left open at a time.
const OPEN: usize = 300;

fn failed(error: impl std::fmt::Display) -> TestkitError {
    TestkitError::Talk(error.to_string())
}

fn connected(port: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(port).map_err(failed)?;
    stream.set_read_timeout(Some(seconds(40))).map_err(failed)?;
    Ok(stream)
}

/// Sends `pieces`, each behind something from the node, and nothing more; what comes back before
/// the node closes.
fn answer(port: &str, pieces: &[&[u8]]) -> Result<Vec<u8>> {
    let mut stream = connected(port)?;
    let mut answer = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            let mut some = [0; 4096];
            let came = stream.read(&mut some).map_err(failed)?;
            answer.extend_from_slice(some.get(..came).unwrap_or_default());
        }
        stream.write_all(piece).map_err(failed)?;
    }
    let _closed_already = stream.shutdown(Shutdown::Write);
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(failed(error)),
        _ => Ok(answer),
    }
}

/// The ciphers that a node offers to a client that proves nothing, as it lists them.
pub fn offered_ciphers(port: &str) -> Result<String> {
    let challenge = answer(port, &[&BEGIN])?;
    let challenge = String::from_utf8_lossy(&challenge);
    let (_, listed) = challenge
        .split_once("cipher=\"")
        .ok_or_else(|| failed(&challenge))?;
    let (listed, _) = listed.split_once('"').ok_or_else(|| failed(&challenge))?;
    Ok(listed.to_owned())
}

/// Requests in clear and messages that are none: closed, most of them without a word.
pub fn refused(port: &str) -> Result<()> {
    let clear = [0, 28, 81, 2, 10, 0];
    let oversized = [&BEGIN[..4], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]].concat();
    let truncated = [&BEGIN[..4], &[100, 8, 0]].concat();
    let no_message = [&BEGIN[..4], &[4, 0xFF, 0xFF, 0xFF, 0xFF]].concat();
    let other = [0xDE, 0xAD, 0xBE, 0xEE, 4, 8, 0, 18, 0];
    for (what, bytes) in [
        ("a request in clear", &clear[..]),
        ("an oversized message", &oversized),
        ("a truncated message", &truncated),
        ("no message", &no_message),
        ("another beginning", &other),
        ("nothing", &[]),
    ] {
        let answer = answer(port, &[bytes])?;
        expect(answer.is_empty(), || format!("{what}: {answer:?}"))?;
    }
    // A proof that is none is answered in words.
    let junk = [&[10, 8, 0, 18, 6][..], b"junk=1"].concat();
    let told = answer(port, &[&BEGIN, &junk])?;
    let told = String::from_utf8_lossy(&told).into_owned();
    expect(told.contains("DIGEST-MD5"), || told.clone())?;
    let initial = [&BEGIN[..4], &[8, 8, 0, 18, 4], b"user"].concat();
    let told = answer(port, &[&initial])?;
    let told = String::from_utf8_lossy(&told).into_owned();
    expect(told.contains("must not have an initial response"), || {
        told.clone()
    })
}

/// A thousand clients that stop in the middle of the handshake; the last of them stay.
pub fn a_thousand_stopped(port: &str) -> Result<Vec<TcpStream>> {
    let mut open = std::collections::VecDeque::new();
    for n in 0..1000 {
        let mut stream = connected(port)?;
        let sent = BEGIN.get(..n % BEGIN.len() + 1).unwrap_or(&BEGIN);
        stream.write_all(sent).map_err(failed)?;
        open.push_back(stream);
        if open.len() > OPEN {
            open.pop_front();
        }
    }
    Ok(open.into())
}

/// The node does not wait for them for ever.
pub fn all_closed(open: Vec<TcpStream>) -> Result<()> {
    for mut stream in open {
        let mut challenge = Vec::new();
        match stream.read_to_end(&mut challenge) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
                return Err(failed(format!("still open: {error}")));
            }
            _ => {}
        }
    }
    Ok(())
}
