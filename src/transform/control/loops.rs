//! Loops.

use super::branch::predicate;
use super::branch::{Chooser, choose};
use super::carry::carries;
use super::{Piece, Returned, tree_failed, tree_of};
use crate::array::{Array, Operand, Term};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Axes;
use crate::program::{Call, Control, Loop};
use crate::trace::{apply_control, poison};
use crate::transform::jit::no_error;
use crate::tree::{Args, Output, Path, Tree, collect, mismatch};
use crate::types::{ArrayType, DType, Scalar};
use std::ops::Range;
use std::sync::Arc;

/// `body(i, carry)` for each `i` of the range; the last carry. Bounds are numbers, or arrays of one int32.
///
/// ```
/// use atmesh::prelude::*;
/// let y = fori_loop(0..10, Array::from(0.0f32), |i, x| x + i.astype(F32));
/// assert_eq!(y.item::<f32>()?, 45.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn fori_loop<B: Operand, A: Args, R: Output<Tree = A::Owned>>(
    range: Range<B>,
    init: A,
    body: impl Fn(Array, A::Owned) -> R,
) -> A::Owned {
    let call = Call::here("fori_loop");
    let init = init.into_tree();
    let body = |i: Array, carry: A::Owned| body(i, carry).into_result();
    let out = match (range.start.term(), range.end.term()) {
        (Term::Number(lo), Term::Number(hi)) => fixed(lo, hi, &init, &body, call),
        (lo, hi) => bounded(lo, hi, &init, &body, call),
    };
    out.unwrap_or_else(|e| failed(&init, e))
}

fn failed<T: Tree>(like: &T, error: Error) -> T {
    let _ = poison(error.clone());
    tree_failed(like, &error)
}

/// The loop over numbers.
fn fixed<T: Tree>(
    lo: Scalar,
    hi: Scalar,
    init: &T,
    body: &dyn Fn(Array, T) -> Result<T>,
    call: Call<'_>,
) -> Result<T> {
    let bound = |x: Scalar| match x {
        Scalar::Int(i) => i32::try_from(i).map(i64::from).map_err(|_| {
            let fault = Fault::new(ErrorKind::Dtype, format!("the bound {i} does not fit into int32"))
                .help("steps are counted in int32: put one loop into another");
            call.error(fault, Vec::new)
        }),
        _ => {
            let fault = Fault::new(ErrorKind::Dtype, format!("the bound {x} is not a whole number"))
                .help("count in whole numbers: `0..10`");
            Err(call.error(fault, Vec::new))
        }
    };
    let (start, end) = (bound(lo)?, bound(hi)?);
    let steps = Steps { start, length: (end - start).max(0) as usize, reverse: false };
    let step = |i: Array, carry: T, (): ()| Ok((body(i, carry)?, ()));
    Ok(run(steps, init, &(), &step, call)?.0)
}

/// The loop over bounds that are arrays: while the number is below the end.
fn bounded<T: Tree>(
    lo: Term,
    hi: Term,
    init: &T,
    body: &dyn Fn(Array, T) -> Result<T>,
    call: Call<'_>,
) -> Result<T> {
    let [lo, hi] = [lo, hi].map(|t| -> Result<Array> {
        let a = match t {
            Term::Array(a) => a,
            Term::Number(Scalar::Int(i)) if i32::try_from(i).is_ok() => (i as i32).into_tree(),
            Term::Number(x) => {
                let fault = Fault::new(ErrorKind::Dtype, format!("the bound {x} is not an int32"))
                    .help("count in whole numbers: `0..10`");
                return Err(call.error(fault, Vec::new));
            }
        };
        let ty = a.ty()?;
        if ty.dtype != DType::I32 || ty.rank() != 0 {
            let (kind, help) = match ty.rank() {
                0 => (ErrorKind::Dtype, "convert it: `.astype(I32)`"),
                _ => (ErrorKind::Shape, "take one element: `.slice(ix![0])`"),
            };
            let fault = Fault::new(kind, "bounds of a loop are numbers, or arrays of one int32").help(help);
            return Err(call.error(fault, || vec![ty.to_string()]));
        }
        Ok(a)
    });
    let (lo, hi) = (lo?, hi?);
    let below = |(i, _): &(Array, T)| Ok(i.lt(&hi));
    let next = |(i, carry): (Array, T)| Ok((&i + 1, body(i, carry)?));
    let init = (lo, tree_of(init, collect(init)));
    Ok(run_while(&init, &below, &next, call)?.1)
}

