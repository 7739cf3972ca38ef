//! Reshapes that split and merge several groups of dimensions, sharded so that nothing moves. Each
//! case that the reference rejects (`tests/conformance/exceptions.txt`) is tested for its type and
//! values; some reshapes remain errors.

use atmesh::ErrorKind;
use atmesh::prelude::*;

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
