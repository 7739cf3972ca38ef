//! `linearize`: the derivative of a function at a point, as a linear function.

use super::control::{ReturnedTree, poisoned_tree, tree_of};
use super::derivative::{AllowedCast, check_types, record};
use crate::api::array::Array;
use crate::api::trace::{build, in_call, poison};
use crate::api::tree::{Args, CallArgs, Output, Path, Tree, collect, mismatch};
use crate::core::{ArrayType, Error, Result};
use crate::ir::grad::linearize_program;
use crate::ir::program::{CallSite, Program, Value};
use std::fmt;

/// Returns the value of `f` at a point, and its derivative there as a linear function.
///
/// The derivative maps a tangent of the point to the tangent of the result, as [`jvp`](crate::jvp)
/// does. Values that do not depend on the tangent are computed once, here.
///
/// ```
/// use atmesh::{linearize, prelude::*};
/// let x = Array::from([1.0f32, 2.0]);
/// let (y, push) = linearize(&x, |x| x.square());
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(push.call(Array::from([1.0f32, 0.0])).to_vec::<f32>()?, [2.0, 0.0]);
/// assert_eq!(push.call(&x).to_vec::<f32>()?, [2.0, 8.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn linearize<A: Args, R: Output>(
    point: A,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, Pushforward<A::Owned, R::Tree>) {
    let (call, at) = (CallSite::here("linearize"), point.into_tree());
    let returned = ReturnedTree::new();
    let f = |x| returned.remember(f(x).into_result());
    run(&at, &f, call).unwrap_or_else(|e| {
        let (out, at) = (returned.poisoned(&e), poisoned_tree(&at, &e));
        (returned.poisoned(&e), Pushforward { state: Err(e), point: at, result: out })
    })
}

/// The derivative of a function at a point, made by [`linearize`]. It maps a tangent of the point
/// to the tangent of the result, and may be called many times.
///
/// ```
/// use atmesh::{linearize, prelude::*};
/// let x = Array::from([1.0f32, 2.0, 3.0]);
/// let (_, push) = linearize(&x, |x| x.prod(..));
/// // the slope along each element; the products are computed once
/// let slope = |k: i32| push.call(Array::zeros([3]).at(ix![k]).set(1.0)).item::<f32>();
/// assert_eq!([slope(0)?, slope(1)?, slope(2)?], [6.0, 3.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[must_use = "it does nothing until it is called"]
pub struct Pushforward<A, R> {
    state: Result<LinearProgram>,
    /// The point. Tangents must have its tree and types.
    point: A,
    /// The result of the function.
    result: R,
}

/// Prints the types of the point.
impl<A: Tree, R> fmt::Debug for Pushforward<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<String> = collect(&self.point)
            .iter()
            .map(|a| a.ty().map_or_else(|_| "an error".into(), |t| t.to_string()))
            .collect();
        write!(f, "Pushforward(of {})", types.join(", "))
    }
}

struct LinearProgram {
    /// The program from residuals and tangents of the point to tangents of the results that have
    /// one.
    program: Program,
    /// The values that were computed at the point, which are inputs of the program.
    residuals: Vec<Array>,
    /// For each leaf of the result, true if it has a tangent.
    tangents: Vec<bool>,
}

fn run<A: Tree, R: Tree>(
    at: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> Result<(R, Pushforward<A, R>)> {
    let (program, inputs, out) = record(at, f, call)?;
    let n = collect(at).len();
    let active: Vec<bool> = (0..inputs.len()).map(|k| k < n).collect();
    let linear = linearize_program(&program, &active).map_err(|e| call.locate(e))?;
    let mut values = build(&inputs, call, |b, values| Ok(b.inline(&linear.forward, values)))?;
    let residuals = values.split_off(program.outputs.len());
    let out = tree_of(&out, values);
    let state = LinearProgram { program: linear.linear, residuals, tangents: linear.tangents };
    let (point, result) = (tree_of(at, collect(at)), tree_of(&out, collect(&out)));
    Ok((out, Pushforward { state: Ok(state), point, result }))
}

impl<A: Tree, R: Tree> Pushforward<A, R> {
    /// Returns the tangent of the result for a tangent of the point, a tree like the point.
    ///
    /// ```
    /// use atmesh::{linearize, prelude::*};
    /// let (w, x) = (Array::from(3.0f32), Array::from(2.0f32));
    /// let (y, push) = linearize((&w, &x), |(w, x)| w * x);
    /// assert_eq!(y.item::<f32>()?, 6.0);
    /// // x dw + w dx
    /// let tangent = (Array::from(1.0f32), Array::from(10.0f32));
    /// assert_eq!(push.call(tangent).item::<f32>()?, 32.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn call(&self, tangent: impl CallArgs<A>) -> R {
        let call = CallSite::here("linearize");
        match self.push(&tangent.into_tree(), call) {
            Ok(all) => in_call(call.location, || tree_of(&self.result, all)),
            Err(e) => {
                let _ = poison(e.clone());
                poisoned_tree(&self.result, &e)
            }
        }
    }
    fn push(&self, tangent: &A, call: CallSite<'_>) -> Result<Vec<Array>> {
        let linear = self.state.as_ref().map_err(Error::clone)?;
        if let Some(how) = self.point.differs(tangent, &mut Path::named()) {
            return Err(mismatch("the point and its tangent", &how, call));
        }
        let expected: Vec<ArrayType> = collect(&self.point).iter().map(Array::ty).collect::<Result<_>>()?;
        check_types("tangent", tangent, &expected, AllowedCast::Varying, call)?;
        let types: Vec<ArrayType> = collect(&self.result).iter().map(Array::ty).collect::<Result<_>>()?;
        let count = linear.residuals.len();
        let inputs: Vec<Array> = linear.residuals.iter().cloned().chain(collect(tangent)).collect();
        build(&inputs, call, |b, values| {
            let mut ins = values[..count].to_vec();
            for (t, ty) in values[count..].iter().zip(&expected) {
                ins.push(b.fit_to_type(t, ty)?);
            }
            let mut made = b.inline(&linear.program, &ins).into_iter();
            let made = linear.tangents.iter().map(|has| if *has { made.next() } else { None });
            let made: Vec<Option<Value>> = made.collect();
            made.into_iter().zip(&types).map(|(t, ty)| t.map_or_else(|| b.zeros(ty), Ok)).collect()
        })
    }
}
