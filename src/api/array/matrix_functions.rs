//! Functions of matrices: the exponential.

use super::{
    Array, Dims, Operand, Term, errors, linalg::not_square, products::DotOptions, reductions::Extreme,
};
use crate::api::trace::apply1;
use crate::core::Scalar;
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::{ops::linalg::Solve, program::CallSite};
use std::sync::Arc;

/// The numerators of the Padé approximant of degree 13, from the power 0.
const PADE_13: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];

/// The 1-norm up to which the approximant is exact in float64.
const PADE_13_NORM: f64 = 5.371920351148152;

/// The maximum number of squarings. Matrices of larger norms give NaN, as in JAX.
const MAX_SQUARINGS: usize = 16;

/// # Functions of matrices
impl Array {
    /// Computes the matrix exponential Σ aᵏ / k!, by scaling, a Padé approximant and squaring.
    ///
    /// Elements are floats, and matrices are the last two dimensions, which must be unsharded;
    /// leading dimensions may be sharded. Matrices with a 1-norm above 350,000 give NaN.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let turn = Array::from([[0.0, -1.0], [1.0, 0.0]]).expm();
    /// let (s, c) = 1f64.sin_cos();
    /// assert!(turn.allclose(&Array::from([[c, -s], [s, c]]))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("matrix_exp", "exponential"))]
    #[track_caller]
    pub fn expm(&self) -> Array {
        let call = CallSite::here("expm");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let sharded = || (0..ty.rank()).rev().take(2).find(|d| !ty.spec.dim(*d).is_empty());
        let fault = not_square("exponentials", ty)
            .or_else(|| sharded().map(|d| errors::sharded_dim(ty, d, ", but matrices are unsharded")));
        if let Some(fault) = fault {
            return self.reject(fault, call);
        }
        if ty.shape.ends_with(&[0]) {
            return self.clone();
        }
        self.with_call_site(call, |call| {
            let x = self.to_mean_dtype(call);
            x.expm_at(call).restore_dtype(self, call)
        })
    }
    /// Computes [`Array::expm`] of float32 or float64 matrices.
    fn expm_at(&self, call: CallSite<'_>) -> Array {
        let columns = self.unary(Unary::Abs, call).sum_at(Dims::keep(-2), None, call);
        let norm =
            columns.extreme_at(Dims::keep(-1), Extreme::Maximum, call).unary(Unary::StopGradient, call);
        // the number of squarings: the norm over 2ˢ is at most the bound
        let ratio = norm.binary_with(Binary::Div, PADE_13_NORM, call);
        let exponent = ratio.unary(Unary::Log, call).binary_with(Binary::Div, 2f64.ln(), call);
        let steps = exponent.unary(Unary::Ceil, call).binary_with(Binary::Max, 0.0, call);
        let scale = steps.unary(Unary::Neg, call).unary(Unary::Exp2, call);
        let mut power = self.binary_with(Binary::Mul, scale, call).pade_13(call);
        for k in 0..MAX_SQUARINGS {
            let more = steps.binary_with(Binary::Gt, k as f64, call);
            let square = power.matmul_at(&power, DotOptions::default(), call);
            power = more.select_at(square.term(), power.term(), call);
        }
        let fits = steps.binary_with(Binary::Le, MAX_SQUARINGS as f64, call);
        fits.select_at(power.term(), Term::Number(Scalar::Float(f64::NAN)), call)
    }
    /// Evaluates the Padé approximant of the exponential.
    fn pade_13(&self, call: CallSite<'_>) -> Array {
        let times = |a: &Array, b: &Array| a.matmul_at(b, DotOptions::default(), call);
        let x2 = times(self, self);
        let x4 = times(&x2, &x2);
        let one = self.type_ref().map_or_else(|_| self.clone(), |ty| self.identity_like(ty, call));
        let x6 = times(&x4, &x2);
        // the sum of four even powers, with the given coefficients
        let sum = |list: [(usize, &Array); 4]| {
            let term = |(k, x): (usize, &Array)| x.binary_with(Binary::Mul, PADE_13[k], call);
            let [a, b, c, d] = list.map(term);
            let rest = c.binary_with(Binary::Add, d, call);
            a.binary_with(Binary::Add, b, call).binary_with(Binary::Add, rest, call)
        };
        let high = |k: usize| {
            let term = |k: usize, x: &Array| x.binary_with(Binary::Mul, PADE_13[k], call);
            let low = term(k + 2, &x4).binary_with(Binary::Add, term(k, &x2), call);
            times(&x6, &term(k + 4, &x6).binary_with(Binary::Add, low, call))
        };
        let odd = high(9).binary_with(Binary::Add, sum([(7, &x6), (5, &x4), (3, &x2), (1, &one)]), call);
        let odd = times(self, &odd);
        let even = high(8).binary_with(Binary::Add, sum([(6, &x6), (4, &x4), (2, &x2), (0, &one)]), call);
        let below = even.binary_with(Binary::Sub, &odd, call);
        let above = even.binary_with(Binary::Add, odd, call);
        apply1(Arc::new(Solve { transposed: false }), &[below.into(), above.into()], call)
    }
}
