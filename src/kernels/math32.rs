//! Functions on float32 without branches, so that loops over them are vectorized.
//!
//! `L` is the processor level: from 1 on there is a fused multiply-add. The documentation of each
//! function states its maximum error in units in the last place (ulps), which the tests check.

#![allow(clippy::excessive_precision, reason = "coefficients as published")]

use super::math64::{fma as fmad, poly as polyd, select as selectd};
use super::vector_math::vector_math;
pub(super) use libm::{
    acosf as acos, acoshf as acosh, asinf as asin, asinhf as asinh, atan2f as atan2, atanf as atan,
    atanhf as atanh, cbrtf as cbrt, coshf as cosh, nextafterf as next_after, sinhf as sinh, tanf as tan,
};
use std::f32::consts::{LN_2, LOG2_E};

vector_math! {
    f32, i32;
    exp2 from -151.0 to 129.0;
    expm1 from -25.0 to 89.0;
    tanh to 10.0;
}

/// The rounding constants 1.5·2²³ (f32) and 1.5·2⁵² (f64).
/// Adding a number to one rounds it to an integer, whose bits are then the low bits of the sum.
pub(super) const ROUNDING_BIAS: f32 = 12582912.0;
const ROUNDING_BIAS_F64: f64 = 6755399441055744.0;
/// ln 2 in two parts. Products of the first part with integers are exact.
pub(super) const LN2_HI: f32 = 0.693_359_375;
pub(super) const LN2_LO: f32 = -2.12194440e-4;

/// Returns 2 to a power from −126 to 127.
#[inline(always)]
fn pow2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}
/// Returns (eʳ − 1 − r) / r² for |r| ≤ ln 2 / 2.
#[inline(always)]
fn exp_tail<const L: u8>(r: f32) -> f32 {
    poly::<L, 6>(
        r,
        [
            1.9875691500e-4,
            1.3981999507e-3,
            8.3334519073e-3,
            4.1665795894e-2,
            1.6666665459e-1,
            5.0000001201e-1,
        ],
    )
}
/// Returns y·2ⁿ, even if 2ⁿ alone is out of range.
#[inline(always)]
fn scale(y: f32, n: i32) -> f32 {
    y * pow2(n >> 1) * pow2(n.wrapping_sub(n >> 1))
}

/// The coefficients of [`exp`], highest power first.
/// The polynomial is (eʳ − 1 − r) / r² for |r| ≤ ln 2 / 2, with an error of 3e-9 relative to eʳ.
pub(super) const EXP: [f32; 5] = [1.3814613e-3, 8.3687098e-3, 4.1668387e-2, 1.6666521e-1, 4.9999994e-1];

/// Returns eˣ, with an error of at most 0.9 ulps, or 1.1 without the fused instruction.
#[inline(always)]
pub(super) fn exp<const L: u8>(x: f32) -> f32 {
    let x = select(x > 89.0, 89.0, select(x < -104.0, -104.0, x));
    let (n, i) = round_scaled::<L>(x, LOG2_E);
    let r = fma::<L>(n, -LN2_LO, fma::<L>(n, -LN2_HI, x));
    let q = poly::<L, 5>(r, EXP);
    // without the fused instruction, the first product would be rounded too
    let y = if L > 0 { fma::<L>(fma::<L>(q, r, 1.0), r, 1.0) } else { q * (r * r) + r + 1.0 };
    scale(y, i)
}

/// Returns the exponent of x > 0, and its mantissa in [√½, √2) minus 1.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let tiny = x < f32::MIN_POSITIVE;
    let x = select(tiny, x * 8388608.0, x);
    // offset the bits so that the mantissa carries into the exponent at √2
    let bits = x.to_bits().wrapping_sub(0x3f35_04f3) as i32;
    let e = bits >> 23;
    let m = f32::from_bits(x.to_bits().wrapping_sub((e << 23) as u32));
    (e as f32 - select(tiny, 23.0, 0.0), m - 1.0)
}
/// Returns log(2ᵉ·(1 + z)) + c for a small c.
#[inline(always)]
fn log_of<const L: u8>(e: f32, z: f32, c: f32) -> f32 {
    let q = z * z;
    let p = poly::<L, 9>(
        z,
        [
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ],
    );
    let y = fma::<L>(e, LN2_LO, fma::<L>(p * z, q, c));
    fma::<L>(e, LN2_HI, z + fma::<L>(q, -0.5, y))
}

