//! ISA-L's kernel, with the lengths that it trusts checked.

use erasure_isa_l::ec;

use crate::matrix::Matrix;

/// Bytes of a table that ISA-L makes of each element of a matrix.
const TABLE_LEN: usize = 32;
/// Most bytes of each unit that one call of the kernel gets, which counts them in 32 bits.
const MOST_AT_ONCE: usize = 1 << 30;

/// A matrix in the form that the kernel multiplies with.
#[derive(Debug)]
pub(crate) struct Tables {
    sources: usize,
    results: usize,
    expanded: Vec<u8>,
}

impl Tables {
    pub(crate) fn new(matrix: &Matrix) -> Self {
        let (sources, results) = (matrix.columns(), matrix.rows());
        let mut expanded = vec![0; TABLE_LEN * sources * results];
        if results > 0 {
            ec::init_tables(
                of_kernel(sources),
                of_kernel(results),
                matrix.elements(),
                &mut expanded,
            );
        }
        Self {
            sources,
            results,
            expanded,
        }
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.expanded.len()
    }

    /// The product of the matrix and `sources`, into `results`. The caller has checked numbers and
    /// lengths; a mistake panics here, before the kernel runs.
    pub(crate) fn apply(&self, sources: &[&[u8]], results: &mut [&mut [u8]]) {
        let length = sources.first().map_or(0, |source| source.len());
        assert_eq!(sources.len(), self.sources, "a source for each column");
        assert_eq!(results.len(), self.results, "a buffer for each row");
        assert!(
            sources.iter().all(|source| source.len() == length),
            "sources of one length"
        );
        assert!(
            results.iter().all(|result| result.len() == length),
            "buffers of that length"
        );
        if self.results == 0 {
            return;
        }
        for start in (0..length).step_by(MOST_AT_ONCE) {
            let end = length.min(start + MOST_AT_ONCE);
            let from: Vec<_> = sources
                .iter()
                .map(|source| source[start..end].as_ptr())
                .collect();
            let mut to = pointers(results, start, end);
            ec::encode_data(
                of_kernel(end - start),
                of_kernel(self.sources),
                of_kernel(self.results),
                &self.expanded,
                &from,
                &mut to,
            );
        }
    }

    /// Adds what column `column` makes of `source` to `results`. Checked as [`Tables::apply`] is.
    pub(crate) fn add(&self, column: usize, source: &[u8], results: &mut [&mut [u8]]) {
        assert!(column < self.sources, "a column of the matrix");
        assert_eq!(results.len(), self.results, "a buffer for each row");
        assert!(
            results.iter().all(|result| result.len() == source.len()),
            "buffers as long"
        );
        if self.results == 0 {
            return;
        }
        for start in (0..source.len()).step_by(MOST_AT_ONCE) {
            let end = source.len().min(start + MOST_AT_ONCE);
            let mut to = pointers(results, start, end);
            ec::encode_data_update(
                of_kernel(end - start),
                of_kernel(self.sources),
                of_kernel(self.results),
                of_kernel(column),
                &self.expanded,
                &source[start..end],
                &mut to,
            );
        }
    }
}

/// Where the bytes `start..end` of each buffer are.
fn pointers(results: &mut [&mut [u8]], start: usize, end: usize) -> Vec<*mut u8> {
    results
        .iter_mut()
        .map(|result| result[start..end].as_mut_ptr())
        .collect()
}

/// A number as the kernel takes it.
fn of_kernel(number: usize) -> i32 {
    i32::try_from(number).expect("at most 255 units, and 1 GiB at once")
}
