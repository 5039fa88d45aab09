//! Lost blocks from those that are left, window after window. While one window is on its way out,
//! the next one is read.

use futures_util::future::try_join;
use hayloft_coder::{Coder, CoderError};
use hayloft_wire::checksum::DataChecksum;

use super::choose_sources::Sources;
use super::what_is_left::StripedGroup;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::settings::Settings;

/// Of the memory for block data, all reconstructions that run at a time take at most one part in so
/// many.
const SHARE_OF_MEMORY: usize = 4;

/// Takes what was decoded.
pub(super) trait Sink: Send {
    /// Takes the next bytes of the wanted blocks, which begin at the same offset in each. A block
    /// that ends before has less, or nothing.
    ///
    /// # Errors
    /// The reconstruction ends.
    fn take(&mut self, blocks: &[&[u8]]) -> impl Future<Output = Result<(), XferError>> + Send;
}

/// A reconstruction whose sources are open.
pub(super) struct Decoding<'a> {
    x: &'a Xceivers,
    settings: &'a Settings,
    group: &'a StripedGroup,
    wanted: Vec<usize>,
    /// Behind the last byte that is wanted.
    end: u64,
    coder: Coder,
    sources: Sources<'a>,
    checksum: DataChecksum,
}

impl<'a> Decoding<'a> {
    /// Opens sources for the first `end` bytes of the internal blocks `wanted`. `end` is not beyond
    /// the longest of them.
    ///
    /// # Errors
    /// Too few sources can be read, or there is no such code.
    pub(super) async fn open(
        x: &'a Xceivers,
        settings: &'a Settings,
        group: &'a StripedGroup,
        wanted: Vec<usize>,
        end: u64,
    ) -> Result<Self, XferError> {
        let stripe = group.stripe;
        let coder = Coder::new(group.codec, stripe.data, stripe.parity).map_err(refused)?;
        let mut sources = Sources::choose(x, settings, group, end)?;
        let checksum = sources.open().await?;
        Ok(Self {
            x,
            settings,
            group,
            wanted,
            end,
            coder,
            sources,
            checksum,
        })
    }

    /// How the sources are checksummed, and the lost blocks were.
    pub(super) fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// Decodes all of it into `sink`.
    ///
    /// # Errors
    /// Too few sources are left, what was decoded is wrong, or those of `sink`.
    pub(super) async fn run(self, sink: &mut impl Sink) -> Result<(), XferError> {
        let plan = WindowPlan::new(&self);
        let unit = window(&self, plan.units());
        let size = 2 * plan.units() * unit;
        let memory = self.x.memory().acquire(size).await;
        let mut memory = memory.map_err(|e| XferError::Refused(e.to_string()))?;
        let (one, other) = memory.as_mut_capacity()[..size].split_at_mut(size / 2);
        let mut current = Window::new(&plan, unit, one);
        let mut next = Window::new(&plan, unit, other);

        let Self {
            x,
            settings,
            group,
            wanted,
            end,
            coder,
            mut sources,
            ..
        } = self;
        let read_limit = &x.throttles().reconstruction_read;
        current.fill(&mut sources, 0, end).await?;
        let mut at = 0;
        while at < end {
            let len = current.len;
            current.decode(&coder, &wanted)?;
            if settings.reconstruction.validation {
                current.validate(&coder, &wanted)?;
            }
            read_limit.take((len * plan.sources) as u64).await;
            let following = at + len as u64;
            let decoded = wanted.iter().zip(current.results());
            let blocks: Vec<&[u8]> = decoded
                .map(|(&index, bytes)| {
                    let left = group.internal_len(index).min(end).saturating_sub(at);
                    &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))]
                })
                .collect();
            let filling = next.fill(&mut sources, following, end);
            try_join(filling, sink.take(&blocks)).await?;
            std::mem::swap(&mut current, &mut next);
            at = following;
        }
        sources.finish().await;
        Ok(())
    }
}

/// How many bytes of each internal block are decoded at a time: what the configuration says, in
/// whole chunks, as far as memory allows.
fn window(decoding: &Decoding<'_>, units: usize) -> usize {
    let Decoding { x, settings, .. } = decoding;
    let reconstruction = settings.reconstruction;
    let share = x.memory().budget() / SHARE_OF_MEMORY / reconstruction.threads.max(1);
    let most = share / (2 * units).max(1);
    let longest = usize::try_from(decoding.end).unwrap_or(usize::MAX);
    let chunk = decoding.checksum.chunk_size();
    let wanted = reconstruction.buffer.min(most).min(longest);
    (wanted / chunk).max(1) * chunk
}

/// What a window is made of.
#[derive(Clone, Debug)]
struct WindowPlan {
    /// Units that are read.
    sources: usize,
    /// Data units that are zeros, by index.
    zeros: Vec<usize>,
    /// Units that are decoded.
    wanted: usize,
    validation: bool,
}

impl WindowPlan {
    fn new(decoding: &Decoding<'_>) -> Self {
        let group = decoding.group;
        let data = 0..group.stripe.data;
        Self {
            sources: group.sources_needed(),
            zeros: data.filter(|&index| group.is_empty(index)).collect(),
            wanted: decoding.wanted.len(),
            validation: decoding.settings.reconstruction.validation,
        }
    }

