//! Products by the `gemm` crate, where it can be asked.

use super::{Mat, Num, Out, PANEL, Sizes};
use crate::runtime::cpu::{self, Level};
use gemm_common::cache::{CACHE_INFO, kernel_params};
use std::path::Path;
use std::sync::OnceLock;

/// Whether the crate adds as `in_order` does, and runs on this machine: else that is used in its place.
///
/// Its vector code has fused multiply-adds whatever the level is, which the base level has not. Miri does not know it. WebAssembly has
/// the base level only; that is told here, so that a page does not load the crate.
pub(super) fn usable() -> bool {
    if cfg!(target_family = "wasm") {
        return false;
    }
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let fused = cfg!(target_arch = "aarch64") || cpu::level() > Level::Base;
    !cfg!(miri) && fused && *KNOWN.get_or_init(|| std::panic::catch_unwind(fits).unwrap_or(false))
}

/// Whether the crate's panels fit the caches that the system tells of. On figures that it does not expect (a fourth level, a large cache
/// shared by many processors) it would panic, or find no panel small enough and never end.
fn fits() -> bool {
    if cfg!(target_os = "linux") && !told(Path::new("/sys/devices/system/cpu")) {
        return false;
    }
    let caches = *CACHE_INFO;
    [4, 8].into_iter().all(|size| {
        let (rows, columns) = (vector() * 4 / size, 6);
        let small = caches[1].cache_bytes / size / PANEL / rows;
        let large = kernel_params(1 << 16, 1 << 16, PANEL, rows, columns, size);
        small > 0 && large.kc == PANEL && large.mc >= rows && (large.nc == 0 || large.nc >= columns)
    })
}

/// Whether Linux tells of its caches here, and of no more levels than the crate counts. Where it does not, the crate would run `lscpu`, whatever
/// that is in `$PATH`.
fn told(cpus: &Path) -> bool {
    let more = |level: String| level.trim().parse().is_ok_and(|level: usize| level > 3);
    let levels = std::fs::read_dir(cpus.join("cpu0/cache")).into_iter().flatten().flatten();
    std::fs::read_dir(cpus).is_ok()
        && !levels.filter_map(|index| std::fs::read_to_string(index.path().join("level")).ok()).any(more)
}

/// Bytes of a vector of the crate's code.
fn vector() -> usize {
    #[cfg(target_arch = "x86_64")]
    return if is_x86_feature_detected!("avx512f") { 64 } else { 32 };
    #[cfg(not(target_arch = "x86_64"))]
    16
}

/// A product of matrices of at most [`PANEL`] terms, more than two rows and columns; multiplied by `by`, if it is not added to anything.
///
/// # Safety
/// As [`gemm`](super::gemm) says; `T` is float32 or float64.
pub(super) unsafe fn product<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool, by: f64) {
    /// # Safety
    /// As `gemm`, for T = F.
    unsafe fn typed<F: 'static>(s: Sizes, c: Out<F>, a: Mat<F>, b: Mat<F>, read: bool, zero: F, one: [F; 2]) {
        let [one, by] = one;
        let none = gemm::Parallelism::None;
        let factor = if read { one } else { zero };
        // SAFETY: the caller's
        unsafe {
            gemm::gemm(
                s.m, s.n, s.k, c.at, c.cs, c.rs, read, a.at, a.cs, a.rs, b.at, b.cs, b.rs, factor, by, false,
                false, false, none,
            )
        }
    }
    macro_rules! cast {
        ($F:ty) => {{
            let c = Out { at: c.at.cast::<$F>(), rs: c.rs, cs: c.cs };
            let a = Mat { at: a.at.cast::<$F>(), rs: a.rs, cs: a.cs };
            let b = Mat { at: b.at.cast::<$F>(), rs: b.rs, cs: b.cs };
            // SAFETY: the caller's; of the two types that T may be, it is the one of this size
            unsafe { typed(s, c, a, b, accumulate, 0.0, [1.0, by as $F]) }
        }};
    }
    if size_of::<T>() == 4 { cast!(f32) } else { cast!(f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    #[cfg_attr(miri, ignore = "it writes files")]
    fn odd_caches_are_not_asked_about() {
        let cpus = std::env::temp_dir().join(format!("caches_{}", std::process::id()));
        assert!(!told(&cpus), "nothing is told");
        let index = cpus.join("cpu0/cache/index3");
        fs::create_dir_all(&index).unwrap();
        fs::write(index.join("level"), "3\n").unwrap();
        assert!(told(&cpus));
        fs::write(index.join("level"), "4\n").unwrap();
        assert!(!told(&cpus), "a fourth level");
        fs::remove_dir_all(&cpus).unwrap();
    }
}
