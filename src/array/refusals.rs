//! Refusals of operands' shardings, with what mends them.

use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::Axes;
use crate::types::ArrayType;

/// The refusal of dimensions of two operands (number, type, dimension) that must match, but are sharded differently.
pub(super) fn split_alike(a: (usize, &ArrayType, usize), b: (usize, &ArrayType, usize)) -> Fault {
    let name = |(k, ty, d): (usize, &ArrayType, usize)| {
        let axes = Axes::from(ty.spec.dim(d));
        let at = if axes.is_empty() { String::new() } else { format!("@{axes}") };
        format!("dimension {d} of operand {k}, {}{at},", ty.shape[d])
    };
    let message = format!("{} and {} must be sharded the same way", name(a), name(b));
    let mut fault = Fault::new(ErrorKind::Sharding, message).dim(a.0, a.2).dim(b.0, b.2);
    for ((k, x, d), (_, y, e)) in [(a, b), (b, a)] {
        let axes = Axes::from(y.spec.dim(e));
        let ways = y.mesh.as_ref().map_or(1, |m| axes.iter().map(|a| m.extent(a)).product());
        if x.shape[d].is_multiple_of(ways) {
            fault = fault.help(format!(
                "reshard operand {k}: `.reshard({})`",
                x.spec.padded(x.rank()).with_dim(d, &axes)
            ));
        }
    }
    fault
}

/// The refusal of an operation along a dimension that is split: `why` of its axes.
pub(super) fn is_split(ty: &ArrayType, d: usize, why: &str) -> Fault {
    let axes = Axes::from(ty.spec.dim(d));
    let whole = ty.spec.padded(ty.rank()).with_dim(d, &Axes::none());
    Fault::new(ErrorKind::Sharding, format!("dimension {d} is sharded over {axes}{why}"))
        .help(format!("gather it first: `.reshard({whole})`"))
        .dim(0, d)
}

/// The refusal of a leading dimension of size 1 that is split (over axes of size 1) beside another size.
pub(super) fn split_one(k: usize, ty: &ArrayType, d: usize) -> Fault {
    let (axes, whole) = (Axes::from(ty.spec.dim(d)), ty.spec.padded(ty.rank()).with_dim(d, &Axes::none()));
    let message = format!(
        "dimension {d} of operand {k} has size 1 and is sharded over {axes}: only an unsharded one can be repeated"
    );
    Fault::new(ErrorKind::Sharding, message)
        .dim(k, d)
        .help(format!("reshard operand {k}: `.reshard({whole})`"))
}
