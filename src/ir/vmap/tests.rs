//! Tests `vmap` against stacked results of single examples, and its shardings and errors.

use crate::api::trace::{ArrayOrLiteral, apply};
use crate::ir::ops::random::{RandomKeyData, RandomWrap};
use crate::ir::{ops::PRIMITIVES, program::Prim};
use crate::prelude::*;
use crate::{ErrorKind, MapDims, ScanOptions, Shape, VmapOptions, scan_with, vmap_with};
use std::sync::Arc;

/// The number of examples in a batch.
const NUM_EXAMPLES: usize = 4;

/// Applies a primitive to arrays.
fn run(prim: &Prim, xs: &[Array]) -> Vec<Array> {
    let args: Vec<ArrayOrLiteral> = xs.iter().map(ArrayOrLiteral::from).collect();
    apply(prim.clone(), &args, crate::ir::program::CallSite::here(prim.name()))
}

/// Returns test data of both signs without repeated values.
fn data(dtype: DType, shape: &[usize], seed: usize) -> Array {
    let n: usize = shape.iter().product();
    if dtype == DType::Key {
        let words = data(U32, &[shape, &[2]].concat(), seed);
        return run(&(Arc::new(RandomWrap) as Prim), &[words]).swap_remove(0);
    }
    let x = |i: usize| ((i * 7 + seed * 5) % 23) as f32 * 0.13 - 1.1;
    let x = Array::from((0..n).map(x).collect::<Vec<_>>()).reshape(shape);
    match dtype {
        DType::Bool => x.gt(0.2),
        d if d.is_complex() => (x.astype(d.real())).complex(x.astype(d.real()) * 0.5 + 0.3),
        d if d.is_float() => x.astype(d),
        d => (x.abs() * 9.0).astype(d),
    }
}

