//! The replica that a write goes to, opened as the stage says.

use hayloft_io::IoClass;
use hayloft_store::{ReplicaWriter, StorageInfo, StoreError, StoreErrorKind, WriteOptions};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{ExtendedBlock, ReplicaState};
use hayloft_wire::transfer::{Stage, WriteRequest};
use tokio::time::Instant;

use crate::activity::Timed;
use crate::xceiver::block_receiver::WriterKind;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::settings::Settings;

/// Opens the replica as the stage says, with the checksum of the packets. The flag: the disk keeps
/// another checksum than the packets carry, so that packets have to be checked here. `is_local`:
/// the client is on this host.
pub async fn open_replica(
    x: &Xceivers,
    settings: &Settings,
    request: &WriteRequest,
    (kind, is_local): (WriterKind, bool),
) -> Result<(ReplicaWriter, bool), XferError> {
    let opened = open_writer(x, settings, request, (kind, is_local)).await;
    let mut writer = match opened {
        Ok(writer) => writer,
        Err(error) => {
            if error.kind() == StoreErrorKind::Io {
                x.store().check_volumes_soon();
            }
            if kind == WriterKind::Datanode && error.kind() == StoreErrorKind::AlreadyExists {
                report_stale(x, &request.block);
            }
            return Err(error.into());
        }
    };
    same_chunks(writer.checksum(), request.checksum)?;
    let translate = differs(writer.checksum(), request.checksum);
    writer.set_checksum(request.checksum).await?;
    if announces(request.stage, kind) {
        announce(x, &writer.block(), writer.storage());
    }
    Ok((writer, translate))
}

/// A copy that the NameNode ordered was refused for what a recovery left of the replica here. It
/// does not know of that one, and would order the copy again and again until the next full report,
/// hours later. Told of it now, it compares generation stamps and may have the replica deleted. A
/// newer stamp is of a recovery that came after the one that the NameNode committed. With the very
/// stamp an incremental report would pass for a replica being written. As bad is what a full
/// report makes of it: only a finalized one counts of a block that is complete.
fn report_stale(x: &Xceivers, wanted: &ExtendedBlock) {
    let Some(there) = x.store().replica(&wanted.pool, wanted.block.id) else {
        return;
    };
    let (stamp, wanted) = (
        there.block.block.generation_stamp,
        wanted.block.generation_stamp,
    );
    let tell = || {
        tracing::info!(block = %there.block, state = %there.state, wanted,
            "a copy was refused for a replica that is out of date: reporting it");
    };
    match there.state {
        ReplicaState::Finalized if stamp != wanted => {
            tell();
            x.link().received(&there.block, &there.storage, None);
        }
        ReplicaState::Rwr | ReplicaState::Rur if stamp < wanted => {
            tell();
            announce(x, &there.block, &there.storage);
        }
        ReplicaState::Rwr if stamp == wanted => {
            tell();
            x.link().bad_block(&there.block, &there.storage);
        }
        _ => {}
    }
}

/// Sums of another type can be made anew, but a block keeps its chunk size for life: Apache refuses
/// an append with another one, and a client is told so here too.
fn same_chunks(disk: Option<DataChecksum>, packets: DataChecksum) -> Result<(), XferError> {
    match disk {
        Some(disk) if disk.bytes_per_checksum() != packets.bytes_per_checksum() => {
            Err(XferError::Refused(format!(
                "Client requested {packets:?} when appending to an existing block with different \
                    chunk size: {disk:?}"
            )))
        }
        _ => Ok(()),
    }
}

fn differs(disk: Option<DataChecksum>, packets: DataChecksum) -> bool {
    disk.is_some_and(|disk| disk != packets)
}

async fn open_writer(
    x: &Xceivers,
    settings: &Settings,
    request: &WriteRequest,
    (kind, is_local): (WriterKind, bool),
) -> Result<ReplicaWriter, StoreError> {
    let store = x.store();
    let message = &request.message;
    let block = &request.block;
    let new_gs = message.latest_generation_stamp;
    let options = WriteOptions {
        lazy_persist: may_be_lazy(settings, request, (kind, is_local)),
        ..write_options(settings, request, kind)
    };
    let began = Instant::now();
    if kind != WriterKind::Client {
        let opened = store.create_temporary(block, options).await;
        x.activity().took(Timed::CreateTemporaryOp, began.elapsed());
        return opened;
    }
    let opened = match request.stage {
        Stage::PipelineSetupCreate => store.create_rbw(block, options).await,
        Stage::PipelineSetupStreamingRecovery => {
            store
                .recover_rbw(
                    block,
                    new_gs,
                    message.min_bytes_rcvd,
                    message.max_bytes_rcvd,
                )
                .await
        }
        Stage::PipelineSetupAppend => store.append(block, new_gs, message.min_bytes_rcvd).await,
        Stage::PipelineSetupAppendRecovery => {
            store
                .recover_append(block, new_gs, message.min_bytes_rcvd)
                .await
        }
        stage => Err(StoreError::new(
            StoreErrorKind::Illegal,
            format!("stage {stage:?} cannot start a write of {block}"),
        )),
    };
    let what = match request.stage {
        Stage::PipelineSetupCreate => Timed::CreateRbwOp,
        Stage::PipelineSetupStreamingRecovery => Timed::RecoverRbwOp,
        _ => return opened,
    };
    x.activity().took(what, began.elapsed());
    opened
}

/// Whether a new replica may be written to memory first. The NameNode names DISK, and the client
/// says that the file's policy allows it. Its block's length is the most that it may have: memory
/// is not set aside for a guess.
fn may_be_lazy(
    settings: &Settings,
    request: &WriteRequest,
    (kind, is_local): (WriterKind, bool),
) -> bool {
    kind == WriterKind::Client
        && request.message.allow_lazy_persist == Some(true)
        && (is_local || settings.non_local_lazy_persist)
        && request.block.block.num_bytes > 0
}

fn write_options(settings: &Settings, request: &WriteRequest, kind: WriterKind) -> WriteOptions {
    let message = &request.message;
    let known_len = request.block.block.num_bytes;
    WriteOptions {
        storage_type: request.storage_type,
        // The NameNode names the first storage with room for every block: followed, all writes
        // would meet on one disk. Hadoop's volume choosing policies pass over it too.
        storage_id: None,
        expected_len: Some(if known_len == 0 {
            settings.block_size_estimate
        } else {
            known_len
        }),
        pinned: settings.pinning && message.pinning(),
        checksum: Some(request.checksum),
        new_gs: Some(message.latest_generation_stamp).filter(|gs| *gs != 0),
        transfer: kind == WriterKind::Transfer,
        lazy_persist: false,
        // A client waits for the copy that a node makes to add this one to its pipeline.
        class: if kind == WriterKind::Datanode {
            IoClass::Replication
        } else {
            IoClass::ClientWrite
        },
    }
}

/// Stages after which the NameNode is told that a block is coming.
fn announces(stage: Stage, kind: WriterKind) -> bool {
    kind == WriterKind::Client
        && matches!(
            stage,
            Stage::PipelineSetupCreate
                | Stage::PipelineSetupAppend
                | Stage::PipelineSetupAppendRecovery
        )
}

fn announce(x: &Xceivers, block: &ExtendedBlock, storage: &StorageInfo) {
    x.link().receiving(block, storage);
}
