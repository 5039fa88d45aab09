//! Pipeline acknowledgements: one for every packet, with the state of every hop from the sender on
//! downwards.

use bytes::{Bytes, BytesMut};

use crate::frame::{self, FrameError};
use crate::limits::{MAX_ACK_BYTES, MAX_TARGETS};
use crate::proto::datatransfer::{self as pb, Status};

/// Sequence number of an out-of-band acknowledgement.
pub const UNKNOWN_SEQNO: i64 = -2;

/// Congestion as a node reports it (bits 5 and 6 of a flag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The node does not take part (`dfs.pipeline.ecn` off).
    #[default]
    Disabled,
    /// Takes part, not congested.
    Supported,
    /// Takes part, not congested (second form, never sent by Apache).
    Supported2,
    /// Congested: the writer backs off.
    Congested,
}

impl Ecn {
    const fn bits(self) -> u32 {
        match self {
            Ecn::Disabled => 0,
            Ecn::Supported => 1,
            Ecn::Supported2 => 2,
            Ecn::Congested => 3,
        }
    }

    const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Ecn::Disabled,
            1 => Ecn::Supported,
            2 => Ecn::Supported2,
            _ => Ecn::Congested,
        }
    }
}

/// Slowness as a node reports it (bits 7 and 8 of a flag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// The node does not take part (`dfs.pipeline.slownode` off).
    #[default]
    Disabled,
    /// Not slow.
    Normal,
    /// Slow by the NameNode's judgement.
    Slow,
    /// Reserved.
    Reserved,
}

impl Slow {
    const fn bits(self) -> u32 {
        match self {
            Slow::Disabled => 0,
            Slow::Normal => 1,
            Slow::Slow => 2,
            Slow::Reserved => 3,
        }
    }

    const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Slow::Disabled,
            1 => Slow::Normal,
            2 => Slow::Slow,
            _ => Slow::Reserved,
        }
    }
}

const STATUS_MASK: u32 = 0xF;
const ECN_SHIFT: u32 = 5;
const SLOW_SHIFT: u32 = 7;

/// State of one hop, as the flag on the wire; bits of other nodes pass unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop(u32);

impl Hop {
    /// A hop's state.
    #[must_use]
    pub const fn new(status: Status, ecn: Ecn, slow: Slow) -> Self {
        let status = status as u32;
        Hop(status | ecn.bits() << ECN_SHIFT | slow.bits() << SLOW_SHIFT)
    }

    /// A status without congestion or slowness.
    #[must_use]
    pub const fn of(status: Status) -> Self {
        Hop::new(status, Ecn::Disabled, Slow::Disabled)
    }

    /// Outcome of the packet; an unknown one counts as an error.
    #[must_use]
    pub fn status(self) -> Status {
        i32::try_from(self.0 & STATUS_MASK).map_or(Status::Error, Status::from_wire)
    }

    /// Congestion.
    #[must_use]
    pub const fn ecn(self) -> Ecn {
        Ecn::from_bits(self.0 >> ECN_SHIFT)
    }

    /// Slowness.
    #[must_use]
    pub const fn slow(self) -> Slow {
        Slow::from_bits(self.0 >> SLOW_SHIFT)
    }

    /// The flag on the wire.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// Acknowledgement of a packet, or an out-of-band message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineAck {
    /// Sequence number of the packet, or [`UNKNOWN_SEQNO`].
    pub seqno: i64,
    /// The sender's state first, then the hops downstream of it.
    pub hops: Vec<Hop>,
    /// How long the sender waited for the acknowledgement from downstream, in nanoseconds.
    pub downstream_ack_time_nanos: u64,
}

/// Why an acknowledgement is unacceptable; close the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// The message cannot be read.
    #[error("bad acknowledgement: {0}")]
    Frame(#[from] FrameError),
    /// Lists that contradict each other or are too long.
    #[error("acknowledgement with {replies} replies and {flags} flags")]
    Lists {
        /// Number of statuses.
        replies: usize,
        /// Number of flags.
        flags: usize,
    },
}

impl PipelineAck {
    /// An acknowledgement of the packet `seqno`.
    #[must_use]
    pub const fn new(seqno: i64, hops: Vec<Hop>, downstream_ack_time_nanos: u64) -> Self {
        PipelineAck {
            seqno,
            hops,
            downstream_ack_time_nanos,
        }
    }

    /// An out-of-band message, such as [`Status::OobRestart`].
    #[must_use]
    pub fn oob(status: Status) -> Self {
        PipelineAck::new(UNKNOWN_SEQNO, vec![Hop::of(status)], 0)
    }

