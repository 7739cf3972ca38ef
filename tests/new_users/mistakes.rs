//! Mistakes at run time: each is an error that says what is wrong and what to write instead.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use atmesh::{VmapOptions, nd, vmap_with};

mesh! { struct Pod { X: 4 } }

/// A mistake: its name, the error, and words that the error has.
type Mistake = (&'static str, String, &'static [&'static str]);

/// Returns the text of an error, or that there is none.
fn told<T>(result: Result<T>) -> String {
    result.err().map_or_else(|| "ACCEPTED".into(), |e| e.unquoted())
}

fn layouts() -> Result<Vec<Mistake>> {
    let (mesh, grid) = (Mesh::new([("X", 4)])?, Mesh::new([("X", 2), ("Y", 4)])?);
    let (x, m) = (Array::ones([8]), Array::ones([8, 8]));
    let xs = x.put(&mesh, p!["X"]);
    let auto = x.put(&Mesh::auto([("X", 4)])?, p!["X"]);
    let over_x = shard_map(&grid, p!["X", _], p!["X", _], |a: &Array| a.psum("Y")).over("X");
    Ok(vec![
        (
            "psum over an axis that the mesh does not have",
            told(shard_map(&mesh, p!["X"], p![], |x: &Array| x.psum(("X", "Y"))).call(&xs)),
            &["Y is not an axis of the mesh", "its only axis is X"],
        ),
        (
            "an axis in lower case",
            told(xs.reshard(p!["x"]).ty()),
            &["x is not an axis of the mesh", "write X"],
        ),
        (
            "more entries than dimensions",
            told(x.put(&mesh, p!["X", _]).ty()),
            &["has entries for 2 dimensions, but the array has 1"],
        ),
        ("an axis twice", told(m.put(&mesh, p!["X", "X"]).ty()), &["names the axis X twice", "name it once"]),
        (
            "two meshes",
            told((&xs + x.put(&grid, p!["X"])).ty()),
            &["operand 0 is on Mesh(X: 4), operand 1 on Mesh(X: 2, Y: 4)", r#"`x.put(&mesh, p!["X"])`"#],
        ),
        (
            "constrain on an explicit axis",
            told(xs.constrain(p![_]).ty()),
            &[r#"the value is sharded as p!["X"], not as p![_]"#, "`x.reshard(p![_])`"],
        ),
        ("reshard on an auto axis", told(auto.reshard(p![]).ty()), &["ACCEPTED"]),
        (
            "psum over an axis that is not manual",
            told(over_x.call(&m.put(&grid, p!["X", "Y"]))),
            &["Y is not manual here", "the manual axes are X"],
        ),
        ("a mesh without devices", told(Mesh::new([("X", 0)])), &["axis X has size 0", "leave it out"]),
        ("an axis twice in a mesh", told(Mesh::new([("X", 2), ("X", 2)])), &["axis X appears twice"]),
        (
            "another type than the typed one",
            told(x.put(&Pod::mesh()?, p!["X"]).typed::<T![f32; 8@X, 4]>()),
            &["the array is float32[8@X], but the type is float32[8@X,4]"],
        ),
        ("None in a spec", told(m.put(&mesh, p!["X", None]).ty()), &["ACCEPTED"]),
    ])
}

fn shapes() -> Vec<Mistake> {
    let (x, m) = (Array::ones([8]), Array::ones([8, 8]));
    vec![
        (
            "shapes",
            told((Array::ones([3, 4]) + Array::ones([4, 3])).ty()),
            &["dimension 0 of operand 0 has size 3, dimension 0 of operand 1 size 4", "`slice` or `pad`"],
        ),
        (
            "dot",
            told(Array::ones([3, 4]).dot(Array::ones([3, 4])).ty()),
            &["contracting dimensions must be equal", "`.t()`"],
        ),
        ("reshape", told(x.reshape([3, 3]).ty()), &["[8] has 8 elements, but [3,3] has 9"]),
        (
            "einsum letters",
            told(einsum("ij,jk->il", [&m, &m]).ty()),
            &["the result names l, which no operand has"],
        ),
        (
            "einsum sizes",
            told(einsum("ij,jk->ik", [&m, &Array::ones([4, 2])]).ty()),
            &["j names dimensions of sizes 8 and 4"],
        ),
        (
            "einsum operands",
            told(einsum("ij,jk->ik", [&m]).ty()),
            &["there are subscripts of 2 operands, but 1 operand"],
        ),
        (
            "concat",
            told(concat([&m, &Array::ones([8, 4])], 0).ty()),
            &["operand 1 has shape [8,4], but operand 0 [8,8]", "join them along dimension 1"],
        ),
        ("sum of dimension 2", told(m.sum(2).ty()), &["there is no dimension 2", "dimensions are 0 to 1"]),
        (
            "top_k",
            told(x.top_k(9, 0).0.ty()),
            &["there are no 9 greatest elements of 8", "ask for at most 8"],
        ),
        (
            "an index of floats",
            told(m.slice(ix![&Array::from([0.0f32, 1.0])]).ty()),
            &["indices are integers, not float32", "`.astype(I32)`"],
        ),
        (
            "a mask as an index",
            told(m.slice(ix![&Array::from([true; 8])]).ty()),
            &["indices are integers, not bool", "`mask.select(&x, 0)`"],
        ),
        (
            "more indices than dimensions",
            told(m.slice(ix![0, 1, 2]).ty()),
            &["has entries for 3 dimensions, but the array has 2"],
        ),
        (
            "set of another shape",
            told(m.at(ix![0]).set(Array::ones([4])).ty()),
            &["a value of shape [4] does not fit into a part of shape [8]"],
        ),
        ("cholesky of a vector", told(x.cholesky().ty()), &["is not a matrix"]),
        (
            "shape of an error",
            told((Array::ones([3]) + Array::ones([4])).exp().sum(..).shape()),
            &["add: dimension 0 of operand 0 has size 3"],
        ),
        (
            "print of an error",
            (Array::ones([3]) + Array::ones([4])).to_string(),
            &["add: dimension 0 of operand 0 has size 3"],
        ),
    ]
}

fn transforms() -> Vec<Mistake> {
    let (x, m) = (Array::ones([8]), Array::ones([8, 8]));
    let grows = jit(|x: &Array| fori_loop(0..3, x, |_, x| concat([&x, &x], 0)));
    let changes = jit(|x: &Array| {
        fori_loop(0..3, (x, 0i32), |_, (x, n): (Array, Array)| (&x * 2.0, n.astype(F32) + x.sum(..)))
    });
    let branches = jit(|x: &Array| cond(x.sum(..).gt(0.0), || x.clone(), || x.sum(..)));
    let vector = jit(|x: &Array| cond(x.gt(0.0), || x.clone(), || -x));
    let traced = jit(|n: &Array| {
        let k = n.item::<i32>()?;
        Ok::<Array, atmesh::Error>(fori_loop(0..k, Array::zeros([2]), |_, x| x + 1.0))
    });
    let item = jit(|x: &Array| {
        let s = x.sum(..).item::<f32>()?;
        Ok::<Array, atmesh::Error>(x * s)
    });
    let in_dims = VmapOptions::default().in_dims([Some(2), None]);
    vec![
        (
            "grad of a vector",
            told(grad(&x, |x| x.square()).ty()),
            &["`grad` needs a scalar loss", "`.sum(..)`"],
        ),
        (
            "grad of integers",
            told(grad(Array::from([1, 2]), |x: Array| x.sum(..)).ty()),
            &["int32[2] is not a floating-point type", "`.astype(F32)`"],
        ),
        ("item in jit", told(item.call(&x)), &["`item` needs concrete data", "`x.select(a, b)`"]),
        (
            "a carry that changes its type",
            told(changes.call(&x)),
            &["the carry `1` is int32[] before the body and float32[] after it", "becomes float32[] here"],
        ),
        (
            "a carry that grows",
            told(grows.call(&x)),
            &[
                "the carry is float32[8] before the body and float32[16] after it",
                "second result of a `scan`",
            ],
        ),
        (
            "branches of two types",
            told(branches.call(&x)),
            &["the result is float32[8] where it holds and float32[] where it does not"],
        ),
        ("cond on a vector", told(vector.call(&x)), &["it must be one bool", "`pred.select(a, b)`"]),
        (
            "a loop over a traced number",
            told(traced.call(Array::from(3))),
            &["`item` needs concrete data", "`fori_loop(Array::from(0)..n, init, body)`"],
        ),
        (
            "vmap of two sizes",
            told(vmap((&x, &Array::ones([4])), |(a, b)| a + b).ty()),
            &["`1` has 4 examples along dimension 0, but `0` has 8"],
        ),
        (
            "vmap of a scalar",
            told(vmap(Array::from(1.0f32), |a| a + 1.0).ty()),
            &["an array without examples is captured"],
        ),
        (
            "vmap over a dimension that is absent",
            told(vmap_with((&m, &x), |(a, b)| a + b, in_dims).ty()),
            &["there is no dimension 2", "`0` is float32[8,8]"],
        ),
    ]
}

fn devices() -> Result<Vec<Mistake>> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([8]);
    let xs = x.put(&mesh, p!["X"]);
    let permute = |pairs: [(usize, usize); 2]| {
        told(shard_map(&mesh, p!["X"], p!["X"], |a: &Array| a.ppermute("X", pairs)).call(&xs))
    };
    let too_few = shard_map(&mesh, (p!["X"],), p!["X"], |a: &Array, b: &Array| a + b);
    let scatter =
        shard_map(&mesh, p!["X"], p!["X"], |a: &Array| a.psum_scatter("X", CollectiveDim::tiled(0)));
    let rank = spmd(&mesh, p!["X"], p!["X"], |_: &Device, a: nd::ArrayView2<f32>| Ok(a.to_owned()));
    let panics = spmd(&mesh, p!["X"], p!["X"], |d: &Device, a: nd::ArrayView1<f32>| {
        assert!(d.axis_index("X")? != 2, "oh");
        d.barrier("X")?;
        Ok(a.to_owned())
    });
    Ok(vec![
        (
            "too few specs",
            told(too_few.call((&xs, &xs))),
            &["in_specs has no entry for `1`", "one spec is for a whole subtree"],
        ),
        (
            "a size that does not divide",
            told(shard_map(&mesh, p!["X"], p!["X"], |a: &Array| a.clone()).call(Array::ones([6]))),
            &["has size 6, which X does not divide into 4 equal blocks", "4 and 8"],
        ),
        (
            "psum_scatter",
            told(scatter.call(&xs)),
            &["dimension 0 of size 2 is not divisible into 4 equal parts"],
        ),
        ("ppermute twice to one device", permute([(0, 1), (2, 1)]), &["device 1 is a target twice"]),
        (
            "ppermute beyond the last device",
            permute([(0, 4), (1, 2)]),
            &["there is no device 4 along X, which has 4"],
        ),
        (
            "device code of another rank",
            told(rank.call(&x)),
            &["a device's block is float32[2], but its parameter is a view of 2 dimensions"],
        ),
        (
            "a panic on one device",
            told(panics.call(&x)),
            &["device 2 (X=2) panicked at tests/new_users/mistakes.rs:", "oh"],
        ),
    ])
}

fn data() -> Result<Vec<Mistake>> {
    let x = Array::ones([8]);
    let double = jit(|x: &Array| x * 2.0).donate(0);
    let y = Array::ones([4]);
    let _ = double.call(&y)?;
    Ok(vec![
        (
            "item of a vector",
            told(x.item::<f32>()),
            &["`item` of an array of 8 elements", "`to_vec` gives all of them"],
        ),
        (
            "to_vec of another type",
            told(x.to_vec::<f64>()),
            &["the array is float32, not float64", "`.astype(F64)`"],
        ),
        ("a donated array", told(double.call(&y)), &["the array was donated", "donated here"]),
        ("no file", told(Array::load_npy("/no/such/file.npy")), &["/no/such/file.npy: No such file"]),
    ])
}

#[test]
fn mistakes_are_told_with_what_to_write() -> Result<()> {
    let all = [layouts()?, shapes(), transforms(), devices()?, data()?].concat();
    assert_eq!(all.len(), 50);
    let mut wrong = Vec::new();
    for (name, text, words) in &all {
        if words.is_empty() || words.iter().any(|w| !text.contains(w)) {
            wrong.push(format!("=== {name}: expected {words:?} in\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // NumPy returns NaN, too
    assert!(Array::zeros([0]).mean(..).item::<f32>()?.is_nan());
    Ok(())
}
