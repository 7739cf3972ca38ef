//! Writes named operations, for which StableHLO has an operation or needs only a few.
//!
//! Examples are sorts, running reductions, FFTs, factorisations and convolutions.

use super::ragged_dot::RaggedDims;
use super::syntax::{join, list};
use super::writer::{Ssa, Writer, accum_dtype, names, precision_name, types};
use super::{FaultResult, unsupported};
use crate::core::{ArrayType, DType, Precision, Scalar};
use crate::ir::program::{ConvDim, FftType, NamedOp, Reducer};

impl Writer {
    pub(super) fn named_op(
        &mut self,
        what: &NamedOp,
        results: &[ArrayType],
        ins: &[Ssa],
    ) -> FaultResult<Vec<Ssa>> {
        let x = ins.first().ok_or_else(|| unsupported("an operation without operands"))?;
        Ok(match what {
            NamedOp::Sort { axis, num_keys: keys, indices: places } => {
                if ins[..*keys].iter().any(|x| x.dtype.is_complex()) {
                    return Err(unsupported("an order of complex numbers has no StableHLO"));
                }
                let mut columns = ins.to_vec();
                if *places {
                    columns.push(self.iota(*axis, DType::I32, &x.shape));
                }
                let mut out = self.sorted(&columns, *axis, *keys, false);
                if *places { out.split_off(ins.len()) } else { out }
            }
            NamedOp::TopK { axis, k } => {
                let columns = [x.clone(), self.iota(*axis, DType::I32, &x.shape)];
                let sorted = self.sorted(&columns, *axis, 1, true);
                let mut bounds: Vec<[i64; 3]> = x.shape.iter().map(|n| [0, *n as i64, 1]).collect();
                bounds[*axis][1] = *k as i64;
                sorted.iter().map(|s| self.slice(s, &bounds)).collect()
            }
            NamedOp::Cumulative { axis, reverse, reducer: combine } => {
                vec![self.running_reduction(x, *axis, *reverse, *combine)]
            }
            NamedOp::Recurrence { axis, reverse } => {
                let wide = accum_dtype(x.dtype);
                let (a, b) = (self.convert(x, wide), self.convert(&ins[1], wide));
                let h = self.recurrence(a, b, *axis, *reverse);
                vec![self.convert(&h, x.dtype)]
            }
            NamedOp::Fourier { kind, lengths } => {
                let word = match kind {
                    FftType::Forward => "FFT",
                    FftType::Inverse => "IFFT",
                    FftType::Real => "RFFT",
                    FftType::InverseReal => "IRFFT",
                };
                let text = format!("stablehlo.fft {}, type = {word}, length = {}", x.name, list(lengths));
                vec![self.typed(&text, &[x], results[0].dtype, &results[0].shape)]
            }
            NamedOp::Cholesky => vec![self.cholesky(x)],
            NamedOp::TriangularSolve { left_side, lower, transpose_a, unit_diagonal } => {
                let turned = if *transpose_a { "TRANSPOSE" } else { "NO_TRANSPOSE" };
                let text = format!(
                    "\"stablehlo.triangular_solve\"({}) <{{left_side = {left_side}, lower = {lower}, transpose_a = #stablehlo<transpose {turned}>, unit_diagonal = {unit_diagonal}}}>",
                    names(ins)
                );
                vec![self.typed(&text, &[x, &ins[1]], results[0].dtype, &results[0].shape)]
            }
            NamedOp::RaggedDot { per_group, num_batch_dims, num_row_dims, precision } => {
                let dims = RaggedDims { batch: *num_batch_dims, rows: *num_row_dims };
                let operands = [x, &ins[1], &ins[2]];
                vec![match per_group {
                    true => self.ragged_dot_per_group(operands, dims, *precision)?,
                    false => self.ragged_dot_per_row(operands, dims, *precision)?,
                }]
            }
            NamedOp::Convolution { array, filter, result, windows, precision } => {
                let dims = [array, filter, result];
                vec![self.convolution([x, &ins[1]], dims, windows, *precision, &results[0])]
            }
        })
    }

