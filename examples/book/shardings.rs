//! Specs, blocks and replicas: how a sharding divides an array among the devices.

use crate::show::{figure, rejected, section};
use atmesh::prelude::*;

pub(crate) fn chapter() -> Result<()> {
    section("spec");
    // ANCHOR: spec
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Array::arange(0..32).reshape([4, 8]);
    let a = x.put(&mesh, p!["X", "Y"]);
    let b = x.put(&mesh, p!["X", _]);
    println!("{}, {}, {}", type_of(&x), type_of(&a), type_of(&b));
    println!("{}\n{}", a.visualize(), b.visualize());
    // ANCHOR_END: spec
    figure("put", &[("x", &x)], "x.put(&mesh, p![\"X\", \"Y\"])", &[("a", &a)], "")?;
    let narrow = Array::arange(0..8).reshape([4, 2]).put(&mesh, p!["X", _]);
    let grid = Array::zeros(I32.array_type([2, 4]).on(&mesh, p!["X", "Y"]));
    let operands = [("the mesh X: 2, Y: 4", &grid), ("x", &narrow)];
    figure("array", &operands, "x.sum(0)", &[("", &narrow.sum(0))], "an all-reduce over X")?;

    section("writing");
    // ANCHOR: writing
    for spec in [p!["X", "Y"], p![_, "Y"], p!["X"], p![], p![_, ("X", "Y")], p![_, ("Y", "X")]] {
        println!("{:17} {}", spec.to_string(), type_of(x.put(&mesh, spec)));
    }
    // ANCHOR_END: writing

    section("shape");
    // ANCHOR: shape
    let sharding = Sharding::new(&mesh, p!["X", "Y"], &[4, 8])?;
    println!("{sharding}: each device holds {}", sharding.shard_shape(&[4, 8])?);
    let sharding = Sharding::new(&mesh, p![("X", "Y"), _], &[16, 8])?;
    println!("{sharding}: each device holds {}", sharding.shard_shape(&[16, 8])?);
    // ANCHOR_END: shape

    section("shards");
    // ANCHOR: shards
    for shard in b.shards()? {
        println!("{} {:?} replica {}", shard.device, shard.index, shard.replica);
    }
    // ANCHOR_END: shards

    section("bytes");
    // ANCHOR: bytes
    println!("{} bytes", x.nbytes()?);
    for y in [&a, &b, &x.put(&mesh, p![])] {
        let held = y.shards()?.iter().map(|s| s.data.nbytes()).collect::<Result<Vec<_>>>()?;
        println!("{}: {} bytes on each device, {} on all", type_of(y), held[0], held.iter().sum::<usize>());
    }
    // ANCHOR_END: bytes

    section("order");
    // ANCHOR: order
    let v = Array::arange(0..8);
    let xy = v.put(&mesh, p![("X", "Y")]);
    let yx = v.put(&mesh, p![("Y", "X")]);
    println!("{}\n{}", type_of(&xy), xy.visualize());
    println!("{}\n{}", type_of(&yx), yx.visualize());
    // ANCHOR_END: order
    let wide = Array::arange(0..32).reshape([8, 4]);
    let (wide_xy, wide_yx) = (wide.put(&mesh, p![("X", "Y")]), wide.put(&mesh, p![("Y", "X")]));
    figure("sharding-order", &[("", &wide_xy), ("", &wide_yx)], "", &[], "")?;

    section("divide");
    // ANCHOR: divide
    rejected(Array::ones([6, 8]).put(&mesh, p!["Y", _]).ty())?;
    println!("{}", type_of(Array::ones([0, 8]).put(&mesh, p!["Y", _])));
    let auto = Mesh::auto([("X", 2), ("Y", 4)])?;
    let uneven = Array::ones([6, 8]).put(&auto, p!["Y", _]);
    println!("{}\n{}", uneven.sharding()?.expect("it is on a mesh"), uneven.visualize());
    // ANCHOR_END: divide

    section("rank");
    // ANCHOR: rank
    let cube = Array::zeros(F32.array_type([4, 8, 8]).on(&mesh, p!["Y", "X", _]));
    println!("{}\n{}", type_of(&cube), cube.visualize());
    // ANCHOR_END: rank
    figure("sharding-rank", &[("", &cube)], "", &[], "")?;

    section("equal");
    // ANCHOR: equal
    let one = Mesh::new([("a", 2), ("b", 4)])?;
    let other = Mesh::new([("rows", 8)])?;
    let sharding = |mesh: &Mesh, spec| Sharding::new(mesh, spec, &[8]);
    let (ab, ba) = (sharding(&one, p![("a", "b")])?, sharding(&one, p![("b", "a")])?);
    let rows = sharding(&other, p!["rows"])?;
    println!("{ab} and {rows}: equal {}, equivalent {}", ab == rows, ab.is_equivalent(&rows));
    println!("{ba} and {rows}: equal {}, equivalent {}", ba == rows, ba.is_equivalent(&rows));
    // ANCHOR_END: equal

    section("errors");
    // ANCHOR: errors
    rejected(x.put(&mesh, p!["X", "X"]).ty())?;
    rejected(x.put(&mesh, p!["Z"]).ty())?;
    rejected(x.put(&mesh, p!["X", _, "Y"]).ty())?;
    // ANCHOR_END: errors

    section("print");
    // ANCHOR: print
    let ty = ArrayType::parse("float32[4@X,8@Y]", &mesh)?;
    assert_eq!(ty, F32.array_type([4, 8]).on(&mesh, p!["X", "Y"]));
    println!("{ty}, short {}", ty.short_text());
    // ANCHOR_END: print
    Ok(())
}
