//! Compares the StableHLO that this crate writes with the StableHLO that JAX writes for the same
//! programs: compiles both through the same PJRT plugin, runs them in turns on one device with the
//! same arguments, and prints the ratio of their times and the operations of both texts.
//!
//! `ATMESH_PJRT_PLUGIN=$(scripts/plugin) cargo bench --features xla --bench stablehlo -- [NAME…]`;
//! `--save FOLDER` writes this crate's modules to files, and `--seconds S` sets the length of one of
//! the nine comparisons. `benches/peers/stablehlo.py` writes JAX's modules, and
//! `scripts/compare-modules` compares what XLA makes of both.
use atmesh::pjrt::{Client, DeviceBuffer, LoadedExecutable};
use atmesh::prelude::*;
use atmesh::{ConvOptions, Padding};
use std::time::Instant;

type Layer = [Array; 6];

fn norm(x: &Array) -> Array {
    let y = x - x.mean(Dims::keep(-1));
    &y * (y.square().mean(Dims::keep(-1)) + 1e-5).rsqrt()
}

fn block(x: &Array, p: &Layer) -> Array {
    let h = norm(x);
    let [q, k, v] = [0, 1, 2].map(|i| einsum("bsd,dhk->bshk", [&h, &p[i]]));
    let a = (einsum("bshk,bthk->bhst", [&q, &k]) / 64f64.sqrt()).softmax(-1);
    let x = x + einsum("bshk,hkd->bsd", [&einsum("bhst,bthk->bshk", [&a, &v]), &p[3]]);
    let up = einsum("bsd,df->bsf", [&norm(&x), &p[4]]).maximum(0.0);
    x + einsum("bsf,fd->bsd", [&up, &p[5]])
}

fn descend<T: Tree>(w: &T, g: &T) -> T {
    tree::map2(w, g, |w, g| w - 0.01 * g)
}

fn transformer(ws: &Vec<Layer>, x: &Array, dtype: DType) -> Vec<Layer> {
    let g = grad(ws, |ws: Vec<Layer>| {
        let mut y = x.astype(dtype);
        for p in &ws {
            y = block(&y, &std::array::from_fn(|i| p[i].astype(dtype)));
        }
        (y.astype(F32) - x.roll(1, 1)).square().mean(..)
    });
    descend(ws, &g)
}

fn mlp(w: &[Array; 2], x: &Array, y: &Array) -> [Array; 2] {
    let g = grad(w, |w: [Array; 2]| (x.dot(&w[0]).relu().dot(&w[1]) - y).square().mean(..));
    descend(w, &g)
}

fn convolution(w: &[Array; 2], x: &Array) -> [Array; 2] {
    let with = |stride| {
        let options = ConvOptions::default().layout("NHWC", "HWIO", "NHWC").padding(Padding::Same);
        options.strides([stride, stride])
    };
    let g = grad(w, |w: [Array; 2]| {
        x.conv_with(&w[0], with(1)).relu().conv_with(&w[1], with(2)).square().mean(..)
    });
    descend(w, &g)
}

/// A program in both texts, and its arguments.
struct Case {
    name: &'static str,
    ours: String,
    theirs: String,
    arguments: Vec<Array>,
}

fn case<I: Tree, O: Tree>(name: &'static str, traced: Traced<I, O>, arguments: Vec<Array>) -> Result<Case> {
    let file = format!("{}/benches/peers/stablehlo/{name}.mlir", env!("CARGO_MANIFEST_DIR"));
    let theirs = std::fs::read_to_string(file).unwrap_or_default();
    Ok(Case { name, ours: traced.to_stablehlo()?.text().to_string(), theirs, arguments })
}

/// Returns the programs of `benches/peers/stablehlo.py`.
fn cases() -> Result<Vec<Case>> {
    // as a program that is written for many devices runs on one: each axis has one device
    let mesh = Mesh::new([("data", 1), ("model", 1)])?;
    let argument = |shape: &[usize]| {
        let fan_in = shape.iter().product::<usize>() / shape[shape.len() - 1];
        (Key::new(7).normal(shape.to_vec()) / (fan_in as f64).sqrt()).put(&mesh, p![])
    };
    let layer = || -> Layer {
        let shapes: [&[usize]; 6] =
            [&[256, 4, 64], &[256, 4, 64], &[256, 4, 64], &[4, 64, 256], &[256, 1024], &[1024, 256]];
        shapes.map(argument)
    };
    let (rows, layers, tokens) = (argument(&[2048, 1024]), vec![layer(), layer()], argument(&[4, 128, 256]));
    let step = |dtype| jit(move |ws: &Vec<Layer>, x: &Array| transformer(ws, x, dtype));
    let (dense, data) = ([argument(&[512, 2048]), argument(&[2048, 512])], argument(&[512, 512]));
    let (filters, images) =
        ([argument(&[3, 3, 16, 32]), argument(&[3, 3, 32, 32])], argument(&[16, 28, 28, 16]));
    let weights = || layers.iter().flatten().chain([&tokens]).cloned().collect::<Vec<_>>();
    Ok(vec![
        case("softmax", jit(|x: &Array| x.softmax(-1)).trace(&rows)?, vec![rows.clone()])?,
        case("layernorm", jit(norm).trace(&rows)?, vec![rows.clone()])?,
        case(
            "mlp",
            jit(mlp).trace((&dense, &data, &data))?,
            [&dense[..], &[data.clone(), data.clone()]].concat(),
        )?,
        case("transformer", step(F32).trace((&layers, &tokens))?, weights())?,
        case("transformer_bf16", step(BF16).trace((&layers, &tokens))?, weights())?,
        case(
            "convolution",
            jit(convolution).trace((&filters, &images))?,
            [&filters[..], std::slice::from_ref(&images)].concat(),
        )?,
    ])
}

/// The operations that are counted in both texts.
const COUNTED: [&str; 6] =
    ["convert", "transpose", "sharding_constraint", "reshape", "broadcast_in_dim", "dot_general"];

fn count(text: &str, op: &str) -> usize {
    text.matches(&format!("stablehlo.{op} ")).count() + text.matches(&format!("sdy.{op} ")).count()
}

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
        let (ours, theirs) = (client.compile(&case.ours, 1)?, client.compile(&case.theirs, 1)?);
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

/// Returns the elements of a float32 array as bytes.
fn bytes(a: &Array) -> Result<Vec<u8>> {
    Ok(a.to_vec::<f32>()?.iter().flat_map(|x| x.to_ne_bytes()).collect())
}
