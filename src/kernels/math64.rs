//! Functions on float64 without branches. `L` is the processor level, as in `math32`.

#![allow(clippy::excessive_precision, reason = "coefficients as published")]

use super::vector_math::vector_math;
pub(super) use libm::{
    acos, acosh, asin, asinh, atan, atan2, atanh, cbrt, cos as cos_far, cosh, nextafter as next_after,
    sin as sin_far, sinh, tan,
};
use std::f64::consts::{FRAC_2_PI, LN_2, LOG2_E, PI};

vector_math! {
    f64, i64;
    exp2 from -1076.0 to 1025.0;
    expm1 from -50.0 to 710.0;
    tanh to 20.0;
}

/// The rounding constant 1.5·2⁵².
/// Adding a number to it rounds the number to an integer, whose bits are then the low bits of the
/// sum.
const ROUNDING_BIAS: f64 = 6755399441055744.0;
const LN2_HI: f64 = 6.931_471_803_691_238e-1;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;

/// Converts an integer below 2⁵¹ to a float.
/// Before AVX-512 there is no vector instruction for this.
#[inline(always)]
fn int_to_float(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(ROUNDING_BIAS.to_bits() as i64)) as u64) - ROUNDING_BIAS
}
#[inline(always)]
fn pow2(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) << 52) as u64)
}
/// Returns (eʳ − 1 − r) / r² for |r| ≤ ln 2 / 2.
#[inline(always)]
fn exp_tail<const L: u8>(r: f64) -> f64 {
    poly::<L, 12>(
        r,
        [
            1.0 / 6227020800.0,
            1.0 / 479001600.0,
            1.0 / 39916800.0,
            1.0 / 3628800.0,
            1.0 / 362880.0,
            1.0 / 40320.0,
            1.0 / 5040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
        ],
    )
}
/// Returns n / 2 rounded down, without a 64-bit arithmetic shift, which AVX2 does not have.
#[inline(always)]
fn half(n: i64) -> i64 {
    ((n.wrapping_add(4096)) as u64 >> 1) as i64 - 2048
}
#[inline(always)]
fn scale(y: f64, n: i64) -> f64 {
    let h = half(n);
    y * pow2(h) * pow2(n.wrapping_sub(h))
}

/// Returns eˣ, with an error of at most 1.1 ulps.
#[inline(always)]
pub(super) fn exp<const L: u8>(x: f64) -> f64 {
    let x = select(x > 710.0, 710.0, select(x < -746.0, -746.0, x));
    let (n, i) = round_scaled::<L>(x, LOG2_E);
    let r = fma::<L>(n, -LN2_LO, fma::<L>(n, -LN2_HI, x));
    scale(fma::<L>(exp_tail::<L>(r), r * r, r) + 1.0, i)
}

#[inline(always)]
fn split(x: f64) -> (f64, f64) {
    let tiny = x < f64::MIN_POSITIVE;
    let x = select(tiny, x * 18014398509481984.0, x);
    let bits = x.to_bits().wrapping_sub(0x3fe6_a09e_667f_3bcd);
    // an arithmetic shift by 52, in unsigned arithmetic
    let e = ((bits.wrapping_add(1 << 63) >> 52) as i64) - 2048;
    let m = f64::from_bits(x.to_bits().wrapping_sub((e as u64) << 52));
    (int_to_float(e) - select(tiny, 54.0, 0.0), m - 1.0)
}
#[inline(always)]
fn log_of<const L: u8>(e: f64, f: f64, c: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * poly::<L, 7>(
        z,
        [
            1.479819860511658591e-1,
            1.531383769920937332e-1,
            1.818357216161805012e-1,
            2.222219843214978396e-1,
            2.857142874366239149e-1,
            3.999999999940941908e-1,
            6.666666666666735130e-1,
        ],
    );
    let hfsq = 0.5 * f * f;
    fma::<L>(e, LN2_HI, f - (hfsq - (s * (hfsq + r) + fma::<L>(e, LN2_LO, c))))
}

