//! One group: its members are read and compared with their checksums, parity is written beside, and
//! the record makes it count.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hayloft_io::{AlignedBuf, EngineFile, IoErrorKind, OpenMode, SyncKind};
use hayloft_parity::{
    FileStamp, GroupId, GroupRecord, MemberRecord, PARITY_DIR, ParityRecord, Section, SumsCheck,
    parity_checksum,
};
use hayloft_store::inside::DIR_MODE;
use hayloft_store::{StoreError, StoreErrorKind};

use super::read_members::{
    NotEncoded, ParityCandidate, Source, clip, note_encoded, open_member, read_stride, take_check,
};
use super::read_units::stamp;
use super::unit_files::parity_file;
use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity, STRIDE, record_copies};

/// A stride of all members, on its way through the code.
struct Stride {
    bufs: Vec<AlignedBuf>,
    checks: Vec<SumsCheck>,
    parity: Vec<Bytes>,
    sums: Vec<Bytes>,
}

/// A group on its way. It leaves the table when its task panics, and its files go with a look at
/// all.
struct Claim<'a>(&'a Parity, GroupId);

impl Claim<'_> {
    /// The group counts, or is removed in order.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Self(parity, id) = *self;
        parity.table().remove(id);
        parity.clean_soon();
    }
}

/// Encodes a group and commits it. What was written of one that fails is removed.
pub async fn encode_group(
    parity: &Arc<Parity>,
    members: &[ParityCandidate],
    targets: &[UnitPlace],
) -> Result<GroupId, NotEncoded> {
    let record = draft(parity, members, targets);
    let id = record.id;
    parity.table().claim(record.clone());
    let claim = Claim(parity, id);
    let encode = async {
        let claimed = encode_claimed(parity, members, targets, record.clone());
        let (record, sections) = claimed.await?;
        commit(parity, members, record, &sections).await
    };
    let gone = members.iter().map(|member| &member.place).chain(targets);
    let gone = gone.map(|place| Box::pin(place.gone()));
    let outcome = tokio::select! {
        outcome = encode => outcome,
        // A disk that hangs gives no answer.
        _ = futures_util::future::select_all(gone) => Err(NotEncoded::Changed),
    };
    claim.end();
    if outcome.is_err() {
        let gone = parity.table().remove(id);
        if let Some(group) = gone {
            parity.remove_files(&group).await;
        } else {
            for (n, place) in targets.iter().enumerate() {
                let path = parity_file(&record, n).path(&place.volume.root);
                parity.unlink(place, &path).await;
            }
        }
    }
    outcome.map(|()| id)
}

fn draft(parity: &Parity, members: &[ParityCandidate], targets: &[UnitPlace]) -> GroupRecord {
    let root = |place: &UnitPlace| Arc::from(place.volume.root.to_string_lossy().as_ref());
    let member = |c: &ParityCandidate| MemberRecord {
        block_id: c.id,
        generation_stamp: c.replica.generation_stamp,
        covered: c.replica.len,
        storage: Arc::clone(&c.place.volume.info.id),
        root: root(&c.place),
        stamp: FileStamp::default(),
        dropped: false,
        sums: Section::default(),
    };
    let target = |place: &UnitPlace| ParityRecord {
        storage: Arc::clone(&place.volume.info.id),
        root: root(place),
        sums: Section::default(),
    };
    GroupRecord {
        id: GroupId(rand::random()),
        revision: 1,
        shape: parity.config.shape,
        pool: members[0].pool.id().clone(),
        members: members.iter().map(member).collect(),
        parity: targets.iter().map(target).collect(),
        copies: Vec::new(),
    }
}

