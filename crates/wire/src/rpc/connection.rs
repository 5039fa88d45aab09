//! The start of a connection, and frames.

use bytes::{Buf, Bytes, BytesMut};

use super::{CONNECTION_HEADER_BYTES, EncodedRpcError, MAGIC, RPC_VERSION};
use crate::frame;

/// How a connection authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthProtocol {
    /// Not at all: the connection context names the user.
    None,
    /// A SASL exchange comes first.
    Sasl,
}

impl AuthProtocol {
    const fn code(self) -> u8 {
        match self {
            AuthProtocol::None => 0,
            AuthProtocol::Sasl => 0xDF,
        }
    }
}

/// First bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHeader {
    /// Class of service; 0 for all of HDFS.
    pub service_class: u8,
    /// How the connection authenticates.
    pub auth: AuthProtocol,
}

impl ConnectionHeader {
    /// The bytes of the header.
    #[must_use]
    pub fn encode(self) -> [u8; CONNECTION_HEADER_BYTES] {
        let [m0, m1, m2, m3] = MAGIC;
        [
            m0,
            m1,
            m2,
            m3,
            RPC_VERSION,
            self.service_class,
            self.auth.code(),
        ]
    }

    /// Takes the header from the front of `buf`; `Ok(None)`: incomplete. What cannot become a
    /// header is refused as soon as it shows.
    pub fn decode(buf: &mut BytesMut) -> Result<Option<ConnectionHeader>, EncodedRpcError> {
        let Some(magic) = buf.first_chunk::<4>() else {
            return Ok(None);
        };
        if *magic != MAGIC {
            let http = [b"GET ", b"POST", b"HEAD", b"PUT "].contains(&magic);
            return Err(if http {
                EncodedRpcError::Http
            } else {
                EncodedRpcError::Magic(*magic)
            });
        }
        match buf.get(4) {
            Some(&RPC_VERSION) => {}
            Some(&version) => return Err(EncodedRpcError::Version(version)),
            None => return Ok(None),
        }
        let (Some(&service_class), Some(&auth)) = (buf.get(5), buf.get(6)) else {
            return Ok(None);
        };
        let auth = [AuthProtocol::None, AuthProtocol::Sasl]
            .into_iter()
            .find(|a| a.code() == auth)
            .ok_or(EncodedRpcError::Auth(auth))?;
        buf.advance(CONNECTION_HEADER_BYTES);
        Ok(Some(ConnectionHeader {
            service_class,
            auth,
        }))
    }
}

/// Takes a frame (without its length) from the front of `buf`; `Ok(None)`: incomplete. Room for the
/// rest is made in step with what arrives.
pub fn decode_frame(
    buf: &mut BytesMut,
    limit_bytes: usize,
) -> Result<Option<Bytes>, EncodedRpcError> {
    const LENGTH_BYTES: usize = 4;
    let Some(length) = buf.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let announced_bytes = i32::from_be_bytes(*length);
    let len = usize::try_from(announced_bytes)
        .ok()
        .filter(|len| (1..=limit_bytes).contains(len))
        .ok_or(EncodedRpcError::FrameLength {
            announced_bytes,
            limit_bytes,
        })?;
    if buf.len() < LENGTH_BYTES + len {
        frame::reserve_for(buf, LENGTH_BYTES + len);
        return Ok(None);
    }
    buf.advance(LENGTH_BYTES);
    Ok(Some(buf.split_to(len).freeze()))
}
