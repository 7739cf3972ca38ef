//! Loops on float32 whose instructions the compiler does not find: AVX-512's scaling by powers of two, and its tests for NaN beside a maximum.
//!
//! Each computes, bit for bit, what the loop in Rust computes that it takes the place of; the tests compare them over all kinds of numbers.

use super::UNIT;
use super::fold::{Max, Min, Mix, Tree, fold_body};
use super::math32::{EXP, LN2_HI, LN2_LO, ROUND};
use super::run::Constants;
use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;

/// Elements of a vector.
const LANES: usize = 16;

/// `exp` of so many vectors, as `math32::exp` computes it: step by step of all, so that none waits for another.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
fn exp16<const V: usize>(mut x: [__m512; V]) -> [__m512; V] {
    let all = |x: f32| _mm512_set1_ps(x);
    // (loops, since an iterator's own functions would not have these instructions)
    for x in &mut x {
        // where x is NaN it is the second operand, which is then the result
        *x = _mm512_min_ps(all(89.0), _mm512_max_ps(all(-104.0), *x));
    }
    let mut n = x;
    for n in &mut n {
        *n = _mm512_sub_ps(_mm512_fmadd_ps(*n, all(LOG2_E), all(ROUND)), all(ROUND));
    }
    for (r, n) in x.iter_mut().zip(&n) {
        *r = _mm512_fmadd_ps(*n, all(-LN2_LO), _mm512_fmadd_ps(*n, all(-LN2_HI), *r));
    }
    let mut y = [all(EXP[0]); V];
    for c in [EXP[1], EXP[2], EXP[3], EXP[4], 1.0, 1.0] {
        for (y, r) in y.iter_mut().zip(&x) {
            *y = _mm512_fmadd_ps(*y, *r, all(c));
        }
    }
    for (y, n) in y.iter_mut().zip(&n) {
        // rounded once, also where the result is subnormal
        *y = _mm512_scalef_ps(*y, *n);
    }
    y
}

/// `exp` of what `of` makes of 16 elements at a time.
///
/// # Safety
/// As [`Kernel`](super::Kernel) says, for float32; the processor has these features.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn exps(n: usize, d: *mut f32, a: *const f32, of: impl Fn(__m512) -> __m512) {
    let (pairs, whole) = (n / (2 * LANES) * (2 * LANES), n / LANES * LANES);
    // SAFETY: the caller's: n elements at both; those behind the whole vectors are masked
    unsafe {
        for i in (0..pairs).step_by(2 * LANES) {
            let (p, q) = (_mm512_loadu_ps(a.add(i)), _mm512_loadu_ps(a.add(i + LANES)));
            let [p, q] = exp16([of(p), of(q)]);
            _mm512_storeu_ps(d.add(i), p);
            _mm512_storeu_ps(d.add(i + LANES), q);
        }
        for i in (pairs..whole).step_by(LANES) {
            _mm512_storeu_ps(d.add(i), exp16([of(_mm512_loadu_ps(a.add(i)))])[0]);
        }
        if whole < n {
            let rest = ((1u32 << (n - whole)) - 1) as __mmask16;
            let x = _mm512_maskz_loadu_ps(rest, a.add(whole));
            _mm512_mask_storeu_ps(d.add(whole), rest, exp16([of(x)])[0]);
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
        match k[0] == 1.0 {
            true => exps(n, d.cast(), a.cast(), |x| _mm512_add_ps(x, kb)),
            false => exps(n, d.cast(), a.cast(), |x| _mm512_add_ps(_mm512_mul_ps(x, k0), kb)),
        }
    }
}

