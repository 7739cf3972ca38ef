//! Loops of known length: `fori_loop`, `scan` and `map`.

use super::unify::carry_types;
use super::while_loops::run_while;
use super::{RecordedClosure, ReturnedTree, poison_tree, poisoned_tree, tree_of, types_of};
use crate::api::array::{Array, Operand, Term};
use crate::api::tree::{Args, NamedSizes, NextCarry, Output, Path, ScanStep, Tree, collect, mismatch};
use crate::api::{trace::apply_control, transform::jit::check_errors};
use crate::core::{ArrayType, Axes, DType, Error, ErrorKind, Fault, Result, Scalar};
use crate::ir::program::{CallSite, Control, Loop};
use std::ops::Range;
use std::sync::Arc;

/// Runs `body(i, carry)` for each `i` of the range, and returns the last carry.
///
/// Bounds are integers, or scalar int32 arrays.
///
/// ```
/// use atmesh::prelude::*;
/// let y = fori_loop(0..10, Array::from(0.0f32), |i, x| x + i.astype(F32));
/// assert_eq!(y.item::<f32>()?, 45.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn fori_loop<B: Operand, A: Args, R: Output<Tree: NextCarry<A::Owned>>>(
    range: Range<B>,
    init: A,
    body: impl Fn(Array, A::Owned) -> R,
) -> A::Owned {
    let call = CallSite::here("fori_loop");
    let init = init.into_tree();
    let body = |i: Array, carry: A::Owned| body(i, carry).into_result().map(NextCarry::into_carry);
    let run = |()| match (range.start.term(), range.end.term()) {
        (Term::Number(lo), Term::Number(hi)) => fori_static(lo, hi, &init, &body, call),
        (lo, hi) => fori_dynamic(lo, hi, &init, &body, call),
    };
    let out = NamedSizes::of(&init, "carry").check(call).and_then(run);
    out.unwrap_or_else(|e| poison_tree(&init, e))
}

/// Runs a loop whose bounds are known while tracing.
pub(super) fn fori_static<T: Tree>(
    lo: Scalar,
    hi: Scalar,
    init: &T,
    body: &dyn Fn(Array, T) -> Result<T>,
    call: CallSite<'_>,
) -> Result<T> {
    let bound = |x: Scalar| match x {
        Scalar::Int(i) => i32::try_from(i).map(i64::from).map_err(|_| {
            let fault = fault!(Dtype, "the bound {i} does not fit into int32")
                .help("loop counters are int32: nest two loops");
            call.error(fault, Vec::new)
        }),
        _ => {
            let fault =
                fault!(Dtype, "the bound {x} is not a whole number").help("count in whole numbers: `0..10`");
            Err(call.error(fault, Vec::new))
        }
    };
    let (start, end) = (bound(lo)?, bound(hi)?);
    let steps = ScanSteps { start, length: (end - start).max(0) as usize, reverse: false };
    let step = |i: Array, carry: T, (): ()| Ok((body(i, carry)?, ()));
    Ok(run_scan(steps, init, &(), &step, call)?.0)
}

/// Runs a loop whose bounds are arrays, as a `while` loop with a counter.
fn fori_dynamic<T: Tree>(
    lo: Term,
    hi: Term,
    init: &T,
    body: &dyn Fn(Array, T) -> Result<T>,
    call: CallSite<'_>,
) -> Result<T> {
    let [lo, hi] = [lo, hi].map(|t| -> Result<Array> {
        let a = match t {
            Term::Array(a) => a,
            Term::Number(Scalar::Int(i)) if i32::try_from(i).is_ok() => (i as i32).into_tree(),
            Term::Number(x) => {
                let fault =
                    fault!(Dtype, "the bound {x} is not an int32").help("count in whole numbers: `0..10`");
                return Err(call.error(fault, Vec::new));
            }
        };
        let ty = a.ty()?;
        if ty.dtype != DType::I32 || ty.rank() != 0 {
            let (kind, help) = match ty.rank() {
                0 => (ErrorKind::Dtype, "convert it: `.astype(I32)`"),
                _ => (ErrorKind::Shape, "take one element: `.slice(ix![0])`"),
            };
            let fault = Fault::new(kind, "bounds of a loop are integers, or scalar int32 arrays").help(help);
            return Err(call.error(fault, || vec![ty.to_string()]));
        }
        Ok(a)
    });
    let (lo, hi) = (lo?, hi?);
    let below = |(i, _): &(Array, T)| Ok(i.lt(&hi));
    let next = |(i, carry): (Array, T)| Ok((&i + 1, body(i, carry)?));
    let init = (lo, tree_of(init, collect(init)));
    Ok(run_while(&init, &below, &next, (call, Some(0)))?.1)
}

