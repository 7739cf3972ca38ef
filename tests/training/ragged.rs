//! `ragged_dot`: the loop over groups, derivatives, shardings, engines and errors.

use crate::error_checks::Unquoted;
use atmesh::prelude::*;
use atmesh::{DotOptions, EngineKind, concat, stack};

const SHAPE: [usize; 4] = [16, 8, 4, 12];

/// Returns rows, matrices of four groups, and cotangents.
fn operands(dtype: DType) -> [Array; 3] {
    let [m, k, g, n] = SHAPE;
    let normal = |i: u64, shape: &[usize]| Key::new(i).normal(F32.array_type(shape)).astype(dtype);
    [normal(1, &[m, k]), normal(2, &[g, k, n]), normal(3, &[m, n])]
}

/// Returns the product by a loop over the groups.
fn looped(x: &Array, w: &Array, sizes: &[usize]) -> Array {
    let (mut from, mut parts) = (0, Vec::new());
    for (group, size) in sizes.iter().enumerate() {
        parts.push(x.slice(ix![from..from + size]).dot(w.slice(ix![group])));
        from += size;
    }
    let [m, _, _, n] = SHAPE;
    parts.push(Array::zeros(w.ty().expect("it has a type").dtype.array_type([m - from, n])));
    concat(&parts, 0)
}

fn array(sizes: &[usize]) -> Array {
    Array::from(sizes.iter().map(|s| *s as i32).collect::<Vec<_>>())
}

/// Returns the product, and its derivatives by the rows and by the matrices.
fn with_derivatives(f: impl Fn(&Array, &Array) -> Array, [x, w, ct]: &[Array; 3]) -> [Array; 3] {
    let (dx, dw) = grad((x, w), |(x, w)| (f(&x, &w) * ct).sum(..));
    [f(x, w), dx, dw]
}

fn assert_close(a: &[Array; 3], b: &[Array; 3], tolerance: f64, what: &str) -> Result<()> {
    for (a, b) in a.iter().zip(b) {
        assert!(a.allclose_with(b, tolerance, tolerance)?, "{what}\n{a}\n{b}");
    }
    Ok(())
}

const SIZES: [&[usize]; 5] = [&[4, 4, 4, 4], &[3, 0, 7, 2], &[0, 0, 0, 16], &[0, 0, 0, 0], &[1, 9, 5, 1]];

#[test]
fn it_equals_the_loop_and_so_do_its_derivatives() -> Result<()> {
    let all = operands(F64);
    for sizes in SIZES {
        let ragged = with_derivatives(|x, w| x.ragged_dot(w, array(sizes)), &all);
        let plain = with_derivatives(|x, w| looped(x, w, sizes), &all);
        assert_close(&ragged, &plain, 1e-12, &format!("{sizes:?}"))?;
    }
    // second derivatives, which are products of both forms again
    let [x, w, _] = &all;
    let second = |f: &dyn Fn(&Array, &Array) -> Array| {
        grad(w, |w| grad(x, |x| f(&x, &w).sin().sum(..)).square().sum(..))
    };
    let sizes = SIZES[1];
    let (a, b) = (second(&|x, w| x.ragged_dot(w, array(sizes))), second(&|x, w| looped(x, w, sizes)));
    assert!(a.allclose_with(&b, 1e-11, 1e-11)?, "{a}\n{b}");
    Ok(())
}

/// Infinite rows after the groups, and infinite matrices of other groups, have no effect.
#[test]
fn only_the_rows_and_the_matrix_of_a_group_count() -> Result<()> {
    let x = Array::from([[1.0f32, 2.0], [3.0, 4.0], [f32::NAN, f32::INFINITY]]);
    let w = Array::from([[1.0f32, 1.0], [f32::INFINITY, f32::NAN], [2.0, 3.0]]).expand_dims(2);
    let sizes = Array::from([1, 0, 1]);
    assert_eq!(x.ragged_dot(&w, &sizes).to_vec::<f32>()?, [3.0, 18.0, 0.0]);
    let dw = grad(&w, |w| x.ragged_dot(&w, &sizes).sum(..));
    assert_eq!(dw.to_vec::<f32>()?, [1.0, 2.0, 0.0, 0.0, 3.0, 4.0]);
    Ok(())
}

