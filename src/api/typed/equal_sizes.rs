//! Dims that static types hold equal, and sizes that are known only at run time.
//!
//! Untyped operations repeat every dimension of size 1. Typed operations repeat only dims typed
//! `~`. A dim of size 1 whose type is a name or `?` looks like one to the untyped operation, so
//! every typed operation on several arrays first calls a function of this module. It compares the
//! sizes of dims that are known only at run time. If no dim of the types is such, rustc removes
//! the call.

use super::RightOperand;
use super::shape::{DimInfo, Shape};
use crate::api::array::{Array, Term, reject};
use crate::api::tree::NamedDim;
use crate::ir::program::CallSite;

/// An operand: the static dims and the array.
type Operand<'a> = (&'static [DimInfo], &'a Array);
/// A dim of an operand: the index of the operand and the dim number.
type OperandDim = (usize, usize);

/// Returns true if the size of some dim is known only at run time.
pub(super) const fn any_open(dims: &[DimInfo]) -> bool {
    let mut d = 0;
    while d < dims.len() {
        if dims[d].size.is_none() {
            return true;
        }
        d += 1;
    }
    false
}

/// Compares the dims of an elementwise operation, which are paired from the last one backwards.
///
/// If two of them differ, returns an array that carries the error.
#[track_caller]
pub(super) fn right<L: Shape, R: RightOperand>(op: &'static str, a: &Array, b: &Term) -> Result<(), Array> {
    if const { !(any_open(L::DIMS) && any_open(R::DIMS)) } {
        return Ok(());
    }
    let Term::Array(b) = b else { return Ok(()) };
    compare(CallSite::here(op), &[(L::DIMS, a), (R::DIMS, b)], from_last((0, L::DIMS), (1, R::DIMS)))
}
/// Compares the dims of an array and of the array like which it is broadcast.
pub(super) fn like<L: Shape, R: Shape>(call: CallSite<'_>, a: &Array, b: &Array) -> Result<(), Array> {
    if const { !(any_open(L::DIMS) && any_open(R::DIMS)) } {
        return Ok(());
    }
    compare(call, &[(L::DIMS, a), (R::DIMS, b)], from_last((0, L::DIMS), (1, R::DIMS)))
}
/// Pairs the dims of two operands from the last one backwards.
fn from_last(
    (j, a): (usize, &'static [DimInfo]),
    (k, b): (usize, &'static [DimInfo]),
) -> impl Iterator<Item = (OperandDim, OperandDim)> {
    let (m, n) = (a.len(), b.len());
    (1..=m.min(n)).rev().map(move |back| ((j, m - back), (k, n - back)))
}
/// Compares the dims of a condition and of the values that it selects.
#[track_caller]
pub(super) fn select<C: Shape, A: RightOperand, B: RightOperand>(
    condition: &Array,
    a: &Term,
    b: &Term,
) -> Result<(), Array> {
    let open = const { any_open(C::DIMS) as usize + any_open(A::DIMS) as usize + any_open(B::DIMS) as usize };
    if open < 2 {
        return Ok(());
    }
    let array = |x: &Term| if let Term::Array(x) = x { x.clone() } else { condition.clone() };
    let (a, b) = (array(a), array(b));
    let operands = [(C::DIMS, condition), (A::DIMS, &a), (B::DIMS, &b)];
    let pairs = from_last((0, C::DIMS), (1, A::DIMS))
        .chain(from_last((0, C::DIMS), (2, B::DIMS)))
        .chain(from_last((1, A::DIMS), (2, B::DIMS)));
    compare(CallSite::here("select"), &operands, pairs)
}
/// Compares the dims of an array and of the indices of `take_along_axis`, except the indexed one.
#[track_caller]
pub(super) fn aligned<L: Shape, R: Shape>(
    op: &'static str,
    a: &Array,
    b: &Array,
    along: usize,
) -> Result<(), Array> {
    if const { !(any_open(L::DIMS) && any_open(R::DIMS)) } {
        return Ok(());
    }
    let dims = (0..L::DIMS.len()).filter(|d| *d != along).map(|d| ((0, d), (1, d)));
    compare(CallSite::here(op), &[(L::DIMS, a), (R::DIMS, b)], dims)
}
/// Compares the dims of new values and of the part of an array that they update: its dims, with
/// those of the indices in the place of dim `along`.
#[track_caller]
pub(super) fn update<S: Shape, I: Shape, U: RightOperand>(
    op: &'static str,
    (array, indices, along): (&Array, &Array, usize),
    values: &Term,
) -> Result<(), Array> {
    if const { !((any_open(S::DIMS) || any_open(I::DIMS)) && any_open(U::DIMS)) } {
        return Ok(());
    }
    let Term::Array(values) = values else { return Ok(()) };
    let before = (0..along).map(|d| (0, d));
    let inserted = (0..I::DIMS.len()).map(|d| (1, d));
    let part: Vec<OperandDim> =
        before.chain(inserted).chain((along + 1..S::DIMS.len()).map(|d| (0, d))).collect();
    let pairs = part.into_iter().rev().zip((0..U::DIMS.len()).rev().map(|d| (2, d)));
    compare(CallSite::here(op), &[(S::DIMS, array), (I::DIMS, indices), (U::DIMS, values)], pairs)
}
/// Compares the dims of operands of one shape.
#[track_caller]
pub(super) fn alike<S: Shape>(op: &'static str, arrays: &[&Array]) -> Result<(), Array> {
    if const { !any_open(S::DIMS) } {
        return Ok(());
    }
    let operands: Vec<Operand<'_>> = arrays.iter().map(|a| (S::DIMS, *a)).collect();
    let dims = |k| (0..S::DIMS.len()).map(move |d| ((0, d), (k, d)));
    compare(CallSite::here(op), &operands, (1..arrays.len()).flat_map(dims))
}
/// Compares the leading and the contracted dims of a matrix product.
#[track_caller]
pub(super) fn matmul<L: Shape, R: Shape>(op: &'static str, a: &Array, b: &Array) -> Result<(), Array> {
    if const { !(any_open(L::DIMS) && any_open(R::DIMS)) } {
        return Ok(());
    }
    let (m, n) = (L::DIMS.len(), R::DIMS.len());
    let contracted = ((0, m - 1), (1, n.saturating_sub(2)));
    let leading = (3..=m.min(n)).rev().map(|back| ((0, m - back), (1, n - back)));
    compare(CallSite::here(op), &[(L::DIMS, a), (R::DIMS, b)], leading.chain([contracted]))
}
/// Compares the dims of an einsum that have one letter.
#[track_caller]
pub(super) fn einsum<L: Shape, R: Shape>(
    op: &'static str,
    subscripts: &str,
    a: &Array,
    b: &Array,
) -> Result<(), Array> {
    if const { !(any_open(L::DIMS) && any_open(R::DIMS)) } {
        return Ok(());
    }
    let inputs = subscripts.split_once("->").map_or(subscripts, |s| s.0);
    let (left, right) = inputs.split_once(',').unwrap_or((inputs, ""));
    let pairs = left.chars().enumerate().filter_map(|(d, c)| {
        let e = right.chars().position(|other| other == c)?;
        Some(((0, d), (1, e)))
    });
    compare(CallSite::here(op), &[(L::DIMS, a), (R::DIMS, b)], pairs)
}

/// Returns the dims of an array whose sizes have names.
pub(super) fn named_dims(dims: &'static [DimInfo], array: &Array) -> Vec<NamedDim> {
    let Ok(ty) = array.type_ref() else { return Vec::new() };
    let named = |(dim, (info, size)): (usize, (&DimInfo, &usize))| {
        let name = DimInfo { axes: &[], ..*info }.to_string();
        Some(NamedDim { id: info.name?, name, dim, size: *size, ty: ty.to_string() })
    };
    dims.iter().zip(&*ty.shape).enumerate().filter_map(named).collect()
}

/// Compares pairs of dims. A dim typed `~` has a static size, so it is not compared.
fn compare(
    call: CallSite<'_>,
    operands: &[Operand<'_>],
    mut pairs: impl Iterator<Item = (OperandDim, OperandDim)>,
) -> Result<(), Array> {
    let size = |(k, d): OperandDim| {
        let (dims, array) = operands[k];
        // arrays that carry an error are left to the operation
        dims.get(d).filter(|info| info.size.is_none()).and(array.type_ref().ok()?.shape.get(d).copied())
    };
    let found = pairs.find_map(|(x, y)| Some((x, y, size(x)?, size(y)?)).filter(|(.., m, n)| m != n));
    let Some(((j, d), (k, e), m, n)) = found else { return Ok(()) };
    let name = DimInfo { axes: &[], ..operands[j].0[d] };
    let fault = fault!(
        Shape,
        "dimension {d} of operand {j} has size {m}, dimension {e} of operand {k} size {n}, but the \
             types hold the two equal: both are `{name}`"
    );
    let fault = fault.highlight_dim(j, d).highlight_dim(k, e);
    let fault = fault.help("make the sizes equal, for instance by `slice` or `pad`, before `.typed()`");
    let fault = match (m, n) {
        (1, _) => fault.help(format!("to repeat operand {j}, write `~` instead of `{name}` in its type")),
        (_, 1) => fault.help(format!("to repeat operand {k}, write `~` instead of `{name}` in its type")),
        _ => fault,
    };
    let terms: Vec<Term> = operands.iter().map(|o| Term::from(o.1)).collect();
    Err(reject(fault, &terms, call))
}