/// Runs `body(carry, x)` for each slice of `xs` along its first dimension.
///
/// Returns the last carry, and the second results stacked along a new first dimension. `body` takes
/// carry and slice by value ([closures and arguments](crate#closures-and-arguments)).
///
/// ```
/// use atmesh::prelude::*;
/// let xs = Array::from([1, 2, 3]);
/// let (total, sums) = scan(Array::from(0), &xs, |total, x| (&total + &x, &total + &x));
/// assert_eq!(total.item::<i32>()?, 6);
/// assert_eq!(sums.to_vec::<i32>()?, [1, 3, 6]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn scan<A: Args, X: Args, R: Output<Tree: ScanStep<A::Owned>>>(
    init: A,
    xs: X,
    body: impl Fn(A::Owned, X::Owned) -> R,
) -> (A::Owned, <R::Tree as ScanStep<A::Owned>>::Row) {
    scan_at(
        ScanOptions::default(),
        init.into_tree(),
        xs.into_tree(),
        &|a, x| body(a, x).into_result().map(ScanStep::into_step),
        CallSite::here("scan"),
    )
}

/// Runs `f(x)` for each slice of `xs` along its first dimension, and stacks the results.
///
/// The slices are processed one after the other. [`vmap`](crate::vmap()) computes all slices
/// simultaneously; this function needs the memory of one step only.
///
/// ```
/// use atmesh::prelude::*;
/// let xs = Array::from([[1, 2], [3, 4]]);
/// assert_eq!(atmesh::map(&xs, |x| x.sum(..)).to_vec::<i32>()?, [3, 7]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "lax.map")]
#[track_caller]
pub fn map<X: Args, R: Output>(xs: X, f: impl Fn(X::Owned) -> R) -> R::Tree {
    map_at(xs.into_tree(), &|x| f(x).into_result(), CallSite::here("map"))
}

/// Implements [`map`].
pub(super) fn map_at<X: Tree, Y: Tree>(xs: X, f: &dyn Fn(X) -> Result<Y>, call: CallSite<'_>) -> Y {
    scan_at(ScanOptions::default(), (), xs, &|(), x| Ok(((), f(x)?)), call).1
}

/// The options of [`scan_with`].
///
/// ```
/// use atmesh::prelude::*;
/// let options = ScanOptions::default().reversed();
/// let (_, from_end) = scan_with(0, Array::from([1, 2, 3]), |s, x| (&s + &x, s + x), options);
/// assert_eq!(from_end.to_vec::<i32>()?, [6, 5, 3]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ScanOptions {
    /// The number of steps. `None`, the default, takes it from the arrays. It is required if there
    /// are no arrays.
    pub length: Option<usize>,
    /// True to run from the last slice to the first; results are stacked at the positions of their
    /// slices. Defaults to false.
    pub reverse: bool,
}

impl ScanOptions {
    setters! {
        /// Sets the number of steps.
        ///
        /// ```
        /// let options = atmesh::ScanOptions::default().length(4).reversed();
        /// assert_eq!((options.length, options.reverse), (Some(4), true));
        /// ```
        pub fn length(steps: usize) = length: Some(steps);
        /// Runs from the last slice to the first.
        pub fn reversed() = reverse: true;
    }
}

/// Runs [`scan`] with options: in reverse, or for a number of steps without arrays.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::{ScanOptions, scan_with};
/// let options = ScanOptions::default().length(4);
/// let (x, ()) = scan_with(Array::from(1), (), |x, ()| (x * 2, ()), options);
/// assert_eq!(x.item::<i32>()?, 16);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn scan_with<A: Args, X: Args, R: Output<Tree: ScanStep<A::Owned>>>(
    init: A,
    xs: X,
    body: impl Fn(A::Owned, X::Owned) -> R,
    options: ScanOptions,
) -> (A::Owned, <R::Tree as ScanStep<A::Owned>>::Row) {
    scan_at(
        options,
        init.into_tree(),
        xs.into_tree(),
        &|a, x| body(a, x).into_result().map(ScanStep::into_step),
        CallSite::here("scan"),
    )
}

/// Implements the `scan` functions.
pub(crate) fn scan_at<T: Tree, X: Tree, Y: Tree>(
    options: ScanOptions,
    init: T,
    xs: X,
    body: &dyn Fn(T, X) -> Result<(T, Y)>,
    call: CallSite<'_>,
) -> (T, Y) {
    let returned = ReturnedTree::new();
    let step = |_, carry, x| returned.remember(body(carry, x));
    let names = NamedSizes::of(&init, "carry").and(&xs, "scanned array").check(call);
    let steps = names.and_then(|()| scan_steps(options, &xs, call));
    let out = steps.and_then(|steps| run_scan(steps, &init, &xs, &step, call));
    out.unwrap_or_else(|e| (poisoned_tree(&init, &e), returned.poisoned(&e).1))
}