    /// Units that memory is needed for: one of zeros does for all, and validation decodes one.
    fn units(&self) -> usize {
        let zeros = usize::from(!self.zeros.is_empty());
        self.sources + self.wanted + zeros + usize::from(self.validation)
    }
}

/// The same bytes of every unit.
struct Window<'a> {
    plan: &'a WindowPlan,
    /// Most bytes of a unit.
    unit: usize,
    /// Bytes of each unit that are valid.
    len: usize,
    /// Which units were read.
    indices: Vec<usize>,
    /// Those read, those decoded, one of zeros, one for validation.
    memory: &'a mut [u8],
}

impl<'a> Window<'a> {
    fn new(plan: &'a WindowPlan, unit: usize, memory: &'a mut [u8]) -> Self {
        let zeros = (plan.sources + plan.wanted) * unit;
        memory[zeros..].fill(0);
        Self {
            plan,
            unit,
            len: 0,
            indices: Vec::new(),
            memory,
        }
    }

    /// Reads the bytes from `start` on of all sources; nothing at `end`.
    async fn fill(
        &mut self,
        sources: &mut Sources<'_>,
        start: u64,
        end: u64,
    ) -> Result<(), XferError> {
        let left = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let len = self.unit.min(left);
        self.len = len;
        if len > 0 {
            let units = self.memory.chunks_exact_mut(self.unit);
            let buffers = units.take(self.plan.sources).map(|unit| &mut unit[..len]);
            self.indices = sources.fill(start, buffers).await?;
        }
        Ok(())
    }

    /// Decodes the units `wanted`.
    fn decode(&mut self, coder: &Coder, wanted: &[usize]) -> Result<(), XferError> {
        let (read, rest) = self.memory.split_at_mut(self.plan.sources * self.unit);
        let (results, rest) = rest.split_at_mut(self.plan.wanted * self.unit);
        let sources = known_units(self.plan, &self.indices, self.unit, self.len, read, rest);
        let mut out = firsts(results, self.unit, self.len);
        coder
            .reconstruct(&sources, wanted, &mut out)
            .map_err(refused)
    }

    /// Decodes the first source from the others and one of the results, and compares.
    fn validate(&mut self, coder: &Coder, wanted: &[usize]) -> Result<(), XferError> {
        let (read, rest) = self.memory.split_at_mut(self.plan.sources * self.unit);
        let (results, rest) = rest.split_at_mut(self.plan.wanted * self.unit);
        let (zeros, check) = rest.split_at_mut(rest.len() - self.unit);
        let mut sources = known_units(self.plan, &self.indices, self.unit, self.len, read, zeros);
        let Some(&result) = wanted.first() else {
            return Ok(());
        };
        let (index, expected) = std::mem::replace(&mut sources[0], (result, &results[..self.len]));
        let check = &mut check[..self.len];
        let decoded = coder.reconstruct(&sources, &[index], &mut [&mut *check]);
        decoded.map_err(refused)?;
        if *check == *expected {
            return Ok(());
        }
        Err(XferError::Checksum(format!(
            "what was decoded for internal block {result} is wrong: internal block {index} does \
             not come of it"
        )))
    }

    /// The units that were decoded.
    fn results(&self) -> impl Iterator<Item = &[u8]> {
        let units = self.memory.chunks_exact(self.unit);
        let results = units.skip(self.plan.sources).take(self.plan.wanted);
        results.map(|unit| &unit[..self.len])
    }
}

/// The units that are known: those read, and those of zeros.
fn known_units<'m>(
    plan: &WindowPlan,
    indices: &[usize],
    unit: usize,
    len: usize,
    read: &'m [u8],
    zeros: &'m [u8],
) -> Vec<(usize, &'m [u8])> {
    let read = read.chunks_exact(unit).map(|unit| &unit[..len]);
    let known = indices.iter().copied().zip(read);
    known
        .chain(plan.zeros.iter().map(|&index| (index, &zeros[..len])))
        .collect()
}

/// The first `len` bytes of each unit.
fn firsts(units: &mut [u8], unit: usize, len: usize) -> Vec<&mut [u8]> {
    let units = units.chunks_exact_mut(unit);
    units.map(|unit| &mut unit[..len]).collect()
}

fn refused(error: CoderError) -> XferError {
    XferError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use hayloft_coder::Codec;

    use super::*;

    #[test]
    fn validation_finds_a_wrong_result() {
        let coder = Coder::new(Codec::ReedSolomon, 3, 2).expect("a shape of HDFS");
        let plan = WindowPlan {
            sources: 2,
            zeros: vec![2],
            wanted: 1,
            validation: true,
        };
        let mut memory: Vec<u8> = (0..5 * 8).collect();
        assert_eq!(plan.units() * 8, memory.len());
        let mut window = Window::new(&plan, 8, &mut memory);
        window.len = 7;
        window.indices = vec![0, 3];
        window.decode(&coder, &[1]).expect("decodable");
        window.validate(&coder, &[1]).expect("right");
        let at = plan.sources * 8 + 3;
        window.memory[at] ^= 1;
        let error = window.validate(&coder, &[1]).expect_err("wrong");
        assert!(matches!(error, XferError::Checksum(_)), "{error}");
    }
}
