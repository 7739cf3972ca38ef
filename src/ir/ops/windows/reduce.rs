//! Reductions over windows, and the primitives that their derivatives use.
//!
//! [`WindowExtreme`] finds the step of a window at which it has its minimum or maximum, and
//! [`WindowPick`] reads the element at such a step.

use super::{Window, needs_step_loop, transposed_window, windowed_access};
use crate::core::{ArrayType, DType, ErrorKind, Fault, Result, Scalar, Shape, Spec};
use crate::ir::ops::dim_check::{arity, format_list, format_out_sharding};
use crate::ir::ops::structural::{no_derivative, out_sharding_rules};
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, BatchedOp, Compute, Dim, Factors, JvpArgs, Linearity, LoopNest, Prim,
    Primitive, Reducer, ScalarArg, ScalarCode, ScalarOp, Source, StridedRange, Tangents, TransposeArgs,
    TypedOperand, VmapArgs, with_inserted,
};
use crate::ir::{ops::elementwise::DTypeClass, ops::reduce::Reduction};
use std::sync::Arc;

/// Windows over all dimensions of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    /// The number of steps of a window along each dimension.
    pub sizes: Vec<usize>,
    /// The window parameters for each dimension.
    pub dims: Vec<Window>,
}

impl Windows {
    /// Adds a first dimension with windows of size 1.
    fn with_batch_dim(&self) -> Windows {
        Windows {
            sizes: with_inserted(&self.sizes, 0, 1),
            dims: with_inserted(&self.dims, 0, Window::default()),
        }
    }
    /// Returns the windows of the transposed access: those that contain each element.
    ///
    /// `from` is the shape of the array and `to` that of the windows. The steps of the result are
    /// reversed.
    fn transposed(&self, from: &Shape, to: &Shape) -> Windows {
        let each = self.dims.iter().zip(&self.sizes).zip(from.iter().zip(to.iter()));
        let windows = each.map(|((w, taps), (n, m))| transposed_window(w, *n, *m, *taps)).collect();
        Windows { sizes: self.sizes.clone(), dims: windows }
    }
    /// Returns the shape of the result, or an error if the windows do not fit the array.
    fn result_shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        for (what, n) in [("sizes", self.sizes.len()), ("windows", self.dims.len())] {
            if n != x.rank() {
                return Err(fault!(Shape, "there are {n} {what} of windows for {} dimensions", x.rank())
                    .help("give one for each dimension: 1 where a window is one element"));
            }
        }
        if let Some(d) = self.sizes.iter().position(|n| *n == 0) {
            return Err(fault!(Shape, "a window has size 0 along dimension {d}")
                .help("windows have 1 element and more")
                .highlight_dim(0, d));
        }
        let each = self.dims.iter().zip(&self.sizes).zip(x.shape.iter()).enumerate();
        each.map(|(d, ((w, taps), n))| w.num_windows(d, *n, *taps)).collect()
    }
    /// Formats the windows as parameters.
    fn format_params(&self) -> String {
        let windows = self.dims.iter().enumerate().filter(|(_, w)| **w != Window::default());
        let windows: Vec<String> = windows.map(|(d, w)| format!("{d}: {w}")).collect();
        match windows[..] {
            [] => format!("window={}", format_list(&self.sizes)),
            _ => format!("window={}, ({})", format_list(&self.sizes), windows.join("; ")),
        }
    }
    /// Returns the factors of a reduction over the windows.
    fn factors(&self, x: &Shape, y: &Shape) -> Factors {
        let mut f = Factors::default();
        for (n, m) in x.iter().zip(y.iter()) {
            f.add_loop(*n.max(m));
        }
        let at = |d: usize| Dim::mapped(d, self.dims[d].dim_map(self.sizes[d]));
        f.operands = vec![(0..x.len()).map(at).collect()];
        f.results = vec![Dim::each(0..y.len())];
        f
    }
    /// Returns the extents of the loops, and the dimensions that have a loop over window steps.
    ///
    /// The loops are the dimensions of the result, then one for each dimension in which windows
    /// have several steps or padding.
    fn loops(&self, y: &Shape) -> (Vec<usize>, Vec<usize>) {
        let dims: Vec<usize> =
            (0..y.len()).filter(|d| needs_step_loop(&self.dims[*d], self.sizes[*d])).collect();
        let extents = y.iter().copied().chain(dims.iter().map(|d| self.sizes[*d])).collect();
        (extents, dims)
    }
    /// Returns the pieces of an access to this operand through the windows.
    fn access_pieces(&self, operand: usize, extents: &[usize], dims: &[usize]) -> Vec<AccessPiece> {
        let rank = self.sizes.len();
        let map: Vec<AffineExpr> =
            (0..rank).map(|d| AffineExpr::linear(0, d, self.dims[d].stride as i64)).collect();
        let windows: Vec<Window> = dims.iter().map(|d| self.dims[*d]).collect();
        let loops: Vec<[usize; 2]> = dims.iter().enumerate().map(|(k, d)| [*d, rank + k]).collect();
        let mut pieces = windowed_access(&windows, dims, &loops, extents, &map);
        pieces.iter_mut().for_each(|p| p.source = Source::Value(operand));
        pieces
    }
    /// Emits code for the row-major index of a step within a window, as int32.
    ///
    /// If `turned` is true, steps are counted from the last one.
    fn step_index(&self, code: &mut ScalarCode, rank: usize, dims: &[usize], turned: bool) -> ScalarArg {
        use DType::{I32, I64};
        let mut at = ScalarArg::Const(Scalar::Int(0));
        for (k, d) in dims.iter().enumerate() {
            let size = ScalarArg::Const(Scalar::Int(self.sizes[*d] as i128));
            let wide = code.push(ScalarOp::Mul, I64, I64, &[at, size]);
            at = code.push(ScalarOp::Add, I64, I64, &[wide, ScalarArg::Index(rank + k)]);
        }
        if turned {
            let last = self.sizes.iter().product::<usize>() as i128 - 1;
            at = code.push(ScalarOp::Sub, I64, I64, &[ScalarArg::Const(Scalar::Int(last)), at]);
        }
        match dims {
            [] => code.push(ScalarOp::Copy, I32, I32, &[ScalarArg::Const(Scalar::Int(0))]),
            _ => code.push(ScalarOp::Convert, I64, I32, &[at]),
        }
    }
}

