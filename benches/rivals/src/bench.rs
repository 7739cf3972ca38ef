//! What a line is, how it is timed, and the numbers that all sides begin with.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A program that is ready to be called.
pub struct Case {
    /// Seconds of the very first call.
    pub first: f64,
    /// Mean of the absolute values of the first result, to compare sides by.
    pub check: f64,
    /// Calls that one run makes.
    pub calls: usize,
    /// So many calls.
    pub run: Box<dyn FnMut()>,
}

/// Calls of `f`, one a run.
pub fn case<T>(check: impl Fn(&T) -> f64, f: impl FnMut() -> T + 'static) -> Option<Case> {
    many(1, check, f)
}

/// Calls of `f`, so many a run: for what takes less than a clock does.
pub fn many<T>(calls: usize, check: impl Fn(&T) -> f64, mut f: impl FnMut() -> T + 'static) -> Option<Case> {
    let start = Instant::now();
    let y = f();
    let first = start.elapsed().as_secs_f64();
    let check = check(&y);
    let run = move || (0..calls).for_each(|_| drop(black_box(f())));
    Some(Case { first, check, calls, run: Box::new(run) })
}

/// What was measured of a line, in seconds a call.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Median of the wall time.
    pub median: f64,
    /// Least wall time.
    pub least: f64,
    /// CPU time of all threads.
    pub cpu: f64,
    /// The first call.
    pub first: f64,
    /// See [`Case`].
    pub check: f64,
}

impl Case {
    /// Two runs to warm up, then runs for so long, at least five.
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

/// CPU time of this process.
fn cpu() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value of ours
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Mean of absolute values.
pub fn mean(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x.abs())).sum::<f64>() / x.len().max(1) as f64
}

/// Nothing to compare.
pub fn unchecked<T>(_: &T) -> f64 {
    0.0
}

/// Numbers in [-by, by), the same on all sides.
pub fn data(seed: u32, n: usize, by: f32) -> Vec<f32> {
    let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let next = |_| {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((s >> 8) as f32 / (1 << 23) as f32 - 1.0) * by
    };
    (0..n).map(next).collect()
}

/// The number behind the slash of a line's name.
pub fn size(line: &str) -> usize {
    line.rsplit('/').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Numbers of `from_vec` and `to_vec`: 64 MiB.
pub const HOST: usize = 16 << 20;
/// Rows and columns of softmax and layernorm.
pub const ROWS: (usize, usize) = (4096, 1024);
/// Batch, inputs and hidden features of the MLP.
pub const MLP: (usize, usize, usize) = (1024, 512, 1024);

/// Sizes of attention and of the transformer.
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

/// The weights of a layer: rows, columns, and the greatest number.
pub fn weights(d: usize) -> [(usize, usize, f32); 6] {
    let square = (d, d, 0.08);
    [square, square, square, square, (d, 4 * d, 0.08), (4 * d, d, 0.04)]
}
