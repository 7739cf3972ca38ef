//! Convolutions: products of which one operand is read by windows.

use super::{Window, adjoint, spread, windowed};
use crate::diagnostic::{Fault, Result};
use crate::mesh::Axes;
use crate::ops::build::{cotangent_type, not_linear};
use crate::ops::elementwise::{Takes, one_dtype};
use crate::ops::product::sums_in;
use crate::ops::shape::Rev;
use crate::ops::view::{arity, list, print_out, shape_fault};
use crate::program::factors::{Dim, Factors, Join, Linearity, Priority};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Read, Sentence};
use crate::program::typing;
use crate::program::{
    Back, Batch, Batched, Builder, Familiar, Forward, Of, Operand, Prim, Primitive, Tangents, Value, behind,
};
use crate::sharding::Spec;
use crate::sorted;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// A convolution of x with a filter w, both of any number of dimensions: a product (as `dot_general`) in which some dimensions of x
/// are read by windows, whose steps are dimensions of w. The filter is not turned round.
///
/// The result's dimensions are the batch dimensions, x's others, those of the windows and w's others, in the order that `order` says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// The dimensions of x and of w that run together, in pairs: groups.
    pub batch: [Vec<usize>; 2],
    /// The dimensions of x and of w that are summed, in pairs: features.
    pub contracting: [Vec<usize>; 2],
    /// The dimensions of x that windows move over, and those of w that are their steps, in pairs.
    pub spatial: [Vec<usize>; 2],
    /// How the windows are placed, for each such pair.
    pub windows: Vec<Window>,
    /// For each dimension of the result which one it is of: batch, x's others, windows, w's others.
    pub order: Vec<usize>,
    /// The sharding asked for the result.
    pub out: Option<Spec>,
    /// The element type of the result and of the sums; else that of the operands.
    pub preferred: Option<DType>,
}