/// Returns all elements of an array as raw bits.
fn bits(x: &Array) -> Vec<u64> {
    let x = match x.ty().unwrap().dtype {
        DType::Key => run(&(Arc::new(RandomKeyData) as Prim), std::slice::from_ref(x)).swap_remove(0),
        _ => x.clone(),
    };
    if x.ty().unwrap().dtype.is_complex() {
        let z = x.astype(C128).to_vec::<crate::Complex<f64>>().unwrap();
        return z.into_iter().flat_map(|z| [z.re.to_bits(), z.im.to_bits()]).collect();
    }
    x.astype(F64).to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

/// Returns one example of a batch.
fn example(x: &Array, i: usize) -> Array {
    x.slice(ix![i as i64])
}

/// Iterates over all non-empty subsets of `n` operands.
fn subsets(n: usize) -> impl Iterator<Item = Vec<bool>> {
    (1..1usize << n).map(move |bits| (0..n).map(|k| bits >> k & 1 == 1).collect())
}

/// Returns options that map the first dimension of the marked operands.
fn options(mapped: &[bool]) -> VmapOptions {
    let dims: Vec<Option<i32>> = mapped.iter().map(|m| m.then_some(0)).collect();
    VmapOptions { in_dims: MapDims::from(dims), ..VmapOptions::default() }
}

/// Iterates over the listed primitives that take operands and are not collectives.
fn listed() -> impl Iterator<Item = (&'static str, Prim, Vec<ArrayType>)> {
    let there = PRIMITIVES.iter().filter(|e| e.family != "collective");
    there.map(|e| (e.name, (e.example)())).map(|(n, (p, t))| (n, p, t)).filter(|(_, _, t)| !t.is_empty())
}

#[test]
fn every_primitive_does_to_all_what_it_does_to_each() {
    for (name, prim, types) in listed() {
        for mapped in subsets(types.len()) {
            let xs: Vec<Array> = (types.iter().zip(&mapped).enumerate())
                .map(|(k, (ty, m))| match m {
                    true => data(ty.dtype, &[&[NUM_EXAMPLES][..], &ty.shape].concat(), k),
                    false => data(ty.dtype, &ty.shape, k),
                })
                .collect();
            let all = vmap_with(&xs, |xs: Vec<Array>| run(&prim, &xs), options(&mapped));
            for (r, all) in all.iter().enumerate() {
                let all = all.clone().ready().unwrap_or_else(|e| panic!("{name} {mapped:?}: {e}"));
                let mut expected = Vec::new();
                for i in 0..NUM_EXAMPLES {
                    let one: Vec<Array> = (xs.iter().zip(&mapped))
                        .map(|(x, m)| if *m { example(x, i) } else { x.clone() })
                        .collect();
                    expected.extend(bits(&run(&prim, &one)[r]));
                }
                assert_eq!(bits(&all), expected, "{name} {mapped:?}");
            }
        }
    }
}

#[test]
fn examples_stay_split_over_their_axis() {
    let mesh = Mesh::new([("B", 2), ("Y", 2)]).unwrap();
    // Primitives that constrain a sharding are skipped, because they use another mesh.
    for (name, prim, types) in listed().filter(|(_, p, _)| p.constraint().is_none()) {
        for mapped in subsets(types.len()) {
            for split in [false, true] {
                let xs: Vec<(Array, Array)> = (types.iter().zip(&mapped).enumerate())
                    .map(|(k, (ty, m))| {
                        let inner = ty.shape.first().is_some_and(|n| split && n % 2 == 0);
                        let mut dims = vec![crate::Axes::none(); ty.rank()];
                        if inner {
                            dims[0] = "Y".into();
                        }
                        let mut shape = ty.shape.to_vec();
                        if *m {
                            dims.insert(0, "B".into());
                            shape.insert(0, NUM_EXAMPLES);
                        }
                        let x = data(ty.dtype, &shape, k);
                        let on = x.put(&mesh, Spec::from_dims(dims));
                        (x, on)
                    })
                    .collect();
                let (plain, on): (Vec<Array>, Vec<Array>) = xs.into_iter().unzip();
                // if one example is an error, the whole batch must be an error
                let one: Vec<Array> = on
                    .iter()
                    .zip(&mapped)
                    .map(|(x, m)| if *m { example(&x.reshard(batch_unsharded(x)), 0) } else { x.clone() })
                    .collect();
                if let Some(Err(e)) = run(&prim, &one).iter().map(Array::ty).find(|t| t.is_err()) {
                    assert!(split, "{name} {mapped:?}: an example that is whole is rejected: {e}");
                    continue;
                }
                let f = |xs: Vec<Array>| run(&prim, &xs);
                let all = vmap_with(&on, f, options(&mapped));
                let expected = vmap_with(&plain, f, options(&mapped));
                for (all, expected) in all.iter().zip(&expected) {
                    let ty = all.ty().unwrap_or_else(|e| panic!("{name} {mapped:?} {split}: {e}"));
                    assert_eq!(ty.spec.dim(0), ["B".into()], "{name} {mapped:?} {split}: {ty}");
                    if name == "reduce_sum" || name == "reduce_prod" || name == "dot_general" {
                        let (got, expected_f64) = (all.astype(F64), expected.astype(F64));
                        let (got, expected_f64) =
                            (got.to_vec::<f64>().unwrap(), expected_f64.to_vec::<f64>().unwrap());
                        assert!(got.iter().zip(&expected_f64).all(|(a, b)| (a - b).abs() < 1e-5), "{name}");
                    } else {
                        assert_eq!(bits(all), bits(expected), "{name} {mapped:?} {split}");
                    }
                }
            }
        }
    }
}

/// Tests that a requested sharding applies to each example.
#[test]
fn placements_asked_for_are_those_of_examples() {
    let xs = data(F32, &[NUM_EXAMPLES, 4, 2], 1);
    for (mesh, ask) in [
        (Mesh::new([("B", 2), ("Y", 2)]), (|x| x.reshard(p!["Y"])) as fn(Array) -> Array),
        (Mesh::auto([("B", 2), ("Y", 2)]), |x| x.constrain(p!["Y"])),
    ] {
        let all = jit(|xs: &Array| vmap(xs, ask)).call(xs.put(&mesh.unwrap(), p!["B"])).unwrap();
        assert_eq!(all.sharding().unwrap().unwrap().spec.to_string(), p!["B", "Y", _].to_string());
        assert_eq!(bits(&all), bits(&xs));
    }
}

/// Returns the spec of an array with its batch dimension unsharded.
fn batch_unsharded(x: &Array) -> Spec {
    x.ty().unwrap().spec.filter_axes(|a| a != "B".into())
}

/// Applies `f` to each example and concatenates the results.
fn each(xs: &Array, f: impl Fn(Array) -> Array) -> Vec<u64> {
    let n = xs.shape().unwrap()[0];
    (0..n).flat_map(|i| bits(&f(example(xs, i)))).collect()
}

/// Asserts that mapping `f` gives the results of applying it to each example.
#[track_caller]
fn agrees(xs: &Array, f: impl Fn(Array) -> Array) {
    let all = vmap(xs, &f);
    let ty = all.ty().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(ty.shape[0], NUM_EXAMPLES);
    assert_eq!(bits(&all), each(xs, &f));
    // The result is the same with `jit` outside `vmap` and with `jit` inside it.
    let jitted = jit(|xs: &Array| vmap(xs, &f));
    assert_eq!(bits(&jitted.call(xs).unwrap()), bits(&all));
    let inner = jit(|x: &Array| f(x.clone()));
    assert_eq!(bits(&vmap(xs, |x| inner.call(&x))), bits(&all));
}

/// Returns a batch of vectors.
fn numbers() -> Array {
    data(F32, &[NUM_EXAMPLES, 3], 1)
}

#[test]
fn collectives_run_for_all_examples() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let wide = Mesh::new([("B", 2), ("X", 2)]).unwrap();
    type Body = fn(&Array) -> Array;
    let cases: [(&str, Spec, Spec, Body); 12] = [
        ("psum", p!["X"], p![], |x| x.psum("X")),
        ("pmax", p!["X"], p![], |x| x.pmax("X")),
        ("pmin", p!["X"], p![], |x| x.pmin("X")),
        ("all_gather", p!["X"], p!["X"], |x| x.all_gather("X", CollectiveDim::tiled(0))),
        ("psum_scatter", p!["X"], p!["X"], |x| x.psum_scatter("X", CollectiveDim::tiled(0))),
        ("all_to_all", p!["X"], p![_, "X"], |x| x.all_to_all("X", AllToAll::split(1).concat(0))),
        ("ppermute", p!["X"], p!["X"], |x| x.ppermute("X", Permutation::ring(1))),
        ("axis_index", p!["X"], p!["X"], |x| x + axis_index("X").astype(F32)),
        ("pbroadcast", p!["X"], p!["X"], |x| x.pbroadcast("X", 1)),
        ("pvary", p![], p!["X"], |x| x.pvary("X")),
        ("pcast", p![], p!["X"], |x| x.pvary("X") * 2.0),
        // `own_part` is the transpose of an `all_gather` to invarying
        ("own_part", p!["X"], p!["X"], |x| {
            grad(x, |x| x.all_gather("X", CollectiveDim::tiled(0).invarying()).square().sum(..))
        }),
    ];
    let listed: Vec<&str> = PRIMITIVES.iter().filter(|e| e.family == "collective").map(|e| e.name).collect();
    assert_eq!(listed.len(), cases.len());
    let xs = data(F32, &[NUM_EXAMPLES, 4, 2], 2);
    for (name, ins, outs, body) in cases {
        assert!(listed.contains(&name), "{name}");
        let f = |x: Array| shard_map(&mesh, ins, outs, move |x: &Array| body(x)).call(&x);
        let all = vmap(&xs, f);
        let expected = each(&xs, |x| f(x).unwrap());
        assert_eq!(bits(&all.ready().unwrap_or_else(|e| panic!("{name}: {e}"))), expected, "{name}");
        // The batch is split over a separate axis.
        let f = |x: Array| shard_map(&wide, ins, outs, move |x: &Array| body(x)).over("X").call(&x);
        let all = vmap(xs.put(&wide, p!["B"]), f);
        let ty = all.ty().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(ty.spec.dim(0), ["B".into()], "{name}: {ty}");
        assert_eq!(bits(&all), expected, "{name}");
    }
}

