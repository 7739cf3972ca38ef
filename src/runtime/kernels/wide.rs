//! Loops on float32 whose instructions the compiler does not find: scaling by powers of two, tests for NaN beside a maximum, several sums at once.
//!
//! Each computes, bit for bit, what the loop in Rust computes that it takes the place of; the tests compare them over all kinds of numbers.
//! The text of each is one, in vectors of 16 elements; each processor level has its own functions of such vectors.

use super::{Kernel, UNIT};
use crate::runtime::cpu::Level;

/// The loops of a level, which has these features.
macro_rules! loops {
    ($level:ident $features:tt) => {
        mod $level {
            use super::super::UNIT;
            use super::super::fold::{Max, Min, Mix, Tree, fold_body};
            use super::super::math32::{EXP, LN2_HI, LN2_LO, ROUND};
            use super::super::run::Constants;
            use super::super::vector::Range;
            use super::super::vector::$level::*;
            use std::f32::consts::LOG2_E;

            /// Elements of a vector.
            const LANES: usize = 16;
            /// Elements that are folded side by side.
            const RUN: usize = 4 * LANES;

            /// `exp` of what `of` makes of so many vectors, as `math32::exp` computes it: step by step of all, so that none waits for another.
            #[target_feature(enable = $features)]
            #[inline]
            fn exp16<const N: usize>(mut x: [V; N], of: &impl Fn(V) -> V) -> [V; N] {
                // (loops, since an iterator's own functions would not have these instructions)
                for x in &mut x {
                    *x = of(*x);
                }
                match range(&x) {
                    Range::Any => exp_any(x),
                    Range::Near => powers(x, |y, t, n| scale_near(y, t, n)),
                    Range::Far => exp_far(x),
                }
            }
            /// `exp`, also where it is subnormal, 0 or infinite.
            #[target_feature(enable = $features)]
            #[inline]
            fn exp_any<const N: usize>(mut x: [V; N]) -> [V; N] {
                for x in &mut x {
                    // where x is NaN it is the second operand, which is then the result
                    *x = min(all(89.0), max(all(-104.0), *x));
                }
                powers(x, |y, t, n| scale(y, t, n))
            }
            /// The same, apart: so that what is near is computed where it is wanted.
            #[target_feature(enable = $features)]
            #[cold]
            #[inline(never)]
            fn exp_far<const N: usize>(x: [V; N]) -> [V; N] {
                exp_any(x)
            }
            /// `exp` where what has powers of two is not out of range.
            #[target_feature(enable = $features)]
            #[inline]
            fn powers<const N: usize>(mut x: [V; N], scale: impl Fn(V, V, V) -> V) -> [V; N] {
                let (mut t, mut n) = (x, x);
                for (t, n) in t.iter_mut().zip(&mut n) {
                    *t = fma(*t, all(LOG2_E), all(ROUND));
                    *n = sub(*t, all(ROUND));
                }
                for (r, n) in x.iter_mut().zip(&n) {
                    *r = fma(*n, all(-LN2_LO), fma(*n, all(-LN2_HI), *r));
                }
                let mut y = [all(EXP[0]); N];
                for c in [EXP[1], EXP[2], EXP[3], EXP[4], 1.0, 1.0] {
                    for (y, r) in y.iter_mut().zip(&x) {
                        *y = fma(*y, *r, all(c));
                    }
                }
                for (y, (t, n)) in y.iter_mut().zip(t.iter().zip(&n)) {
                    *y = scale(*y, *t, *n);
                }
                y
            }

            /// `exp` of what `of` makes of 16 elements at a time.
            ///
            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for float32.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn exps(n: usize, d: *mut f32, a: *const f32, of: impl Fn(V) -> V) {
                let (pairs, whole) = (n / (2 * LANES) * (2 * LANES), n / LANES * LANES);
                // SAFETY: the caller's: n elements at both; those behind the whole vectors are masked
                unsafe {
                    for i in (0..pairs).step_by(2 * LANES) {
                        let (p, q) = (load(a.add(i)), load(a.add(i + LANES)));
                        let [p, q] = exp16([p, q], &of);
                        store(d.add(i), p);
                        store(d.add(i + LANES), q);
                    }
                    for i in (pairs..whole).step_by(LANES) {
                        store(d.add(i), exp16([load(a.add(i))], &of)[0]);
                    }
                    if whole < n {
                        let rest = first(n - whole);
                        let x = load_some(a.add(whole), rest);
                        store_some(d.add(whole), rest, exp16([x], &of)[0]);
                    }
                }
            }

            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for float32; the processor has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn exp(
                n: usize,
                d: *mut u8,
                a: *const u8,
                _: *const u8,
                _: *const u8,
                _: &Constants,
            ) {
                // SAFETY: the caller's
                unsafe { exps(n, d.cast(), a.cast(), |x| x) }
            }

            /// `exp` of `k0·a + k1·b`, where b is one element: each product and the sum are rounded.
            ///
            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for float32 and one element at `b`; the processor has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn exp_lin(
                n: usize,
                d: *mut u8,
                a: *const u8,
                b: *const u8,
                _: *const u8,
                k: &Constants,
            ) {
                if n == 0 {
                    return;
                }
                // SAFETY: the caller's
                unsafe {
                    let (k0, kb) = (all(k[0] as f32), all(*b.cast::<f32>() * k[1] as f32));
                    match k[0] == 1.0 {
                        true => exps(n, d.cast(), a.cast(), |x| add(x, kb)),
                        false => exps(n, d.cast(), a.cast(), |x| add(mul(x, k0), kb)),
                    }
                }
            }

            /// What units of so many elements of a row are folded to, combined as by a fold of any row.
            #[target_feature(enable = $features)]
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

            /// What 16 elements are folded to, halved as folds halve them: of two numbers either may be the other's operand.
            #[target_feature(enable = $features)]
            #[inline]
            fn halved(x: V, mix: impl Fn(V, V) -> V) -> f32 {
                let x = mix(x, swap8(x));
                let x = mix(x, swap4(x));
                let x = mix(x, swap2(x));
                front(mix(x, swap1(x)))
            }
            /// The sum of a run.
            #[target_feature(enable = $features)]
            #[inline]
            fn sum_of([p, q, r, s]: [V; 4]) -> f32 {
                halved(add(add(p, r), add(q, s)), |x, y| add(x, y))
            }

            /// The sum of a row of n, unit by unit: `two` makes 32 elements from a place on, `rest` some of 16, which alone count.
            #[target_feature(enable = $features)]
            #[inline]
            fn added<const UNIT: usize>(
                n: usize,
                two: impl Fn(usize) -> [V; 2],
                rest: impl Fn(usize, First) -> V,
            ) -> f32 {
                let unit = |from: usize, n: usize| {
                    let mut lanes = [all(0.0); 4];
                    let whole = from + n / RUN * RUN;
                    for i in (from..whole).step_by(RUN) {
                        // (in one place, so that what is made there is made in line)
                        for half in [0, 2] {
                            let [p, q] = two(i + half * LANES);
                            lanes[half] = add(lanes[half], p);
                            lanes[half + 1] = add(lanes[half + 1], q);
                        }
                    }
                    for (j, lanes) in lanes.iter_mut().enumerate() {
                        let at = whole + j * LANES;
                        if at < from + n {
                            let some = first((from + n - at).min(LANES));
                            *lanes = add_some(*lanes, rest(at, some), some);
                        }
                    }
                    sum_of(lanes)
                };
                units::<UNIT>(n, unit, |a, b| a + b)
            }

            /// The sum of a row at `a`, unit by unit.
            ///
            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for a fold of float32; the processor has these features.
            #[target_feature(enable = $features)]
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
                    let at = |i: usize| load(a.add(i));
                    let sum =
                        added::<UNIT>(n, |i| [at(i), at(i + LANES)], |i, some| load_some(a.add(i), some));
                    d.cast::<f32>().write(sum);
                }
            }

            /// The sum of a row of `a·b`, each product rounded.
            ///
            /// # Safety
            /// As for [`sum`].
            #[target_feature(enable = $features)]
            pub(super) unsafe fn products(
                n: usize,
                d: *mut u8,
                a: *const u8,
                b: *const u8,
                _: *const u8,
                _: &Constants,
            ) {
                let (a, b) = (a.cast::<f32>(), b.cast::<f32>());
                // SAFETY: as in `sum`, and n elements at b
                unsafe {
                    let at = |i: usize| mul(load(a.add(i)), load(b.add(i)));
                    let some =
                        |i: usize, some: First| mul(load_some(a.add(i), some), load_some(b.add(i), some));
                    d.cast::<f32>().write(added::<UNIT>(n, |i| [at(i), at(i + LANES)], some));
                }
            }

            /// The sum of `k0·a`, each product rounded.
            ///
            /// # Safety
            /// As for [`sum`].
            #[target_feature(enable = $features)]
            pub(super) unsafe fn scaled(
                n: usize,
                d: *mut u8,
                a: *const u8,
                _: *const u8,
                _: *const u8,
                k: &Constants,
            ) {
                let (a, k0) = (a.cast::<f32>(), all(k[0] as f32));
                // SAFETY: as in `sum`
                unsafe {
                    let at = |i: usize| mul(load(a.add(i)), k0);
                    let some = |i: usize, some: First| mul(load_some(a.add(i), some), k0);
                    d.cast::<f32>().write(added::<UNIT>(n, |i| [at(i), at(i + LANES)], some));
                }
            }

            /// The sum of the squares of `k0·a + k1·b`, where b is one element; at `c` there is room for n elements, which become what is squared. Each
            /// product and each sum is rounded.
            ///
            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for a fold of float32 and one element at `b`; n elements at `c` overlap no other operand, and nobody
            /// else has them; the processor has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn squares(
                n: usize,
                d: *mut u8,
                a: *const u8,
                b: *const u8,
                c: *const u8,
                k: &Constants,
            ) {
                if n == 0 {
                    // SAFETY: the caller's
                    return unsafe { d.cast::<f32>().write(0.0) };
                }
                let (a, c) = (a.cast::<f32>(), c.cast_mut().cast::<f32>());
                let mut lanes = [all(0.0); 4];
                let whole = n / RUN * RUN;
                // SAFETY: the caller's; those behind the whole runs are masked
                unsafe {
                    let (k0, kb) = (all(k[0] as f32), all(*b.cast::<f32>() * k[1] as f32));
                    for i in (0..whole).step_by(RUN) {
                        for (j, lanes) in lanes.iter_mut().enumerate() {
                            let i = i + j * LANES;
                            let x = add(mul(load(a.add(i)), k0), kb);
                            store(c.add(i), x);
                            *lanes = add(*lanes, mul(x, x));
                        }
                    }
                    for (j, lanes) in lanes.iter_mut().enumerate() {
                        let at = whole + j * LANES;
                        if at < n {
                            let some = first((n - at).min(LANES));
                            let x = add(mul(load_some(a.add(at), some), k0), kb);
                            store_some(c.add(at), some, x);
                            *lanes = add_some(*lanes, mul(x, x), some);
                        }
                    }
                    d.cast::<f32>().write(sum_of(lanes));
                }
            }

            /// The sum of a row of `exp` of the elements at `a`.
            ///
            /// # Safety
            /// As for [`sum`].
            #[target_feature(enable = $features)]
            pub(super) unsafe fn sum_exp(
                n: usize,
                d: *mut u8,
                a: *const u8,
                _: *const u8,
                _: *const u8,
                _: &Constants,
            ) {
                // SAFETY: as in `sum`
                unsafe { d.cast::<f32>().write(sum_exps(n, a.cast(), |x| x)) }
            }

            /// The sum of a row of what [`exp_lin`] makes.
            ///
            /// # Safety
            /// As for [`sum`]; there is one element at `b`.
            #[target_feature(enable = $features)]
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
                    let (k0, kb) = (all(k[0] as f32), all(*b.cast::<f32>() * k[1] as f32));
                    let sum = match k[0] == 1.0 {
                        true => sum_exps(n, a, |x| add(x, kb)),
                        false => sum_exps(n, a, |x| add(mul(x, k0), kb)),
                    };
                    d.cast::<f32>().write(sum);
                }
            }

            /// The sum of a row of `exp` of what `of` makes.
            ///
            /// # Safety
            /// There are n elements at `a`.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn sum_exps(n: usize, a: *const f32, of: impl Fn(V) -> V) -> f32 {
                // SAFETY: the caller's; those behind are masked
                unsafe {
                    let two = |i: usize| exp16([load(a.add(i)), load(a.add(i + LANES))], &of);
                    added::<UNIT>(n, two, |i, some| exp16([load_some(a.add(i), some)], &of)[0])
                }
            }

            /// A fold by a maximum or a minimum: of numbers that are not NaN it is the same in every order, up to the sign of 0. Where that does not
            /// decide, it is done in its order.
            ///
            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for a fold of float32.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn extreme<M: Mix<M = f32, T = f32>>(
                n: usize,
                d: *mut u8,
                a: *const u8,
                two: impl Fn(V, V) -> V,
            ) {
                let x = a.cast::<f32>();
                let (mut most, mut found) = ([all(M::UNIT); 4], no_nans());
                let (runs, whole) = (n / RUN * RUN, n / LANES * LANES);
                // SAFETY: the caller's: n elements at a, and room for one at d; those behind the whole vectors are masked
                unsafe {
                    for i in (0..runs).step_by(RUN) {
                        for (j, most) in most.iter_mut().enumerate() {
                            let x = load(x.add(i + j * LANES));
                            found = nans(found, x);
                            *most = two(*most, x);
                        }
                    }
                    for i in (runs..whole).step_by(LANES) {
                        let x = load(x.add(i));
                        found = nans(found, x);
                        most[0] = two(most[0], x);
                    }
                    if whole < n {
                        let x = load_into(most[1], x.add(whole), first(n - whole));
                        found = nans(found, x);
                        most[1] = two(most[1], x);
                    }
                    let [p, q, r, s] = most;
                    let mut m = halved(two(two(p, q), two(r, s)), &two);
                    if any(found) || m == 0.0 {
                        let unit = |from: usize, n: usize| {
                            let mut y = 0f32;
                            fold_body::<M>(n, (&raw mut y).cast(), x.add(from).cast());
                            y
                        };
                        m = units::<UNIT>(n, unit, M::mix);
                    }
                    d.cast::<f32>().write(m);
                }
            }
            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for a fold of float32; the processor has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn most(
                n: usize,
                d: *mut u8,
                a: *const u8,
                _: *const u8,
                _: *const u8,
                _: &Constants,
            ) {
                // SAFETY: the caller's
                unsafe { extreme::<Max<f32>>(n, d, a, |x, y| max(x, y)) }
            }
            /// # Safety
            /// As [`Kernel`](super::super::Kernel) says, for a fold of float32; the processor has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn least(
                n: usize,
                d: *mut u8,
                a: *const u8,
                _: *const u8,
                _: *const u8,
                _: &Constants,
            ) {
                // SAFETY: the caller's
                unsafe { extreme::<Min<f32>>(n, d, a, |x, y| min(x, y)) }
            }
        }
    };
}
loops!(avx512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2");
loops!(avx2 "avx2,fma,bmi2");

/// The loop of a level; the lowest has none.
macro_rules! at_levels {
    ($($(#[$doc:meta])* $name:ident: $loop:ident$(::<$unit:tt>)?;)*) => { $(
        $(#[$doc])*
        pub(super) fn $name(level: Level) -> Option<Kernel> {
            match level {
                Level::Avx512 => Some(avx512::$loop$(::<$unit>)?),
                Level::Avx2 => Some(avx2::$loop$(::<$unit>)?),
                Level::Base => None,
            }
        }
    )* };
}
at_levels! {
    /// `exp`.
    exp: exp;
    /// `exp` of `k0·a + k1·b`, where b is one element: each product and the sum are rounded.
    exp_lin: exp_lin;
    /// The sum of elements.
    sum: sum::<{ usize::MAX }>;
    /// The sum of a row, unit by unit, as those below.
    sum_row: sum::<UNIT>;
    /// The sum of a row of `a·b`, each product rounded.
    products: products;
    /// The sum of `k0·a`, each product rounded.
    scaled: scaled;
    /// The sum of the squares of `k0·a + k1·b`, which it leaves at `c`.
    squares: squares;
    /// The sum of a row of `exp` of its elements.
    sum_exp: sum_exp;
    /// The sum of a row of what [`exp_lin`] makes.
    sum_exp_lin: sum_exp_lin;
    /// The greatest of a row.
    max: most;
    /// The least of a row.
    min: least;
}
