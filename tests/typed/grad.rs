//! Derivatives, loops and `vmap` of typed trees: results have the stated types, and the bits of
//! their untyped twins on all engines.
// These tests are about the types.
#![allow(clippy::type_complexity)]

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::{self, StepRange, prelude::*};
use atmesh::{ScanOptions, Tree, einsum_to, scan_with, value_and_grad};

mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Layers);

fn pod() -> typed::MeshOf<Pod> {
    Pod::mesh().unwrap()
}
/// Returns numbers that are not round, so that another order of additions has other bits.
fn noise(seed: u64, sizes: impl Into<Vec<usize>>, spec: Spec) -> Array {
    Key::new(seed).normal(sizes.into()).put(&pod(), spec)
}
fn bits<T: Tree>(tree: &T) -> Vec<(String, Vec<u32>)> {
    let one = |a: &Array| (a.ty().unwrap().to_string(), a.to_vec::<f32>().unwrap());
    let all = tree::leaves(tree).iter().map(one).collect::<Vec<_>>();
    all.into_iter().map(|(ty, x)| (ty, x.iter().map(|x| x.to_bits()).collect())).collect()
}
/// Runs a program on every engine, eagerly and compiled, typed and untyped: all bits agree.
fn same_bits<A, T, U>(args: &A, typed: impl Fn(&A) -> T, untyped: impl Fn(&A) -> U)
where
    A: Tree + Clone,
    T: Tree,
    U: Tree,
{
    let expected = bits(&untyped(args));
    assert_eq!(bits(&typed(args)), expected);
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let got = jit(|a: &A| typed(a)).engine(engine).call(args).unwrap();
        let twin = jit(|a: &A| untyped(a)).engine(engine).call(args).unwrap();
        assert_eq!(bits(&got), bits(&twin), "{engine:?}");
        assert!(engine == EngineKind::Reference || bits(&got) == expected, "{engine:?}");
    }
}

type W = T![f32; 16, 8; R: X];
type G = T![f32; 16, 8; U: X];

#[derive(Clone, Tree)]
struct Net<W, B> {
    w: W,
    b: B,
}
#[derive(Clone, Tree)]
struct Plain {
    w: T![f32; 16, 8],
    b: T![f32; 8],
}
#[derive(Clone, Tree)]
struct Deep<W> {
    layers: Vec<Net<W, W>>,
    last: Option<W>,
    #[tree(skip)]
    depth: usize,
}

fn x() -> T![f32; 32@X, 16] {
    noise(1, [32, 16], p!["X"]).typed().unwrap()
}
fn weights(seed: u64) -> T![f32; 16, 8] {
    noise(seed, [16, 8], p![]).typed().unwrap()
}
fn reduced(seed: u64) -> W {
    weights(seed).reshard(P![_, _; R: X])
}

#[test]
fn an_einsum_leaves_its_sum() {
    let (a, b) = (noise(2, [8, 16], p![_, "X"]), noise(3, [16, 4], p!["X"]));
    let of = |a: &Array, b: &Array| -> T![f32; 8, 4; U: X] {
        let (a, b): (T![f32; 8, 16@X], T![f32; 16@X, 4]) = (a.typed().unwrap(), b.typed().unwrap());
        einsum!("mk,kn->mn", a, b, P![_, _; U: X])
    };
    same_bits(
        &(a, b),
        |(a, b)| of(a, b).reshard(P![X, _]),
        |(a, b)| einsum_to("mk,kn->mn", [a, b], p![_, _; U: "X"]).reshard(p!["X"]),
    );
    let (a, b) = (noise(4, [3, 8, 16], p![_, "Y", "X"]), noise(5, [16, 8, 3, 4], p!["X", "Y"]));
    let a: T![f32; 3, 8@Y, 16@X] = a.typed().unwrap();
    let b: T![f32; 16@X, 8@Y, 3, 4] = b.typed().unwrap();
    let both: T![f32; 4, 3; U: (X, Y)] = einsum!("bmk,kmbn->nb", a, b, P![_, =; U: (X, Y)]);
    assert_eq!(type_of(&both), "float32[4,3]{U:(X,Y)}");
}

