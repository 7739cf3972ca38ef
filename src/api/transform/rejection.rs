//! Samplers by rejection: gamma, beta, Dirichlet and Poisson, with JAX's algorithms.
//!
//! They are methods of `Key` that need loops, so they are here and not next to the other samplers.
//! The loop of one element runs until its sample is accepted, and draws from a key of this element
//! (gamma), or from a key of the iteration (Poisson). Samples have no derivative.

use super::{vmap, while_loop};
use crate::api::array::{Array, Operand};
use crate::api::random::{IntegerArrayType, Key, check_floats, round_to_dtype};
use crate::api::trace::poison;
use crate::core::{ArrayType, DType, TypePart};
use crate::ir::program::CallSite;

impl Key {
    /// Draws from the gamma distribution with shape parameter `a` and scale 1.
    ///
    /// `a` is a number, or an array that broadcasts to the type. A bare shape means float32.
    /// Samples have no derivative. For a small `a` most samples are close to 0:
    /// [`loggamma`](Key::loggamma) keeps their digits.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).gamma([2000], 3.0);
    /// assert!((x.mean(..).item::<f32>()? - 3.0).abs() < 0.2);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn gamma(&self, ty: impl Into<ArrayType>, a: impl Operand) -> Array {
        self.gamma_samples(ty.into(), a, Space::Linear, CallSite::here("gamma"))
    }
    /// Draws logarithms of gamma samples, which do not underflow for a small `a`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).loggamma([100], 0.001);
    /// assert!(x.is_finite().all(..).item::<bool>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn loggamma(&self, ty: impl Into<ArrayType>, a: impl Operand) -> Array {
        self.gamma_samples(ty.into(), a, Space::Log, CallSite::here("loggamma"))
    }
    /// Draws from the beta distribution with parameters `a` and `b`.
    ///
    /// The parameters are numbers, or arrays that broadcast to the type. A bare shape means
    /// float32. Samples have no derivative.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).beta([2000], 2.0, 6.0);
    /// assert!((x.mean(..).item::<f32>()? - 0.25).abs() < 0.02);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn beta(&self, ty: impl Into<ArrayType>, a: impl Operand, b: impl Operand) -> Array {
        let (ty, call) = (ty.into(), CallSite::here("beta"));
        let [key_a, key_b] = self.split();
        let a = key_a.gamma_samples(ty.clone(), a, Space::Log, call);
        let b = key_b.gamma_samples(ty, b, Space::Log, call);
        let largest = a.maximum(&b);
        let (a, b) = ((a - &largest).exp(), (b - &largest).exp());
        &a / (&a + b)
    }
    /// Draws vectors of probabilities from the Dirichlet distribution.
    ///
    /// The last dimension of `alpha` has the concentrations; other dimensions are a batch. The
    /// result has the type of `alpha`. Samples have no derivative.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let p = Key::new(0).dirichlet(&Array::from([1.0f32, 2.0, 5.0]));
    /// assert!((p.sum(..).item::<f32>()? - 1.0).abs() < 1e-5);
    /// // many samples of one distribution
    /// let p = Key::new(0).dirichlet(&Array::ones([100, 3]));
    /// assert_eq!(type_of(&p), "float32[100,3]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dirichlet(&self, alpha: &Array) -> Array {
        let call = CallSite::here("dirichlet");
        let Ok(ty) = alpha.type_ref() else { return alpha.clone() };
        if ty.rank() == 0 {
            let fault =
                fault!(Shape, "`alpha` is a scalar, and must have a last dimension of concentrations")
                    .help("give one concentration for each class: `Array::from([1.0f32, 2.0])`");
            return alpha.reject(fault, call);
        }
        self.gamma_samples(ty.clone(), alpha, Space::Log, call).softmax(-1)
    }
    /// Draws integers from the Poisson distribution with mean `lam`.
    ///
    /// `lam` is a number, or an array that broadcasts to the type. A bare shape means int32. A NaN
    /// or negative mean gives -1 or 0.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).poisson([2000], 4.0);
    /// assert!((x.mean(..).item::<f32>()? - 4.0).abs() < 0.2);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn poisson(&self, ty: impl Into<IntegerArrayType>, lam: impl Operand) -> Array {
        let (ty, call) = (ty.into().into_array_type(), CallSite::here("poisson"));
        if !ty.dtype.is_integer() {
            let fault = fault!(Dtype, "`poisson` makes integers, not {}", ty.dtype)
                .help(format!("give the element type: `key.poisson(I32.array_type({}), ..)`", ty.shape))
                .highlight(0, TypePart::Dtype);
            return poison(call.error(fault, || vec![ty.to_string()]));
        }
        let floats = ArrayType { dtype: DType::F32, ..ty.clone() };
        let lam = Array::full(floats.clone(), lam).stop_gradient();
        if lam.type_ref().is_err() {
            return lam;
        }
        // small means multiply uniform numbers, large ones use a transformed rejection
        let small = lam.lt(10.0) | lam.ne(&lam);
        let by_product = self.poisson_by_product(&floats, &small.select(&lam, 0.0), ty.dtype);
        let by_rejection = self.poisson_by_rejection(&floats, &small.select(1e5, &lam)).astype(ty.dtype);
        let drawn = small.select(by_product, by_rejection);
        lam.eq(0.0).select(0, drawn)
    }

    /// Draws from the gamma distribution, with one key for each element.
    #[track_caller]
    fn gamma_samples(&self, ty: ArrayType, a: impl Operand, space: Space, call: CallSite<'_>) -> Array {
        ok_or_return!(check_floats(&ty, call));
        let (rank, dtype) = (ty.rank(), ty.dtype);
        let a = Array::full(ty, a).stop_gradient();
        let Ok(ty) = a.type_ref() else { return a };
        let keys = self.split_into(ArrayType { dtype: DType::Key, ..ty.clone() }, call);
        for_each_element(rank, keys, a, &|key, a| gamma_sample(&key, &a, space, dtype))
    }
    /// Counts how many uniform numbers have a product above e^−λ (Knuth's algorithm).
    #[track_caller]
    fn poisson_by_product(&self, floats: &ArrayType, lam: &Array, dtype: DType) -> Array {
        let low = -lam;
        let count = Array::zeros(ArrayType { dtype, ..floats.clone() });
        let start = (count, self.clone(), Array::zeros(floats.clone()));
        let (count, ..) = while_loop(
            start,
            |(_, _, product)| product.gt(&low).any(..),
            |(count, key, product)| {
                let [key, sub] = key.split();
                let count = product.gt(&low).select(&count + 1, &count);
                (count, key, product + sub.uniform(floats.clone()).log())
            },
        );
        count - 1
    }
    /// Draws by Hörmann's transformed rejection, for means of at least 10.
    #[track_caller]
    fn poisson_by_rejection(&self, floats: &ArrayType, lam: &Array) -> Array {
        let log_lam = lam.log();
        let number = |x: f64| lam.full_like(x);
        let b = fused(&lam.sqrt(), &number(2.53), &number(0.931));
        let a = fused(&b, &number(0.02483), &number(-0.059));
        let inv_alpha = 1.1239 + 1.1328 / (&b - 3.4);
        let v_r = 0.9277 - 3.6224 / (&b - 2.0);
        let bools = ArrayType { dtype: DType::Bool, ..floats.clone() };
        let start = (Array::full(floats.clone(), -1.0), Array::full(bools, false), self.clone());
        let (drawn, ..) = while_loop(
            start,
            |(_, accepted, _)| !accepted.all(..),
            |(drawn, accepted, key)| {
                let [key, sub0, sub1] = key.split();
                let u = sub0.uniform(floats.clone()) - 0.5;
                let v = sub1.uniform(floats.clone());
                let shifted = 0.5 - u.abs();
                let k = (fused(&(2.0 * &a / &shifted + &b), &u, lam) + 0.43).floor();
                let s = (&v * &inv_alpha / (&a / (&shifted * &shifted) + &b)).log();
                let t = fused(&k, &log_lam, &-lam) - log_gamma(&(&k + 1.0));
                let sure = shifted.ge(0.07) & v.le(&v_r);
                let reject = k.lt(0.0) | (shifted.lt(0.013) & v.gt(&shifted));
                let accept = sure | (!reject & s.le(t));
                (accept.select(k, drawn), accepted | accept, key)
            },
        );
        drawn
    }
}

