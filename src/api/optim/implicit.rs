//! Derivatives of solutions by the implicit function theorem.

use super::cgls::{LinearMap, default_products};
use super::solution::{Leaves, scalar_dtype};
use crate::api::array::Array;
use crate::api::transform::{custom_vjp, jvp, vjp};
use crate::core::Result;

/// A solution, and the scalars that describe the search.
pub(super) type Solved = (Leaves, Leaves);

/// Solves an equation whose arguments have derivatives.
///
/// `residuals` are zero at the solution: `f(x, args)`. With the Jacobians `A` by `x` and `B` by the
/// arguments, the derivative of the solution by the arguments is `-A⁻¹ B`. The cotangent of the
/// arguments is `-Bᵀ u`, where `Aᵀ u` is that of the solution: one linear problem, whose products
/// are `jvp` and `vjp` of `residuals`.
///
/// Without arguments the equation is solved as it is.
pub(super) fn implicit(
    start: Leaves,
    args: &Leaves,
    solve: &dyn Fn(Leaves, Leaves) -> Result<Solved>,
    residuals: &dyn Fn(Leaves, Leaves) -> Result<Leaves>,
) -> Result<Solved> {
    if args.is_empty() {
        return solve(start, Leaves::new());
    }
    // the solution does not depend on the starting point
    let start: Leaves = start.iter().map(Array::stop_gradient).collect();
    let forward = |args: Leaves| -> Result<(Solved, (Leaves, Leaves))> {
        let solved = solve(start.clone(), args.clone())?;
        let point = solved.0.clone();
        Ok((solved, (point, args)))
    };
    let backward = |(x, args): (Leaves, Leaves), (cotangent, _): Solved| -> Result<Leaves> {
        let at = |x| residuals(x, args.clone());
        let (_, pull) = vjp(&x, at);
        let dtype = scalar_dtype(&x);
        let map = LinearMap {
            apply: &|u| pull.call(u),
            transpose: &|v| jvp(&x, v, at).1,
            dtype,
            max_products: default_products(&x),
        };
        let none = Array::zeros(dtype.array_type([]));
        let u = map.solve(&cotangent, &none);
        let u: Leaves = u.iter().map(|u| -u).collect();
        argument_cotangents(&x, &args, &u, residuals)
    };
    Ok(custom_vjp(args, forward, backward))
}

/// Returns the products of a cotangent with the Jacobian by the arguments; zeros for arguments that
/// are not floats.
fn argument_cotangents(
    x: &Leaves,
    args: &Leaves,
    u: &Leaves,
    residuals: &dyn Fn(Leaves, Leaves) -> Result<Leaves>,
) -> Result<Leaves> {
    let is_float: Vec<bool> = args.iter().map(|a| a.type_ref().is_ok_and(|ty| ty.dtype.is_float())).collect();
    let floats: Leaves = args.iter().zip(&is_float).filter(|a| *a.1).map(|a| a.0.clone()).collect();
    let with = |floats: Leaves| -> Leaves {
        let mut floats = floats.into_iter();
        let each = |(a, is_float): (&Array, &bool)| if *is_float { floats.next() } else { Some(a.clone()) };
        args.iter().zip(&is_float).filter_map(each).collect()
    };
    let (_, pull) = vjp(&floats, |floats| residuals(x.clone(), with(floats)));
    let mut found = pull.call(u).into_iter();
    let each = |(a, is_float): (&Array, &bool)| if *is_float { found.next() } else { Some(a.zeros_like()) };
    Ok(args.iter().zip(&is_float).filter_map(each).collect())
}