/// Reads the members and writes the parity, durably. Gives the record, complete but for its copies,
/// and its sections.
async fn encode_claimed(
    parity: &Arc<Parity>,
    members: &[ParityCandidate],
    targets: &[UnitPlace],
    mut record: GroupRecord,
) -> Result<(GroupRecord, Vec<Bytes>), NotEncoded> {
    let mut sources = Vec::new();
    let mut sections_len = parity_checksum().meta_len(record.parity_len()) * targets.len() as u64;
    for (n, member) in members.iter().enumerate() {
        let source = open_member(parity, member).await;
        let source = source.map_err(|e| NotEncoded::Member(n, e))?;
        sections_len += source.sums.bytes().len() as u64;
        if !record_copies::fits(sections_len) {
            let text = "its checksums are too many for the record of a parity group with others";
            return Err(NotEncoded::Member(n, StoreError::illegal(text)));
        }
        sources.push(source);
    }
    let mut sums = vec![BytesMut::from(&parity_checksum().encode_meta_header()[..]); targets.len()];
    let files = create_parity(parity, targets, &record).await?;
    write_parity(parity, members, targets, &mut sources, &files, &mut sums).await?;
    note_encoded(parity, &sources);
    sync_parity(parity, targets, &files).await?;
    let mut sections = Vec::new();
    for (n, (source, member)) in sources.iter().zip(&mut record.members).enumerate() {
        let bytes = source.sums.bytes().clone();
        member.sums = Section::of(&bytes).map_err(|e| {
            NotEncoded::Member(n, StoreError::illegal(format!("its checksums: {e}")))
        })?;
        member.stamp = source.stamp;
        sections.push(bytes);
    }
    for (sums, target) in sums.into_iter().zip(&mut record.parity) {
        let bytes = sums.freeze();
        let section = Section::of(&bytes);
        target.sums =
            section.map_err(|e| NotEncoded::Parity(StoreError::illegal(e.to_string())))?;
        sections.push(bytes);
    }
    for (n, (source, member)) in sources.iter().zip(members).enumerate() {
        let path = member.pair().data();
        let now = stamp(&(&member.place).into(), &path, ENCODING).await;
        let now = now.map_err(|e| NotEncoded::Member(n, member.place.failed("looking", e)))?;
        let same = member.pool.map.is_finalized(member.id, &member.replica);
        if now != Some(source.stamp) || !same {
            return Err(NotEncoded::Changed);
        }
    }
    Ok((record, sections))
}

async fn create_parity(
    parity: &Parity,
    targets: &[UnitPlace],
    record: &GroupRecord,
) -> Result<Vec<Arc<dyn EngineFile>>, NotEncoded> {
    let mut files = Vec::new();
    for (n, place) in targets.iter().enumerate() {
        let failed = |e| NotEncoded::Parity(parity.refused(place, "creating a parity file", e));
        let volume = &place.volume;
        let dir = volume.root.join(PARITY_DIR);
        let made = volume.meta(ENCODING).create_dir_all(&dir, DIR_MODE);
        answer(place, made).await.map_err(failed)?;
        let path = parity_file(record, n).path(&volume.root);
        let file = volume.engine.open(&path, OpenMode::CreateNew, ENCODING);
        let file = answer(place, file).await.map_err(failed)?;
        match answer(place, file.allocate(record.parity_len())).await {
            Err(e) if e.kind() == IoErrorKind::NoSpace => return Err(failed(e)),
            // It is written without.
            _ => {}
        }
        files.push(file);
    }
    Ok(files)
}

/// Reads all members from end to end, a stride at a time, and writes the parity of it.
async fn write_parity(
    parity: &Arc<Parity>,
    members: &[ParityCandidate],
    targets: &[UnitPlace],
    sources: &mut [Source],
    files: &[Arc<dyn EngineFile>],
    sums: &mut [BytesMut],
) -> Result<(), NotEncoded> {
    let len = members.iter().map(|m| m.replica.len).max().unwrap_or(0);
    let mut offset = 0;
    while offset < len {
        let width = usize::try_from(len - offset).map_or(STRIDE, |left| left.min(STRIDE));
        let bufs = read_stride(members, sources, offset, width).await?;
        let lens = members.iter().map(|m| clip(m.replica.len, offset, width));
        let stride = Stride {
            bufs,
            checks: sources.iter_mut().map(take_check).collect(),
            parity: Vec::new(),
            sums: Vec::new(),
        };
        let stride = encode_stride(parity, stride, lens.collect(), width).await;
        let stride = stride.map_err(|error| match error {
            // Memory is not what the disk has: the disk is asked next time.
            NotEncoded::Member(at, _) if sources[at].from_memory => NotEncoded::Changed,
            error => error,
        })?;
        for ((source, buf), check) in sources.iter_mut().zip(stride.bufs).zip(stride.checks) {
            (source.buf, source.check) = (buf, check);
        }
        let writes = targets.iter().zip(files).zip(&stride.parity);
        let writes = writes.map(|((place, file), bytes)| {
            let write = file.write_at(vec![bytes.clone()], offset);
            answer(place, async { write.await.result })
        });
        let written = futures_util::future::join_all(writes).await;
        for (place, written) in targets.iter().zip(written) {
            let failed = |e| NotEncoded::Parity(parity.refused(place, "writing parity", e));
            written.map_err(failed)?;
        }
        for (all, more) in sums.iter_mut().zip(&stride.sums) {
            all.extend_from_slice(more);
        }
        offset += width as u64;
    }
    Ok(())
}

