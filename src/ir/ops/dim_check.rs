//! Helpers for primitives: checks of parameters, loop nests of views, and formatting.

use crate::core::{ArrayType, Axes, AxisType, ErrorKind, Fault, Result, Scalar, Spec};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Builder, LoopNest, Prim, ScalarCode, Source, StridedRange, TypedOperand,
    Value,
};

/// Returns the types of the operands, or an error if there are not `n` of them.
pub(crate) fn arity<'a>(
    name: &str,
    operands: &'a [TypedOperand],
    n: usize,
) -> Result<Vec<&'a ArrayType>, Fault> {
    if operands.len() != n {
        return Err(fault!(Shape, "{name} takes {n} operands, but got {}", operands.len()));
    }
    Ok(operands.iter().map(|o| &o.ty).collect())
}

/// Returns an error of kind `Shape`.
pub(crate) fn shape_fault(message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Shape, message)
}

/// Returns an error if a dimension is not below the rank, or is listed twice.
pub(crate) fn check_dims(what: &str, dims: &[usize], rank: usize) -> Result<(), Fault> {
    for (i, d) in dims.iter().enumerate() {
        if *d >= rank {
            let fault = fault!(Shape, "there is no {what} {d} among {rank} dimensions");
            return Err(match rank {
                0 => fault.help("a scalar has no dimensions"),
                _ => fault.help(format!("dimensions are 0 to {}", rank - 1)),
            });
        }
        if dims[..i].contains(d) {
            return Err(fault!(Shape, "{what} {d} is named twice").help("name each dimension once"));
        }
    }
    Ok(())
}

/// Returns a loop nest that copies pieces of operands; elements in no piece are `fill`.
pub(crate) fn view(result: &ArrayType, pieces: Vec<AccessPiece>, fill: Scalar) -> Vec<LoopNest> {
    let dtype = result.dtype.storage();
    let access = Access { dtype, pieces, fill };
    vec![LoopNest::map(result.shape.to_vec(), dtype, vec![access], ScalarCode::copy(dtype))]
}

/// Returns the loop nest of a view in which operand dimension `d` has the loop `loops[d]`.
///
/// `None` stands for a dimension of size 1 that is read again at every iteration.
pub(crate) fn plain_view(result: &ArrayType, loops: &[Option<usize>]) -> Vec<LoopNest> {
    let read = Access::from_loops(0, result.dtype.storage(), &result.shape, loops);
    view(result, read.pieces, read.fill)
}

/// Returns a piece that reads `operand` at the positions `map` for the indices in `span`.
pub(crate) fn access_piece(operand: usize, ranges: Vec<StridedRange>, map: Vec<AffineExpr>) -> AccessPiece {
    AccessPiece { source: Source::Value(operand), ranges, map }
}

/// Formats sizes as a parameter: `[4,2]`.
pub(crate) fn format_list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(","))
}

/// Formats a requested sharding as a parameter: `, out=p![…]`.
pub(crate) fn format_out_sharding(out: Option<Spec>) -> String {
    out.map_or_else(String::new, |spec| format!(", out={spec}"))
}

impl Builder {
    /// Emits a primitive with one result, which has exactly the sharding `want`.
    ///
    /// `make` returns the primitive for an optional requested sharding. The sharding is requested
    /// only if type inference would give another one over explicit axes. If an unreduced result
    /// cannot be requested, the value is computed without unreduced axes and then resharded.
    pub(crate) fn emit_with_sharding(
        &mut self,
        make: &dyn Fn(Option<Spec>) -> Prim,
        inputs: &[Value],
        want: Spec,
    ) -> Result<Value> {
        let free = make(None);
        let Some(mesh) = inputs.iter().find_map(|v| v.ty.mesh.clone()) else {
            return self.emit1(free, inputs);
        };
        let operands: Vec<_> =
            inputs.iter().map(|v| TypedOperand::new(v.ty.clone(), v.is_literal())).collect();
        let explicit = |s: Spec| s.filter_axes(|a| mesh.axis_type(a) == Some(AxisType::Explicit));
        let comes = free.types(&operands).ok().map(|types| explicit(types[0].spec));
        let want = explicit(want);
        let prim = |want: Spec| if comes == Some(want) { free.clone() } else { make(Some(want)) };
        let asked = prim(want);
        if !want.unreduced_axes().is_empty() && asked.types(&operands).is_err() {
            let reduced = self.emit1(prim(want.unreduced(Axes::none())), inputs)?;
            return self.reshard(&reduced, &mesh, want);
        }
        self.emit1(asked, inputs)
    }
}
