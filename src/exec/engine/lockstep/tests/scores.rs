//! Tests of row fusion with matrix products: attention scores, softmax and the second product.
//!
//! These become one node, which must compute the same bits as its groups do separately.

use super::*;

/// The sizes of an attention: heads, queries, keys, features.
type AttentionSizes = [usize; 4];

/// Adds an attention and returns its scores, weights and results.
/// `turned` puts the dimension of heads after that of queries.
fn attention(m: &mut SampleBuilder, [h, q, k, d]: AttentionSizes, turned: bool) -> [Slot; 3] {
    let num_shards = if h == 8 { 8 } else { 1 };
    let [x, y, z] = [[h, q, d], [h, k, d], [h, k, d]].map(|shape| m.input(&shape, &[num_shards, 1, 1]));
    let at = |l: [usize; 3]| l.map(|l| (Some(l), 0));
    let ext = [h, q, k, d];
    let reads = vec![m.read(x, &ext, &at([0, 1, 3])), m.read(y, &ext, &at([0, 2, 3]))];
    let body = || Compute::Contract { accum_dtype: m.dtype, precision: Precision::Highest };
    let body = [body(), body()];
    let [first, second] = body;
    let scores = m.fold(&ext, 3, &[num_shards, 1, 1, 1], reads, first);
    let scores = m.scale(scores, 0.125, 0.0);
    let shape = [h, q, k];
    let along = |m: &mut SampleBuilder, f: ScalarOp, x: Slot, of_rows: Slot| {
        let reads = vec![m.read_all(x), m.read(of_rows, &shape, &[(Some(0), 0), (Some(1), 0)])];
        m.map(f, &shape, &[num_shards, 1, 1], reads)
    };
    let most = m.fold_over(scores, &[2], 1, Reducer::Max);
    let below = along(m, ScalarOp::Sub, scores, most);
    let e = m.unary(ScalarOp::Exp, below);
    let sum = m.fold_over(e, &[2], 1, Reducer::Add);
    let weights = along(m, ScalarOp::Div, e, sum);
    let (ext, reads) =
        if turned { ([q, h, d, k], [[1, 0, 3], [1, 3, 2]]) } else { ([h, q, d, k], [[0, 1, 3], [0, 3, 2]]) };
    let reads = vec![m.read(weights, &ext, &at(reads[0])), m.read(z, &ext, &at(reads[1]))];
    let split = if turned { [1, num_shards, 1, 1] } else { [num_shards, 1, 1, 1] };
    let out = m.fold(&ext, 3, &split, reads, second);
    [scores, weights, out]
}

const SIZES: &[AttentionSizes] = match cfg!(miri) {
    true => &[[2, 9, 50, 2]],
    false => &[
        [2, 40, 64, 3],
        [3, 130, 70, 2],
        // batches of rows of which some belong to two heads
        [2, 149, 66, 3],
        // each device has one head
        [8, 16, 70, 2],
    ],
};

#[test]
fn scores_stay_in_cache_and_have_the_same_bits() {
    for &sizes in SIZES {
        for turned in [false, true] {
            for dtype in [DType::F32, DType::F64].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
                let make = |outs: fn([Slot; 3]) -> Vec<Slot>| {
                    let mut m = SampleBuilder::new(dtype);
                    let made = attention(&mut m, sizes, turned);
                    m.finish(&outs(made))
                };
                let (one, kept) = (make(|m| vec![m[2]]), make(|m| vec![m[1], m[2]]));
                let (scores, apart) = (make(|m| vec![m[0], m[2]]), make(|m| m.to_vec()));
                check("the result", &one, 1e-5);
                check("both are kept", &apart, 1e-5);
                let alone = LockstepExecutable::new(&one, &[], None).unwrap();
                let report = alone.report().listing;
                assert!(report.contains("products of rows"), "{sizes:?}: {report}");
                assert_eq!(alone.compiled.arena_bytes, 0, "{sizes:?}: {report}");
                let mut args = inputs(&one);
                let alone = alone.call(&mut args).unwrap();
                for (p, last) in [(&kept, 1), (&scores, 1), (&apart, 2)] {
                    let beside =
                        LockstepExecutable::new(p, &[], Some(true)).unwrap().call(&mut args).unwrap();
                    assert!(bytes(&alone[0]) == bytes(&beside[last]), "{sizes:?}: {report}");
                }
            }
        }
    }
}

/// Checks that an operation that reads all rows waits for all of them.
#[test]
fn a_product_over_rows_is_not_of_them() {
    let [n, c] = if cfg!(miri) { [16, 3] } else { [160, 24] };
    let mut m = SampleBuilder::new(F32_DTYPE);
    let x = m.input(&[n, c], &[8, 1]);
    let most = m.fold_over(x, &[1], 1, Reducer::Max);
    let reads = vec![m.read_all(x), m.read(most, &[n, c], &[(Some(0), 0)])];
    let less = m.map(ScalarOp::Sub, &[n, c], &[8, 1], reads);
    let square = m.dot(less, false, less, true, [8, 1, 1]);
    let over = m.dot(less, true, less, false, [1, 1, 1]);
    let p = m.finish(&[square, over]);
    check("products over rows", &p, 1e-5);
    assert!(!LockstepExecutable::new(&p, &[], None).unwrap().report().listing.contains("products of rows"));
}

/// Checks that each element of a product is rounded before it is multiplied by a scalar.
/// The scalar is applied inside the kernel of the product, with the same result as for a stored
/// product.
#[test]
fn products_are_rounded_before_they_are_multiplied() {
    let sizes = if cfg!(miri) {
        vec![[5, 4, 7]]
    } else {
        vec![[40, 50, 70], [5, 4, 7], [64, 64, 512], [64, 30, 513]]
    };
    for (dtype, [r, c, k]) in
        [F32_DTYPE, DType::F64].into_iter().flat_map(|t| sizes.iter().map(move |s| (t, *s)))
    {
        let make = |outs: fn([Slot; 2]) -> Vec<Slot>| {
            let mut m = SampleBuilder::new(dtype);
            let (x, y) = (m.input(&[r, k], &[1, 1]), m.input(&[c, k], &[1, 1]));
            let product = m.dot(x, false, y, true, [1, 1, 1]);
            let read = m.read_all(product);
            let by = ScalarCode::single(
                ScalarOp::Mul,
                dtype,
                dtype,
                &[ScalarArg::Access(0), ScalarArg::Const(Scalar::Float(0.3))],
            );
            let scaled = m.local(&[r, c], &[1, 1], vec![read], dtype, by);
            m.finish(&outs([product, scaled]))
        };
        let (alone, kept) = (make(|[_, s]| vec![s]), make(|[p, s]| vec![p, s]));
        check("a product and a number", &alone, 1e-4);
        let mut args = inputs(&alone);
        let [alone, kept] =
            [alone, kept].map(|p| LockstepExecutable::new(&p, &[], None).unwrap().call(&mut args).unwrap());
        assert!(bytes(&alone[0]) == bytes(&kept[1]), "{dtype} {r}×{k}×{c}");
    }
}