#[test]
fn sizes_that_do_not_fit_have_a_documented_value() -> Result<()> {
    let (x, w) = (Array::ones([4, 2]), stack([Array::ones([2, 1]), Array::full([2, 1], 10.0f32)], 0));
    let product = |sizes: Array| x.ragged_dot(&w, sizes).to_vec::<f32>();
    assert_eq!(product(Array::from([-3, 2]))?, [20.0, 20.0, 0.0, 0.0]);
    assert_eq!(product(Array::from([3, 9]))?, [2.0, 2.0, 2.0, 20.0]);
    assert_eq!(product(Array::from([i32::MAX, i32::MAX]))?, [2.0; 4]);
    assert_eq!(product(Array::from([i64::MAX, i64::MIN]))?, [2.0; 4]);
    assert_eq!(product(Array::from([u64::MAX, 1]))?, [2.0; 4]);
    assert_eq!(product(Array::from([1u8, 200]))?, [2.0, 20.0, 20.0, 20.0]);
    assert_eq!(product(Array::from([1i8, 100]))?, [2.0, 20.0, 20.0, 20.0]);
    Ok(())
}

#[test]
fn sizes_of_zero_are_accepted() -> Result<()> {
    let zeros = |shape: &[usize]| Array::zeros(F32.array_type(shape));
    for (m, k, g, n) in [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)] {
        let sizes = Array::zeros(I32.array_type([g])) + 1;
        let (x, w) = (zeros(&[m, k]), zeros(&[g, k, n]));
        assert_eq!(x.ragged_dot(&w, &sizes).to_vec::<f32>()?, vec![0.0; m * n]);
        let (dx, dw) = grad((&x, &w), |(x, w)| x.ragged_dot(&w, &sizes).sum(..));
        assert_eq!((dx.shape()?, dw.shape()?), ([m, k].into(), [g, k, n].into()));
    }
    Ok(())
}

/// A name, the shardings of rows and matrices, the sharding of the result, and its type.
type ShardingCase = (&'static str, [fn() -> Spec; 2], Option<fn() -> Spec>, &'static str);

const SHARDINGS: &[ShardingCase] = &[
    ("rows", [|| p!["X"], || p![]], None, "[16@X,12]"),
    ("columns", [|| p![], || p![_, _, "X"]], None, "[16,12@X]"),
    ("rows and columns", [|| p!["X"], || p![_, _, "Y"]], None, "[16@X,12@Y]"),
    ("contracted, of one", [|| p![_, "X"], || p![]], None, "[16,12]"),
    ("contracted", [|| p![_, "X"], || p![_, "X"]], Some(|| p![]), "[16,12]"),
    ("contracted, scattered", [|| p![_, "X"], || p![_, "X"]], Some(|| p!["X"]), "[16@X,12]"),
    ("contracted, unreduced", [|| p![_, "X"], || p![_, "X"]], Some(|| p![_, _; U: "X"]), "[16,12]{U:X}"),
    ("groups", [|| p![], || p!["X"]], None, "[16,12]"),
    ("groups and rows", [|| p!["X"], || p!["X"]], None, "[16@X,12]"),
    ("groups, scattered", [|| p![], || p!["X"]], Some(|| p![_, "X"]), "[16,12@X]"),
    ("groups, unreduced", [|| p!["Y"], || p!["X"]], Some(|| p!["Y", _; U: "X"]), "[16@Y,12]{U:X}"),
    ("all", [|| p!["X", "Y"], || p![_, "Y"]], Some(|| p!["X", "Y"]), "[16@X,12@Y]"),
];

