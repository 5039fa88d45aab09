//! Ranges of a unit from the same ranges of others.
//!
//! What comes out is compared with the checksums in the record. When it differs, one of the units
//! that it came from is not what it was: each is compared with its own checksums then, and those
//! that differ are left out.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use hayloft_io::{AlignedBuf, EngineFile, IoClass, locks};
use hayloft_parity::{GroupCode, GroupRecord, ParityShape, TableGroup, UnitRef, UnitSums};
use hayloft_store::{StoreError, StoreErrorKind};
use tracing::{debug, warn};

use super::Parity;
use super::read_members::clip;
use super::read_units::{SourcePlace, open_source};
use super::unit_files::{section_of, storage_of, unit_len, unit_path};

/// Bytes of each unit that are read at a time, about: ranges grow to whole chunks and pieces.
const RANGE_MAX: u64 = 1 << 20;

/// Buffers of [`RANGE_MAX`] bytes that are decoded at once, each with a permit, unless one range
/// takes more. More clients of a dead disk wait for each other.
pub(super) const BUFFERS_MAX: u8 = 64;

/// Buffers for a range of a group: those of K units, and one for what comes of them.
fn buffers(shape: ParityShape) -> u32 {
    let of_units = u8::try_from(shape.data()).unwrap_or(BUFFERS_MAX);
    of_units.saturating_add(1).min(BUFFERS_MAX).into()
}

/// Reads a unit without its own file.
#[derive(Debug)]
pub struct UnitReader {
    parity: Arc<Parity>,
    record: Arc<GroupRecord>,
    unit: UnitRef,
    code: Arc<GroupCode>,
    sums: UnitSums,
    class: IoClass,
    files: Mutex<HashMap<usize, Arc<dyn EngineFile>>>,
    /// Units that were found to be damaged.
    bad: Mutex<Vec<usize>>,
}

impl UnitReader {
    /// A reader of `unit`, which reads the others in `class`.
    ///
    /// # Errors
    /// `Corrupt` when too few units are left, `Io` when no copy of the record can be read.
    pub async fn open(
        parity: &Arc<Parity>,
        unit: UnitRef,
        class: IoClass,
    ) -> Result<Self, StoreError> {
        let record = {
            let table = parity.table();
            let group = table.get(unit.group);
            let group = group.ok_or_else(|| gone(unit))?;
            Arc::clone(&group.record)
        };
        Ok(Self {
            sums: parity.sums(&record, unit.unit).await?,
            code: parity.code_of(record.shape),
            parity: Arc::clone(parity),
            record,
            unit,
            class,
            files: Mutex::default(),
            bad: Mutex::default(),
        })
    }

    /// The checksums of the unit.
    pub fn sums(&self) -> &UnitSums {
        &self.sums
    }

    /// The same, reading in another class.
    pub fn with_class(&self, class: IoClass) -> Self {
        Self {
            parity: Arc::clone(&self.parity),
            record: Arc::clone(&self.record),
            unit: self.unit,
            code: Arc::clone(&self.code),
            sums: self.sums.clone(),
            class,
            files: Mutex::default(),
            bad: Mutex::new(locks::lock(&self.bad).clone()),
        }
    }

    /// Decodes `range`, as far as the unit has it, into the beginning of `buf`; gives how much that
    /// is. What it gives fits its checksums.
    ///
    /// # Errors
    /// `Corrupt` when it cannot be decoded; errors of the volumes.
    pub async fn read(&self, range: Range<u64>, buf: &mut [u8]) -> Result<usize, StoreError> {
        let end = range.end.min(self.sums.len());
        let mut at = range.start;
        let mut filled = 0;
        while at < end {
            let piece = self.sums.aligned(at..end.min(at.saturating_add(RANGE_MAX)));
            let buffers = buffers(self.record.shape);
            let turn = self.parity.decoding.acquire_many(buffers).await;
            let turn = turn.map_err(|e| StoreError::closed(e.to_string()))?;
            let bytes = self.decode(piece.clone()).await?;
            let skip = usize::try_from(at - piece.start).unwrap_or(usize::MAX);
            let to = end.min(piece.end);
            let n = usize::try_from(to - at).unwrap_or(usize::MAX);
            buf[filled..filled + n].copy_from_slice(&bytes.as_slice()[skip..skip + n]);
            drop(turn);
            filled += n;
            at = to;
        }
        Ok(filled)
    }

    /// A range of whole chunks.
    async fn decode(&self, range: Range<u64>) -> Result<AlignedBuf, StoreError> {
        let mut careful = false;
        loop {
            let group = {
                let table = self.parity.table();
                table.get(self.unit.group).cloned()
            };
            let group = group.ok_or_else(|| gone(self.unit))?;
            let bad = locks::lock(&self.bad).clone();
            let usable = |unit| group.available(unit) && !bad.contains(&unit);
            let members = self.record.members.len();
            // A disk that hangs is waited for only when the others are too few.
            let soon = |unit| usable(unit) && self.answers(unit);
            let of = |unit| self.code.sources(members, unit, soon);
            let any = |unit| self.code.sources(members, unit, usable);
            let sources = of(self.unit.unit).or_else(|| any(self.unit.unit));
            let Some(sources) = sources else {
                return Err(self.undecodable());
            };
            if careful {
                let mut found = false;
                for unit in sources
                    .iter()
                    .filter(|unit| section_of(&self.record, **unit).is_some())
                {
                    found |= !self.is_good(&group, *unit, range.clone()).await?;
                }
                if !found {
                    // All are what they were, and so would be what comes of them: the record of
                    // this group says something else.
                    return Err(self.undecodable());
                }
                careful = false;
                continue;
            }
            match self.attempt(&group, &sources, range.clone()).await? {
                Some(bytes) => return Ok(bytes),
                // Others are tried in place of one that was left out; without one, what came of
                // them did not fit.
                None => careful = locks::lock(&self.bad).len() == bad.len(),
            }
        }
    }

