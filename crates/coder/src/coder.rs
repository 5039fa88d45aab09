//! A code of one shape: encode, update, reconstruct.

use crate::matrix::{self, Matrix};
use crate::plans::Plans;
use crate::tables::Tables;
use crate::{Codec, CoderError};

/// A code over so many data units and so many parity units.
///
/// Units have indices: data units first, then parity units, as the internal blocks of a striped
/// group in HDFS. A coder may be used by several threads at once. It remembers the matrices of the
/// last sets of lost units, within a limit: at most 64, and at most 1 MiB together.
#[derive(Debug)]
pub struct Coder {
    codec: Codec,
    generator: Matrix,
    parity: Tables,
    plans: Plans,
}

impl Coder {
    /// Makes a coder for `data_units` and `parity_units`. It costs some microseconds.
    ///
    /// # Errors
    ///
    /// [`CoderError::Shape`]: a code has at least one unit of each kind and at most 255 units
    /// together; [`Codec::Xor`] has one parity unit.
    pub fn new(codec: Codec, data_units: usize, parity_units: usize) -> Result<Self, CoderError> {
        let shape = CoderError::Shape {
            codec,
            data_units,
            parity_units,
        };
        let fits = data_units
            .checked_add(parity_units)
            .is_some_and(|all| all <= MOST_UNITS);
        if data_units == 0 || parity_units == 0 || !fits {
            return Err(shape);
        }
        let generator = match codec {
            Codec::ReedSolomon => matrix::cauchy(data_units, parity_units),
            Codec::ReedSolomonLegacy => matrix::by_polynomial(data_units, parity_units),
            Codec::Xor if parity_units == 1 => matrix::ones(data_units),
            Codec::Xor => return Err(shape),
        };
        let parity = Tables::new(&generator.rows_from(data_units));
        Ok(Self {
            codec,
            generator,
            parity,
            plans: Plans::default(),
        })
    }

    /// The code.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// How many data units it has.
    #[must_use]
    pub fn data_units(&self) -> usize {
        self.generator.columns()
    }

    /// How many parity units it has: as many lost units can be reconstructed.
    #[must_use]
    pub fn parity_units(&self) -> usize {
        self.units() - self.data_units()
    }

    /// How many units it has together.
    #[must_use]
    pub fn units(&self) -> usize {
        self.generator.rows()
    }

    /// Computes all parity units of all data units, and overwrites `parity` with them.
    ///
    /// # Errors
    ///
    /// [`CoderError::Count`] and [`CoderError::Length`]; then `parity` is as it was.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CoderError> {
        count("data units", data.len(), self.data_units())?;
        count("parity units", parity.len(), self.parity_units())?;
        let length = data[0].len();
        lengths(length, data.iter().map(|unit| unit.len()))?;
        lengths(length, parity.iter().map(|unit| unit.len()))?;
        self.parity.apply(data, parity);
        Ok(())
    }

    /// Adds the change of one data unit to all parity units: `difference` is its old bytes XOR its
    /// new ones. Where the unit was zeros before, that is the unit itself. So parity may be
    /// computed one unit after the other, from buffers of zeros.
    ///
    /// # Errors
    ///
    /// [`CoderError::NoSuchUnit`] for an index that is not a data unit's, [`CoderError::Count`] and
    /// [`CoderError::Length`]; then `parity` is as it was.
    pub fn update(
        &self,
        data_unit: usize,
        difference: &[u8],
        parity: &mut [&mut [u8]],
    ) -> Result<(), CoderError> {
        if data_unit >= self.data_units() {
            return Err(CoderError::NoSuchUnit {
                unit: data_unit,
                last: self.data_units() - 1,
            });
        }
        count("parity units", parity.len(), self.parity_units())?;
        lengths(difference.len(), parity.iter().map(|unit| unit.len()))?;
        self.parity.add(data_unit, difference, parity);
        Ok(())
    }

    /// Computes the units `wanted`, data or parity, from the units that are left, and overwrites
    /// `out` with them, in the same order. `sources` names each unit that is left with its bytes.
    /// The first [`Coder::data_units`] of them are used; more are not looked at.
    ///
    /// A unit that is shorter than the others in its file counts as followed by zeros: give a
    /// buffer with them.
    ///
    /// # Errors
    ///
    /// [`CoderError::TooFew`] when no code could do it, [`CoderError::NoSuchUnit`],
    /// [`CoderError::Twice`], [`CoderError::Count`] and [`CoderError::Length`]. Then `out` is as it
    /// was.
    pub fn reconstruct(
        &self,
        sources: &[(usize, &[u8])],
        wanted: &[usize],
        out: &mut [&mut [u8]],
    ) -> Result<(), CoderError> {
        count("buffers for wanted units", out.len(), wanted.len())?;
        let needed = self.data_units();
        let Some(sources) = sources.get(..needed) else {
            return Err(CoderError::TooFew {
                given: sources.len(),
                needed,
            });
        };
        let length = sources[0].1.len();
        lengths(length, sources.iter().map(|(_, unit)| unit.len()))?;
        lengths(length, out.iter().map(|unit| unit.len()))?;
        let indices: Vec<usize> = sources.iter().map(|&(index, _)| index).collect();
        self.check_indices(&indices, wanted)?;

        let plan = self.plans.get(&self.generator, &indices, wanted)?;
        let buffers: Vec<&[u8]> = sources.iter().map(|&(_, unit)| unit).collect();
        plan.apply(&buffers, out);
        Ok(())
    }

    /// Every index exists and stands once.
    fn check_indices(&self, sources: &[usize], wanted: &[usize]) -> Result<(), CoderError> {
        let mut named = [false; MOST_UNITS];
        for &unit in sources.iter().chain(wanted) {
            if unit >= self.units() {
                return Err(CoderError::NoSuchUnit {
                    unit,
                    last: self.units() - 1,
                });
            }
            if std::mem::replace(&mut named[unit], true) {
                return Err(CoderError::Twice { unit });
            }
        }
        Ok(())
    }
}

/// Most units of a code: each has an element of the field, and Hadoop leaves one out.
const MOST_UNITS: usize = 255;

fn count(what: &'static str, given: usize, expected: usize) -> Result<(), CoderError> {
    if given == expected {
        Ok(())
    } else {
        Err(CoderError::Count {
            what,
            given,
            expected,
        })
    }
}

fn lengths(expected: usize, mut given: impl Iterator<Item = usize>) -> Result<(), CoderError> {
    match given.find(|&length| length != expected) {
        None => Ok(()),
        Some(given) => Err(CoderError::Length { given, expected }),
    }
}
