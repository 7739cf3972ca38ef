//! Convolutions, which are products with windows of one operand.

use super::{Window, dilated_size, transposed_window, windowed_access};
use crate::core::{ArrayType, Axes, DType, Fault, Precision, Result, Scalar, Shape, Spec, util::small_sort};
use crate::ir::ops::dim_check::{arity, format_list, format_out_sharding, shape_fault};
use crate::ir::ops::dot_general::{accumulation_dtype, format_precision};
use crate::ir::ops::elementwise::{DTypeClass, common_dtype};
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{
    Access, AffineExpr, BatchedOp, Builder, Compute, ConvDim, Dim, ExplicitRule, Factors, JvpArgs, Linearity,
    LoopNest, NamedOp, Prim, Primitive, Reducer, ScalarArg, ScalarCode, ScalarOp, Tangents, TransposeArgs,
    TypedOperand, Value, VmapArgs, shifted_dims, typing,
};
use crate::ir::{ops::shape::Rev, ops::structural::out_sharding_rules};
use std::sync::Arc;

/// The convolution of an array x with a filter w, both of any rank.
///
/// This is a product as in `dot_general`, but some dimensions of x are read through windows, and
/// the steps within a window are dimensions of w. The filter is not reversed (this is a
/// cross-correlation). The dimensions of the result are batch dimensions, free dimensions of x,
/// windows, and free dimensions of w, permuted by `output_order`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// The batch dimensions (feature groups) of x and w, in pairs.
    pub batch: [Vec<usize>; 2],
    /// The contracted dimensions (features) of x and w, in pairs.
    pub contracting: [Vec<usize>; 2],
    /// The dimensions of x that windows move over and of w that are window steps, in pairs.
    pub spatial: [Vec<usize>; 2],
    /// The window parameters for each pair of spatial dimensions.
    pub windows: Vec<Window>,
    /// For each dimension of the result, its index in the order batch, free x, windows, free w.
    pub output_order: Vec<usize>,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
    /// The element type of the sums and of the result.
    /// `None` for that of the operands.
    pub accum_dtype: Option<DType>,
    /// The precision of float32 products on XLA's accelerators.
    pub precision: Precision,
}