/// Computes `x * y + z` of float32 arrays with one rounding.
///
/// XLA fuses these operations on CPUs. A rounding more would change the floor of some draws.
#[track_caller]
fn fused(x: &Array, y: &Array, z: &Array) -> Array {
    let [x, y, z] = [x, y, z].map(|a| a.astype(DType::F64));
    (x * y + z).astype(DType::F32)
}

/// The scale on which a sample of the gamma distribution is returned.
#[derive(Clone, Copy, PartialEq)]
enum Space {
    /// The sample itself.
    Linear,
    /// Its logarithm.
    Log,
}

/// Calls `f` for each element of two arrays of this rank.
#[track_caller]
fn for_each_element(rank: usize, keys: Array, a: Array, f: &dyn Fn(Key, Array) -> Array) -> Array {
    if rank == 0 {
        return f(Key::from_array(keys), a);
    }
    vmap((keys, a), |(keys, a)| for_each_element(rank - 1, keys, a, f))
}

/// Draws one sample of the gamma distribution (Marsaglia and Tsang's algorithm).
///
/// For a < 1 it is a sample for a + 1, times a uniform number to the power 1 / a.
#[track_caller]
fn gamma_sample(key: &Key, a: &Array, space: Space, dtype: DType) -> Array {
    let number = |x: f64| Array::full(dtype.array_type([]), x);
    let third = round_to_dtype(1.0 / 3.0, dtype);
    let large = a.ge(1.0);
    let d = large.select(a, a + 1.0) - third;
    let c = third / d.sqrt();
    let [key, boost_key] = key.split();
    let start = (key, number(0.0), number(1.0), number(2.0));
    let (_, _, v, _) = while_loop(
        start,
        |(_, x, v, u)| {
            let squeezed = u.ge(1.0 - 0.0331 * (x * x));
            squeezed & u.log().ge(x * 0.5 + &d * ((1.0 - v) + v.log()))
        },
        |(key, ..)| {
            let [key, x_key, u_key] = key.split();
            let (_, x, v) = while_loop(
                (x_key, number(0.0), number(-1.0)),
                |(_, _, v)| v.le(0.0),
                |(key, ..)| {
                    let [key, sub] = key.split();
                    let x = sub.normal(dtype.array_type([]));
                    let v = 1.0 + &x * &c;
                    (key, x, v)
                },
            );
            let u = u_key.uniform(dtype.array_type([]));
            (key, &x * &x, &v * &v * &v, u)
        },
    );
    match space {
        Space::Log => {
            let drawn = -boost_key.exponential(dtype.array_type([]));
            let boost = (large | drawn.eq(0.0)).select(0.0, &drawn * (1.0 / a));
            (d.log() + v.log()) + boost
        }
        Space::Linear => {
            let drawn = 1.0 - boost_key.uniform(dtype.array_type([]));
            let boost = large.select(1.0, drawn.pow(1.0 / a));
            (d * v) * boost
        }
    }
}

