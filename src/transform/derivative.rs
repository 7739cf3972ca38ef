//! Derivatives in place: the point first, then the closure. What the closure captures is held constant.
//!
//! On numbers they run at once: the closure is traced at every call, and an equal program that was compiled before is found again.

use super::compiled::marked;
use super::control::{Piece, Returned, carry, tree_failed, tree_of};
use super::jit::no_error;
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Result, Spot};
use crate::grad::{jvp_program, vjp_program, vjp_program_of};
use crate::mesh::{Axes, AxisType};
use crate::ops::build::cotangent_type;
use crate::program::{Builder, Call, Control, Keep, Op, Program, Value};
use crate::sorted;
use crate::trace::{build, poison};
use crate::tree::{Args, Loss, Output, Path, Tree, collect, mismatch};
use crate::types::ArrayType;
use std::fmt;
use std::sync::Arc;

/// The gradient of `f` at a point: a tree like it. `f` returns one number, or one number and what else to return.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0]);
/// let g = grad(&x, |x| x.square().sum(..));
/// assert_eq!(g.to_vec::<f32>()?, [2.0, 4.0]);
/// let (gx, gy) = grad((&x, Array::from(3.0f32)), |(x, y)| (x * y).sum(..));
/// assert_eq!(gx.to_vec::<f32>()?, [3.0, 3.0]);
/// assert_eq!(gy.item::<f32>()?, 3.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn grad<A: Args, R: Output<Tree: Loss>>(at: A, f: impl Fn(A::Owned) -> R) -> A::Owned {
    let (call, at) = (Call::here("grad"), at.into_tree());
    match loss_and_grad(&at, &|x| f(x).into_result(), call) {
        Ok((_, g)) => g,
        Err(e) => {
            let _ = poison(e.clone());
            tree_failed(&at, &e)
        }
    }
}

/// What `f` returns, and the gradient of its (first) number.
///
/// ```
/// use atmesh::prelude::*;
/// let ((loss, double), g) = value_and_grad(Array::from(3.0f32), |x| (x.square(), &x * 2.0));
/// assert_eq!((loss.item::<f32>()?, double.item::<f32>()?, g.item::<f32>()?), (9.0, 6.0, 6.0));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn value_and_grad<A: Args, R: Output<Tree: Loss>>(
    at: A,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, A::Owned) {
    let (call, at) = (Call::here("value_and_grad"), at.into_tree());
    let returned = Returned::new();
    let f = |x| returned.note(f(x).into_result());
    loss_and_grad(&at, &f, call).unwrap_or_else(|e| (returned.failed(&e), tree_failed(&at, &e)))
}

/// The closure as a program of the point's leaves, and what it is applied to: these and the captures.
fn record<A: Tree, R: Tree>(
    at: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: Call<'_>,
) -> Result<(Program, Vec<Array>, R)> {
    no_error(at)?;
    let leaves = collect(at);
    let types: Vec<ArrayType> = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
    let mut refused = Vec::new();
    at.visit(&mut Path::named(), &mut |path, a| {
        let Ok(ty) = a.type_ref() else { return };
        if !ty.dtype.is_float() {
            let name = path.or("the argument");
            let message = format!("derivatives are taken by floats, but {name} is {ty}");
            let fault = Fault::new(ErrorKind::Dtype, message)
                .help("convert it first: `.astype(F32)`")
                .help("or capture it: what is captured is held constant")
                .mark(0, Spot::Dtype);
            refused.push(call.error(fault, || vec![ty.to_string()]));
        }
    });
    if !refused.is_empty() {
        return Err(Error::all(refused));
    }
    let piece = Piece::record(&types, |xs| f(tree_of(at, xs)))?;
    Ok((piece.program, leaves.into_iter().chain(piece.captures).collect(), piece.out))
}

