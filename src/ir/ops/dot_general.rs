//! The primitive `dot_general`, a product of two operands summed over pairs of dimensions.

use super::dim_check::arity;
use super::elementwise::{DTypeClass, common_dtype};
use crate::core::{
    ArrayType, Axes, DType, ErrorKind, Fault, Precision, Result, Shape, Spec, util::small_sort,
};
use crate::ir::ops::structural::out_sharding_rules;
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{
    Access, BatchedOp, Builder, Compute, Dim, ExplicitRule, Factors, JvpArgs, Linearity, LoopId, LoopNest,
    Prim, Primitive, Tangents, TransposeArgs, TypedOperand, Value, VmapArgs, shifted_dims,
};
use std::sync::Arc;

/// The product of two operands, summed over pairs of dimensions: `dot_general`.
///
/// The dimensions of the result are the batch dimensions, then the free dimensions of the left
/// operand, then those of the right operand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DotGeneral {
    /// The contracted dimensions of the left and right operands, in pairs.
    pub contracting: [Vec<usize>; 2],
    /// The batch dimensions of the left and right operands, in pairs.
    pub batch: [Vec<usize>; 2],
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
    /// The element type of the sums and of the result.
    /// `None` for that of the operands.
    pub accum_dtype: Option<DType>,
    /// The precision of float32 products on XLA's accelerators.
    pub precision: Precision,
}

/// Returns the printed parameter for a precision, which is empty for the highest.
pub(super) fn format_precision(precision: Precision) -> String {
    if precision == Precision::Highest { String::new() } else { format!(", precision={precision}") }
}

/// Returns the accumulator type for products of `dtype`: `preferred`, if it can hold the sums.
pub(crate) fn accumulation_dtype(dtype: DType, preferred: Option<DType>) -> Result<DType, Fault> {
    match preferred {
        Some(to)
            if !to.is_number()
                || dtype.is_float() && !to.is_float()
                || dtype.is_complex() != to.is_complex() =>
        {
            Err(fault!(Dtype, "products of {dtype} are not summed as {to}").help(if dtype.is_complex() {
                "sum them as complex numbers: `Some(C64)`"
            } else if dtype.is_float() {
                "sum them as floats: `Some(F32)`"
            } else {
                "sum them as numbers: `Some(I32)`"
            }))
        }
        preferred => Ok(preferred.unwrap_or(dtype)),
    }
}

