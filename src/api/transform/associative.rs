//! `associative_scan`: all prefix combinations under an associative function.
//!
//! The scan slices and interleaves arrays. The function is called about 2·log₂(n) times for n
//! elements, each time on slices of many elements.

use super::control::{poisoned_tree, tree_of};
use crate::api::array::Array;
use crate::api::trace::{carried_errors, in_call, poison};
use crate::api::tree::{Args, Combined, NamedSizes, Output, Tree, collect};
use crate::core::{ArrayType, Axes, ErrorKind, Fault, Result};
use crate::ir::program::CallSite;

/// Returns the prefix combinations of `xs` under an associative function, along dimension `d`.
///
/// `combine(earlier, later)` receives two trees like `xs`, with any number of elements along `d`,
/// and combines them element by element. Element `i` of the result combines elements `0..=i` of
/// `xs`.
///
/// The function is called about 2·log₂(n) times, on slices. All arrays of `xs` have the same size
/// along `d`, which must be unsharded; the results have their types. The order of combination
/// depends only on that size. For sums, products, minima and maxima use [`Array::cumsum`] and
/// similar methods; for `h[i] = a[i]·h[i-1] + b[i]` use [`Array::recurrence`].
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
pub fn associative_scan<A: Args, R: Output<Tree: Combined<A::Owned>>>(
    xs: A,
    d: i32,
    combine: impl Fn(A::Owned, A::Owned) -> R,
) -> A::Owned {
    run(
        xs.into_tree(),
        d,
        false,
        &|a, b| combine(a, b).into_result().map(Combined::into_combined),
        CallSite::here("associative_scan"),
    )
}

/// Runs [`associative_scan`] from the end of dimension `d`.
///
/// Element `i` of the result combines elements `i..` of `xs`. `combine(a, b)` receives the elements
/// nearer the end as `a`.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::associative_scan_reverse;
/// let sums = associative_scan_reverse(Array::from([1, 2, 3]), 0, |a, b| a + b);
/// assert_eq!(sums.to_vec::<i32>()?, [6, 5, 3]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn associative_scan_reverse<A: Args, R: Output<Tree: Combined<A::Owned>>>(
    xs: A,
    d: i32,
    combine: impl Fn(A::Owned, A::Owned) -> R,
) -> A::Owned {
    let call = CallSite::here("associative_scan_reverse");
    run(xs.into_tree(), d, true, &|a, b| combine(a, b).into_result().map(Combined::into_combined), call)
}

fn run<T: Tree>(xs: T, d: i32, reverse: bool, combine: &dyn Fn(T, T) -> Result<T>, call: CallSite<'_>) -> T {
    let all = collect(&xs);
    let named = NamedSizes::of(&xs, "argument").check(call).err();
    let made = match carried_errors(all.iter()).or(named) {
        Some(e) => Err(e),
        None => checked_axis(&all, d).map_err(|fault| {
            let types = all.iter().filter_map(|a| a.ty().ok()).map(|ty| ty.to_string()).collect();
            call.error(fault, || types)
        }),
    };
    let made = made.and_then(|axis| {
        let scan = AssociativeScan { like: &xs, axis, reverse, combine, call };
        scan.run(all)
    });
    match made {
        Ok(list) => tree_of(&xs, list),
        Err(e) => {
            let _ = poison(e.clone());
            poisoned_tree(&xs, &e)
        }
    }
}

/// Resolves dimension `d`, which must exist, have equal sizes and be unsharded in all arrays.
fn checked_axis(all: &[Array], d: i32) -> Result<usize, Fault> {
    let mut found: Option<(usize, usize)> = None;
    for (k, x) in all.iter().enumerate() {
        let Ok(ty) = x.ty() else { continue };
        let axis = crate::api::array::resolve_dim(d.into(), ty.rank())?;
        let n = ty.shape[axis];
        match found {
            Some((_, size)) if size != n => {
                let text = format!("array {k} has size {n} along dimension {d}, array 0 has {size}");
                return Err(Fault::new(ErrorKind::Shape, text).help("give all arrays one size there"));
            }
            _ => found = Some((axis, n)),
        }
        if found.is_some_and(|f| f.0 != axis) {
            let text = format!(
                "dimension {d} is dimension {axis} of array {k}, but a different dimension of array 0"
            );
            return Err(Fault::new(ErrorKind::Shape, text).help("count it from the front"));
        }
        let split = Axes::from(ty.spec.dim(axis));
        if ty.mesh.as_ref().is_some_and(|m| split.iter().any(|a| m.extent(a) > 1)) {
            let unsharded = ty.spec.padded(ty.rank()).with_dim(axis, &Axes::none());
            let text = format!(
                "dimension {axis} of array {k} is sharded over {split}, and its elements are combined"
            );
            return Err(Fault::new(ErrorKind::Sharding, text)
                .help(format!("gather it first: `.reshard({unsharded})`")));
        }
    }
    found
        .map(|f| f.0)
        .ok_or_else(|| fault!(Shape, "there is no array to combine the elements of").help("give it an array"))
}

