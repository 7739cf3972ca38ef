//! Compares the StableHLO that this crate writes with the StableHLO that JAX writes for the same
//! programs: compiles both through the same PJRT plugin, runs them in turns on one device with the
//! same arguments, and prints the ratio of their times, the operations of both texts, and the times
//! to write and compile them.
//!
//! `ATMESH_PJRT_PLUGIN=$(scripts/plugin) cargo bench --features xla --bench stablehlo -- [NAME…]`;
//! `--save FOLDER` writes this crate's modules to files, and `--seconds S` sets the length of one of
//! the nine comparisons. `benches/peers/stablehlo.py` writes JAX's modules, and
//! `scripts/compare-modules` compares what XLA makes of both.
#[path = "peers/stablehlo/programs.rs"]
mod programs;

use atmesh::pjrt::{Client, DeviceBuffer, LoadedExecutable};
use atmesh::prelude::*;
use programs::{COUNTED, cases, count};
use std::time::Instant;

/// Returns the shortest times of both modules, in seconds; they run in turns, for at least `seconds`.
fn time(modules: [&LoadedExecutable; 2], arguments: &[&DeviceBuffer], seconds: f64) -> Result<[f64; 2]> {
    let mut least = [f64::MAX; 2];
    let begin = Instant::now();
    while least[0] == f64::MAX || begin.elapsed().as_secs_f64() < seconds {
        for (module, least) in modules.iter().zip(&mut least) {
            let start = Instant::now();
            module.run(&[arguments.to_vec()])?;
            *least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let (mut only, mut folder, mut seconds) = (Vec::new(), None, 0.5);
    while let Some(a) = arguments.next() {
        match a.as_str() {
            "--save" => folder = arguments.next(),
            "--seconds" => seconds = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(seconds),
            _ => only.push(a),
        }
    }
    let mut cases = cases()?;
    cases.retain(|case| only.is_empty() || only.iter().any(|name| name == case.name));
    println!("operations of our text and of JAX's: {}", COUNTED.join(", "));
    for case in &cases {
        if let Some(folder) = &folder {
            std::fs::write(format!("{folder}/{}.mlir", case.name), &case.ours).expect("a folder to write to");
        }
        let counts = COUNTED.map(|op| format!("{}/{}", count(&case.ours, op), count(&case.theirs, op)));
        println!("{:18} {}", case.name, counts.join("  "));
    }
    if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
        println!("nothing is run: ATMESH_PJRT_PLUGIN is not set");
        return Ok(());
    }
    let client = Client::from_env(1)?;
    for case in &cases {
        let put = |a: &Array| client.put(bytes(a)?.as_slice(), F32, &a.shape()?, 0);
        let blocks = case.arguments.iter().map(put).collect::<Result<Vec<_>>>()?;
        let ((ours, first), (theirs, second)) =
            (compile(&client, &case.ours)?, compile(&client, &case.theirs)?);
        println!(
            "{:18} {:.1} ms to our text; {:.0} ms to compile it, {:.0} ms for JAX's",
            case.name,
            case.seconds * 1e3,
            first * 1e3,
            second * 1e3
        );
        let ratios: Vec<f64> = (0..9)
            .map(|_| time([&ours, &theirs], &blocks.iter().collect::<Vec<_>>(), seconds))
            .map(|least| least.map(|[ours, theirs]| ours / theirs))
            .collect::<Result<_>>()?;
        let mut sorted = ratios.clone();
        sorted.sort_by(f64::total_cmp);
        let [a, b] = time([&ours, &theirs], &blocks.iter().collect::<Vec<_>>(), seconds)?;
        println!(
            "{:18} {:.3} ms, JAX's text {:.3} ms; median of 9 ratios {:.3} ({:.3} to {:.3})",
            case.name,
            a * 1e3,
            b * 1e3,
            sorted[4],
            sorted[0],
            sorted[8]
        );
    }
    Ok(())
}

/// Compiles a text, and returns the seconds that it took.
fn compile(client: &Client, text: &str) -> Result<(LoadedExecutable, f64)> {
    let start = Instant::now();
    Ok((client.compile(text, 1)?, start.elapsed().as_secs_f64()))
}

/// Returns the elements of a float32 array as bytes.
fn bytes(a: &Array) -> Result<Vec<u8>> {
    Ok(a.to_vec::<f32>()?.iter().flat_map(|x| x.to_ne_bytes()).collect())
}
