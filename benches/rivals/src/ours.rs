//! The atmesh implementations: each program compiled for one device, compiled for eight devices,
//! and run eagerly.

use crate::bench::{
    ATTENTION, Case, HOST, MLP, ROWS, Sizes, TRANSFORMER, case, data, many, mean, size, unchecked, weights,
};
use atmesh::prelude::*;

type Arrays = Vec<Array>;
type Program = fn(&Arrays) -> Arrays;

pub fn one(line: &str) -> Option<Case> {
    if let Some(c) = host(line) {
        return Some(c);
    }
    let (args, f) = program(line)?;
    let args: Arrays = args.into_iter().map(|a| a.0.ready().unwrap()).collect();
    let f = jit(f);
    case(first, move || f.call(&args).unwrap())
}

pub fn eight(line: &str) -> Option<Case> {
    let (args, f) = program(line)?;
    let mesh = Mesh::auto([("X", 8)]).unwrap();
    let args: Arrays = args.into_iter().map(|(a, s)| a.put(&mesh, s).ready().unwrap()).collect();
    let f = jit(f);
    case(first, move || f.call(&args).unwrap())
}

pub fn eager(line: &str) -> Option<Case> {
    let (args, f) = program(line)?;
    let args: Arrays = args.into_iter().map(|a| a.0.ready().unwrap()).collect();
    case(first, move || f(&args).into_iter().map(|y| y.ready().unwrap()).collect::<Arrays>())
}

fn first(ys: &Arrays) -> f64 {
    mean(&ys[0].to_vec::<f32>().unwrap())
}

/// Returns the cases of host data and of eager operations on four elements.
fn host(line: &str) -> Option<Case> {
    let four = || Array::from([1f32, 2.0, 3.0, 4.0]);
    match line {
        "from_vec" => {
            let v = data(1, HOST, 1.0);
            case(unchecked, move || Array::from(&v[..]))
        }
        "to_vec" => {
            let x = Array::from(data(1, HOST, 1.0));
            case(unchecked, move || x.to_vec::<f32>().unwrap())
        }
        "add" => {
            let (x, y) = (four(), four());
            many(1000, |z: &Array| mean(&z.to_vec::<f32>().unwrap()), move || &x + &y)
        }
        "chain" => {
            let (x, y) = (four(), four());
            many(200, |z: &Array| mean(&z.to_vec::<f32>().unwrap()), move || ((&x + &y) * 2.0).sin().sum(..))
        }
        _ => None,
    }
}

fn array(seed: u32, shape: &[usize], by: f32) -> Array {
    Array::from(data(seed, shape.iter().product(), by)).reshape(shape.to_vec())
}

fn norm(x: &Array) -> Array {
    let c = x - x.mean(Dims::keep(-1));
    &c * (c.square().mean(Dims::keep(-1)) + 1e-5).rsqrt()
}

fn attention(x: &Array, w: &[Array], o: Sizes) -> Array {
    let k = o.features / o.heads;
    let [q, ke, v] = [0, 1, 2].map(|i| x.matmul(&w[i]).reshape([o.batch, o.places, o.heads, k]));
    let a = (einsum("bshk,bthk->bhst", [&q, &ke]) / (k as f64).sqrt()).softmax(-1);
    einsum("bhst,bthk->bshk", [&a, &v]).reshape([o.batch, o.places, o.features]).matmul(&w[3])
}

fn layer(x: &Array, w: &[Array]) -> Array {
    let x = x + attention(&norm(x), w, TRANSFORMER);
    &x + norm(&x).matmul(&w[4]).relu().matmul(&w[5])
}

/// Takes one step of gradient descent of a loss with respect to the first arrays.
fn step(ps: &[Array], loss: impl Fn(Arrays) -> Array) -> Arrays {
    let ps = ps.to_vec();
    let g = grad(&ps, loss);
    ps.iter().zip(&g).map(|(p, g)| p - 0.01 * g).collect()
}

