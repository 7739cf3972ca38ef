//! Matrix products by the `gemm` crate, on machines where it is usable. Its parts for float32 and
//! float64 are called, so that those for other element types are not built.

use super::{GemmElement, GemmProblem, MatMut, MatRef, PANEL_TERMS};
use crate::kernels::cpu::{self, IsaLevel};
use gemm_common::Parallelism;
use gemm_common::cache::{CACHE_INFO, kernel_params};
use std::path::Path;
use std::sync::OnceLock;

/// Returns true if the crate adds terms in the order of `in_order` and runs on this machine.
///
/// Otherwise `in_order` is used instead. The crate's vector code always uses fused multiply-adds,
/// which the base level does not have, and Miri cannot run it. WebAssembly has the base level only;
/// the test for it comes first, so that the crate is not linked there.
pub(super) fn usable() -> bool {
    if cfg!(target_family = "wasm") {
        return false;
    }
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let fused = cfg!(target_arch = "aarch64") || cpu::level() > IsaLevel::Base;
    !cfg!(miri) && fused && *KNOWN.get_or_init(|| std::panic::catch_unwind(caches_supported).unwrap_or(false))
}

/// Returns true if the crate's panels fit the caches that the system reports.
///
/// On unexpected sizes, such as a fourth cache level or a large cache shared by many processors,
/// the crate would panic, or would search forever for a panel that is small enough.
fn caches_supported() -> bool {
    if cfg!(target_os = "linux") && !cache_levels_known(Path::new("/sys/devices/system/cpu")) {
        return false;
    }
    let caches = *CACHE_INFO;
    [4, 8].into_iter().all(|size| {
        let (rows, columns) = (vector_bytes() * 4 / size, 6);
        let small = caches[1].cache_bytes / size / PANEL_TERMS / rows;
        let large = kernel_params(1 << 16, 1 << 16, PANEL_TERMS, rows, columns, size);
        small > 0 && large.kc == PANEL_TERMS && large.mc >= rows && (large.nc == 0 || large.nc >= columns)
    })
}

/// Returns true if Linux reports its caches here, with levels that the crate supports.
///
/// Without such a report the crate would run `lscpu`, that is, any program of that name in `$PATH`.
fn cache_levels_known(cpus: &Path) -> bool {
    let more = |level: String| level.trim().parse().is_ok_and(|level: usize| level > 3);
    let levels = std::fs::read_dir(cpus.join("cpu0/cache")).into_iter().flatten().flatten();
    std::fs::read_dir(cpus).is_ok()
        && !levels.filter_map(|index| std::fs::read_to_string(index.path().join("level")).ok()).any(more)
}

/// Returns the number of bytes in a vector of the crate's code.
fn vector_bytes() -> usize {
    #[cfg(target_arch = "x86_64")]
    return if is_x86_feature_detected!("avx512f") { 64 } else { 32 };
    #[cfg(not(target_arch = "x86_64"))]
    16
}

/// A function of the crate for one element type: sizes m, n and k, then pointer, column stride and
/// row stride of each matrix, whether the result is added to, the factors of both, and whether each
/// matrix is conjugated.
type GemmFn<F> = unsafe fn(
    usize,
    usize,
    usize,
    *mut F,
    isize,
    isize,
    bool,
    *const F,
    isize,
    isize,
    *const F,
    isize,
    isize,
    F,
    F,
    bool,
    bool,
    bool,
    Parallelism,
);

/// Multiplies matrices of at most [`PANEL_TERMS`] terms, and of more than two rows and columns.
///
/// Without `accumulate`, the result is multiplied by `by`.
///
/// # Safety
/// The caller upholds the contract of [`gemm`](super::gemm); `T` is float32 or float64.
pub(super) unsafe fn product<T: GemmElement>(p: GemmProblem<T>, by: f64) {
    // the crate's functions are faster where the elements of a column are adjacent
    let p = if p.c.cs.abs() < p.c.rs.abs() { p.transpose() } else { p };
    let GemmProblem { s, mut c, mut a, mut b, accumulate } = p;
    // they take strides that are not negative: rows, columns or terms are reversed in both matrices
    let last = |size: usize, stride: isize| size.saturating_sub(1) as isize * stride;
    if c.rs < 0 {
        c = MatMut { ptr: c.ptr.wrapping_offset(last(s.m, c.rs)), rs: -c.rs, ..c };
        a = MatRef { ptr: a.ptr.wrapping_offset(last(s.m, a.rs)), rs: -a.rs, ..a };
    }
    if c.cs < 0 {
        c = MatMut { ptr: c.ptr.wrapping_offset(last(s.n, c.cs)), cs: -c.cs, ..c };
        b = MatRef { ptr: b.ptr.wrapping_offset(last(s.n, b.cs)), cs: -b.cs, ..b };
    }
    if a.cs < 0 {
        a = MatRef { ptr: a.ptr.wrapping_offset(last(s.k, a.cs)), cs: -a.cs, ..a };
        b = MatRef { ptr: b.ptr.wrapping_offset(last(s.k, b.rs)), rs: -b.rs, ..b };
    }
    macro_rules! call {
        ($F:ty, $function:expr) => {{
            let (function, [zero, one]): (GemmFn<$F>, [$F; 2]) = ($function, [0.0, 1.0]);
            let factor = if accumulate { one } else { zero };
            let (x, y, z) = (c.ptr.cast::<$F>(), a.ptr.cast::<$F>(), b.ptr.cast::<$F>());
            // SAFETY: the caller upholds the contract of `gemm`, which is that of the crate; `T` is
            // float32 or float64 (caller contract), and `F` is the one of these two that has the
            // size of `T`, so it is `T`. The same elements are addressed as before rows, columns
            // and terms were exchanged or reversed.
            unsafe {
                function(
                    s.m,
                    s.n,
                    s.k,
                    x,
                    c.cs,
                    c.rs,
                    accumulate,
                    y,
                    a.cs,
                    a.rs,
                    z,
                    b.cs,
                    b.rs,
                    factor,
                    by as $F,
                    false,
                    false,
                    false,
                    Parallelism::None,
                )
            }
        }};
    }
    match size_of::<T>() {
        4 => call!(f32, gemm_f32::gemm::f32::get_gemm_fn()),
        _ => call!(f64, gemm_f64::gemm::f64::get_gemm_fn()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    #[cfg_attr(miri, ignore = "it writes files")]
    fn odd_caches_are_not_asked_about() {
        let cpus = std::env::temp_dir().join(format!("caches_{}", std::process::id()));
        assert!(!cache_levels_known(&cpus), "nothing is told");
        let index = cpus.join("cpu0/cache/index3");
        fs::create_dir_all(&index).unwrap();
        fs::write(index.join("level"), "3\n").unwrap();
        assert!(cache_levels_known(&cpus));
        fs::write(index.join("level"), "4\n").unwrap();
        assert!(!cache_levels_known(&cpus), "a fourth level");
        fs::remove_dir_all(&cpus).unwrap();
    }
}