/// Returns the rounded sum of two numbers, the first of which is 0 or not smaller, and its error.
#[inline(always)]
fn sum_parts(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    (s, b - (s - a))
}
/// Returns the natural logarithm of a positive number in two parts, which add to it with a relative
/// error of 2⁻⁶⁵. Multiply-adds must be fused.
///
/// The logarithm of a mantissa m is 2·artanh s = s·(2 + ⅔z + z²·…) for s = (m − 1)/(m + 1), z = s².
/// `s_lo` is the part of s after its rounding, and so on.
#[inline(always)]
fn log_parts<const L: u8>(x: f64) -> (f64, f64) {
    let (e, f) = split(x);
    let g = 2.0 + f;
    let g_lo = f - (g - 2.0);
    let inverse = 1.0 / g;
    let s = f * inverse;
    let s_lo = (fma::<L>(-s, g, f) - s * g_lo) * inverse;
    let z = s * s;
    let z_lo = fma::<L>(s, s, -z) + 2.0 * s * s_lo;
    let tail = z * poly::<L, 8>(
        z,
        [
            0.11724127883849887,
            0.117061376241836,
            0.13334808726172276,
            0.15384594880856176,
            0.18181818336241604,
            0.22222222221651686,
            0.28571428571429375,
            0.4,
        ],
    );
    let (w, w_lo) = sum_parts(2.0 / 3.0, tail);
    let w_lo = w_lo + 3.700743415417188e-17;
    let t = z * w;
    let t_lo = fma::<L>(z, w, -t) + (z * w_lo + z_lo * w);
    let (v, v_lo) = sum_parts(2.0, t);
    let v_lo = v_lo + t_lo;
    let l = s * v;
    let l_lo = fma::<L>(s, v, -l) + (s * v_lo + s_lo * v);
    let (log, log_lo) = sum_parts(e * LN2_HI, l);
    sum_parts(log, log_lo + fma::<L>(e, LN2_LO, l_lo))
}
/// Returns x to the power y, with an error of at most 0.6 ulps with the fused instruction, and of
/// at most 1 ulp without it.
#[inline(always)]
pub(super) fn pow<const L: u8>(x: f64, y: f64) -> f64 {
    if L == 0 {
        return libm::pow(x, y);
    }
    // from this exponent on, which is even, every result is 0, 1 or infinity
    const FAR: f64 = 18446744073709551616.0;
    let a = x.abs();
    let power = select(y > FAR, FAR, select(y < -FAR, -FAR, y));
    let (log, log_lo) = log_parts::<L>(a);
    let log = select(a == 0.0, f64::NEG_INFINITY, select(a < f64::INFINITY, log, a));
    let p = power * log;
    let p_lo = select(p.abs() < 800.0, fma::<L>(power, log, -p) + power * log_lo, 0.0);
    let p = select(p > 800.0, 800.0, select(p < -800.0, -800.0, p));
    let (n, i) = round_scaled::<L>(p, LOG2_E);
    // p − n·ln 2 in two parts
    let (r_hi, c) = (fma::<L>(n, -LN2_HI, p), n * LN2_LO);
    let r = r_hi - c;
    let (r, r_lo) = sum_parts(r, (r_hi - r) - c + fma::<L>(n, -LN2_LO, c) + p_lo);
    let (q, q_lo) = sum_parts(1.0, r);
    let z = scale(q + (q_lo + fma::<L>(exp_tail::<L>(r), r * r, fma::<L>(r_lo, r, r_lo))), i);
    let whole = y.floor() == y;
    let odd = whole & ((0.5 * y).floor() != 0.5 * y);
    let z = select(odd, z.copysign(x), z);
    let undefined = (x < 0.0) & (a < f64::INFINITY) & !whole;
    select((x == 1.0) | (y == 0.0), 1.0, select(undefined, f64::NAN, z))
}

/// The maximum absolute argument; larger ones are reduced by the scalar function.
pub(super) const TRIG_MAX: f64 = 1e6;

