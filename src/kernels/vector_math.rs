//! The functions that float32 and float64 share, up to the type and the ranges of arguments.

/// Defines the functions of a float type whose bits are those of the integer type.
///
/// They call functions of the module that differ between the types: `pow2`, `scale`, `exp`,
/// `exp_tail`, `split` and `log_of`. An argument outside of a given range has the result of the
/// range's nearest end.
macro_rules! vector_math {
    (
        $Float:ident, $Int:ident;
        exp2 from $exp2_min:literal to $exp2_max:literal;
        expm1 from $expm1_min:literal to $expm1_max:literal;
        tanh to $tanh_max:literal;
    ) => {
        #[inline(always)]
        pub(super) fn fma<const L: u8>(a: $Float, b: $Float, c: $Float) -> $Float {
            // without the instruction, `mul_add` is a function call
            if L > 0 { a.mul_add(b, c) } else { a * b + c }
        }
        #[inline(always)]
        pub(super) fn select(c: bool, a: $Float, b: $Float) -> $Float {
            if c { a } else { b }
        }
        /// Evaluates the polynomial with these coefficients, highest power first.
        #[inline(always)]
        pub(super) fn poly<const L: u8, const N: usize>(x: $Float, c: [$Float; N]) -> $Float {
            let mut p = c[0];
            for c in &c[1..] {
                p = fma::<L>(p, x, *c);
            }
            p
        }
        /// Rounds `x·scale` to an integer, and returns it as a float and as an integer.
        #[inline(always)]
        fn round_scaled<const L: u8>(x: $Float, scale: $Float) -> ($Float, $Int) {
            let t = fma::<L>(x, scale, ROUNDING_BIAS);
            (t - ROUNDING_BIAS, (t.to_bits() as $Int).wrapping_sub(ROUNDING_BIAS.to_bits() as $Int))
        }
        /// Returns 2ˣ, with an error of at most 1.5 ulps.
        #[inline(always)]
        pub(super) fn exp2<const L: u8>(x: $Float) -> $Float {
            let x = select(x > $exp2_max, $exp2_max, select(x < $exp2_min, $exp2_min, x));
            let (n, i) = round_scaled::<L>(x, 1.0);
            let r = (x - n) * LN_2;
            scale(fma::<L>(exp_tail::<L>(r), r * r, r) + 1.0, i)
        }
        /// Returns eˣ − 1, with an error of at most 2 ulps.
        #[inline(always)]
        pub(super) fn expm1<const L: u8>(x: $Float) -> $Float {
            let y = select(x > $expm1_max, $expm1_max, select(x < $expm1_min, $expm1_min, x));
            let (n, i) = round_scaled::<L>(y, LOG2_E);
            let r = fma::<L>(n, -LN2_LO, fma::<L>(n, -LN2_HI, y));
            let p = fma::<L>(exp_tail::<L>(r), r * r, r);
            // half of 2ⁿ, since 2ⁿ itself may be out of range
            let half = pow2(i.wrapping_sub(1));
            let y = 2.0 * fma::<L>(half, p, half - 0.5);
            select(x == 0.0, x, y)
        }
        /// Returns the natural logarithm, with an error of at most 1 ulp.
        #[inline(always)]
        pub(super) fn log<const L: u8>(x: $Float) -> $Float {
            let (e, z) = split(x);
            let y = log_of::<L>(e, z, 0.0);
            let y = select(x == $Float::INFINITY, x, y);
            select(x > 0.0, y, select(x == 0.0, $Float::NEG_INFINITY, $Float::NAN))
        }
        /// Returns log(1 + x), with an error of at most 1.5 ulps.
        #[inline(always)]
        pub(super) fn log1p<const L: u8>(x: $Float) -> $Float {
            let u = 1.0 + x;
            // the rounding error of 1 + x
            let lost = select(x > 1.0, 1.0 - (u - x), x - (u - 1.0));
            let (e, z) = split(u);
            let y = log_of::<L>(e, z, lost / u);
            let y = select(x == $Float::INFINITY, x, y);
            let y = select(u > 0.0, y, select(x == -1.0, $Float::NEG_INFINITY, $Float::NAN));
            select(x == 0.0, x, y)
        }
        /// Returns the hyperbolic tangent, with an error of at most 3 ulps.
        #[inline(always)]
        pub(super) fn tanh<const L: u8>(x: $Float) -> $Float {
            let a = x.abs();
            let a = select(a > $tanh_max, $tanh_max, a);
            let t = expm1::<L>(2.0 * a);
            (t / (t + 2.0)).copysign(x)
        }
        /// Returns 1 / (1 + e⁻ˣ), with an error of at most 2.5 ulps.
        #[inline(always)]
        pub(super) fn logistic<const L: u8>(x: $Float) -> $Float {
            // the formula 1/(1+exp(-x)) would lose all precision below -88
            let e = exp::<L>(-x.abs());
            select(x < 0.0, e, 1.0) / (1.0 + e)
        }
    };
}
pub(super) use vector_math;
