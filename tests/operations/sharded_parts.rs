//! Slices and updates of sharded dimensions on explicit axes: a read moves only its elements, an
//! in-place update moves nothing, and shifts cost a halo. The reference rejects most of this
//! (`tests/conformance/exceptions.txt` lists its rolls); types and values are compared here.

use crate::error_checks::Unquoted as _;
use atmesh::array::{Index, IndexUpdate};
use atmesh::prelude::*;
use atmesh::{Collectives, ErrorKind};

fn mesh() -> Mesh {
    Mesh::new([("X", 2), ("Y", 4)]).unwrap()
}
fn plain() -> Array {
    Array::from((0..64).map(|i| ((i * 29) % 31) as f32 - 11.0).collect::<Vec<_>>()).reshape([8, 8])
}
fn sharded() -> Array {
    plain().put(&mesh(), p!["X", "Y"])
}
fn numbers(x: &Array) -> Vec<f32> {
    x.to_vec().unwrap_or_else(|e| panic!("{e}"))
}

/// Runs `f` on the sharded array on all engines, and asserts that the elements equal those for the
/// unsharded array. Returns the type and the collectives.
fn on_all(x: &Array, whole: &Array, f: impl Fn(&Array) -> Array) -> (String, Collectives) {
    let want = numbers(&f(whole));
    let at_once = f(x);
    assert_eq!(numbers(&at_once), want);
    for engine in [Lockstep, Threads, EngineKind::Reference] {
        let y = jit(|x: &Array| f(x)).engine(engine).call(x).unwrap();
        assert_eq!((type_of(&y).to_string(), numbers(&y)), (type_of(&at_once).to_string(), want.clone()));
    }
    let moved = jit(|x: &Array| f(x)).lower(x).unwrap().collectives().clone();
    (type_of(&at_once).to_string(), moved)
}
fn bytes(moved: &Collectives) -> u64 {
    moved.iter().map(|c| c.total_bytes).sum()
}
/// Reads the slice with the given sharding; an unsharded array takes none.
fn reached(at: IndexUpdate, out: Spec, sharded: bool) -> Array {
    if sharded { at.out_sharding(out).get() } else { at.get() }
}
fn is_sharded(x: &Array) -> bool {
    x.sharding().map_or(true, |s| s.is_some()) || x.ty().is_ok_and(|ty| ty.mesh.is_some())
}

#[test]
fn what_is_read_moves_alone() {
    let row = |x: &Array| reached(x.at(ix![5]), p!["Y"], is_sharded(x));
    let (ty, moved) = on_all(&sharded(), &plain(), row);
    // Each device without the row receives its block of it: 2 elements for 4 devices.
    assert_eq!((ty.as_str(), bytes(&moved)), ("float32[8@Y]", 4 * 2 * 4));
    let one = |x: &Array| reached(x.at(ix![5, 3]), p![], is_sharded(x));
    let (ty, moved) = on_all(&sharded(), &plain(), one);
    assert_eq!((ty.as_str(), bytes(&moved)), ("float32[]", 7 * 4));
    let few = |x: &Array| reached(x.at(ix![..3, NewAxis]), p![_, _, "Y"], is_sharded(x));
    let (ty, moved) = on_all(&sharded(), &plain(), few);
    assert_eq!((ty.as_str(), bytes(&moved)), ("float32[3,1,8@Y]", 4 * 3 * 2 * 4));
    let back = |x: &Array| reached(x.at(ix![6..0;-2, 1..]), p![], is_sharded(x));
    assert_eq!(on_all(&sharded(), &plain(), back).0, "float32[3,7]");
    let other = |x: &Array| reached(x.at(ix![1..5]), p!["Y"], is_sharded(x));
    assert_eq!(on_all(&sharded(), &plain(), other).0, "float32[4@Y,8]");
    let dx = jit(|x: &Array| grad(x, |x| x.at(ix![5]).out_sharding(p!["Y"]).get().square().sum(..)))
        .call(sharded())
        .unwrap();
    let want = jit(|x: &Array| grad(x, |x| x.slice(ix![5]).square().sum(..))).call(plain()).unwrap();
    assert_eq!((type_of(&dx).to_string(), numbers(&dx)), ("float32[8@X,8@Y]".into(), numbers(&want)));
    assert_eq!(
        sharded().at(ix![..3]).out_sharding(p!["X", "Y"]).get().ty().unwrap_err().kind(),
        ErrorKind::Shape
    );
}