#[inline(always)]
fn reduce_quarter_turn<const L: u8>(x: f64) -> (f64, i64) {
    let t = fma::<L>(x, FRAC_2_PI, ROUNDING_BIAS);
    let n = t - ROUNDING_BIAS;
    // π/2 is split into parts of 33 bits, whose products with `n` are exact
    let r = fma::<L>(n, -1.570_796_326_734_125_6, x);
    let r = fma::<L>(n, -6.077_100_506_303_966e-11, r);
    let r = fma::<L>(n, -2.022_266_248_711_166_5e-21, r);
    (fma::<L>(n, -8.478_427_660_368_9e-32, r), t.to_bits() as i64)
}
#[inline(always)]
fn sin_cos<const L: u8>(r: f64) -> (f64, f64) {
    let z = r * r;
    let s = poly::<L, 6>(
        z,
        [
            1.589_690_995_211_55e-10,
            -2.505_076_025_340_686e-8,
            2.755_731_370_707_007e-6,
            -1.984_126_982_985_795e-4,
            8.333_333_333_322_49e-3,
            -1.666_666_666_666_663_2e-1,
        ],
    );
    let c = poly::<L, 6>(
        z,
        [
            -1.135_964_755_778_819_5e-11,
            2.087_572_321_298_175e-9,
            -2.755_731_435_139_066_3e-7,
            2.480_158_728_947_673e-5,
            -1.388_888_888_887_305_6e-3,
            4.166_666_666_666_66e-2,
        ],
    );
    (fma::<L>(s * z, r, r), fma::<L>(c, z * z, fma::<L>(z, -0.5, 1.0)))
}
#[inline(always)]
fn flip(y: f64, sign: i64) -> f64 {
    f64::from_bits(y.to_bits() ^ ((sign & 2) as u64) << 62)
}
/// Returns the sine, with an error of at most 1.5 ulps.
#[inline(always)]
pub(super) fn sin<const L: u8>(x: f64) -> f64 {
    let (r, q) = reduce_quarter_turn::<L>(x);
    let (s, c) = sin_cos::<L>(r);
    select(x == 0.0, x, flip(if q & 1 == 0 { s } else { c }, q))
}
/// Returns the cosine, with an error of at most 1.5 ulps.
#[inline(always)]
pub(super) fn cos<const L: u8>(x: f64) -> f64 {
    let (r, q) = reduce_quarter_turn::<L>(x);
    let (s, c) = sin_cos::<L>(r);
    flip(if q & 1 == 0 { c } else { s }, q.wrapping_add(q & 1))
}

/// Returns |x| as n/2 + r/π for an integer n, up to whole turns: r, and n.
#[inline(always)]
fn reduce_half_turns<const L: u8>(x: f64) -> (f64, i64) {
    const PI_LO: f64 = 1.2246467991473532e-16;
    // integers from 2⁵³ on are even, and subtracting 2⁵² keeps an integer odd or even
    let (a, whole) = (x.abs(), 4503599627370496.0);
    let a = select(a < 2.0 * whole, a, 0.0);
    let a = select(a < whole, a, a - whole);
    let b = a - 2.0 * ((0.5 * a + ROUNDING_BIAS) - ROUNDING_BIAS);
    let t = 2.0 * b + ROUNDING_BIAS;
    let r = b - 0.5 * (t - ROUNDING_BIAS);
    (fma::<L>(r, PI, r * PI_LO), t.to_bits() as i64)
}
/// Returns sin(πx), with an error of at most 2.5 ulps. It is exact if x is a multiple of ½.
#[inline(always)]
#[expect(clippy::eq_op, reason = "the difference is NaN if x is infinite")]
pub(super) fn sinpi<const L: u8>(x: f64) -> f64 {
    let (r, q) = reduce_half_turns::<L>(x);
    let (s, c) = sin_cos::<L>(r);
    // (the sum makes −0 positive, and infinity NaN)
    let size = flip(if q & 1 == 0 { s } else { c }, q) + (x - x);
    f64::from_bits(size.to_bits() ^ (x.to_bits() & 1 << 63))
}
/// Returns cos(πx), with an error of at most 2.5 ulps. It is exact if x is a multiple of ½.
#[inline(always)]
#[expect(clippy::eq_op, reason = "the difference is NaN if x is infinite")]
pub(super) fn cospi<const L: u8>(x: f64) -> f64 {
    let (r, q) = reduce_half_turns::<L>(x);
    let (s, c) = sin_cos::<L>(r);
    // (the sum makes −0 positive, and infinity NaN)
    flip(if q & 1 == 0 { c } else { s }, q.wrapping_add(q & 1)) + (x - x)
}

/// Returns the error function, with an error of at most 1 ulp.
#[inline(always)]
pub(super) fn erf<const L: u8>(x: f64) -> f64 {
    libm::erf(x)
}