impl Conv {
    /// Operand k's dimensions that are in no pair, in order.
    fn free(&self, k: usize, rank: usize) -> Vec<usize> {
        let paired = [&self.batch, &self.contracting, &self.spatial];
        (0..rank).filter(|d| !paired.iter().any(|p| p[k].contains(d))).collect()
    }
    /// The loop of the result's dimension that is number `c` before they are ordered.
    fn placed(&self, c: usize) -> usize {
        self.order.iter().position(|o| *o == c).unwrap_or(c)
    }
    /// For each dimension of operand k its loop: the result's dimensions, then the windows' steps, then what is summed. A dimension
    /// of x that windows move over has theirs.
    fn loops(&self, k: usize, ranks: [usize; 2]) -> Vec<usize> {
        let (batch, windows) = (self.batch[0].len(), self.windows.len());
        let free = self.free(k, ranks[k]);
        let before = if k == 0 { batch } else { batch + self.free(0, ranks[0]).len() + windows };
        let at = |list: &[usize], d: usize| list.iter().position(|x| *x == d);
        let of = |d: usize| {
            if let Some(i) = at(&self.batch[k], d) {
                self.placed(i)
            } else if let Some(i) = at(&free, d) {
                self.placed(before + i)
            } else if let Some(i) = at(&self.contracting[k], d) {
                self.order.len() + windows + i
            } else {
                let w = at(&self.spatial[k], d).unwrap_or(0);
                if k == 0 { self.window(w, ranks[0]) } else { self.order.len() + w }
            }
        };
        (0..ranks[k]).map(of).collect()
    }
    /// The loop over window w.
    fn window(&self, w: usize, rank: usize) -> usize {
        self.placed(self.batch[0].len() + self.free(0, rank).len() + w)
    }
    fn check(&self, operands: &[Operand]) -> Result<(), Fault> {
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
            return Err(shape_fault(format!("there are {windows} windows for {n} spatial dimensions")));
        }
        for (k, operand) in operands.iter().enumerate() {
            let dims: Vec<usize> = pairs.iter().flat_map(|p| &p.1[k]).copied().collect();
            for (i, d) in dims.iter().enumerate() {
                if *d >= operand.ty.rank() {
                    let rank = operand.ty.rank();
                    return Err(shape_fault(format!("operand {k} has no dimension {d}: its rank is {rank}")));
                }
                if dims[..i].contains(d) {
                    let m = format!("{} is named twice", operand.dimension(k, *d));
                    return Err(shape_fault(m).help("name each dimension once").dim(k, *d));
                }
            }
        }
        let (x, w) = (&operands[0].ty, &operands[1].ty);
        for (word, pair) in &pairs[..2] {
            for (&i, &j) in pair[0].iter().zip(&pair[1]) {
                if x.shape[i] != w.shape[j] {
                    let (a, b) = (operands[0].dimension(0, i), operands[1].dimension(1, j));
                    let (n, m) = (x.shape[i], w.shape[j]);
                    let told = format!("{a} has size {n}, {b} size {m}: {word} dimensions must be equal");
                    return Err(shape_fault(told)
                        .help(
                            "the filter has as many input features as the array (a group of it) has features",
                        )
                        .dim(0, i)
                        .dim(1, j));
                }
            }
        }
        let rank = x.rank() + w.rank() - self.batch[0].len() - 2 * self.contracting[0].len() - windows;
        let mut order = self.order.clone();
        sorted::sort(&mut order);
        if !order.into_iter().eq(0..rank) {
            let order = list(&self.order);
            return Err(shape_fault(format!("{order} is no order of the result's {rank} dimensions")));
        }
        Ok(())
    }
    /// The sizes of the result's dimensions before they are ordered.
    fn sizes(&self, x: &ArrayType, w: &ArrayType) -> Result<Vec<usize>, Fault> {
        let mut sizes: Vec<usize> = self.batch[0].iter().map(|d| x.shape[*d]).collect();
        sizes.extend(self.free(0, x.rank()).into_iter().map(|d| x.shape[d]));
        for ((window, &i), &j) in self.windows.iter().zip(&self.spatial[0]).zip(&self.spatial[1]) {
            sizes.push(window.count(i, x.shape[i], w.shape[j])?);
        }
        sizes.extend(self.free(1, w.rank()).into_iter().map(|d| w.shape[d]));
        Ok(sizes)
    }

    /// The cotangent of x: the result's cotangent, taken apart by the strides, under the filter turned round.
    fn cotangent_of_x(&self, b: &mut Builder, ct: &Value, w: &Value, types: &[ArrayType]) -> Result<Value> {
        let (x, want) = (&types[0], cotangent_type(&types[0]));
        let ranks = [types[0].rank(), types[1].rank()];
        let (loops, others) = (self.loops(0, ranks), self.loops(1, ranks));
        let at = |dims: &[usize], loops: &[usize]| -> Vec<usize> { dims.iter().map(|d| loops[*d]).collect() };
        let (free, inputs) = (self.free(0, ranks[0]), {
            // the filter's own dimensions in the next product, in order
            let mut dims = self.contracting[1].clone();
            sorted::sort(&mut dims);
            dims
        });
        let outputs = self.free(1, ranks[1]);
        let windows = self.windows.iter().enumerate().map(|(k, o)| {
            let (n, m) = (x.shape[self.spatial[0][k]], ct.ty.shape[loops[self.spatial[0][k]]]);
            let taps = w.ty.shape[self.spatial[1][k]];
            adjoint(o, n, m, taps)
        });
        let (batch, lead) = (self.batch[0].len(), self.batch[0].len() + free.len());
        let place = |d: usize| {
            let of = |list: &[usize]| list.iter().position(|x| *x == d);
            if let Some(i) = of(&self.batch[0]) {
                i
            } else if let Some(i) = of(&free) {
                // in the order in which the cotangent has them
                let mut dims: Vec<usize> = at(&free, &loops);
                sorted::sort(&mut dims);
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
            order: (0..ranks[0]).map(place).collect(),
            out: None,
            preferred: (ct.ty.dtype != want.dtype).then_some(want.dtype),
        };
        let w = b.convert(w, ct.ty.dtype)?;
        let turned: Vec<usize> = self.spatial[1].iter().copied().filter(|d| w.ty.shape[*d] > 1).collect();
        let w = match turned[..] {
            [] => w,
            _ => b.emit1(Arc::new(Rev { dimensions: turned }), &[w])?,
        };
        let make = |out| Arc::new(Conv { out, ..conv.clone() }) as Prim;
        b.emit_as(make, &[ct.clone(), w], want.spec)
    }
    /// The cotangent of the filter: x under the result's cotangent, strides and dilations traded, summed over x's other dimensions.
    fn cotangent_of_w(&self, b: &mut Builder, ct: &Value, x: &Value, types: &[ArrayType]) -> Result<Value> {
        let (w, want) = (&types[1], cotangent_type(&types[1]));
        let ranks = [types[0].rank(), types[1].rank()];
        let (loops, others) = (self.loops(0, ranks), self.loops(1, ranks));
        let at = |dims: &[usize], loops: &[usize]| -> Vec<usize> { dims.iter().map(|d| loops[*d]).collect() };
        let free = self.free(0, ranks[0]);
        let windows = self.windows.iter().enumerate().map(|(k, o)| {
            let (n, m) = (x.ty.shape[self.spatial[0][k]], ct.ty.shape[loops[self.spatial[0][k]]]);
            let taps = w.shape[self.spatial[1][k]];
            let high = (taps as i128 - 1) * o.dilation as i128 + spread(m, o.stride)
                - spread(n, o.base)
                - i128::from(o.low);
            Window { stride: o.dilation, low: o.low, high: high as i64, base: o.base, dilation: o.stride }
        });
        let mut inputs = self.contracting[0].clone();
        sorted::sort(&mut inputs);
        let mut outputs: Vec<usize> = at(&self.free(1, ranks[1]), &others);
        sorted::sort(&mut outputs);
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
            order: (0..ranks[1]).map(place).collect(),
            out: None,
            preferred: (ct.ty.dtype != want.dtype).then_some(want.dtype),
        };
        let x = b.convert(x, ct.ty.dtype)?;
        let make = |out| Arc::new(Conv { out, ..conv.clone() }) as Prim;
        b.emit_as(make, &[x, ct.clone()], want.spec)
    }
}