/// Determines the steps of a scan: all first dimensions must have equal sizes and be unsharded.
fn scan_steps<X: Tree>(options: ScanOptions, xs: &X, call: CallSite<'_>) -> Result<ScanSteps> {
    check_errors(xs)?;
    let mut length = options.length;
    let mut known = "ScanOptions".to_string();
    let mut errors = Vec::new();
    xs.visit(&mut Path::named(), &mut |path, a| {
        let Ok(ty) = a.type_ref() else { return };
        let name = path.name_or("the array");
        let fault = if ty.rank() == 0 {
            Some(
                fault!(Shape, "the loop runs over leading dimensions, but {name} is {ty}")
                    .help("capture values that are the same at every step"),
            )
        } else if !ty.spec.dim(0).is_empty() {
            let rest = ty.spec.with_dims(
                (0..ty.rank()).map(|d| if d == 0 { Axes::none() } else { ty.spec.dims()[d].clone() }).collect(),
            );
            Some(
                fault!(Sharding, "the loop takes one slice of the leading dimension after the other, but that of {name} is sharded: {ty}")
                .help(format!("gather it first: `.reshard({rest})`"))
                .highlight_dim(0, 0),
            )
        } else if length.is_some_and(|n| n != ty.shape[0]) {
            let n = length.unwrap_or_default();
            Some(
                fault!(Shape, "the loop has {n} steps by {known}, but {name} is {ty}")
                    .help("give leading dimensions of equal size")
                    .highlight_dim(0, 0),
            )
        } else {
            if length.is_none() {
                known.clone_from(&name);
            }
            length = Some(ty.shape[0]);
            None
        };
        errors.extend(fault.map(|fault| call.error(fault, || vec![ty.to_string()])));
    });
    if !errors.is_empty() {
        return Err(Error::combine(errors));
    }
    let Some(length) = length else {
        let fault = fault!(Shape, "no array says how many steps the loop has")
            .help("give it: `scan_with(…, ScanOptions::default().length(n))`");
        return Err(call.error(fault, Vec::new));
    };
    Ok(ScanSteps { start: 0, length, reverse: options.reverse })
}

/// The iteration space of a loop whose length is known while tracing.
struct ScanSteps {
    start: i64,
    length: usize,
    reverse: bool,
}

fn run_scan<T: Tree, X: Tree, Y: Tree>(
    steps: ScanSteps,
    init: &T,
    xs: &X,
    body: &dyn Fn(Array, T, X) -> Result<(T, Y)>,
    call: CallSite<'_>,
) -> Result<(T, Y)> {
    check_errors(init)?;
    let before = types_of(init);
    let slices: Vec<ArrayType> = types_of(xs).iter().map(slice_type).collect();
    let mut asked = vec![DType::I32.array_type([])];
    asked.extend(before.iter().cloned());
    asked.extend(slices);
    let carry = before.len();
    let step = |mut leaves: Vec<Array>| {
        let x = leaves.split_off(1 + carry);
        let c = leaves.split_off(1);
        let i = leaves.swap_remove(0);
        body(i, tree_of(init, c), tree_of(xs, x))
    };
    let piece = RecordedClosure::record(call, &asked, step)?;
    let (next, _) = &piece.out;
    if let Some(how) = init.differs(next, &mut Path::named()) {
        return Err(mismatch("the carry before the body and after it", &how, call));
    }
    let after = piece.program.output_types();
    let again = |types: &[ArrayType]| {
        let asked: Vec<ArrayType> = [&asked[..1], types, &asked[1 + carry..]].concat();
        let mut types = RecordedClosure::record(call, &asked, step).ok()?.program.output_types();
        types.truncate(carry);
        Some(types)
    };
    let mut types = carry_types((call, None), init, &before, &piece.program, &again)?;
    let last = i64::try_from(steps.length).map_or(i64::MAX, |n| steps.start.saturating_add(n - 1));
    if last > i32::MAX.into() {
        let fault = fault!(Shape, "{} steps are more than int32 counts", steps.length);
        return Err(call.error(fault, Vec::new));
    }
    types.extend(after[carry..].iter().map(|ty| stacked_type(ty, steps.length)));
    if let Some(fault) = types.iter().find_map(|ty| ty.check_addressable().err()) {
        return Err(call.error(fault, Vec::new));
    }
    // the inputs in order: step index, loop-invariant inputs, carries, slices
    let RecordedClosure { mut program, captures, out } = piece;
    let fixed = captures.len();
    program.inputs[1..].rotate_right(fixed);
    let ScanSteps { start, length, reverse } = steps;
    let control = Control::Loop(Loop { body: Arc::new(program), start, length, reverse, fixed, carry });
    let inputs: Vec<Array> = captures.into_iter().chain(collect(init)).chain(collect(xs)).collect();
    let mut results = apply_control(control, &inputs, types, call)?;
    let ys = results.split_off(carry);
    Ok((tree_of(init, results), tree_of(&out.1, ys)))
}

/// Returns the type of one slice along the first dimension.
pub(crate) fn slice_type(ty: &ArrayType) -> ArrayType {
    let dims = ty.spec.dims().iter().skip(1).cloned().collect();
    ArrayType { shape: ty.shape[1..].into(), spec: ty.spec.with_dims(dims), ..ty.clone() }
}

/// Returns the type of `length` values stacked along a new, unsharded first dimension.
fn stacked_type(ty: &ArrayType, length: usize) -> ArrayType {
    let dims =
        std::iter::once(Axes::none()).chain(ty.spec.padded(ty.rank()).dims().iter().cloned()).collect();
    let shape = std::iter::once(length).chain(ty.shape.iter().copied()).collect();
    ArrayType { shape, spec: ty.spec.with_dims(dims), ..ty.clone() }
}
