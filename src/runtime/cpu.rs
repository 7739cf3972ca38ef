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
