//! Loops on float32 whose instructions the compiler does not find: AVX-512's scaling by powers of two, and its tests for NaN beside a maximum.
//!
//! Each computes, bit for bit, what the loop in Rust computes that it takes the place of; the tests compare them over all kinds of numbers.

use super::fold::{Max, Min, Mix, fold_body};
use super::math32::{EXP_TAIL, LN2_HI, LN2_LO, ROUND};
use super::run::Constants;
use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;

/// Elements of a vector.
const LANES: usize = 16;

/// `exp` of 16 elements, as `math32::exp` computes it.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
fn exp16(x: __m512) -> __m512 {
    let all = |x: f32| _mm512_set1_ps(x);
    // where x is NaN it is the second operand, which is then the result
    let x = _mm512_min_ps(all(89.0), _mm512_max_ps(all(-104.0), x));
    let n = _mm512_sub_ps(_mm512_fmadd_ps(x, all(LOG2_E), all(ROUND)), all(ROUND));
    let r = _mm512_fmadd_ps(n, all(-LN2_LO), _mm512_fmadd_ps(n, all(-LN2_HI), x));
    let mut p = all(EXP_TAIL[0]);
    for c in &EXP_TAIL[1..] {
        p = _mm512_fmadd_ps(p, r, all(*c));
    }
    let p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    // rounded once, also where the result is subnormal
    _mm512_scalef_ps(_mm512_add_ps(p, all(1.0)), n)
}

/// `exp` of what `of` makes of 16 elements at a time.
///
/// # Safety
/// As [`Kernel`](super::Kernel) says, for float32; the processor has these features.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn exps(n: usize, d: *mut f32, a: *const f32, of: impl Fn(__m512) -> __m512) {
    let whole = n / LANES * LANES;
    // SAFETY: the caller's: n elements at both; those behind the whole vectors are masked
    unsafe {
        for i in (0..whole).step_by(LANES) {
            _mm512_storeu_ps(d.add(i), exp16(of(_mm512_loadu_ps(a.add(i)))));
        }
        if whole < n {
            let rest = ((1u32 << (n - whole)) - 1) as __mmask16;
            let x = _mm512_maskz_loadu_ps(rest, a.add(whole));
            _mm512_mask_storeu_ps(d.add(whole), rest, exp16(of(x)));
        }
    }
}

/// # Safety
/// As [`Kernel`](super::Kernel) says, for float32; the processor has these features.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn exp(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, _: &Constants) {
    // SAFETY: the caller's
    unsafe { exps(n, d.cast(), a.cast(), |x| x) }
}

/// `exp` of `k0·a + k1·b`, where b is one element: each product and the sum are rounded.
///
/// # Safety
/// As [`Kernel`](super::Kernel) says, for float32 and one element at `b`; the processor has these features.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn exp_lin(n: usize, d: *mut u8, a: *const u8, b: *const u8, _: *const u8, k: &Constants) {
    if n == 0 {
        return;
    }
    // SAFETY: the caller's
    unsafe {
        let (k0, kb) = (_mm512_set1_ps(k[0] as f32), _mm512_set1_ps(*b.cast::<f32>() * k[1] as f32));
        exps(n, d.cast(), a.cast(), |x| _mm512_add_ps(_mm512_mul_ps(x, k0), kb));
    }
}

/// The sum of 64 lanes, halved as folds halve them: of two numbers either may be added to the other.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
fn halved([p, q, r, s]: [__m512; 4]) -> f32 {
    let mut m = _mm512_add_ps(_mm512_add_ps(p, r), _mm512_add_ps(q, s));
    m = _mm512_add_ps(m, _mm512_shuffle_f32x4::<0b01_00_11_10>(m, m));
    m = _mm512_add_ps(m, _mm512_shuffle_f32x4::<0b10_11_00_01>(m, m));
    m = _mm512_add_ps(m, _mm512_permute_ps::<0b01_00_11_10>(m));
    m = _mm512_add_ps(m, _mm512_permute_ps::<0b10_11_00_01>(m));
    _mm512_cvtss_f32(m)
}