impl DotGeneral {
    /// Returns the parameters of a product of two matrices.
    pub fn matmul() -> DotGeneral {
        DotGeneral { contracting: [vec![1], vec![0]], ..DotGeneral::default() }
    }
    /// Returns the dimensions of operand `k` that are neither contracted nor batch, in order.
    fn free_dims(&self, k: usize, rank: usize) -> Vec<usize> {
        (0..rank).filter(|d| !self.contracting[k].contains(d) && !self.batch[k].contains(d)).collect()
    }
    /// Returns the loop of each dimension of operand `k`.
    ///
    /// The loops are, in order: batch, free dimensions of the left operand, free dimensions of the
    /// right operand (these are the result's dimensions), contracted dimensions.
    fn loops(&self, k: usize, ranks: [usize; 2]) -> Vec<LoopId> {
        let lead = self.batch[0].len() + if k == 1 { self.free_dims(0, ranks[0]).len() } else { 0 };
        let rank =
            self.batch[0].len() + self.free_dims(0, ranks[0]).len() + self.free_dims(1, ranks[1]).len();
        let free = self.free_dims(k, ranks[k]);
        let place = |list: &[usize], d: usize| list.iter().position(|x| *x == d);
        let of = |d| {
            place(&self.batch[k], d)
                .or_else(|| place(&free, d).map(|i| lead + i))
                .or_else(|| place(&self.contracting[k], d).map(|i| rank + i))
        };
        (0..ranks[k]).filter_map(of).collect()
    }
    /// Returns an error if the dimension numbers do not fit the operands.
    fn check(&self, operands: &[TypedOperand]) -> Result<(), Fault> {
        let fault = |m: String| Err(Fault::new(ErrorKind::Shape, m));
        for (word, pair) in [("contracting", &self.contracting), ("batch", &self.batch)] {
            if pair[0].len() != pair[1].len() {
                return fault(format!(
                    "there are {} {word} dimensions of operand 0, but {} of operand 1",
                    pair[0].len(),
                    pair[1].len()
                ));
            }
        }
        for (k, operand) in operands.iter().enumerate() {
            let dims: Vec<usize> = self.contracting[k].iter().chain(&self.batch[k]).copied().collect();
            let rank = operand.ty.rank();
            for (i, d) in dims.iter().enumerate() {
                if *d >= rank {
                    return fault(format!("operand {k} has no dimension {d}: its rank is {rank}"));
                }
                if dims[..i].contains(d) {
                    return Err(fault!(Shape, "{} is named twice", operand.describe_dim(k, *d))
                        .help("a dimension is contracted, or a batch dimension, or neither")
                        .highlight_dim(k, *d));
                }
            }
        }
        let (x, y) = (&operands[0].ty, &operands[1].ty);
        for (word, pair) in [("contracting", &self.contracting), ("batch", &self.batch)] {
            for (&i, &j) in pair[0].iter().zip(&pair[1]) {
                if x.shape[i] != y.shape[j] {
                    let m = format!(
                        "{} has size {}, {} size {}: {word} dimensions must be equal",
                        operands[0].describe_dim(0, i),
                        x.shape[i],
                        operands[1].describe_dim(1, j),
                        y.shape[j]
                    );
                    let fault = Fault::new(ErrorKind::Shape, m).highlight_dim(0, i).highlight_dim(1, j);
                    let turned = |ty: &ArrayType, d: usize| (ty.rank() == 2).then(|| ty.shape[1 - d]);
                    return Err(if turned(y, j) == Some(x.shape[i]) {
                        fault.help(format!("transpose operand {}: `.t()`", operands[1].user_index(1)))
                    } else if turned(x, i) == Some(y.shape[j]) {
                        fault.help(format!("transpose operand {}: `.t()`", operands[0].user_index(0)))
                    } else if word == "batch" {
                        fault.help("make them equal: `slice`, `pad`, or repeat one of size 1: `broadcast_to`")
                    } else {
                        fault.help(
                            "contract others, `dot_general` or `einsum`, or make these equal: `slice`, `pad`",
                        )
                    });
                }
            }
        }
        Ok(())
    }
    /// Returns the cotangent of operand `k`.
    ///
    /// It is the product of the result's cotangent with the other operand, summed over the other
    /// operand's free dimensions.
    fn operand_cotangent(
        &self,
        b: &mut Builder,
        k: usize,
        ct: &Value,
        other: &Value,
        types: &[ArrayType],
    ) -> Result<Value> {
        let expected = cotangent_type(&types[k]);
        let (mine, others) = (self.free_dims(k, types[k].rank()), self.free_dims(1 - k, types[1 - k].rank()));
        let lead = self.batch[0].len();
        let others_start = if k == 0 { lead + mine.len() } else { lead };
        let ct_batch: Vec<usize> = (0..lead).collect();
        let ct_summed: Vec<usize> = (0..others.len()).map(|i| others_start + i).collect();
        // The dimensions of the product are batch, free, then contracted in the other operand's
        // order.
        let mut pairs: Vec<(usize, usize)> =
            self.contracting[1 - k].iter().copied().zip(self.contracting[k].iter().copied()).collect();
        small_sort::sort(&mut pairs);
        let order: Vec<usize> =
            self.batch[k].iter().copied().chain(mine).chain(pairs.into_iter().map(|p| p.1)).collect();
        let entries: Vec<Axes> = order.iter().map(|d| Axes::from(expected.spec.dim(*d))).collect();
        let other = b.convert(other, ct.ty.dtype)?;
        let dot = DotGeneral {
            contracting: [ct_summed, others],
            batch: [ct_batch, self.batch[1 - k].clone()],
            out_sharding: None,
            accum_dtype: (ct.ty.dtype != expected.dtype).then_some(expected.dtype),
            precision: self.precision,
        };
        let product = b.dot_general_to(ct, &other, &dot, expected.spec.with_dims(entries))?;
        let permutation: Vec<usize> =
            (0..expected.rank()).filter_map(|d| order.iter().position(|o| *o == d)).collect();
        b.transpose(&product, &permutation)
    }
}

