//! More programs of each mode: all strategies for a training step, collectives over one and two
//! axes, partial values, values on other meshes, and each primitive with sharded operands.

use super::{Case, argument, case, numbers};
use atmesh::ops::PRIMITIVES;
use atmesh::prelude::*;
use atmesh::{Axes, AxisType, ErrorKind, Padding, WindowOptions};

/// Computes one step of gradient descent on a two-layer network with a mean-square loss.
fn step(x: &Array, y: &Array, up: &Array, down: &Array) -> (Array, Array) {
    let (gu, gd) = grad((up, down), |(up, down)| (x.matmul(&up).relu().matmul(&down) - y).square().mean(..));
    (up - 0.1 * gu, down - 0.1 * gd)
}

/// Returns data-, tensor- and fully sharded parallel training steps, on auto and on explicit axes.
pub(super) fn steps() -> Result<Vec<Case>> {
    let both = ("dp", "tp");
    let ways = [
        ("dp", p![both], p![], p![]),
        ("fsdp", p![both], p![both], p![both]),
        ("tp", p![], p![_, both], p![both]),
        ("dp_tp", p!["dp"], p![_, "tp"], p!["tp"]),
    ];
    let mut cases = Vec::new();
    for (name, data, first, second) in ways {
        let arguments = |mesh: &Mesh| {
            let of = |seed, shape: [usize; 2], spec| numbers(seed, &shape).put(mesh, spec);
            (of(60, [16, 8], data), of(61, [16, 8], data), of(62, [8, 32], first), of(63, [32, 8], second))
        };
        let (x, y, up, down) = arguments(&Mesh::auto([("dp", 2), ("tp", 4)])?);
        let auto = jit(step).out_specs((first, second));
        cases.push(case(&format!("step_{name}_auto"), &auto, || (&x, &y, &up, &down))?);

        let (x, y, up, down) = arguments(&Mesh::new([("dp", 2), ("tp", 4)])?);
        // FSDP weights are gathered; sums over a sharded dimension state their result.
        let explicit = jit(move |x: &Array, y: &Array, up: &Array, down: &Array| {
            let (gu, gd) = grad((up, down), |(up, down)| {
                let (u, d) = if name == "fsdp" { (up.reshard(p![]), down.reshard(p![])) } else { (up, down) };
                let h = x.matmul(&u).relu();
                (h.matmul_to(&d, data) - y).square().mean(..)
            });
            (up - 0.1 * gu, down - 0.1 * gd)
        });
        cases.push(case(&format!("step_{name}"), &explicit, || (&x, &y, &up, &down))?);
    }
    let mesh = Mesh::auto([("X", 8)])?;
    let (x, y) = (numbers(64, &[64, 8]).put(&mesh, p!["X"]), numbers(65, &[64, 1]).put(&mesh, p!["X"]));
    let (w, b) = (numbers(66, &[8, 1]).put(&mesh, p![]), Array::zeros([1]).put(&mesh, p![]));
    let logistic = jit(|x: &Array, y: &Array, w: &Array, b: &Array| {
        let (gw, gb) = grad((w, b), |(w, b)| ((x.dot(&w) + b).logistic() - y).square().mean(..));
        (w - 0.1 * gw, b - 0.1 * gb)
    });
    cases.push(case("logistic_step", &logistic, || (&x, &y, &w, &b))?);
    Ok(cases)
}

/// Computes one step of the heat equation on a block, using the neighbours' edges.
fn rod(x: &Array) -> Array {
    let from_left = x.slice(ix![-1..]).ppermute("X", Permutation::shift(1));
    let from_right = x.slice(ix![..1]).ppermute("X", Permutation::shift(-1));
    let wide = concat([&from_left, x, &from_right], 0);
    0.5 * x + 0.25 * wide.slice(ix![..-2]) + 0.25 * wide.slice(ix![2..])
}