/// Folds of float32 by addition, of what is at some operands.
macro_rules! sums {
    ($($(#[$doc:meta])* $name:ident |$a:ident, $b:ident| $whole:expr, |$mask:ident| $rest:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`Kernel`](super::Kernel) says, for a fold of float32; the processor has these features.
        #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
        pub(super) unsafe fn $name(n: usize, d: *mut u8, a: *const u8, b: *const u8, _: *const u8, _: &Constants) {
            const RUN: usize = 4 * LANES;
            let (a, b) = (a.cast::<f32>(), b.cast::<f32>());
            let mut lanes = [_mm512_setzero_ps(); 4];
            let whole = n / RUN * RUN;
            // SAFETY: the caller's: n elements at the operands, and room for one at d; those behind are masked
            unsafe {
                for i in (0..whole).step_by(RUN) {
                    for (j, lanes) in lanes.iter_mut().enumerate() {
                        let ($a, $b) = (a.wrapping_add(i + j * LANES), b.wrapping_add(i + j * LANES));
                        *lanes = _mm512_add_ps(*lanes, $whole);
                    }
                }
                for (j, lanes) in lanes.iter_mut().enumerate() {
                    let at = whole + j * LANES;
                    if at < n {
                        let $mask = (u32::from(u16::MAX) >> (LANES - (n - at).min(LANES))) as __mmask16;
                        let ($a, $b) = (a.wrapping_add(at), b.wrapping_add(at));
                        *lanes = _mm512_mask_add_ps(*lanes, $mask, *lanes, $rest);
                    }
                }
                d.cast::<f32>().write(halved(lanes));
            }
        }
    )* };
}
sums! {
    /// The sum of the elements at `a`.
    sum |a, _b| _mm512_loadu_ps(a), |mask| _mm512_maskz_loadu_ps(mask, a);
    /// The sum of `a·b`, each product rounded.
    products |a, b| _mm512_mul_ps(_mm512_loadu_ps(a), _mm512_loadu_ps(b)),
        |mask| _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, a), _mm512_maskz_loadu_ps(mask, b));
}

/// A fold by a maximum or a minimum: of numbers that are not NaN it is the same in every order, up to the sign of 0. Where that does not decide,
/// it is done in its order.
macro_rules! extremes {
    ($($name:ident $Mix:ident $two:ident;)*) => { $(
        /// # Safety
        /// As [`Kernel`](super::Kernel) says, for a fold of float32; the processor has these features.
        #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
        pub(super) unsafe fn $name(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, _: &Constants) {
            const RUN: usize = 4 * LANES;
            let x = a.cast::<f32>();
            let (mut most, mut nan) = ([_mm512_set1_ps(<$Mix<f32> as Mix>::UNIT); 4], 0);
            let whole = n / LANES * LANES;
            // SAFETY: the caller's: n elements at a, and room for one at d; those behind the whole vectors are masked
            unsafe {
                for i in (0..n / RUN * RUN).step_by(RUN) {
                    for (j, most) in most.iter_mut().enumerate() {
                        let x = _mm512_loadu_ps(x.add(i + j * LANES));
                        nan |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
                        *most = $two(*most, x);
                    }
                }
                for i in (n / RUN * RUN..whole).step_by(LANES) {
                    let x = _mm512_loadu_ps(x.add(i));
                    nan |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
                    most[0] = $two(most[0], x);
                }
                if whole < n {
                    let rest = ((1u32 << (n - whole)) - 1) as __mmask16;
                    let x = _mm512_mask_loadu_ps(most[1], rest, x.add(whole));
                    nan |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
                    most[1] = $two(most[1], x);
                }
                let [p, q, r, s] = most;
                let mut m = $two($two(p, q), $two(r, s));
                m = $two(m, _mm512_shuffle_f32x4::<0b01_00_11_10>(m, m));
                m = $two(m, _mm512_shuffle_f32x4::<0b10_11_00_01>(m, m));
                m = $two(m, _mm512_permute_ps::<0b01_00_11_10>(m));
                m = $two(m, _mm512_permute_ps::<0b10_11_00_01>(m));
                let m = _mm512_cvtss_f32(m);
                if nan != 0 || m == 0.0 {
                    return fold_body::<$Mix<f32>>(n, d, a);
                }
                d.cast::<f32>().write(m);
            }
        }
    )* };
}
extremes! {
    max Max _mm512_max_ps;
    min Min _mm512_min_ps;
}