#[test]
fn sharded_equals_unsharded() -> Result<()> {
    let all = operands(F64);
    let [x, w, ct] = &all;
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    for sizes in [SIZES[1], SIZES[4]] {
        let plain = with_derivatives(|x, w| x.ragged_dot(w, array(sizes)), &all);
        for (what, [by_x, by_w], out, ty) in SHARDINGS {
            for (mesh, explicit) in [(&mesh, true), (&mesh.with_auto(mesh.axis_names())?, false)] {
                let sizes = array(sizes);
                let product = |x: &Array, w: &Array| match out {
                    Some(out) if explicit => x.ragged_dot_to(w, &sizes, out()),
                    _ => x.ragged_dot(w, &sizes),
                };
                let placed = [x.put(mesh, by_x()), w.put(mesh, by_w()), ct.put(mesh, p![])];
                let f = jit(|x: &Array, w: &Array, ct: &Array| {
                    let full = |y: Array| if explicit { y.reshard(p![]) } else { y };
                    let (dx, dw) = grad((x, w), |(x, w)| (full(product(&x, &w)) * ct).sum(..));
                    (product(x, w), dx, dw)
                });
                let (y, dx, dw) = f.call((&placed[0], &placed[1], &placed[2]))?;
                if explicit {
                    assert_eq!(type_of(&y).to_string(), format!("float64{ty}"), "{what}");
                    assert_eq!(type_of(&dx), type_of(&placed[0]), "{what}");
                    assert_eq!(type_of(&dw), type_of(&placed[1]), "{what}");
                }
                let whole = |y: Array| if explicit { y.reshard(p![]) } else { y };
                assert_close(&[whole(y), dx, dw], &plain, 1e-12, what)?;
            }
        }
    }
    Ok(())
}

#[test]
fn one_result_on_all_engines() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    for dtype in [F32, F64, BF16, F16, I32, C64] {
        let [x, w, _] = operands(F32);
        let scaled = |x: Array| if dtype == I32 { (x * 8.0).astype(dtype) } else { x.astype(dtype) };
        let (x, w) = (scaled(x), scaled(w));
        for (rows, columns) in [(p![], p![]), (p!["X"], p![]), (p![], p![_, _, "X"])] {
            let on = |engine| {
                let f = jit(|x: &Array, w: &Array| x.ragged_dot(w, Array::from([5, 0, 6, 2])));
                let y = f.engine(engine).call((&x.put(&mesh, rows), &w.put(&mesh, columns)))?;
                let y = y.reshard(p![]);
                let parts = if dtype == C64 { vec![y.real(), y.imag()] } else { vec![y] };
                parts.iter().map(|y| y.astype(F64).to_vec::<f64>()).collect::<Result<Vec<_>>>()
            };
            let lockstep = on(EngineKind::Lockstep)?;
            assert_eq!(lockstep, on(EngineKind::Threads)?, "{dtype}");
            assert_eq!(lockstep, on(EngineKind::Reference)?, "{dtype}");
        }
    }
    Ok(())
}

#[test]
fn sixteen_bits_are_summed_in_float32() -> Result<()> {
    let x = Array::ones(BF16.array_type([2, 1000]));
    let w = Array::ones(BF16.array_type([1, 1000, 1]));
    let sizes = Array::from([2]);
    assert_eq!(x.ragged_dot(&w, &sizes).astype(F32).to_vec::<f32>()?, [1000.0; 2]);
    let wide = x.ragged_dot_with(&w, &sizes, DotOptions::default().accum_dtype(F32));
    assert_eq!(wide.to_vec::<f32>()?, [1000.0; 2]);
    Ok(())
}