impl Primitive for DotGeneral {
    described!(self, "dot_general", Linearity::Contraction);
    fn params(&self) -> String {
        let out = self.out_sharding.map(|o| format!(", out={o}")).unwrap_or_default();
        let preferred = self.accum_dtype.map(|d| format!(", preferred={d}")).unwrap_or_default();
        let ([a, b], [c, d]) = (&self.contracting, &self.batch);
        let precision = format_precision(self.precision);
        format!("contracting=({a:?}, {b:?}), batch=({c:?}, {d:?}){out}{preferred}{precision}")
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity("dot_general", operands, 2)?;
        self.check(operands)?;
        let dtype = common_dtype(operands, 0)?;
        DTypeClass::Number.check(operands, 0)?;
        let sums = accumulation_dtype(dtype, self.accum_dtype)?;
        let (x, y) = (&operands[0].ty, &operands[1].ty);
        let shape = (self.batch[0].iter().map(|d| x.shape[*d]))
            .chain(self.free_dims(0, x.rank()).into_iter().map(|d| x.shape[d]))
            .chain(self.free_dims(1, y.rank()).into_iter().map(|d| y.shape[d]));
        Ok(vec![(sums, shape.collect())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let mut f = Factors::default();
        for (d, &n) in results[0].1.iter().enumerate() {
            if d < self.batch[0].len() {
                f.add_loop_with_rule(n, ExplicitRule::FirstWins)
            } else {
                f.add_loop(n)
            };
        }
        for &d in &self.contracting[0] {
            f.add_loop(operands[0].shape[d]);
        }
        let ranks = [operands[0].rank(), operands[1].rank()];
        f.operands = (0..2).map(|k| Dim::each(self.loops(k, ranks))).collect();
        f.results = vec![Dim::each(0..results[0].1.rank())];
        f
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let (x, y) = (&operands[0], &operands[1]);
        let mut sum = None;
        if let Some(t) = &tangents[0] {
            sum = Some(b.dot_general(t, y, self.clone())?);
        }
        if let Some(t) = &tangents[1] {
            let term = b.dot_general(x, t, self.clone())?;
            sum = b.add_optional(sum, Some(term))?;
        }
        Ok(vec![sum])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        match operands {
            [None, Some(y)] => Ok(vec![Some(self.operand_cotangent(b, 0, ct, y, types)?), None]),
            [Some(x), None] => Ok(vec![None, Some(self.operand_cotangent(b, 1, ct, x, types)?)]),
            _ => Err(not_linear_error("dot_general")),
        }
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, dtype) = (&operands[0], results[0].dtype);
        let rank = results[0].rank();
        let extents: Vec<usize> =
            results[0].shape.iter().copied().chain(self.contracting[0].iter().map(|d| x.shape[*d])).collect();
        let ranks = [operands[0].rank(), operands[1].rank()];
        let read = |k: usize| {
            let loops: Vec<_> = self.loops(k, ranks).into_iter().map(Some).collect();
            Access::from_loops(k, operands[k].dtype, &extents, &loops)
        };
        let reads = vec![read(0), read(1)];
        // Sums of 16-bit floats are accumulated in 32 bits.
        let accumulate = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
        vec![LoopNest {
            extents,
            rank,
            dtype,
            accesses: reads,
            compute: Compute::Contract { accum_dtype: accumulate, precision: self.precision },
        }]
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let dims =
            |k: usize, dims: &[usize]| if batch.mapped[k] { shifted_dims(dims) } else { dims.to_vec() };
        let contracting = [dims(0, &self.contracting[0]), dims(1, &self.contracting[1])];
        let mut pairs = [dims(0, &self.batch[0]), dims(1, &self.batch[1])];
        // A batch dimension of only one operand becomes its first free dimension.
        let at = match batch.mapped {
            [true, true] => 0,
            [true, _] => self.batch[0].len(),
            _ => self.batch[0].len() + self.free_dims(0, batch.operands[0].rank()).len(),
        };
        if let [true, true] = batch.mapped {
            pairs.iter_mut().for_each(|dims| dims.insert(0, 0));
        }
        let out = batch.out_sharding(self.out_sharding, at);
        BatchedOp {
            out_dim: at,
            ..BatchedOp::new(Arc::new(DotGeneral {
                contracting,
                batch: pairs,
                out_sharding: out,
                ..self.clone()
            }))
        }
    }
}

impl Builder {
    /// Emits a product of two operands, summed over pairs of dimensions.
    pub fn dot_general(&mut self, x: &Value, y: &Value, dot: DotGeneral) -> Result<Value> {
        self.emit1(Arc::new(dot), &[x.clone(), y.clone()])
    }
    /// Emits a product with exactly the sharding `want`.
    ///
    /// The sharding is requested explicitly only if type inference would give another one.
    pub fn dot_general_to(&mut self, x: &Value, y: &Value, dot: &DotGeneral, want: Spec) -> Result<Value> {
        let make = |out| Arc::new(DotGeneral { out_sharding: out, ..dot.clone() }) as Prim;
        self.emit_with_sharding(&make, &[x.clone(), y.clone()], want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        a_product_of_matrices: DotGeneral::matmul(), ["float32[4@X,2]", "float32[2,6@Y]"] => r#"
            (a: float32[4@X,2], b: float32[2,6@Y]) {
              c: float32[4@X,6@Y] = dot_general[contracting=([1], [0]), batch=([], [])] a b
              return c
            }
            tangents: (a: float32[4@X,2], b: float32[2,6@Y], c: float32[4@X,2], d: float32[2,6@Y]) {
              e: float32[4@X,6@Y] = dot_general[contracting=([1], [0]), batch=([], [])] a b
              f: float32[4@X,6@Y] = dot_general[contracting=([1], [0]), batch=([], [])] c b
              g: float32[4@X,6@Y] = dot_general[contracting=([1], [0]), batch=([], [])] a d
              h: float32[4@X,6@Y] = add f g
              return e, h
            }
            cotangents: (a: float32[4@X,2], b: float32[2,6@Y], c: float32[4@X,6@Y]) {
              d: float32[6@Y,2] = dot_general[contracting=([0], [0]), batch=([], []), out=p!["Y", _]] c a
              e: float32[2,6@Y] = transpose[permutation=[1,0]] d
              f: float32[4@X,2] = dot_general[contracting=([1], [1]), batch=([], []), out=p!["X", _]] c b
              return f, e
            }
        "#;
        a_contraction_of_sharded_is_rejected: DotGeneral::matmul(), ["float32[4,2@X]", "float32[2@X,6]"] => r#"
            error: dimension 1 of operand 0, 2@X, and dimension 0 of operand 1, 2@X, are contracted: the result could be summed over X, summed and scattered, or left unreduced
            all-reduced: p![_, _]
            scattered: p!["X", _]
            left unreduced, to be summed later: p![_, _; U: "X"]
        "#;
    }
}
