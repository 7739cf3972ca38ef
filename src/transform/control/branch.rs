//! Branches.

use super::carry::branches;
use super::{Piece, Returned, share_captures, tree_of};
use crate::array::{Array, Operand, Term};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Axes;
use crate::program::{Call, Collective, Control, Op, Program};
use crate::trace::apply_control;
use crate::tree::{Args, Output, Path, Tree, mismatch};
use crate::types::{ArrayType, DType, Scalar};
use std::sync::Arc;

/// `then()` where `pred` holds, else `other()`. What the branches read they capture.
///
/// Both are traced and must return equal types; only one runs.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 4.0]);
/// let y = cond(x.sum(..).gt(3.0), || x.sqrt(), || x.clone());
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn cond<R: Output>(pred: impl Operand, then: impl Fn() -> R, other: impl Fn() -> R) -> R::Tree {
    choose(
        Chooser::Cond,
        Call::here("cond"),
        predicate(pred),
        &[&|| then().into_result(), &|| other().into_result()],
    )
}

/// What decides, as an array.
pub(super) fn predicate(pred: impl Operand) -> Array {
    match pred.term() {
        Term::Array(a) => a,
        Term::Number(Scalar::Bool(b)) => b.into_tree(),
        Term::Number(x) => (x.to_f64() != 0.0).into_tree(),
    }
}

/// Branch `index`, counted from 0; beyond the ends the first or the last one.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([0.0f32]);
/// let y = switch(1, &[&|| x.sin(), &|| x.cos(), &|| x.clone()]);
/// assert_eq!(y.to_vec::<f32>()?, [1.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn switch<R: Output>(index: impl Operand, branches: &[&dyn Fn() -> R]) -> R::Tree {
    let which = match index.term() {
        Term::Array(a) => a,
        Term::Number(x) => (x.to_i128().clamp(0, i32::MAX.into()) as i32).into_tree(),
    };
    let results: Vec<_> = branches.iter().map(|b| move || b().into_result()).collect();
    let results: Vec<&dyn Fn() -> Result<R::Tree>> = results.iter().map(|b| b as &dyn Fn() -> _).collect();
    choose(Chooser::Switch, Call::here("switch"), which, &results)
}

/// What chooses among branches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chooser {
    /// A bool: what it holds for comes first.
    Cond,
    /// A number.
    Switch,
    /// A bool: whether a device goes on in a loop that others leave; the body comes first, then what keeps the carry.
    Loop,
}

impl Chooser {
    /// The element type of what says which.
    fn dtype(self) -> DType {
        match self {
            Chooser::Cond | Chooser::Loop => DType::Bool,
            Chooser::Switch => DType::I32,
        }
    }
    /// The branch of this number, as it is told of.
    pub(super) fn branch(self, n: usize) -> String {
        match (self, n) {
            (Chooser::Cond, 0) => "where it holds".into(),
            (Chooser::Cond, _) => "where it does not".into(),
            (Chooser::Loop, 0) => "after the body".into(),
            (Chooser::Loop, _) => "before it".into(),
            (Chooser::Switch, _) => format!("of branch {n}"),
        }
    }
}

pub(super) fn choose<T: Tree>(
    chooser: Chooser,
    call: Call<'_>,
    which: Array,
    bodies: &[&dyn Fn() -> Result<T>],
) -> T {
    // all branches are traced, so that each one's errors are found
    let returned = Returned::new();
    let mut pieces = Vec::new();
    let mut errors = Vec::new();
    if let Err(e) = which.type_ref() {
        errors.push(e.clone());
    }
    for body in bodies {
        match Piece::record(&[], |_| returned.note(body())) {
            Ok(piece) => pieces.push(piece),
            Err(e) => errors.push(e),
        }
    }
    let out = if errors.is_empty() { run(chooser, call, which, pieces) } else { Err(Error::all(errors)) };
    out.unwrap_or_else(|e| returned.failed(&e))
}

