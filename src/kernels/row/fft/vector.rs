//! Vectors of floats for transforms side by side: a type for each level and element type.
//!
//! Each lane of a vector belongs to another transform, so a transform has the same bits at every
//! level, and in every lane.

use super::butterfly::{InPlace, Pass, PassEnds};
use super::lanes::{ElementRun, FirstElements, LaneSource, LaneTarget};
use super::plan::{FftPlan, MixedRadix, TwiddledGrid};
use super::transform::FftJob;
use crate::core::Element;
use crate::kernels::cpu::IsaLevel;
use std::ops::{Add, Mul, Sub};

/// A float of transforms, which is a vector of one lane, too.
pub(super) trait FftFloat:
    LaneVector<T = Self>
    + Element
    + Default
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// Returns the nearest float.
    fn nearest(x: f64) -> Self;
    /// Runs a job at a level.
    ///
    /// # Safety
    /// The memory of the job is accessible as `FftJob` says, and the processor has the level.
    unsafe fn run_job(level: IsaLevel, job: &FftJob<'_, Self>);
}

/// The real and the imaginary parts of complex numbers, one of each lane.
pub(super) type ComplexParts<V> = [V; 2];

/// A vector of floats.
///
/// Vectors come from `splat` and `load` only, so a value shows that the processor has the features
/// that its operations need.
pub(super) trait LaneVector: Copy + Send + Sync + 'static {
    /// The type of an element.
    type T: FftFloat;
    /// The number of elements.
    const LANES: usize;
    /// Returns a vector of equal elements.
    ///
    /// # Safety
    /// The processor has the features of the vector.
    unsafe fn splat(x: Self::T) -> Self;
    /// Loads a vector.
    ///
    /// # Safety
    /// The processor has the features of the vector, and `p` points to its elements.
    unsafe fn load(p: *const Self::T) -> Self;
    /// Stores a vector.
    ///
    /// # Safety
    /// `p` points to space for its elements.
    unsafe fn store(self, p: *mut Self::T);
    /// Returns a vector of equal elements.
    fn all(self, x: Self::T) -> Self;
    fn add(self, y: Self) -> Self;
    fn sub(self, y: Self) -> Self;
    fn mul(self, y: Self) -> Self;
    /// Returns the elements with an even and with an odd index, of two vectors in a row.
    fn split(x: ComplexParts<Self>) -> ComplexParts<Self>;
    /// Returns the elements of two vectors in turns, as two vectors in a row.
    fn join(x: ComplexParts<Self>) -> ComplexParts<Self>;

    // The next methods are compiled once for each vector, with its features.

    /// Runs [`MixedRadix::passes`].
    ///
    /// # Safety
    /// As for this function.
    unsafe fn passes(plan: &MixedRadix<Self::T>, w: *mut ComplexParts<Self>);
    /// Runs a pass in place.
    ///
    /// # Safety
    /// As for [`Pass::run`].
    unsafe fn pass(pass: &Pass<'_, Self::T>, n: usize, w: *mut ComplexParts<Self>);
    /// Runs [`Pass::run_any_odd`].
    ///
    /// # Safety
    /// As for this function.
    unsafe fn pass_of_any_odd(pass: &Pass<'_, Self::T>, n: usize, ends: &impl PassEnds<Self>);
    /// Runs [`MixedRadix::passes_between`].
    ///
    /// # Safety
    /// As for this function.
    unsafe fn passes_between(
        plan: &MixedRadix<Self::T>,
        first: &FirstElements<Self>,
        w: *mut ComplexParts<Self>,
        last: Option<&TwiddledGrid<'_, Self>>,
    );
    /// Runs [`LaneSource::load`].
    ///
    /// # Safety
    /// As for this function.
    unsafe fn load_elements(
        x: &LaneSource<Self>,
        run: ElementRun,
        places: &[u32],
        w: *mut ComplexParts<Self>,
    );
    /// Runs [`LaneTarget::store`].
    ///
    /// # Safety
    /// As for this function.
    unsafe fn store_elements(to: &LaneTarget<Self::T>, w: *const ComplexParts<Self>, order: &[u32]);
    /// Runs [`FftPlan::side_by_side`].
    ///
    /// # Safety
    /// As for this function.
    unsafe fn side_by_side(
        plan: &FftPlan<Self::T>,
        x: &LaneSource<Self>,
        w: *mut ComplexParts<Self>,
        column: *mut ComplexParts<Self>,
    );
}

/// Implements a vector by functions of its features.
macro_rules! lane_vector {
    (
        $(#[$features:meta])* $name:ident: $V:ty = [$T:ty; $lanes:expr],
        $splat:expr, $load:expr, $store:expr, $add:expr, $sub:expr, $mul:expr,
        split($a:ident, $b:ident): $split:expr, join($c:ident, $d:ident): $join:expr $(,)?
    ) => {
        pub(in crate::kernels::row::fft) mod $name {
            use super::*;

            $(#[$features])*
            pub(super) unsafe fn passes(plan: &MixedRadix<$T>, w: *mut ComplexParts<$V>) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { plan.passes(w) }
            }
            $(#[$features])*
            pub(super) unsafe fn pass(pass: &Pass<'_, $T>, n: usize, w: *mut ComplexParts<$V>) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { pass.run::<$V>(n, &InPlace(w)) }
            }
            $(#[$features])*
            #[inline(never)]
            pub(super) unsafe fn pass_of_any_odd(pass: &Pass<'_, $T>, n: usize, ends: &impl PassEnds<$V>) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { pass.run_any_odd::<$V>(n, ends) }
            }
            $(#[$features])*
            pub(super) unsafe fn passes_between(
                plan: &MixedRadix<$T>,
                first: &FirstElements<$V>,
                w: *mut ComplexParts<$V>,
                last: Option<&TwiddledGrid<'_, $V>>,
            ) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { plan.passes_between(first, w, last) }
            }
            $(#[$features])*
            pub(super) unsafe fn load_elements(
                x: &LaneSource<$V>,
                run: ElementRun,
                places: &[u32],
                w: *mut ComplexParts<$V>,
            ) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { x.load(run, places, w) }
            }
            $(#[$features])*
            pub(super) unsafe fn store_elements(to: &LaneTarget<$T>, w: *const ComplexParts<$V>, order: &[u32]) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { to.store(w, order) }
            }
            $(#[$features])*
            pub(super) unsafe fn side_by_side(
                plan: &FftPlan<$T>,
                x: &LaneSource<$V>,
                w: *mut ComplexParts<$V>,
                column: *mut ComplexParts<$V>,
            ) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { plan.side_by_side(x, w, column) }
            }
            /// Runs a job.
            ///
            /// # Safety
            /// The contract of `FftFloat::run_job` holds.
            $(#[$features])*
            #[allow(dead_code, reason = "vectors of one lane run no jobs where there are longer ones")]
            pub(in crate::kernels::row::fft) unsafe fn run_job(job: &FftJob<'_, $T>) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { job.run::<$V>() }
            }
        }
        #[allow(unused_unsafe, reason = "operations on one lane are safe")]
        // SAFETY (of all blocks): the processor has the features, because the arguments are such
        // vectors, or by the contract of the method; pointers are as the contract says.
        #[allow(clippy::undocumented_unsafe_blocks, reason = "the comment above holds for all of them")]
        impl LaneVector for $V {
            type T = $T;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(x: $T) -> Self {
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $T) -> Self {
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $T) {
                unsafe { $store(p, self) }
            }
            #[inline(always)]
            fn all(self, x: $T) -> Self {
                unsafe { $splat(x) }
            }
            #[inline(always)]
            fn add(self, y: Self) -> Self {
                unsafe { $add(self, y) }
            }
            #[inline(always)]
            fn sub(self, y: Self) -> Self {
                unsafe { $sub(self, y) }
            }
            #[inline(always)]
            fn mul(self, y: Self) -> Self {
                unsafe { $mul(self, y) }
            }
            #[inline(always)]
            fn split([$a, $b]: ComplexParts<Self>) -> ComplexParts<Self> {
                unsafe { $split }
            }
            #[inline(always)]
            fn join([$c, $d]: ComplexParts<Self>) -> ComplexParts<Self> {
                unsafe { $join }
            }
            #[inline(always)]
            unsafe fn passes(plan: &MixedRadix<$T>, w: *mut ComplexParts<$V>) {
                unsafe { $name::passes(plan, w) }
            }
            #[inline(always)]
            unsafe fn pass(pass: &Pass<'_, $T>, n: usize, w: *mut ComplexParts<$V>) {
                unsafe { $name::pass(pass, n, w) }
            }
            #[inline(always)]
            unsafe fn pass_of_any_odd(pass: &Pass<'_, $T>, n: usize, ends: &impl PassEnds<$V>) {
                unsafe { $name::pass_of_any_odd(pass, n, ends) }
            }
            #[inline(always)]
            unsafe fn passes_between(
                plan: &MixedRadix<$T>,
                first: &FirstElements<$V>,
                w: *mut ComplexParts<$V>,
                last: Option<&TwiddledGrid<'_, $V>>,
            ) {
                unsafe { $name::passes_between(plan, first, w, last) }
            }
            #[inline(always)]
            unsafe fn load_elements(x: &LaneSource<$V>, run: ElementRun, places: &[u32], w: *mut ComplexParts<$V>) {
                unsafe { $name::load_elements(x, run, places, w) }
            }
            #[inline(always)]
            unsafe fn store_elements(to: &LaneTarget<$T>, w: *const ComplexParts<$V>, order: &[u32]) {
                unsafe { $name::store_elements(to, w, order) }
            }
            #[inline(always)]
            unsafe fn side_by_side(
                plan: &FftPlan<$T>,
                x: &LaneSource<$V>,
                w: *mut ComplexParts<$V>,
                column: *mut ComplexParts<$V>,
            ) {
                unsafe { $name::side_by_side(plan, x, w, column) }
            }
        }
    };
}

/// Implements the vector of one lane of a float type.
macro_rules! one_lane {
    ($name:ident: $T:ident) => {
        lane_vector! { $name: $T = [$T; 1],
            |x| x, std::ptr::read, std::ptr::write, Add::add, Sub::sub, Mul::mul,
            split(a, b): [a, b], join(a, b): [a, b],
        }
    };
}
one_lane! { one_f32: f32 }
one_lane! { one_f64: f64 }

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    lane_vector! { #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
        avx512_f32: __m512 = [f32; 16],
        _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_sub_ps, _mm512_mul_ps,
        split(a, b): {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            [_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)]
        },
        join(a, b): {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            [_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b)]
        },
    }
    lane_vector! { #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
        avx512_f64: __m512d = [f64; 8],
        _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_add_pd, _mm512_sub_pd, _mm512_mul_pd,
        split(a, b): {
            let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
            [_mm512_permutex2var_pd(a, even, b), _mm512_permutex2var_pd(a, odd, b)]
        },
        join(a, b): {
            let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
            [_mm512_permutex2var_pd(a, low, b), _mm512_permutex2var_pd(a, high, b)]
        },
    }
    lane_vector! { #[target_feature(enable = "avx2,fma,bmi2")] avx2_f32: __m256 = [f32; 8],
        _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps,
        split(a, b): {
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(a, b));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xDD>(a, b));
            [
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(even)),
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(odd)),
            ]
        },
        join(a, b): {
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            [_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high)]
        },
    }
    lane_vector! { #[target_feature(enable = "avx2,fma,bmi2")] avx2_f64: __m256d = [f64; 4],
        _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_add_pd, _mm256_sub_pd, _mm256_mul_pd,
        split(a, b): [
            _mm256_permute4x64_pd::<0xD8>(_mm256_unpacklo_pd(a, b)),
            _mm256_permute4x64_pd::<0xD8>(_mm256_unpackhi_pd(a, b)),
        ],
        join(a, b): {
            let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            [_mm256_permute2f128_pd::<0x20>(low, high), _mm256_permute2f128_pd::<0x31>(low, high)]
        },
    }
    lane_vector! { base_f32: __m128 = [f32; 4],
        _mm_set1_ps, _mm_loadu_ps, _mm_storeu_ps, _mm_add_ps, _mm_sub_ps, _mm_mul_ps,
        split(a, b): [_mm_shuffle_ps::<0x88>(a, b), _mm_shuffle_ps::<0xDD>(a, b)],
        join(a, b): [_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)],
    }
    lane_vector! { base_f64: __m128d = [f64; 2],
        _mm_set1_pd, _mm_loadu_pd, _mm_storeu_pd, _mm_add_pd, _mm_sub_pd, _mm_mul_pd,
        split(a, b): [_mm_unpacklo_pd(a, b), _mm_unpackhi_pd(a, b)],
        join(a, b): [_mm_unpacklo_pd(a, b), _mm_unpackhi_pd(a, b)],
    }
}

/// Implements a float type by the functions that run jobs of it.
macro_rules! fft_float {
    ($T:ident, $one:ident, $base:ident, $avx2:ident, $avx512:ident) => {
        impl FftFloat for $T {
            fn nearest(x: f64) -> $T {
                x as $T
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            unsafe fn run_job(level: IsaLevel, job: &FftJob<'_, $T>) {
                let run: unsafe fn(&FftJob<'_, $T>) = match level {
                    IsaLevel::Base => x86::$base::run_job,
                    IsaLevel::Avx2 => x86::$avx2::run_job,
                    IsaLevel::Avx512 => x86::$avx512::run_job,
                };
                // SAFETY: the caller upholds the contract of this function.
                unsafe { run(job) }
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            unsafe fn run_job(_: IsaLevel, job: &FftJob<'_, $T>) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { $one::run_job(job) }
            }
        }
    };
}
fft_float! { f32, one_f32, base_f32, avx2_f32, avx512_f32 }
fft_float! { f64, one_f64, base_f64, avx2_f64, avx512_f64 }