fn loss_and_grad<A: Tree, R: Tree>(at: &A, f: &dyn Fn(A) -> Result<R>, call: Call<'_>) -> Result<(R, A)> {
    let (program, inputs, out) = record(at, f, call)?;
    let types = program.output_types();
    let Some(loss) = types.first() else {
        let fault = Fault::new(ErrorKind::Shape, "the function returns no array to differentiate")
            .help("return the loss first: one float");
        return Err(call.error(fault, Vec::new));
    };
    let refusal = if loss.rank() != 0 {
        Some(
            Fault::new(
                ErrorKind::Shape,
                format!("one number is differentiated, but the function returns {loss}"),
            )
            .help("sum it: `.sum(..)`")
            .help("or take `vjp`, with a cotangent of that shape"),
        )
    } else if !loss.dtype.is_float() {
        Some(
            Fault::new(
                ErrorKind::Dtype,
                format!("a float is differentiated, but the function returns {loss}"),
            )
            .help("convert it: `.astype(F32)`")
            .mark(0, Spot::Dtype),
        )
    } else {
        None
    };
    if let Some(fault) = refusal {
        return Err(call.error(fault, || vec![loss.to_string()]));
    }
    let n = collect(at).len();
    let wrt: Vec<usize> = (0..n).collect();
    // what else is returned is not differentiated
    let results = types.len();
    let first: Vec<bool> = (0..results).map(|i| i == 0).collect();
    let vjp = vjp_program_of(&program, &wrt, &first).map_err(|e| call.locate(e))?;
    let mut all = build(&inputs, call, |b, values| {
        let mut values = b.inline(&vjp.forward, values);
        let mut back = values.split_off(results);
        if vjp.depends[0] {
            back.push(constant(b, &types[0], 1.0)?);
        }
        values.extend(b.inline(&vjp.backward, &back));
        Ok(values)
    })?;
    let grads = all.split_off(results);
    Ok((tree_of(&out, all), tree_of(at, grads)))
}

/// A cotangent that is this number everywhere, for a value of this type.
fn constant(b: &mut Builder, ty: &ArrayType, value: f64) -> Result<Value> {
    let want = cotangent_type(ty);
    // a number counts once: where the cotangent is unreduced over explicit axes, in the first of its parts
    let manual = |a| ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Manual));
    let whole: Axes = want.spec.unreduced_axes().iter().filter(|a| manual(*a)).collect();
    let number = b.full(&ArrayType { spec: want.spec.unreduced(whole), ..want.clone() }, value)?;
    b.reshard_to(&number, &want)
}

/// `f` at a point, and its derivative there along a tangent: a tree like the point.
///
/// ```
/// use atmesh::prelude::*;
/// let (y, dy) = jvp(Array::from(2.0f32), 1.0, |x| &x * &x * &x);
/// assert_eq!((y.item::<f32>()?, dy.item::<f32>()?), (8.0, 12.0));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn jvp<A: Args, R: Output>(
    at: A,
    tangent: impl Args<Owned = A::Owned>,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, R::Tree) {
    let call = Call::here("jvp");
    let (at, tangent) = (at.into_tree(), tangent.into_tree());
    let returned = Returned::new();
    let f = |x| returned.note(f(x).into_result());
    forward(&at, &tangent, &f, call).unwrap_or_else(|e| (returned.failed(&e), returned.failed(&e)))
}

fn forward<A: Tree, R: Tree>(
    at: &A,
    tangent: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: Call<'_>,
) -> Result<(R, R)> {
    if let Some(how) = at.differs(tangent, &mut Path::named()) {
        return Err(mismatch("the point and its tangent", &how, call));
    }
    let (program, mut inputs, out) = record(at, f, call)?;
    let leaves = collect(at);
    let tangents = collect(tangent);
    let wanted: Vec<ArrayType> = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
    fits("tangent", tangent, &wanted, Widen::Varying, call)?;
    let active: Vec<bool> = (0..inputs.len()).map(|i| i < leaves.len()).collect();
    let jvp = jvp_program(&program, &active).map_err(|e| call.locate(e))?;
    let types = program.output_types();
    let count = inputs.len();
    inputs.extend(tangents);
    let mut all = build(&inputs, call, |b, values| {
        let mut ins = values[..count].to_vec();
        for (t, ty) in values[count..].iter().zip(&wanted) {
            ins.push(b.fit(t, ty)?);
        }
        let mut values = b.inline(&jvp.program, &ins);
        let mut found = values.split_off(types.len()).into_iter();
        for (ty, has) in types.iter().zip(&jvp.tangents) {
            values.push(match (has, ty.dtype.is_inexact()) {
                (true, _) => found.next().expect("one for each that has one"),
                // what does not move, or is no float, has a tangent of zeros
                (false, _) => b.zeros(ty)?,
            });
        }
        Ok(values)
    })?;
    let dots = all.split_off(types.len());
    Ok((tree_of(&out, all), tree_of(&out, dots)))
}

