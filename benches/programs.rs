//! Whole programs next to JAX: prints one JSON line per program and mode, with the programs, inputs
//! and sizes of `benches/peers/programs.py`. `scripts/programs` runs both in turns.
//!
//! `cargo bench --bench programs -- [--only NAME,…] [--seconds S] [--profile]`; a name is a program
//! (`poisson`) or one of its modes (`poisson/auto`): `one` device, or 8 (shallow water: 4) virtual
//! devices with `auto` or `explicit` axes. `_plain` are plain Rust loops. `value` is a number of the
//! result, which both sides must agree on. `--profile` prints the time of each operation instead.

#[path = "programs/bodies.rs"]
mod bodies;
#[path = "programs/mixture.rs"]
mod mixture;
#[path = "programs/pagerank.rs"]
mod pagerank;
#[path = "programs/poisson.rs"]
mod poisson;
#[path = "programs/shallow_water.rs"]
mod shallow_water;
#[path = "timing/mod.rs"]
mod timing;
#[path = "programs/waves.rs"]
mod waves;

use atmesh::CallArgs;
use atmesh::prelude::*;
use timing::{CallTimes, is_selected, time_calls};

/// The command-line options.
struct Options {
    only: Vec<String>,
    seconds: f64,
    profile: bool,
}

impl Options {
    /// Returns true if this mode of a program, or the program, is selected.
    fn wants(&self, name: &str) -> bool {
        is_selected(&self.only, name)
    }

    /// Times the calls of a compiled program. `part` is the array of the result whose norm is the
    /// value.
    fn program<I: Tree, O: Tree, A: CallArgs<I> + Copy>(
        &self,
        name: &str,
        f: &Jit<I, O>,
        args: A,
        part: impl Fn(&O) -> Array,
    ) -> Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        if self.profile {
            let compiled = f.lower(args)?.compile()?;
            drop(compiled.call(args)?);
            println!("{name}\n{}", compiled.profile(args)?.1);
            return Ok(());
        }
        let value = norm(&part(&f.call(args)?))?;
        self.time(name, value, || f.call(args).map(drop))
    }

    /// Times calls; prints the minimum, the median, the number of calls and the value.
    fn time(&self, name: &str, value: f64, f: impl FnMut() -> Result<()>) -> Result<()> {
        if self.profile || !self.wants(name) {
            return Ok(());
        }
        let CallTimes { min, median, runs, .. } = time_calls(self.seconds, f)?;
        println!(
            r#"{{"name": "{name}", "seconds": {median:e}, "min": {min:e}, "runs": {runs}, "value": {value:e}}}"#
        );
        Ok(())
    }
}

/// Returns the square root of the sum of the squares of all elements, in float64.
fn norm(x: &Array) -> Result<f64> {
    Ok(x.astype(F64).to_vec::<f64>()?.iter().map(|x| x * x).sum::<f64>().sqrt())
}

fn main() -> Result<()> {
    let mut o = Options { only: Vec::new(), seconds: 1.0, profile: false };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--only" => {
                o.only = args.next().unwrap_or_default().split(',').map(str::to_string).collect();
            }
            "--seconds" => o.seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(1.0),
            "--profile" => o.profile = true,
            _ => {} // cargo passes `--bench`
        }
    }
    type Program = fn(&Options) -> Result<()>;
    let all: [(&str, Program); 9] = [
        ("mixture", mixture::mixture),
        ("pagerank", pagerank::pagerank),
        ("poisson", poisson::poisson),
        ("poisson_real", poisson::poisson_real),
        ("shallow_water", |o| shallow_water::shallow_water(o, "shallow_water", (182, 362), 50)),
        ("shallow_water_large", |o| shallow_water::shallow_water(o, "shallow_water_large", (722, 1442), 20)),
        ("fdtd", waves::fdtd),
        ("wave", waves::wave),
        ("bodies", bodies::bodies),
    ];
    for (name, program) in all {
        let wanted = |n: &String| n.split('/').next() == Some(name);
        if o.only.is_empty() || o.only.iter().any(wanted) {
            program(&o)?;
        }
    }
    Ok(())
}
