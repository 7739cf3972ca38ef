//! What the processor can do, found once.

use std::sync::OnceLock;

/// The vector instructions that kernels are chosen for.
///
/// Results of one level are the same bits on every machine, those of products too. Between the base level and the others, functions such as
/// `exp` and `sin` and products of floats may differ in the last bits, since the base level has no fused multiply-add; what one operation
/// of arithmetic computes, and sums, are the same at all levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of this architecture has.
    Base,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 F, DQ, VL and BW.
    Avx512,
}

impl Level {
    /// Its name: `base`, `avx2`, `avx512`.
    pub fn name(self) -> &'static str {
        ["base", "avx2", "avx512"][self as usize]
    }
    /// All levels that this processor has, lowest first.
    pub fn available() -> impl Iterator<Item = Level> {
        [Level::Base, Level::Avx2, Level::Avx512].into_iter().filter(|l| *l <= best())
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn best() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx2 = avx2 && is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Base,
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn best() -> Level {
    Level::Base
}

/// The level of this process: the best that the processor has, or a lower one that `ATMESH_CPU` names (`base`, `avx2`, `avx512`), so that
/// runs on different machines can be made to agree to the last bit. It is read once, and reaches everything that the engines compute.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let asked = std::env::var("ATMESH_CPU").ok();
        Level::available().find(|l| asked.as_deref() == Some(l.name())).unwrap_or_else(best)
    })
}

/// Whether the base level of this architecture has a fused multiply-add, as levels are counted in kernels: from 1 on there is one.
pub(super) const BASE: u8 = if cfg!(target_arch = "aarch64") { 1 } else { 0 };

/// One function compiled for each level: a module with `base`, `avx2` and `avx512`, and `at`, which chooses one of them. In the
/// function `$L` is the level as a number, from 1 on with a fused multiply-add. What it calls must be `#[inline(always)]`: only so is
/// it compiled for the level.
macro_rules! for_each_isa {
    ($(
        mod $name:ident<$T:ident: $Bound:path>($($p:ident: $t:ty),* $(,)?) at $L:ident => $call:expr;
    )*) => { $(
        #[allow(dead_code, reason = "not every function asks for its level, or has all of its forms used")]
        mod $name {
            use super::*;

            /// # Safety
            /// As what it calls says.
            pub(super) unsafe fn base<$T: $Bound>($($p: $t),*) {
                const $L: u8 = $crate::runtime::cpu::BASE;
                // SAFETY: the caller's
                unsafe { $call }
            }
            /// # Safety
            /// As what it calls says; the processor has these features.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi2")]
            pub(super) unsafe fn avx2<$T: $Bound>($($p: $t),*) {
                const $L: u8 = 1;
                // SAFETY: the caller's
                unsafe { $call }
            }
            /// # Safety
            /// As what it calls says; the processor has these features.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
            pub(super) unsafe fn avx512<$T: $Bound>($($p: $t),*) {
                const $L: u8 = 2;
                // SAFETY: the caller's
                unsafe { $call }
            }
            /// The form for a level.
            pub(super) fn at<$T: $Bound>(level: $crate::runtime::cpu::Level) -> unsafe fn($($t),*) {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    $crate::runtime::cpu::Level::Avx512 => avx512::<$T>,
                    #[cfg(target_arch = "x86_64")]
                    $crate::runtime::cpu::Level::Avx2 => avx2::<$T>,
                    _ => base::<$T>,
                }
            }
        }
    )* };
}
pub(super) use for_each_isa;
