//! Products beside rows: scores of attention, their softmax and the product that reads it are one node, of the bits that each has by itself.

use super::*;

/// Heads, queries, keys, features.
type Sizes = [usize; 4];

/// Scores, weights and results of attention; `turned`: with the heads behind the queries.
fn attention(m: &mut Make, [h, q, k, d]: Sizes, turned: bool) -> [Slot; 3] {
    let ways = if h == 8 { 8 } else { 1 };
    let [x, y, z] = [[h, q, d], [h, k, d], [h, k, d]].map(|shape| m.input(&shape, &[ways, 1, 1]));
    let at = |l: [usize; 3]| l.map(|l| (Some(l), 0));
    let ext = [h, q, k, d];
    let reads = vec![m.read(x, &ext, &at([0, 1, 3])), m.read(y, &ext, &at([0, 2, 3]))];
    let body = || Body::Product { accumulate: m.dtype };
    let body = [body(), body()];
    let [first, second] = body;
    let scores = m.fold(&ext, 3, &[ways, 1, 1, 1], reads, first);
    let scores = m.scale(scores, 0.125, 0.0);
    let shape = [h, q, k];
    let along = |m: &mut Make, f: Fun, x: Slot, of_rows: Slot| {
        let reads = vec![m.id(x), m.read(of_rows, &shape, &[(Some(0), 0), (Some(1), 0)])];
        m.map(f, &shape, &[ways, 1, 1], reads)
    };
    let most = m.fold_over(scores, &[2], 1, Combine::Max);
    let below = along(m, Fun::Sub, scores, most);
    let e = m.un(Fun::Exp, below);
    let sum = m.fold_over(e, &[2], 1, Combine::Add);
    let weights = along(m, Fun::Div, e, sum);
    let (ext, reads) =
        if turned { ([q, h, d, k], [[1, 0, 3], [1, 3, 2]]) } else { ([h, q, d, k], [[0, 1, 3], [0, 3, 2]]) };
    let reads = vec![m.read(weights, &ext, &at(reads[0])), m.read(z, &ext, &at(reads[1]))];
    let split = if turned { [1, ways, 1, 1] } else { [ways, 1, 1, 1] };
    let out = m.fold(&ext, 3, &split, reads, second);
    [scores, weights, out]
}

const SIZES: &[Sizes] = match cfg!(miri) {
    true => &[[2, 9, 50, 2]],
    false => &[
        [2, 40, 64, 3],
        [3, 130, 70, 2],
        // turns of which some are of two heads
        [2, 149, 66, 3],
        // each device has a head
        [8, 16, 70, 2],
    ],
};

#[test]
fn scores_stay_in_cache_and_have_the_same_bits() {
    for &sizes in SIZES {
        for turned in [false, true] {
            for dtype in [DType::F32, DType::F64].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
                let make = |outs: fn([Slot; 3]) -> Vec<Slot>| {
                    let mut m = Make::new(dtype);
                    let made = attention(&mut m, sizes, turned);
                    m.done(&outs(made))
                };
                let (one, kept) = (make(|m| vec![m[2]]), make(|m| vec![m[1], m[2]]));
                let (scores, apart) = (make(|m| vec![m[0], m[2]]), make(|m| m.to_vec()));
                check("the result", &one, 1e-5);
                check("both are kept", &apart, 1e-5);
                let alone = Ready::new(&one, &[], None).unwrap();
                let report = alone.report().text;
                assert!(report.contains("products of rows"), "{sizes:?}: {report}");
                assert_eq!(alone.compiled.arena, 0, "{sizes:?}: {report}");
                let mut args = inputs(&one);
                let alone = alone.call(&mut args).unwrap();
                for (p, last) in [(&kept, 1), (&scores, 1), (&apart, 2)] {
                    let beside = Ready::new(p, &[], Some(true)).unwrap().call(&mut args).unwrap();
                    assert!(bytes(&alone[0]) == bytes(&beside[last]), "{sizes:?}: {report}");
                }
            }
        }
    }
}

/// What reads all rows at once waits for all of them.
#[test]
fn a_product_over_rows_is_not_of_them() {
    let [n, c] = if cfg!(miri) { [16, 3] } else { [160, 24] };
    let mut m = Make::new(F);
    let x = m.input(&[n, c], &[8, 1]);
    let most = m.fold_over(x, &[1], 1, Combine::Max);
    let reads = vec![m.id(x), m.read(most, &[n, c], &[(Some(0), 0)])];
    let less = m.map(Fun::Sub, &[n, c], &[8, 1], reads);
    let square = m.dot(less, false, less, true, [8, 1, 1]);
    let over = m.dot(less, true, less, false, [1, 1, 1]);
    let p = m.done(&[square, over]);
    check("products over rows", &p, 1e-5);
    assert!(!Ready::new(&p, &[], None).unwrap().report().text.contains("products of rows"));
}

/// A number that a product is multiplied by is the product's own: each element is rounded before, as where it is kept.
#[test]
fn products_are_rounded_before_they_are_multiplied() {
    let sizes = if cfg!(miri) {
        vec![[5, 4, 7]]
    } else {
        vec![[40, 50, 70], [5, 4, 7], [64, 64, 512], [64, 30, 513]]
    };
    for (dtype, [r, c, k]) in [F, DType::F64].into_iter().flat_map(|t| sizes.iter().map(move |s| (t, *s))) {
        let make = |outs: fn([Slot; 2]) -> Vec<Slot>| {
            let mut m = Make::new(dtype);
            let (x, y) = (m.input(&[r, k], &[1, 1]), m.input(&[c, k], &[1, 1]));
            let product = m.dot(x, false, y, true, [1, 1, 1]);
            let read = m.id(product);
            let by = Code::one(Fun::Mul, dtype, dtype, &[Arg::Read(0), Arg::Const(Scalar::Float(0.3))]);
            let scaled = m.local(&[r, c], &[1, 1], vec![read], dtype, by);
            m.done(&outs([product, scaled]))
        };
        let (alone, kept) = (make(|[_, s]| vec![s]), make(|[p, s]| vec![p, s]));
        check("a product and a number", &alone, 1e-4);
        let mut args = inputs(&alone);
        let [alone, kept] =
            [alone, kept].map(|p| Ready::new(&p, &[], None).unwrap().call(&mut args).unwrap());
        assert!(bytes(&alone[0]) == bytes(&kept[1]), "{dtype} {r}×{k}×{c}");
    }
}
