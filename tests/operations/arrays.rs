//! Arrays as users hold them: operands, indexing, host data, blocks and keys, and the errors of
//! each.

#![expect(clippy::reversed_empty_ranges, reason = "ndarray means 1..-1 from the end too")]

use crate::error_checks::Unquoted as _;
use atmesh::nd;
use atmesh::prelude::*;
use atmesh::{Axes, DType, ErrorKind, Term};

fn grid() -> Array {
    Array::arange(0..60).reshape([3, 4, 5])
}
fn nd_grid() -> nd::ArrayD<i32> {
    nd::Array::from_shape_vec(nd::IxDyn(&[3, 4, 5]), (0..60).collect()).unwrap()
}

/// Asserts that the array has the elements and shape of an ndarray.
fn same(x: &Array, want: nd::ArrayViewD<i32>) {
    let got = x.to_ndarray::<i32>().unwrap();
    assert_eq!(got, want, "shape {:?}", x.shape());
}

#[test]
fn indices_take_what_ndarray_takes() {
    let (x, y) = (grid(), nd_grid());
    same(&x.slice(ix![1]), y.slice(nd::s![1, .., ..]).into_dyn());
    same(&x.slice(ix![-1, 2]), y.slice(nd::s![-1, 2, ..]).into_dyn());
    same(&x.slice(ix![.., 1..-1]), y.slice(nd::s![.., 1..-1, ..]).into_dyn());
    same(&x.slice(ix![.., .., ..;2]), y.slice(nd::s![.., .., ..;2]).into_dyn());
    same(&x.slice(ix![.., .., 1..4;2]), y.slice(nd::s![.., .., 1..4;2]).into_dyn());
    same(&x.slice(ix![..2, 1..=2, -2..]), y.slice(nd::s![..2, 1..=2, -2..]).into_dyn());
    same(&x.slice(ix![0, NewAxis, .., 3]), y.slice(nd::s![0, nd::NewAxis, .., 3]).into_dyn());
    same(&x.slice(ix![Ellipsis, 0]), y.slice(nd::s![.., .., 0]).into_dyn());
    same(&x.slice(ix![Ellipsis, NewAxis]), y.slice(nd::s![.., .., .., nd::NewAxis]).into_dyn());
    same(&x.slice(ix![.., ..;-1]), y.slice(nd::s![.., ..;-1, ..]).into_dyn());
    // Slices behave as in numpy: negative steps, out-of-range ends, empty results.
    assert_eq!(Array::arange(0..5).slice(ix![3..0;-2]).to_vec::<i32>().unwrap(), [3, 1]);
    assert_eq!(Array::arange(0..5).slice(ix![2..100]).to_vec::<i32>().unwrap(), [2, 3, 4]);
    assert_eq!(Array::arange(0..5).slice(ix![4..1]).to_vec::<i32>().unwrap(), [0i32; 0]);
}

