//! Dims that static types hold equal, and sizes that are known only at run time.
//!
//! Untyped operations repeat every dimension of size 1. Typed operations repeat only dims typed
//! `~`. A dim of size 1 whose type is a name or `?` looks like one to the untyped operation, so
//! every typed operation on several arrays first calls a function of this module. It compares the
//! sizes of dims that are known only at run time. If no dim of the types is such, rustc removes
//! the call.

use super::shape::{DimInfo, Shape};
use crate::api::array::{Array, Term, reject};
use crate::api::tree::NamedDim;
use crate::core::diagnostic::{ErrorKind, Fault};
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
pub(super) fn elementwise<L: Shape, R: Shape>(op: &'static str, a: &Array, b: &Array) -> Result<(), Array> {
    if const { !(any_open(L::DIMS) && any_open(R::DIMS)) } {
        return Ok(());
    }
    elementwise_dims(CallSite::here(op), (L::DIMS, a), (R::DIMS, b))
}
/// Compares the dims of an elementwise operation whose right operand has these dims.
pub(super) fn elementwise_dims(call: CallSite<'_>, a: Operand<'_>, b: Operand<'_>) -> Result<(), Array> {
    let (m, n) = (a.0.len(), b.0.len());
    let pairs = (1..=m.min(n)).rev().map(|back| ((0, m - back), (1, n - back)));
    compare(call, &[a, b], pairs)
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
    let fault = Fault::new(
        ErrorKind::Shape,
        format!(
            "dimension {d} of operand {j} has size {m}, dimension {e} of operand {k} size {n}, but the \
             types hold the two equal: both are `{name}`"
        ),
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