#[test]
fn loops_and_branches() {
    let xs = numbers();
    // This carry becomes batched in the second iteration.
    agrees(&xs, |x| fori_loop(0..3, Array::from(0.0f32), |_, c| c + x.sum(..)));
    // The loop slices its inputs and stacks results.
    agrees(&xs, |x| scan(Array::from(0.0f32), &x, |c, x| (&c + &x, &c * &x)).1);
    let ys = data(F32, &[5], 3);
    let options = ScanOptions { reverse: true, ..ScanOptions::default() };
    agrees(&xs, |x| scan_with(x.clone(), &ys, |c, y| (&c * &y, &c + &y), options).1);
    // The first predicate is shared by all examples, the second one is batched.
    agrees(&xs, |x| cond(ys.sum(..).gt(0.0), || x.sin(), || x.cos()));
    agrees(&xs, |x| cond(x.sum(..).gt(0.0), || x.sin(), || x.cos() * 2.0));
    agrees(&xs, |x| switch((x.sum(..) * 2.0).astype(I32), &[&|| x.sin(), &|| x.cos(), &|| x.clone()]));
    // examples end after different numbers of iterations, and the counter is unbatched at first
    agrees(&xs, |x| {
        let start = (Array::from(0i32), x.abs() + 0.1);
        let (n, x) = while_loop(start, |(_, x)| x.sum(..).lt(40.0), |(n, x)| (n + 1, x * 1.7));
        x + n.astype(F32)
    });
    // All examples end after the same number of iterations.
    agrees(&xs, |x| {
        while_loop((Array::from(0i32), x.clone()), |(n, _)| n.lt(3), |(n, x)| (n + 1, x.sin())).1
    });
    agrees(&xs, |x| checkpoint(&x, |x| x.sin().exp()));
}

