//! Folds of rows and what reads them at the same rows: one node, that computes what its groups compute by themselves.

use super::seek::bound;
use super::*;
use crate::program::sentence::Beyond;

/// A program under construction and x, of rows that are split over the devices.
fn rows(dtype: DType, shape: &[usize], ways: usize) -> (Make, Slot) {
    let mut m = Make::new(dtype);
    let x = m.input(shape, &[8, ways]);
    (m, x)
}
/// `f` of x and what has a number for each of its rows.
fn along(m: &mut Make, f: Fun, x: Slot, of_rows: Slot) -> Slot {
    let shape = m.shape(x);
    let (ways, reads) = (m.ways(x), vec![m.id(x), m.read(of_rows, &shape, &[(Some(0), 0)])]);
    m.map(f, &shape, &ways, reads)
}
/// Softmax of rows: its exponentials and its result.
fn softmax(m: &mut Make, x: Slot, ways: usize) -> [Slot; 2] {
    let most = m.fold_over(x, &[1], ways, Combine::Max);
    let below = along(m, Fun::Sub, x, most);
    let e = m.un(Fun::Exp, below);
    let sum = m.sum(e, 1, ways);
    [e, along(m, Fun::Div, e, sum)]
}
/// Rows less their means, and that over its root mean square.
fn norm(m: &mut Make, x: Slot, ways: usize) -> [Slot; 2] {
    let n = m.shape(x)[1] as f64;
    let sum = m.sum(x, 1, ways);
    let mean = m.scale(sum, 1.0 / n, 0.0);
    let centred = along(m, Fun::Sub, x, mean);
    let square = m.bin(Fun::Mul, centred, centred);
    let sum = m.sum(square, 1, ways);
    let mean = m.scale(sum, 1.0 / n, 1e-5);
    let root = m.un(Fun::Rsqrt, mean);
    [centred, along(m, Fun::Mul, centred, root)]
}

const SHAPES: &[[usize; 2]] = match cfg!(miri) {
    true => &[[16, 3]],
    false => &[[16, 3], [64, 64], [200, 72], [24, 1300]],
};

#[test]
fn rows_are_one_node_of_the_same_bits() {
    for &shape in SHAPES {
        for of in [softmax, norm] {
            for dtype in [DType::F32, DType::F64].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
                let make = |outs: fn([Slot; 2]) -> Vec<Slot>| {
                    let (mut m, x) = rows(dtype, &shape, 1);
                    let made = of(&mut m, x, 1);
                    m.done(&outs(made))
                };
                let (one, both) = (make(|m| vec![m[1]]), make(|m| m.to_vec()));
                check("one result", &one, 1e-5);
                check("what lies between, too", &both, 1e-5);
                let report = Ready::new(&one, &[], None).unwrap().report().text;
                assert!(report.contains("rows %"), "{shape:?}: {report}");
                // nothing in between has room of its own, whoever wants it
                let (mut args, alone) = (inputs(&one), Ready::new(&one, &[], None).unwrap());
                assert_eq!(alone.compiled.arena, 0, "{shape:?}: {report}");
                let alone = alone.call(&mut args).unwrap();
                let beside = Ready::new(&both, &[], Some(true)).unwrap().call(&mut args).unwrap();
                assert!(bytes(&alone[0]) == bytes(&beside[1]), "{shape:?}: {report}");
            }
        }
    }
}

/// A gradient reads what is made of another argument beside the rows: that is in their node, too.
#[test]
fn what_is_made_beside_rows_joins_them() {
    for &shape in SHAPES {
        let make = |outs: fn([Slot; 3]) -> Vec<Slot>| {
            let (mut m, x) = rows(F, &shape, 1);
            let u = m.input(&shape, &[8, 1]);
            let beside = m.scale(u, 3.0, 1.0);
            let [_, y] = softmax(&mut m, x, 1);
            let product = m.bin(Fun::Mul, y, beside);
            let sum = m.sum(product, 1, 1);
            let less = along(&mut m, Fun::Sub, beside, sum);
            let out = m.bin(Fun::Mul, less, y);
            m.done(&outs([out, beside, product]))
        };
        let (one, all) = (make(|m| vec![m[0]]), make(|m| m.to_vec()));
        check("the gradient of a softmax", &one, 1e-5);
        check("and what lies between", &all, 1e-5);
        let alone = Ready::new(&one, &[], None).unwrap();
        let report = alone.report().text;
        assert!(report.starts_with("  0  rows %") && report.lines().count() == 1, "{shape:?}: {report}");
        assert_eq!(alone.compiled.arena, 0, "{shape:?}: {report}");
        let mut args = inputs(&one);
        let alone = alone.call(&mut args).unwrap();
        let beside = Ready::new(&all, &[], Some(true)).unwrap().call(&mut args).unwrap();
        assert!(bytes(&alone[0]) == bytes(&beside[0]), "{shape:?}: {report}");
    }
}

