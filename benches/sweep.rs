//! Single operations next to JAX and PyTorch: prints one JSON line per operation, with the names,
//! shapes and inputs of `benches/peers/sweep.py`. `scripts/sweep` runs all three in turns.
//!
//! `cargo bench --bench sweep -- [--only NAME,…] [--seconds S] [--size SIZE]`; a name is a group
//! (`conv`) or one operation of a group (`conv/3x3`), and `SIZE` is `one`, `third` or `three` (each
//! array has about a third or three times as many elements) or `odd` (each large dimension has one
//! element less). Operations run on one device, with all cores, as the peers do.

/// Times a program of one argument.
macro_rules! unary {
    ($o:expr, $name:expr, $x:expr, $f:expr) => {
        if $o.wants($name) {
            let x = $x.ready()?;
            let f = jit($f);
            $o.time($name, || f.call(&x).map(drop))?;
        }
    };
}

/// Times a program of two arguments.
macro_rules! binary {
    ($o:expr, $name:expr, $x:expr, $y:expr, $f:expr) => {
        if $o.wants($name) {
            let (x, y) = ($x.ready()?, $y.ready()?);
            let f = jit($f);
            $o.time($name, || f.call((&x, &y)).map(drop))?;
        }
    };
}

#[path = "sweep/arrays.rs"]
mod arrays;
#[path = "sweep/elementwise.rs"]
mod elementwise;
#[path = "sweep/fft.rs"]
mod fft;
#[path = "sweep/products.rs"]
mod products;
#[path = "sweep/reductions.rs"]
mod reductions;
#[path = "timing/mod.rs"]
mod timing;

use atmesh::prelude::*;
use timing::{CallTimes, is_selected, time_calls};

/// By how much the arrays differ from the sizes that a name stands for.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    One,
    Third,
    Three,
    Odd,
}

/// The command-line options.
struct Options {
    only: Vec<String>,
    seconds: f64,
    size: Size,
}

impl Options {
    /// Returns true if this operation, or its group, is selected.
    fn wants(&self, name: &str) -> bool {
        is_selected(&self.only, name)
    }

    /// Returns the size of the dimension that is scaled: one of each array.
    fn scaled(&self, n: usize) -> usize {
        match self.size {
            Size::One => n,
            Size::Third => n.div_ceil(3),
            Size::Three => 3 * n,
            Size::Odd => self.fixed(n),
        }
    }

    /// Returns the size of a dimension that is the same at each scale, one less in odd sizes.
    fn fixed(&self, n: usize) -> usize {
        if self.size == Size::Odd && n >= 8 { n - 1 } else { n }
    }

    /// Runs two calls to warm up, then calls for some seconds; prints the minimum, the median and
    /// the number of calls.
    fn time(&self, name: &str, f: impl FnMut() -> Result<()>) -> Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        let CallTimes { min, median, runs, .. } = time_calls(self.seconds, f)?;
        println!(r#"{{"name": "{name}", "seconds": {median:e}, "min": {min:e}, "runs": {runs}}}"#);
        Ok(())
    }
}

/// Returns float32 numbers between -0.5 and 0.5.
fn uniform(seed: u64, shape: &[usize]) -> Array {
    Key::new(seed).uniform(shape.to_vec()) - 0.5
}

/// Returns `n` indices below `m` in no order.
fn indices(n: usize, m: usize) -> Array {
    let index = |k: usize| ((k as u64 * 2_654_435_761) % m as u64) as i32;
    Array::from((0..n).map(index).collect::<Vec<i32>>())
}

fn main() -> Result<()> {
    let mut o = Options { only: Vec::new(), seconds: 0.5, size: Size::One };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--only" => {
                o.only = args.next().unwrap_or_default().split(',').map(str::to_string).collect();
            }
            "--seconds" => o.seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(0.5),
            "--size" => {
                o.size = match args.next().as_deref() {
                    Some("third") => Size::Third,
                    Some("three") => Size::Three,
                    Some("odd") => Size::Odd,
                    _ => Size::One,
                }
            }
            _ => {} // cargo passes `--bench`
        }
    }
    products::convolutions(&o)?;
    products::products(&o)?;
    products::linear_algebra(&o)?;
    elementwise::elementwise(&o)?;
    elementwise::random(&o)?;
    reductions::reductions(&o)?;
    reductions::short(&o)?;
    reductions::pooling(&o)?;
    arrays::sorts(&o)?;
    arrays::moves(&o)?;
    arrays::indexing(&o)?;
    fft::transforms(&o)
}