impl Conv {
    /// Returns the dimensions of operand `k` that are in no pair, in order.
    fn free_dims(&self, k: usize, rank: usize) -> Vec<usize> {
        let paired = [&self.batch, &self.contracting, &self.spatial];
        (0..rank).filter(|d| !paired.iter().any(|p| p[k].contains(d))).collect()
    }
    /// Returns the loop of the result dimension with index `c` before `output_order` is applied.
    fn result_loop(&self, c: usize) -> usize {
        self.output_order.iter().position(|o| *o == c).unwrap_or(c)
    }
    /// Returns the loop of each dimension of operand `k`.
    ///
    /// The loops are, in order: dimensions of the result, window steps, contracted dimensions. A
    /// spatial dimension of x has the loop of its windows.
    fn loops(&self, k: usize, ranks: [usize; 2]) -> Vec<usize> {
        let (batch, windows) = (self.batch[0].len(), self.windows.len());
        let free = self.free_dims(k, ranks[k]);
        let before = if k == 0 { batch } else { batch + self.free_dims(0, ranks[0]).len() + windows };
        let at = |list: &[usize], d: usize| list.iter().position(|x| *x == d);
        let of = |d: usize| {
            if let Some(i) = at(&self.batch[k], d) {
                self.result_loop(i)
            } else if let Some(i) = at(&free, d) {
                self.result_loop(before + i)
            } else if let Some(i) = at(&self.contracting[k], d) {
                self.output_order.len() + windows + i
            } else {
                let w = at(&self.spatial[k], d).unwrap_or(0);
                if k == 0 { self.window_loop(w, ranks[0]) } else { self.output_order.len() + w }
            }
        };
        (0..ranks[k]).map(of).collect()
    }
    /// Returns the loop over the windows of spatial dimension `w`.
    fn window_loop(&self, w: usize, rank: usize) -> usize {
        self.result_loop(self.batch[0].len() + self.free_dims(0, rank).len() + w)
    }
    /// Returns an error if the dimension numbers do not fit the operands.
    fn check(&self, operands: &[TypedOperand]) -> Result<(), Fault> {
        let pairs = [("contracting", &self.contracting), ("batch", &self.batch), ("spatial", &self.spatial)];
        for (word, pair) in pairs {
            let (a, b) = (pair[0].len(), pair[1].len());
            if a != b {
                return Err(shape_fault(format!(
                    "there are {a} {word} dimensions of operand 0, but {b} of operand 1"
                )));
            }
        }
        let (windows, n) = (self.windows.len(), self.spatial[0].len());
        if windows != n {
            return Err(fault!(Shape, "there are {windows} windows for {n} spatial dimensions"));
        }
        for (k, operand) in operands.iter().enumerate() {
            let dims: Vec<usize> = pairs.iter().flat_map(|p| &p.1[k]).copied().collect();
            for (i, d) in dims.iter().enumerate() {
                if *d >= operand.ty.rank() {
                    let rank = operand.ty.rank();
                    return Err(fault!(Shape, "operand {k} has no dimension {d}: its rank is {rank}"));
                }
                if dims[..i].contains(d) {
                    let m = format!("{} is named twice", operand.describe_dim(k, *d));
                    return Err(shape_fault(m).help("name each dimension once").highlight_dim(k, *d));
                }
            }
        }
        let (x, w) = (&operands[0].ty, &operands[1].ty);
        for (word, pair) in &pairs[..2] {
            for (&i, &j) in pair[0].iter().zip(&pair[1]) {
                if x.shape[i] != w.shape[j] {
                    let (a, b) = (operands[0].describe_dim(0, i), operands[1].describe_dim(1, j));
                    let (n, m) = (x.shape[i], w.shape[j]);
                    let message = format!("{a} has size {n}, {b} size {m}: {word} dimensions must be equal");
                    return Err(shape_fault(message)
                        .help(
                            "the filter has as many input features as the array (a group of it) has features",
                        )
                        .highlight_dim(0, i)
                        .highlight_dim(1, j));
                }
            }
        }
        let rank = x.rank() + w.rank() - self.batch[0].len() - 2 * self.contracting[0].len() - windows;
        let mut order = self.output_order.clone();
        small_sort::sort(&mut order);
        if !order.into_iter().eq(0..rank) {
            let order = format_list(&self.output_order);
            return Err(fault!(Shape, "{order} is no order of the result's {rank} dimensions"));
        }
        Ok(())
    }
    /// Returns the sizes of the result dimensions before `output_order` is applied.
    fn unordered_sizes(&self, x: &ArrayType, w: &ArrayType) -> Result<Vec<usize>, Fault> {
        let mut sizes: Vec<usize> = self.batch[0].iter().map(|d| x.shape[*d]).collect();
        sizes.extend(self.free_dims(0, x.rank()).into_iter().map(|d| x.shape[d]));
        for ((window, &i), &j) in self.windows.iter().zip(&self.spatial[0]).zip(&self.spatial[1]) {
            sizes.push(window.num_windows(i, x.shape[i], w.shape[j])?);
        }
        sizes.extend(self.free_dims(1, w.rank()).into_iter().map(|d| w.shape[d]));
        Ok(sizes)
    }