/// Compares a stride with its checksums and computes the parity, on a thread that may take its
/// time.
async fn encode_stride(
    parity: &Arc<Parity>,
    mut stride: Stride,
    lens: Vec<usize>,
    width: usize,
) -> Result<Stride, NotEncoded> {
    let parity = Arc::clone(parity);
    let work = move || {
        let checked = stride.checks.iter_mut().zip(&stride.bufs).zip(&lens);
        for (at, ((check, buf), len)) in checked.enumerate() {
            if let Err(mismatch) = check.push(&buf.as_slice()[..*len]) {
                let text = format!("member {at} of a new parity group: {mismatch}");
                return Err(NotEncoded::Member(at, StoreError::corrupt(text)));
            }
        }
        let units: Vec<&[u8]> = stride.bufs.iter().map(AlignedBuf::as_slice).collect();
        let mut coded = vec![BytesMut::zeroed(width); parity.config.shape.parity()];
        let mut into: Vec<&mut [u8]> = coded.iter_mut().map(|c| &mut c[..]).collect();
        let encoded = parity.code.encode(&units, &mut into);
        encoded.map_err(|e| NotEncoded::Parity(StoreError::illegal(e.to_string())))?;
        for piece in coded {
            let mut sums = BytesMut::new();
            parity_checksum().compute(&piece, &mut sums);
            stride.sums.push(sums.freeze());
            stride.parity.push(piece.freeze());
        }
        Ok(stride)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(NotEncoded::Parity(StoreError::closed(e.to_string()))))
}

async fn sync_parity(
    parity: &Parity,
    targets: &[UnitPlace],
    files: &[Arc<dyn EngineFile>],
) -> Result<(), NotEncoded> {
    let syncs = targets.iter().zip(files);
    let syncs = syncs.map(|(place, file)| answer(place, file.sync(SyncKind::All)));
    let synced = futures_util::future::join_all(syncs).await;
    for (place, synced) in targets.iter().zip(synced) {
        let failed = |e| NotEncoded::Parity(parity.refused(place, "syncing parity", e));
        synced.map_err(failed)?;
        let dir = place.volume.root.join(PARITY_DIR);
        let named = answer(place, place.volume.meta(ENCODING).sync_dir(&dir));
        named.await.map_err(failed)?;
    }
    Ok(())
}

/// Makes the group count: from here on the data of its members is kept.
async fn commit(
    parity: &Arc<Parity>,
    members: &[ParityCandidate],
    mut record: GroupRecord,
    sections: &[Bytes],
) -> Result<(), NotEncoded> {
    let places = parity.copy_places(&record);
    if places.len() <= parity.config.shape.parity() {
        let text = "too few volumes are left for the copies of a parity record";
        let error = StoreError::new(StoreErrorKind::OutOfSpace, text);
        return Err(NotEncoded::Parity(error));
    }
    record.copies = places
        .iter()
        .map(|p| Arc::clone(&p.volume.info.id))
        .collect();
    let begun = parity.table().begin_commit(record.clone());
    begun.map_err(|_| NotEncoded::Changed)?;
    // A change between the last look and the claim's end would have spoiled the claim.
    let written = parity.write_copies(&record, sections, &places, &[]).await;
    written.map_err(NotEncoded::Parity)?;
    parity.table().committed(record.id);
    for target in &record.parity {
        if let Some(place) = parity.place(&target.storage) {
            parity.note_taken(&place.volume);
        }
    }
    tracing::debug!(group = %record.id, members = members.len(), "parity group committed");
    Ok(())
}