#[test]
fn a_gradient_has_the_type_of_the_cotangent() {
    let loss = |x: &Array, w: &Array| x.dot(w).tanh().square().sum(..);
    same_bits(
        &(x(), reduced(2)),
        |(x, w)| -> G { typed::grad(w, |w| x.matmul(&w).tanh().square().sum(..)) },
        |(x, w)| grad(w.as_untyped(), |w| loss(x.as_untyped(), &w)),
    );
    // nothing is summed over X before the reshard
    let step = jit(|x: &T![f32; 32@X, 16], w: &W| -> G { typed::grad(w, |w| x.matmul(&w).tanh().sum(..)) });
    assert!(step.lower((&x(), &reduced(2))).unwrap().collectives().is_empty());
    // a plain parameter keeps its type, and its gradient is summed
    let g: T![f32; 16, 8] = typed::grad(&weights(2), |w| x().matmul(&w).sum(..));
    assert_eq!(type_of(&g), "float32[16,8]");
}

#[test]
fn structs_lists_and_tuples_of_parameters() {
    let net = Net { w: reduced(2), b: noise(3, [8], p![]).typed::<T![f32; 8]>().unwrap() };
    same_bits(
        &(x(), net),
        |(x, net)| {
            let (loss, g): (_, Net<G, T![f32; 8]>) =
                typed::value_and_grad(net, |n| (x.matmul(&n.w) + &n.b).square().sum(..));
            (loss, g)
        },
        |(x, net)| {
            value_and_grad((net.w.as_untyped(), net.b.as_untyped()), |(w, b)| {
                (x.as_untyped().dot(w) + b).square().sum(..)
            })
        },
    );
    let plain = Plain { w: weights(2), b: noise(3, [8], p![]).typed().unwrap() };
    let g: Plain = typed::grad(&plain, |p| (x().matmul(&p.w) + &p.b).square().sum(..));
    let twin: Plain = grad(&plain, |p| (x().matmul(&p.w) + &p.b).square().sum(..));
    assert_eq!(bits(&g), bits(&twin));
    let pair = || Net { w: reduced(4), b: reduced(5) };
    let deep = Deep { layers: vec![pair(), pair()], last: Some(reduced(6)), depth: 3 };
    let g: Deep<G> = typed::grad(&deep, |d| {
        d.layers.iter().map(|l| x().matmul(&l.w).mul(&x().matmul(&l.b)).sum(..)).reduce(|a, b| a + b).unwrap()
    });
    assert_eq!((g.layers.len(), g.depth, g.last.is_some()), (2, 3, true));
    let (gx, (gw, list)): (T![f32; 32@X, 16], (G, [G; 2])) =
        typed::grad((&x(), (&reduced(2), [reduced(3), reduced(4)])), |(x, (w, [a, b]))| {
            (x.matmul(&w) + x.matmul(&a) * x.matmul(&b)).sum(..)
        });
    assert_eq!(
        type_of((gx, gw, list)),
        "(float32[32@X,16], float32[16,8]{U:X}, (float32[16,8]{U:X}, float32[16,8]{U:X}))"
    );
}

#[test]
fn auxiliary_results_and_pullbacks() {
    let (((loss, h), g), twin) = (
        typed::value_and_grad(&reduced(2), |w| {
            let h = x().matmul(&w);
            (h.square().sum(..), h)
        }),
        value_and_grad(reduced(2).as_untyped(), |w| {
            let h = x().as_untyped().dot(w);
            (h.square().sum(..), h)
        }),
    );
    let _: (T![f32;], T![f32; 32@X, 8], G) = (loss.clone(), h.clone(), g.clone());
    assert_eq!(bits(&((loss, h), g)), bits(&twin));
    let (y, pull) = typed::vjp(&reduced(2), |w| (x().matmul(&w), w.sum(..)));
    let dw: G = pull.call((y.0.ones_like(), <T![f32;]>::from(2.0).put_like(&y.1)));
    assert_eq!(type_of(dw), "float32[16,8]{U:X}");
}

trait PutLike {
    fn put_like(&self, other: &T![f32;; R: X]) -> T![f32;; U: X];
}
impl PutLike for T![f32;] {
    fn put_like(&self, _: &T![f32;; R: X]) -> T![f32;; U: X] {
        self.then(|a| a.put(&pod(), p![; U: "X"])).unwrap()
    }
}