    /// Sorts columns along an axis by the first `keys` of them, in ascending or descending order.
    /// NaN counts as greater than all other values.
    fn sorted(&mut self, columns: &[Ssa], axis: usize, keys: usize, falling: bool) -> Vec<Ssa> {
        let shapes: Vec<_> = columns.iter().map(|c| (c.dtype, c.shape.clone())).collect();
        let (head, outs) = self.results(&shapes);
        self.fragment(&format!(
            "{head}\"stablehlo.sort\"({}) <{{dimension = {axis} : i64, is_stable = true}}> ({{",
            names(columns)
        ));
        let pairs: Vec<DType> = columns.iter().flat_map(|c| [c.dtype, c.dtype]).collect();
        self.indented(|w| {
            w.scalar_region(&pairs, |w, args| {
                let mut before: Option<Ssa> = None;
                for k in (0..keys).rev() {
                    let (a, b) = (&args[2 * k], &args[2 * k + 1]);
                    let (a, b) = if falling { (b, a) } else { (a, b) };
                    let (less, equal) = w.total_order(a, b);
                    before = Some(match before {
                        None => less,
                        Some(rest) => {
                            let rest = w.elementwise("and", &[&equal, &rest]);
                            w.elementwise("or", &[&less, &rest])
                        }
                    });
                }
                vec![before.unwrap_or_else(|| w.constant(DType::Bool, Scalar::Bool(false), &[]))]
            });
        });
        self.line(&format!("}}) : ({}) -> ({})", types(columns), join(outs.iter().map(Ssa::ty))));
        outs
    }
    /// Compares `a` with `b`: returns whether `a` is less, and whether they are equal.
    /// NaN is equal to itself and greater than all other values.
    fn total_order(&mut self, a: &Ssa, b: &Ssa) -> (Ssa, Ssa) {
        let (less, equal) = (self.compare("LT", a, b), self.compare("EQ", a, b));
        if !a.dtype.is_float() {
            return (less, equal);
        }
        let (odd, other) = (self.compare("NE", a, a), self.compare("NE", b, b));
        let fine = self.elementwise("not", &[&odd]);
        let before = self.elementwise("and", &[&fine, &other]);
        let both = self.elementwise("and", &[&odd, &other]);
        (self.elementwise("or", &[&less, &before]), self.elementwise("or", &[&equal, &both]))
    }

    /// Shifts elements by `n` along an axis, towards its end or its start.
    /// The gap is filled with `fill`.
    fn shifted(&mut self, x: &Ssa, axis: usize, n: usize, reverse: bool, fill: Scalar) -> Ssa {
        let n = n as i64;
        let mut widths = vec![[0, 0, 0]; x.shape.len()];
        widths[axis] = if reverse { [-n, n, 0] } else { [n, -n, 0] };
        self.pad(x, fill, &widths)
    }
    /// Writes a running reduction in `log₂ n` doubling steps.
    /// Each element is combined with the one before it, then with the one two before it, and so on.
    /// `None` as the reducer means log-sum-exp.
    fn running_reduction(&mut self, x: &Ssa, axis: usize, reverse: bool, combine: Option<Reducer>) -> Ssa {
        let (dtype, size) = (x.dtype, x.shape[axis]);
        let wide = accum_dtype(dtype);
        let mut all = self.convert(x, wide);
        let none = combine.map_or(Scalar::Float(f64::NEG_INFINITY), |c| c.neutral(wide));
        let mut n = 1;
        while n < size {
            let before = self.shifted(&all, axis, n, reverse, none);
            all = match combine {
                Some(c) => self.elementwise(super::loop_nests::reducer_op(c), &[&before, &all]),
                None => self.log_of_sum(&before, &all),
            };
            n *= 2;
        }
        self.convert(&all, dtype)
    }
    /// Returns log(eᵃ + eᵇ) without overflow.
    fn log_of_sum(&mut self, a: &Ssa, b: &Ssa) -> Ssa {
        let most = self.elementwise("maximum", &[a, b]);
        let finite =
            self.typed(&format!("stablehlo.is_finite {}", most.name), &[&most], DType::Bool, &most.shape);
        let zero = self.constant(most.dtype, Scalar::Float(0.0), &most.shape);
        let most = self.select(&finite, &most, &zero);
        let mut exponentials = Vec::new();
        for x in [a, b] {
            let less = self.elementwise("subtract", &[x, &most]);
            exponentials.push(self.elementwise("exponential", &[&less]));
        }
        let sum = self.elementwise("add", &[&exponentials[0], &exponentials[1]]);
        let log = self.elementwise("log", &[&sum]);
        self.elementwise("add", &[&log, &most])
    }
    fn recurrence(&mut self, mut a: Ssa, mut b: Ssa, axis: usize, reverse: bool) -> Ssa {
        let (size, mut n) = (a.shape[axis], 1);
        while n < size {
            let before = self.shifted(&b, axis, n, reverse, Scalar::zero(b.dtype));
            let gained = self.elementwise("multiply", &[&a, &before]);
            b = self.elementwise("add", &[&gained, &b]);
            let decayed = self.shifted(&a, axis, n, reverse, Scalar::one(a.dtype));
            a = self.elementwise("multiply", &[&a, &decayed]);
            n *= 2;
        }
        b
    }