/// Returns the inverse error function.
#[inline(always)]
pub(super) fn erf_inv<const L: u8>(x: f64) -> f64 {
    giles_erf_inv(x)
}
/// The coefficients of [`giles_erf_inv`] for w below 6.25, the highest power first.
const ERF_INV_CENTRAL: [f64; 23] = [
    -3.6444120640178196996e-21,
    -1.685059138182016589e-19,
    1.2858480715256400167e-18,
    1.115787767802518096e-17,
    -1.333171662854620906e-16,
    2.0972767875968561637e-17,
    6.6376381343583238325e-15,
    -4.0545662729752068639e-14,
    -8.1519341976054721522e-14,
    2.6335093153082322977e-12,
    -1.2975133253453532498e-11,
    -5.4154120542946279317e-11,
    1.051212273321532285e-9,
    -4.1126339803469836976e-9,
    -2.9070369957882005086e-8,
    4.2347877827932403518e-7,
    -1.3654692000834678645e-6,
    -1.3882523362786468719e-5,
    0.0001867342080340571352,
    -0.00074070253416626697512,
    -0.0060336708714301490533,
    0.24015818242558961693,
    1.6536545626831027356,
];
/// The coefficients of [`giles_erf_inv`] for w from 6.25 to 16, the highest power first.
const ERF_INV_MIDDLE: [f64; 19] = [
    2.2137376921775787049e-9,
    9.0756561938885390979e-8,
    -2.7517406297064545428e-7,
    1.8239629214389227755e-8,
    1.5027403968909827627e-6,
    -4.013867526981545969e-6,
    2.9234449089955446044e-6,
    1.2475304481671778723e-5,
    -4.7318229009055733981e-5,
    6.8284851459573175448e-5,
    2.4031110387097893999e-5,
    -0.0003550375203628474796,
    0.00095328937973738049703,
    -0.0016882755560235047313,
    0.0024914420961078508066,
    -0.0037512085075692412107,
    0.005370914553590063617,
    1.0052589676941592334,
    3.0838856104922207635,
];
/// The coefficients of [`giles_erf_inv`] for w of 16 and above, the highest power first.
const ERF_INV_TAIL: [f64; 17] = [
    -2.7109920616438573243e-11,
    -2.5556418169965252055e-10,
    1.5076572693500548083e-9,
    -3.7894654401267369937e-9,
    7.6157012080783393804e-9,
    -1.4960026627149240478e-8,
    2.9147953450901080826e-8,
    -6.7711997758452339498e-8,
    2.2900482228026654717e-7,
    -9.9298272942317002539e-7,
    4.5260625972231537039e-6,
    -1.9681778105531670567e-5,
    7.5995277030017761139e-5,
    -0.00021503011930044477347,
    -0.00013871931833623122026,
    1.0103004648645343977,
    4.8499064014085844221,
];
/// Returns the inverse error function, by Giles' approximation.
fn giles_erf_inv(x: f64) -> f64 {
    let w = -log1p::<0>(-x * x);
    let p = if w < 6.25 {
        poly::<0, _>(w - 3.125, ERF_INV_CENTRAL)
    } else if w < 16.0 {
        poly::<0, _>(w.sqrt() - 3.25, ERF_INV_MIDDLE)
    } else {
        poly::<0, _>(w.sqrt() - 5.0, ERF_INV_TAIL)
    };
    if x.abs() == 1.0 { x * f64::INFINITY } else { p * x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The integers near 0 and near the powers of two at which the reduction changes.
    fn integers() -> impl Iterator<Item = u64> {
        let near = |n: u64| n.saturating_sub(9)..n + 9;
        (0..2000).chain(near(1 << 50)).chain(near(1 << 51)).chain(near(1 << 52)).chain(near(1 << 53))
    }

    #[test]
    fn half_turns_are_exact() {
        for n in integers() {
            // (from 2⁵³ on, an odd integer becomes an even one)
            let x = n as f64;
            let sign = if x as u64 & 1 == 0 { 1.0 } else { -1.0 };
            for x in [x, -x] {
                assert_eq!([cospi::<0>(x), cospi::<1>(x)], [sign; 2], "{x}");
                let zero = 0f64.copysign(x).to_bits();
                assert_eq!([sinpi::<0>(x), sinpi::<1>(x)].map(f64::to_bits), [zero; 2], "{x}");
            }
            for x in [x + 0.5, -x - 0.5].into_iter().filter(|x| x.fract() != 0.0) {
                assert_eq!([cospi::<0>(x), cospi::<1>(x)].map(f64::to_bits), [0; 2], "{x}");
                assert_eq!([sinpi::<0>(x), sinpi::<1>(x)], [sign.copysign(sign * x); 2], "{x}");
            }
        }
        assert!(cospi::<0>(f64::INFINITY).is_nan() && cospi::<0>(f64::NAN).is_nan());
    }
}