    /// Returns the cotangent of x.
    ///
    /// It is the convolution of the result's cotangent, dilated by the strides, with the reversed
    /// filter.
    fn input_cotangent(&self, b: &mut Builder, ct: &Value, w: &Value, types: &[ArrayType]) -> Result<Value> {
        let (x, expected) = (&types[0], cotangent_type(&types[0]));
        let ranks = [types[0].rank(), types[1].rank()];
        let (loops, others) = (self.loops(0, ranks), self.loops(1, ranks));
        let at = |dims: &[usize], loops: &[usize]| -> Vec<usize> { dims.iter().map(|d| loops[*d]).collect() };
        let (free, inputs) = (self.free_dims(0, ranks[0]), {
            // The free dimensions of the filter in this convolution, in order.
            let mut dims = self.contracting[1].clone();
            small_sort::sort(&mut dims);
            dims
        });
        let outputs = self.free_dims(1, ranks[1]);
        let windows = self.windows.iter().enumerate().map(|(k, o)| {
            let (n, m) = (x.shape[self.spatial[0][k]], ct.ty.shape[loops[self.spatial[0][k]]]);
            let taps = w.ty.shape[self.spatial[1][k]];
            transposed_window(o, n, m, taps)
        });
        let (batch, lead) = (self.batch[0].len(), self.batch[0].len() + free.len());
        let place = |d: usize| {
            let of = |list: &[usize]| list.iter().position(|x| *x == d);
            if let Some(i) = of(&self.batch[0]) {
                i
            } else if let Some(i) = of(&free) {
                // list the dimensions in the order of the cotangent
                let mut dims: Vec<usize> = at(&free, &loops);
                small_sort::sort(&mut dims);
                batch + dims.iter().position(|l| *l == loops[free[i]]).unwrap_or(i)
            } else if let Some(i) = of(&self.spatial[0]) {
                lead + i
            } else {
                let i = of(&self.contracting[0]).unwrap_or(0);
                let pair = self.contracting[1][i];
                lead + self.windows.len() + inputs.iter().position(|d| *d == pair).unwrap_or(i)
            }
        };
        let conv = Conv {
            batch: [at(&self.batch[1], &others), self.batch[1].clone()],
            contracting: [at(&outputs, &others), outputs],
            spatial: [at(&self.spatial[0], &loops), self.spatial[1].clone()],
            windows: windows.collect(),
            output_order: (0..ranks[0]).map(place).collect(),
            out_sharding: None,
            accum_dtype: (ct.ty.dtype != expected.dtype).then_some(expected.dtype),
            precision: self.precision,
        };
        let w = b.convert(w, ct.ty.dtype)?;
        let turned: Vec<usize> = self.spatial[1].iter().copied().filter(|d| w.ty.shape[*d] > 1).collect();
        let w = match turned[..] {
            [] => w,
            _ => b.emit1(Arc::new(Rev { dimensions: turned }), &[w])?,
        };
        let make = |out| Arc::new(Conv { out_sharding: out, ..conv.clone() }) as Prim;
        b.emit_with_sharding(&make, &[ct.clone(), w], expected.spec)
    }
    /// Returns the cotangent of the filter.
    ///
    /// It is the convolution of x with the result's cotangent, with strides and dilations swapped,
    /// summed over the free dimensions of x.
    fn filter_cotangent(&self, b: &mut Builder, ct: &Value, x: &Value, types: &[ArrayType]) -> Result<Value> {
        let (w, expected) = (&types[1], cotangent_type(&types[1]));
        let ranks = [types[0].rank(), types[1].rank()];
        let (loops, others) = (self.loops(0, ranks), self.loops(1, ranks));
        let at = |dims: &[usize], loops: &[usize]| -> Vec<usize> { dims.iter().map(|d| loops[*d]).collect() };
        let free = self.free_dims(0, ranks[0]);
        let windows = self.windows.iter().enumerate().map(|(k, o)| {
            let (n, m) = (x.ty.shape[self.spatial[0][k]], ct.ty.shape[loops[self.spatial[0][k]]]);
            let taps = w.shape[self.spatial[1][k]];
            let high = (taps as i128 - 1) * o.window_dilation as i128 + dilated_size(m, o.stride)
                - dilated_size(n, o.base_dilation)
                - i128::from(o.padding_low);
            Window {
                stride: o.window_dilation,
                padding_low: o.padding_low,
                padding_high: high as i64,
                base_dilation: o.base_dilation,
                window_dilation: o.stride,
            }
        });
        let mut inputs = self.contracting[0].clone();
        small_sort::sort(&mut inputs);
        let mut outputs: Vec<usize> = at(&self.free_dims(1, ranks[1]), &others);
        small_sort::sort(&mut outputs);
        let (batch, lead) = (self.batch[0].len(), self.batch[0].len() + inputs.len());
        let place = |d: usize| {
            let of = |list: &[usize]| list.iter().position(|x| *x == d);
            if let Some(i) = of(&self.batch[1]) {
                i
            } else if let Some(i) = of(&self.contracting[1]) {
                let pair = self.contracting[0][i];
                batch + inputs.iter().position(|d| *d == pair).unwrap_or(i)
            } else if let Some(i) = of(&self.spatial[1]) {
                lead + i
            } else {
                lead + self.windows.len() + outputs.iter().position(|l| *l == others[d]).unwrap_or(0)
            }
        };
        let conv = Conv {
            batch: [self.batch[0].clone(), at(&self.batch[0], &loops)],
            contracting: [free.clone(), at(&free, &loops)],
            spatial: [self.spatial[0].clone(), at(&self.spatial[0], &loops)],
            windows: windows.collect(),
            output_order: (0..ranks[1]).map(place).collect(),
            out_sharding: None,
            accum_dtype: (ct.ty.dtype != expected.dtype).then_some(expected.dtype),
            precision: self.precision,
        };
        let x = b.convert(x, ct.ty.dtype)?;
        let make = |out| Arc::new(Conv { out_sharding: out, ..conv.clone() }) as Prim;
        b.emit_with_sharding(&make, &[x, ct.clone()], expected.spec)
    }
}