/// `body(carry)` while `cond(&carry)` holds; the last carry.
///
/// In a body of `shard_map` devices may leave the loop at different steps, if there is no collective in it over their axes.
///
/// ```
/// use atmesh::prelude::*;
/// let (_, n) = while_loop((Array::from(100), Array::from(0)), |(x, _)| x.gt(1), |(x, n)| (x / 2, n + 1));
/// assert_eq!(n.item::<i32>()?, 6);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn while_loop<A: Args, P: Operand, R: Output<Tree = A::Owned>>(
    init: A,
    cond: impl Fn(&A::Owned) -> P,
    body: impl Fn(A::Owned) -> R,
) -> A::Owned {
    let call = Call::here("while_loop");
    let init = init.into_tree();
    let cond = |x: &A::Owned| Ok(predicate(cond(x)));
    let out = run_while(&init, &cond, &|x| body(x).into_result(), call);
    out.unwrap_or_else(|e| failed(&init, e))
}

fn run_while<T: Tree>(
    init: &T,
    cond: &dyn Fn(&T) -> Result<Array>,
    body: &dyn Fn(T) -> Result<T>,
    call: Call<'_>,
) -> Result<T> {
    no_error(init)?;
    let before = types_of(init);
    let test = Piece::record(&before, |leaves| cond(&tree_of(init, leaves)));
    let test = match test {
        Ok(test) => test,
        // the body's errors are told too
        Err(e) => {
            let step = Piece::record(&before, |leaves| body(tree_of(init, leaves)));
            return Err(Error::all(std::iter::once(e).chain(step.err())));
        }
    };
    let holds = &test.program.output_types()[0];
    let refusal = if holds.rank() != 0 {
        Some(
            Fault::new(ErrorKind::Shape, format!("the condition is {holds}: it must be one bool"))
                .help("reduce it to one: `.all(..)`, `.any(..)`"),
        )
    } else if holds.dtype != DType::Bool {
        Some(
            Fault::new(ErrorKind::Dtype, format!("the condition is {holds}: it must be bool[]"))
                .help("compare it: `.gt(0)`, `.ne(0)`"),
        )
    } else {
        None
    };
    if let Some(fault) = refusal {
        return Err(call.error(fault, || vec![holds.to_string()]));
    }
    let varying = holds.varying.clone();
    let step = Piece::record(&before, |leaves| body(tree_of(init, leaves)))?;
    if let Some(how) = init.differs(&step.out, &mut Path::named()) {
        return Err(mismatch("the carry before the body and after it", &how, call));
    }
    let again = |types: &[ArrayType]| {
        let step = Piece::record(types, |leaves| body(tree_of(init, leaves))).ok()?;
        Some(step.program.output_types())
    };
    let types = carries(call, init, &before, &step.program, &again)?;
    if !varying.is_empty() {
        return while_any(&varying, init, &test, &step, call);
    }
    // fixed inputs first
    let (mut cond_program, mut body_program) = (test.program, step.program);
    cond_program.inputs.rotate_right(test.captures.len());
    body_program.inputs.rotate_right(step.captures.len());
    let control = Control::While {
        cond: Arc::new(cond_program),
        body: Arc::new(body_program),
        cond_fixed: test.captures.len(),
        body_fixed: step.captures.len(),
    };
    let inputs: Vec<Array> = test.captures.into_iter().chain(step.captures).chain(collect(init)).collect();
    Ok(tree_of(init, apply_control(control, &inputs, types, call)?))
}

/// A loop that devices leave at different steps: all go on while any does, and those that are done keep their carry.
fn while_any<T: Tree>(
    axes: &Axes,
    init: &T,
    test: &Piece<Array>,
    step: &Piece<T>,
    call: Call<'_>,
) -> Result<T> {
    // the carry's arrays behind whether this device goes on
    let with = |carry: Vec<Array>| -> Result<Vec<Array>> {
        let holds = test.applied(&carry, call)?;
        Ok(holds.into_iter().chain(carry).collect())
    };
    let any = |state: &Vec<Array>| Ok(state[0].pmax(axes.clone()));
    let next = |state: Vec<Array>| {
        let step = || with(step.applied(&state[1..], call)?);
        Ok(choose(Chooser::Loop, call, state[0].clone(), &[&step, &|| Ok(state.clone())]))
    };
    let start = with(collect(init))?;
    let mut last = run_while(&start, &any, &next, call)?;
    Ok(tree_of(init, last.split_off(1)))
}

