//! Defines a benchmark case, how it is timed, and the input data that all implementations share.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A program that is ready to be called.
pub struct Case {
    /// The time of the very first call, in seconds.
    pub first: f64,
    /// The mean absolute value of the first result, for comparing implementations.
    pub check: f64,
    /// The number of calls per run.
    pub calls: usize,
    /// Runs the program `calls` times.
    pub run: Box<dyn FnMut()>,
}

/// Returns a case that calls `f` once per run.
pub fn case<T>(check: impl Fn(&T) -> f64, f: impl FnMut() -> T + 'static) -> Option<Case> {
    many(1, check, f)
}

/// Returns a case that calls `f` `calls` times per run, for programs shorter than the clock's
/// resolution.
pub fn many<T>(calls: usize, check: impl Fn(&T) -> f64, mut f: impl FnMut() -> T + 'static) -> Option<Case> {
    let start = Instant::now();
    let y = f();
    let first = start.elapsed().as_secs_f64();
    let check = check(&y);
    let run = move || (0..calls).for_each(|_| drop(black_box(f())));
    Some(Case { first, check, calls, run: Box::new(run) })
}

/// The measurements of one workload, in seconds per call.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The median wall time.
    pub median: f64,
    /// The minimum wall time.
    pub least: f64,
    /// The CPU time of all threads.
    pub cpu: f64,
    /// The time of the first call.
    pub first: f64,
    /// The mean absolute value of the first result, as in [`Case`].
    pub check: f64,
}

impl Case {
    /// Runs the case twice to warm up, then for `seconds` seconds and at least five times.
    pub fn measure(mut self, seconds: f64) -> Figure {
        (self.run)();
        (self.run)();
        let (mut runs, start, before) = (Vec::new(), Instant::now(), cpu());
        while runs.len() < 5 || start.elapsed().as_secs_f64() < seconds {
            let t = Instant::now();
            (self.run)();
            runs.push(t.elapsed());
        }
        let cpu = (cpu() - before) / (runs.len() * self.calls) as f64;
        runs.sort();
        let call = |d: Duration| d.as_secs_f64() / self.calls as f64;
        Figure {
            median: call(runs[runs.len() / 2]),
            least: call(runs[0]),
            cpu,
            first: self.first,
            check: self.check,
        }
    }
}

/// Returns the CPU time of this process, in seconds.
fn cpu() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Returns the mean of the absolute values.
pub fn mean(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x.abs())).sum::<f64>() / x.len().max(1) as f64
}

/// Returns 0: there is no result to compare.
pub fn unchecked<T>(_: &T) -> f64 {
    0.0
}

/// Returns `n` pseudo-random elements in [-by, by), the same for all implementations.
pub fn data(seed: u32, n: usize, by: f32) -> Vec<f32> {
    let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let next = |_| {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((s >> 8) as f32 / (1 << 23) as f32 - 1.0) * by
    };
    (0..n).map(next).collect()
}

/// Returns the size after the slash in a workload's name.
pub fn size(line: &str) -> usize {
    line.rsplit('/').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The number of elements of `from_vec` and `to_vec`: 64 MiB of float32.
pub const HOST: usize = 16 << 20;
/// The rows and columns of softmax and layernorm.
pub const ROWS: (usize, usize) = (4096, 1024);
/// The batch size, inputs and hidden features of the MLP.
pub const MLP: (usize, usize, usize) = (1024, 512, 1024);

/// The sizes of attention and of the transformer.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub layers: usize,
    pub batch: usize,
    pub places: usize,
    pub heads: usize,
    pub features: usize,
}

/// One layer of attention.
pub const ATTENTION: Sizes = Sizes { layers: 1, batch: 8, places: 256, heads: 8, features: 512 };
/// A transformer of four layers.
pub const TRANSFORMER: Sizes = Sizes { layers: 4, batch: 16, places: 128, heads: 4, features: 128 };

/// Returns the weights of a layer: rows, columns, and the bound of the absolute value.
pub fn weights(d: usize) -> [(usize, usize, f32); 6] {
    let square = (d, d, 0.08);
    [square, square, square, square, (d, 4 * d, 0.08), (4 * d, d, 0.04)]
}