#[test]
fn vmap_maps_any_of_the_operands() -> Result<()> {
    let [x, w, _] = operands(F64);
    let xs = stack([&x, &(&x * 0.5), &x.sin()], 0);
    let ws = stack([&w, &w.cos(), &(&w + 1.0)], 0);
    let sizes = stack([array(SIZES[0]), array(SIZES[1]), array(SIZES[4])], 0);
    let one = |a: &Array, i: usize| a.slice(ix![i]);
    let each = |f: &dyn Fn(usize) -> Array| stack((0..3).map(f).collect::<Vec<_>>(), 0);
    let product = |x: &Array, w: &Array, s: &Array| x.ragged_dot(w, s).sin();
    let s = array(SIZES[1]);
    let cases = [
        ("rows", vmap(&xs, |x| product(&x, &w, &s)), each(&|i| product(&one(&xs, i), &w, &s))),
        ("matrices", vmap(&ws, |w| product(&x, &w, &s)), each(&|i| product(&x, &one(&ws, i), &s))),
        ("sizes", vmap(&sizes, |s| product(&x, &w, &s)), each(&|i| product(&x, &w, &one(&sizes, i)))),
        (
            "all",
            vmap((&xs, &ws, &sizes), |(x, w, s)| product(&x, &w, &s)),
            each(&|i| product(&one(&xs, i), &one(&ws, i), &one(&sizes, i))),
        ),
        (
            "rows twice",
            vmap(&ws, |w| vmap(&xs, |x| product(&x, &w, &s))),
            each(&|i| each(&|j| product(&one(&xs, j), &one(&ws, i), &s))),
        ),
        (
            "derivatives by shared matrices",
            grad(&w, |w| vmap((&xs, &sizes), |(x, s)| product(&x, &w, &s)).sum(..)),
            grad(&w, |w| each(&|i| product(&one(&xs, i), &w, &one(&sizes, i))).sum(..)),
        ),
        (
            "derivatives by each example's",
            vmap((&xs, &ws), |(x, w)| grad(&w, |w| product(&x, &w, &s).sum(..))),
            each(&|i| grad(&one(&ws, i), |w| product(&one(&xs, i), &w, &s).sum(..))),
        ),
    ];
    for (what, mapped, expected) in cases {
        assert!(mapped.allclose_with(&expected, 1e-12, 1e-12)?, "{what}\n{mapped}\n{expected}");
    }
    Ok(())
}

#[test]
fn a_device_multiplies_the_rows_of_its_groups() -> Result<()> {
    let [x, w, _] = operands(F32);
    let mesh = Mesh::new([("X", 4)])?;
    let (x, w) = (x.put(&mesh, p![]), w.put(&mesh, p!["X"]));
    let f = jit(|x: &Array, w: &Array| x.ragged_dot(w, array(SIZES[1])));
    let report = f.lower((&x, &w))?.collectives().to_string();
    assert!(report.contains("all_reduce") && !report.contains("all_gather"), "{report}");
    Ok(())
}

#[test]
fn errors_say_what_to_write() {
    let f = |shape: &[usize]| Array::ones(F32.array_type(shape));
    let (x, w, sizes) = (f(&[4, 2]), f(&[3, 2, 5]), Array::from([1, 1, 2]));
    let text = |y: Array| y.ty().expect_err("it is invalid").unquoted();
    let contains = |y: Array, parts: &[&str]| {
        let text = text(y);
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
    };
    contains(x.ragged_dot(f(&[2, 5]), &sizes), &["rows [m, k], matrices [g, k, n]", "`vmap`"]);
    contains(
        x.ragged_dot(&w, Array::from([1, 2])),
        &["there are 2 sizes of groups, and 3 matrices", "give 3"],
    );
    contains(x.ragged_dot(&w, Array::from([1.0f32, 1.0, 2.0])), &["integers, not float32", ".astype(I32)"]);
    contains(
        x.ragged_dot(f(&[3, 3, 5]), &sizes),
        &["dimension 1 of operand 0 has size 2, dimension 1 of operand 1 size 3"],
    );
    contains(
        x.ragged_dot(w.astype(F64), &sizes),
        &["operand 0 is float32, operand 1 is float64", ".astype(F64)"],
    );
    let mesh = Mesh::new([("X", 2)]).expect("a mesh");
    let (x, w) = (x.put(&mesh, p![_, "X"]), w.put(&mesh, p![_, "X"]));
    contains(
        x.ragged_dot(&w, &sizes),
        &[
            "dimension 1 of operand 0, 2@X, and dimension 1 of operand 1, 2@X, are contracted",
            "x.ragged_dot_to(&w, &group_sizes, p![_, _])",
        ],
    );
    let mesh = Mesh::new([("Y", 3)]).expect("a mesh");
    contains(
        f(&[4, 2]).ragged_dot(f(&[3, 2, 5]), sizes.put(&mesh, p!["Y"])),
        &["the sizes of groups are sharded over Y", "reshard operand 2: `.reshard(p![])`"],
    );
}
