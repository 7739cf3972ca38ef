//! Typed scalars that are on no mesh: counters, tolerances and other plain numbers.

use super::{Typed, sets::PlainSets};
use crate::api::array::Array;
use crate::core::Element;

/// Returns a typed scalar, such as a counter of a loop.
///
/// The scalar has no dims and is on no mesh, so it can be combined with arrays of every mesh. In a
/// body of `shard_map`, where types show the mesh, it is `<T![i32;; in Pod]>::from(0)`.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::typed::{self, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let x = <T![f32; 4@X]>::ones(&Pod::mesh()?);
/// let below = |(x, i): &(T![f32; 4@X], T![i32;])| x.max(..).lt(100.0).bitand(&i.lt(3));
/// let (y, steps) = while_loop((x, typed::scalar(0)), below, |(x, i)| (x * 2.0, i + 1));
/// assert_eq!((y.to_vec()?, steps.item()?), (vec![8.0; 4], 3));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn scalar<T: Element>(value: T) -> Typed<T, ()> {
    Typed::from(value)
}

/// Makes a scalar, which is equal on every device and on no mesh.
///
/// ```
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2 } }
/// let zero = <T![i32;]>::from(0);
/// let x = <T![i32; 4@X]>::ones(&Pod::mesh()?);
/// let y: T![i32; 4@X] = Pod.shard_map((x + zero,), P![X], |(x,)| x + <T![i32;; in Pod]>::from(2));
/// assert_eq!(y.to_vec()?, [3; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
impl<T: Element, V: PlainSets> From<T> for Typed<T, (), V> {
    #[track_caller]
    fn from(value: T) -> Self {
        Typed::from_rule_result(Array::from(value))
    }
}