#[test]
fn parts_are_replaced() {
    let x = Array::arange(0..6);
    let v = |a: Array| a.to_vec::<i32>().unwrap();
    assert_eq!(v(x.at(ix![1..3]).set(Array::from([8, 9]))), [0, 8, 9, 3, 4, 5]);
    assert_eq!(v(x.at(ix![..;2]).set(7)), [7, 1, 7, 3, 7, 5]);
    assert_eq!(v(x.at(ix![..;-2]).set(Array::from([1, 2, 3]))), [0, 3, 2, 2, 4, 1]);
    assert_eq!(v(x.at(ix![1..;3]).add(10)), [0, 11, 2, 3, 14, 5]);
    assert_eq!(v(x.at(ix![-1]).mul(2)), [0, 1, 2, 3, 4, 10]);
    assert_eq!(v(x.at(ix![..3]).max(1)), [1, 1, 2, 3, 4, 5]);
    assert_eq!(v(x.at(ix![3..]).min(4)), [0, 1, 2, 3, 4, 4]);
    assert_eq!(v(x.at(ix![..]).set(1)), [1; 6]);
    assert_eq!(v(x.at(ix![4..2]).set(1)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(v(x.clone()), [0, 1, 2, 3, 4, 5], "the array itself stays");

    let mut want = nd_grid();
    want.slice_mut(nd::s![1, 1..3, ..;2]).fill(-1);
    same(&grid().at(ix![1, 1..3, ..;2]).set(-1), want.view());
    let mut want = nd_grid();
    want.slice_mut(nd::s![.., 2, ..]).assign(&nd::arr1(&[9, 8, 7, 6, 5]));
    same(&grid().at(ix![.., 2]).set(Array::from([9, 8, 7, 6, 5])), want.view());
}

#[test]
fn positions_known_at_run_time() {
    let x = Array::arange(0..12).reshape([3, 4]);
    let f = jit(|x: &Array, i: &Array| (x.slice(ix![i]), x.at(ix![i, 1..3]).set(-1)));
    for (i, row) in [(0, 0), (2, 2), (-1, 2), (7, 2), (-9, 0)] {
        let (taken, put) = f.call((&x, i)).unwrap();
        assert_eq!(taken.to_vec::<i32>().unwrap(), [4 * row, 4 * row + 1, 4 * row + 2, 4 * row + 3]);
        let mut want: Vec<i32> = (0..12).collect();
        want[4 * row as usize + 1] = -1;
        want[4 * row as usize + 2] = -1;
        assert_eq!(put.to_vec::<i32>().unwrap(), want);
    }
    let squares = fori_loop(0..5, Array::zeros(I32.array_type([5])), |i, x| x.at(ix![&i]).set(&i * &i));
    assert_eq!(squares.to_vec::<i32>().unwrap(), [0, 1, 4, 9, 16]);
}

#[test]
fn numbers_are_weak() {
    let x = Array::from([1.0f32, 2.0]);
    assert_eq!(type_of(&(2.0 * &x + 1)), "float32[2]");
    assert_eq!(type_of(&(Array::from([1u8, 2]) + 1)), "uint8[2]");
    let kind = |x: Array| x.ty().unwrap_err().kind();
    assert_eq!(kind(Array::from([1, 2]) + 0.5), ErrorKind::Dtype);
    assert_eq!(kind(Array::from([1, 2]) & true), ErrorKind::Dtype);
    assert_eq!(kind(Array::from([1u8, 2]) + 300), ErrorKind::Dtype);
    assert_eq!(kind(Array::from([1u8, 2]) + -1), ErrorKind::Dtype);
    assert_eq!(kind(Array::from([true]) + 1), ErrorKind::Dtype);
    assert_eq!(kind(Array::from([1]) + Array::from([1.0f32])), ErrorKind::Dtype);
    let mut y = x.clone();
    y += 1.0;
    y *= &x;
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 6.0]);
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!((10 - Array::from([1, 2])).to_vec::<i32>().unwrap(), [9, 8]);
    assert_eq!((!Array::from([true, false]) | false).to_vec::<bool>().unwrap(), [false, true]);
}

#[test]
fn the_first_cause_flows() {
    let bad = Array::from([1, 2]).reshape([3]);
    let worse = (&bad + 1).sin().sum(..).slice(ix![4]).at(ix![0]).set(&bad);
    let (first, last) = (bad.ty().unwrap_err(), worse.ty().unwrap_err());
    assert_eq!(first.kind(), ErrorKind::Shape);
    assert_eq!(first, last);
    assert_eq!(worse.shape().unwrap_err(), first);
    assert_eq!(worse.to_vec::<i32>().unwrap_err(), first);
    assert_eq!(worse.to_string(), first.to_string());
    assert!(first.to_string().contains("tests/operations/arrays.rs"), "{first}");
}

#[test]
fn indices_are_rejected_with_a_reason() {
    let x = grid();
    let kind = |x: Array| x.ty().unwrap_err().kind();
    assert_eq!(kind(x.slice(ix![3])), ErrorKind::Shape);
    assert_eq!(kind(x.slice(ix![0, 0, 0, 0])), ErrorKind::Shape);
    assert_eq!(kind(x.slice(ix![Ellipsis, Ellipsis])), ErrorKind::Shape);
    assert_eq!(kind(x.slice(ix![..;0])), ErrorKind::Shape);
    assert_eq!(kind(x.slice(ix![&Array::from(1.5f32)])), ErrorKind::Dtype);
    assert_eq!(kind(x.at(ix![0]).set(Array::zeros(I32.array_type([2, 3, 4, 5])))), ErrorKind::Shape);
    assert_eq!(kind(x.sum(3)), ErrorKind::Shape);
    assert_eq!(kind(x.sum([0, 0])), ErrorKind::Shape);
    assert_eq!(kind(x.transpose([0, 1])), ErrorKind::Shape);
    assert_eq!(kind(x.dot(&x)), ErrorKind::Shape);
    assert_eq!(kind(x.split([1, 1], 1).swap_remove(0)), ErrorKind::Shape);
    assert_eq!(kind(Array::zeros([5]).put(&Mesh::new([("X", 2)]).unwrap(), p!["X"])), ErrorKind::Shape);
    assert_eq!(kind(Array::zeros([4]).put(&Mesh::new([("X", 2)]).unwrap(), p!["Q"])), ErrorKind::Mesh);
}