#[test]
fn the_untyped_grad_says_what_to_use() {
    let g = grad(&reduced(2), |w| x().matmul(&w).sum(..));
    let here = line!() - 1;
    let error = g.untyped().ty().unwrap_err();
    let text = error.unquoted();
    assert!(text.contains("the array is float32[16,8]{U:X}, but the type is float32[16,8]{R:X}"), "{text}");
    assert!(text.contains("typed::grad"), "{text}");
    assert!(text.contains(&format!("tests/typed/grad.rs:{here}")), "{text}");
    let step = jit(|w: &W| grad(w, |w| x().matmul(&w).sum(..)));
    let text = step.call(&reduced(2)).err().unwrap().unquoted();
    assert!(text.contains("typed::value_and_grad") && text.contains("tests/typed/grad.rs"), "{text}");
}

#[test]
fn errors_of_closures_reach_every_leaf() {
    let bad = |w: &Array| w.reshape([5]);
    let net = Net { w: reduced(2), b: weights(3) };
    let g = typed::grad(&net, |n| n.b.then::<T![f32;]>(bad));
    assert!(g.w.untyped().ty().is_err() && g.b.untyped().ty().is_err());
    let xs = <T![f32; 3, 4]>::ones(&pod());
    let (c, rows) =
        typed::scan(xs.sum(..), &xs, |c, x| x.then::<T![f32; 2]>(bad).map(|y| (c, (y.clone(), y))));
    assert!(c.untyped().ty().is_err() && rows.0.untyped().ty().is_err() && rows.1.untyped().ty().is_err());
    let y = typed::vmap(&xs, |x| x.then::<T![f32; 2]>(bad));
    assert!(y.untyped().ty().is_err());
}

#[test]
fn a_scan_over_a_struct_of_layers() {
    let w: T![f32; 5, 16, 16@Y] = noise(2, [5, 16, 16], p![_, _, "Y"]).typed().unwrap();
    let b: T![f32; 5, 16] = noise(3, [5, 16], p![]).typed().unwrap();
    let layers = Net { w: &w * 0.25, b };
    let untyped = |x: Array, w: &Array, b: &Array| {
        let h = x.dot(w);
        ((h.reshard(p!["X"]) + b).tanh(), h)
    };
    same_bits(
        &(x(), layers.clone()),
        |(x, layers)| {
            let (x, h): (T![f32; 32@X, 16], T![f32; 5, 32@X, 16@Y]) = typed::scan(x, layers, |x, l| {
                let w: T![f32; 16, 16@Y] = l.w;
                let h = x.matmul(&w);
                ((h.reshard(P![=, _]) + &l.b).tanh(), h)
            });
            (x, h)
        },
        |(x, l)| {
            let xs = (l.w.as_untyped(), l.b.as_untyped());
            scan(x.as_untyped(), xs, |x, (w, b)| untyped(x, &w, &b))
        },
    );
    same_bits(
        &(x(), layers),
        |(x, layers)| {
            let back = StepRange::default().reversed();
            typed::scan_with(
                x,
                layers,
                |x, l| ((&x + &l.b).tanh(), Net { w: l.w.sum(..), b: x.sum(D1) }),
                back,
            )
        },
        |(x, l)| {
            let xs = (l.w.as_untyped(), l.b.as_untyped());
            let step = |x: Array, (w, b): (Array, Array)| ((&x + b).tanh(), (w.sum(..), x.sum(1)));
            scan_with(x.as_untyped(), xs, step, ScanOptions::default().reversed())
        },
    );
}

