//! SIMD loops on float32 that the compiler does not generate.
//!
//! They scale by powers of two, test for NaN next to a maximum, or compute several sums at the same
//! time. Each one computes the same bits as the scalar loop that it replaces; the tests check this,
//! also for NaN, infinities and subnormal numbers. Each loop is written once, in terms of vectors
//! of 16 elements, which AVX2 and AVX-512 implement differently (`simd_vec`).

use super::{SliceKernel, UNIT_ELEMENTS};
use crate::kernels::cpu::IsaLevel;

/// Defines kernels of float32 with these features, as an expression of pointers to the operands.
macro_rules! kernels {
    ($features:tt $(
        $(#[$doc:meta])*
        $name:ident$(<$UNIT:ident>)?($n:ident, $d:ident, $a:ident, $b:ident, $c:ident, $k:ident)
            => $body:expr;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The caller upholds the contract of [`SliceKernel`](super::super::SliceKernel) for
        /// float32; the processor has these features. If the kernel says that it writes to `c`,
        /// this points to space for `n` elements, which overlaps no other operand and which no
        /// other code accesses.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name$(<const $UNIT: usize>)?(
            $n: usize,
            $d: *mut u8,
            $a: *const u8,
            $b: *const u8,
            $c: *const u8,
            $k: &Constants,
        ) {
            let ($d, $a, $b, $c) = ($d.cast::<f32>(), $a.cast::<f32>(), $b.cast::<f32>(), $c.cast::<f32>());
            let _ = ($b, $c, $k);
            // SAFETY: the operands that the expression uses have `n` elements, or one if the kernel
            // repeats it, and `d` has space for `n`, or for one if it is a fold (caller contract);
            // elements after the last full vector are masked.
            unsafe { $body }
        }
    )* };
}

