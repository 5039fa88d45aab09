//! Copies of records on volumes: they are read, written, and written anew.
//!
//! A group is committed when the first copy of its record is durable: its parity was before.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{IoError, IoOp};
use hayloft_parity::{
    GroupFile, GroupId, GroupRecord, HEAD_BYTES_MAX, PARITY_DIR, RECORD_START, RecordError,
    SECTIONS_BYTES_MAX, TableGroup, UnitSums, encode, encode_head,
};
use hayloft_store::inside::{DIR_MODE, FILE_MODE};
use hayloft_store::{StoreError, StoreErrorKind};
use tracing::{debug, warn};

use super::unit_files::{section_of, unit_len};
use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity};

/// Reads the head of a record, or one that lies alone.
pub fn read_head(path: &Path) -> io::Result<GroupRecord> {
    open_record(path).map(|(_, record, _)| record)
}

fn open_record(path: &Path) -> io::Result<(std::fs::File, GroupRecord, usize)> {
    let mut file = hayloft_io::patiently(|| std::fs::File::open(path))?;
    let mut head = vec![0; RECORD_START];
    file.read_exact(&mut head)?;
    let len = GroupRecord::head_len(&head).map_err(invalid)?;
    debug_assert!(
        len <= RECORD_START + HEAD_BYTES_MAX + 4,
        "checked by head_len"
    );
    head.resize(len, 0);
    file.read_exact(&mut head[RECORD_START..])?;
    let (record, len) = GroupRecord::decode(&head).map_err(invalid)?;
    Ok((file, record, len))
}