#[test]
fn host_data_of_any_strides() {
    let y = nd_grid();
    let turned = y.t();
    same(&Array::from(&turned), turned.view());
    same(&Array::from(y.slice(nd::s![..;-1, 1.., ..;2])), y.slice(nd::s![..;-1, 1.., ..;2]).into_dyn());
    same(&Array::from(&y).transpose(..), turned.view());
    let view = grid().view::<i32>().unwrap();
    assert_eq!(view.array(), y.view());
    assert_eq!(view[17], 17);
    assert_eq!(grid().slice(ix![0, 1, 2]).item::<i32>().unwrap(), 7);
    assert_eq!(grid().item::<i32>().unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(grid().to_vec::<f32>().unwrap_err().kind(), ErrorKind::Dtype);
    let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
    assert_eq!((x.size().unwrap(), x.nbytes().unwrap(), x.dtype().unwrap()), (4, 16, F32));
}

#[test]
fn files() {
    let path = std::env::temp_dir().join(format!("atmesh-{}.npy", std::process::id()));
    for x in [grid(), Array::from([1.5f64, -2.0]), Array::from([[true], [false]]), Array::from(7u8)] {
        x.save_npy(&path).unwrap();
        let y = Array::load_npy(&path).unwrap();
        assert_eq!(type_of(&y), type_of(&x));
        assert!(y.allclose(&x).unwrap());
    }
    std::fs::write(&path, "no numbers").unwrap();
    assert_eq!(Array::load_npy(&path).unwrap_err().kind(), ErrorKind::Data);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(Array::load_npy(&path).unwrap_err().kind(), ErrorKind::Data);
}

#[test]
fn pieces() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let sharding = Sharding::new(&mesh, p!["X", _], &[4, 2]).unwrap();
    let (top, low) = (Array::from([[0, 1], [2, 3]]), Array::from([[4, 5], [6, 7]]));
    let x = Array::from_shards([4, 2], &sharding, [&top, &top, &low, &low].map(Array::clone)).unwrap();
    assert_eq!(type_of(&x), "int32[4@X,2]");
    assert_eq!(x.to_vec::<i32>().unwrap(), (0..8).collect::<Vec<_>>());
    for (shard, replica) in x.shards().unwrap().iter().zip([0, 1, 0, 1]) {
        assert_eq!(shard.replica, replica);
    }
    let error_of = |pieces: Vec<Array>| Array::from_shards([4, 2], &sharding, pieces).unwrap_err();
    let missing = error_of(vec![top.clone(), top.clone(), low.clone()]);
    assert_eq!(missing.kind(), ErrorKind::Data);
    assert!(missing.to_string().contains("CPU 3"), "{missing}");
    let misshapen = error_of(vec![top.clone(), top.clone(), low.slice(ix![0]), low.clone()]);
    assert!(misshapen.to_string().contains("CPU 2") && misshapen.to_string().contains("[2]"), "{misshapen}");
    let differs = error_of(vec![top.clone(), low.clone(), low.clone(), low.clone()]);
    assert!(differs.to_string().contains("differs"), "{differs}");
    let mixed = error_of(vec![top.clone(), top.clone(), low.astype(F32), low.clone()]);
    assert!(mixed.to_string().contains("float32"), "{mixed}");

    // The last dimension is sharded over both axes, so each block is one column.
    let cols = Sharding::new(&mesh, p![_, ("Y", "X")], &[2, 4]).unwrap();
    let calls = std::cell::Cell::new(0);
    let x = Array::from_fn([2, 4], &cols, |index| {
        calls.set(calls.get() + 1);
        Array::from([[index[1].start as i32], [index[1].start as i32 + 10]])
    });
    assert_eq!(x.unwrap().to_vec::<i32>().unwrap(), [0, 1, 2, 3, 10, 11, 12, 13]);
    assert_eq!(calls.get(), 4);
    let whole = Sharding::new(&mesh, p![], &[2]).unwrap();
    let once = std::cell::Cell::new(0);
    let made = Array::from_fn([2], &whole, |_| {
        once.set(once.get() + 1);
        Array::from([1, 2])
    });
    assert_eq!((made.unwrap().sum(..).item::<i32>().unwrap(), once.get()), (3, 1));
}

#[test]
fn moving_a_whole_value_moves_no_byte() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let other = Mesh::new([("A", 8)]).unwrap();
    let x = Array::arange(0..64).reshape([8, 8]);
    let at = |x: &Array| x.view::<i32>().unwrap().as_ptr();
    let a = x.put(&mesh, p!["X", "Y"]);
    let b = a.reshard(p!["Y", _]).put(&other, p![_, "A"]);
    assert_eq!((at(&x), at(&x)), (at(&a), at(&b)));
    assert_eq!(type_of(&b), "int32[8,8@A]");
    assert_eq!(b.devices().unwrap().len(), 8);
    assert_eq!(b.shards().unwrap()[3].data.to_vec::<i32>().unwrap(), [3, 11, 19, 27, 35, 43, 51, 59]);
}

