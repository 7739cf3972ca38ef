//! Reshapes that split and merge several groups of dimensions, sharded so that nothing moves. Each
//! case that the reference rejects (`tests/conformance/exceptions.txt`) is tested for its type and
//! values; some reshapes remain errors.

use atmesh::prelude::*;
use atmesh::{Axes, ErrorKind, Spec};

/// The axes of the mesh; the operand's type; the result's sizes and type.
type Row = (&'static [(&'static str, usize)], &'static str, &'static [usize], &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    (&[("X", 2), ("Y", 2)], "float32[16@(X,Y),4]", &[2, 8, 2, 2], "float32[2@X,8@Y,2,2]"), // reshape/0030
    (&[("X", 2), ("Y", 2)], "float32[16@(Y,X),4]", &[2, 8, 2, 2], "float32[2@Y,8@X,2,2]"), // reshape/0031
    (&[("X", 2), ("Y", 2)], "float32[16@Y,4@X]", &[2, 8, 2, 2], "float32[2@Y,8,2@X,2]"), // reshape/0034
    (&[("X", 2), ("Y", 2)], "float32[16@Y,4]", &[2, 8, 2, 2], "float32[2@Y,8,2,2]"), // reshape/0035
    (&[("X", 2), ("Y", 2)], "float32[8@(X,Y),16]", &[16, 8], "float32[16@(X,Y),8]"), // reshape/0050
    (&[("X", 2), ("Y", 2)], "float32[8@(X,Y),16]", &[64, 2], "float32[64@(X,Y),2]"), // reshape/0051
    (&[("X", 2), ("Y", 2)], "float32[8@(Y,X),16]", &[64, 2], "float32[64@(Y,X),2]"), // reshape/0054
    (&[("X", 2), ("Y", 2)], "float32[8@(Y,X),16]", &[16, 8], "float32[16@(Y,X),8]"), // reshape/0055
    (&[("X", 2), ("Y", 2)], "float32[8@Y,16]", &[16, 8], "float32[16@Y,8]"), // reshape/0069
    (&[("X", 2), ("Y", 2)], "float32[8@Y,16]", &[64, 2], "float32[64@Y,2]"), // reshape/0070
    (&[("X", 2), ("Y", 4)], "float32[8@X,16]", &[64, 2], "float32[64@X,2]"), // reshape/0106
    (&[("X", 4), ("Y", 2)], "float32[2@Y,4,8]", &[8, 2, 4], "float32[8@Y,2,4]"), // reshape/0143
    (&[("X", 4), ("Y", 2)], "float32[2@Y,4@X,8]", &[8, 2, 4], "float32[8@(Y,X),2,4]"), // reshape/0144
    (&[("X", 8)], "float32[8@X,16]", &[16, 8], "float32[16@X,8]"), // reshape/0183
    (&[("data", 4), ("model", 2)], "float32[16,4@model]", &[2, 8, 2, 2], "float32[2,8,2@model,2]"), // reshape/0186
    (&[("data", 4), ("model", 2)], "float32[16@model,4]", &[2, 8, 2, 2], "float32[2@model,8,2,2]"), // reshape/0191
    (&[("data", 4), ("model", 2)], "float32[2,4,8@model]", &[8, 2, 4], "float32[8,2@model,4]"), // reshape/0193
    (&[("data", 4), ("model", 2)], "float32[2@model,4,8]", &[8, 2, 4], "float32[8@model,2,4]"), // reshape/0196
    (&[("data", 4), ("model", 2)], "float32[8@model,16]", &[16, 8], "float32[16@model,8]"), // reshape/0208
];

