//! Detection of the processor's vector instructions, and functions compiled for each level of them.

use crate::core::Fault;
use std::sync::OnceLock;

/// The level of vector instructions that kernels are compiled for.
///
/// For a given level, results have the same bits on every machine, including matrix products.
/// Between `Base` and the other levels, products of floats and functions such as `exp` and `sin`
/// may differ in the last bits, because the base level has no fused multiply-add. Single arithmetic
/// operations and sums are the same at all levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IsaLevel {
    /// The instructions that every processor of this architecture has.
    Base,
    /// AVX2 with fused multiply-add (and BMI2 and F16C).
    Avx2,
    /// AVX-512 F, DQ, VL and BW, in addition to `Avx2`.
    Avx512,
}

impl IsaLevel {
    /// Returns the level's name: `base`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        ["base", "avx2", "avx512"][self as usize]
    }
    /// Iterates over all levels that this processor supports, lowest first.
    pub fn available() -> impl Iterator<Item = IsaLevel> {
        [IsaLevel::Base, IsaLevel::Avx2, IsaLevel::Avx512].into_iter().filter(|l| *l <= detect())
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn detect() -> IsaLevel {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx2 = avx2 && is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw");
    match (avx2, avx512) {
        (true, true) => IsaLevel::Avx512,
        (true, false) => IsaLevel::Avx2,
        _ => IsaLevel::Base,
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn detect() -> IsaLevel {
    IsaLevel::Base
}

/// Returns the level of this process: the processor's highest, or the one that `ATMESH_CPU` names.
///
/// `ATMESH_CPU` is `base`, `avx2` or `avx512`. A lower level makes runs on different machines agree
/// to the last bit. The variable is read once, and affects everything that the engines compute.
/// Engines compile nothing while its value is invalid ([`requested_level`]).
pub fn level() -> IsaLevel {
    static LEVEL: OnceLock<IsaLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| requested_level().ok().flatten().unwrap_or_else(detect))
}

/// Returns the level that `ATMESH_CPU` names; `None` if the variable is unset or empty.
///
/// # Errors
/// The variable names no level, or one that this processor does not support.
pub(crate) fn requested_level() -> Result<Option<IsaLevel>, Fault> {
    let Some(name) = std::env::var_os("ATMESH_CPU").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    if let Some(level) = IsaLevel::available().find(|level| name == level.name()) {
        return Ok(Some(level));
    }
    let names: Vec<&str> = IsaLevel::available().map(IsaLevel::name).collect();
    Err(fault!(Syntax, "this processor has no instruction set {name:?}, which ATMESH_CPU names")
        .help(format!("the instruction sets of this processor are: {}", names.join(", "))))
}

/// The base level as a number; levels from 1 on have a fused multiply-add.
pub(crate) const BASE_LEVEL: u8 = if cfg!(target_arch = "aarch64") { 1 } else { 0 };

/// Defines a function of a level, with the features of the level.
macro_rules! isa_fn {
    (
        $(#[$attribute:meta])* $level:ident($L:ident = $number:expr)
        <$T:ident: $Bound:path>($($p:ident: $t:ty),*) => $call:expr
    ) => {
        /// Runs the function at this level.
        ///
        /// # Safety
        /// The caller upholds the contract of the wrapped function; the processor has the features
        /// of the level.
        $(#[$attribute])*
        pub(crate) unsafe fn $level<$T: $Bound>($($p: $t),*) {
            const $L: u8 = $number;
            // SAFETY: the caller upholds the contract of the wrapped function.
            unsafe { $call }
        }
    };
}
pub(crate) use isa_fn;

/// Compiles a function for each level.
///
/// The result is a module with the functions `base`, `avx2` and `avx512`, and `at`, which selects
/// one of them by level. `narrow` selects from the first two, so that the third is not compiled.
/// Inside the function, `$L` is the level as a number; from 1 on there is a fused multiply-add. The
/// functions that it calls must be `#[inline(always)]`, because only inlined code is compiled for
/// the level.
macro_rules! for_each_isa {
    ($(
        mod $name:ident<$T:ident: $Bound:path>($($p:ident: $t:ty),* $(,)?) at $L:ident => $call:expr;
    )*) => { $(
        #[allow(dead_code, reason = "not every function asks for its level, or has all of its forms used")]
        mod $name {
            use super::*;
            use $crate::kernels::cpu::{BASE_LEVEL, IsaLevel, isa_fn};

            isa_fn! { base($L = BASE_LEVEL)<$T: $Bound>($($p: $t),*) => $call }
            #[cfg(target_arch = "x86_64")]
            isa_fn! {
                #[target_feature(enable = "avx2,fma,bmi2")]
                avx2($L = 1)<$T: $Bound>($($p: $t),*) => $call
            }
            #[cfg(target_arch = "x86_64")]
            isa_fn! {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
                avx512($L = 2)<$T: $Bound>($($p: $t),*) => $call
            }
            /// Returns the function for a level.
            pub(crate) fn at<$T: $Bound>(level: IsaLevel) -> unsafe fn($($t),*) {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    IsaLevel::Avx512 => avx512::<$T>,
                    #[cfg(target_arch = "x86_64")]
                    IsaLevel::Avx2 => avx2::<$T>,
                    _ => base::<$T>,
                }
            }
            /// Returns the function for a level, without a variant for the widest vectors.
            pub(crate) fn narrow<$T: $Bound>(level: $crate::kernels::cpu::IsaLevel) -> unsafe fn($($t),*) {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::cpu::IsaLevel::Avx2 | $crate::kernels::cpu::IsaLevel::Avx512 => avx2::<$T>,
                    _ => base::<$T>,
                }
            }
        }
    )* };
}
pub(crate) use for_each_isa;

/// Selects a function of a module of [`for_each_isa`] by level, of the first `$widest + 1` levels.
///
/// `$widest` is a constant, so that the functions of wider levels are not compiled. It is computed
/// in a `const` block, because all arms are compiled of a `match` of a computed value.
macro_rules! up_to_level {
    ($module:ident::<$T:ty>, $widest:expr, $level:expr) => {
        match const { $widest } {
            0 => $module::base::<$T>,
            1 => $module::narrow::<$T>($level),
            _ => $module::at::<$T>($level),
        }
    };
}
pub(crate) use up_to_level;