#[test]
fn sums_in_parts() {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);
    let parts = x.dot_to(&x, p![; U: "X"]);
    assert_eq!(type_of(&parts), "float32[]{U:X}");
    assert_eq!(parts.item::<f32>().unwrap(), 140.0);
    let held: f32 = parts.shards().unwrap().iter().map(|s| s.data.item::<f32>().unwrap()).sum();
    assert_eq!(held, 140.0);
    assert_eq!(parts.put(&Mesh::new([("A", 2)]).unwrap(), p![]).item::<f32>().unwrap(), 140.0);
}

#[test]
fn the_layer_of_key_1701() {
    let [_, x, w, b] = Key::new(1701).split();
    let (x, w, b) = (x.normal([32]), w.normal([32, 4]), b.normal([4]));
    let y = (x.dot(&w) + b).logistic();
    let want = Array::from([0.014222225f32, 0.9701333, 0.0012482634, 0.08572862]);
    assert!(y.allclose(&want).unwrap(), "{y}");
    let mesh = Mesh::new([("X", 8)]).unwrap();
    let placed = Key::new(3).normal(F32.array_type([16, 2]).on(&mesh, p!["X", _]));
    assert_eq!(type_of(&placed), "float32[16@X,2]");
    assert!(placed.allclose(&Key::new(3).normal([16, 2])).unwrap(), "numbers do not depend on shardings");
    assert_eq!(Key::new(42).data().to_vec::<u32>().unwrap(), [0, 42]);
    let dice = Key::new(1).randint(I32.array_type([1000]), 1..7);
    assert_eq!((dice.min(..).item::<i32>().unwrap(), dice.max(..).item::<i32>().unwrap()), (1, 6));
    assert_eq!(type_of(Key::new(1).randint([4], 0..3)), "int32[4]");
    assert_eq!(type_of(Key::new(1).bits([4])), "uint32[4]");
    assert_eq!(Key::new(1).randint(F32.array_type([4]), 0..3).ty().unwrap_err().kind(), ErrorKind::Dtype);
}

#[test]
fn reading_traced_values_is_rejected() {
    let rejected = std::cell::RefCell::new(Vec::new());
    let f = jit(|x: &Array| {
        assert_eq!(x.to_string(), "float32[2]");
        rejected.borrow_mut().extend([
            x.to_vec::<f32>().unwrap_err().kind(),
            x.item::<f32>().unwrap_err().kind(),
            x.shards().unwrap_err().kind(),
            x.allclose(x).unwrap_err().kind(),
        ]);
        x.clone()
    });
    let _ = f.call(&Array::from([1.0f32, 2.0])).unwrap();
    assert_eq!(*rejected.borrow(), [ErrorKind::Trace; 4]);
}