#[test]
fn gradients_of_each_and_of_all() {
    let xs = numbers();
    agrees(&xs, |x| grad(&x, |x| (x.sin() * &x).sum(..)));
    agrees(&xs, |x| grad(&x, |x| fori_loop(0..2, x.clone(), |_, c| c.sin() * &x).sum(..)));
    let of_all = grad(&xs, |xs| vmap(&xs, |x| (x.sin() * &x).sum(..)).sum(..));
    assert_eq!(bits(&of_all), each(&xs, |x| grad(&x, |x| (x.sin() * &x).sum(..))));
    // Nested maps compute all pairs of examples.
    let dots = vmap(&xs, |x| vmap(&xs, |y| x.dot(&y)));
    let expected = xs.dot(xs.t());
    let near = |a: &Array, b: &Array| (a - b).abs().max(..).item::<f32>().unwrap() < 1e-6;
    assert!(near(&dots, &expected));
}

#[test]
fn samplers_take_a_key_for_each_example() {
    let keys = Key::new(7).split_array([NUM_EXAMPLES]);
    agrees(&keys, |k| Key::from_array(k).uniform([3]));
    agrees(&keys, |k| Key::from_array(k).split_array([2]));
}

#[test]
fn types_of_mapped_dimensions() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let ty = |t: &str| ArrayType::parse(t, &mesh).unwrap();
    // A constant result is sharded over the batch axis.
    let f = jit(|x: &Array| vmap(x, |_| Array::zeros([4])));
    assert_eq!(
        f.trace(ty("float32[8@X,8]")).unwrap().program().output_types()[0].to_string(),
        "float32[8@X,4]"
    );
    // Each example is sharded over a second axis (FSDP).
    let f = jit(|x: &Array, w: &Array| vmap(x, |x| x.dot(w)));
    let traced = f.trace((ty("float32[8@Y,8@X,16]"), ty("float32[16,4]"))).unwrap();
    assert_eq!(traced.program().output_types()[0].to_string(), "float32[8@Y,8@X,4]");
    // the weights use the batch axis; it is contracted away, so only the check of unbatched values
    // can find this
    let e = f.trace((ty("float32[8@Y,8@X,16]"), ty("float32[16@Y,4]"))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Sharding);
    assert!(e.to_string().contains("the same for all examples"), "{e}");
    // The batch axis cannot be used inside.
    let f = jit(|x: &Array| vmap(x, |x| x.reshard(p!["Y"])));
    let e = f.trace(ty("float32[8@Y,8]")).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Mesh, "{e}");
    // All mapped dimensions must be sharded the same way.
    let f = jit(|x: &Array, y: &Array| vmap((x, y), |(x, y)| x + y));
    let e = f.trace((ty("float32[8@Y]"), ty("float32[8]"))).unwrap_err();
    assert!(e.to_string().contains("must be sharded the same way"), "{e}");
    let e = f.trace((ty("float32[8]"), ty("float32[4]"))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Shape, "{e}");
    // a reshape that needs unsharded dimensions does not affect the batch dimension
    let f = jit(|x: &Array| vmap(x, |x| x.reshape([4, 6])));
    let traced = f.trace(ty("float32[8@Y,6,4]")).unwrap();
    assert_eq!(traced.program().output_types()[0].to_string(), "float32[8@Y,4,6]");
}