/// The coefficients of Lanczos' series for g = 7.
const LANCZOS: [f64; 8] = [
    676.520_368_121_885_1,
    -1_259.139_216_722_402_8,
    771.323_428_777_653_1,
    -176.615_029_162_140_6,
    12.507_343_278_686_905,
    -0.138_571_095_265_720_12,
    9.984_369_578_019_572e-6,
    1.505_632_735_149_311_6e-7,
];

/// Computes log Γ(x) of float32 x ≥ 1/2 by Lanczos' approximation, as XLA does.
#[track_caller]
fn log_gamma(x: &Array) -> Array {
    let z = x - 1.0;
    let mut series = Array::full_like(&z, 0.999_999_999_999_809_9);
    for (i, c) in LANCZOS.into_iter().enumerate() {
        series += c / (&z + (i as f64 + 1.0));
    }
    // XLA multiplies by the reciprocal of a constant
    let reciprocal = z.full_like(f64::from(1.0 / 7.5f32));
    let log_t = fused(&z, &reciprocal, &z.ones_like()).log() + 7.5f64.ln();
    let t = &z + 7.5;
    let log_sqrt_two_pi = z.full_like((2.0 * std::f64::consts::PI).sqrt().ln());
    fused(&(&z + 0.5 - t / &log_t), &log_t, &log_sqrt_two_pi) + series.log()
}