/// The gradient of `norm`, as a derivative writes it: squares, their sums, a product with another argument and its sum in one program; what is
/// summed up may be negated.
fn norm_gradient(m: &mut Make, x: Slot, u: Slot) -> Vec<Slot> {
    let n = m.shape(x)[1] as f64;
    let sum = m.sum(x, 1, 1);
    let mean = m.scale(sum, 1.0 / n, 0.0);
    let centred = along(m, Fun::Sub, x, mean);
    let square = m.bin(Fun::Mul, centred, centred);
    let twice = m.scale(centred, 2.0, -0.0);
    let sum = m.sum(square, 1, 1);
    let mean = m.scale(sum, 1.0 / n, 1e-5);
    let root = m.un(Fun::Rsqrt, mean);
    let product = m.bin(Fun::Mul, u, centred);
    let sum = m.sum(product, 1, 1);
    let slope = m.bin(Fun::Mul, sum, root);
    let (a, b) = (along(m, Fun::Mul, u, root), along(m, Fun::Mul, twice, slope));
    let both = m.bin(Fun::Add, a, b);
    let less = m.un(Fun::Neg, both);
    let sum = m.sum(less, 1, 1);
    let mean = m.scale(sum, 1.0 / n, 0.0);
    let out = along(m, Fun::Add, both, mean);
    vec![out, centred, square, twice, product, both, less]
}

/// Programs of a row run together where that is possible: what nobody else wants is in memory for a tile only, sums take what they add from
/// registers, and no bit depends on it.
#[test]
fn programs_of_a_row_run_together() {
    for &shape in SHAPES {
        for dtype in [DType::F32, DType::F64].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
            let make = |wanted: &[usize]| {
                let (mut m, x) = rows(dtype, &shape, 1);
                let u = m.input(&shape, &[8, 1]);
                let made = norm_gradient(&mut m, x, u);
                m.done(&wanted.iter().map(|k| made[*k]).collect::<Vec<Slot>>())
            };
            let all: Vec<usize> = (0..7).collect();
            let plain = make(&all);
            check("the gradient of a norm", &plain, 1e-4);
            let mut args = inputs(&plain);
            let want = Ready::new(&plain, &[], Some(true)).unwrap().call(&mut args).unwrap();
            let some = std::iter::once(vec![0]).chain((1..7).map(|k| vec![0, k]));
            for wanted in some.take(if cfg!(miri) { 2 } else { 7 }) {
                let p = make(&wanted);
                for donated in [false, true] {
                    let ready = Ready::new(&p, &[donated, donated], None).unwrap();
                    let report = ready.report().text;
                    assert!(report.starts_with("  0  rows %"), "{shape:?}: {report}");
                    let got = ready.call(&mut inputs(&p)).unwrap();
                    for (got, k) in got.iter().zip(&wanted) {
                        assert!(bytes(got) == bytes(&want[*k]), "{shape:?} {dtype} {wanted:?}: {report}");
                    }
                }
            }
        }
    }
}

/// Where a row is split, its sum is of partial values; and what reads other rows waits for all of them.
#[test]
fn what_is_not_of_the_same_rows_stays_apart() {
    let [n, columns] = if cfg!(miri) { [16, 4] } else { [64, 48] };
    let (mut m, x) = rows(F, &[n, columns], 1);
    let most = m.fold_over(x, &[1], 1, Combine::Max);
    let turned = {
        let read = m.read(most, &[n, n], &[(Some(1), 0)]);
        m.map(Fun::Exp, &[n, n], &[8, 1], vec![read])
    };
    let p = m.done(&[turned]);
    check("a row's number in all rows", &p, 1e-5);
    assert!(!Ready::new(&p, &[], None).unwrap().report().text.contains("rows %"));
    for of in [softmax, norm] {
        let mut m = Make::new(F);
        let x = m.input(&[n, columns], &[2, 4]);
        let [_, y] = of(&mut m, x, 4);
        check("split rows", &m.done(&[y]), 1e-5);
    }
}