/// Returns the error function, with an error of at most 6 ulps. It is 1 or −1 outside [−4, 4].
#[inline(always)]
pub(super) fn erf<const L: u8>(x: f32) -> f32 {
    let y = select(x > 4.0, 4.0, select(x < -4.0, -4.0, x));
    let z = y * y;
    let p = poly::<L, 7>(
        z,
        [
            -2.72614225801306e-10,
            2.77068142495902e-8,
            -2.10102402082508e-6,
            -5.69250639462346e-5,
            -7.34990630326855e-4,
            -2.95459980854025e-3,
            -1.60960333262415e-2,
        ],
    );
    let q = poly::<L, 5>(
        z,
        [
            -1.45660718464996e-5,
            -2.13374055278905e-4,
            -1.68282697438203e-3,
            -7.37332916720468e-3,
            -1.42647390514189e-2,
        ],
    );
    y * (p / q)
}

/// Returns x − n·π for float64 values.
#[inline(always)]
fn subtract_pi_multiple<const L: u8>(x: f64, n: f64) -> f64 {
    if L > 0 {
        fmad::<L>(n, -1.2246467991473532e-16, fmad::<L>(n, -std::f64::consts::PI, x))
    } else {
        // π is split into parts of so few bits that their products with `n` are exact
        x - n * 3.14159250259399414062 - n * 1.50995788317231927067e-7 - n * 1.07806057163162381058e-14
    }
}
/// Returns sin r for |r| ≤ π/2, with an error of 2.4e-11, negated if q is odd.
///
/// One polynomial over half a turn is faster than two over a quarter turn with a selection, and it
/// keeps the sign of 0.
#[inline(always)]
fn sin_half_turn<const L: u8>(r: f64, q: u64) -> f32 {
    let z = r * r;
    let p = polyd::<L, 6>(
        z,
        [
            -2.3888907166964418e-08,
            2.7525384304141447e-06,
            -0.00019840868207533267,
            0.008333331108584812,
            -0.16666666626149196,
            1.0,
        ],
    );
    f64::from_bits((p * r).to_bits() ^ q << 63) as f32
}

/// The maximum absolute argument; larger ones are reduced by the scalar function.
pub(super) const TRIG_MAX: f32 = 1e9;

/// Returns the sine of an argument beyond [`TRIG_MAX`].
pub(super) fn sin_far(x: f32) -> f32 {
    libm::sin(x.into()) as f32
}
/// Returns the cosine of an argument beyond [`TRIG_MAX`].
pub(super) fn cos_far(x: f32) -> f32 {
    libm::cos(x.into()) as f32
}
/// Returns the sine, with an error of at most 0.51 ulps.
/// It is computed in float64 and rounded once.
#[inline(always)]
pub(super) fn sin<const L: u8>(x: f32) -> f32 {
    let x = x as f64;
    let t = fmad::<L>(x, std::f64::consts::FRAC_1_PI, ROUNDING_BIAS_F64);
    sin_half_turn::<L>(subtract_pi_multiple::<L>(x, t - ROUNDING_BIAS_F64), t.to_bits())
}
/// Returns the cosine, with an error of at most 0.51 ulps, as a sine shifted by a quarter turn.
#[inline(always)]
pub(super) fn cos<const L: u8>(x: f32) -> f32 {
    let x = x as f64;
    let t = fmad::<L>(x, std::f64::consts::FRAC_1_PI, -0.5) + ROUNDING_BIAS_F64;
    sin_half_turn::<L>(subtract_pi_multiple::<L>(x, t - ROUNDING_BIAS_F64 + 0.5), t.to_bits() ^ 1)
}