/// `body(carry, x)` for each slice of `xs` along its leading dimension: the last carry, and the results stacked.
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
pub fn scan<A: Args, X: Args, Y: Tree, R: Output<Tree = (A::Owned, Y)>>(
    init: A,
    xs: X,
    body: impl Fn(A::Owned, X::Owned) -> R,
) -> (A::Owned, Y) {
    scan_at(
        ScanOptions::default(),
        init.into_tree(),
        xs.into_tree(),
        &|a, x| body(a, x).into_result(),
        Call::here("scan"),
    )
}

/// `f(x)` for each slice of `xs` along its leading dimension, one after the other; the results stacked. [`vmap`](crate::vmap) works on all
/// of them at once; this one needs the memory of one step.
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
    let step = |(), x| Ok(((), f(x).into_result()?));
    scan_at(ScanOptions::default(), (), xs.into_tree(), &step, Call::here("map")).1
}

/// How [`scan_with`] goes.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ScanOptions {
    /// How many steps, where no array is run over (or to say it once more).
    pub length: Option<usize>,
    /// From the last slice to the first; results are stacked at the positions of their slices.
    pub reverse: bool,
}

impl ScanOptions {
    /// The same, of so many steps.
    ///
    /// ```
    /// let options = atmesh::ScanOptions::default().length(4).reversed();
    /// assert_eq!((options.length, options.reverse), (Some(4), true));
    /// ```
    pub fn length(self, steps: usize) -> ScanOptions {
        ScanOptions { length: Some(steps), ..self }
    }
    /// The same, from the last slice to the first.
    pub fn reversed(self) -> ScanOptions {
        ScanOptions { reverse: true, ..self }
    }
}

/// [`scan`] from the last slice to the first, or over nothing but a number of steps.
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
pub fn scan_with<A: Args, X: Args, Y: Tree, R: Output<Tree = (A::Owned, Y)>>(
    init: A,
    xs: X,
    body: impl Fn(A::Owned, X::Owned) -> R,
    options: ScanOptions,
) -> (A::Owned, Y) {
    scan_at(options, init.into_tree(), xs.into_tree(), &|a, x| body(a, x).into_result(), Call::here("scan"))
}

fn scan_at<T: Tree, X: Tree, Y: Tree>(
    options: ScanOptions,
    init: T,
    xs: X,
    body: &dyn Fn(T, X) -> Result<(T, Y)>,
    call: Call<'_>,
) -> (T, Y) {
    let returned = Returned::new();
    let step = |_, carry, x| returned.note(body(carry, x));
    let out = steps(options, &xs, call).and_then(|steps| run(steps, &init, &xs, &step, call));
    out.unwrap_or_else(|e| (tree_failed(&init, &e), returned.failed(&e).1))
}

/// How many steps: the size of the leading dimensions, which agree and are unsharded.
fn steps<X: Tree>(options: ScanOptions, xs: &X, call: Call<'_>) -> Result<Steps> {
    no_error(xs)?;
    let mut length = options.length;
    let mut known = "ScanOptions".to_string();
    let mut refused = Vec::new();
    xs.visit(&mut Path::named(), &mut |path, a| {
        let Ok(ty) = a.type_ref() else { return };
        let name = path.or("the array");
        let fault = if ty.rank() == 0 {
            Some(
                Fault::new(ErrorKind::Shape, format!("the loop runs over leading dimensions, but {name} is {ty}"))
                    .help("capture what is the same at every step"),
            )
        } else if !ty.spec.dim(0).is_empty() {
            let rest = ty.spec.with_dims(
                (0..ty.rank()).map(|d| if d == 0 { Axes::none() } else { ty.spec.dims()[d].clone() }).collect(),
            );
            Some(
                Fault::new(
                    ErrorKind::Sharding,
                    format!("the loop takes one slice of the leading dimension after the other, but that of {name} is sharded: {ty}"),
                )
                .help(format!("gather it first: `.reshard({rest})`"))
                .dim(0, 0),
            )
        } else if length.is_some_and(|n| n != ty.shape[0]) {
            let n = length.unwrap_or_default();
            Some(
                Fault::new(ErrorKind::Shape, format!("the loop has {n} steps by {known}, but {name} is {ty}"))
                    .help("give leading dimensions of one size")
                    .dim(0, 0),
            )
        } else {
            if length.is_none() {
                known.clone_from(&name);
            }
            length = Some(ty.shape[0]);
            None
        };
        refused.extend(fault.map(|fault| call.error(fault, || vec![ty.to_string()])));
    });
    if !refused.is_empty() {
        return Err(Error::all(refused));
    }
    let Some(length) = length else {
        let fault = Fault::new(ErrorKind::Shape, "no array says how many steps the loop has")
            .help("say it: `scan_with(…, ScanOptions::default().length(n))`");
        return Err(call.error(fault, Vec::new));
    };
    Ok(Steps { start: 0, length, reverse: options.reverse })
}

