//! How many members and parity files a group has.

use std::fmt;
use std::str::FromStr;

/// Most units of a group. Every unit needs a disk of its own, and decoding reads as many disks.
const UNITS_MAX: u8 = 64;
/// Most parity files of a group.
const PARITY_MAX: u8 = 8;

/// What counts as a disk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ParityDisks {
    /// Each device that the system names.
    #[default]
    Devices,
    /// Each configured directory: the operator says that they fail one by one, or tries it out.
    Directories,
}

/// K+M: members of a group and its parity files, as `hayloft.parity` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityShape {
    data: u8,
    parity: u8,
}

/// A shape that no group can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Not of the form K+M.
    #[error("{0:?} is not K+M (such as 6+1) nor none: K members and M parity files on other disks")]
    Text(String),
    /// Numbers out of bounds.
    #[error(
        "{data}+{parity} cannot be: at least 1 member, 1 to {PARITY_MAX} parity files, at most \
            {UNITS_MAX} together"
    )]
    Bounds {
        /// Members.
        data: u8,
        /// Parity files.
        parity: u8,
    },
    /// More units than disks.
    #[error(
        "parity {shape} needs {needed} disks and there are {disks}: lower K+M, or add directories \
            on other disks"
    )]
    Disks {
        /// What was asked for.
        shape: ParityShape,
        /// K+M.
        needed: usize,
        /// Disks under the volumes.
        disks: usize,
    },
}

impl ParityShape {
    /// A shape of `data` members and `parity` parity files.
    ///
    /// # Errors
    /// `Bounds`.
    pub const fn new(data: u8, parity: u8) -> Result<Self, ShapeError> {
        let within = match data.checked_add(parity) {
            Some(all) => all <= UNITS_MAX,
            None => false,
        };
        if data == 0 || parity == 0 || parity > PARITY_MAX || !within {
            return Err(ShapeError::Bounds { data, parity });
        }
        Ok(Self { data, parity })
    }

    /// Most members of a group.
    #[must_use]
    pub fn data(self) -> usize {
        usize::from(self.data)
    }

    /// Parity files of a group: as many disks may be lost.
    #[must_use]
    pub fn parity(self) -> usize {
        usize::from(self.parity)
    }

    /// All units of a group.
    #[must_use]
    pub fn units(self) -> usize {
        self.data() + self.parity()
    }

    /// The part of so many free bytes that parity takes when the rest is filled with replicas:
    /// never more than them.
    #[must_use]
    pub fn share_of(self, free: u64) -> u64 {
        let share = u128::from(free) * u128::from(self.parity) / self.units() as u128;
        u64::try_from(share).expect("a part of a u64")
    }

    /// Refuses a shape that so many disks cannot hold: each unit lies on a disk of its own.
    ///
    /// # Errors
    /// `Disks`.
    pub fn check_disks(self, disks: usize) -> Result<(), ShapeError> {
        let needed = self.units();
        if needed <= disks {
            return Ok(());
        }
        Err(ShapeError::Disks {
            shape: self,
            needed,
            disks,
        })
    }

    /// What `hayloft.parity` says; `None` for `none` and for nothing.
    ///
    /// # Errors
    /// `Text`, `Bounds`.
    pub fn from_key(text: &str) -> Result<Option<Self>, ShapeError> {
        match text.trim() {
            "" | "none" => Ok(None),
            shape => shape.parse().map(Some),
        }
    }
}

impl FromStr for ParityShape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let wrong = || ShapeError::Text(text.chars().take(32).collect());
        let (data, parity) = text.split_once('+').ok_or_else(wrong)?;
        let number = |part: &str| part.trim().parse::<u8>().map_err(|_| wrong());
        Self::new(number(data)?, number(parity)?)
    }
}

impl fmt::Display for ParityShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shapes_or_none() {
        assert_eq!(ParityShape::from_key("none"), Ok(None));
        assert_eq!(ParityShape::from_key(""), Ok(None));
        let shape = ParityShape::from_key(" 8+1 ").expect("valid").expect("one");
        assert_eq!((shape.data(), shape.parity(), shape.units()), (8, 1, 9));
        assert_eq!(shape.to_string(), "8+1");
        for wrong in ["8", "8+", "+1", "8+1+1", "eight+1", "300+1", "-1+1"] {
            let error = ParityShape::from_key(wrong).expect_err(wrong);
            assert_eq!(error, ShapeError::Text(wrong.to_owned()));
        }
        for (data, parity) in [(0, 1), (1, 0), (60, 5), (64, 1), (4, 9), (255, 255)] {
            let error = ParityShape::new(data, parity).expect_err("out of bounds");
            assert_eq!(error, ShapeError::Bounds { data, parity });
        }
    }

    #[test]
    fn parity_takes_its_share_of_what_is_free() {
        let shape = ParityShape::new(6, 1).expect("valid");
        assert_eq!(shape.share_of(700), 100);
        assert_eq!(shape.share_of(0), 0);
        let shape = ParityShape::new(1, 8).expect("valid");
        assert!(shape.share_of(u64::MAX) < u64::MAX);
    }

    #[test]
    fn more_units_than_disks_are_refused_in_a_sentence() {
        let shape = ParityShape::new(6, 1).expect("valid");
        assert_eq!(shape.check_disks(7), Ok(()));
        let text = shape.check_disks(6).expect_err("too few").to_string();
        let expected = "parity 6+1 needs 7 disks and there are 6: lower K+M, or add directories \
            on other disks";
        assert_eq!(text, expected);
    }
}