    /// Whether a unit may be read without waiting for long.
    fn answers(&self, unit: usize) -> bool {
        let storage = storage_of(&self.record, unit);
        let source = storage.and_then(|s| self.parity.source(s, &self.record.pool));
        match source {
            Some(SourcePlace::Attended(place)) => self.parity.answers(&place.volume),
            Some(SourcePlace::Unattended(_)) => true,
            None => false,
        }
    }

    fn undecodable(&self) -> StoreError {
        let text = format!(
            "unit {} of parity group {} cannot be decoded: too few units are left",
            self.unit.unit, self.unit.group
        );
        StoreError::corrupt(text)
    }

    /// Decodes from these sources; `None` when one of them cannot be read or is not what it was.
    async fn attempt(
        &self,
        group: &TableGroup,
        sources: &[usize],
        range: Range<u64>,
    ) -> Result<Option<AlignedBuf>, StoreError> {
        let reads = sources
            .iter()
            .map(|unit| self.read_unit(group, *unit, range.clone()));
        let reads = futures_util::future::join_all(reads).await;
        let mut units = Vec::new();
        for (unit, read) in sources.iter().zip(reads) {
            match read {
                Ok(buf) => units.push((*unit, buf)),
                // It says nothing of the unit.
                Err(error) if error.kind() == StoreErrorKind::Retry => return Err(error),
                Err(error) => {
                    debug!(group = %self.unit.group, unit, %error, "a source of decoding is left \
                        out");
                    let io = error.io_error();
                    if io.is_some_and(|e| e.kind().suspects_volume()) {
                        self.parity.note_unreadable(group, *unit);
                    }
                    self.leave_out(*unit);
                    return Ok(None);
                }
            }
        }
        let (code, sums, wanted) = (Arc::clone(&self.code), self.sums.clone(), self.unit.unit);
        let work = move || {
            let width = usize::try_from(range.end - range.start).expect("a range in memory");
            let mut out = AlignedBuf::unpooled(width.max(1));
            out.set_len(width);
            let slices: Vec<(usize, &[u8])> = units
                .iter()
                .map(|(unit, buf)| (*unit, buf.as_slice()))
                .collect();
            let decoded = code.decode(&slices, wanted, out.as_mut_slice());
            decoded.map_err(|e| StoreError::illegal(e.to_string()))?;
            Ok(sums
                .verify(range.start, out.as_slice())
                .is_ok()
                .then_some(out))
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|e| Err(StoreError::closed(e.to_string())))
    }

    fn leave_out(&self, unit: usize) {
        locks::lock(&self.files).remove(&unit);
        let mut bad = locks::lock(&self.bad);
        if !bad.contains(&unit) {
            bad.push(unit);
        }
    }

    /// A range of a unit, filled up with zeros.
    async fn read_unit(
        &self,
        group: &TableGroup,
        unit: usize,
        range: Range<u64>,
    ) -> Result<AlignedBuf, StoreError> {
        let width = usize::try_from(range.end - range.start).expect("a range in memory");
        let n = clip(unit_len(&self.record, unit), range.start, width);
        let mut buf = AlignedBuf::unpooled(width.max(1));
        if n > 0 {
            let storage = storage_of(&self.record, unit);
            let storage = storage.map_or("", |s| s);
            let place = self.parity.source_of(storage, &self.record.pool)?;
            let failed = |e| place.failed("reading a unit of a parity group", e);
            let open = locks::lock(&self.files).get(&unit).cloned();
            let file = match open {
                Some(file) => file,
                None => {
                    let path = unit_path(group, unit, &place);
                    let path = path.ok_or_else(|| gone(self.unit))?;
                    let open = open_source(&place, &path, self.class);
                    let file = open.await.map_err(failed)?;
                    locks::lock(&self.files).insert(unit, Arc::clone(&file));
                    file
                }
            };
            let read = file.read_at(buf, range.start, n);
            let read = async { read.await.into_result() };
            let (filled, got) = place.answer(read).await.map_err(failed)?;
            buf = filled;
            if got < n {
                let text = "a unit of a parity group ends early";
                return Err(StoreError::corrupt(text));
            }
        }
        buf.as_mut_capacity()[n..width].fill(0);
        buf.set_len(width);
        Ok(buf)
    }

    /// Whether a unit is what it was around `range`. One that is not is left out from now on, and
    /// looked at. `Retry` when the process lacks what the look takes.
    async fn is_good(
        &self,
        group: &TableGroup,
        unit: usize,
        range: Range<u64>,
    ) -> Result<bool, StoreError> {
        let look = async {
            let sums = self.parity.sums(&self.record, unit).await?;
            let range = sums.aligned(range);
            let buf = self.read_unit(group, unit, range.clone()).await?;
            let wrong = |e| StoreError::corrupt(format!("unit {unit}: {e}"));
            sums.verify(range.start, buf.as_slice()).map_err(wrong)
        };
        let error = match look.await {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == StoreErrorKind::Retry => return Err(error),
            Err(error) => error,
        };
        warn!(group = %self.unit.group, unit, %error, "a unit of a parity group is damaged");
        self.leave_out(unit);
        Ok(false)
    }
}

fn gone(unit: UnitRef) -> StoreError {
    StoreError::new(
        StoreErrorKind::NotFound,
        format!("parity group {} is gone", unit.group),
    )
}
