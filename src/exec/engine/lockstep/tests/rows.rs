//! Tests of row fusion: reductions of rows and the operations on the same rows become one node.
//!
//! The node must compute the same bits as its groups do separately.

use super::gather_scatter::bound;
use super::*;
use crate::ir::program::OutOfBounds;

/// Returns a builder and its input `x`, whose rows are sharded over the devices.
fn rows(dtype: DType, shape: &[usize], num_shards: usize) -> (SampleBuilder, Slot) {
    let mut m = SampleBuilder::new(dtype);
    let x = m.input(shape, &[8, num_shards]);
    (m, x)
}
/// Adds `f` of `x` and a value that has one element for each row of `x`.
fn with_row_values(m: &mut SampleBuilder, f: ScalarOp, x: Slot, of_rows: Slot) -> Slot {
    let shape = m.shape(x);
    let (num_shards, reads) =
        (m.num_shards(x), vec![m.read_all(x), m.read(of_rows, &shape, &[(Some(0), 0)])]);
    m.map(f, &shape, &num_shards, reads)
}
/// Adds a softmax of rows, and returns its exponentials and its result.
fn softmax(m: &mut SampleBuilder, x: Slot, num_shards: usize) -> [Slot; 2] {
    let most = m.fold_over(x, &[1], num_shards, Reducer::Max);
    let below = with_row_values(m, ScalarOp::Sub, x, most);
    let e = m.unary(ScalarOp::Exp, below);
    let sum = m.sum(e, 1, num_shards);
    [e, with_row_values(m, ScalarOp::Div, e, sum)]
}
/// Adds the rows minus their means, and the same divided by its root mean square.
fn norm(m: &mut SampleBuilder, x: Slot, num_shards: usize) -> [Slot; 2] {
    let n = m.shape(x)[1] as f64;
    let sum = m.sum(x, 1, num_shards);
    let mean = m.scale(sum, 1.0 / n, 0.0);
    let centred = with_row_values(m, ScalarOp::Sub, x, mean);
    let square = m.binary(ScalarOp::Mul, centred, centred);
    let sum = m.sum(square, 1, num_shards);
    let mean = m.scale(sum, 1.0 / n, 1e-5);
    let root = m.unary(ScalarOp::Rsqrt, mean);
    [centred, with_row_values(m, ScalarOp::Mul, centred, root)]
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
                    m.finish(&outs(made))
                };
                let (one, both) = (make(|m| vec![m[1]]), make(|m| m.to_vec()));
                check("one result", &one, 1e-5);
                check("what lies between, too", &both, 1e-5);
                let report = LockstepExecutable::new(&one, &[], None).unwrap().report().listing;
                assert!(report.contains("rows %"), "{shape:?}: {report}");
                // intermediate values need no memory, and the bits do not depend on what else is
                // returned
                let (mut args, alone) = (inputs(&one), LockstepExecutable::new(&one, &[], None).unwrap());
                assert_eq!(alone.compiled.arena_bytes, 0, "{shape:?}: {report}");
                let alone = alone.call(&mut args).unwrap();
                let beside =
                    LockstepExecutable::new(&both, &[], Some(true)).unwrap().call(&mut args).unwrap();
                assert!(bytes(&alone[0]) == bytes(&beside[1]), "{shape:?}: {report}");
            }
        }
    }
}

/// Checks that operations on another argument with the same rows join the node of the rows.
#[test]
fn operations_on_the_same_rows_join() {
    for &shape in SHAPES {
        let make = |outs: fn([Slot; 3]) -> Vec<Slot>| {
            let (mut m, x) = rows(F32_DTYPE, &shape, 1);
            let u = m.input(&shape, &[8, 1]);
            let sibling = m.scale(u, 3.0, 1.0);
            let [_, y] = softmax(&mut m, x, 1);
            let product = m.binary(ScalarOp::Mul, y, sibling);
            let sum = m.sum(product, 1, 1);
            let less = with_row_values(&mut m, ScalarOp::Sub, sibling, sum);
            let out = m.binary(ScalarOp::Mul, less, y);
            m.finish(&outs([out, sibling, product]))
        };
        let (one, all) = (make(|m| vec![m[0]]), make(|m| m.to_vec()));
        check("the gradient of a softmax", &one, 1e-5);
        check("and what lies between", &all, 1e-5);
        let alone = LockstepExecutable::new(&one, &[], None).unwrap();
        let report = alone.report().listing;
        assert!(report.starts_with("  0  rows %") && report.lines().count() == 1, "{shape:?}: {report}");
        assert_eq!(alone.compiled.arena_bytes, 0, "{shape:?}: {report}");
        let mut args = inputs(&one);
        let alone = alone.call(&mut args).unwrap();
        let beside = LockstepExecutable::new(&all, &[], Some(true)).unwrap().call(&mut args).unwrap();
        assert!(bytes(&alone[0]) == bytes(&beside[0]), "{shape:?}: {report}");
    }
}