impl Primitive for Conv {
    described!(self, "conv_general_dilated", Linearity::Contraction);
    fn params(&self) -> String {
        let pair = |p: &[Vec<usize>; 2]| format!("({}, {})", format_list(&p[0]), format_list(&p[1]));
        let batch =
            if self.batch[0].is_empty() { String::new() } else { format!("batch={}, ", pair(&self.batch)) };
        let preferred = self.accum_dtype.map(|d| format!(", preferred={d}")).unwrap_or_default();
        let windows: Vec<String> = self.windows.iter().map(|w| format!("({w})")).collect();
        format!(
            "{batch}contracting={}, spatial={}, windows=[{}], order={}{}{preferred}{}",
            pair(&self.contracting),
            pair(&self.spatial),
            windows.join(", "),
            format_list(&self.output_order),
            format_out_sharding(self.out_sharding),
            format_precision(self.precision)
        )
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity(self.name(), operands, 2)?;
        self.check(operands)?;
        let dtype = common_dtype(operands, 0)?;
        DTypeClass::Number.check(operands, 0)?;
        let sums = accumulation_dtype(dtype, self.accum_dtype)?;
        let sizes = self.unordered_sizes(&operands[0].ty, &operands[1].ty)?;
        Ok(vec![(sums, self.output_order.iter().map(|c| sizes[*c]).collect())])
    }
    /// Infers the type from the factors, but ignores axes of size 1 in the sharding of the filter.
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let [x, w] = operands else { return typing::by_factors(self, operands) };
        let Some(mesh) = w.ty.mesh.clone() else { return typing::by_factors(self, operands) };
        let entries = |e: &Axes| e.iter().filter(|a| mesh.extent(*a) > 1).collect::<Axes>();
        let dims: Vec<Axes> = w.ty.spec.dims().iter().map(entries).collect();
        if dims[..] == *w.ty.spec.dims() {
            return typing::by_factors(self, operands);
        }
        let mut unsharded = w.clone();
        unsharded.ty.spec = w.ty.spec.with_dims(dims);
        typing::by_factors(self, &[x.clone(), unsharded])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let ranks = [operands[0].rank(), operands[1].rank()];
        let mut f = Factors::default();
        let steps: Vec<usize> = self.spatial[1].iter().map(|d| operands[1].shape[*d]).collect();
        let windows: Vec<usize> = (0..self.windows.len()).map(|w| self.window_loop(w, ranks[0])).collect();
        for (r, &n) in results[0].1.iter().enumerate() {
            if self.output_order[r] < self.batch[0].len() {
                f.add_loop_with_rule(n, ExplicitRule::FirstWins);
            } else if let Some(w) = windows.iter().position(|l| *l == r) {
                f.add_loop(n.max(operands[0].shape[self.spatial[0][w]]));
            } else {
                f.add_loop(n);
            }
        }
        for n in &steps {
            f.add_loop_with_rule(*n, ExplicitRule::MustBeReplicated);
        }
        for d in &self.contracting[0] {
            f.add_loop(operands[0].shape[*d]);
        }
        let mut x = Dim::each(self.loops(0, ranks));
        for ((window, d), n) in self.windows.iter().zip(&self.spatial[0]).zip(&steps) {
            x[*d].map = window.dim_map(*n);
        }
        f.operands = vec![x, Dim::each(self.loops(1, ranks))];
        f.results = vec![Dim::each(0..results[0].1.rank())];
        f
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let of =
            |b: &mut Builder, x: &Value, w: &Value| b.emit1(Arc::new(self.clone()), &[x.clone(), w.clone()]);
        let one = tangents[0].as_ref().map(|t| of(b, t, &operands[1])).transpose()?;
        let two = tangents[1].as_ref().map(|t| of(b, &operands[0], t)).transpose()?;
        Ok(vec![b.add_optional(one, two)?])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        match operands {
            [None, Some(w)] => Ok(vec![Some(self.input_cotangent(b, ct, w, types)?), None]),
            [Some(x), None] => Ok(vec![None, Some(self.filter_cotangent(b, ct, x, types)?)]),
            _ => Err(not_linear_error(self.name())),
        }
    }
    fn named_op(&self, operands: &[ArrayType]) -> Option<NamedOp> {
        let [x, w] = operands else { return None };
        let free = [self.free_dims(0, x.rank()), self.free_dims(1, w.rank())];
        let one = self.batch[0].is_empty() && self.contracting[0].len() == 1 && !self.windows.is_empty();
        if !one || free[0].len() != 1 || free[1].len() != 1 {
            return None;
        }
        let of = |k: usize, d: usize| match self.spatial[k].iter().position(|s| *s == d) {
            Some(i) => ConvDim::Spatial(i),
            None if self.contracting[k].contains(&d) => ConvDim::Feature,
            None => ConvDim::BatchOrOutFeature,
        };
        let last = self.windows.len() + 1;
        let result = self.output_order.iter().map(|c| match *c {
            0 => ConvDim::BatchOrOutFeature,
            c if c == last => ConvDim::Feature,
            c => ConvDim::Spatial(c - 1),
        });
        let placed = |w: &Window| {
            [w.stride as i64, w.padding_low, w.padding_high, w.base_dilation as i64, w.window_dilation as i64]
        };
        Some(NamedOp::Convolution {
            array: (0..x.rank()).map(|d| of(0, d)).collect(),
            filter: (0..w.rank()).map(|d| of(1, d)).collect(),
            result: result.collect(),
            windows: self.windows.iter().map(placed).collect(),
            precision: self.precision,
        })
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, w, y) = (&operands[0], &operands[1], &results[0]);
        let (dtype, rank, ranks) = (y.dtype, y.rank(), [x.rank(), w.rank()]);
        let mut extents = y.shape.to_vec();
        extents.extend(self.spatial[1].iter().map(|d| w.shape[*d]));
        extents.extend(self.contracting[0].iter().map(|d| x.shape[*d]));
        let map: Vec<AffineExpr> =
            self.loops(0, ranks).into_iter().map(|l| AffineExpr::linear(0, l, 1)).collect();
        let loops: Vec<[usize; 2]> =
            (0..self.windows.len()).map(|k| [self.window_loop(k, ranks[0]), rank + k]).collect();
        let parts = windowed_access(&self.windows, &self.spatial[0], &loops, &extents, &map);
        let filter: Vec<_> = self.loops(1, ranks).into_iter().map(Some).collect();
        let reads = vec![
            Access { dtype: x.dtype, pieces: parts, fill: Scalar::zero(x.dtype) },
            Access::from_loops(1, w.dtype, &extents, &filter),
        ];
        let narrow = matches!(dtype, DType::F16 | DType::BF16);
        // with one input feature and one output feature, there are no matrices to multiply, only
        // weighted sums of windows
        let product = |dims: &mut dyn Iterator<Item = usize>| dims.product::<usize>();
        let summed = product(&mut self.contracting[0].iter().map(|d| x.shape[*d]));
        let made = product(&mut self.free_dims(1, ranks[1]).into_iter().map(|d| w.shape[d]));
        let body = if summed == 1 && made == 1 && !narrow && !self.windows.is_empty() {
            let mut code = ScalarCode { insts: Vec::new() };
            let factor = |code: &mut ScalarCode, k: usize, from: DType| match from == dtype {
                true => ScalarArg::Access(k),
                false => code.push(ScalarOp::Convert, from, dtype, &[ScalarArg::Access(k)]),
            };
            let (a, b) = (factor(&mut code, 0, x.dtype), factor(&mut code, 1, w.dtype));
            code.push(ScalarOp::Mul, dtype, dtype, &[a, b]);
            Compute::Reduce { reducer: Reducer::Add, code }
        } else {
            // Sums of 16-bit floats are accumulated in 32 bits.
            Compute::Contract {
                accum_dtype: if narrow { DType::F32 } else { dtype },
                precision: self.precision,
            }
        };
        vec![LoopNest { extents, rank, dtype, accesses: reads, compute: body }]
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let dims =
            |k: usize, dims: &[usize]| if batch.mapped[k] { shifted_dims(dims) } else { dims.to_vec() };
        let both = |pair: &[Vec<usize>; 2]| [dims(0, &pair[0]), dims(1, &pair[1])];
        let mut groups = both(&self.batch);
        let ranks = [0, 1].map(|k| batch.operands[k].rank() - usize::from(batch.mapped[k]));
        // the batch becomes a group, or the first free dimension of the operand that has it
        let new = match batch.mapped {
            [true, true] => {
                groups.iter_mut().for_each(|dims| dims.insert(0, 0));
                0
            }
            [true, _] => self.batch[0].len(),
            _ => self.batch[0].len() + self.free_dims(0, ranks[0]).len() + self.windows.len(),
        };
        let others = self.output_order.iter().map(|c| c + usize::from(*c >= new));
        BatchedOp::new(Arc::new(Conv {
            batch: groups,
            contracting: both(&self.contracting),
            spatial: both(&self.spatial),
            output_order: std::iter::once(new).chain(others).collect(),
            out_sharding: batch.out_sharding(self.out_sharding, 0),
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    /// Returns a convolution of `[batch, size, features]` with a filter `[steps, in, out]`.
    fn conv(window: Window) -> Conv {
        Conv {
            batch: [vec![], vec![]],
            contracting: [vec![2], vec![1]],
            spatial: [vec![1], vec![0]],
            windows: vec![window],
            output_order: vec![0, 1, 2],
            out_sharding: None,
            accum_dtype: None,
            precision: Precision::Highest,
        }
    }

    check_prim! {
        a_convolution_of_a_split_dimension: conv(Window { padding_low: 1, padding_high: 1, ..Window::default() }),
            ["float64[2@Y,8@X,2]", "float64[3,2,4]"] => r#"
            (a: float64[2@Y,8@X,2], b: float64[3,2,4]) {
              c: float64[2@Y,8@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 1 1)], order=[0,1,2]] a b
              return c
            }
            tangents: (a: float64[2@Y,8@X,2], b: float64[3,2,4], c: float64[2@Y,8@X,2], d: float64[3,2,4]) {
              e: float64[2@Y,8@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 1 1)], order=[0,1,2]] a b
              f: float64[2@Y,8@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 1 1)], order=[0,1,2]] c b
              g: float64[2@Y,8@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 1 1)], order=[0,1,2]] a d
              h: float64[2@Y,8@X,4] = add f g
              return e, h
            }
            cotangents: (a: float64[2@Y,8@X,2], b: float64[3,2,4], c: float64[2@Y,8@X,4]) {
              d: float64[3,2,4] = conv_general_dilated[contracting=([0], [0]), spatial=([1], [1]), windows=[(stride 1, pad 1 1)], order=[1,0,2], out=p![_, _, _]] a c
              e: float64[3,2,4] = rev[dims=[0]] b
              f: float64[2@Y,8@X,2] = conv_general_dilated[contracting=([2], [2]), spatial=([1], [0]), windows=[(stride 1, pad 1 1)], order=[0,1,2]] c e
              return f, d
            }
        "#;
        strides_are_set_apart_again: conv(Window { stride: 2, padding_low: 1, padding_high: 0, ..Window::default() }),
            ["float32[2@Y,8@X,2]", "float32[3,2,4]"] => r#"
            (a: float32[2@Y,8@X,2], b: float32[3,2,4]) {
              c: float32[2@Y,4@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 2, pad 1 0)], order=[0,1,2]] a b
              return c
            }
            tangents: (a: float32[2@Y,8@X,2], b: float32[3,2,4], c: float32[2@Y,8@X,2], d: float32[3,2,4]) {
              e: float32[2@Y,4@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 2, pad 1 0)], order=[0,1,2]] a b
              f: float32[2@Y,4@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 2, pad 1 0)], order=[0,1,2]] c b
              g: float32[2@Y,4@X,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 2, pad 1 0)], order=[0,1,2]] a d
              h: float32[2@Y,4@X,4] = add f g
              return e, h
            }
            cotangents: (a: float32[2@Y,8@X,2], b: float32[3,2,4], c: float32[2@Y,4@X,4]) {
              d: float32[3,2,4] = conv_general_dilated[contracting=([0], [0]), spatial=([1], [1]), windows=[(stride 1, pad 1 0, dilation 2)], order=[1,0,2], out=p![_, _, _]] a c
              e: float32[3,2,4] = rev[dims=[0]] b
              f: float32[2@Y,8@X,2] = conv_general_dilated[contracting=([2], [2]), spatial=([1], [0]), windows=[(stride 1, pad 1 2, base 2)], order=[0,1,2]] c e
              return f, d
            }
        "#;
        an_array_set_apart: conv(Window { base_dilation: 3, window_dilation: 2, padding_low: 2, padding_high: -1, ..Window::default() }),
            ["float64[2,4,2]", "float64[3,2,4]"] => r#"
            (a: float64[2,4,2], b: float64[3,2,4]) {
              c: float64[2,7,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 2 -1, dilation 2, base 3)], order=[0,1,2]] a b
              return c
            }
            tangents: (a: float64[2,4,2], b: float64[3,2,4], c: float64[2,4,2], d: float64[3,2,4]) {
              e: float64[2,7,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 2 -1, dilation 2, base 3)], order=[0,1,2]] a b
              f: float64[2,7,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 2 -1, dilation 2, base 3)], order=[0,1,2]] c b
              g: float64[2,7,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 1, pad 2 -1, dilation 2, base 3)], order=[0,1,2]] a d
              h: float64[2,7,4] = add f g
              return e, h
            }
            cotangents: (a: float64[2,4,2], b: float64[3,2,4], c: float64[2,7,4]) {
              d: float64[3,2,4] = conv_general_dilated[contracting=([0], [0]), spatial=([1], [1]), windows=[(stride 2, pad 2 -1, base 3)], order=[1,0,2]] a c
              e: float64[3,2,4] = rev[dims=[0]] b
              f: float64[2,4,2] = conv_general_dilated[contracting=([2], [2]), spatial=([1], [0]), windows=[(stride 3, pad 2 5, dilation 2)], order=[0,1,2]] c e
              return f, d
            }
        "#;
        a_window_beyond_the_array: conv(Window { stride: 3, ..Window::default() }), ["int32[2,2,2]", "int32[3,2,4]"] => r#"
            (a: int32[2,2,2], b: int32[3,2,4]) {
              c: int32[2,0,4] = conv_general_dilated[contracting=([2], [1]), spatial=([1], [0]), windows=[(stride 3, pad 0 0)], order=[0,1,2]] a b
              return c
            }
        "#;
        a_filter_whose_steps_are_split: conv(Window::default()), ["float32[2,8,2]", "float32[4@X,2,4]"] => r#"
            error: dimension 0 of operand 1, 4@X, must be unsharded here
            say the result's sharding: p![_, _, _]
            reshard operand 1: `.reshard(p![_, _, _])`
        "#;
        features_that_differ: conv(Window::default()), ["float32[2,8,2]", "float32[4,3,4]"] => r#"
            error: dimension 2 of operand 0 has size 2, dimension 1 of operand 1 size 3: contracting dimensions must be equal
            the filter has as many input features as the array (a group of it) has features
        "#;
        a_stride_of_0: conv(Window { stride: 0, ..Window::default() }), ["float32[2,8,2]", "float32[4,2,4]"] => r#"
            error: the stride along dimension 1 is 0
            steps are 1 and more
        "#;
        a_size_that_its_axes_do_not_divide: conv(Window::default()), ["float32[2,8@X,2]", "float32[2,2,4]"] => r#"
            error: dimension 1 of the result has size 7, which X does not divide into 2 equal parts
            reshard operand 0: `.reshard(p![_, _, _])`
        "#;
    }
}