#[test]
fn the_gradient_of_a_scan_is_a_struct_of_layers() {
    let w = noise(2, [5, 16, 16], p![]).typed::<T![f32; 5, 16, 16]>().unwrap();
    let layers = Net {
        w: (w * 0.25).reshard(P![_, _, _; R: X]),
        b: noise(3, [5, 16], p![]).typed::<T![f32; 5, 16]>().unwrap(),
    };
    same_bits(
        &(x(), layers),
        |(x, l)| -> Net<T![f32; 5, 16, 16; U: X], T![f32; 5, 16]> {
            typed::grad(l, |l| {
                let (y, ()) = typed::scan(x, l, |x, l| ((x.matmul(&l.w) + &l.b).tanh(), ()));
                y.square().sum(..)
            })
        },
        |(x, l)| {
            grad((l.w.as_untyped(), l.b.as_untyped()), |xs| {
                let (y, ()) = scan(x.as_untyped(), xs, |x, (w, b)| ((x.dot(w) + b).tanh(), ()));
                y.square().sum(..)
            })
        },
    );
}

#[test]
fn steps_are_counted_by_types_or_when_the_program_runs() {
    let (y, ()) = typed::scan_with(typed::scalar(1), (), |x, ()| (x * 3, ()), StepRange::<N![4]>::default());
    assert_eq!(y.item().unwrap(), 81);
    let three: T![f32; Layers, 4] = noise(2, [3, 4], p![]).typed().unwrap();
    let five: T![f32; Layers, 4] = noise(2, [5, 4], p![]).typed().unwrap();
    let (_, rows): (_, T![f32; Layers]) = typed::scan(typed::scalar(0), &three, |c, x| (c + 1, x.sum(..)));
    assert_eq!(type_of(&rows), "float32[3]");
    let error = |(_, rows): (T![i32;], _)| {
        let rows: Array = rows;
        rows.ty().unwrap_err().unquoted()
    };
    let named =
        typed::scan(typed::scalar(0), Net { w: three.clone(), b: five.clone() }, |c, n| (c, n.w.sum(..)));
    let text = error((named.0, named.1.untyped()));
    assert!(text.contains("within a call, one name is one size"), "{text}");
    let open = |x: T![f32; Layers, 4]| x.untyped().typed::<T![f32; ?, 4]>().unwrap();
    let unnamed =
        typed::scan(typed::scalar(0), Net { w: open(three), b: open(five) }, |c, n| (c, n.w.sum(..)));
    let text = error((unnamed.0, unnamed.1.untyped()));
    assert!(text.contains("the loop has 3 steps by `w`, but `b` is float32[5,4]"), "{text}");
}

#[test]
fn vmap_over_structs_and_several_results() {
    let xs: T![f32; 8@X, 16] = noise(2, [8, 16], p!["X"]).typed().unwrap();
    let ns = Net { w: xs.clone(), b: &xs * 2.0 };
    let m: T![f32; 16, 12@Y] = noise(3, [16, 12], p![_, "Y"]).typed().unwrap();
    same_bits(
        &(ns, m),
        |(ns, m)| {
            let out: Net<T![f32; 8@X, 12@Y], T![f32; 8@X]> =
                typed::vmap(ns, |n| Net { w: n.w.matmul(m), b: (n.w * n.b).sum(..) });
            out
        },
        |(ns, m)| {
            let m = m.as_untyped();
            atmesh::vmap((ns.w.as_untyped(), ns.b.as_untyped()), |(w, b)| (w.dot(m), (&w * b).sum(..)))
        },
    );
    // one gradient per example
    let g: T![f32; 8@X, 16] = typed::vmap(&xs, |x| typed::grad(&x, |x| x.square().sum(..)));
    assert_eq!(bits(&g), bits(&(xs * 2.0)));
}

#[test]
fn scalars_outside_and_inside_of_bodies() {
    let x = <T![f32; 8@X]>::ones(&pod());
    let (y, n) = while_loop(
        (&x, typed::scalar(0)),
        |(x, n)| x.max(..).lt(10.0).bitand(&n.lt(5)),
        |(x, n)| (x * 2.0, n + 1),
    );
    assert_eq!((y.to_vec().unwrap(), n.item().unwrap()), (vec![16.0; 8], 4));
    let z: T![f32; 8@X] = Pod.shard_map((x,), P![X], |(x,)| {
        let (y, _) = fori_loop(0..3, (x, <T![i32;; in Pod]>::from(0)), |_, (x, n)| (x + 1.0, n + 2));
        y + <T![f32;; in Pod]>::from(0.5)
    });
    assert_eq!(z.to_vec().unwrap(), [4.5; 8]);
}
