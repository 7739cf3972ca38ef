//! Programs of all three modes with arguments, to be run by XLA and compared with our results.

use atmesh::ops::PRIMITIVES;
use atmesh::ops::random::{RandomKeyData, RandomWrap};
use atmesh::prelude::*;
use atmesh::stablehlo::Options;
use atmesh::transform::StableHlo;
use atmesh::tree::{Args, Tree, leaves};
use atmesh::{ConvOptions, Jit, Padding};
use std::sync::Arc;

#[path = "further.rs"]
mod further;

/// A program as a StableHLO module, its arguments, and the results of our engine.
pub(crate) struct Case {
    /// The name of the program and of its folder.
    pub(crate) name: String,
    /// The StableHLO module.
    pub(crate) module: StableHlo,
    /// The arguments of the program.
    pub(crate) arguments: Vec<Array>,
    /// The results that our engine computes.
    pub(crate) results: Vec<Array>,
}

/// Writes a function as StableHLO and calls it.
fn case<I: Tree, O: Tree, A: Args<Owned = I>>(
    name: &str,
    f: &Jit<'_, I, O>,
    args: impl Fn() -> A,
) -> Result<Case> {
    let module = f.trace(args())?.to_stablehlo_with(Options::default())?;
    let arguments = leaves(&args().into_tree());
    let results = leaves(&f.call(args())?);
    Ok(Case { name: name.into(), module, arguments, results })
}

/// Returns pseudo-random elements between −1 and 1, the same in each run.
fn numbers(seed: u64, shape: &[usize]) -> Array {
    Key::new(seed).uniform(shape) * 2.0 - 1.0
}

fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    (x.dot(w) + b).logistic()
}

/// Returns the mean square of the output of two layers.
fn loss(x: &Array, up: &Array, down: &Array) -> Array {
    let h = x.matmul(up).tanh();
    h.matmul_to(down, p!["dp"]).square().mean(..)
}

/// Returns programs whose shardings are part of the types.
fn explicit() -> Result<Vec<Case>> {
    let line = Mesh::new([("X", 8)])?;
    let grid = Mesh::new([("dp", 2), ("tp", 4)])?;
    let (w, b) = (numbers(2, &[32, 4]), numbers(3, &[4]));
    let x = numbers(1, &[32]).put(&line, p!["X"]);
    let rows = numbers(4, &[8, 16]).put(&grid, p!["dp"]);
    let (up, down) =
        (numbers(5, &[16, 32]).put(&grid, p![_, "tp"]), numbers(6, &[32, 16]).put(&grid, p!["tp"]));
    let step = jit(|x: &Array, up: &Array, down: &Array| {
        let (l, (u, d)) = value_and_grad((up, down), |(up, down)| loss(x, &up, &down));
        (l, up - 0.1 * u, down - 0.1 * d)
    });
    let table = numbers(7, &[64, 8]).put(&grid, p!["tp"]);
    let ids = Array::from([3, 60, 17, 0, 3, 33, 63, 8]).put(&grid, p!["dp"]);
    let matrix = numbers(8, &[8, 8]).put(&grid, p!["dp", "tp"]);
    Ok(vec![
        case("layer", &jit(layer), || (&x, &w, &b))?,
        case(
            "layer_gradient",
            &jit(|x: &Array, w: &Array, b: &Array| grad(x, |x| layer(&x, w, b).sum(..))),
            || (&x, &w, &b),
        )?,
        case("mlp_step", &step, || (&rows, &up, &down))?,
        case("donated", &jit(|x: &Array| x * 2.0).donate(0), || numbers(9, &[32]).put(&line, p!["X"]))?,
        case("captured", &jit(|x: &Array| x.dot(&w) + &b), || &x)?,
        case("reshards", &jit(|m: &Array| m.reshard(p!["tp", "dp"]).reshard(p![_, ("dp", "tp")])), || {
            &matrix
        })?,
        case(
            "unreduced",
            &jit(|m: &Array| -m.dot_to(m.t().reshard(p!["tp"]), p!["dp"; U: "tp"]).reshard(p!["dp"])),
            || &matrix,
        )?,
        case("lookup", &jit(|t: &Array, i: &Array| t.take_to(i, 0, p!["dp"])), || (&table, &ids))?,
        case(
            "lookup_gradient",
            &jit(|t: &Array, i: &Array| grad(t, |t| t.take_to(i, 0, p!["dp"]).square().sum(..))),
            || (&table, &ids),
        )?,
        case("rows", &jit(|m: &Array| (m.sort(0), m.argsort(0))), || {
            numbers(10, &[16, 8]).put(&grid, p![_, "tp"])
        })?,
        case("running", &jit(|m: &Array| (m.cumsum(1), m.cumlogsumexp(1), m.top_k(3, 1))), || {
            numbers(11, &[8, 13]).put(&line, p!["X"])
        })?,
    ])
}