impl Primitive for Conv {
    fn name(&self) -> &'static str {
        "conv_general_dilated"
    }
    fn params(&self) -> String {
        let pair = |p: &[Vec<usize>; 2]| format!("({}, {})", list(&p[0]), list(&p[1]));
        let batch =
            if self.batch[0].is_empty() { String::new() } else { format!("batch={}, ", pair(&self.batch)) };
        let preferred = self.preferred.map(|d| format!(", preferred={d}")).unwrap_or_default();
        let windows: Vec<String> = self.windows.iter().map(|w| format!("({w})")).collect();
        format!(
            "{batch}contracting={}, spatial={}, windows=[{}], order={}{}{preferred}",
            pair(&self.contracting),
            pair(&self.spatial),
            windows.join(", "),
            list(&self.order),
            print_out(self.out)
        )
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity(self.name(), operands, 2)?;
        self.check(operands)?;
        let dtype = one_dtype(operands, 0)?;
        Takes::Number.check(operands, 0)?;
        let sums = sums_in(dtype, self.preferred)?;
        let sizes = self.sizes(&operands[0].ty, &operands[1].ty)?;
        Ok(vec![(sums, self.order.iter().map(|c| sizes[*c]).collect())])
    }
    /// By the factors, but that a filter split over axes of size 1 is whole.
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let [x, w] = operands else { return typing::by_factors(self, operands) };
        let Some(mesh) = w.ty.mesh.clone() else { return typing::by_factors(self, operands) };
        let entries = |e: &Axes| e.iter().filter(|a| mesh.extent(*a) > 1).collect::<Axes>();
        let dims: Vec<Axes> = w.ty.spec.dims().iter().map(entries).collect();
        if dims[..] == *w.ty.spec.dims() {
            return typing::by_factors(self, operands);
        }
        let mut whole = w.clone();
        whole.ty.spec = w.ty.spec.with_dims(dims);
        typing::by_factors(self, &[x.clone(), whole])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let ranks = [operands[0].rank(), operands[1].rank()];
        let mut f = Factors::default();
        let steps: Vec<usize> = self.spatial[1].iter().map(|d| operands[1].shape[*d]).collect();
        let windows: Vec<usize> = (0..self.windows.len()).map(|w| self.window(w, ranks[0])).collect();
        for (r, &n) in results[0].1.iter().enumerate() {
            if self.order[r] < self.batch[0].len() {
                f.add_joined(n, Join::First);
            } else if let Some(w) = windows.iter().position(|l| *l == r) {
                f.add(n.max(operands[0].shape[self.spatial[0][w]]));
            } else {
                f.add(n);
            }
        }
        for n in &steps {
            f.add_joined(*n, Join::Never);
        }
        for d in &self.contracting[0] {
            f.add(operands[0].shape[*d]);
        }
        let mut x = Dim::each(self.loops(0, ranks));
        for ((window, d), n) in self.windows.iter().zip(&self.spatial[0]).zip(&steps) {
            x[*d].at = window.at(*n);
        }
        f.operands = vec![x, Dim::each(self.loops(1, ranks))];
        f.results = vec![Dim::each(0..results[0].1.rank())];
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::Contraction
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
        let of =
            |b: &mut Builder, x: &Value, w: &Value| b.emit1(Arc::new(self.clone()), &[x.clone(), w.clone()]);
        let one = tangents[0].as_ref().map(|t| of(b, t, &operands[1])).transpose()?;
        let two = tangents[1].as_ref().map(|t| of(b, &operands[0], t)).transpose()?;
        Ok(vec![b.sum_of(one, two)?])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        match operands {
            [None, Some(w)] => Ok(vec![Some(self.cotangent_of_x(b, ct, w, types)?), None]),
            [Some(x), None] => Ok(vec![None, Some(self.cotangent_of_w(b, ct, x, types)?)]),
            _ => Err(not_linear(self.name())),
        }
    }
    fn familiar(&self, operands: &[ArrayType]) -> Option<Familiar> {
        let [x, w] = operands else { return None };
        let free = [self.free(0, x.rank()), self.free(1, w.rank())];
        let one = self.batch[0].is_empty() && self.contracting[0].len() == 1 && !self.windows.is_empty();
        if !one || free[0].len() != 1 || free[1].len() != 1 {
            return None;
        }
        let of = |k: usize, d: usize| match self.spatial[k].iter().position(|s| *s == d) {
            Some(i) => Of::Spatial(i),
            None if self.contracting[k].contains(&d) => Of::Feature,
            None => Of::Outer,
        };
        let last = self.windows.len() + 1;
        let result = self.order.iter().map(|c| match *c {
            0 => Of::Outer,
            c if c == last => Of::Feature,
            c => Of::Spatial(c - 1),
        });
        let placed = |w: &Window| [w.stride as i64, w.low, w.high, w.base as i64, w.dilation as i64];
        Some(Familiar::Convolution {
            array: (0..x.rank()).map(|d| of(0, d)).collect(),
            filter: (0..w.rank()).map(|d| of(1, d)).collect(),
            result: result.collect(),
            windows: self.windows.iter().map(placed).collect(),
        })
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (x, w, y) = (&operands[0], &operands[1], &results[0]);
        let (dtype, rank, ranks) = (y.dtype, y.rank(), [x.rank(), w.rank()]);
        let mut extents = y.shape.to_vec();
        extents.extend(self.spatial[1].iter().map(|d| w.shape[*d]));
        extents.extend(self.contracting[0].iter().map(|d| x.shape[*d]));
        let map: Vec<Affine> = self.loops(0, ranks).into_iter().map(|l| Affine::of(0, l, 1)).collect();
        let loops: Vec<[usize; 2]> =
            (0..self.windows.len()).map(|k| [self.window(k, ranks[0]), rank + k]).collect();
        let parts = windowed(&self.windows, &self.spatial[0], &loops, &extents, &map);
        let filter: Vec<_> = self.loops(1, ranks).into_iter().map(Some).collect();
        let reads = vec![
            Read { dtype: x.dtype, parts, fill: Scalar::zero(x.dtype) },
            Read::plain(1, w.dtype, &extents, &filter),
        ];
        let narrow = matches!(dtype, DType::F16 | DType::BF16);
        // one feature in and one out: no matrices, but windows weighed by numbers
        let product = |dims: &mut dyn Iterator<Item = usize>| dims.product::<usize>();
        let summed = product(&mut self.contracting[0].iter().map(|d| x.shape[*d]));
        let made = product(&mut self.free(1, ranks[1]).into_iter().map(|d| w.shape[d]));
        let body = if summed == 1 && made == 1 && !narrow && !self.windows.is_empty() {
            let mut code = Code { insts: Vec::new() };
            let factor = |code: &mut Code, k: usize, from: DType| match from == dtype {
                true => Arg::Read(k),
                false => code.push(Fun::Convert, from, dtype, &[Arg::Read(k)]),
            };
            let (a, b) = (factor(&mut code, 0, x.dtype), factor(&mut code, 1, w.dtype));
            code.push(Fun::Mul, dtype, dtype, &[a, b]);
            Body::Fold { combine: Combine::Add, code }
        } else {
            // sums of 16-bit floats are kept in 32 bits
            Body::Product { accumulate: if narrow { DType::F32 } else { dtype } }
        };
        vec![Sentence { extents, rank, dtype, reads, body }]
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        let dims = |k: usize, dims: &[usize]| if batch.mapped[k] { behind(dims) } else { dims.to_vec() };
        let both = |pair: &[Vec<usize>; 2]| [dims(0, &pair[0]), dims(1, &pair[1])];
        let mut groups = both(&self.batch);
        let ranks = [0, 1].map(|k| batch.operands[k].rank() - usize::from(batch.mapped[k]));
        // the examples are a group, or a dimension of one operand's own: the first
        let new = match batch.mapped {
            [true, true] => {
                groups.iter_mut().for_each(|dims| dims.insert(0, 0));
                0
            }
            [true, _] => self.batch[0].len(),
            _ => self.batch[0].len() + self.free(0, ranks[0]).len() + self.windows.len(),
        };
        let others = self.order.iter().map(|c| c + usize::from(*c >= new));
        Batched::of(Arc::new(Conv {
            batch: groups,
            contracting: both(&self.contracting),
            spatial: both(&self.spatial),
            order: std::iter::once(new).chain(others).collect(),
            out: batch.out(self.out, 0),
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    /// One spatial dimension in the middle: `[batch, size, features]`, `[steps, in, out]`.
    fn conv(window: Window) -> Conv {
        Conv {
            batch: [vec![], vec![]],
            contracting: [vec![2], vec![1]],
            spatial: [vec![1], vec![0]],
            windows: vec![window],
            order: vec![0, 1, 2],
            out: None,
            preferred: None,
        }
    }

    check_prim! {
        a_convolution_of_a_split_dimension: conv(Window { low: 1, high: 1, ..Window::default() }),
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
        strides_are_set_apart_again: conv(Window { stride: 2, low: 1, high: 0, ..Window::default() }),
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
        an_array_set_apart: conv(Window { base: 3, dilation: 2, low: 2, high: -1, ..Window::default() }),
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
            refused: dimension 0 of operand 1, 4@X, must be unsharded here
            say the result's sharding: p![_, _, _]
            reshard operand 1: `.reshard(p![_, _, _])`
        "#;
        features_that_differ: conv(Window::default()), ["float32[2,8,2]", "float32[4,3,4]"] => r#"
            refused: dimension 2 of operand 0 has size 2, dimension 1 of operand 1 size 3: contracting dimensions must be equal
            the filter has as many input features as the array (a group of it) has features
        "#;
        a_stride_of_0: conv(Window { stride: 0, ..Window::default() }), ["float32[2,8,2]", "float32[4,2,4]"] => r#"
            refused: the stride along dimension 1 is 0
            steps are 1 and more
        "#;
        a_size_that_its_axes_do_not_divide: conv(Window::default()), ["float32[2,8@X,2]", "float32[2,2,4]"] => r#"
            refused: dimension 1 of the result has size 7, which X does not divide into 2 equal parts
            reshard operand 0: `.reshard(p![_, _, _])`
        "#;
    }
}