    /// Whether every hop succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.hops.iter().all(|hop| hop.status() == Status::Success)
    }

    /// The status of an out-of-band message.
    #[must_use]
    pub fn oob_status(&self) -> Option<Status> {
        if self.seqno != UNKNOWN_SEQNO {
            return None;
        }
        self.hops
            .iter()
            .map(|hop| hop.status())
            .find(|status| status.is_oob())
    }

    /// Appends the acknowledgement: statuses for old readers, flags for others.
    pub fn encode(&self, out: &mut BytesMut) {
        let message = pb::PipelineAck {
            seqno: self.seqno,
            reply: self.hops.iter().map(|hop| hop.status().into()).collect(),
            downstream_ack_time_nanos: Some(self.downstream_ack_time_nanos),
            flag: self.hops.iter().map(|hop| hop.bits()).collect(),
        };
        frame::encode_delimited(&message, out);
    }

    /// The acknowledgement in a buffer of its own.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        self.encode(&mut out);
        out.freeze()
    }

    /// Takes an acknowledgement from the front of `buf`; `Ok(None)`: incomplete.
    pub fn decode(buf: &mut BytesMut) -> Result<Option<PipelineAck>, AckError> {
        let message: Option<pb::PipelineAck> = frame::decode_delimited(buf, MAX_ACK_BYTES)?;
        message.map(PipelineAck::from_message).transpose()
    }

    fn from_message(message: pb::PipelineAck) -> Result<Self, AckError> {
        let (replies, flags) = (message.reply.len(), message.flag.len());
        if replies.max(flags) > MAX_TARGETS || (flags > 0 && flags != replies) {
            return Err(AckError::Lists { replies, flags });
        }
        let hops = if flags > 0 {
            message.flag.into_iter().map(Hop).collect()
        } else {
            message
                .reply
                .into_iter()
                .map(|status| Hop::of(Status::from_wire(status)))
                .collect()
        };
        Ok(PipelineAck {
            seqno: message.seqno,
            hops,
            downstream_ack_time_nanos: message.downstream_ack_time_nanos.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8]) -> Result<Option<PipelineAck>, AckError> {
        PipelineAck::decode(&mut BytesMut::from(bytes))
    }

    #[test]
    fn bytes_are_hadoops() {
        let ack = PipelineAck::new(
            3,
            vec![
                Hop::of(Status::Success),
                Hop::new(Status::Error, Ecn::Congested, Slow::Slow),
            ],
            0,
        );
        // seqno 3 zigzag; two unpacked replies; time; packed flags 0 and 1 | 3 << 5 | 2 << 7.
        let expected = [13, 8, 6, 16, 0, 16, 1, 24, 0, 34, 3, 0, 0xE1, 0x02];
        assert_eq!(&ack.to_bytes()[..], &expected);
        assert_eq!(decode(&expected), Ok(Some(ack)));
    }

    /// Written by Hadoop 3.5.0.
    #[test]
    fn hadoops_bytes_are_read_and_written() {
        let bytes = b"\x0f\x08\x0e\x10\0\x10\x02\x18\xb9\x60\x22\x04\xa0\x01\xe2\x02";
        let hops = vec![
            Hop::new(Status::Success, Ecn::Supported, Slow::Normal),
            Hop::new(Status::ErrorChecksum, Ecn::Congested, Slow::Slow),
        ];
        let ack = PipelineAck::new(7, hops, 12345);
        assert_eq!(&ack.to_bytes()[..], bytes);
        assert_eq!(decode(bytes), Ok(Some(ack)));
    }

    #[test]
    fn old_acks_without_flags_are_read() {
        let ack = decode(&[6, 8, 6, 16, 0, 16, 1])
            .expect("valid")
            .expect("complete");
        assert_eq!(ack.hops, [Hop::of(Status::Success), Hop::of(Status::Error)]);
        assert!(!ack.is_success());
    }

    #[test]
    fn restart_is_told_out_of_band() {
        let ack = PipelineAck::oob(Status::OobRestart);
        let read = decode(&ack.to_bytes()).expect("valid").expect("complete");
        assert_eq!(read.oob_status(), Some(Status::OobRestart));
        assert_eq!(PipelineAck::new(1, read.hops, 0).oob_status(), None);
    }

    #[test]
    fn contradicting_lists_are_refused() {
        assert!(matches!(
            decode(&[9, 8, 6, 16, 0, 16, 1, 34, 1, 0]),
            Err(AckError::Lists { .. })
        ));
        assert!(decode(&[0]).is_err(), "a sequence number is required");
    }

    proptest! {
        #[test]
        fn there_and_back(seqno: i64, flags in prop::collection::vec(0u32..14, 0..9), nanos: u64) {
            let hops = flags.into_iter().map(|bits| Hop(bits | bits << 5)).collect();
            let ack = PipelineAck::new(seqno, hops, nanos);
            prop_assert_eq!(decode(&ack.to_bytes()), Ok(Some(ack)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _any_outcome = decode(&bytes);
        }
    }
}