/// Returns programs of per-device code.
pub(super) fn manual() -> Result<Vec<Case>> {
    let line = Mesh::new([("X", 8)])?;
    let grid = Mesh::new([("x", 4), ("y", 2)])?;
    let both = ("x", "y");
    let u = numbers(70, &[64]).put(&line, p!["X"]);
    let by_hand = jit(shard_map(&line, p!["X"], p!["X"], |u: &Array| fori_loop(0..10, u, |_, u| rod(&u))));

    let m = numbers(71, &[16, 8]).put(&grid, p!["x", "y"]);
    let stacked = jit(shard_map(&grid, p!["x", "y"], (p![], p![both], p![both]), |m: &Array| {
        let all = m.all_gather(("x", "y"), CollectiveDim::stacked(0)); // [8, 4, 4]
        let sums = all.psum_scatter(("y", "x"), CollectiveDim::stacked(0));
        (all.pmax(("x", "y")), sums, m.all_to_all("x", AllToAll::split(0).stack(0)).sum(0))
    }));
    let tiled = jit(shard_map(&grid, p![both], (p![both], p![_, both], p![both], p![]), |m: &Array| {
        let wide = m.tile([8, 1]);
        (
            wide.psum_scatter(both, CollectiveDim::tiled(0)),
            m.tile([4, 1]).all_to_all(both, AllToAll::split(1).concat(0)),
            m.ppermute(both, Permutation::ring(3)),
            m.pmin(both) + m.pmean(both),
        )
    }));

    let partly = Mesh::with_types([("x", 4, AxisType::Explicit), ("y", 2, AxisType::Auto)])?;
    let p = numbers(72, &[16, 8]).put(&partly, p!["x"]);
    let region = jit(move |p: &Array| {
        let body = |p: &Array| (p.matmul(p.t()).sin().psum("x"), axis_index("x"));
        let (s, k) = shard_map(&partly, p!["x"], (p![], p![]), |p: &Array| {
            let (s, k) = body(p);
            (s, k.psum("x"))
        })
        .over("x")
        .call(p)?;
        Ok::<_, atmesh::Error>((s * 2.0, k))
    });

    let (a, b) = (numbers(73, &[8, 16]).put(&line, p![_, "X"]), numbers(74, &[16, 8]).put(&line, p!["X"]));
    let mesh = line.clone();
    let parts = jit(move |a: &Array, b: &Array| {
        let product = a.dot_to(b, p![_, _; U: "X"]);
        let turned = shard_map(&mesh, p![; U: "X"], p![; U: "X"], |u: &Array| -u.t()).call(product)?;
        Ok::<_, atmesh::Error>(turned.reshard(p!["X"]))
    });
    Ok(vec![
        case("rod_by_hand", &by_hand, || &u)?,
        case("stacked", &stacked, || &m)?,
        case("tiled", &tiled, || numbers(75, &[8, 8]).put(&grid, p![both]))?,
        case("partly_manual", &region, || &p)?,
        case("sums_in_and_out", &parts, || (&a, &b))?,
    ])
}