/// What units of so many elements of a row are folded to, combined as by a fold of any row.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
fn units<const UNIT: usize>(
    n: usize,
    unit: impl Fn(usize, usize) -> f32,
    mix: impl Fn(f32, f32) -> f32,
) -> f32 {
    let first = unit(0, n.min(UNIT));
    if n <= UNIT {
        return first;
    }
    if n <= UNIT.saturating_mul(2) {
        return mix(first, unit(UNIT, n - UNIT));
    }
    // as many as a count has digits
    let (mut made, mut tree) = ([0.0; 64], Tree::new(0));
    made[0] = first;
    tree.pushed(|_, _| ());
    for from in (UNIT..n).step_by(UNIT) {
        made[tree.depth] = unit(from, UNIT.min(n - from));
        tree.pushed(|a, b| made[a] = mix(made[a], made[b]));
    }
    tree.end(|a, b| made[a] = mix(made[a], made[b]));
    made[0]
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

/// The sum of a row of n, unit by unit: `two` makes 32 elements from a place on, `rest` some of 16, which alone count.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
fn added<const UNIT: usize>(
    n: usize,
    two: impl Fn(usize) -> [__m512; 2],
    rest: impl Fn(usize, __mmask16) -> __m512,
) -> f32 {
    const RUN: usize = 4 * LANES;
    let unit = |from: usize, n: usize| {
        let mut lanes = [_mm512_setzero_ps(); 4];
        let whole = from + n / RUN * RUN;
        for i in (from..whole).step_by(RUN) {
            let ([p, q], [r, s]) = (two(i), two(i + 2 * LANES));
            for (lanes, x) in lanes.iter_mut().zip([p, q, r, s]) {
                *lanes = _mm512_add_ps(*lanes, x);
            }
        }
        for (j, lanes) in lanes.iter_mut().enumerate() {
            let at = whole + j * LANES;
            if at < from + n {
                let mask = (u32::from(u16::MAX) >> (LANES - (from + n - at).min(LANES))) as __mmask16;
                *lanes = _mm512_mask_add_ps(*lanes, mask, *lanes, rest(at, mask));
            }
        }
        halved(lanes)
    };
    units::<UNIT>(n, unit, |a, b| a + b)
}

/// The sum of a row at `a`, unit by unit.
///
/// # Safety
/// As [`Kernel`](super::Kernel) says, for a fold of float32; the processor has these features.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn sum<const UNIT: usize>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    _: &Constants,
) {
    let a = a.cast::<f32>();
    // SAFETY: the caller's: n elements at a, and room for one at d; those behind are masked
    unsafe {
        let at = |i: usize| _mm512_loadu_ps(a.add(i));
        let sum =
            added::<UNIT>(n, |i| [at(i), at(i + LANES)], |i, mask| _mm512_maskz_loadu_ps(mask, a.add(i)));
        d.cast::<f32>().write(sum);
    }
}

/// The sum of a row of `a·b`, each product rounded.
///
/// # Safety
/// As for [`sum`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn products(n: usize, d: *mut u8, a: *const u8, b: *const u8, _: *const u8, _: &Constants) {
    let (a, b) = (a.cast::<f32>(), b.cast::<f32>());
    // SAFETY: as in `sum`, and n elements at b
    unsafe {
        let at = |i: usize| _mm512_mul_ps(_mm512_loadu_ps(a.add(i)), _mm512_loadu_ps(b.add(i)));
        let some = |i: usize, mask: __mmask16| {
            _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, a.add(i)), _mm512_maskz_loadu_ps(mask, b.add(i)))
        };
        d.cast::<f32>().write(added::<UNIT>(n, |i| [at(i), at(i + LANES)], some));
    }
}

/// The sum of `k0·a`, each product rounded.
///
/// # Safety
/// As for [`sum`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn scaled(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, k: &Constants) {
    let (a, k0) = (a.cast::<f32>(), _mm512_set1_ps(k[0] as f32));
    // SAFETY: as in `sum`
    unsafe {
        let at = |i: usize| _mm512_mul_ps(_mm512_loadu_ps(a.add(i)), k0);
        let some = |i: usize, mask: __mmask16| _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, a.add(i)), k0);
        d.cast::<f32>().write(added::<UNIT>(n, |i| [at(i), at(i + LANES)], some));
    }
}