/// Returns programs whose shardings are found by propagation.
fn auto() -> Result<Vec<Case>> {
    let line = Mesh::auto([("X", 8)])?;
    let grid = Mesh::auto([("dp", 2), ("tp", 4)])?;
    let u = numbers(20, &[104]).put(&line, p!["X"]);
    let heat = jit(|u: &Array| {
        fori_loop(0..20, u, |_, u| {
            let inner = u.slice(ix![..-2]) + u.slice(ix![2..]) - 2.0 * u.slice(ix![1..-1]);
            u.at(ix![1..-1]).add(0.1 * inner)
        })
    });
    let (x, up, down) = (
        numbers(21, &[8, 16]).put(&grid, p!["dp"]),
        numbers(22, &[16, 32]).put(&grid, p![_, "tp"]),
        numbers(23, &[32, 16]).put(&grid, p!["tp"]),
    );
    let mlp = jit(|x: &Array, up: &Array, down: &Array| {
        value_and_grad((up, down), |(up, down)| x.matmul(&up).tanh().matmul(&down).square().mean(..))
    });
    let xs = numbers(24, &[5, 8]).put(&line, p![_, "X"]);
    let decay = jit(|xs: &Array| {
        grad(xs, |xs| {
            let zero = Array::zeros([8]).put(&Mesh::auto([("X", 8)])?, p!["X"]);
            let (last, all) = scan(zero, &xs, |c, x| ((&c * 0.5 + &x).tanh(), c));
            Ok::<_, atmesh::Error>(last.sum(..) + all.square().sum(..))
        })
    });
    let picture = numbers(25, &[2, 3, 8, 8]).put(&grid, p!["dp"]);
    let filter = numbers(26, &[4, 3, 3, 3]).put(&grid, p!["tp"]);
    Ok(vec![
        case("heat", &heat, || &u)?,
        case("mlp_auto", &mlp, || (&x, &up, &down))?,
        case("scan_gradient", &decay, || &xs)?,
        case(
            "conv",
            &jit(|x: &Array, w: &Array| x.conv_with(w, ConvOptions::default().padding(Padding::Same))),
            || (&picture, &filter),
        )?,
        case("pool", &jit(|x: &Array| x.max_pool([2, 2])), || &picture)?,
        case("roll", &jit(|u: &Array| u.roll(3, 0) + u.flip(0)), || &u)?,
        case(
            "collatz",
            &jit(|n: &Array| {
                while_loop(
                    (n, 0),
                    |(n, _)| n.gt(1),
                    |(n, k)| {
                        let odd = (&n % 2).eq(1);
                        (odd.select(&n * 3 + 1, &n / 2), k + 1)
                    },
                )
            }),
            || Array::from(27),
        )?,
        case(
            "branches",
            &jit(|k: &Array, x: &Array| switch(k, &[&|| x.sin(), &|| x.cos(), &|| x * 2.0])),
            || (Array::from(1), numbers(27, &[8]).put(&line, p!["X"])),
        )?,
        case("update", &jit(|m: &Array| m.at(ix![1.., 2..4]).set(7.0)), || {
            numbers(28, &[8, 8]).put(&grid, p!["dp", "tp"])
        })?,
    ])
}