/// `f` at a point, and the function from a cotangent of its result to one of the point.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0]);
/// let (y, pull) = vjp(&x, |x| x.sin());
/// let dx = pull.call(Array::from([1.0f32, 0.0]));
/// assert_eq!(dx.to_vec::<f32>()?[1], 0.0);
/// # let _ = y;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vjp<A: Args, R: Output>(at: A, f: impl Fn(A::Owned) -> R) -> (R::Tree, Pullback<R::Tree, A::Owned>) {
    let (call, at) = (Call::here("vjp"), at.into_tree());
    let returned = Returned::new();
    pullback(&at, &|x| returned.note(f(x).into_result()), call).unwrap_or_else(|e| {
        let (out, at) = (returned.failed(&e), tree_failed(&at, &e));
        (returned.failed(&e), Pullback { state: Err(e), out, at })
    })
}

/// The way back from a result's cotangent to the argument's, made by [`vjp`]. It may be called many times.
#[must_use = "it does nothing until it is called"]
pub struct Pullback<R, A> {
    state: Result<Backward>,
    /// The result, whose tree and types cotangents must have.
    out: R,
    /// The point.
    at: A,
}

/// The type of the result that it goes back from.
impl<R: Tree, A> fmt::Debug for Pullback<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<String> = collect(&self.out)
            .iter()
            .map(|a| a.ty().map_or_else(|_| "an error".into(), |t| t.to_string()))
            .collect();
        write!(f, "Pullback(of {})", types.join(", "))
    }
}

struct Backward {
    program: Program,
    residuals: Vec<Array>,
    depends: Vec<bool>,
}

fn pullback<A: Tree, R: Tree>(
    at: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: Call<'_>,
) -> Result<(R, Pullback<R, A>)> {
    let (program, inputs, out) = record(at, f, call)?;
    let wrt: Vec<usize> = (0..collect(at).len()).collect();
    let vjp = vjp_program(&program, &wrt).map_err(|e| call.locate(e))?;
    let mut values = build(&inputs, call, |b, values| Ok(b.inline(&vjp.forward, values)))?;
    let residuals = values.split_off(program.outputs.len());
    let out = tree_of(&out, values);
    let backward = Backward { program: vjp.backward, residuals, depends: vjp.depends };
    let same = |t: &R| tree_of(t, collect(t));
    let pull = Pullback { state: Ok(backward), out: same(&out), at: tree_of(at, collect(at)) };
    Ok((out, pull))
}

impl<R: Tree, A: Tree> Pullback<R, A> {
    /// The cotangent of the argument, from one of the result: a tree like it, of the same types with unreduced and reduced traded.
    #[track_caller]
    pub fn call<C: Args<Owned = R>>(&self, cotangent: C) -> A {
        let call = Call::here("vjp");
        self.pull(&cotangent.into_tree(), call).unwrap_or_else(|e| {
            let _ = poison(e.clone());
            tree_failed(&self.at, &e)
        })
    }
    fn pull(&self, cotangent: &R, call: Call<'_>) -> Result<A> {
        let back = self.state.as_ref().map_err(Error::clone)?;
        if let Some(how) = self.out.differs(cotangent, &mut Path::named()) {
            return Err(mismatch("the result and its cotangent", &how, call));
        }
        let wanted: Vec<ArrayType> =
            collect(&self.out).iter().map(|y| Ok(cotangent_type(&y.ty()?))).collect::<Result<_>>()?;
        no_error(cotangent)?;
        let given = collect(cotangent);
        for (ct, (ty, depends)) in given.iter().zip(wanted.iter().zip(&back.depends)) {
            if *depends {
                fits("cotangent", ct, std::slice::from_ref(ty), Widen::Nothing, call)?;
            }
        }
        let cts = given.iter().zip(&back.depends).filter(|(_, d)| **d).map(|(ct, _)| ct.clone());
        let inputs: Vec<Array> = back.residuals.iter().cloned().chain(cts).collect();
        let out = build(&inputs, call, |b, values| Ok(b.inline(&back.program, values)))?;
        Ok(tree_of(&self.at, out))
    }
}

/// What may be cast for the user.
#[derive(Clone, Copy, PartialEq)]
enum Widen {
    /// To vary over more axes.
    Varying,
    /// Nothing.
    Nothing,
}