#[test]
fn creation() {
    let v = |x: Array| x.to_vec::<f32>().unwrap();
    assert_eq!(v(Array::eye([2, 3], 1)), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(v(Array::linspace(0.0, 1.0, 5, true)), [0.0, 0.25, 0.5, 0.75, 1.0]);
    assert_eq!(v(Array::linspace(0.0, 1.0, 4, false)), [0.0, 0.25, 0.5, 0.75]);
    assert_eq!(v(Array::full([2], 1.5)), [1.5, 1.5]);
    assert_eq!(v(Array::from([2, 0, 5]).one_hot(3)), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let x = Array::zeros(I32.array_type([4]).on(&mesh, p!["X"]));
    assert_eq!(type_of(&x), "int32[4@X]");
    assert_eq!(type_of(x.ones_like()), "int32[4@X]");
    assert_eq!(
        Array::zeros(I32.array_type([3]).on(&mesh, p!["X"])).ty().unwrap_err().kind(),
        ErrorKind::Shape
    );
    assert_eq!(Array::full(I32.array_type([3]), 1.5).ty().unwrap_err().kind(), ErrorKind::Dtype);
    let auto = Mesh::auto([("X", 2)]).unwrap();
    let x = Array::ones(F32.array_type([4]).on(&auto, p!["X"]));
    assert_eq!(type_of(&x), "float32[4]");
    assert_eq!(x.shards().unwrap()[1].index[0], 2..4);
}

/// Every constructor accepts a sharding: the type and the values are right, and nothing moves.
#[test]
fn creation_where_it_is_to_be_placed() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let (row, both) = (p!["X"], p!["X", "Y"]);
    let places = Array::from([3, -1, 0, 7]).put(&mesh, p!["X"]);
    let square = Array::arange(0..16).reshape([4, 4]).put(&mesh, p!["X", _]);
    type Make = Box<dyn Fn(&Array, &Array) -> Array>;
    let of = |f: fn(&Mesh) -> Array| -> Make {
        let mesh = mesh.clone();
        Box::new(move |_, _| f(&mesh))
    };
    // Each case has a constructor, its type, and the same array without a mesh.
    let cases: Vec<(&str, Make, &str, Array)> = vec![
        (
            "zeros",
            of(|m| Array::zeros(F32.array_type([4]).on(m, p!["X"]))),
            "float32[4@X]",
            Array::zeros([4]),
        ),
        ("ones", of(|m| Array::ones(F32.array_type([4]).on(m, p!["X"]))), "float32[4@X]", Array::ones([4])),
        (
            "full",
            of(|m| Array::full(I8.array_type([4]).on(m, p!["X"]), 7)),
            "int8[4@X]",
            Array::full(I8.array_type([4]), 7),
        ),
        (
            "iota",
            of(|m| Array::iota(I32.array_type([2, 4]).on(m, p![_, "X"]), 1)),
            "int32[2,4@X]",
            Array::iota(I32.array_type([2, 4]), 1),
        ),
        (
            "arange_of",
            of(|m| Array::arange_of(I32.array_type([4]).on(m, p!["X"]), 3, -2)),
            "int32[4@X]",
            Array::arange_of(I32.array_type([4]), 3, -2),
        ),
        (
            "eye",
            of(|m| Array::eye(F32.array_type([4, 2]).on(m, p!["X", "Y"]), -1)),
            "float32[4@X,2@Y]",
            Array::eye([4, 2], -1),
        ),
        (
            "linspace_of",
            of(|m| Array::linspace_of(F32.array_type([4]).on(m, p![("X", "Y")]), 0.0, 1.0, true)),
            "float32[4@(X,Y)]",
            Array::linspace(0.0, 1.0, 4, true),
        ),
        ("full_like", Box::new(|x, _| x.full_like(7)), "int32[4@X]", Array::full(I32.array_type([4]), 7)),
        (
            "full_like an array's element",
            Box::new(|x, _| x.full_like(Array::from(7))),
            "int32[4@X]",
            Array::full(I32.array_type([4]), 7),
        ),
        ("zeros_like", Box::new(|_, m| m.zeros_like()), "int32[4@X,4]", Array::zeros(I32.array_type([4, 4]))),
        ("ones_like", Box::new(|_, m| m.ones_like()), "int32[4@X,4]", Array::ones(I32.array_type([4, 4]))),
        (
            "full_like_to",
            Box::new(|_, m| m.full_like_to(7, p![_, "X"])),
            "int32[4,4@X]",
            Array::full(I32.array_type([4, 4]), 7),
        ),
        ("tril", Box::new(|_, m| m.tril(0)), "int32[4@X,4]", Array::arange(0..16).reshape([4, 4]).tril(0)),
        (
            "tril_to",
            Box::new(move |_, m| m.tril_to(1, both)),
            "int32[4@X,4@Y]",
            Array::arange(0..16).reshape([4, 4]).tril(1),
        ),
        (
            "triu_to",
            Box::new(move |_, m| m.triu_to(-1, both)),
            "int32[4@X,4@Y]",
            Array::arange(0..16).reshape([4, 4]).triu(-1),
        ),
        ("one_hot", Box::new(|x, _| x.one_hot(4)), "float32[4@X,4]", Array::from([3, -1, 0, 7]).one_hot(4)),
        (
            "one_hot_to",
            Box::new(move |x, _| x.one_hot_to(4, both)),
            "float32[4@X,4@Y]",
            Array::from([3, -1, 0, 7]).one_hot(4),
        ),
        (
            "one_hot_to, the classes whole",
            Box::new(move |x, _| x.one_hot_to(3, row)),
            "float32[4@X,3]",
            Array::from([3, -1, 0, 7]).one_hot(3),
        ),
        (
            "one_hot_to, in parts",
            Box::new(move |x, _| x.one_hot_to(4, p!["X", _; U: "Y"])),
            "float32[4@X,4]{U:Y}",
            Array::from([3, -1, 0, 7]).one_hot(4),
        ),
    ];
    for (what, make, ty, want) in &cases {
        let f = jit(|x: &Array, m: &Array| make(x, m));
        let moved = f.lower((&places, &square))?;
        // A sharded square is resharded only if another sharding is requested.
        assert!(moved.collectives().is_empty(), "{what}: {}", moved.collectives());
        for made in [make(&places, &square), f.call((&places, &square))?] {
            assert_eq!(type_of(&made), *ty, "{what}");
            let bits = |x: &Array| x.astype(F64).to_vec::<f64>();
            assert_eq!(bits(&made.reshard(p![]))?, bits(want)?, "{what}");
        }
    }
    // In the body of a `shard_map`, arrays are created over the axes that stay explicit.
    let inside = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.one_hot_to(4, p![_, "Y"])).over("X");
    let hot = inside.call(&places)?;
    assert_eq!(type_of(&hot), "float32[4@X,4@Y]");
    assert_eq!(hot.to_vec::<f32>()?, Array::from([3, -1, 0, 7]).one_hot(4).to_vec::<f32>()?);
    assert_eq!(type_of(Array::from([1, 2]).one_hot_to(3, p![_, _])), "float32[2,3]");
    // These shardings are errors.
    let first_error = |x: Array| {
        let e = x.ty().unwrap_err();
        (e.diagnostics()[0].op.clone(), e.kind())
    };
    let rejected = |op: &str, kind| (op.to_string(), kind);
    assert_eq!(first_error(places.one_hot_to(3, both)), rejected("one_hot_to", ErrorKind::Shape));
    assert_eq!(first_error(places.one_hot_to(4, p!["X", "Y", _])), rejected("one_hot_to", ErrorKind::Shape));
    assert_eq!(first_error(places.one_hot_to(4, p!["X", "X"])), rejected("one_hot_to", ErrorKind::Mesh));
    assert_eq!(
        first_error(Array::from([1, 2]).one_hot_to(4, p!["X"])),
        rejected("one_hot_to", ErrorKind::Mesh)
    );
    assert_eq!(first_error(square.tril_to(0, p!["Z"])), rejected("tril_to", ErrorKind::Mesh));
    assert_eq!(first_error(places.triu_to(0, p!["X"])), rejected("triu_to", ErrorKind::Shape));
    assert_eq!(first_error(places.full_like_to(0, p![_, "X"])), rejected("full_like_to", ErrorKind::Shape));
    Ok(())
}

