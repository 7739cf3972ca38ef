//! Lookups of rows by sharded ids, in whole, reduced and sharded tables.

use super::numbers;
use atmesh::nn;
use atmesh::prelude::*;

fn operands() -> (Array, Array, Array) {
    let ids = Array::from([[3, 0, 11], [1, 3, 3], [7, -1, 2], [0, 0, 4]]);
    (Key::new(0).normal([12, 4]), ids, Key::new(1).normal([4, 3, 4]))
}

/// Layouts of table and ids: values, gradients and types are those of unsharded operands.
#[test]
fn embed_in_layouts() {
    let (table, ids, weights) = operands();
    let run = |table: &Array, ids: &Array| {
        let f = jit(|t: &Array, ids: &Array| {
            (nn::embed(t, ids), grad(t, |t| (nn::embed(&t, ids) * &weights).sum(..)))
        });
        f.call((table, ids)).unwrap_or_else(|e| panic!("{e}"))
    };
    let whole = run(&table, &ids);
    let axes = [("x", 2), ("y", 2)];
    let layouts = [
        (p![], p!["x"], "float32[4@x,3,4]"),
        (p![_, "y"], p!["x"], "float32[4@x,3,4@y]"),
        (p!["y"], p!["x"], "float32[4@x,3,4]"),
        (p!["x"], p!["x"], "float32[4@x,3,4]"),
        (p![("x", "y")], p![], "float32[4,3,4]"),
        (p![], p![("x", "y")], "float32[4@(x,y),3,4]"),
    ];
    for (of_table, of_ids, ty) in layouts {
        for mesh in [Mesh::new(axes).unwrap(), Mesh::auto(axes).unwrap()] {
            let (rows, g) = run(&table.put(&mesh, of_table), &ids.put(&mesh, of_ids));
            if mesh.axis_types()[0] == AxisType::Explicit {
                assert_eq!(type_of(&rows), ty);
                assert_eq!(type_of(&g), type_of(table.put(&mesh, of_table)));
            }
            assert_eq!(numbers(&rows), numbers(&whole.0), "{of_table} {of_ids}");
            assert!(g.allclose_with(&whole.1, 1e-5, 1e-6).unwrap(), "{of_table} {of_ids}");
        }
    }
}

/// Rows of a reduced table by ids that are split over its axes are split, and the gradient is
/// unreduced: summed over a loop's batches by one all-reduce.
#[test]
fn reduced_tables() {
    let mesh = Mesh::new([("data", 4)]).unwrap();
    let (table, ids, weights) = operands();
    let (table, ids) = (table.put(&mesh, p![]), ids.put(&mesh, p!["data"]));
    let reduced = table.reshard(p![; R: "data"]);
    assert_eq!(type_of(&reduced), "float32[12,4]{R:data}");
    let rows = reduced.take_to(&ids, 0, p!["data"]);
    assert_eq!(type_of(&rows), "float32[4@data,3,4]");
    assert_eq!(type_of(nn::embed(&reduced, &ids)), "float32[4@data,3,4]");
    assert_eq!(numbers(&rows), numbers(&table.take_to(&ids, 0, p!["data"])));
    let loss = |t: &Array, ids: &Array| (nn::embed(t, ids) * &weights).sum(..);
    let g = grad(&reduced, |t| loss(&t, &ids));
    assert_eq!(type_of(&g), "float32[12,4]{U:data}");
    let plain = grad(&table, |t| loss(&t, &ids));
    assert!(g.reshard(p![]).allclose_with(&plain, 1e-5, 1e-6).unwrap());
    // ids that are not split keep the rows reduced
    let kept = reduced.take_to(&ids.reshard(p![]), 0, p![]);
    assert_eq!(type_of(&kept), "float32[4,3,4]{R:data}");
    let g = grad(&reduced, |t| {
        let rows = t.take_to(&ids.reshard(p![]), 0, p![]) * weights.put(&mesh, p![; R: "data"]);
        rows.sum(..)
    });
    assert_eq!(type_of(&g), "float32[12,4]{U:data}");
    assert!(g.reshard(p![]).allclose_with(&plain, 1e-5, 1e-6).unwrap());
}

/// The gradient of a table, summed over the batches of a loop, is all-reduced once.
#[test]
fn one_all_reduce_for_many_batches() {
    let mesh = Mesh::new([("data", 8)]).unwrap();
    let table = Key::new(0).normal([96, 64]).put(&mesh, p![]);
    let ids = Key::new(1).randint([4, 16, 32], 0..96).put(&mesh, p![_, "data"]);
    let summed = jit(|t: &Array, ids: &Array| {
        let t = t.reshard(p![; R: "data"]);
        let zero = t.full_like_to(0.0, p![; U: "data"]);
        let sum = |sum: Array, ids: Array| (sum + grad(&t, |t| nn::embed(&t, &ids).square().sum(..)), ());
        scan(zero, ids, sum).0.reshard(p![])
    });
    let lowered = summed.lower((&table, &ids)).unwrap();
    assert_collectives!(lowered, AllReduce("data") x 1);
    let plain = grad(&table, |t| nn::embed(&t, &ids.reshard(p![_, _, _]).reshape([64, 32])).square().sum(..));
    assert!(summed.call((&table, &ids)).unwrap().allclose_with(&plain, 1e-4, 1e-4).unwrap());
}