#[test]
fn errors_say_where_the_part_may_be() {
    let rows: [(Index, &[&str]); 6] = [
        (ix![0], &["x.at(ix![0]).out_sharding(p![\"Y\"]).get()"]),
        (ix![.., -1], &["x.at(ix![.., -1]).out_sharding(p![\"X\"]).get()"]),
        (ix![..3], &["x.at(ix![..3]).out_sharding(p![_, \"Y\"]).get()"]),
        (ix![1..], &["x.at(ix![1..]).out_sharding(p![_, \"Y\"]).get()", "x.shift(-1, 0, 0)"]),
        (ix![.., ..-1], &["out_sharding(p![\"X\", _]).get()", "x.shift(1, 1, 0)"]),
        (ix![.., 1..-1], &["out_sharding(p![\"X\", _]).get()", "x.shift(1, 1, 0)", "x.shift(-1, 1, 0)"]),
    ];
    for (index, helps) in rows {
        let text = sharded().slice(index).ty().unwrap_err().unquoted();
        assert!(helps.iter().all(|help| text.contains(help)), "{text}");
        assert!(!text.contains("gather") && !text.contains(".reshard("), "{text}");
    }
}

#[test]
fn what_is_changed_in_place_moves_nothing() {
    let indices: [fn() -> Index; 9] = [
        || ix![0],
        || ix![..3],
        || ix![1..-1, 1..-1],
        || ix![.., 7],
        || ix![..;3, 2],
        || ix![..;-1, 5..2;-1],
        || ix![3, 4],
        || ix![2..2],
        || ix![NewAxis, 1..6],
    ];
    let changes: [fn(IndexUpdate) -> Array; 5] =
        [|a| a.set(0.0), |a| a.add(2.5), |a| a.mul(-1.0), |a| a.min(1), |a| a.max(3)];
    for index in indices {
        for change in changes {
            let (ty, moved) = on_all(&sharded(), &plain(), |x| change(x.at(index())));
            assert_eq!(ty, "float32[8@X,8@Y]");
            assert!(moved.is_empty(), "{moved}");
        }
        // The update is an array with the slice's size, equal on all devices that hold part of the
        // slice.
        let shape = plain().slice(index()).shape().unwrap();
        let n: usize = shape.iter().product();
        let value = Array::from((0..n).map(|i| i as f32).collect::<Vec<_>>()).reshape(&shape);
        let puts: [fn(IndexUpdate, &Array) -> Array; 2] = [|a, v| a.set(v), |a, v| a.add(v)];
        for put in puts {
            let (ty, _) = on_all(&sharded(), &plain(), |x| put(x.at(index()), &value));
            assert_eq!(ty, "float32[8@X,8@Y]");
        }
    }
    let placed = Array::from([1.0f32, 2.0, 3.0]).put(&mesh(), p![]);
    let x = plain().slice(ix![.., 0]);
    let both = jit(|x: &Array, v: &Array| x.at(ix![2..5]).set(v));
    let on = x.put(&mesh(), p![("X", "Y")]);
    assert!(both.lower((&on, &placed)).unwrap().collectives().is_empty());
    let y = both.call((&on, &placed)).unwrap();
    let want = x.at(ix![2..5]).set(Array::from([1.0f32, 2.0, 3.0]));
    assert_eq!((type_of(&y).to_string(), numbers(&y)), ("float32[8@(X,Y)]".into(), numbers(&want)));
}

#[test]
fn changes_have_derivatives() {
    let value = Array::from([2.0f32, -1.0, 0.5]);
    let loss = |x: &Array, v: &Array| {
        let y = x.at(ix![.., 2..5]).set(v).at(ix![1]).mul(3.0).at(ix![0, 0]).add(v.sum(0));
        (y.square() * 0.5).sum(..)
    };
    let (dx, dv) =
        jit(|x: &Array, v: &Array| grad((x, v), |(x, v)| loss(&x, &v))).call((&sharded(), &value)).unwrap();
    let (wx, wv) =
        jit(|x: &Array, v: &Array| grad((x, v), |(x, v)| loss(&x, &v))).call((&plain(), &value)).unwrap();
    assert_eq!((type_of(&dx).to_string(), numbers(&dx)), ("float32[8@X,8@Y]".into(), numbers(&wx)));
    assert!(dv.allclose(&wv).unwrap(), "{dv} {wv}");
}

