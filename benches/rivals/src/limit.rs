//! Measures the limits of the machine: memory bandwidth of all cores, and multiply-adds in
//! registers.

use crate::bench::{Case, case, unchecked};
use rayon::prelude::*;

pub const NAMES: [&str; 3] = ["read", "copy", "multiply-add"];
/// The elements of a stream: 256 MiB of float32.
const N: usize = 64 << 20;
const ROUNDS: usize = 1 << 20;

/// Returns the number of bytes or operations of a call.
pub fn amount(name: &str) -> f64 {
    match name {
        "read" => 4.0 * N as f64,
        "copy" => 8.0 * N as f64,
        _ => (2 * 24 * 16 * ROUNDS * rayon::current_num_threads()) as f64,
    }
}

pub fn unit(name: &str) -> &'static str {
    if name == "multiply-add" { "GFLOP/s" } else { "GB/s" }
}

pub fn line(name: &str) -> Option<Case> {
    let workers = rayon::current_num_threads();
    match name {
        "read" => {
            let x = numbers(1.0);
            case(unchecked, move || x.par_chunks(N / workers).map(sum).sum::<f32>())
        }
        "copy" => {
            let (x, mut y) = (numbers(1.0), numbers(2.0));
            let part = N / workers;
            case(unchecked, move || {
                y.par_chunks_mut(part).zip(x.par_chunks(part)).for_each(|(y, x)| stream(y, x))
            })
        }
        "multiply-add" => case(unchecked, move || {
            rayon::broadcast(|_| multiply_adds(std::hint::black_box(0.999))).iter().sum::<f32>()
        }),
        _ => None,
    }
}

fn sum(x: &[f32]) -> f32 {
    let mut s = [0f32; 64];
    for x in x.as_chunks::<64>().0 {
        for (s, x) in s.iter_mut().zip(x) {
            *s += x;
        }
    }
    s.iter().sum()
}

/// Returns `N` copies of `x`, in huge pages where the system supports them.
fn numbers(x: f32) -> Vec<f32> {
    let mut v = Vec::with_capacity(N);
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let start = v.as_mut_ptr() as usize;
        let (from, to) = (start.next_multiple_of(HUGE), (start + 4 * N) / HUGE * HUGE);
        // SAFETY: these pages belong to the vector, and the advice does not change their contents.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
    }
    v.resize(N, x);
    v
}

/// Runs 24 independent chains of fused multiply-adds with 16 lanes each.
#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
fn multiply_adds(k: f32) -> f32 {
    use std::arch::x86_64::{_mm512_add_ps, _mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    // SAFETY: the function is compiled only for targets that have AVX-512F.
    unsafe {
        let (k, c) = (_mm512_set1_ps(k), _mm512_set1_ps(0.001));
        let mut a = [_mm512_set1_ps(1.0); 24];
        for _ in 0..ROUNDS {
            for a in &mut a {
                *a = _mm512_fmadd_ps(*a, k, c);
            }
        }
        _mm512_reduce_add_ps(a.into_iter().fold(c, |s, a| _mm512_add_ps(s, a)))
    }
}

/// Runs the same chains as the compiler vectorises them. This may be slower than the processor's
/// limit.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx512f")))]
fn multiply_adds(k: f32) -> f32 {
    let mut a = [[1f32; 16]; 24];
    for _ in 0..ROUNDS {
        a.iter_mut().flatten().for_each(|a| *a = a.mul_add(k, 0.001));
    }
    a.iter().flatten().sum()
}

/// Copies with non-temporal stores, which bypass the caches.
#[cfg(all(target_arch = "x86_64", target_feature = "avx"))]
fn stream(y: &mut [f32], x: &[f32]) {
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_ps, _mm256_stream_ps};
    let head = y.as_ptr().align_offset(32).min(y.len());
    y[..head].copy_from_slice(&x[..head]);
    let (y, x) = (y[head..].as_chunks_mut::<8>(), x[head..].as_chunks::<8>());
    for (y, x) in y.0.iter_mut().zip(x.0) {
        // SAFETY: both chunks have eight elements, and the chunk of `y` is aligned to 32 bytes.
        unsafe { _mm256_stream_ps(y.as_mut_ptr(), _mm256_loadu_ps(x.as_ptr())) };
    }
    y.1.copy_from_slice(x.1);
    // SAFETY: every processor with AVX has this instruction.
    unsafe { _mm_sfence() };
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "avx")))]
fn stream(y: &mut [f32], x: &[f32]) {
    y.copy_from_slice(x);
}