fn run<T: Tree>(chooser: Chooser, call: Call<'_>, which: Array, mut pieces: Vec<Piece<T>>) -> Result<T> {
    let refuse = |kind, message: String, help: &str| {
        let fault = Fault::new(kind, message).help(help);
        let ty = which.ty()?;
        Err(call.error(fault, || vec![ty.to_string()]))
    };
    let ty = which.ty()?;
    let wanted = chooser.dtype();
    if ty.rank() != 0 {
        let help = "reduce it to one: `.all(..)`, `.any(..)`; or choose each element: `pred.select(a, b)`";
        return refuse(
            ErrorKind::Shape,
            format!("what chooses the branch is {ty}: it must be one {wanted}"),
            help,
        );
    }
    if ty.dtype != wanted {
        let help = match chooser {
            Chooser::Cond | Chooser::Loop => "compare it: `.gt(0)`, `.ne(0)`",
            Chooser::Switch => "convert it: `.astype(I32)`",
        };
        return refuse(
            ErrorKind::Dtype,
            format!("what chooses the branch is {ty}: it must be {wanted}[]"),
            help,
        );
    }
    let parts = ty.spec.unreduced_axes();
    if !parts.is_empty() {
        let message =
            format!("what chooses the branch is {ty}, unreduced over {parts}: only the sum can choose");
        let whole = ty.spec.unreduced(Axes::none());
        let fault =
            Fault::new(ErrorKind::Sharding, message).help(format!("sum it first: `.reshard({whole})`"));
        return Err(call.error(fault, || vec![ty.to_string()]));
    }
    let Some(first) = pieces.first() else {
        return refuse(ErrorKind::Shape, "there is no branch to choose".into(), "give at least one branch");
    };
    for piece in &pieces[1..] {
        if let Some(how) = first.out.differs(&piece.out, &mut Path::named()) {
            return Err(mismatch("the results of the branches", &how, call));
        }
    }
    // devices that take different branches would wait for one another
    if let Some((name, axes)) = pieces.iter().find_map(|p| meeting(&p.program, &ty.varying)) {
        let fault = match chooser {
            Chooser::Loop => {
                let message = format!(
                    "devices along {axes} may leave the loop at different steps, and it has {name} over {axes}"
                );
                Fault::new(ErrorKind::Vma, message)
                    .help(format!("go on while any device does: `.pmax({})`", axes.quoted()))
            }
            Chooser::Cond | Chooser::Switch => {
                let message = format!(
                    "devices along {axes} may take different branches, and one of them has {name} over {axes}"
                );
                Fault::new(ErrorKind::Vma, message)
                    .help(format!("do the {name} before the branches"))
                    .help("or choose by a value that is the same on all of these devices")
            }
        };
        return Err(call.error(fault, || vec![ty.to_string()]));
    }
    let bodies: Vec<&Program> = pieces.iter().map(|p| &p.program).collect();
    let types = branches(chooser, call, &first.out, &bodies)?;
    // where devices choose differently, what they get differs
    let types: Vec<ArrayType> = types.into_iter().map(|t| varying_with(t, &ty)).collect();
    let mut programs: Vec<_> =
        pieces.iter_mut().map(|p| (&mut p.program, std::mem::take(&mut p.captures))).collect();
    let captures = share_captures(&mut programs);
    let branches = pieces.iter_mut().map(|p| Arc::new(std::mem::take(&mut p.program))).collect();
    let inputs: Vec<Array> = std::iter::once(which).chain(captures).collect();
    let results = apply_control(Control::Cond { branches }, &inputs, types, call)?;
    Ok(tree_of(&pieces[0].out, results))
}

/// A collective of the program among devices along some of these axes.
fn meeting(program: &Program, axes: &Axes) -> Option<(&'static str, Axes)> {
    if axes.is_empty() {
        return None;
    }
    program.equations.iter().find_map(|e| match &e.op {
        Op::Prim(prim) => {
            let collective = prim.collective().filter(Collective::communicates)?;
            let common: Axes = collective.axes().iter().copied().filter(|a| axes.contains(*a)).collect();
            (!common.is_empty()).then(|| (prim.name(), common))
        }
        Op::Control(control) => control.bodies().into_iter().find_map(|body| meeting(body, axes)),
    })
}

/// The type of a result that varies also over the axes over which the choice does.
fn varying_with(mut ty: ArrayType, which: &ArrayType) -> ArrayType {
    if which.varying.iter().all(|a| ty.varying.contains(a)) {
        return ty;
    }
    let mesh = ty.mesh.get_or_insert_with(|| which.mesh.clone().expect("what varies is on a mesh"));
    ty.varying = mesh.in_order(ty.varying.iter().chain(&which.varying));
    ty
}
