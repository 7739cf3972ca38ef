//! Running results of any associative function, by slices and joins: about 2 log n calls of it.

use super::control::{tree_failed, tree_of};
use crate::array::Array;
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::Axes;
use crate::program::Call;
use crate::trace::{carried, poison};
use crate::tree::{Args, Output, Tree, collect};
use crate::types::ArrayType;

/// What comes of each element of `xs` along dimension `d` and all before it, by an associative function: `combine(earlier, later)` of two
/// trees like `xs`, whose elements along `d`, any number of them, it combines one by one.
///
/// The function is called about 2 log₂ n times, on slices. All arrays of `xs` have one size along `d`, which is unsharded; results have
/// their types. The order of combination goes by that size alone. For sums, products and extremes there are [`Array::cumsum`] and
/// its kin, for hᵢ = aᵢ·hᵢ₋₁ + bᵢ [`Array::recurrence`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::associative_scan;
/// // the last element so far that is not 0
/// let x = Array::from([0, 3, 0, 0, 5, 0]);
/// let last = associative_scan(&x, 0, |earlier, later| later.ne(0).select(&later, &earlier));
/// assert_eq!(last.to_vec::<i32>()?, [0, 3, 3, 3, 5, 5]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn associative_scan<A: Args, R: Output<Tree = A::Owned>>(
    xs: A,
    d: i32,
    combine: impl Fn(A::Owned, A::Owned) -> R,
) -> A::Owned {
    run(xs.into_tree(), d, false, &|a, b| combine(a, b).into_result(), Call::here("associative_scan"))
}

/// [`associative_scan`] from the end: what comes of each element and all behind it; of two, that nearer the end is `combine`'s first.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::associative_scan_from_end;
/// let sums = associative_scan_from_end(Array::from([1, 2, 3]), 0, |a, b| a + b);
/// assert_eq!(sums.to_vec::<i32>()?, [6, 5, 3]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn associative_scan_from_end<A: Args, R: Output<Tree = A::Owned>>(
    xs: A,
    d: i32,
    combine: impl Fn(A::Owned, A::Owned) -> R,
) -> A::Owned {
    let call = Call::here("associative_scan_from_end");
    run(xs.into_tree(), d, true, &|a, b| combine(a, b).into_result(), call)
}

fn run<T: Tree>(xs: T, d: i32, reverse: bool, combine: &dyn Fn(T, T) -> Result<T>, call: Call<'_>) -> T {
    let all = collect(&xs);
    let made = match carried(all.iter()) {
        Some(e) => Err(e),
        None => axis(&all, d).map_err(|fault| {
            let types = all.iter().filter_map(|a| a.ty().ok()).map(|ty| ty.to_string()).collect();
            call.error(fault, || types)
        }),
    };
    let made = made.and_then(|axis| {
        let scan = Scan { like: &xs, axis, reverse, combine, call };
        scan.of(all)
    });
    match made {
        Ok(list) => tree_of(&xs, list),
        Err(e) => {
            let _ = poison(e.clone());
            tree_failed(&xs, &e)
        }
    }
}

/// The dimension, which all have, alike and unsharded.
fn axis(all: &[Array], d: i32) -> Result<usize, Fault> {
    let mut found: Option<(usize, usize)> = None;
    for (k, x) in all.iter().enumerate() {
        let Ok(ty) = x.ty() else { continue };
        let axis = crate::array::dim(d.into(), ty.rank())?;
        let n = ty.shape[axis];
        match found {
            Some((_, size)) if size != n => {
                let text = format!("array {k} has size {n} along dimension {d}, array 0 has {size}");
                return Err(Fault::new(ErrorKind::Shape, text).help("give all arrays one size there"));
            }
            _ => found = Some((axis, n)),
        }
        if found.is_some_and(|f| f.0 != axis) {
            let text = format!("dimension {d} is dimension {axis} of array {k}, but another one of array 0");
            return Err(Fault::new(ErrorKind::Shape, text).help("count it from the front"));
        }
        let split = Axes::from(ty.spec.dim(axis));
        if ty.mesh.as_ref().is_some_and(|m| split.iter().any(|a| m.extent(a) > 1)) {
            let whole = ty.spec.padded(ty.rank()).with_dim(axis, &Axes::none());
            let text = format!(
                "dimension {axis} of array {k} is sharded over {split}, and its elements are combined"
            );
            return Err(
                Fault::new(ErrorKind::Sharding, text).help(format!("gather it first: `.reshard({whole})`"))
            );
        }
    }
    found.map(|f| f.0).ok_or_else(|| {
        Fault::new(ErrorKind::Shape, "there is no array to combine the elements of").help("give it an array")
    })
}