/// Defines the loops of a level with these features.
macro_rules! loops {
    ($level:ident $features:tt) => {
        mod $level {
            use super::super::UNIT_ELEMENTS;
            use super::super::elementwise::Constants;
            use super::super::math32::{EXP, LN2_HI, LN2_LO, ROUNDING_BIAS};
            use super::super::reduce::{CombineOp, Max, MergeStack, Min, fold_body};
            use super::super::simd_vec::Range;
            use super::super::simd_vec::$level::*;
            use std::f32::consts::LOG2_E;

            /// The number of elements in a vector.
            const LANES: usize = 16;
            /// The number of elements that are folded in parallel.
            const RUN_ELEMENTS: usize = 4 * LANES;

            /// Returns `exp(of(x))` for several vectors `x`, with the same bits as `math32::exp`.
            ///
            /// Each step is done for all vectors before the next step, so that no vector waits for
            /// another one.
            #[target_feature(enable = $features)]
            #[inline]
            fn exp16<const N: usize>(mut x: [V; N], of: &impl Fn(V) -> V) -> [V; N] {
                // loops instead of iterators, whose methods would be compiled without these
                // instructions
                for x in &mut x {
                    *x = of(*x);
                }
                match range(&x) {
                    Range::Any => exp_any(x),
                    Range::Near => powers(x, |y, t, n| scale_near(y, t, n)),
                    Range::Far => exp_far(x),
                }
            }
            /// Returns `exp` of the vectors, for any arguments.
            /// Results may be subnormal, 0 or infinite.
            #[target_feature(enable = $features)]
            #[inline]
            fn exp_any<const N: usize>(mut x: [V; N]) -> [V; N] {
                for x in &mut x {
                    // if x is NaN, the result is the second operand, which is x
                    *x = min(all(89.0), max(all(-104.0), *x));
                }
                powers(x, |y, t, n| scale(y, t, n))
            }
            /// Computes `exp_any` out of line, so that only the common case is inlined.
            #[target_feature(enable = $features)]
            #[cold]
            #[inline(never)]
            fn exp_far<const N: usize>(x: [V; N]) -> [V; N] {
                exp_any(x)
            }
            /// Returns `exp` of the vectors, where `scale` multiplies by powers of two.
            #[target_feature(enable = $features)]
            #[inline]
            fn powers<const N: usize>(mut x: [V; N], scale: impl Fn(V, V, V) -> V) -> [V; N] {
                let (mut t, mut n) = (x, x);
                for (t, n) in t.iter_mut().zip(&mut n) {
                    *t = fma(*t, all(LOG2_E), all(ROUNDING_BIAS));
                    *n = sub(*t, all(ROUNDING_BIAS));
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

            /// Writes `exp(of(x))` for the elements `x` at `a`, 16 elements at a time.
            ///
            /// # Safety
            /// The caller upholds the contract of [`SliceKernel`](super::super::SliceKernel) for
            /// float32; the processor has these features.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn exps(n: usize, d: *mut f32, a: *const f32, of: impl Fn(V) -> V) {
                let (pairs, whole) = (n / (2 * LANES) * (2 * LANES), n / LANES * LANES);
                // SAFETY: `a` and `d` have `n` elements (caller contract); the elements after the
                // last full vector are masked.
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

            kernels! { $features
                /// Writes `exp` of the elements at `a`.
                exp(n, d, a, b, c, k) => exps(n, d, a, |x| x);
                /// Writes `exp` of `k0·a + k1·b`, where `b` is a single element.
                /// Each product and the sum are rounded.
                exp_lin(n, d, a, b, c, k) => {
                    if n == 0 {
                        return;
                    }
                    let (k0, kb) = (all(k[0] as f32), all(*b * k[1] as f32));
                    match k[0] == 1.0 {
                        true => exps(n, d, a, |x| add(x, kb)),
                        false => exps(n, d, a, |x| add(mul(x, k0), kb)),
                    }
                };
                /// Writes the sum of the row at `a`, unit by unit.
                sum<UNIT>(n, d, a, b, c, k) => {
                    let at = |i: usize| load(a.add(i));
                    let two = |i| [at(i), at(i + LANES)];
                    d.write(added::<UNIT>(n, two, |i, some| load_some(a.add(i), some)));
                };
                /// Writes the sum of a row of `a·b`, each product rounded.
                products(n, d, a, b, c, k) => {
                    let at = |i: usize| mul(load(a.add(i)), load(b.add(i)));
                    let some =
                        |i: usize, some: First| mul(load_some(a.add(i), some), load_some(b.add(i), some));
                    d.write(added::<UNIT_ELEMENTS>(n, |i| [at(i), at(i + LANES)], some));
                };
                /// Writes the sum of `k0·a`, each product rounded.
                scaled(n, d, a, b, c, k) => {
                    let k0 = all(k[0] as f32);
                    let at = |i: usize| mul(load(a.add(i)), k0);
                    let some = |i: usize, some: First| mul(load_some(a.add(i), some), k0);
                    d.write(added::<UNIT_ELEMENTS>(n, |i| [at(i), at(i + LANES)], some));
                };
                /// Writes the sum of the squares of `k0·a + k1·b`, where `b` is a single element.
                ///
                /// It writes the values that are squared to `c`. Each product and each sum is
                /// rounded.
                squares(n, d, a, b, c, k) => {
                    if n == 0 {
                        return d.write(0.0);
                    }
                    let c = c.cast_mut();
                    let mut lanes = [all(0.0); 4];
                    let whole = n / RUN_ELEMENTS * RUN_ELEMENTS;
                    let (k0, kb) = (all(k[0] as f32), all(*b * k[1] as f32));
                    for i in (0..whole).step_by(RUN_ELEMENTS) {
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
                    d.write(sum_of(lanes));
                };
                /// Writes the sum of a row of `exp` of the elements at `a`.
                sum_exp(n, d, a, b, c, k) => d.write(sum_exps(n, a, |x| x));
                /// Writes the sum of a row of the results of [`exp_lin`].
                sum_exp_lin(n, d, a, b, c, k) => {
                    let (k0, kb) = (all(k[0] as f32), all(*b * k[1] as f32));
                    d.write(match k[0] == 1.0 {
                        true => sum_exps(n, a, |x| add(x, kb)),
                        false => sum_exps(n, a, |x| add(mul(x, k0), kb)),
                    });
                };
                /// Writes the maximum of a row.
                most(n, d, a, b, c, k) => d.write(extreme::<Max<f32>>(n, a, |x, y| max(x, y)));
                /// Writes the minimum of a row.
                least(n, d, a, b, c, k) => d.write(extreme::<Min<f32>>(n, a, |x, y| min(x, y)));
            }

            /// Computes `unit` for each unit of a row, and combines the results.
            /// The order is that of all row folds.
            #[target_feature(enable = $features)]
            #[inline]
            fn units<const UNIT_ELEMENTS: usize>(
                n: usize,
                unit: impl Fn(usize, usize) -> f32,
                mix: impl Fn(f32, f32) -> f32,
            ) -> f32 {
                let first = unit(0, n.min(UNIT_ELEMENTS));
                if n <= UNIT_ELEMENTS {
                    return first;
                }
                if n <= UNIT_ELEMENTS.saturating_mul(2) {
                    return mix(first, unit(UNIT_ELEMENTS, n - UNIT_ELEMENTS));
                }
                // one slot for each binary digit of the number of units
                let (mut made, mut tree) = ([0.0; 64], MergeStack::new(0));
                made[0] = first;
                tree.push(|_, _| ());
                for from in (UNIT_ELEMENTS..n).step_by(UNIT_ELEMENTS) {
                    made[tree.depth] = unit(from, UNIT_ELEMENTS.min(n - from));
                    tree.push(|a, b| made[a] = mix(made[a], made[b]));
                }
                tree.finish(|a, b| made[a] = mix(made[a], made[b]));
                made[0]
            }

            /// Combines 16 elements in halves, as folds do.
            /// The order of operands must not matter to `mix`.
            #[target_feature(enable = $features)]
            #[inline]
            fn halved(x: V, mix: impl Fn(V, V) -> V) -> f32 {
                let x = mix(x, swap8(x));
                let x = mix(x, swap4(x));
                let x = mix(x, swap2(x));
                front(mix(x, swap1(x)))
            }
            /// Returns the sum of four vectors of lanes.
            #[target_feature(enable = $features)]
            #[inline]
            fn sum_of([p, q, r, s]: [V; 4]) -> f32 {
                halved(add(add(p, r), add(q, s)), |x, y| add(x, y))
            }

            /// Returns the sum of a row of `n` elements, unit by unit.
            ///
            /// `two` returns the 32 elements from an index on; `rest` returns one vector, with the
            /// elements after the row masked.
            #[target_feature(enable = $features)]
            #[inline]
            fn added<const UNIT_ELEMENTS: usize>(
                n: usize,
                two: impl Fn(usize) -> [V; 2],
                rest: impl Fn(usize, First) -> V,
            ) -> f32 {
                let unit = |from: usize, n: usize| {
                    let mut lanes = [all(0.0); 4];
                    let whole = from + n / RUN_ELEMENTS * RUN_ELEMENTS;
                    for i in (from..whole).step_by(RUN_ELEMENTS) {
                        // a loop with one call site, so that `two` is inlined
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
                units::<UNIT_ELEMENTS>(n, unit, |a, b| a + b)
            }

            /// Returns the sum of `exp(of(x))` for the elements `x` of the row at `a`.
            ///
            /// # Safety
            /// `a` points to `n` elements; the processor has these features.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn sum_exps(n: usize, a: *const f32, of: impl Fn(V) -> V) -> f32 {
                // SAFETY: `a` has `n` elements (caller contract); elements after the row are
                // masked.
                unsafe {
                    let two = |i: usize| exp16([load(a.add(i)), load(a.add(i + LANES))], &of);
                    added::<UNIT_ELEMENTS>(n, two, |i, some| exp16([load_some(a.add(i), some)], &of)[0])
                }
            }

            /// Returns the maximum or minimum of the row at `x`.
            ///
            /// Without NaN, the result does not depend on the order, except for the sign of 0. If
            /// there is a NaN, or the result is 0, the row is folded again in the documented order.
            ///
            /// # Safety
            /// `x` points to `n` elements; the processor has these features.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn extreme<M: CombineOp<M = f32, T = f32>>(
                n: usize,
                x: *const f32,
                two: impl Fn(V, V) -> V,
            ) -> f32 {
                let (mut most, mut found) = ([all(M::IDENTITY); 4], no_nans());
                let (runs, whole) = (n / RUN_ELEMENTS * RUN_ELEMENTS, n / LANES * LANES);
                // SAFETY: `x` has `n` elements (caller contract); elements after the last full vector
                // are masked.
                unsafe {
                    for i in (0..runs).step_by(RUN_ELEMENTS) {
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
                        m = units::<UNIT_ELEMENTS>(n, unit, M::mix);
                    }
                    m
                }
            }
        }
    };
}
loops!(avx512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2");
loops!(avx2 "avx2,fma,bmi2");

/// Defines functions that return the loop of a level. The base level has none.
macro_rules! at_levels {
    ($($(#[$doc:meta])* $name:ident: $loop:ident$(::<$unit:tt>)?;)*) => { $(
        $(#[$doc])*
        pub(super) fn $name(level: IsaLevel) -> Option<SliceKernel> {
            match level {
                IsaLevel::Avx512 => Some(avx512::$loop$(::<$unit>)?),
                IsaLevel::Avx2 => Some(avx2::$loop$(::<$unit>)?),
                IsaLevel::Base => None,
            }
        }
    )* };
}
at_levels! {
    /// Returns the loop for `exp`.
    exp: exp;
    /// Returns the loop for `exp` of `k0·a + k1·b`, where `b` is one element.
    /// All steps are rounded.
    exp_lin: exp_lin;
    /// Returns the loop for the sum of elements.
    sum: sum::<{ usize::MAX }>;
    /// Returns the loop for the sum of a row, unit by unit; the loops below work likewise.
    sum_row: sum::<UNIT_ELEMENTS>;
    /// Returns the loop for the sum of a row of `a·b`, each product rounded.
    products: products;
    /// Returns the loop for the sum of `k0·a`, each product rounded.
    scaled: scaled;
    /// Returns the loop for the sum of the squares of `k0·a + k1·b`, which it also stores at `c`.
    squares: squares;
    /// Returns the loop for the sum of a row of `exp` of its elements.
    sum_exp: sum_exp;
    /// Returns the loop for the sum of a row of the results of [`exp_lin`].
    sum_exp_lin: sum_exp_lin;
    /// Returns the loop for the maximum of a row.
    max: most;
    /// Returns the loop for the minimum of a row.
    min: least;
}