/// Returns the binary logarithm of x > 0 in float64, with a relative error of at most 2⁻⁴⁴.
///
/// Every positive float32 is a normal number in float64.
#[inline(always)]
fn log2_in_f64<const L: u8>(x: f64) -> f64 {
    // offset the bits so that the mantissa carries into the exponent at √2
    let e = x.to_bits().wrapping_sub(0x3fe6_a09e_667f_3bcd).wrapping_add(1 << 63) >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub(e.wrapping_sub(2048) << 52));
    let e = f64::from_bits(e.wrapping_add(ROUNDING_BIAS_F64.to_bits())) - (ROUNDING_BIAS_F64 + 2048.0);
    let s = (m - 1.0) / (m + 1.0);
    let p = polyd::<L, 6>(
        s * s,
        [
            0.2828993143501273,
            0.31990575279312994,
            0.4122092511095133,
            0.5770779423762674,
            0.961796694113308,
            2.88539008177785,
        ],
    );
    fmad::<L>(p, s, e)
}
/// Returns x to the power y, with an error of at most 0.51 ulps.
/// It is computed in float64 as 2^(y·log₂ x), and rounded once.
#[inline(always)]
pub(super) fn pow<const L: u8>(x: f32, y: f32) -> f32 {
    // from this exponent on, which is even, every result is 0, 1 or infinity
    const FAR: f64 = (1u64 << 40) as f64;
    let (x, y) = (x as f64, y as f64);
    let a = x.abs();
    let power = selectd(y > FAR, FAR, selectd(y < -FAR, -FAR, y));
    let log = selectd(a < f64::INFINITY, log2_in_f64::<L>(a), a);
    let p = power * selectd(a == 0.0, f64::NEG_INFINITY, log);
    let p = selectd(p > 1000.0, 1000.0, selectd(p < -1000.0, -1000.0, p));
    let t = p + ROUNDING_BIAS_F64;
    let z = polyd::<L, 8>(
        p - (t - ROUNDING_BIAS_F64),
        [
            1.52019149415063e-05,
            0.00015469290737562847,
            0.0013333922581397816,
            0.009618027255147515,
            0.05550410353450344,
            0.24022651198147238,
            0.6931471807284361,
            1.0,
        ],
    );
    let z = f64::from_bits(z.to_bits().wrapping_add(t.to_bits() << 52));
    // the lowest bit of `n` is that of the exponent, if this is an integer
    let n = power + ROUNDING_BIAS_F64;
    let whole = n - ROUNDING_BIAS_F64 == power;
    let negated = f64::from_bits(z.to_bits() ^ (n.to_bits() << 63 & x.to_bits()));
    let undefined = (x < 0.0) & (a < f64::INFINITY);
    let z = selectd(whole, negated, selectd(undefined, f64::NAN, z));
    selectd((x == 1.0) | (y == 0.0), 1.0, z) as f32
}

/// Returns the inverse error function, by Giles' approximation.
#[inline(always)]
pub(super) fn erf_inv<const L: u8>(x: f32) -> f32 {
    let w = -log1p::<L>(-x * x);
    let small = poly::<L, 9>(
        w - 2.5,
        [
            2.81022636e-8,
            3.43273939e-7,
            -3.5233877e-6,
            -4.39150654e-6,
            0.00021858087,
            -0.00125372503,
            -0.00417768164,
            0.246640727,
            1.50140941,
        ],
    );
    let large = poly::<L, 9>(
        w.sqrt() - 3.0,
        [
            -0.000200214257,
            0.000100950558,
            0.00134934322,
            -0.00367342844,
            0.00573950773,
            -0.0076224613,
            0.00943887047,
            1.00167406,
            2.83297682,
        ],
    );
    let y = select(w < 5.0, small, large) * x;
    select(x.abs() == 1.0, x * f32::INFINITY, y)
}