/// Reduces each window to one element: `reduce_window_sum` and similar.
///
/// Padding, and the positions between elements under base dilation, are not reduced. A window
/// without elements gives the identity element of the reduction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceWindow {
    /// The reduction.
    pub kind: Reduction,
    /// The windows.
    pub windows: Windows,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

impl Primitive for ReduceWindow {
    fn name(&self) -> &'static str {
        match self.kind {
            Reduction::Sum => "reduce_window_sum",
            Reduction::Max => "reduce_window_max",
            Reduction::Min => "reduce_window_min",
            Reduction::Prod => "reduce_window_prod",
            Reduction::And => "reduce_window_and",
            Reduction::Or => "reduce_window_or",
        }
    }
    fn params(&self) -> String {
        format!("{}{}", self.windows.format_params(), format_out_sharding(self.out_sharding))
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        let shape = self.windows.result_shape(x)?;
        let takes = match self.kind {
            Reduction::And | Reduction::Or => DTypeClass::Bits,
            Reduction::Sum | Reduction::Prod => DTypeClass::Number,
            Reduction::Max | Reduction::Min => DTypeClass::Real,
        };
        takes.check(operands, 0)?;
        Ok(vec![(x.dtype, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        self.windows.factors(&operands[0].shape, &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        if self.kind == Reduction::Sum { Linearity::Joint } else { Linearity::None }
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let (Some(t), x, y) = (&tangents[0], &operands[0], &outputs[0]) else { return Ok(vec![None]) };
        Ok(vec![match self.kind {
            Reduction::Sum => Some(b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?),
            // the first of the extreme elements of each window gets all of the derivative
            Reduction::Max | Reduction::Min => {
                let first = WindowExtreme { windows: self.windows.clone() };
                let first = b.emit1(Arc::new(first), &[x.clone(), y.clone()])?;
                let pick = WindowPick {
                    windows: self.windows.clone(),
                    transposed: false,
                    out_sharding: self.out_sharding,
                };
                Some(b.emit1(Arc::new(pick), &[first, t.clone()])?)
            }
            Reduction::Prod => Some(self.product_tangent(b, x, t)?),
            Reduction::And | Reduction::Or => None,
        }])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, types, cotangents, .. } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        if self.kind != Reduction::Sum {
            return Err(not_linear_error(self.name()));
        }
        let expected = cotangent_type(&types[0]);
        let over = self.windows.transposed(&expected.shape, &ct.ty.shape);
        let make = |out| {
            Arc::new(ReduceWindow { kind: Reduction::Sum, windows: over.clone(), out_sharding: out }) as Prim
        };
        Ok(vec![Some(b.emit_with_sharding(&make, std::slice::from_ref(ct), expected.spec)?)])
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (y, dtype) = (&results[0], operands[0].dtype);
        let (extents, dims) = self.windows.loops(&y.shape);
        let combine = self.kind.reducer();
        let reads = vec![Access {
            dtype,
            pieces: self.windows.access_pieces(0, &extents, &dims),
            fill: identity_element(self.kind, dtype),
        }];
        vec![LoopNest::reduce(extents, y.rank(), dtype, reads, combine, ScalarCode::copy(dtype))]
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let over = self.windows.with_batch_dim();
        BatchedOp::new(Arc::new(ReduceWindow {
            windows: over,
            out_sharding: batch.out_sharding(self.out_sharding, 0),
            ..self.clone()
        }))
    }
}

/// Returns the identity element of a reduction.
fn identity_element(kind: Reduction, dtype: DType) -> Scalar {
    let bits = dtype.real().size() as u32 * 8;
    match kind {
        Reduction::Sum => Scalar::zero(dtype),
        Reduction::Prod => Scalar::one(dtype),
        Reduction::Max if dtype.is_float() => Scalar::Float(f64::NEG_INFINITY),
        Reduction::Min if dtype.is_float() => Scalar::Float(f64::INFINITY),
        Reduction::Or => Scalar::zero(dtype),
        Reduction::And | Reduction::Max | Reduction::Min if dtype == DType::Bool => {
            Scalar::Bool(kind != Reduction::Max)
        }
        Reduction::Max if dtype.is_signed() => Scalar::Int(-(1i128 << (bits - 1))),
        Reduction::Max => Scalar::Int(0),
        Reduction::And if dtype.is_signed() => Scalar::Int(-1),
        Reduction::Min if dtype.is_signed() => Scalar::Int((1i128 << (bits - 1)) - 1),
        Reduction::Min | Reduction::And => Scalar::Int((1i128 << bits) - 1),
    }
}

/// Finds the index of each window's first step whose element equals operand 1, or is a NaN.
///
/// Operand 1 has the minimum or maximum of each window. Indices are int32 and row-major. For a
/// window without elements, the index is larger than that of any step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowExtreme {
    /// The windows.
    pub windows: Windows,
}

impl Primitive for WindowExtreme {
    described!(self, "window_extreme", Linearity::None, self.windows.format_params());
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let (x, y) = (arity(self.name(), operands, 2)?[0], &operands[1].ty);
        DTypeClass::Float.check(operands, 0)?;
        check_shape(&self.windows.result_shape(x)?, &y.shape, 1)?;
        if y.dtype != x.dtype {
            let message = format!("operand 0 is {}, and operand 1 {}", x.dtype, y.dtype);
            return Err(Fault::new(ErrorKind::Dtype, message).help("convert one of them: `.astype(F32)`"));
        }
        Ok(vec![(DType::I32, y.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = self.windows.factors(&operands[0].shape, &results[0].1);
        f.operands.push(Dim::each(0..results[0].1.len()));
        f
    }
    no_derivative!("window_extreme");
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (dtype, rank) = (operands[0].dtype, results[0].rank());
        let (extents, dims) = self.windows.loops(&results[0].shape);
        let parts = self.windows.access_pieces(0, &extents, &dims);
        let loops: Vec<_> = (0..rank).map(Some).collect();
        // two accesses with different fill values read equal bits only at positions inside the
        // array
        let reads = vec![
            Access { dtype, pieces: parts.clone(), fill: Scalar::zero(dtype) },
            Access { dtype, pieces: parts, fill: Scalar::one(dtype) },
            Access::from_loops(1, dtype, &extents, &loops),
        ];
        let (mut code, is) = extreme_code(dtype);
        let step = self.windows.step_index(&mut code, rank, &dims, false);
        let none = ScalarArg::Const(Scalar::Int(i32::MAX.into()));
        code.push(ScalarOp::Select, DType::I32, DType::I32, &[is, step, none]);
        vec![LoopNest::reduce(extents, rank, DType::I32, reads, Reducer::Min, code)]
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(WindowExtreme { windows: self.windows.with_batch_dim() }), false)
    }
}

/// Returns code that is true if the elements of accesses 0 and 1 have the same bits, and access 0
/// has the element of access 2 or a NaN; and the instruction with this result.
pub(crate) fn extreme_code(dtype: DType) -> (ScalarCode, ScalarArg) {
    let bits = match dtype.size() {
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    };
    let (x, mut code) = (ScalarArg::Access(0), ScalarCode { insts: Vec::new() });
    let one = code.push(ScalarOp::Bitcast, dtype, bits, &[x]);
    let two = code.push(ScalarOp::Bitcast, dtype, bits, &[ScalarArg::Access(1)]);
    let there = code.push(ScalarOp::Eq, bits, DType::Bool, &[one, two]);
    let equal = code.push(ScalarOp::Eq, dtype, DType::Bool, &[x, ScalarArg::Access(2)]);
    let nan = code.push(ScalarOp::Ne, dtype, DType::Bool, &[x, x]);
    let extreme = code.push(ScalarOp::Or, DType::Bool, DType::Bool, &[equal, nan]);
    let is = code.push(ScalarOp::And, DType::Bool, DType::Bool, &[there, extreme]);
    (code, is)
}

/// Reads one element of operand 1 for each window, at the step whose index is in operand 0.
///
/// If `transposed` is true, operand 0 has one index for each element of operand 1 instead of one
/// for each window, and steps are counted from the last one. The two forms are transposes of each
/// other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowPick {
    /// The windows.
    pub windows: Windows,
    /// If true, operand 0 has the shape of operand 1, and steps are counted from the last one.
    pub transposed: bool,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

impl Primitive for WindowPick {
    described!(
        self,
        if self.transposed { "window_place" } else { "window_pick" },
        Linearity::Select,
        format!("{}{}", self.windows.format_params(), format_out_sharding(self.out_sharding))
    );
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let (at, x) = (arity(self.name(), operands, 2)?[0], &operands[1].ty);
        DTypeClass::Number.check(operands, 1)?;
        let shape = self.windows.result_shape(x)?;
        check_shape(if self.transposed { &x.shape } else { &shape }, &at.shape, 0)?;
        if at.dtype != DType::I32 {
            let message = format!("steps are numbered by int32, and operand 0 is {}", at.dtype);
            return Err(Fault::new(ErrorKind::Dtype, message).help("convert it: `.astype(I32)`"));
        }
        Ok(vec![(x.dtype, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = self.windows.factors(&operands[1].shape, &results[0].1);
        let at = if self.transposed { f.operands[0].clone() } else { f.results[0].clone() };
        f.operands.insert(0, at);
        f
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[1] else { return Ok(vec![None]) };
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &[operands[0].clone(), t.clone()])?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(at) = &operands[0] else { return Err(not_linear_error(self.name())) };
        let expected = cotangent_type(&types[1]);
        let over = self.windows.transposed(&expected.shape, &ct.ty.shape);
        let turned = !self.transposed;
        let make = |out| {
            Arc::new(WindowPick { windows: over.clone(), transposed: turned, out_sharding: out }) as Prim
        };
        Ok(vec![None, Some(b.emit_with_sharding(&make, &[at.clone(), ct.clone()], expected.spec)?)])
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (dtype, rank) = (operands[1].dtype, results[0].rank());
        let (extents, dims) = self.windows.loops(&results[0].shape);
        let at = if self.transposed {
            Access {
                dtype: DType::I32,
                pieces: self.windows.access_pieces(0, &extents, &dims),
                fill: Scalar::Int(-1),
            }
        } else {
            let span = StridedRange::full_box(&extents);
            let piece =
                AccessPiece { source: Source::Value(0), ranges: span, map: AffineExpr::identity(rank) };
            Access { dtype: DType::I32, pieces: vec![piece], fill: Scalar::Int(-1) }
        };
        let parts = self.windows.access_pieces(1, &extents, &dims);
        let reads = vec![at, Access { dtype, pieces: parts, fill: Scalar::zero(dtype) }];
        let mut code = ScalarCode { insts: Vec::new() };
        let step = self.windows.step_index(&mut code, rank, &dims, self.transposed);
        let is = code.push(ScalarOp::Eq, DType::I32, DType::Bool, &[step, ScalarArg::Access(0)]);
        code.push(
            ScalarOp::Select,
            dtype,
            dtype,
            &[is, ScalarArg::Access(1), ScalarArg::Const(Scalar::zero(dtype))],
        );
        vec![LoopNest::reduce(extents, rank, dtype, reads, Reducer::Add, code)]
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let (over, out) = (self.windows.with_batch_dim(), batch.out_sharding(self.out_sharding, 0));
        BatchedOp::all_batched(
            Arc::new(WindowPick { windows: over, out_sharding: out, ..self.clone() }),
            false,
        )
    }
}

/// Returns the step at which a nest of [`WindowPick`] reads; `None` if it is another nest.
pub(crate) fn picked_step(nest: &LoopNest) -> Option<(&ScalarCode, ScalarArg)> {
    let Compute::Reduce { reducer: Reducer::Add, code } = &nest.compute else { return None };
    let ([at, x], [.., is, select]) = (&nest.accesses[..], &code.insts[..]) else { return None };
    let zero = ScalarArg::Const(Scalar::zero(x.dtype));
    let picks = at.fill == Scalar::Int(-1)
        && x.fill == Scalar::zero(x.dtype)
        && (is.op, select.op) == (ScalarOp::Eq, ScalarOp::Select)
        && is.args[1] == ScalarArg::Access(0)
        && select.args[..] == [ScalarArg::Inst(code.insts.len() - 2), ScalarArg::Access(1), zero];
    picks.then_some((code, is.args[0]))
}

/// Returns an error if operand `k` does not have the expected shape.
fn check_shape(want: &Shape, got: &Shape, k: usize) -> Result<(), Fault> {
    if want == got {
        return Ok(());
    }
    Err(fault!(Shape, "operand {k} has shape {got}, and there are windows of {want}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    /// Returns windows of three rows with a padding of one row at both ends.
    fn rows(stride: usize) -> Windows {
        let over = Window { stride, padding_low: 1, padding_high: 1, ..Window::default() };
        Windows { sizes: vec![3, 1], dims: vec![over, Window::default()] }
    }
    fn reduce(kind: Reduction, over: Windows) -> ReduceWindow {
        ReduceWindow { kind, windows: over, out_sharding: None }
    }

    check_prim! {
        sums_of_windows: reduce(Reduction::Sum, rows(2)), ["float64[8@X,2@Y]"] => r#"
            (a: float64[8@X,2@Y]) {
              b: float64[4@X,2@Y] = reduce_window_sum[window=[3,1], (0: stride 2, pad 1 1)] a
              return b
            }
            tangents: (a: float64[8@X,2@Y], b: float64[8@X,2@Y]) {
              c: float64[4@X,2@Y] = reduce_window_sum[window=[3,1], (0: stride 2, pad 1 1)] a
              d: float64[4@X,2@Y] = reduce_window_sum[window=[3,1], (0: stride 2, pad 1 1)] b
              return c, d
            }
            cotangents: (a: float64[4@X,2@Y]) {
              b: float64[8@X,2@Y] = reduce_window_sum[window=[3,1], (0: stride 1, pad 1 2, base 2)] a
              return b
            }
        "#;
        maxima_of_windows: reduce(Reduction::Max, rows(1)), ["float32[8@X,2]"] => r#"
            (a: float32[8@X,2]) {
              b: float32[8@X,2] = reduce_window_max[window=[3,1], (0: stride 1, pad 1 1)] a
              return b
            }
            tangents: (a: float32[8@X,2], b: float32[8@X,2]) {
              c: float32[8@X,2] = reduce_window_max[window=[3,1], (0: stride 1, pad 1 1)] a
              d: int32[8@X,2] = window_extreme[window=[3,1], (0: stride 1, pad 1 1)] a c
              e: float32[8@X,2] = window_pick[window=[3,1], (0: stride 1, pad 1 1)] d b
              return c, e
            }
            cotangents: (a: int32[8@X,2], b: float32[8@X,2]) {
              c: float32[8@X,2] = window_place[window=[3,1], (0: stride 1, pad 1 1)] a b
              return c
            }
        "#;
        bits_of_integers: reduce(Reduction::And, rows(3)), ["int8[4,2]"] => r#"
            (a: int8[4,2]) {
              b: int8[2,2] = reduce_window_and[window=[3,1], (0: stride 3, pad 1 1)] a
              return b
            }
        "#;
        a_window_of_nothing: reduce(Reduction::Sum, Windows { sizes: vec![0, 1], ..rows(1) }), ["float32[4,2]"] => r#"
            error: a window has size 0 along dimension 0
            windows have 1 element and more
        "#;
        a_window_for_each_dimension: reduce(Reduction::Sum, rows(1)), ["float32[4]"] => r#"
            error: there are 2 sizes of windows for 1 dimensions
            give one for each dimension: 1 where a window is one element
        "#;
        sums_are_of_numbers: reduce(Reduction::Sum, rows(1)), ["bool[4,2]"] => r#"
            error: operand 0 is bool, but numbers are expected
            convert it first: `.astype(I32)`
        "#;
    }
}