/// A reduced table that is used twice: for lookups, and for a product.
#[test]
fn tied_tables() {
    let mesh = Mesh::new([("data", 4)]).unwrap();
    let (table, ids, _) = operands();
    let (table, ids) = (table.put(&mesh, p![]), ids.put(&mesh, p!["data"]));
    let loss = |t: &Array| {
        let x = nn::embed(t, &ids) + nn::embed(t, &ids.full_like(2));
        nn::softmax_cross_entropy_with_integer_labels(&einsum("btd,vd->btv", [&x, t]), &ids.abs()).sum(..)
    };
    let plain = grad(&table, |t| loss(&t));
    let g = grad(table.reshard(p![; R: "data"]), |t| loss(&t));
    assert_eq!(type_of(&g), "float32[12,4]{U:data}");
    assert!(g.reshard(p![]).allclose_with(&plain, 1e-4, 1e-5).unwrap());
}

/// Two axes: the ids are split over one of them.
#[test]
fn reduced_over_two_axes() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let (table, ids, _) = operands();
    let (t, ids) = (table.put(&mesh, p![; R: ("x", "y")]), ids.put(&mesh, p!["x"]));
    let rows = t.take_to(&ids, 0, p!["x"]);
    assert_eq!(type_of(&rows), "float32[4@x,3,4]{R:y}");
    let weights = Array::ones([4, 3, 4]).put(&mesh, p!["x"; R: "y"]);
    let g = grad(&t, |t| (t.take_to(&ids, 0, p!["x"]) * &weights).sum(..));
    assert_eq!(type_of(&g), "float32[12,4]{U:(x,y)}");
    let plain = grad(&table, |t| t.take(&ids.put(&mesh, p![]), 0).sum(..));
    assert!(g.reshard(p![]).allclose_with(&plain, 1e-5, 1e-6).unwrap());
}

/// Ids that are out of range give NaN, and change no gradient.
#[test]
fn ids_out_of_range() {
    let (table, ..) = operands();
    let ids = Array::from([2, 12, -13]);
    let rows = nn::embed(&table, &ids);
    assert!(rows.slice(ix![1..]).ne(rows.slice(ix![1..])).all(..).item::<bool>().unwrap());
    let g = grad(&table, |t| nn::embed(&t, &ids).nansum(..));
    assert_eq!(g.sum(..).item::<f32>().unwrap(), 4.0);
}

/// A mean that is left unreduced, with a gradient that moves nothing.
#[test]
fn mean_to() {
    let mesh = Mesh::new([("data", 4)]).unwrap();
    let x = Key::new(0).normal([8, 6]).put(&mesh, p!["data"]);
    let partial = x.mean_to(.., p![; U: "data"]);
    assert_eq!(type_of(&partial), "float32[]{U:data}");
    assert!(partial.reshard(p![]).allclose(&x.mean(..)).unwrap());
    let scattered = x.reshard(p![_, _]).reshape([6, 8]).reshard(p![_, "data"]).mean_to(1, p![]);
    assert_eq!(type_of(&scattered), "float32[6]");
}

/// The updates of a lookup and the gradient of a product are added as partial sums.
#[test]
fn a_tied_table_has_one_reduction_over_auto_axes() -> Result<()> {
    let loss = |w: &Array, ids: &Array| {
        let x = w.take(ids, 0).tanh();
        einsum("btd,vd->btv", [&x, w]).square().mean(..)
    };
    let gradient = jit(move |w: &Array, ids: &Array| grad(w, |w| loss(&w.constrain(p![_, _]), ids)));
    let (w, ids) = (Key::new(0).normal([24, 16]), Key::new(1).randint([8, 4], 0..24));
    let expected = grad(&w, |w| loss(&w, &ids));
    let mesh = Mesh::auto([("x", 4)])?;
    let ids = ids.put(&mesh, p!["x"]);
    for stored in [p![], p![_, "x"]] {
        let w = w.put(&mesh, stored);
        let lowered = gradient.lower((&w, &ids))?;
        let reductions =
            lowered.collectives().iter().filter(|c| c.kind.to_string().contains("reduce")).count();
        assert_eq!(reductions, 1, "{}", lowered.collectives());
        assert!(gradient.call((&w, &ids))?.allclose_with(&expected, 1e-5, 1e-6)?);
    }
    Ok(())
}