#[test]
fn other_dimensions() {
    let x = data(F32, &[3, NUM_EXAMPLES], 1);
    let w = data(F32, &[3], 2);
    let options = |outs: i32| VmapOptions {
        in_dims: [Some(-1), None].into(),
        out_dims: outs.into(),
        ..VmapOptions::default()
    };
    let expected = &x * w.slice(ix![.., crate::NewAxis]);
    let got = vmap_with((&x, &w), |(x, w)| x * w, options(1));
    assert_eq!((got.shape().unwrap(), bits(&got)), (Shape::from([3, NUM_EXAMPLES]), bits(&expected)));
    let got = vmap_with((&x, &w), |(x, w)| x * w, options(0));
    assert_eq!(bits(&got.t()), bits(&expected));
    let e = vmap(Array::from(1.0f32), |x| x).ready().err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Shape);
    let all = VmapOptions { out_dims: None.into(), ..VmapOptions::default() };
    let e = vmap_with(&x, |x| x, all.clone()).ready().err().unwrap();
    assert!(e.to_string().contains("the same for all examples"), "{e}");
    let same = vmap_with(&x, |_| w.clone(), all);
    assert_eq!(bits(&same), bits(&w));
}

#[test]
fn axes_of_another_type_inside() {
    let mesh = Mesh::new([("B", 2), ("Y", 2)]).unwrap();
    let xs = data(F32, &[NUM_EXAMPLES, 6, 6], 1);
    let on = xs.put(&mesh, p!["B", "Y"]);
    let all = vmap(&on, |x| auto_axes(&x, p!["Y", _], |x| x.t() * 2.0));
    assert_eq!(type_of(&all), "float32[4@B,6@Y,6]");
    assert_eq!(bits(&all), each(&xs, |x| x.t() * 2.0));
    let mesh = Mesh::auto([("B", 2), ("Y", 2)]).unwrap();
    let on = xs.put(&mesh, p!["B", "Y"]);
    let all = vmap(&on, |x| {
        explicit_axes(&x, p![_, "Y"], |x| {
            assert_eq!(type_of(&x), "float32[6,6@Y]");
            x.sin() + &x
        })
    });
    assert_eq!(bits(&all.ready().unwrap_or_else(|e| panic!("{e}"))), each(&xs, |x| x.sin() + &x));
}