/// Returns programs that move, join, select and draw values of sharded arrays.
pub(super) fn values() -> Result<Vec<Case>> {
    let grid = Mesh::new([("dp", 2), ("tp", 4)])?;
    let other = Mesh::new([("a", 4), ("b", 2)])?;
    let auto = Mesh::auto([("X", 8)])?;
    let (a, b) = (numbers(80, &[8, 16]).put(&grid, p!["dp"]), numbers(81, &[16, 8]).put(&grid, p!["tp"]));
    let large = numbers(82, &[1 << 20]).put(&auto, p!["X"]);
    let (v, w) = (numbers(83, &[16, 4]).put(&auto, p!["X"]), numbers(84, &[16, 4]).put(&auto, p!["X"]));
    let batch = numbers(85, &[4, 8, 8]).put(&grid, p!["tp", "dp"]);
    let heat = jit(|u: &Array| {
        fori_loop(0..3, u, |_, u| {
            let inner = u.slice(ix![..-2]) + u.slice(ix![2..]) - 2.0 * u.slice(ix![1..-1]);
            u.at(ix![1..-1]).add(0.1 * inner)
        })
    });
    let (mesh, drawn) = (auto.clone(), auto.clone());
    Ok(vec![
        case("heat_large", &heat, || &large)?,
        case(
            "products",
            &jit(|a: &Array, b: &Array| {
                let a = a.reshard(p!["dp", "tp"]);
                (a.dot_to(b, p!["dp"]), a.dot_to(b, p!["dp", "tp"]), a.dot_to(b, p!["dp"; U: "tp"]))
            }),
            || (&a, &b),
        )?,
        case("batched", &jit(|q: &Array| q.matmul(q.swapaxes(1, 2).reshard(p!["tp"]))), || &batch)?,
        case("other_mesh", &jit(move |a: &Array| (a * 2.0).put(&other, p!["b", "a"]).sin()), || &a)?,
        case(
            "constrained",
            &jit(move |v: &Array, w: &Array| {
                let s = (v + w).constrain(p![_, _]).sin();
                (s.constrain_on(&mesh, p!["X"]) * v).sum(0)
            }),
            || (&v, &w),
        )?,
        case(
            "joined",
            &jit(|v: &Array, w: &Array| {
                let long = concat([v, w], 0);
                (long.roll(5, 0), stack([v, w], 1), v.roll(-1, 1) + w.flip(0), v.repeat(2, 0), long)
            }),
            || (&v, &w),
        )?,
        case(
            "shapes",
            &jit(|v: &Array, w: &Array| {
                let cube = v.reshape([4, 4, 4]);
                let padded = w.pad(0.5, [(2, 6, 0), (0, 0, 1)]);
                (
                    cube.transpose([2, 0, 1]),
                    cube.sum([0, 2]),
                    padded,
                    v.slice(ix![4..12, ..]),
                    w.expand_dims(1).squeeze(1) - v,
                )
            }),
            || (&v, &w),
        )?,
        case(
            "chosen",
            &jit(|v: &Array, w: &Array| {
                let inner = jit(|v: &Array| v.tanh() * 3.0);
                let big = v.sum(..).gt(0.0);
                Ok::<_, atmesh::Error>((
                    cond(&big, || v.sin(), || w.cos()),
                    inner.call(v)?,
                    v.gt(w).select(v, w).max(1),
                    inner.call(w)?,
                ))
            }),
            || (&v, &w),
        )?,
        case(
            "drawn",
            &jit(move |k: &Key| {
                let [a, b, c] = k.split();
                let at = |x: Array| x.constrain_on(&drawn, p!["X"]);
                (
                    at(a.normal([64, 3])),
                    at(b.uniform([64])),
                    at(c.bits(U64.array_type([16]))),
                    at(a.randint([32], 0..100)),
                )
            }),
            || Key::new(11),
        )?,
        case(
            "windows",
            &jit(|v: &Array| {
                let same = WindowOptions::default().padding(Padding::Same);
                v.window_sum_with([3, 2], same)
            }),
            || &v,
        )?,
    ])
}

/// Returns every primitive without its own mesh, with operands sharded as evenly as possible.
pub(super) fn primitives() -> Result<Vec<Case>> {
    let mesh = Mesh::auto([("a", 2), ("b", 2), ("c", 2)])?;
    let mut cases = Vec::new();
    for entry in PRIMITIVES {
        let (prim, operands) = (entry.example)();
        if prim.collective().is_some() || operands.iter().any(|t| t.mesh.is_some()) {
            continue;
        }
        let place = |(k, ty): (usize, &ArrayType)| {
            let mut axes = ["a", "b", "c"].into_iter();
            let one = |n: &usize| {
                n.is_multiple_of(2).then(|| axes.next()).flatten().map_or(Axes::none(), Axes::from)
            };
            argument(150 + k as u64, ty).put(&mesh, Spec::from_dims(ty.shape.iter().map(one).collect()))
        };
        let args: Vec<Array> = operands.iter().enumerate().map(place).collect();
        let f = jit(move |args: &Vec<Array>| {
            Array::apply(prim.clone(), &args.iter().map(Into::into).collect::<Vec<_>>())
        });
        match case(&format!("sharded_{}", entry.name), &f, || args.clone()) {
            Ok(case) => cases.push(case),
            // Skipped: no StableHLO form, an unevenly sharded result, or a mesh in the primitive.
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::Mesh) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(cases)
}