/// Adds the gradient of `norm` as autodiff produces it.
/// The squares, their sums, and a product with another argument and its sum become one row program.
/// Terms of a sum may be negated.
fn norm_gradient(m: &mut SampleBuilder, x: Slot, u: Slot) -> Vec<Slot> {
    let n = m.shape(x)[1] as f64;
    let sum = m.sum(x, 1, 1);
    let mean = m.scale(sum, 1.0 / n, 0.0);
    let centred = with_row_values(m, ScalarOp::Sub, x, mean);
    let square = m.binary(ScalarOp::Mul, centred, centred);
    let twice = m.scale(centred, 2.0, -0.0);
    let sum = m.sum(square, 1, 1);
    let mean = m.scale(sum, 1.0 / n, 1e-5);
    let root = m.unary(ScalarOp::Rsqrt, mean);
    let product = m.binary(ScalarOp::Mul, u, centred);
    let sum = m.sum(product, 1, 1);
    let slope = m.binary(ScalarOp::Mul, sum, root);
    let (a, b) =
        (with_row_values(m, ScalarOp::Mul, u, root), with_row_values(m, ScalarOp::Mul, twice, slope));
    let both = m.binary(ScalarOp::Add, a, b);
    let less = m.unary(ScalarOp::Neg, both);
    let sum = m.sum(less, 1, 1);
    let mean = m.scale(sum, 1.0 / n, 0.0);
    let out = with_row_values(m, ScalarOp::Add, both, mean);
    vec![out, centred, square, twice, product, both, less]
}

/// Checks that the stages of a row program run tile by tile where possible.
/// A value without other consumers occupies only one tile of memory, sums take their terms from
/// registers, and the bits do not depend on this.
#[test]
fn programs_of_a_row_run_together() {
    for &shape in SHAPES {
        for dtype in [DType::F32, DType::F64].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
            let make = |wanted: &[usize]| {
                let (mut m, x) = rows(dtype, &shape, 1);
                let u = m.input(&shape, &[8, 1]);
                let made = norm_gradient(&mut m, x, u);
                m.finish(&wanted.iter().map(|k| made[*k]).collect::<Vec<Slot>>())
            };
            let all: Vec<usize> = (0..7).collect();
            let plain = make(&all);
            check("the gradient of a norm", &plain, 1e-4);
            let mut args = inputs(&plain);
            let expected = LockstepExecutable::new(&plain, &[], Some(true)).unwrap().call(&mut args).unwrap();
            let some = std::iter::once(vec![0]).chain((1..7).map(|k| vec![0, k]));
            for wanted in some.take(if cfg!(miri) { 2 } else { 7 }) {
                let p = make(&wanted);
                for donated in [false, true] {
                    let ready = LockstepExecutable::new(&p, &[donated, donated], None).unwrap();
                    let report = ready.report().listing;
                    assert!(report.starts_with("  0  rows %"), "{shape:?}: {report}");
                    let got = ready.call(&mut inputs(&p)).unwrap();
                    for (got, k) in got.iter().zip(&wanted) {
                        assert!(bytes(got) == bytes(&expected[*k]), "{shape:?} {dtype} {wanted:?}: {report}");
                    }
                }
            }
        }
    }
}

/// Checks that operations on different rows are not fused.
/// The sum of a sharded row consists of partial values, and an operation that reads other rows
/// waits for all of them.
#[test]
fn operations_on_other_rows_stay_separate() {
    let [n, columns] = if cfg!(miri) { [16, 4] } else { [64, 48] };
    let (mut m, x) = rows(F32_DTYPE, &[n, columns], 1);
    let most = m.fold_over(x, &[1], 1, Reducer::Max);
    let turned = {
        let read = m.read(most, &[n, n], &[(Some(1), 0)]);
        m.map(ScalarOp::Exp, &[n, n], &[8, 1], vec![read])
    };
    let p = m.finish(&[turned]);
    check("a row's number in all rows", &p, 1e-5);
    assert!(!LockstepExecutable::new(&p, &[], None).unwrap().report().listing.contains("rows %"));
    for of in [softmax, norm] {
        let mut m = SampleBuilder::new(F32_DTYPE);
        let x = m.input(&[n, columns], &[2, 4]);
        let [_, y] = of(&mut m, x, 4);
        check("split rows", &m.finish(&[y]), 1e-5);
    }
}

