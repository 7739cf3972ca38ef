//! Finite differences, convolutions of vectors, polynomials and cross products.

use super::windows::{ConvOptions, Padding};
use super::{Array, Operand, Term, dims::resolve_dim, errors, operand, prims};
use crate::api::trace::apply1;
use crate::core::{ArrayType, DType, ErrorKind, Fault};
use crate::ir::ops::elementwise::Binary;
use crate::ir::program::{CallSite, UserOperand};
use std::borrow::Borrow;

/// The sums that [`Array::convolve`] returns, for vectors of sizes n and m.
///
/// ```
/// use atmesh::prelude::*;
/// let (x, w) = (Array::from([1, 2, 3]), Array::from([1, 1]));
/// assert_eq!(x.convolve(&w, ConvolveMode::Full).to_vec::<i32>()?, [1, 3, 5, 3]);
/// assert_eq!(x.convolve(&w, ConvolveMode::Valid).to_vec::<i32>()?, [3, 5]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConvolveMode {
    /// All sums with at least one term: n + m − 1 elements.
    #[default]
    Full,
    /// The middle of the full result: max(n, m) elements.
    Same,
    /// The sums for which the vectors overlap completely: max(n, m) − min(n, m) + 1 elements.
    Valid,
}

/// # Differences, convolutions and polynomials
impl Array {
    /// Computes the derivative along dimension `d` by central differences, for points at distance
    /// `spacing`.
    ///
    /// At the ends it is the one-sided difference. The dimension has at least two elements, and
    /// keeps its sharding: devices exchange the elements at shard boundaries. Integers are
    /// converted to float32 (64-bit integers to float64). [`grad`](crate::grad) differentiates
    /// functions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 2.0, 4.0, 7.0]);
    /// assert_eq!(x.gradient(1.0, 0).to_vec::<f32>()?, [1.0, 1.5, 2.5, 3.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn gradient(&self, spacing: f64, d: i32) -> Array {
        let call = CallSite::here("gradient");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        let n = ty.shape[at];
        if n < 2 {
            let message = format!("dimension {at} has size {n}: a difference needs two elements");
            let fault = Fault::new(ErrorKind::Shape, message).highlight_dim(0, at);
            return self.reject(fault.help("choose another dimension"), call);
        }
        self.with_call_site(call, |call| {
            let x = self.to_mean_dtype(call);
            let shifted = |by: i64| {
                let mut widths = vec![(0, 0, 0); ty.rank()];
                widths[at] = (by, -by, 0);
                apply1(prims::pad(&widths, x.zero()), &[(&x).into()], call)
            };
            let index = ArrayType { dtype: DType::I32, ..super::creation::fresh_type(ty) };
            let index = apply1(prims::iota(index, at), &[], call);
            let first = index.binary_with(Binary::Eq, 0, call);
            let last = index.binary_with(Binary::Eq, n - 1, call);
            let [before, after] = [(&first, 1), (&last, -1)]
                .map(|(end, by)| end.select_at((&x).term(), shifted(by).term(), call));
            let rise = after.binary_with(Binary::Sub, before, call);
            let side = rise.binary_with(Binary::Div, spacing, call);
            let central = rise.binary_with(Binary::Div, 2.0 * spacing, call);
            let end = first.binary_with(Binary::Or, last, call);
            end.select_at(side.term(), central.term(), call).restore_dtype(self, call)
        })
    }
    /// Computes the cross product of vectors with three elements along dimension `d`.
    ///
    /// Other dimensions broadcast.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, y) = (Array::from([1, 2, 3]), Array::from([4, 5, 6]));
    /// assert_eq!(x.cross(&y, 0).to_vec::<i32>()?, [-3, 6, -3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cross(&self, b: impl Borrow<Array>, d: i32) -> Array {
        let (b, call) = (b.borrow(), CallSite::here("cross"));
        let [ta, tb] = ok_or_return!(operand::types([self, b]));
        let terms = [Term::from(self), Term::from(b)];
        let reject = |fault| operand::reject(fault, &terms, call);
        let mut at = [0; 2];
        for (k, ty) in [ta, tb].into_iter().enumerate() {
            at[k] = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| reject(fault));
            let n = ty.shape[at[k]];
            if n != 3 {
                let message = format!("dimension {} of operand {k} has size {n}, not 3", at[k]);
                let fault = Fault::new(ErrorKind::Shape, message).highlight_dim(k, at[k]);
                return reject(fault.help("give vectors with three elements along it"));
            }
        }
        let product = |i: i64, j: i64| {
            let (x, y) = (self.roll_at(-i, at[0], call), b.roll_at(-j, at[1], call));
            x.binary_with(Binary::Mul, y, call)
        };
        product(1, 2).binary_with(Binary::Sub, product(2, 1), call)
    }
    /// Convolves two vectors: element k of the full result is Σᵢ self\[i\] · b\[k − i\].
    ///
    /// The shorter vector must be unsharded. If the longer one is sharded, the size of the result
    /// must be divisible too, as it is with [`ConvolveMode::Same`]; devices exchange the elements
    /// at shard boundaries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, w) = (Array::from([1.0f32, 2.0, 3.0]), Array::from([1.0f32, 10.0]));
    /// assert_eq!(x.convolve(&w, ConvolveMode::Full).to_vec::<f32>()?, [1.0, 12.0, 23.0, 30.0]);
    /// assert_eq!(x.convolve(&w, ConvolveMode::Same).to_vec::<f32>()?, [1.0, 12.0, 23.0]);
    /// assert_eq!(x.convolve(&w, ConvolveMode::Valid).to_vec::<f32>()?, [12.0, 23.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn convolve(&self, b: impl Borrow<Array>, mode: ConvolveMode) -> Array {
        let (b, call) = (b.borrow(), CallSite::here("convolve"));
        let [ta, tb] = ok_or_return!(operand::types([self, b]));
        let terms = [Term::from(self), Term::from(b)];
        for (k, ty) in [ta, tb].into_iter().enumerate() {
            if ty.rank() != 1 || ty.shape[0] == 0 {
                let message = format!("operand {k} is {ty}: it convolves vectors with elements");
                let help = "for arrays with features and several dimensions: `conv`";
                return operand::reject(Fault::new(ErrorKind::Shape, message).help(help), &terms, call);
            }
        }
        let swapped = ta.shape[0] < tb.shape[0];
        let (x, w) = if swapped { (b, self) } else { (self, b) };
        let source = |k: usize| UserOperand {
            index: if swapped { 1 - k } else { k },
            ty: Some(if (k == 0) == swapped { tb } else { ta }),
            dims: Some(&[0, 0, 0]),
        };
        let (shown, sources) = (|| operand::describe_all(&terms), [source(0), source(1)]);
        let call = call.with_operands(&shown, &sources);
        let taps = if swapped { ta.shape[0] } else { tb.shape[0] } as i64;
        let (low, high) = match mode {
            ConvolveMode::Full => (taps - 1, taps - 1),
            ConvolveMode::Same => (taps / 2, taps - taps / 2 - 1),
            ConvolveMode::Valid => (0, 0),
        };
        // a convolution layer does not reverse its filter
        let taps = apply1(prims::rev(&[0]), &[w.into()], call).expand_dims_at(&[0, 1], call);
        let options = ConvOptions::default().padding(Padding::Each(vec![(low, high)]));
        x.expand_dims_at(&[0, 1], call).conv_at(&taps, &options, call).squeeze_at(&[0, 1], call)
    }
    /// Evaluates a polynomial at each element; the coefficient of the highest power comes first.
    ///
    /// The coefficients are an unsharded vector of this array's element type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 2.0]);
    /// // 3x² + 2x + 1
    /// assert_eq!(x.polyval(&Array::from([3.0f32, 2.0, 1.0])).to_vec::<f32>()?, [6.0, 17.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn polyval(&self, coefficients: impl Borrow<Array>) -> Array {
        let (list, call) = (coefficients.borrow(), CallSite::here("polyval"));
        let [ty, lt] = ok_or_return!(operand::types([self, list]));
        let fault = match (lt.rank(), ty.dtype == lt.dtype) {
            (1, true) if lt.spec.dim(0).is_empty() => None,
            (1, true) => {
                let fault = errors::sharded_dim(lt, 0, ", but all devices read all coefficients");
                Some(Fault { highlights: Vec::new(), ..fault }.highlight_dim(1, 0))
            }
            (1, false) => {
                let message = format!("the array is {}, but the coefficients are {}", ty.dtype, lt.dtype);
                let help = format!("convert them: `.astype({:?})`", ty.dtype);
                Some(Fault::new(ErrorKind::Dtype, message).help(help))
            }
            (rank, _) => {
                let message = format!("the coefficients must be a vector, not an array of rank {rank}");
                Some(Fault::new(ErrorKind::Shape, message).help("make it one: `.ravel()`"))
            }
        };
        if let Some(fault) = fault {
            return operand::reject(fault, &[self.into(), list.into()], call);
        }
        let zero = self.full_like_at(Term::Number(self.zero()), call);
        (0..lt.shape[0]).fold(zero, |sum, k| {
            let next = list.slice_dim(0, k, k + 1, call).squeeze_at(&[0], call);
            sum.binary_with(Binary::Mul, self, call).binary_with(Binary::Add, next, call)
        })
    }
}