/// Returns programs of per-device code.
fn manual() -> Result<Vec<Case>> {
    let line = Mesh::new([("X", 8)])?;
    let grid = Mesh::new([("x", 4), ("y", 2)])?;
    let x = numbers(30, &[16, 8]).put(&line, p!["X"]);
    let m = numbers(31, &[8, 8]).put(&grid, p!["x", "y"]);
    let all = |x: &Array| {
        let sums = x.psum("X");
        let rows = x.all_gather("X", CollectiveDim::tiled(0)).sum(0);
        let mine = x.tile([4, 1]).psum_scatter("X", CollectiveDim::tiled(0));
        let next = x.ppermute("X", Permutation::ring(1));
        let turned = x.all_to_all("X", AllToAll::split(1).concat(0));
        (sums, rows.pmax("X"), mine, next * axis_index("X").astype(F32), turned)
    };
    let collectives = jit(move |x: &Array| {
        shard_map(&Mesh::new([("X", 8)])?, p!["X"], (p![], p![], p!["X"], p!["X"], p!["X"]), all).call(x)
    });
    let both = jit(|m: &Array| {
        let mesh = Mesh::new([("x", 4), ("y", 2)])?;
        let body = |m: &Array| (m.psum(axes_of(["y", "x"])), axis_index("y") + 10 * axis_index("x"));
        let (s, k) = shard_map(&mesh, p!["x", "y"], (p![], p![]), |m: &Array| {
            let (s, k) = body(m);
            (s, k.psum(axes_of(["x", "y"])))
        })
        .call(m)?;
        Ok::<_, atmesh::Error>((s, k))
    });
    let gradient = jit(|m: &Array| {
        grad(m, |m| {
            let mesh = Mesh::new([("x", 4), ("y", 2)])?;
            let y = shard_map(&mesh, p!["x", "y"], p!["x"], |m: &Array| m.square().psum("y")).call(&m)?;
            Ok::<_, atmesh::Error>(y.sin().sum(..))
        })
    });
    Ok(vec![
        case("collectives", &collectives, || &x)?,
        case("two_axes", &both, || &m)?,
        case("manual_gradient", &gradient, || &m)?,
    ])
}
fn axes_of<const N: usize>(names: [&'static str; N]) -> atmesh::Axes {
    names.into_iter().map(Into::into).collect()
}

/// Returns programs that need no mesh.
fn plain() -> Result<Vec<Case>> {
    let z = numbers(40, &[6]).complex(numbers(41, &[6]));
    Ok(vec![
        case(
            "random",
            &jit(|k: &Key| (k.normal([33]), k.randint([9], -5..7), k.bernoulli([5], 0.3))),
            || Key::new(7),
        )?,
        case("keys", &jit(|k: &Key| (k.split::<3>(), k.fold_in(5))), || Key::new(7))?,
        case("transforms", &jit(|z: &Array| (z.fft(0), z.ifft(0), z.real().rfft(0), z.conj() * z)), || &z)?,
        case("whole", &jit(|x: &Array| (x / 3, x % 3, x >> 1, x.astype(U8), x.astype(Bool))), || {
            Array::from([-7, 7, 300, 0])
        })?,
        case("odd", &jit(|x: &Array| (x.sort(0), x.maximum(0.0), x.is_finite(), x.round())), || {
            Array::from([f32::NAN, -0.0, f32::INFINITY, 2.5, -1.5, f32::NEG_INFINITY])
        })?,
        case("narrow", &jit(|x: &Array| (x.exp(), x.sum(1), x.matmul(x.t()))), || {
            numbers(42, &[8, 16]).astype(BF16)
        })?,
        case("wide", &jit(|x: &Array| (x.exp(), x.std(0))), || numbers(43, &[8, 16]).astype(F64))?,
    ])
}

/// Returns each primitive alone, on one device; those of manual mode are in `manual`.
fn primitives() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in PRIMITIVES {
        let (prim, operands) = (entry.example)();
        if prim.collective().is_some() || operands.iter().any(|t| t.mesh.is_some()) {
            continue;
        }
        let args: Vec<Array> =
            operands.iter().enumerate().map(|(k, ty)| argument(50 + k as u64, ty)).collect();
        let f = jit(move |args: &Vec<Array>| {
            Array::apply(prim.clone(), &args.iter().map(Into::into).collect::<Vec<_>>())
        });
        match case(&format!("prim_{}", entry.name), &f, || args.clone()) {
            Ok(case) => cases.push(case),
            Err(e) if e.kind() == atmesh::ErrorKind::Unsupported => {}
            Err(e) => return Err(e),
        }
    }
    Ok(cases)
}
/// Returns elements of a type on which all functions are defined and all factorisations exist.
fn argument(seed: u64, ty: &ArrayType) -> Array {
    let x = Key::new(seed).uniform(&ty.shape[..]);
    match ty.dtype {
        DType::Key => {
            let words = (Key::new(seed).uniform([&ty.shape[..], &[2]].concat()) * 1e9).astype(U32);
            Array::apply(Arc::new(RandomWrap), &[(&words).into()]).swap_remove(0)
        }
        Bool => x.gt(0.5),
        d if d.is_integer() => (x * 3.0).floor().astype(d),
        d if d.is_complex() => x.complex(Key::new(seed + 100).uniform(&ty.shape[..])).astype(d),
        d => x.astype(d),
    }
}

/// Converts an array to its form in files: the words of a key, or the bits of a bfloat16.
pub(crate) fn plain_bits(a: &Array) -> Result<Array> {
    Ok(match a.dtype()? {
        DType::Key => Array::apply(Arc::new(RandomKeyData), &[a.into()]).swap_remove(0),
        BF16 => a.bitcast(U16),
        _ => a.clone(),
    })
}

/// A topic, and the function that makes its programs.
type ProgramGroup = (&'static str, fn() -> Result<Vec<Case>>);

/// The programs by topic.
pub(crate) const GROUPS: [ProgramGroup; 9] = [
    ("explicit", explicit),
    ("auto", auto),
    ("manual", manual),
    ("plain", plain),
    ("steps", further::steps),
    ("further manual", further::manual),
    ("values", further::values),
    ("primitives", primitives),
    ("sharded primitives", further::primitives),
];

/// Returns all programs.
pub(crate) fn all() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (_, group) in GROUPS {
        cases.extend(group()?);
    }
    Ok(cases)
}