#[test]
fn primitives_of_ones_own_choice() {
    use atmesh::ops::shape::Transpose;
    let x = grid();
    let t = Array::apply(std::sync::Arc::new(Transpose { permutation: vec![2, 0, 1] }), &[Term::Array(x)]);
    assert_eq!(t[0].shape().unwrap(), [5, 3, 4]);
}

#[test]
fn products_of_three_with_sums_of_a_type() -> Result<()> {
    use atmesh::{DotOptions, einsum_with};
    // 1 + 1/256 needs nine significant bits: bfloat16 loses the last one, float32 accumulation
    // keeps it.
    let (a, b, c) = (
        Array::ones(BF16.array_type([4, 512])),
        Array::ones(BF16.array_type([512, 6])),
        Array::ones(BF16.array_type([6, 3])),
    );
    let options = |sums: Option<DType>, out: Option<Spec>| {
        let options = DotOptions::default();
        let options = sums.map_or(options, |dtype| options.accum_dtype(dtype));
        out.map_or(options, |out| options.out_sharding(out))
    };
    let rounded = einsum_with("ij,jk,kl->il", [&a, &(&b / 3.0), &c], options(None, None));
    let exact = einsum_with("ij,jk,kl->il", [&a, &(&b / 3.0), &c], options(Some(F32), None));
    assert_eq!(
        (type_of(&rounded).to_string(), type_of(&exact).to_string()),
        ("bfloat16[4,3]".into(), "float32[4,3]".into())
    );
    // The product adds up a third in bfloat16, 512 · 6 times.
    let third = (Array::ones(BF16.array_type([])) / 3.0).astype(F64).item::<f64>()?;
    let want = 3072.0 * third;
    assert!(exact.astype(F64).to_vec::<f64>()?.iter().all(|x| *x == want), "{exact} is not {want}");
    assert!(
        rounded.astype(F64).to_vec::<f64>()?.iter().all(|x| (x - want).abs() <= want / 128.0),
        "{rounded}"
    );
    // Integers of 8 bits do not wrap if the accumulator has 32 bits.
    let ones = Array::full(I8.array_type([100, 100]), 3);
    let sums = einsum_with("ij,jk,kl->il", [&ones.slice(ix![..2]), &ones, &ones], options(Some(I32), None));
    assert_eq!(sums.to_vec::<i32>()?, vec![270_000; 200]);
    // The sharding of the result is ambiguous, which is an error; its suggested fix works.
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let (a, b, c) = (a.put(&mesh, p!["Y", "X"]), b.put(&mesh, p!["X", _]), c.put(&mesh, p![]));
    let open = einsum_with("ij,jk,kl->li", [&a, &b, &c], options(Some(F32), None)).ty().unwrap_err();
    assert_eq!(open.kind(), ErrorKind::Sharding);
    for out in [p![_, "Y"], p![], p!["X", "Y"].filter_axes(|a| a.name() == "Y")] {
        let first = einsum_with("ij,jk->ik", [&a, &b], options(Some(F32), Some(p!["Y", _])));
        assert_eq!(type_of(&first), "float32[4@Y,6]");
        let all = einsum_with("ij,jk,kl->li", [&a, &b, &c], options(Some(F32), Some(out)));
        assert_eq!(all.ty()?.spec, out.padded(2));
        assert_eq!(all.to_vec::<f32>()?, vec![3072.0; 12]);
    }
    Ok(())
}