#[test]
fn blocks_of_many_examples() {
    let mesh = Mesh::new([("B", 2), ("X", 2)]).unwrap();
    let xs = data(F32, &[NUM_EXAMPLES, 4], 1);
    let f =
        |x: &Array| shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x - x.sum(..).psum("X")).over("X").call(x);
    let all = vmap(xs.put(&mesh, p!["B"]), |x| f(&x));
    assert_eq!(type_of(&all), "float32[4@B,4@X]");
    let centred = |x: Array| &x - (x.slice(ix![..2]).sum(..) + x.slice(ix![2..]).sum(..));
    assert_eq!(bits(&all), each(&xs, centred));
    // The batch axis is manual inside the body, which is an error.
    let e = vmap(xs.put(&mesh, p!["X"]), |x| f(&x)).ready().err().unwrap();
    assert!(e.to_string().contains("manual inside"), "{e}");
    // The map is inside the body and applies to each device's block.
    let rows =
        shard_map(&mesh, p!["X"], p!["X"], |x: &Array| vmap(x, |row| row.sum(..).psum("B") * &row)).call(&xs);
    assert_eq!(bits(&rows.unwrap()), each(&xs, |x| x.sum(..) * 2.0 * &x));
}

#[test]
fn each_example_prints() {
    let f = jit(|xs: &Array, y: &Array| {
        vmap(xs, |x| {
            debug_print!("{} of {}", x, y);
            x.sin()
        })
    });
    let program = f.trace((numbers(), 1)).unwrap().program().to_string();
    assert!(program.contains("debug_print") && program.contains("loop"), "{program}");
    assert_eq!(bits(&f.call((numbers(), 1)).unwrap()), bits(&numbers().sin()));
}

/// Tests that the gradients of lookups in one array are added to a single array.
#[test]
fn lookups_in_one_array_have_one_gradient() {
    let t = data(F32, &[16, 6], 1);
    let (rows, columns) = (Array::from(vec![1i32, 15, -3, 1, 40]), Array::from(vec![0i32, 3, 1, 2, -9]));
    let lookups: [fn(&Array, Array, Array) -> Array; 3] = [
        |t, i, _| t.slice(ix![&i]),
        |t, i, j| t.slice(ix![&i..; 3, &j..; 2]),
        |t, i, _| t.slice(ix![&i..; 2]),
    ];
    for look in lookups {
        let loss = |found: Array| (found * 1.5).square().sum(..);
        let gradient = jit(|t: &Array| {
            grad(t, |t| loss(vmap((&rows, &columns), |(i, j): (Array, Array)| look(&t, i, j))))
        });
        let program = gradient.trace(&t).unwrap();
        let largest = program.program().vars.iter().map(|v| v.ty.nbytes()).max();
        assert_eq!(largest, Some(16 * 6 * 4), "{}", program.program());
        let one = |k: usize| grad(&t, |t| loss(look(&t, rows.slice(ix![k]), columns.slice(ix![k]))));
        let expected = (1..5).fold(one(0), |sum, k| sum + one(k));
        assert!(gradient.call(&t).unwrap().allclose(&expected).unwrap());
    }
    // Both the batch and the array are sharded.
    let mesh = Mesh::new([("B", 2), ("Y", 2)]).unwrap();
    let ids = Array::from(vec![1i32, 15, -3, 1]).put(&mesh, p!["B"]);
    let loss = |t: &Array, ids: &Array| vmap(ids, |i: Array| t.slice(ix![&i])).square().sum(..);
    let sharded = grad(t.put(&mesh, p![_, "Y"]), |t| loss(&t, &ids));
    assert_eq!(sharded.ty().unwrap().to_string(), "float32[16,6@Y]");
    assert_eq!(bits(&sharded), bits(&grad(&t, |t| loss(&t, &Array::from(vec![1i32, 15, -3, 1])))));
}