/// A result that is written over the argument is not read from it any more.
#[test]
fn donated_rows() {
    let (mut m, x) = rows(F, if cfg!(miri) { &[16, 5] } else { &[64, 256] }, 1);
    let [_, y] = softmax(&mut m, x, 1);
    let p = m.done(&[y]);
    let want = Ready::new(&p, &[], Some(true)).unwrap().call(&mut inputs(&p)).unwrap();
    for inline in [true, false] {
        let got = Ready::new(&p, &[true], Some(inline)).unwrap().call(&mut inputs(&p)).unwrap();
        assert!(bytes(&got[0]) == bytes(&want[0]), "inline {inline}");
    }
}

/// Rows of a table at numbers, then what is computed of them and folded: one node, and nothing in between has room of its own.
#[test]
fn rows_that_are_taken() {
    for dtype in [DType::F16, DType::F32, DType::F64].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        for beyond in [Beyond::Clip, Beyond::Nothing] {
            let (n, c) = if cfg!(miri) { (70, 3) } else { (150, 40) };
            let make = |ways: usize, columns: usize| {
                let mut m = Make::new(dtype);
                let (x, i) = (m.input(&[8, c], &[ways, columns]), m.indices(n));
                let extents = [n, c, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Body::Take { at: bound(2, 1, 7, beyond, None) };
                let taken = m.fold(&extents, 2, &[1, columns, ways], reads, body);
                let twice = m.scale(taken, 2.0, 0.5);
                let most = m.fold_over(twice, &[1], columns, Combine::Max);
                m.done(&[twice, most])
            };
            for (ways, columns) in [(1, 1), (8, 1), (1, 2)].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
                check("rows that are taken", &make(ways, columns), 0.0);
            }
            let report = Ready::new(&make(1, 1), &[], None).unwrap().report().text;
            assert!(report.contains("rows %") && !report.contains("take %"), "{report}");
        }
    }
}

/// Rows that are taken, changed and put, as in the gradient of a lookup: one node, whose put goes through its updates in their order. Nothing
/// in between has room of its own.
#[test]
fn rows_that_are_taken_and_put() {
    let (n, c) = if cfg!(miri) { (70, 3) } else { (150, 40) };
    for (k, combine) in [None, Some(Combine::Add), Some(Combine::Max)].into_iter().enumerate() {
        for beyond in [Beyond::Clip, Beyond::Nothing] {
            // Miri takes minutes for each
            if cfg!(miri) && (k == 2 || (k == 1) != (beyond == Beyond::Nothing)) {
                continue;
            }
            let make = |base: bool, more: bool| {
                let mut m = Make::new(F);
                let (x, i) = (m.input(&[8, c], &[1, 1]), m.indices(n));
                let extents = [n, c, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Body::Take { at: bound(2, 1, 7, beyond, None) };
                let taken = m.fold(&extents, 2, &[1, 1, 1], reads, body);
                let twice = m.scale(taken, 2.0, 0.5);
                let extents = [8, c, n];
                let mut was = m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]);
                if !base {
                    was.parts.clear();
                }
                let reads = vec![
                    was,
                    m.read(twice, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                let body = Body::Put { at: bound(0, 2, 7, beyond, None), combine };
                let put = m.fold(&extents, 2, &[1, 1, 1], reads, body);
                let after = m.scale(put, 3.0, 0.0);
                let most = m.fold_over(twice, &[1], 1, Combine::Max);
                m.done(&if more { vec![put, twice, most, after] } else { vec![put] })
            };
            for base in [true, false].into_iter().skip(if cfg!(miri) { k } else { 0 }) {
                check("taken and put", &make(base, false), 1e-5);
                check("and what lies between", &make(base, true), 1e-5);
                let (one, all) = (make(base, false), make(base, true));
                let alone = Ready::new(&one, &[], None).unwrap();
                let report = alone.report().text;
                // (the numbers are made before)
                let rows = report.lines().filter(|l| l.contains("rows %")).count();
                assert!(rows == 1 && report.lines().count() == 2 && !report.contains("take %"), "{report}");
                let mut args = inputs(&one);
                let got = alone.call(&mut args).unwrap();
                let beside = Ready::new(&all, &[], Some(false)).unwrap().call(&mut args).unwrap();
                assert!(bytes(&got[0]) == bytes(&beside[0]), "{report}");
            }
        }
    }
}