/// Elements that are not replaced keep their bits, NaN payloads included: nothing is multiplied by
/// a mask or added.
#[test]
fn strided_parts_are_replaced_between_what_is_not_a_number() -> Result<()> {
    let strange = [f32::from_bits(0x7fc1_2345), f32::NEG_INFINITY, -0.0, f32::from_bits(0xffc0_0001)];
    let numbers: Vec<f32> = (0..48).map(|k| strange[k % 4]).collect();
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for spec in [p![], p!["X", _], p![_, "Y"], p!["X", "Y"]] {
        let x = Array::from(numbers.clone()).reshape([4, 12]).put(&mesh, spec);
        let x = if spec.is_replicated() { Array::from(numbers.clone()).reshape([4, 12]) } else { x };
        let part = |x: &Array| -> Array { x.at(ix![1..;2, ..;3]).set(7.0) };
        let rows = |x: &Array| -> Array { x.at(ix![.., 1..;4]).set(Array::full([4, 3], 5.0)) };
        let back = |x: &Array| -> Array { x.at(ix![..;-2, -1]).add(1.0) };
        for (k, f) in [&part as &dyn Fn(&Array) -> Array, &rows, &back].into_iter().enumerate() {
            let touched = |r: usize, c: usize| match k {
                0 => r % 2 == 1 && c.is_multiple_of(3),
                1 => c % 4 == 1,
                _ => r % 2 == 1 && c == 11,
            };
            let want: Vec<f32> = (0..48)
                .map(|i| match (touched(i / 12, i % 12), k) {
                    (false, _) => numbers[i],
                    (true, 0) => 7.0,
                    (true, 1) => 5.0,
                    (true, _) => numbers[i] + 1.0,
                })
                .collect();
            let Ok(now) = f(&x).to_vec::<f32>() else {
                // Dimensions of 3 columns, or of one, cannot be divided into two equal blocks.
                let error = f(&x).ty().unwrap_err();
                assert!(k > 0 && !spec.dim(1).is_empty(), "update {k} of {spec}: {error}");
                assert_eq!(error.diagnostics()[0].location.map(|p| p.file()), Some(file!()), "{error}");
                continue;
            };
            let later = jit(|x: &Array| f(x)).call(&x)?.to_vec::<f32>()?;
            for (name, got) in [("at once", now), ("compiled", later)] {
                let same = |i: &usize| {
                    // The payload of a NaN after an addition depends on the machine.
                    bits(&got)[*i] == bits(&want)[*i] || k == 2 && touched(i / 12, i % 12) && got[*i].is_nan()
                };
                let wrong: Vec<usize> = (0..48).filter(|i| !same(i)).collect();
                assert!(wrong.is_empty(), "{name}, update {k} of {spec}: elements {wrong:?} of {got:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn extremes_of_nothing_are_rejected_sums_are_not() -> Result<()> {
    let x = Array::zeros([0, 4]);
    for y in [x.max(0), x.min(..), x.argmax(0), x.astype(DType::Bool).max(Dims::keep(-2))] {
        let e = y.ty().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Shape, "{e}");
    }
    assert_eq!(type_of(x.max(1)), "float32[0]", "each of no rows has a greatest element");
    assert_eq!(x.logsumexp(0).to_vec::<f32>()?, [f32::NEG_INFINITY; 4]);
    assert_eq!(type_of(x.softmax(0)), "float32[0,4]");
    assert_eq!(x.sum(0).to_vec::<f32>()?, [0.0; 4]);
    Ok(())
}

#[test]
fn means_of_64_bit_integers_are_float64() -> Result<()> {
    let x = Array::from([1i64 << 40, (1 << 40) + 2]);
    assert_eq!(x.mean(..).item::<f64>()?, ((1i64 << 40) + 1) as f64);
    assert_eq!((x.var(..).item::<f64>()?, x.std(..).item::<f64>()?), (1.0, 1.0));
    assert_eq!(type_of(x.logsumexp(..)), "float64[]");
    assert_eq!(type_of(x.astype(I32).mean(..)), "float32[]");
    Ok(())
}

#[test]
fn a_leading_1_that_is_split_is_not_repeated() -> Result<()> {
    let mesh = Mesh::new([("X", 1), ("Y", 2)])?;
    let x = Array::ones([1, 4, 2]).put(&mesh, p!["X", _, _]);
    let e = x.matmul(Array::ones([3, 2, 4]).put(&mesh, p![])).ty().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Sharding, "{e}");
    let whole = x.reshard(p![_, _, _]).matmul(Array::ones([3, 2, 4]).put(&mesh, p![]));
    assert_eq!(type_of(whole), "float32[3,4,4]");
    Ok(())
}

#[test]
fn shifts_assignments_and_conversions() -> Result<()> {
    let x = Array::from([-8, 9]);
    assert_eq!((&x << 1).to_vec::<i32>()?, [-16, 18]);
    assert_eq!((&x >> 1).to_vec::<i32>()?, [-4, 4], "signed ones keep their sign");
    assert_eq!((Array::from([0x8000_0000u32]) >> 31).to_vec::<u32>()?, [1]);
    let mut y = x.clone();
    y <<= 2;
    y >>= 1;
    y &= 0xff;
    y |= 1;
    y ^= 2;
    assert_eq!(y.to_vec::<i32>()?, [-16, 18].map(|n: i32| ((n & 0xff) | 1) ^ 2));
    let v: Vec<i32> = (&x).try_into()?;
    let a = atmesh::nd::ArrayD::<i32>::try_from(&x)?;
    assert_eq!((v, a[[1]]), (vec![-8, 9], 9));
    assert!(Vec::<f32>::try_from(&x).is_err());
    assert_eq!((0..3).collect::<Array>().to_vec::<i32>()?, [0, 1, 2]);
    assert_eq!([&x, &x].into_iter().sum::<Array>().to_vec::<i32>()?, [-16, 18]);
    assert_eq!(type_of(std::iter::empty::<Array>().sum::<Array>()), "float32[]");
    Ok(())
}

#[test]
fn keys_are_taken_by_an_index_of_run_time() -> Result<()> {
    let keys = Key::new(3).split_array([4]);
    let f = jit(|keys: &Array, i: &Array| Key::from_array(keys.slice(ix![i])).bits([2]));
    for i in 0..4 {
        let fixed = Key::from_array(keys.slice(ix![i])).bits([2]).to_vec::<u32>()?;
        assert_eq!(f.call((&keys, Array::from(i)))?.to_vec::<u32>()?, fixed);
        assert_eq!(Key::from_array(keys.slice(ix![&Array::from(i)])).bits([2]).to_vec::<u32>()?, fixed);
    }
    Ok(())
}

#[test]
fn what_users_hold_prints_and_passes_catch_unwind() -> Result<()> {
    let x = Array::from([1.0f32, 2.0]);
    let f = jit(|x: &Array| x + 1.0);
    let compiled = f.lower(&x)?.compile()?;
    let caught = std::panic::catch_unwind(|| (x.sum(..).item::<f32>(), f.call(&x), compiled.call(&x)));
    assert_eq!(caught.unwrap().0?, 3.0);
    let mesh = Mesh::new([("X", 2)])?;
    let each = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x + 1.0);
    let (_, pull) = atmesh::vjp(&x, |x| x.sin());
    assert!(format!("{f:?}").contains("Jit") && format!("{each:?}").contains("Mesh(X: 2)"));
    assert_eq!(
        (format!("{compiled:?}"), format!("{pull:?}")),
        ("Compiled(for float32[2])".into(), "Pullback(of float32[2])".into())
    );
    for axis in &Axes::from(["X", "Y"]) {
        assert_eq!(mesh.axis_size(axis).is_ok(), mesh.find(axis).is_some());
        assert_eq!(mesh.stride(axis).is_ok(), mesh.find(axis).is_some());
    }
    let error = mesh.axis_size("Y").unwrap_err().unquoted();
    assert!(error.contains("its only axis is X"), "{error}");
    for n in [1 << 22, 1 << 32, usize::MAX] {
        assert!(atmesh::devices(n).unwrap_err().unquoted().contains("at most 1048576"));
    }
    assert_eq!(einsum("ii", [&Array::from([[1, 2]])]).item::<i32>()?, 3, "a size of 1 is repeated");
    Ok(())
}