fn operand(axes: &[(&'static str, usize)], text: &str) -> Result<Array> {
    let mesh = Mesh::new(axes.iter().copied())?;
    let ty = ArrayType::parse(text, &mesh)?;
    let n = ty.shape.iter().product::<usize>() as i32;
    Ok(Array::arange(0..n).astype(ty.dtype).reshape(&ty.shape).put(&mesh, ty.spec))
}

#[test]
fn nothing_moves() -> Result<()> {
    let mut wrong = Vec::new();
    for (axes, from, sizes, to) in ROWS {
        let x = operand(axes, from)?;
        let f = jit(|x: &Array| x.reshape(*sizes));
        let y = f.call(&x)?;
        let n = x.to_vec::<f32>()?;
        assert_eq!(y.to_vec::<f32>()?, n, "{from} to {sizes:?}");
        assert_eq!(x.reshape(*sizes).to_vec::<f32>()?, n);
        // Compare each device's shard.
        for shard in y.shards()? {
            let first = shard.index.iter().zip(*sizes).fold(0, |at, (r, n)| at * n + r.start);
            assert_eq!(shard.data.to_vec::<f32>()?[0], first as f32);
        }
        let lowered = f.lower(&x)?;
        assert!(lowered.collectives().is_empty(), "{from} to {sizes:?}: {}", lowered.collectives());
        if type_of(&y) != *to {
            wrong.push(format!("{from} to {sizes:?} is {}", type_of(&y)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn what_would_move_is_rejected() -> Result<()> {
    let mesh: &[_] = &[("X", 2), ("Y", 2)];
    for (from, sizes) in [
        // The major part is not fully sharded: the blocks of the result would be strided.
        ("float32[8@Y,16@X]", &[64, 2][..]),
        ("float32[4,8@X,8]", &[32, 2, 4]),
        ("float32[2,4@Y,8]", &[8, 2, 4]),
        // Also if dimensions of size 1 are added and removed.
        ("float32[8@Y,16@X]", &[128, 1]),
        ("float32[1,8@Y,16@X]", &[128]),
        ("float32[8@Y,1,16@X]", &[128]),
        // No factor is left for an axis.
        ("float32[6@X,4@Y]", &[8, 3]),
        ("float32[3,8@X]", &[8, 3]),
        // The sharded dimension is not the major one of its group.
        ("float32[2,3,4@X]", &[4, 6]),
    ] {
        let e = operand(mesh, from)?.reshape(sizes).ty().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Sharding, "{from} to {sizes:?}: {e}");
    }
    // A single group that is merged, and nothing else: its entries are concatenated.
    assert_eq!(type_of(operand(mesh, "float32[8@Y,16@X]")?.reshape([128])), "float32[128@(Y,X)]");
    assert_eq!(type_of(operand(mesh, "float32[8@Y,16@X,1,4]")?.reshape([128, 4])), "float32[128@(Y,X),4]");
    // A group whose sizes have a common divisor is accepted.
    assert_eq!(type_of(operand(mesh, "float32[6@X,4]")?.reshape([8, 3])), "float32[8@X,3]");
    Ok(())
}

#[test]
fn without_elements_the_dimensions_around_go_on() -> Result<()> {
    let mesh: &[_] = &[("X", 2), ("Y", 3)];
    for (from, sizes, to) in [
        ("float32[0@X,12@Y]", &[0, 1, 12][..], "float32[0@X,1,12@Y]"),
        ("float32[6@Y,0,8@X]", &[1, 6, 0, 8], "float32[1,6@Y,0,8@X]"),
        ("float32[4@X,0@Y,6]", &[4, 2, 0, 6], "float32[4@X,2,0@Y,6]"),
        ("float32[4@X,0,6@Y]", &[4, 0], "float32[4@X,0]"),
    ] {
        assert_eq!(type_of(operand(mesh, from)?.reshape(sizes)), to, "{from} to {sizes:?}");
    }
    Ok(())
}

fn type_after(mesh: &Mesh, shape: &[usize], spec: Spec, to: &[usize]) -> String {
    let n: usize = shape.iter().product();
    let x = Array::arange(0..n as i32).reshape(shape).put(mesh, spec);
    assert_eq!(x.reshape(to).to_vec::<i32>().unwrap(), x.to_vec::<i32>().unwrap());
    type_of(x.reshape(to)).to_string()
}

/// A dimension of size 1 keeps the axes of size 1 that shard it, if it is at the same place of both
/// shapes: programs are written for a mesh of any size.
#[test]
fn dimensions_of_size_1_keep_their_axes() -> Result<()> {
    let mesh = Mesh::new([("batch", 1), ("model", 4)])?;
    let cases: [(&[usize], Spec, &[usize], &str); 8] = [
        (&[1, 512], p!["batch", "model"], &[1, 4, 128], "int32[1@batch,4@model,128]"),
        (&[2, 512], p!["batch", "model"], &[2, 4, 128], "int32[2@batch,4@model,128]"),
        (&[1, 4, 128], p!["batch", "model"], &[1, 512], "int32[1@batch,512@model]"),
        (&[8, 1], p![_, "batch"], &[2, 4, 1], "int32[2,4,1@batch]"),
        (&[4, 1, 6], p![_, "batch"], &[2, 2, 1, 2, 3], "int32[2,2,1@batch,2,3]"),
        (&[1, 1, 8], p![_, "batch"], &[1, 1, 2, 4], "int32[1,1@batch,2,4]"),
        // not at the same place, or not as many
        (&[1, 8], p!["batch"], &[8, 1], "int32[8,1]"),
        (&[1, 8], p!["batch"], &[1, 1, 8], "int32[1,1,8]"),
    ];
    for (shape, spec, to, ty) in cases {
        assert_eq!(type_after(&mesh, shape, spec, to), ty, "{shape:?} {spec} to {to:?}");
    }
    let heads = Array::ones([1, 512]).put(&mesh, p!["batch", "model"]).reshape([1, 4, 128]);
    let cache = Array::ones([1, 4, 8]).put(&mesh, p!["batch", "model", _]);
    assert_eq!(type_of(concat([&heads, &cache], 2)), "float32[1@batch,4@model,136]");
    Ok(())
}

/// A reshape with a batch of one is typed like that with a batch of two, on a mesh where the axis of
/// the batch has size 1: splits and merges.
#[test]
fn a_batch_of_one_is_typed_like_a_batch_of_two() -> Result<()> {
    let mesh = Mesh::new([("batch", 1), ("model", 2)])?;
    let rows: [(&[usize], &[usize]); 8] = [
        (&[12], &[3, 4]),
        (&[3, 4], &[12]),
        (&[4, 6], &[2, 2, 6]),
        (&[4, 6], &[4, 3, 2]),
        (&[2, 3, 4], &[6, 4]),
        (&[2, 3, 4], &[2, 12]),
        (&[8, 3], &[2, 4, 3]),
        (&[6, 4, 5], &[6, 20]),
    ];
    for (from, to) in rows {
        for d in 0..=from.len() {
            let of = |n: usize, tail: &[usize]| [&[n][..], tail].concat();
            let mut spec = vec![Axes::from("batch")];
            spec.extend((0..from.len()).map(|e| if e + 1 == d { Axes::from("model") } else { Axes::none() }));
            let spec = Spec::from_dims(spec);
            let types = [1, 2].map(|n| {
                let x = Array::zeros(F32.array_type(of(n, from))).put(&mesh, spec);
                x.reshape(of(n, to)).ty().map(|ty| ty.spec).map_err(|e| e.kind())
            });
            assert_eq!(types[0], types[1], "{from:?} to {to:?}, {spec}");
        }
    }
    Ok(())
}
