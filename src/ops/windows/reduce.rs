//! Reductions of windows, and what their derivatives are made of: which step of a window is its extreme, and what is there.

use super::{Window, adjoint, moving, windowed};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::build::{cotangent_type, not_linear};
use crate::ops::elementwise::Takes;
use crate::ops::moves::no_derivative;
use crate::ops::reduce::Reduction;
use crate::ops::view::{arity, list, print_out, shape_fault};
use crate::program::factors::{Dim, Factors, Linearity, Priority};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Part, Read, Sentence, Source, Span};
use crate::program::{Back, Batch, Batched, Forward, Operand, Prim, Primitive, Tangents, inserted};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// Windows over all dimensions of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    /// How many steps a window has along each dimension.
    pub taps: Vec<usize>,
    /// How the windows are placed along each dimension.
    pub windows: Vec<Window>,
}

impl Windows {
    /// One of 1 along a further dimension in front.
    fn batched(&self) -> Windows {
        Windows { taps: inserted(&self.taps, 0, 1), windows: inserted(&self.windows, 0, Window::default()) }
    }
    /// The windows of an array of this shape in which each element meets the windows that it is in: the steps turned round.
    fn turned(&self, from: &Shape, to: &Shape) -> Windows {
        let each = self.windows.iter().zip(&self.taps).zip(from.iter().zip(to.iter()));
        let windows = each.map(|((w, taps), (n, m))| adjoint(w, *n, *m, *taps)).collect();
        Windows { taps: self.taps.clone(), windows }
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        for (what, n) in [("sizes", self.taps.len()), ("windows", self.windows.len())] {
            if n != x.rank() {
                let told = format!("there are {n} {what} of windows for {} dimensions", x.rank());
                return Err(
                    shape_fault(told).help("give one for each dimension: 1 where a window is one element")
                );
            }
        }
        if let Some(d) = self.taps.iter().position(|n| *n == 0) {
            return Err(shape_fault(format!("a window has size 0 along dimension {d}"))
                .help("windows have 1 element and more")
                .dim(0, d));
        }
        let each = self.windows.iter().zip(&self.taps).zip(x.shape.iter()).enumerate();
        each.map(|(d, ((w, taps), n))| w.count(d, *n, *taps)).collect()
    }
    fn text(&self) -> String {
        let windows = self.windows.iter().enumerate().filter(|(_, w)| **w != Window::default());
        let windows: Vec<String> = windows.map(|(d, w)| format!("{d}: {w}")).collect();
        match windows[..] {
            [] => format!("window={}", list(&self.taps)),
            _ => format!("window={}, ({})", list(&self.taps), windows.join("; ")),
        }
    }
    fn factors(&self, x: &Shape, y: &Shape) -> Factors {
        let mut f = Factors::default();
        for (n, m) in x.iter().zip(y.iter()) {
            f.add(*n.max(m));
        }
        let at = |d: usize| Dim::at(d, self.windows[d].at(self.taps[d]));
        f.operands = vec![(0..x.len()).map(at).collect()];
        f.results = vec![Dim::each(0..y.len())];
        f
    }
    /// The loops: the result's dimensions, then steps along the dimensions where windows move or have several; and which dimensions.
    fn loops(&self, y: &Shape) -> (Vec<usize>, Vec<usize>) {
        let dims: Vec<usize> = (0..y.len()).filter(|d| moving(&self.windows[*d], self.taps[*d])).collect();
        let extents = y.iter().copied().chain(dims.iter().map(|d| self.taps[*d])).collect();
        (extents, dims)
    }
    /// The parts of a read of this operand by the windows.
    fn parts(&self, operand: usize, extents: &[usize], dims: &[usize]) -> Vec<Part> {
        let rank = self.taps.len();
        let map: Vec<Affine> = (0..rank).map(|d| Affine::of(0, d, self.windows[d].stride as i64)).collect();
        let windows: Vec<Window> = dims.iter().map(|d| self.windows[*d]).collect();
        let loops: Vec<[usize; 2]> = dims.iter().enumerate().map(|(k, d)| [*d, rank + k]).collect();
        let mut parts = windowed(&windows, dims, &loops, extents, &map);
        parts.iter_mut().for_each(|p| p.from = Source::Value(operand));
        parts
    }
    /// The number of a window's step, row-major, as int32; counted from the end if they are turned round.
    fn step(&self, code: &mut Code, rank: usize, dims: &[usize], turned: bool) -> Arg {
        use DType::{I32, I64};
        let mut at = Arg::Const(Scalar::Int(0));
        for (k, d) in dims.iter().enumerate() {
            let size = Arg::Const(Scalar::Int(self.taps[*d] as i128));
            let wide = code.push(Fun::Mul, I64, I64, &[at, size]);
            at = code.push(Fun::Add, I64, I64, &[wide, Arg::Index(rank + k)]);
        }
        if turned {
            let last = self.taps.iter().product::<usize>() as i128 - 1;
            at = code.push(Fun::Sub, I64, I64, &[Arg::Const(Scalar::Int(last)), at]);
        }
        match dims {
            [] => code.push(Fun::Copy, I32, I32, &[Arg::Const(Scalar::Int(0))]),
            _ => code.push(Fun::Convert, I64, I32, &[at]),
        }
    }
}