/// The sum of the squares of `k0·a + k1·b`, where b is one element; at `c` there is room for n elements, which become what is squared. Each
/// product and each sum is rounded.
///
/// # Safety
/// As [`Kernel`](super::Kernel) says, for a fold of float32 and one element at `b`; n elements at `c` overlap no other operand, and nobody
/// else has them; the processor has these features.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn squares(n: usize, d: *mut u8, a: *const u8, b: *const u8, c: *const u8, k: &Constants) {
    const RUN: usize = 4 * LANES;
    if n == 0 {
        // SAFETY: the caller's
        return unsafe { d.cast::<f32>().write(0.0) };
    }
    let (a, c) = (a.cast::<f32>(), c.cast_mut().cast::<f32>());
    let mut lanes = [_mm512_setzero_ps(); 4];
    let whole = n / RUN * RUN;
    // SAFETY: the caller's; those behind the whole runs are masked
    unsafe {
        let (k0, kb) = (_mm512_set1_ps(k[0] as f32), _mm512_set1_ps(*b.cast::<f32>() * k[1] as f32));
        for i in (0..whole).step_by(RUN) {
            for (j, lanes) in lanes.iter_mut().enumerate() {
                let i = i + j * LANES;
                let x = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(a.add(i)), k0), kb);
                _mm512_storeu_ps(c.add(i), x);
                *lanes = _mm512_add_ps(*lanes, _mm512_mul_ps(x, x));
            }
        }
        for (j, lanes) in lanes.iter_mut().enumerate() {
            let at = whole + j * LANES;
            if at < n {
                let mask = (u32::from(u16::MAX) >> (LANES - (n - at).min(LANES))) as __mmask16;
                let x = _mm512_maskz_loadu_ps(mask, a.add(at));
                let x = _mm512_add_ps(_mm512_mul_ps(x, k0), kb);
                _mm512_mask_storeu_ps(c.add(at), mask, x);
                *lanes = _mm512_mask_add_ps(*lanes, mask, *lanes, _mm512_mul_ps(x, x));
            }
        }
        d.cast::<f32>().write(halved(lanes));
    }
}

/// The sum of a row of `exp` of the elements at `a`.
///
/// # Safety
/// As for [`sum`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn sum_exp(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, _: &Constants) {
    // SAFETY: as in `sum`
    unsafe { d.cast::<f32>().write(sum_exps(n, a.cast(), |x| x)) }
}

/// The sum of a row of what [`exp_lin`] makes.
///
/// # Safety
/// As for [`sum`]; there is one element at `b`.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn sum_exp_lin(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    _: *const u8,
    k: &Constants,
) {
    let a = a.cast::<f32>();
    // SAFETY: as in `sum`, and an element at b
    unsafe {
        let (k0, kb) = (_mm512_set1_ps(k[0] as f32), _mm512_set1_ps(*b.cast::<f32>() * k[1] as f32));
        let (plain, scaled) = (|x| _mm512_add_ps(x, kb), |x| _mm512_add_ps(_mm512_mul_ps(x, k0), kb));
        let sum = match k[0] == 1.0 {
            true => sum_exps(n, a, plain),
            false => sum_exps(n, a, scaled),
        };
        d.cast::<f32>().write(sum);
    }
}

/// The sum of a row of `exp` of what `of` makes.
///
/// # Safety
/// There are n elements at `a`.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn sum_exps(n: usize, a: *const f32, of: impl Fn(__m512) -> __m512) -> f32 {
    // SAFETY: the caller's; those behind are masked
    unsafe {
        let two = |i: usize| exp16([of(_mm512_loadu_ps(a.add(i))), of(_mm512_loadu_ps(a.add(i + LANES)))]);
        added::<UNIT>(n, two, |i, mask| exp16([of(_mm512_maskz_loadu_ps(mask, a.add(i)))])[0])
    }
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
                let mut m = _mm512_cvtss_f32(m);
                if nan != 0 || m == 0.0 {
                    let unit = |from: usize, n: usize| {
                        let mut y = 0f32;
                        fold_body::<$Mix<f32>>(n, (&raw mut y).cast(), x.add(from).cast());
                        y
                    };
                    m = units::<UNIT>(n, unit, <$Mix<f32> as Mix>::mix);
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
