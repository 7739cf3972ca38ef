//! Errors about operand shardings, with suggestions on how to reshard.
//!
//! Methods that check shardings before they apply a primitive return these errors.

use crate::core::{ArrayType, Axes, AxisType, ErrorKind, Fault, Spec};

/// Returns the error for two dimensions that must be sharded the same way, but are not.
///
/// `a` and `b` are each an operand index, the operand's type, and a dimension.
pub(super) fn sharding_mismatch(a: (usize, &ArrayType, usize), b: (usize, &ArrayType, usize)) -> Fault {
    let name = |(k, ty, d): (usize, &ArrayType, usize)| {
        let axes = Axes::from(ty.spec.dim(d));
        let at = if axes.is_empty() { String::new() } else { format!("@{axes}") };
        format!("dimension {d} of operand {k}, {}{at},", ty.shape[d])
    };
    let message = format!("{} and {} must be sharded the same way", name(a), name(b));
    let mut fault = Fault::new(ErrorKind::Sharding, message).highlight_dim(a.0, a.2).highlight_dim(b.0, b.2);
    for ((k, x, d), (_, y, e)) in [(a, b), (b, a)] {
        let axes = Axes::from(y.spec.dim(e));
        let num_shards = y.mesh.as_ref().map_or(1, |m| axes.iter().map(|a| m.extent(a)).product());
        if x.shape[d].is_multiple_of(num_shards) {
            fault = fault.help(format!(
                "reshard operand {k}: `.reshard({})`",
                x.spec.padded(x.rank()).with_dim(d, &axes)
            ));
        }
    }
    fault
}

/// Returns the error for an operation along a sharded dimension; `why` completes the message.
pub(super) fn sharded_dim(ty: &ArrayType, d: usize, why: &str) -> Fault {
    let axes = Axes::from(ty.spec.dim(d));
    let unsharded = ty.spec.padded(ty.rank()).with_dim(d, &Axes::none());
    fault!(Sharding, "dimension {d} is sharded over {axes}{why}")
        .help(format!("gather it first: `.reshard({unsharded})`"))
        .highlight_dim(0, d)
}

/// Returns the error for an operation that needs dimension `d` unsharded.
///
/// `None` unless explicit axes shard it.
///
/// The first help computes the operation on auto axes, where the partitioner need not gather the
/// dimension. `island` returns the call, such as `sort(0)`, and the specs of its results there, for
/// the operand's spec.
pub(super) fn needs_unsharded_dim(
    ty: &ArrayType,
    d: usize,
    island: impl FnOnce(Spec) -> (String, String),
) -> Option<Fault> {
    let mesh = ty.mesh.as_ref()?;
    let spec = ty.spec.padded(ty.rank());
    let axes = Axes::from(spec.dim(d));
    let explicit = !axes.is_empty() && axes.iter().all(|a| mesh.axis_type(a) == Some(AxisType::Explicit));
    let plain = spec.unreduced_axes().is_empty() && spec.reduced_axes().is_empty() && ty.varying.is_empty();
    if !explicit || !plain {
        return None;
    }
    let message = format!("dimension {d} of the operand, {}@{axes}, must be unsharded here", ty.shape[d]);
    let (code, out) = island(spec);
    let unsharded = spec.with_dim(d, &Axes::none());
    let fault = Fault::new(ErrorKind::Sharding, message)
        .help(format!("compute it on auto axes: `auto_axes(&x, {out}, |x| x.{code})`"))
        .help(format!("or reshard it first: `.reshard({unsharded})`"))
        .highlight_dim(0, d);
    Some(fault)
}

/// Returns the error for a dimension of size 1 that cannot be broadcast because it is sharded.
pub(super) fn sharded_unit_dim(k: usize, ty: &ArrayType, d: usize) -> Fault {
    let (axes, unsharded) =
        (Axes::from(ty.spec.dim(d)), ty.spec.padded(ty.rank()).with_dim(d, &Axes::none()));
    fault!(Sharding, "dimension {d} of operand {k} has size 1 and is sharded over {axes}: only an unsharded one can be repeated")
        .highlight_dim(k, d)
        .help(format!("reshard operand {k}: `.reshard({unsharded})`"))
}