/// How a loop of known length goes.
struct Steps {
    start: i64,
    length: usize,
    reverse: bool,
}

fn run<T: Tree, X: Tree, Y: Tree>(
    steps: Steps,
    init: &T,
    xs: &X,
    body: &dyn Fn(Array, T, X) -> Result<(T, Y)>,
    call: Call<'_>,
) -> Result<(T, Y)> {
    no_error(init)?;
    let before = types_of(init);
    let slices: Vec<ArrayType> = types_of(xs).iter().map(slice_type).collect();
    let mut asked = vec![DType::I32.of([])];
    asked.extend(before.iter().cloned());
    asked.extend(slices);
    let carry = before.len();
    let step = |mut leaves: Vec<Array>| {
        let x = leaves.split_off(1 + carry);
        let c = leaves.split_off(1);
        let i = leaves.swap_remove(0);
        body(i, tree_of(init, c), tree_of(xs, x))
    };
    let piece = Piece::record(&asked, step)?;
    let (next, _) = &piece.out;
    if let Some(how) = init.differs(next, &mut Path::named()) {
        return Err(mismatch("the carry before the body and after it", &how, call));
    }
    let after = piece.program.output_types();
    let again = |types: &[ArrayType]| {
        let asked: Vec<ArrayType> = [&asked[..1], types, &asked[1 + carry..]].concat();
        let mut types = Piece::record(&asked, step).ok()?.program.output_types();
        types.truncate(carry);
        Some(types)
    };
    let mut types = carries(call, init, &before, &piece.program, &again)?;
    let last = i64::try_from(steps.length).map_or(i64::MAX, |n| steps.start.saturating_add(n - 1));
    if last > i32::MAX.into() {
        let fault =
            Fault::new(ErrorKind::Shape, format!("{} steps are more than int32 counts", steps.length));
        return Err(call.error(fault, Vec::new));
    }
    types.extend(after[carry..].iter().map(|ty| stacked_type(ty, steps.length)));
    if let Some(fault) = types.iter().find_map(|ty| ty.addressable().err()) {
        return Err(call.error(fault, Vec::new));
    }
    // the step's number, the fixed ones, the carries, the slices
    let Piece { mut program, captures, out } = piece;
    let fixed = captures.len();
    program.inputs[1..].rotate_right(fixed);
    let Steps { start, length, reverse } = steps;
    let control = Control::Loop(Loop { body: Arc::new(program), start, length, reverse, fixed, carry });
    let inputs: Vec<Array> = captures.into_iter().chain(collect(init)).chain(collect(xs)).collect();
    let mut results = apply_control(control, &inputs, types, call)?;
    let ys = results.split_off(carry);
    Ok((tree_of(init, results), tree_of(&out.1, ys)))
}

fn types_of<T: Tree>(tree: &T) -> Vec<ArrayType> {
    collect(tree).iter().filter_map(|a| a.type_ref().ok().cloned()).collect()
}

/// One slice along the leading dimension.
fn slice_type(ty: &ArrayType) -> ArrayType {
    let dims = ty.spec.dims().iter().skip(1).cloned().collect();
    ArrayType { shape: ty.shape[1..].into(), spec: ty.spec.with_dims(dims), ..ty.clone() }
}

/// As many along a new leading dimension, which is unsharded.
fn stacked_type(ty: &ArrayType, length: usize) -> ArrayType {
    let dims =
        std::iter::once(Axes::none()).chain(ty.spec.padded(ty.rank()).dims().iter().cloned()).collect();
    let shape = std::iter::once(length).chain(ty.shape.iter().copied()).collect();
    ArrayType { shape, spec: ty.spec.with_dims(dims), ..ty.clone() }
}