/// `reduce_window_sum` and its kin: each window reduced to a number. What is beyond the array, or between elements that are set apart, is
/// no element; a window without any gives the identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceWindow {
    /// How it combines.
    pub kind: Reduction,
    /// The windows.
    pub over: Windows,
    /// The sharding asked for the result.
    pub out: Option<Spec>,
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
        format!("{}{}", self.over.text(), print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        let shape = self.over.shape(x)?;
        let takes = match self.kind {
            Reduction::And | Reduction::Or => Takes::Bits,
            Reduction::Sum | Reduction::Prod => Takes::Number,
            Reduction::Max | Reduction::Min => Takes::Real,
        };
        takes.check(operands, 0)?;
        Ok(vec![(x.dtype, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        self.over.factors(&operands[0].shape, &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        if self.kind == Reduction::Sum { Linearity::Joint } else { Linearity::None }
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        self.out
    }
    fn with_out(&self, out: Spec) -> Option<Prim> {
        Some(Arc::new(Self { out: Some(out), ..self.clone() }))
    }
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let (Some(t), x, y) = (&tangents[0], &operands[0], &outputs[0]) else { return Ok(vec![None]) };
        Ok(vec![match self.kind {
            Reduction::Sum => Some(b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?),
            // the first extreme of each window has all of it
            Reduction::Max | Reduction::Min => {
                let first = WindowExtreme { over: self.over.clone() };
                let first = b.emit1(Arc::new(first), &[x.clone(), y.clone()])?;
                let pick = WindowPick { over: self.over.clone(), turned: false, out: self.out };
                Some(b.emit1(Arc::new(pick), &[first, t.clone()])?)
            }
            Reduction::Prod => Some(self.product_tangent(b, x, t)?),
            Reduction::And | Reduction::Or => None,
        }])
    }
    fn transpose(&self, Back { b, types, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        if self.kind != Reduction::Sum {
            return Err(not_linear(self.name()));
        }
        let want = cotangent_type(&types[0]);
        let over = self.over.turned(&want.shape, &ct.ty.shape);
        let make = |out| Arc::new(ReduceWindow { kind: Reduction::Sum, over: over.clone(), out }) as Prim;
        Ok(vec![Some(b.emit_as(make, std::slice::from_ref(ct), want.spec)?)])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (y, dtype) = (&results[0], operands[0].dtype);
        let (extents, dims) = self.over.loops(&y.shape);
        let combine = self.kind.combine();
        let reads =
            vec![Read { dtype, parts: self.over.parts(0, &extents, &dims), fill: neutral(self.kind, dtype) }];
        let code = Code::copy(dtype);
        let body = if dims.is_empty() { Body::Map(code) } else { Body::Fold { combine, code } };
        vec![Sentence { extents, rank: y.rank(), dtype, reads, body }]
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        let over = self.over.batched();
        Batched::of(Arc::new(ReduceWindow { over, out: batch.out(self.out, 0), ..self.clone() }))
    }
}

/// What changes nothing when it is combined.
fn neutral(kind: Reduction, dtype: DType) -> Scalar {
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

/// The number, int32, of each window's first step (row-major) whose element is equal to operand 1 there, the window's extreme; a NaN is one.
/// Of a window without elements it is no step's number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowExtreme {
    /// The windows.
    pub over: Windows,
}

impl Primitive for WindowExtreme {
    fn name(&self) -> &'static str {
        "window_extreme"
    }
    fn params(&self) -> String {
        self.over.text()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let (x, y) = (arity(self.name(), operands, 2)?[0], &operands[1].ty);
        Takes::Float.check(operands, 0)?;
        same(&self.over.shape(x)?, &y.shape, 1)?;
        if y.dtype != x.dtype {
            let told = format!("operand 0 is {}, and operand 1 {}", x.dtype, y.dtype);
            return Err(Fault::new(ErrorKind::Dtype, told).help("convert one of them: `.astype(F32)`"));
        }
        Ok(vec![(DType::I32, y.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = self.over.factors(&operands[0].shape, &results[0].1);
        f.operands.push(Dim::each(0..results[0].1.len()));
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    no_derivative!("window_extreme");
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (dtype, rank) = (operands[0].dtype, results[0].rank());
        let (extents, dims) = self.over.loops(&results[0].shape);
        let parts = self.over.parts(0, &extents, &dims);
        let loops: Vec<_> = (0..rank).map(Some).collect();
        // an element is what it is whatever is elsewhere
        let reads = vec![
            Read { dtype, parts: parts.clone(), fill: Scalar::zero(dtype) },
            Read { dtype, parts, fill: Scalar::one(dtype) },
            Read::plain(1, dtype, &extents, &loops),
        ];
        let bits = match dtype.size() {
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        };
        let mut code = Code { insts: Vec::new() };
        let x = Arg::Read(0);
        let one = code.push(Fun::Bitcast, dtype, bits, &[x]);
        let two = code.push(Fun::Bitcast, dtype, bits, &[Arg::Read(1)]);
        let there = code.push(Fun::Eq, bits, DType::Bool, &[one, two]);
        let equal = code.push(Fun::Eq, dtype, DType::Bool, &[x, Arg::Read(2)]);
        let nan = code.push(Fun::Ne, dtype, DType::Bool, &[x, x]);
        let extreme = code.push(Fun::Or, DType::Bool, DType::Bool, &[equal, nan]);
        let is = code.push(Fun::And, DType::Bool, DType::Bool, &[there, extreme]);
        let step = self.over.step(&mut code, rank, &dims, false);
        let none = Arg::Const(Scalar::Int(i32::MAX.into()));
        code.push(Fun::Select, DType::I32, DType::I32, &[is, step, none]);
        let body = if dims.is_empty() { Body::Map(code) } else { Body::Fold { combine: Combine::Min, code } };
        vec![Sentence { extents, rank, dtype: DType::I32, reads, body }]
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::alike(Arc::new(WindowExtreme { over: self.over.batched() }), false)
    }
}

/// What operand 1 has at the step of each window whose number operand 0 has: a number for each window, or turned round one beside each
/// element of operand 1, and steps are counted from the end. The one is the transpose of the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowPick {
    /// The windows.
    pub over: Windows,
    /// Whether the steps' numbers are beside the elements, and are counted from the end.
    pub turned: bool,
    /// The sharding asked for the result.
    pub out: Option<Spec>,
}

impl Primitive for WindowPick {
    fn name(&self) -> &'static str {
        if self.turned { "window_place" } else { "window_pick" }
    }
    fn params(&self) -> String {
        format!("{}{}", self.over.text(), print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let (at, x) = (arity(self.name(), operands, 2)?[0], &operands[1].ty);
        Takes::Number.check(operands, 1)?;
        let shape = self.over.shape(x)?;
        same(if self.turned { &x.shape } else { &shape }, &at.shape, 0)?;
        if at.dtype != DType::I32 {
            let told = format!("steps are numbered by int32, and operand 0 is {}", at.dtype);
            return Err(Fault::new(ErrorKind::Dtype, told).help("convert it: `.astype(I32)`"));
        }
        Ok(vec![(x.dtype, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = self.over.factors(&operands[1].shape, &results[0].1);
        let at = if self.turned { f.operands[0].clone() } else { f.results[0].clone() };
        f.operands.insert(0, at);
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::Chosen
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        self.out
    }
    fn with_out(&self, out: Spec) -> Option<Prim> {
        Some(Arc::new(Self { out: Some(out), ..self.clone() }))
    }
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[1] else { return Ok(vec![None]) };
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &[operands[0].clone(), t.clone()])?)])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(at) = &operands[0] else { return Err(not_linear(self.name())) };
        let want = cotangent_type(&types[1]);
        let over = self.over.turned(&want.shape, &ct.ty.shape);
        let turned = !self.turned;
        let make = |out| Arc::new(WindowPick { over: over.clone(), turned, out }) as Prim;
        Ok(vec![None, Some(b.emit_as(make, &[at.clone(), ct.clone()], want.spec)?)])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (dtype, rank) = (operands[1].dtype, results[0].rank());
        let (extents, dims) = self.over.loops(&results[0].shape);
        let at = if self.turned {
            Read { dtype: DType::I32, parts: self.over.parts(0, &extents, &dims), fill: Scalar::Int(-1) }
        } else {
            let span = Span::whole(&extents);
            let part = Part { from: Source::Value(0), span, map: Affine::identity(rank) };
            Read { dtype: DType::I32, parts: vec![part], fill: Scalar::Int(-1) }
        };
        let parts = self.over.parts(1, &extents, &dims);
        let reads = vec![at, Read { dtype, parts, fill: Scalar::zero(dtype) }];
        let mut code = Code { insts: Vec::new() };
        let step = self.over.step(&mut code, rank, &dims, self.turned);
        let is = code.push(Fun::Eq, DType::I32, DType::Bool, &[step, Arg::Read(0)]);
        code.push(Fun::Select, dtype, dtype, &[is, Arg::Read(1), Arg::Const(Scalar::zero(dtype))]);
        let body = if dims.is_empty() { Body::Map(code) } else { Body::Fold { combine: Combine::Add, code } };
        vec![Sentence { extents, rank, dtype, reads, body }]
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        let (over, out) = (self.over.batched(), batch.out(self.out, 0));
        Batched::alike(Arc::new(WindowPick { over, out, ..self.clone() }), false)
    }
}

/// Refuses operand k of another shape than there are windows.
fn same(want: &Shape, got: &Shape, k: usize) -> Result<(), Fault> {
    if want == got {
        return Ok(());
    }
    Err(shape_fault(format!("operand {k} has shape {got}, and there are windows of {want}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    /// Windows of three rows, one beyond the array at both ends.
    fn rows(stride: usize) -> Windows {
        let over = Window { stride, low: 1, high: 1, ..Window::default() };
        Windows { taps: vec![3, 1], windows: vec![over, Window::default()] }
    }
    fn reduce(kind: Reduction, over: Windows) -> ReduceWindow {
        ReduceWindow { kind, over, out: None }
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
        a_window_of_nothing: reduce(Reduction::Sum, Windows { taps: vec![0, 1], ..rows(1) }), ["float32[4,2]"] => r#"
            refused: a window has size 0 along dimension 0
            windows have 1 element and more
        "#;
        a_window_for_each_dimension: reduce(Reduction::Sum, rows(1)), ["float32[4]"] => r#"
            refused: there are 2 sizes of windows for 1 dimensions
            give one for each dimension: 1 where a window is one element
        "#;
        sums_are_of_numbers: reduce(Reduction::Sum, rows(1)), ["bool[4,2]"] => r#"
            refused: operand 0 is bool, but numbers are expected
            convert it first: `.astype(I32)`
        "#;
    }
}
