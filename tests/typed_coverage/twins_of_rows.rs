//! Twins of reductions, of operations along dims, and of operations on vectors.

use crate::operands::*;
use crate::twins::{Twin, each, twins};
use atmesh::GatherDims;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

pub(crate) fn reductions(o: &Operands, list: &mut Vec<Twin>) {
    let Operands { x, y, k, m, u, v, .. } = o;
    each!(list, x => T![f64; 4@X], (D1) (1);
        sum prod max min mean var std logsumexp nansum nanprod nanmax nanmin nanmean nanvar nanstd norm);
    each!(list, x => T![f64; 6], (D0) (0);
        sum prod max min mean var std logsumexp nansum nanprod nanmax nanmin nanmean nanvar nanstd norm);
    each!(list, x => T![f64; 4@X, ~], (keep(D1)) (Dims::keep(1)); norm nanmean);
    each!(list, x => T![f64;], (..) (..); norm nanmax);
    each!(list, m => T![bool; 4@X], (D1) (1); any all);
    each!(list, k => T![i32; 4@X], (D1) (1); bit_and bit_or count_nonzero argmax argmin);
    each!(list, m => T![i32; 6], (D0) (0); count_nonzero);
    each!(list, x => T![f64; 4@X, 6], (D1) (1); softmax log_softmax);
    each!(list, x => T![f64; 4@X], (D1, 1) (1, 1); var_ddof std_ddof);
    each!(list, x => T![f64; 4@X], (D1) (1); median);
    each!(list, x => T![f64; 4@X], (0.3, D1) (0.3, 1); quantile);
    each!(list, x => T![f64; 4@X], (30.0, D1) (30.0, 1); percentile);
    each!(list, x => T![f64; 6], (y, D0) (y.as_untyped(), 0); average);
    each!(list, u => T![f64; 3, 3], () (); cov corrcoef);
    each!(list, v => T![f64;], () (); cov corrcoef);
}

pub(crate) fn along_dims(o: &Operands, list: &mut Vec<Twin>) {
    let Operands { x, y, k, .. } = o;
    each!(list, x => T![f64; 4@X, 6], (D1) (1);
        sort cumsum cumprod cummax cummin cumlogsumexp cumsum_reverse cumprod_reverse cummax_reverse cummin_reverse
        cumlogsumexp_reverse);
    each!(list, k => T![i32; 4@X, 6], (D1) (1); sort argsort cumsum cummax_reverse);
    each!(list, x => T![f64; 4@X, 6], (y, D1) (y.as_untyped(), 1); recurrence);
    twins! { list;
        top_k: T![f64; 4@X, 2], x.top_k::<N![2], _>(D1).0, x.as_untyped().top_k(2, 1).0;
        top_k: T![i32; 4@X, 2], x.top_k::<N![2], _>(D1).1, x.as_untyped().top_k(2, 1).1;
    }
}

pub(crate) fn vectors(o: &Operands, list: &mut Vec<Twin>) {
    let Operands { x, k, s, r, v, w, points, ids, u, n, a, places, rows, .. } = o;
    let (uv, uw) = (v.as_untyped(), w.as_untyped());
    let by_row = GatherDims {
        start_index_map: vec![0],
        collapsed_dims: vec![0],
        offset_dims: vec![1],
        ..GatherDims::default()
    };
    let updates = rows.as_untyped();
    each!(list, s => T![f64; 4@X, 6@Y], (r) (r.as_untyped()); outer);
    each!(list, x => T![f64; 4@X], (v) (uv); inner);
    each!(list, x => T![f64; 4@X, 3], (&u.pad::<N![0], N![1], _>(D1, 0.0)) (u.pad::<N![0], N![1], _>(D1, 0.0).as_untyped()); inner);
    each!(list, u => T![f64;], (n) (n.as_untyped()); vdot);
    each!(list, s => T![f64; 24@X], (v) (uv); kron);
    each!(list, x => T![f64; 12@X, 30], (u) (u.as_untyped()); kron);
    each!(list, a => T![f64; 4@X, 3, 3], (a, D2) (a.as_untyped(), 2); cross);
    each!(list, x => T![f64; 4@X, 6], (points) (points.as_untyped()); polyval);
    each!(list, x => T![f64; 4@X, 6], (points, points) (points.as_untyped(), points.as_untyped()); interp);
    each!(list, points => T![i32; 4@X, 6], (x, true) (x.as_untyped(), true); searchsorted);
    each!(list, k => T![bool; 4@X, 6], (ids) (ids.as_untyped()); isin);
    each!(list, u => T![f64; 3, 5], (places, rows, &by_row) (places.as_untyped(), updates, &by_row);
        scatter scatter_add scatter_mul scatter_max scatter_min);
    let tall = x.t();
    twins! { list;
        unique: T![i32; 4], ids.unique::<N![4]>(), ids.as_untyped().unique(4);
        bincount: T![i32; 8], k.bincount::<N![8]>(), k.as_untyped().bincount(8);
        bincount_weighted: T![f64; 8], k.bincount_weighted::<N![8], _>(x), k.as_untyped().bincount_weighted(x.as_untyped(), 8);
        histogram: T![i32; 5], x.histogram::<N![5]>(0.0..1.0).0, x.as_untyped().histogram(5, 0.0..1.0).0;
        histogram: T![f64; 6], x.histogram::<N![5]>(0.0..1.0).1, x.as_untyped().histogram(5, 0.0..1.0).1;
        segment_sum: T![f64; 8, 4@X], tall.segment_sum::<N![8], _>(ids), tall.as_untyped().segment_sum(ids.as_untyped(), 8);
        segment_prod: T![f64; 8, 4@X], tall.segment_prod::<N![8], _>(ids), tall.as_untyped().segment_prod(ids.as_untyped(), 8);
        segment_max: T![f64; 8, 4@X], tall.segment_max::<N![8], _>(ids), tall.as_untyped().segment_max(ids.as_untyped(), 8);
        segment_min: T![f64; 8, 4@X], tall.segment_min::<N![8], _>(ids), tall.as_untyped().segment_min(ids.as_untyped(), 8);
        dot: T![f64;], v.dot(w), uv.dot(uw);
    }
}