/// Checks that a result that overwrites an argument is not read from that argument afterwards.
#[test]
fn donated_rows() {
    let (mut m, x) = rows(F32_DTYPE, if cfg!(miri) { &[16, 5] } else { &[64, 256] }, 1);
    let [_, y] = softmax(&mut m, x, 1);
    let p = m.finish(&[y]);
    let expected = LockstepExecutable::new(&p, &[], Some(true)).unwrap().call(&mut inputs(&p)).unwrap();
    for inline in [true, false] {
        let got = LockstepExecutable::new(&p, &[true], Some(inline)).unwrap().call(&mut inputs(&p)).unwrap();
        assert!(bytes(&got[0]) == bytes(&expected[0]), "inline {inline}");
    }
}

/// Checks that gathered rows, operations on them and a reduction become one node.
/// Intermediate values have no memory.
#[test]
fn rows_that_are_taken() {
    for dtype in [DType::F16, DType::F32, DType::F64].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        for beyond in [OutOfBounds::Clip, OutOfBounds::Drop] {
            let (n, c) = if cfg!(miri) { (70, 3) } else { (150, 40) };
            let make = |num_shards: usize, columns: usize| {
                let mut m = SampleBuilder::new(dtype);
                let (x, i) = (m.input(&[8, c], &[num_shards, columns]), m.indices(n));
                let extents = [n, c, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Compute::Gather { indices: bound(2, 1, 7, beyond, None) };
                let taken = m.fold(&extents, 2, &[1, columns, num_shards], reads, body);
                let twice = m.scale(taken, 2.0, 0.5);
                let most = m.fold_over(twice, &[1], columns, Reducer::Max);
                m.finish(&[twice, most])
            };
            for (num_shards, columns) in
                [(1, 1), (8, 1), (1, 2)].into_iter().take(if cfg!(miri) { 1 } else { 3 })
            {
                check("rows that are taken", &make(num_shards, columns), 0.0);
            }
            let report = LockstepExecutable::new(&make(1, 1), &[], None).unwrap().report().listing;
            assert!(report.contains("rows %") && !report.contains("gather %"), "{report}");
        }
    }
}

/// Checks that gathering rows, changing them and scattering them becomes one node.
/// This is the gradient of a lookup. The updates are applied in order, and intermediate values have
/// no memory.
#[test]
fn gathered_and_scattered_rows() {
    let (n, c) = if cfg!(miri) { (70, 3) } else { (150, 40) };
    for (k, combine) in [None, Some(Reducer::Add), Some(Reducer::Max)].into_iter().enumerate() {
        for beyond in [OutOfBounds::Clip, OutOfBounds::Drop] {
            // Miri needs minutes for each of these
            if cfg!(miri) && (k == 2 || (k == 1) != (beyond == OutOfBounds::Drop)) {
                continue;
            }
            let make = |base: bool, more: bool| {
                let mut m = SampleBuilder::new(F32_DTYPE);
                let (x, i) = (m.input(&[8, c], &[1, 1]), m.indices(n));
                let extents = [n, c, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Compute::Gather { indices: bound(2, 1, 7, beyond, None) };
                let taken = m.fold(&extents, 2, &[1, 1, 1], reads, body);
                let twice = m.scale(taken, 2.0, 0.5);
                let extents = [8, c, n];
                let mut was = m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]);
                if !base {
                    was.pieces.clear();
                }
                let reads = vec![
                    was,
                    m.read(twice, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                let body = Compute::Scatter { indices: bound(0, 2, 7, beyond, None), reducer: combine };
                let scatter = m.fold(&extents, 2, &[1, 1, 1], reads, body);
                let after = m.scale(scatter, 3.0, 0.0);
                let most = m.fold_over(twice, &[1], 1, Reducer::Max);
                m.finish(&if more { vec![scatter, twice, most, after] } else { vec![scatter] })
            };
            for base in [true, false].into_iter().skip(if cfg!(miri) { k } else { 0 }) {
                check("taken and put", &make(base, false), 1e-5);
                check("and what lies between", &make(base, true), 1e-5);
                let (one, all) = (make(base, false), make(base, true));
                let alone = LockstepExecutable::new(&one, &[], None).unwrap();
                let report = alone.report().listing;
                // a separate node computes the indices
                let rows = report.lines().filter(|l| l.contains("rows %")).count();
                assert!(rows == 1 && report.lines().count() == 2 && !report.contains("gather %"), "{report}");
                let mut args = inputs(&one);
                let got = alone.call(&mut args).unwrap();
                let beside =
                    LockstepExecutable::new(&all, &[], Some(false)).unwrap().call(&mut args).unwrap();
                assert!(bytes(&got[0]) == bytes(&beside[0]), "{report}");
            }
        }
    }
}
