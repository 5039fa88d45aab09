//! Names of what is counted, as attributes of Apache's bean `DataNodeActivity` have them.

/// An enum whose variants have their own names as text.
macro_rules! named {
    ($(#[$doc:meta])* $kind:ident { $($(#[$of:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[$of])* $variant,)* }

        impl $kind {
            /// Each of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The attribute's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
        }
    };
}

named! {
    /// What is counted.
    Count {
        /// Requests for the files of a replica, to be read without the node.
        BlocksGetLocalPathInfo,
        /// Replicas that were sent to other nodes on order.
        BlocksReplicated,
        /// Reads by peers on this machine.
        ReadsFromLocalClient,
        /// Reads by others.
        ReadsFromRemoteClient,
        /// Writes by peers on this machine.
        WritesFromLocalClient,
        /// Writes by others.
        WritesFromRemoteClient,
        /// Bytes of reads by others.
        RemoteBytesRead,
        /// Bytes of writes by others.
        RemoteBytesWritten,
        /// Syncs that writers asked for.
        FsyncCount,
        /// Milliseconds that reads took to send.
        TotalReadTime,
        /// Milliseconds that blocks took to be written to disks.
        TotalWriteTime,
        /// Operations that broken connections ended.
        DatanodeNetworkErrors,
        /// Packets of blocks that came in.
        PacketsReceived,
        /// Packets that the next node was slow to take.
        PacketsSlowWriteToMirror,
        /// Writes to disk that were slow.
        PacketsSlowWriteToDisk,
        /// Syncs that were slow.
        SlowFlushOrSyncCount,
        /// Acknowledgements that the writer was slow to take.
        SlowAckToUpstreamCount,
        /// Moves of replicas between storages of this node.
        ReplaceBlockOpOnSameHost,
        /// Moves of replicas from other nodes.
        ReplaceBlockOpToOtherHost,
        /// Orders of NameNodes that were carried out.
        NumProcessedCommands,
        /// Blocks of striped groups that were made up again, in orders.
        EcReconstructionTasks,
        /// Such orders that failed.
        EcFailedReconstructionTasks,
        /// Such orders that were impossible.
        EcInvalidReconstructionTasks,
    }
}

named! {
    /// What takes time.
    Timed {
        /// READ_BLOCK.
        ReadBlockOp,
        /// WRITE_BLOCK.
        WriteBlockOp,
        /// BLOCK_CHECKSUM and BLOCK_GROUP_CHECKSUM.
        BlockChecksumOp,
        /// COPY_BLOCK.
        CopyBlockOp,
        /// REPLACE_BLOCK.
        ReplaceBlockOp,
        /// A heartbeat's call.
        Heartbeats,
        /// A heartbeat's call, what precedes it, and taking in the answer.
        HeartbeatsTotal,
        /// A lifeline's call.
        Lifelines,
        /// Sending a full block report.
        BlockReports,
        /// Making it.
        BlockReportsCreateCostMills,
        /// A cache report's call.
        CacheReports,
        /// An incremental report's call.
        IncrementalBlockReports,
        /// Carrying out a NameNode's order.
        ProcessedCommandsOp,
        /// From a packet's arrival to its acknowledgement by the node behind.
        PacketAckRoundTripTimeNanos,
        /// A write into a replica's files.
        FlushNanos,
        /// A sync of them.
        FsyncNanos,
        /// Waiting until a reader takes more, by packet.
        SendDataPacketBlockedOnNetworkNanos,
        /// Sending to a reader, without waiting, by packet.
        SendDataPacketTransferNanos,
        /// Bytes a second of a read.
        ReadTransferRate,
        /// Beginning a replica.
        CreateRbwOp,
        /// Going on with a replica after a failure in its pipeline.
        RecoverRbwOp,
        /// Beginning a copy of a replica.
        CreateTemporaryOp,
        /// Making a copy a replica being written.
        ConvertTemporaryToRbwOp,
        /// Finalizing a replica.
        FinalizeBlockOp,
    }
}

/// In which unit a time is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeanUnit {
    /// As it is counted.
    AsCounted,
    /// In milliseconds, of nanoseconds.
    Millis,
}

impl Timed {
    /// The unit of Apache's attribute.
    #[must_use]
    pub fn unit(self) -> MeanUnit {
        if self.name().ends_with("Nanos") || self == Self::ReadTransferRate {
            MeanUnit::AsCounted
        } else {
            MeanUnit::Millis
        }
    }
}
