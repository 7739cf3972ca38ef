//! Copies between slices in row-major order and matrices in column-major order.
//!
//! Matrices are transposed in tiles, so that both the reads and the writes of a tile are in cache.

use crate::Element;
use faer::{Mat, MatMut};

/// The number of rows and columns of a tile.
const TILE_SIZE: usize = 16;
/// The number of rows and columns of the parts of a tile that are in registers.
const STEP_SIZE: usize = 4;

/// Which elements of a matrix are copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Region {
    /// All elements.
    All,
    /// The elements on and below the diagonal.
    Lower,
    /// The elements on and above the diagonal.
    Upper,
}

impl Region {
    /// Returns true if the tile that begins at this row and column has elements of the region.
    fn meets_tile(self, row: usize, column: usize) -> bool {
        match self {
            Region::All => true,
            Region::Lower => row >= column,
            Region::Upper => row <= column,
        }
    }
}

/// Returns the elements of each column; the columns of `x` must be contiguous.
pub(crate) fn columns<T: Element>(x: &Mat<T>) -> impl Iterator<Item = &[T]> {
    (0..x.ncols()).map(|j| x.col_as_slice(j))
}

/// Returns the elements of each column, to be changed.
///
/// # Panics
/// If the columns of `x` are not contiguous.
pub(crate) fn columns_mut<T: Element>(x: MatMut<'_, T>) -> impl Iterator<Item = &mut [T]> {
    let contiguous = "columns of a matrix of this crate are contiguous";
    x.col_iter_mut().map(|x| x.try_as_col_major_mut().expect(contiguous).as_slice_mut())
}

/// Sets `to[j][i]` to `from[i][j]` in all tiles for which `is_needed(i, j)`.
fn transpose<T: Copy>(from: &[&[T]], to: &mut [&mut [T]], is_needed: &dyn Fn(usize, usize) -> bool) {
    for (b, to) in to.chunks_mut(TILE_SIZE).enumerate() {
        for (a, from) in from.chunks(TILE_SIZE).enumerate() {
            let (i, j) = (a * TILE_SIZE, b * TILE_SIZE);
            if is_needed(i, j) {
                transpose_tile(from, to, i, j);
            }
        }
    }
}

/// Sets `to[c][i + r]` to `from[r][j + c]`.
fn transpose_tile<T: Copy>(from: &[&[T]], to: &mut [&mut [T]], i: usize, j: usize) {
    if from.len() < TILE_SIZE || to.len() < TILE_SIZE {
        for (c, to) in to.iter_mut().enumerate() {
            for (r, from) in from.iter().enumerate() {
                to[i + r] = from[j + c];
            }
        }
        return;
    }
    for c in (0..TILE_SIZE).step_by(STEP_SIZE) {
        for r in (0..TILE_SIZE).step_by(STEP_SIZE) {
            let [x, y, z, w]: [&[T; STEP_SIZE]; STEP_SIZE] = std::array::from_fn(|s| {
                from[r + s][j + c..j + c + STEP_SIZE].try_into().expect("the slice has this length")
            });
            for s in 0..STEP_SIZE {
                to[c + s][i + r..i + r + STEP_SIZE].copy_from_slice(&[x[s], y[s], z[s], w[s]]);
            }
        }
    }
}

/// Copies a region of an m×n matrix to a matrix whose columns are aligned.
/// The other elements may be anything.
pub(crate) fn matrix_region<T: Element>(a: &[T], m: usize, n: usize, region: Region) -> Mat<T> {
    assert_eq!(a.len(), m * n, "{m}×{n}");
    if m.min(n) < TILE_SIZE {
        return Mat::from_fn(m, n, |i, j| a[i * n + j]);
    }
    let mut x = Mat::zeros(m, n);
    let from: Vec<&[T]> = a.chunks_exact(n).collect();
    let mut to: Vec<&mut [T]> = columns_mut(x.as_mut()).collect();
    transpose(&from, &mut to, &|i, j| region.meets_tile(i, j));
    x
}

/// Copies an m×n matrix to a matrix whose columns are aligned.
pub(crate) fn matrix<T: Element>(a: &[T], m: usize, n: usize) -> Mat<T> {
    matrix_region(a, m, n, Region::All)
}

/// Returns a matrix with the elements of (a + aᵀ)/2 on and below the diagonal.
/// The elements above it may be anything.
pub(crate) fn symmetric<T: Element>(a: &[T], n: usize) -> Mat<T> {
    let mut x = matrix_region(a, n, n, Region::Lower);
    for (j, x) in columns_mut(x.as_mut()).enumerate() {
        // halve before adding, so that the sum does not overflow
        for (x, y) in x.iter_mut().zip(&a[j * n..]).skip(j + 1) {
            *x = x.half() + y.half();
        }
    }
    x
}

/// Returns the elements of the first m rows that are in a region, and 0 elsewhere, in row-major
/// order.
pub(crate) fn rows_of<T: Element>(x: &Mat<T>, m: usize, region: Region) -> Vec<T> {
    let n = x.ncols();
    let mut list = vec![T::ZERO; m * n];
    if m.min(n) < TILE_SIZE {
        for (i, row) in list.chunks_exact_mut(n.max(1)).enumerate() {
            row.iter_mut().enumerate().for_each(|(j, y)| *y = x[(i, j)]);
        }
    } else {
        let from: Vec<&[T]> = columns(x).map(|x| &x[..m]).collect();
        let mut to: Vec<&mut [T]> = list.chunks_exact_mut(n).collect();
        transpose(&from, &mut to, &|j, i| region.meets_tile(i, j));
    }
    // tiles on the diagonal have elements on both sides of it
    for (i, row) in list.chunks_exact_mut(n.max(1)).enumerate() {
        match region {
            Region::All => break,
            Region::Lower => row.iter_mut().skip(i + 1).for_each(|y| *y = T::ZERO),
            Region::Upper => row.iter_mut().take(i).for_each(|y| *y = T::ZERO),
        }
    }
    list
}

/// Returns the elements in row-major order.
pub(crate) fn rows<T: Element>(x: &Mat<T>) -> Vec<T> {
    rows_of(x, x.nrows(), Region::All)
}

/// Returns the elements in column-major order, which are those of the transpose in row-major order.
pub(crate) fn transposed_rows<T: Element>(x: &Mat<T>) -> Vec<T> {
    let mut list = Vec::with_capacity(x.nrows() * x.ncols());
    columns(x).for_each(|x| list.extend_from_slice(x));
    list
}
