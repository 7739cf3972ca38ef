//! The programs of `benches/peers/stablehlo.py`: their StableHLO as this crate writes it, and as
//! JAX writes it (`NAME.mlir` in this folder).

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
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) ours: String,
    pub(crate) theirs: String,
    /// The seconds from the function to our text.
    pub(crate) seconds: f64,
    pub(crate) arguments: Vec<Array>,
}

fn case<I: Tree, O: Tree>(
    name: &'static str,
    trace: impl Fn() -> Result<Traced<I, O>>,
    arguments: Vec<Array>,
) -> Result<Case> {
    let file = format!("{}/benches/peers/stablehlo/{name}.mlir", env!("CARGO_MANIFEST_DIR"));
    let theirs = std::fs::read_to_string(&file).expect(&file);
    let start = Instant::now();
    let ours = trace()?.to_stablehlo()?.text().to_string();
    Ok(Case { name, ours, theirs, seconds: start.elapsed().as_secs_f64(), arguments })
}

/// Returns the programs of `benches/peers/stablehlo.py`.
pub(crate) fn cases() -> Result<Vec<Case>> {
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
        case("softmax", || jit(|x: &Array| x.softmax(-1)).trace(&rows), vec![rows.clone()])?,
        case("layernorm", || jit(norm).trace(&rows), vec![rows.clone()])?,
        case(
            "mlp",
            || jit(mlp).trace((&dense, &data, &data)),
            [&dense[..], &[data.clone(), data.clone()]].concat(),
        )?,
        case("transformer", || step(F32).trace((&layers, &tokens)), weights())?,
        case("transformer_bf16", || step(BF16).trace((&layers, &tokens)), weights())?,
        case(
            "convolution",
            || jit(convolution).trace((&filters, &images)),
            [&filters[..], std::slice::from_ref(&images)].concat(),
        )?,
    ])
}

/// The operations that are counted in both texts.
pub(crate) const COUNTED: [&str; 6] =
    ["convert", "transpose", "sharding_constraint", "reshape", "broadcast_in_dim", "dot_general"];

/// Returns the number of operations of this name in a text.
pub(crate) fn count(text: &str, op: &str) -> usize {
    text.matches(&format!("stablehlo.{op} ")).count() + text.matches(&format!("sdy.{op} ")).count()
}
