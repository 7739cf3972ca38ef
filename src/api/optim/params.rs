//! The leaves of parameters, gradients and states, checked before a step.

use super::state::{LeafSlot, quoted};
use crate::api::array::{Array, default_dtype};
use crate::api::tree::{Args, Path, Tree};
use crate::core::{ArrayType, Error, Fault, Mesh, Result, Scalar, Spec};
use crate::ir::program::CallSite;

/// The help of errors about states that do not fit.
pub(super) const STATE_HELP: &str =
    "make a state for these parameters and this optimizer: `opt.init(&params)?`";

/// A parameter, before a step.
pub(super) struct TrainedParam {
    pub(super) path: String,
    pub(super) ty: ArrayType,
    pub(super) value: Array,
}

/// Returns the leaves of the parameters, or an error that names each one that is not a float.
pub(super) fn collect_params<P: Tree>(params: &P, call: CallSite<'_>) -> Result<Vec<TrainedParam>> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    params.visit(&mut Path::named(), &mut |path, a| match a.ty() {
        Ok(ty) if ty.dtype.is_float() => {
            all.push(TrainedParam { path: path.to_string(), ty, value: a.clone() })
        }
        Ok(ty) => {
            let path = quoted(&path.to_string());
            let fault = fault!(Dtype, "{path} is {ty}, and an optimizer updates floats")
                .help("keep it in another tree: the parameters are the arrays that are trained");
            errors.push(call.error(fault, || vec![ty.to_string()]));
        }
        Err(e) => errors.push(e),
    });
    if errors.is_empty() { Ok(all) } else { Err(Error::combine(errors)) }
}

/// Returns the gradients, which have the paths and shapes of the parameters.
pub(super) fn collect_gradients<G: Tree>(
    params: &[TrainedParam],
    grads: &G,
    call: CallSite<'_>,
) -> Result<Vec<Array>> {
    let mut all = Vec::new();
    grads.visit(&mut Path::named(), &mut |path, g| all.push((path.to_string(), g.clone())));
    let mut errors: Vec<Error> = all.iter().filter_map(|(_, g)| g.ty().err()).collect();
    for i in 0..params.len().max(all.len()) {
        let fault = match (params.get(i), all.get(i)) {
            (Some(p), Some((path, g))) if p.path == *path => {
                let Ok(ty) = g.ty() else { continue };
                if ty.shape == p.ty.shape && ty.dtype.is_float() {
                    continue;
                }
                let kind = if ty.shape == p.ty.shape { "Dtype" } else { "Shape" };
                let message =
                    format!("the gradient of {} is {ty}, but the parameter is {}", quoted(path), p.ty);
                match kind {
                    "Dtype" => fault!(Dtype, "{message}").help("gradients are floats: `.astype(F32)`"),
                    _ => fault!(Shape, "{message}").help("pass the gradients of these parameters"),
                }
            }
            (Some(TrainedParam { path, .. }), _) | (None, Some((path, _))) => {
                errors.push(
                    call.error(
                        fault!(
                            Tree,
                            "the parameters and the gradients differ in structure at {}",
                            quoted(path)
                        )
                        .help("pass the gradients of these parameters: `grad(&params, |p| ..)`"),
                        Vec::new,
                    ),
                );
                break;
            }
            (None, None) => break,
        };
        errors.push(call.error(fault, Vec::new));
    }
    if errors.is_empty() { Ok(all.into_iter().map(|g| g.1).collect()) } else { Err(Error::combine(errors)) }
}

/// Returns the array of a slot, if it is that of this parameter.
pub(super) fn check_slot<'a>(
    found: Option<&'a Array>,
    slot: &LeafSlot,
    p: &TrainedParam,
) -> Result<&'a Array, Fault> {
    let (name, path) = (&slot.name, quoted(&p.path));
    let Some(array) = found else {
        return Err(fault!(
            Tree,
            "the state has no `{name}` of {path}: it is that of another model or optimizer"
        )
        .help(STATE_HELP));
    };
    let Ok(ty) = array.type_ref() else { return Ok(array) };
    let dtype = slot.stored_dtype(&p.ty);
    if ty.shape[..] != slot.shape(&p.ty) || ty.dtype != dtype {
        let wanted = dtype.array_type(slot.shape(&p.ty));
        let message = format!("the `{name}` of {path} is {ty} in the state, but must be {wanted}");
        return Err(fault!(Tree, "{message}").help(STATE_HELP));
    }
    Ok(array)
}

/// Makes a scalar of a state, replicated on the mesh, or its type only.
pub(super) fn new_scalar(x: Scalar, mesh: Option<&Mesh>, type_only: bool) -> Array {
    let ty = default_dtype(x).array_type([]);
    match mesh {
        Some(mesh) if type_only => ty.on(mesh, Spec::replicated(0)).into_tree(),
        None if type_only => ty.into_tree(),
        Some(mesh) => Array::full(ty, x).put(mesh, Spec::replicated(0)),
        None => Array::full(ty, x),
    }
}

/// Adds updates to the parameters. Each parameter keeps its element type and sharding.
///
/// ```
/// use atmesh::prelude::*;
/// let w = atmesh::optim::apply_updates(&Array::ones([2]).astype(BF16), &Array::ones([2]));
/// assert_eq!(type_of(&w), "bfloat16[2]");
/// ```
#[track_caller]
pub fn apply_updates<P: Tree>(params: &P, updates: &P) -> P {
    crate::api::tree::map2(params, updates, |p, u| {
        let (Ok(ty), Ok(by)) = (p.type_ref(), u.type_ref()) else { return p + u };
        if by.dtype == ty.dtype { p + u } else { (p.astype(by.dtype) + u).astype(ty.dtype) }
    })
}