/// Refuses tangents and cotangents of another type than they must have.
fn fits<T: Tree>(what: &str, tree: &T, wanted: &[ArrayType], widen: Widen, call: Call<'_>) -> Result<()> {
    no_error(tree)?;
    let mut errors = Vec::new();
    let mut wanted = wanted.iter();
    tree.visit(&mut Path::named(), &mut |path, a| {
        let (Ok(ty), Some(want)) = (a.type_ref(), wanted.next()) else { return };
        let mut ty = ty.clone();
        if widen == Widen::Varying && ty.varying.iter().all(|x| want.varying.contains(x)) {
            ty.varying = want.varying.clone();
            ty.mesh = ty.mesh.or_else(|| want.mesh.clone());
        }
        if carry::joined(&ty, want).is_none() {
            let kind = super::compiled::differing(&ty, want);
            let name =
                if path.parts().is_empty() { format!("the {what}") } else { format!("the {what} `{path}`") };
            let fault = Fault::new(kind, format!("{name} is {ty}, but must be {want}"));
            let fault = marked(carry::brought(fault, &ty, want), 0, &ty, want);
            errors.push(call.error(fault, || vec![ty.to_string()]));
        }
    });
    if errors.is_empty() { Ok(()) } else { Err(Error::all(errors)) }
}

/// `f` at a point; derivatives keep the point and compute the rest again in the backward pass, in place of keeping it.
///
/// ```
/// use atmesh::prelude::*;
/// let g = grad(Array::from(0.5f32), |x| checkpoint(&x, |x| x.sin().exp()));
/// assert!((g.item::<f32>()? - 1.4174).abs() < 1e-3);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// [`checkpoint_with`] keeps more.
#[doc(alias("remat"))]
#[track_caller]
pub fn checkpoint<A: Args, R: Output>(at: A, f: impl Fn(A::Owned) -> R) -> R::Tree {
    kept(at.into_tree(), Keep::Nothing, &|x| f(x).into_result(), Call::here("checkpoint"))
}

/// The same, with a word on what derivatives keep beside the point: what a layer holds until the way back against what is computed, or
/// gathered, again. The price of each is in [`Lowered::memory`](crate::Lowered::memory) and in [`Lowered::plan`](crate::Lowered::plan), whose rows say what is
/// recomputed.
///
/// # Errors
/// A name that no value in `f` has.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::{Keep, checkpoint_with};
/// let layer = |x: Array| {
///     let h = x.sin().named("h");
///     h.exp()
/// };
/// let g = |keep: Keep| grad(Array::from(0.5f32), |x| checkpoint_with(x, keep.clone(), layer));
/// let all = g(Keep::All);
/// for keep in [Keep::Nothing, Keep::AllButGathers, Keep::named(["h"])] {
///     assert_eq!(g(keep).item::<f32>()?, all.item::<f32>()?);
/// }
/// assert!(g(Keep::named(["k"])).ty().is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("remat"))]
#[track_caller]
pub fn checkpoint_with<A: Args, R: Output>(at: A, keep: Keep, f: impl Fn(A::Owned) -> R) -> R::Tree {
    kept(at.into_tree(), keep, &|x| f(x).into_result(), Call::here("checkpoint_with"))
}

fn kept<A: Tree, R: Tree>(at: A, keep: Keep, f: &dyn Fn(A) -> Result<R>, call: Call<'_>) -> R {
    let returned = Returned::new();
    let run = || -> Result<R> {
        no_error(&at)?;
        let leaves = collect(&at);
        let types: Vec<ArrayType> = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
        let piece = Piece::record(&types, |xs| returned.note(f(tree_of(&at, xs))))?;
        known(&keep, &piece.program, call)?;
        let types = piece.program.output_types();
        let inputs: Vec<Array> = leaves.into_iter().chain(piece.captures).collect();
        let control = Control::Jit { body: Arc::new(piece.program), keep: keep.clone() };
        Ok(tree_of(&piece.out, crate::trace::apply_control(control, &inputs, types, call)?))
    };
    run().unwrap_or_else(|e| returned.failed(&e))
}

/// Refuses to keep what nothing is named.
fn known(keep: &Keep, program: &Program, call: Call<'_>) -> Result<()> {
    fn names(program: &Program, all: &mut Vec<String>) {
        for e in &program.equations {
            all.extend(e.name.iter().map(|n| n.to_string()));
            if let Op::Control(c) = &e.op {
                c.bodies().into_iter().for_each(|b| names(b, all));
            }
        }
    }
    let Keep::Named(wanted) = keep else { return Ok(()) };
    let mut all = Vec::new();
    names(program, &mut all);
    sorted::sort(&mut all);
    all.dedup();
    let Some(none) = wanted.iter().find(|n| !all.contains(n)) else { return Ok(()) };
    let message = format!("values named {none:?} are to be kept, but the function names none so");
    let help = match all.is_empty() {
        true => format!("name one where it is made: `.named({none:?})`"),
        false => format!("its names are {}", all.join(", ")),
    };
    Err(call.error(Fault::new(ErrorKind::Trace, message).help(help), Vec::new))
}