#[test]
fn neighbours_cost_a_halo() {
    let halo = |moved: &Collectives, most: u64| assert!(bytes(moved) <= most, "{moved}");
    for by in [-9, -3, -1, 0, 1, 2, 8] {
        for d in 0..2 {
            let (ty, moved) = on_all(&sharded(), &plain(), |x| x.shift(by, d, 7));
            assert_eq!(ty, "float32[8@X,8@Y]");
            if by.abs() == 1 {
                // One row across one boundary, one column across three.
                halo(&moved, [8, 3 * 8][d as usize] * 4);
            }
            let (ty, moved) = on_all(&sharded(), &plain(), |x| x.roll(by, d));
            assert_eq!(ty, "float32[8@X,8@Y]");
            if by.abs() == 1 {
                halo(&moved, [2 * 8, 4 * 8][d as usize] * 4);
            }
        }
    }
    let x = plain();
    let left = x.shift(2, 1, f32::NAN);
    assert!(left.slice(ix![0, ..2]).is_nan().all(..).item::<bool>().unwrap());
    assert_eq!(numbers(&left.slice(ix![3, 2..])), numbers(&x.slice(ix![3, ..-2])));
    assert_eq!(Array::from([1, 2, 3]).shift(1, 0, Array::from(5)).to_vec::<i32>().unwrap(), [5, 1, 2]);
    assert_eq!(Array::from([true, true]).shift(-1, 0, false).to_vec::<bool>().unwrap(), [true, false]);
    assert_eq!(Array::from([1, 2]).shift(i64::MIN, 0, 3).to_vec::<i32>().unwrap(), [3, 3]);
    let partial = Array::ones([8, 8]).put(&mesh(), p!["Y"; U: "X"]);
    assert_eq!(type_of(partial.roll(3, 0)), "float32[8@Y,8]{U:X}");
    assert_eq!(numbers(&partial.roll(3, 0).reshard(p!["Y"])), [1.0; 64]);
    for bad in [x.shift(1, 2, 0), x.shift(1, 0, &x)] {
        assert_eq!(bad.ty().unwrap_err().kind(), ErrorKind::Shape);
    }
    let g = |x: &Array| grad(x, |x| (x.roll(3, 0) * x.shift(-1, 1, 2)).square().sum(..));
    let (dx, want) = (jit(g).call(sharded()).unwrap(), jit(g).call(plain()).unwrap());
    assert!(dx.allclose(&want).unwrap());
}

/// The sharding that a help suggests keeps the axes that divide the slice: only the other dimension
/// is gathered.
#[test]
fn helps_of_parts_keep_the_axes_that_divide_them() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Array::arange(0..128).reshape([8, 16]);
    let on = x.put(&mesh, p!["X", "Y"]);
    let e = on.slice(ix![1..-1, 1..-1]).ty().unwrap_err().unquoted();
    assert!(e.contains("`x.at(ix![1..-1, 1..-1]).out_sharding(p![\"X\", _]).get()`"), "{e}");
    let part = on.at(ix![1..-1, 1..-1]).out_sharding(p!["X", _]).get();
    assert_eq!(type_of(&part), "int32[6@X,14]");
    assert_eq!(part.to_vec::<i32>()?, x.slice(ix![1..-1, 1..-1]).to_vec::<i32>()?);
    // An integer index drops its dimension, and the other one keeps its axis.
    let e = on.slice(ix![3, 2..-2]).ty().unwrap_err().unquoted();
    assert!(e.contains("`x.at(ix![3, 2..-2]).out_sharding(p![\"Y\"]).get()`"), "{e}");
    assert_eq!(type_of(on.at(ix![3, 2..-2]).out_sharding(p!["Y"]).get()), "int32[12@Y]");
    Ok(())
}