struct AssociativeScan<'a, T> {
    like: &'a T,
    axis: usize,
    reverse: bool,
    combine: &'a dyn Fn(T, T) -> Result<T>,
    call: CallSite<'a>,
}

impl<T: Tree> AssociativeScan<'_, T> {
    fn run(&self, all: Vec<Array>) -> Result<Vec<Array>> {
        let turn = |list: Vec<Array>| -> Vec<Array> {
            if self.reverse { list.iter().map(|x| x.reversed(self.axis, self.call)).collect() } else { list }
        };
        Ok(turn(self.prefixes(turn(all))?))
    }
    /// Computes all prefixes by recursion on pairs.
    ///
    /// Adjacent pairs are combined and scanned recursively; then each element between two pairs is
    /// combined with the result before it.
    fn prefixes(&self, all: Vec<Array>) -> Result<Vec<Array>> {
        let n = all[0].ty()?.shape[self.axis];
        if n < 2 {
            return Ok(all);
        }
        let part = |list: &[Array], from: usize, to: usize, step: usize| -> Vec<Array> {
            list.iter().map(|x| x.strided(self.axis, from, to, step, self.call)).collect()
        };
        let pairs = self.combine_slices(&part(&all, 0, n - 1, 2), &part(&all, 1, n, 2))?;
        let odd = self.prefixes(pairs)?;
        let between = n.div_ceil(2) - 1;
        let first = part(&all, 0, 1, 1);
        let even = match between {
            0 => first,
            _ => {
                let rest = self.combine_slices(&part(&odd, 0, between, 1), &part(&all, 2, n, 2))?;
                first.iter().zip(&rest).map(|(a, b)| a.concat_with(b, self.axis, self.call)).collect()
            }
        };
        Ok(even.iter().zip(&odd).map(|(a, b)| a.interleave(b, self.axis, self.call)).collect())
    }
    /// Combines two slices, and checks that the results have the types of the first one.
    fn combine_slices(&self, earlier: &[Array], later: &[Array]) -> Result<Vec<Array>> {
        let (a, b) = (tree_of(self.like, earlier.to_vec()), tree_of(self.like, later.to_vec()));
        let made = in_call(self.call.location, || (self.combine)(a, b))?;
        let made = collect(&made);
        if made.len() != earlier.len() {
            let text = format!("the function returns {} arrays for {}", made.len(), earlier.len());
            let fault = Fault::new(ErrorKind::Tree, text).help("return a tree like its arguments");
            return Err(self.call.error(fault, Vec::new));
        }
        for (k, (x, y)) in earlier.iter().zip(&made).enumerate() {
            let (x, y) = (x.ty()?, y.ty()?);
            let kind = match () {
                () if x.shape != y.shape => ErrorKind::Shape,
                () if x.dtype != y.dtype => ErrorKind::Dtype,
                () if !same_sharding(&x, &y) => ErrorKind::Sharding,
                () => continue,
            };
            let fault = Fault::new(
                kind,
                format!("array {k} of the function's result is {y}, but that of its arguments is {x}"),
            )
            .help("return the types of its arguments");
            return Err(self.call.error(fault, Vec::new));
        }
        Ok(made)
    }
}

/// Returns true if both have the same sharding. An unplaced value counts as replicated.
fn same_sharding(x: &ArrayType, y: &ArrayType) -> bool {
    x.spec.padded(x.rank()) == y.spec.padded(y.rank()) && x.varying == y.varying
}