/// Returns the arguments of a program, their shardings over eight devices, and the program.
fn program(line: &str) -> Option<(Vec<(Array, Spec)>, Program)> {
    let n = size(line);
    let rows = || p!["X", _];
    let whole = || p![_, _];
    let square = |seed| array(seed, &[n, n], 1.0);
    let table = |seed| (array(seed, &[ROWS.0, ROWS.1], 1.0), rows());
    let (args, f): (Vec<(Array, Spec)>, Program) = match line.split('/').next()? {
        "affine" => (vec![(square(1), rows())], |a| vec![2.0 * &a[0] + 1.0]),
        "sin" => (vec![(square(1), rows())], |a| vec![2.0 * a[0].sin() + 1.0]),
        "sum" => (vec![(square(1), rows())], |a| vec![a[0].sum(0)]),
        "matmul" => (vec![(square(1), rows()), (square(2), whole())], |a| vec![a[0].dot(&a[1])]),
        "matvec" => (vec![(square(1), rows()), (array(2, &[n], 1.0), p![_])], |a| vec![a[0].dot(&a[1])]),
        "logistic" => {
            let x = array(1, &[1024, 32], 1.0);
            let y = x.dot(array(2, &[32, 1], 1.0)).gt(0).astype(F32).ready().unwrap();
            let p = [(Array::zeros([32, 1]), whole()), (Array::zeros([1]), p![_])];
            let args = p.into_iter().chain([(x, rows()), (y, rows())]).collect();
            (args, |a| step(&a[..2], |p| ((a[2].dot(&p[0]) + &p[1]).logistic() - &a[3]).square().mean(..)))
        }
        "mlp" => {
            let (b, d, h) = MLP;
            let p = [(array(1, &[d, h], 0.04), whole()), (array(2, &[h, d], 0.03), whole())];
            let data = [(array(3, &[b, d], 1.0), rows()), (array(4, &[b, d], 1.0), rows())];
            (p.into_iter().chain(data).collect(), |a| {
                step(&a[..2], |p| (a[2].dot(&p[0]).relu().dot(&p[1]) - &a[3]).square().mean(..))
            })
        }
        "heat1d" => (vec![(array(1, &[1 << 20], 1.0), p!["X"])], |a| {
            vec![fori_loop(0..100, a[0].clone(), |_, x| {
                let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
                x.at(ix![1..-1]).set(inner)
            })]
        }),
        "stencil2d" => (vec![(array(1, &[2048, 2048], 1.0), rows())], |a| {
            vec![fori_loop(0..20, a[0].clone(), |_, x| {
                let c = x.slice(ix![1..-1, 1..-1]);
                let around = x.slice(ix![..-2, 1..-1]) + x.slice(ix![2.., 1..-1]);
                let around = around + x.slice(ix![1..-1, ..-2]) + x.slice(ix![1..-1, 2..]);
                x.at(ix![1..-1, 1..-1]).set(&c + 0.1 * (around - 4.0 * &c))
            })]
        }),
        "softmax" => (vec![table(1)], |a| vec![a[0].softmax(-1)]),
        "layernorm" => (vec![table(1)], |a| vec![norm(&a[0])]),
        "softmax_grad" => {
            (vec![table(1), table(2)], |a| vec![grad(&a[0], |x| (x.softmax(-1) * &a[1]).sum(..))])
        }
        "layernorm_grad" => (vec![table(1), table(2)], |a| vec![grad(&a[0], |x| (norm(&x) * &a[1]).sum(..))]),
        "attention" | "attention_grad" => {
            let o = ATTENTION;
            let mut args = vec![(array(1, &[o.batch, o.places, o.features], 1.0), p!["X", _, _])];
            args.extend((0..4).map(|i| (array(2 + i, &[o.features, o.features], 0.04), whole())));
            let forward: Program = |a| vec![attention(&a[0], &a[1..], ATTENTION)];
            let back: Program =
                |a| grad(a, |p: Arrays| attention(&p[0], &p[1..], ATTENTION).square().mean(..));
            (args, if line == "attention" { forward } else { back })
        }
        "transformer" => {
            let o = TRANSFORMER;
            let x = |seed| (array(seed, &[o.batch, o.places, o.features], 1.0), p!["X", _, _]);
            let mut args = vec![x(100), x(101)];
            for l in 0..o.layers as u32 {
                let w = weights(o.features);
                args.extend((0u32..).zip(w).map(|(j, (n, m, by))| (array(10 * l + j, &[n, m], by), whole())));
            }
            (args, |a| {
                step(&a[2..], |p| {
                    let out = p.chunks(6).fold(a[0].clone(), |x, w| layer(&x, w));
                    (out - &a[1]).square().mean(..)
                })
            })
        }
        _ => return None,
    };
    Some((args, f))
}
