//! Matrices over the field of 256 elements: those of the codes, and the way back.

use erasure_isa_l::gf;

/// A matrix, row after row. As a code's generator it has one row for each unit: the unit as a sum
/// of the data units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    columns: usize,
    elements: Vec<u8>,
}

impl Matrix {
    fn zeros(rows: usize, columns: usize) -> Self {
        Self {
            columns,
            elements: vec![0; rows * columns],
        }
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn rows(&self) -> usize {
        self.elements.len() / self.columns
    }

    pub(crate) fn row(&self, row: usize) -> &[u8] {
        &self.elements[row * self.columns..(row + 1) * self.columns]
    }

    fn row_mut(&mut self, row: usize) -> &mut [u8] {
        &mut self.elements[row * self.columns..(row + 1) * self.columns]
    }

    pub(crate) fn elements(&self) -> &[u8] {
        &self.elements
    }

    /// The rows from `first` on.
    pub(crate) fn rows_from(&self, first: usize) -> Self {
        let elements = self.elements[first * self.columns..].to_vec();
        Self {
            columns: self.columns,
            elements,
        }
    }

    /// The rows of these indices, in this order.
    pub(crate) fn rows_of(&self, indices: &[usize]) -> Self {
        let elements = indices
            .iter()
            .flat_map(|&index| self.row(index))
            .copied()
            .collect();
        Self {
            columns: self.columns,
            elements,
        }
    }

    /// The inverse of a square matrix, if it has one.
    pub(crate) fn inverse(mut self) -> Option<Self> {
        assert_eq!(
            self.rows(),
            self.columns,
            "only square matrices have an inverse"
        );
        let mut inverse = Self::zeros(self.columns, self.columns);
        let side = i32::try_from(self.columns).expect("a code has at most 255 units");
        gf::invert_matrix(&mut self.elements, &mut inverse.elements, side).then_some(inverse)
    }

    /// This matrix times another.
    pub(crate) fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows(), "a row for each column");
        let mut product = Self::zeros(self.rows(), other.columns);
        for row in 0..self.rows() {
            for (inner, &factor) in self.row(row).iter().enumerate() {
                add_multiple(product.row_mut(row), other.row(inner), factor);
            }
        }
        product
    }
}

/// `target += factor * source`, element by element.
fn add_multiple(target: &mut [u8], source: &[u8], factor: u8) {
    for (sum, &element) in target.iter_mut().zip(source) {
        *sum ^= gf::mul(factor, element);
    }
}

/// A generator whose data units are themselves. The caller fills in the rows of parity.
fn identity(data_units: usize, parity_units: usize) -> Matrix {
    let mut generator = Matrix::zeros(data_units + parity_units, data_units);
    for unit in 0..data_units {
        generator.row_mut(unit)[unit] = 1;
    }
    generator
}

/// Hadoop's `rs`, and ISA-L's Cauchy matrix: parity unit `i` has `1 / (i + j)` of data unit `j`,
/// where both are indices of units as elements of the field. Every square part of it can be
/// inverted, so any lost units come back.
pub(crate) fn cauchy(data_units: usize, parity_units: usize) -> Matrix {
    let mut generator = identity(data_units, parity_units);
    for unit in data_units..data_units + parity_units {
        for (data_unit, element) in generator.row_mut(unit).iter_mut().enumerate() {
            let sum = u8::try_from(unit ^ data_unit).expect("a code has at most 255 units");
            *element = gf::inv(sum);
        }
    }
    generator
}

/// Hadoop's `rs-legacy`. All units together are a polynomial, the parity units its lowest
/// coefficients, and it is a multiple of the generating one: `(x + 1)(x + 2)(x + 4)...`, a factor
/// for each parity unit. So the parity of data unit `j` alone is what division of
/// `x^(parity units + j)` leaves.
pub(crate) fn by_polynomial(data_units: usize, parity_units: usize) -> Matrix {
    let generating = generating_polynomial(parity_units);
    let low = &generating[..parity_units];
    let mut generator = identity(data_units, parity_units);
    // x^(parity units), divided, leaves the polynomial without its highest term.
    let mut left = low.to_vec();
    for data_unit in 0..data_units {
        for (parity_unit, &coefficient) in left.iter().enumerate() {
            generator.row_mut(data_units + parity_unit)[data_unit] = coefficient;
        }
        // Times x: the coefficient that becomes too high is divided away.
        left.rotate_right(1);
        let too_high = std::mem::take(&mut left[0]);
        add_multiple(&mut left, low, too_high);
    }
    generator
}

/// Coefficients of `(x + 1)(x + 2)(x + 4)...`, the lowest first; the highest, the last, is 1.
fn generating_polynomial(factors: usize) -> Vec<u8> {
    let mut polynomial = vec![1];
    let mut root = 1;
    for _ in 0..factors {
        // Times x moves each coefficient up; times the root leaves a multiple in its place.
        let mut product = vec![0];
        product.extend_from_slice(&polynomial);
        add_multiple(&mut product, &polynomial, root);
        polynomial = product;
        root = gf::mul(root, 2);
    }
    polynomial
}

/// Hadoop's `xor`: one parity unit, the sum of all data units.
pub(crate) fn ones(data_units: usize) -> Matrix {
    let mut generator = identity(data_units, 1);
    generator.row_mut(data_units).fill(1);
    generator
}