    /// Returns the Cholesky factor of (a + aᵀ)/2, with zeros above the diagonal.
    fn cholesky(&mut self, a: &Ssa) -> Ssa {
        let rank = a.shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        let turned = self.transpose(a, &order);
        let sum = self.elementwise("add", &[a, &turned]);
        let half = self.constant(a.dtype, Scalar::Float(0.5), &a.shape);
        let even = self.elementwise("multiply", &[&sum, &half]);
        let text = format!("stablehlo.cholesky {}, lower = true : {}", even.name, even.ty());
        let lower = self.op(text, a.dtype, &a.shape);
        let rows = self.iota(rank - 2, DType::I32, &a.shape);
        let columns = self.iota(rank - 1, DType::I32, &a.shape);
        let below = self.compare("GE", &rows, &columns);
        let zero = self.constant(a.dtype, Scalar::zero(a.dtype), &a.shape);
        self.select(&below, &lower, &zero)
    }

    fn convolution(
        &mut self,
        operands: [&Ssa; 2],
        dims: [&Vec<ConvDim>; 3],
        windows: &[[i64; 5]],
        precision: Precision,
        result: &ArrayType,
    ) -> Ssa {
        let word = |k: usize, of: &ConvDim| match (k, of) {
            (1, ConvDim::Feature) => "i".to_string(),
            (1, ConvDim::BatchOrOutFeature) => "o".to_string(),
            (_, ConvDim::Feature) => "f".to_string(),
            (_, ConvDim::BatchOrOutFeature) => "b".to_string(),
            (_, ConvDim::Spatial(i)) => i.to_string(),
        };
        let side = |k: usize| list(dims[k].iter().map(|of| word(k, of)));
        let each = |k: usize| list(windows.iter().map(|w| w[k]));
        let pad = list(windows.iter().map(|w| list([w[1], w[2]])));
        let far = match &result.mesh {
            Some(mesh) if mesh.axis_names().iter().any(|a| !self.manual.contains(a)) => {
                far_reaching_dims(mesh.size(), operands, dims, windows)
            }
            _ => Vec::new(),
        };
        let split = |k: usize| -> Vec<usize> {
            let is_far = |of: &ConvDim| matches!(of, ConvDim::Spatial(i) if far.contains(i));
            (0..dims[k].len()).filter(|d| is_far(&dims[k][*d])).collect()
        };
        let held = |w: &mut Writer, x: &Ssa, k: usize| match &result.mesh {
            Some(mesh) => w.unsharded(x, mesh, &split(k)),
            None => x.clone(),
        };
        let operands = [&held(self, operands[0], 0), &held(self, operands[1], 1)];
        let text = format!(
            "stablehlo.convolution({}) dim_numbers = {}x{}->{}, window = {{stride = {}, pad = {pad}, lhs_dilate = {}, rhs_dilate = {}}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64{}}}",
            names(operands),
            side(0),
            side(1),
            side(2),
            each(0),
            each(3),
            each(4),
            match precision_name(precision, operands) {
                Some(name) => {
                    let level = format!("#stablehlo<precision {name}>");
                    format!(", precision_config = [{level}, {level}]")
                }
                None => String::new(),
            }
        );
        // sums of 16-bit floats are accumulated in float32
        let wide = accum_dtype(result.dtype);
        let out = self.typed(&text, &operands, wide, &result.shape);
        let out = held(self, &out, 2);
        self.convert(&out, result.dtype)
    }
}

/// Returns the spatial dimensions along which a window may reach past a neighbour's block.
/// On this number of devices, these dimensions must not be sharded: if some axes are unused, XLA's
/// partitioner computes a convolution that is sharded there wrongly, since it adds up the replicas.
fn far_reaching_dims(
    devices: usize,
    operands: [&Ssa; 2],
    dims: [&Vec<ConvDim>; 3],
    windows: &[[i64; 5]],
) -> Vec<usize> {
    let size = |k: usize, i: usize| {
        let at = dims[k].iter().position(|of| matches!(of, ConvDim::Spatial(j) if *j == i));
        at.map_or(1, |d| operands[k].shape[d] as i64)
    };
    let reach = |i: usize, w: &[i64; 5]| (size(1, i) - 1).saturating_mul(w[4]).max(w[1]).max(w[2]);
    let beyond = |(i, w): &(usize, &[i64; 5])| reach(*i, w).saturating_mul(devices as i64) >= size(0, *i);
    windows.iter().enumerate().filter(beyond).map(|(i, _)| i).collect()
}
