//! Shapes of arrays.

use smallvec::SmallVec;
use std::fmt;
use std::ops::{Deref, Rem};

/// Returns the greatest common divisor.
pub(crate) fn gcd<N: Copy + Default + PartialEq + Rem<Output = N>>(a: N, b: N) -> N {
    if b == N::default() { a } else { gcd(b, a % b) }
}

/// The sizes of an array's dimensions.
/// Dereferences to a slice of `usize`.
///
/// ```
/// use atmesh::{Array, Shape};
/// let shape: Shape = Array::ones([4, 2]).shape()?;
/// assert_eq!((shape.rank(), shape.num_elements(), shape[0]), (2, 8, 4));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Clone for Shape {
    fn clone(&self) -> Shape {
        // as one copy, instead of element by element: each call of a program clones shapes
        Shape(SmallVec::from_slice(&self.0))
    }
}

impl Shape {
    /// Returns the shape of a scalar.
    pub fn scalar() -> Shape {
        Shape::default()
    }
    /// Returns the number of dimensions.
    #[doc(alias = "ndim")]
    pub fn rank(&self) -> usize {
        self.0.len()
    }
    /// Returns the number of elements, saturating at `usize::MAX`.
    pub fn num_elements(&self) -> usize {
        self.0.iter().fold(1, |n, size| n.saturating_mul(*size))
    }
    /// Returns the sizes, mutably.
    pub fn sizes_mut(&mut self) -> &mut SmallVec<[usize; 4]> {
        &mut self.0
    }
}
impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}
conversions! { Shape:
    [const N: usize] [usize; N] => |s| Shape(s.into_iter().collect());
    [] &[usize] => |s| Shape(s.into());
    [] Vec<usize> => |s| Shape(s.into());
    [] &Shape => |s| s.clone();
}
impl FromIterator<usize> for Shape {
    // a plain loop: `SmallVec::extend` is much code, which is compiled for each type of iterator
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Shape {
        let mut sizes = SmallVec::new();
        for size in iter {
            sizes.push(size);
        }
        Shape(sizes)
    }
}
impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self.0.as_slice() == other
    }
}
/// Prints the sizes: `[4,2]`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self.0.iter().map(usize::to_string).collect();
        write!(f, "[{}]", sizes.join(","))
    }
}
debug_as_display! { [] Shape }
