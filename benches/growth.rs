//! The time of a call against the size of its array, on 1, 2, 8 and 64 virtual devices: one JSON
//! line per family, number of devices and size. `scripts/growth` draws them and prints a table.
//!
//! `cargo bench --bench growth -- [--only FAMILY,…] [--seconds S]`. Sizes are elements of the whole
//! array, over three decades; each device has at least 64. `steps` are the iterations of a call.

#[path = "timing/mod.rs"]
mod timing;

use atmesh::prelude::*;
use timing::{CallTimes, is_selected, time_calls};

/// The smallest and the largest array, as powers of two, and the power between sizes.
const SIZES: (u32, u32, usize) = (12, 22, 2);
const DEVICES: [usize; 4] = [1, 2, 8, 64];

/// The command-line options.
struct Options {
    only: Vec<String>,
    seconds: f64,
}

/// The number of devices and of elements of a case.
#[derive(Clone, Copy)]
struct Case {
    devices: usize,
    elements: usize,
}

impl Case {
    /// Returns float32 numbers below 1, in rows, which are sharded on explicit axes.
    fn rows(self, columns: usize) -> Result<Array> {
        self.array(&[self.elements / columns, columns])?.put(&self.mesh()?, p!["X", _]).ready()
    }

    /// Returns float32 numbers below 1, which are sharded on the axes of the mesh.
    fn vector(self, mesh: &Mesh) -> Result<Array> {
        self.array(&[self.elements])?.put(mesh, p!["X"]).ready()
    }

    fn array(self, shape: &[usize]) -> Result<Array> {
        let x = Array::arange(0..self.elements as i32) % 97;
        (x.astype(F32) / 97.0).reshape(shape.to_vec()).ready()
    }

    fn mesh(self) -> Result<Mesh> {
        Mesh::new([("X", self.devices)])
    }

    /// Prints the minimum and the median time of calls that take `steps` steps each.
    fn time(self, o: &Options, family: &str, steps: usize, f: impl FnMut() -> Result<()>) -> Result<()> {
        let CallTimes { min, median, .. } = time_calls(o.seconds, f)?;
        let Case { devices, elements } = self;
        println!(
            r#"{{"family": "{family}", "devices": {devices}, "elements": {elements}, "steps": {steps}, "seconds": {median:e}, "min": {min:e}}}"#
        );
        Ok(())
    }

    /// Times a collective on the blocks of all devices.
    fn collective(self, o: &Options, family: &str, out: Spec, body: fn(&Array) -> Array) -> Result<()> {
        let mesh = self.mesh()?;
        let x = self.vector(&mesh)?;
        let f = jit(shard_map(&mesh, p!["X"], out, body).unchecked());
        self.time(o, family, 1, || f.call(&x).map(drop))
    }
}

fn elementwise(o: &Options, c: Case) -> Result<()> {
    let x = c.rows(64)?;
    let f = jit(|x: &Array| 2.0 * x + 1.0);
    c.time(o, "elementwise", 1, || f.call(&x).map(drop))
}

fn reduction(o: &Options, c: Case) -> Result<()> {
    let x = c.rows(64)?;
    let f = jit(|x: &Array| x.sum(0));
    c.time(o, "reduction", 1, || f.call(&x).map(drop))
}

fn matmul(o: &Options, c: Case) -> Result<()> {
    let x = c.rows(64)?;
    let w = Key::new(0).normal([64, 64]).put(&c.mesh()?, p![]).ready()?;
    let f = jit(|x: &Array, w: &Array| x.dot(w));
    c.time(o, "matmul", 1, || f.call((&x, &w)).map(drop))
}

fn all_reduce(o: &Options, c: Case) -> Result<()> {
    c.collective(o, "all-reduce", p![], |x| x.psum("X"))
}

fn all_gather(o: &Options, c: Case) -> Result<()> {
    c.collective(o, "all-gather", p![], |x| x.all_gather("X", CollectiveDim::tiled(0)))
}

fn reduce_scatter(o: &Options, c: Case) -> Result<()> {
    c.collective(o, "reduce-scatter", p!["X"], |x| x.psum_scatter("X", CollectiveDim::tiled(0)))
}

/// Times 100 steps of the heat equation, each of which exchanges halos.
fn heat(o: &Options, c: Case) -> Result<()> {
    let x = c.vector(&Mesh::auto([("X", c.devices)])?)?;
    let f = jit(|x: &Array| {
        fori_loop(0..100, x, |_, x| {
            let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
            x.at(ix![1..-1]).set(inner)
        })
    })
    .out_specs(p!["X"]);
    c.time(o, "heat", 100, || f.call(&x).map(drop))
}

fn eager(o: &Options, c: Case) -> Result<()> {
    let x = c.rows(64)?;
    c.time(o, "eager", 1, || (&x + &x).ready().map(drop))
}

/// Times a loop of 100 steps that communicate nothing.
fn steps(o: &Options, c: Case) -> Result<()> {
    let x = c.rows(64)?;
    let f = jit(|x: &Array| fori_loop(0..100, x, |_, x| 0.5 * x + 1.0));
    c.time(o, "loop", 100, || f.call(&x).map(drop))
}

fn main() -> Result<()> {
    let mut o = Options { only: Vec::new(), seconds: 0.05 };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--only" => {
                o.only = args.next().unwrap_or_default().split(',').map(str::to_string).collect();
            }
            "--seconds" => o.seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(0.05),
            _ => {} // cargo passes `--bench`
        }
    }
    type Family = fn(&Options, Case) -> Result<()>;
    let all: [(&str, Family); 9] = [
        ("elementwise", elementwise),
        ("reduction", reduction),
        ("matmul", matmul),
        ("all-reduce", all_reduce),
        ("all-gather", all_gather),
        ("reduce-scatter", reduce_scatter),
        ("heat", heat),
        ("eager", eager),
        ("loop", steps),
    ];
    for (name, family) in all {
        if !is_selected(&o.only, name) {
            continue;
        }
        for devices in DEVICES {
            for power in (SIZES.0..=SIZES.1).step_by(SIZES.2) {
                family(&o, Case { devices, elements: 1 << power })?;
            }
        }
    }
    Ok(())
}