struct Scan<'a, T> {
    like: &'a T,
    axis: usize,
    reverse: bool,
    combine: &'a dyn Fn(T, T) -> Result<T>,
    call: Call<'a>,
}

impl<T: Tree> Scan<'_, T> {
    fn of(&self, all: Vec<Array>) -> Result<Vec<Array>> {
        let turn = |list: Vec<Array>| -> Vec<Array> {
            match self.reverse {
                true => list.iter().map(|x| x.turned(self.axis, self.call)).collect(),
                false => list,
            }
        };
        Ok(turn(self.running(turn(all))?))
    }
    /// Pairs are combined, then these run; elements between are combined with what runs before them.
    fn running(&self, all: Vec<Array>) -> Result<Vec<Array>> {
        let n = all[0].ty()?.shape[self.axis];
        if n < 2 {
            return Ok(all);
        }
        let part = |list: &[Array], from: usize, to: usize, step: usize| -> Vec<Array> {
            list.iter().map(|x| x.every(self.axis, from, to, step, self.call)).collect()
        };
        let pairs = self.combined(&part(&all, 0, n - 1, 2), &part(&all, 1, n, 2))?;
        let odd = self.running(pairs)?;
        let between = n.div_ceil(2) - 1;
        let first = part(&all, 0, 1, 1);
        let even = match between {
            0 => first,
            _ => {
                let rest = self.combined(&part(&odd, 0, between, 1), &part(&all, 2, n, 2))?;
                first.iter().zip(&rest).map(|(a, b)| a.followed_by(b, self.axis, self.call)).collect()
            }
        };
        Ok(even.iter().zip(&odd).map(|(a, b)| a.interleaved(b, self.axis, self.call)).collect())
    }
    /// The function of both, whose results are of the first one's types.
    fn combined(&self, earlier: &[Array], later: &[Array]) -> Result<Vec<Array>> {
        let (a, b) = (tree_of(self.like, earlier.to_vec()), tree_of(self.like, later.to_vec()));
        let made = collect(&(self.combine)(a, b)?);
        if made.len() != earlier.len() {
            let text = format!("the function makes {} arrays of {}", made.len(), earlier.len());
            let fault = Fault::new(ErrorKind::Tree, text).help("return a tree like its arguments");
            return Err(self.call.error(fault, Vec::new));
        }
        for (k, (x, y)) in earlier.iter().zip(&made).enumerate() {
            let (x, y) = (x.ty()?, y.ty()?);
            let kind = match () {
                () if x.shape != y.shape => ErrorKind::Shape,
                () if x.dtype != y.dtype => ErrorKind::Dtype,
                () if !alike(&x, &y) => ErrorKind::Sharding,
                () => continue,
            };
            let fault =
                Fault::new(kind, format!("array {k} of what the function makes is {y}, of elements {x}"))
                    .help("return the types of its arguments");
            return Err(self.call.error(fault, Vec::new));
        }
        Ok(made)
    }
}

/// Whether both are sharded alike; what is on no mesh is whole.
fn alike(x: &ArrayType, y: &ArrayType) -> bool {
    x.spec.padded(x.rank()) == y.spec.padded(y.rank()) && x.varying == y.varying
}