fn invalid(error: RecordError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads some sections of the record of `group` and compares them with their checksums.
fn read_sections(path: &Path, group: GroupId, wanted: &[usize]) -> io::Result<Vec<Bytes>> {
    let (mut file, record, head_len) = open_record(path)?;
    if record.id != group {
        return Err(invalid(RecordError::Field("group of a record")));
    }
    let mut sections = Vec::new();
    for nth in wanted {
        let found = record.section(*nth, head_len);
        let (at, section) = found.ok_or_else(|| invalid(RecordError::Field("section")))?;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = vec![0; section.len as usize];
        file.read_exact(&mut bytes)?;
        if !section.matches(&bytes) {
            return Err(invalid(RecordError::Damaged));
        }
        sections.push(bytes.into());
    }
    Ok(sections)
}

/// Reads all that a copy of a record has.
pub fn read_copy(path: &Path, group: GroupId, sections: &[usize]) -> io::Result<()> {
    read_sections(path, group, sections)?;
    match read_head(&path.with_file_name(GroupFile::Head(group).name())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Parity {
    /// Some sections of the record of a group, from the first copy that has them whole.
    pub(super) async fn sections(
        &self,
        record: &GroupRecord,
        wanted: &[usize],
    ) -> Result<Vec<Bytes>, StoreError> {
        let mut why = format!("no copy of the record of group {} is in use", record.id);
        for copy in &record.copies {
            let Some(place) = self.source(copy, &record.pool) else {
                continue;
            };
            let path = GroupFile::Record(record.id).path(place.root());
            let (group, wanted) = (record.id, wanted.to_vec());
            let meta = place.meta(hayloft_io::IoClass::ClientRead);
            let read = meta.run(IoOp::Read, &path, move |path| {
                read_sections(path, group, &wanted)
                    .map_err(|e| IoError::from_std(IoOp::Read, path, &e).with_context(e))
            });
            match place.answer(read).await {
                Ok(sections) => return Ok(sections),
                Err(error) if error.lacks().is_some() => {
                    return Err(StoreError::io("reading a parity record", error));
                }
                Err(error) => {
                    warn!(%error, "a copy of a parity record cannot be used");
                    self.note_torn(record.id);
                    why = place.failed("reading a parity record", error).to_string();
                }
            }
        }
        // Before all volumes are known another copy may be to come.
        if self.knows_all()
            && let Some(group) = self.table().get_mut(record.id)
        {
            warn!(group = %record.id, "a parity group has no whole record: its replicas go into \
                new groups");
            group.given_up = true;
        }
        Err(StoreError::new(StoreErrorKind::Io, why))
    }

    /// The checksums of a unit.
    pub(super) async fn sums(
        &self,
        record: &GroupRecord,
        unit: usize,
    ) -> Result<UnitSums, StoreError> {
        let wrong = |e: RecordError| {
            StoreError::corrupt(format!("unit {unit} of parity group {}: {e}", record.id))
        };
        let section = section_of(record, unit);
        let section = section.ok_or_else(|| wrong(RecordError::Field("section")))?;
        let mut sections = self.sections(record, &[section]).await?;
        let bytes = sections.pop().unwrap_or_default();
        UnitSums::new(bytes, unit_len(record, unit)).map_err(wrong)
    }

    /// A copy of the record of a group is damaged: all are written again.
    pub(super) fn note_torn(&self, group: GroupId) {
        if let Some(group) = self.table().get_mut(group) {
            (group.dirty, group.torn) = (true, true);
        }
        self.wake.notify_one();
    }

    /// Volumes for the copies of a record: those of the parity files, and one of a member, on as
    /// many disks.
    pub(super) fn copy_places(&self, record: &GroupRecord) -> Vec<UnitPlace> {
        let wanted = record.shape.parity() + 1;
        let usable = |storage: &Arc<str>| {
            let place = self.place(storage);
            place.filter(|place| self.takes_files(&place.volume))
        };
        let parity = record.parity.iter().map(|p| &p.storage);
        let mut members: Vec<UnitPlace> = record
            .members
            .iter()
            .filter_map(|m| usable(&m.storage))
            .collect();
        // A record that is written again stays where it is.
        // Room changes while it is compared: a sort that asks twice may panic.
        members.sort_by_cached_key(|place| {
            let has_one = record.copies.contains(&place.volume.info.id);
            (!has_one, std::cmp::Reverse(place.volume.room()))
        });
        let mut others = self.usable_places();
        others.sort_by_cached_key(|place| std::cmp::Reverse(place.volume.room()));
        let parity = parity.filter_map(usable);
        let mut chosen: Vec<UnitPlace> = Vec::new();
        for place in parity.chain(members).chain(others) {
            let disk = self.disk_of(&place.volume);
            let taken = chosen.iter().any(|c| self.disk_of(&c.volume) == disk);
            if !taken && chosen.len() < wanted {
                chosen.push(place);
            }
        }
        chosen
    }

    /// Writes a record to `places`, durably, one after the other. Storages in `have` have its
    /// sections already, and get a head.
    pub(super) async fn write_copies(
        &self,
        record: &GroupRecord,
        sections: &[Bytes],
        places: &[UnitPlace],
        have: &[Arc<str>],
    ) -> Result<(), StoreError> {
        let has = |place: &UnitPlace| have.contains(&place.volume.info.id);
        let wrong = |e| StoreError::illegal(format!("parity group {}: {e}", record.id));
        let head = encode_head(record).map_err(wrong)?;
        let whole = match places.iter().all(has) {
            true => Vec::new(),
            false => encode(record, sections).map_err(wrong)?,
        };
        for place in places {
            let (file, contents) = match has(place) {
                true => (GroupFile::Head(record.id), &head),
                false => (GroupFile::Record(record.id), &whole),
            };
            let path = file.path(&place.volume.root);
            let meta = place.volume.meta(ENCODING).that_syncs(true);
            let written = async {
                let dir = place.volume.root.join(PARITY_DIR);
                meta.create_dir_all(&dir, DIR_MODE).await?;
                meta.replace(&path, contents.clone(), FILE_MODE).await
            };
            let written = answer(place, written).await;
            written.map_err(|e| self.refused(place, "writing a parity record", e))?;
        }
        Ok(())
    }

    /// Writes the records that are out of date.
    pub(super) async fn write_dirty(&self) {
        let dirty: Vec<_> = {
            let table = self.table();
            // What outlived its group is not made whole again, nor what may have: that a copy is
            // missing is all that tells.
            let dirty = |group: &&TableGroup| group.dirty && !group.may_have_been_dissolved();
            let groups = table.iter().filter(dirty);
            groups.map(|group| group.record.id).collect()
        };
        for group in dirty {
            if let Err(error) = self.rewrite(group).await {
                debug!(%group, %error, "a parity record is written again later");
            }
        }
    }

    /// Writes the record of a group again, as the table has it now.
    pub(crate) async fn rewrite(&self, group: GroupId) -> Result<(), StoreError> {
        let _alone = self.recording.lock().await;
        let Some(record) = self.table().get(group).map(|g| Arc::clone(&g.record)) else {
            return Ok(());
        };
        self.write_next(&record, GroupRecord::clone(&record)).await
    }

    /// Replaces the record `before` of a group by `next`, as its next revision; whole where no
    /// sound copy lies. The caller holds `recording`.
    pub(super) async fn write_next(
        &self,
        before: &Arc<GroupRecord>,
        mut next: GroupRecord,
    ) -> Result<(), StoreError> {
        let places = self.copy_places(&next);
        // Volumes that refuse have copies yet: as many as there are stay.
        let there = before.copies.iter().filter_map(|c| self.place(c));
        let there: Vec<UnitPlace> = there.collect();
        let there = self
            .disks_of(there.iter().map(|place| &*place.volume))
            .len();
        if places.len() < there.min(next.shape.parity() + 1) {
            let text = "too few volumes take a parity record now";
            return Err(StoreError::new(StoreErrorKind::OutOfSpace, text));
        }
        next.revision += 1;
        next.copies = places
            .iter()
            .map(|p| Arc::clone(&p.volume.info.id))
            .collect();
        let torn = self.table().get(next.id).is_none_or(|group| group.torn);
        let have = if torn { &[][..] } else { &before.copies };
        let sections = match next.copies.iter().all(|copy| have.contains(copy)) {
            true => Vec::new(),
            false => {
                let all: Vec<usize> = (0..before.members.len() + before.parity.len()).collect();
                self.sections(before, &all).await?
            }
        };
        let written = self.write_copies(&next, &sections, &places, have).await;
        if written.is_err()
            && let Some(group) = self.table().get_mut(next.id)
        {
            // Some copies may have it by now: the next one has to win against them.
            Arc::make_mut(&mut group.record).revision = next.revision;
            group.dirty = true;
        }
        written?;
        // Older copies would lose against these, but take room.
        for copy in before
            .copies
            .iter()
            .filter(|copy| !next.copies.contains(*copy))
        {
            if let Some(place) = self.place(copy) {
                self.unlink_copy(&place, next.id).await;
            }
        }
        self.replaced(before, next, torn);
        Ok(())
    }

    /// The table has a record from now on that was written.
    fn replaced(&self, before: &Arc<GroupRecord>, mut next: GroupRecord, whole: bool) {
        let mut table = self.table();
        let Some(group) = table.get_mut(next.id) else {
            return;
        };
        let unchanged = Arc::ptr_eq(&group.record, before);
        let now = Arc::make_mut(&mut group.record);
        for (ours, written) in now.members.iter().zip(&mut next.members) {
            // What has left since stays so.
            written.dropped |= ours.dropped;
        }
        *now = next;
        // One that was found damaged meanwhile is written once more.
        group.torn &= !whole;
        group.dirty = !unchanged || group.torn;
    }
}

/// Bytes that a record with these sections may take in a file.
#[must_use]
pub fn fits(sections_len: u64) -> bool {
    sections_len <= SECTIONS_BYTES_MAX
}
