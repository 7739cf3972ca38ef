//! Twins of convolutions, window reductions, matrix products and linear algebra.

use crate::operands::*;
use crate::twins::{Twin, each, twins};
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use atmesh::{ConvOptions, Padding, WindowOptions};

pub(crate) fn windows(o: &Operands, list: &mut Vec<Twin>) {
    let Operands { x, k, images, filters, features, taps, .. } = o;
    let (ux, ui, uf) = (x.as_untyped(), images.as_untyped(), filters.as_untyped());
    let every = |strides: [usize; 2]| WindowOptions::default().strides(strides);
    let conv = |strides: [usize; 2], padding| ConvOptions::default().strides(strides).padding(padding);
    twins! { list;
        conv: T![f32; 4@X, 6, 8, 8@Y], images.conv(filters), ui.conv(uf);
        conv_with: T![f32; 4@X, 6, 10, 10@Y], images.conv_with(filters, Strides::<S![1, 1]>::same()), ui.conv_with(uf, conv([1, 1], Padding::Same));
        conv_with: T![f32; 4@X, 6, 5, 10@Y], images.conv_with(filters, Strides::<S![2, 1]>::same()), ui.conv_with(uf, conv([2, 1], Padding::Same));
        conv_with: T![f32; 4@X, 6, 3, 4@Y], images.conv_with(filters, Strides::<S![3, 2]>::valid()), ui.conv_with(uf, conv([3, 2], Padding::Valid));
        conv_to: T![f32; 4@X, 6, 6], features.conv_to(taps, P![X, _, _]), features.as_untyped().conv_to(taps.as_untyped(), p!["X"]);
        conv_transpose: T![f32; 4@X, 6, 12, 12@Y], images.conv_transpose(filters), ui.conv_transpose(uf);
        max_pool: T![f32; 4@X, 3, 5, 10@Y], images.max_pool::<S![2, 1]>(), ui.max_pool([2, 1]);
        avg_pool: T![f32; 4@X, 3, 10, 2@Y], images.avg_pool::<S![1, 5]>(), ui.avg_pool([1, 5]);
        avg_pool_with: T![f32; 4@X, 3, 10, 10@Y], images.avg_pool_with::<S![3, 3], _, _>(Strides::<S![1, 1]>::same()), ui.avg_pool_with([3, 3], every([1, 1]).padding(Padding::Same));
        max_pool_with: T![f32; 4@X, 3, 4, 4@Y], images.max_pool_with::<S![3, 3], _, _>(Strides::<S![2, 2]>::valid()), ui.max_pool_with([3, 3], every([2, 2]));
    }
    macro_rules! windows { ($x:ident => $elem:ty; $($name:ident $with:ident)*) => { twins! { list; $(
        $name: T![$elem; 4@X, 4], $x.$name::<S![1, 3]>(), $x.as_untyped().$name([1, 3]);
        $with: T![$elem; 2@X, 3], $x.$with::<S![2, 3], _, _>(Strides::<S![2, 2]>::same()), $x.as_untyped().$with([2, 3], every([2, 2]).padding(Padding::Same));
    )* } } }
    windows!(x => f64; window_sum window_sum_with window_prod window_prod_with window_max window_max_with window_min window_min_with);
    windows!(k => i32; window_and window_and_with window_or window_or_with);
    // the largest windows, and one around the whole array
    twins! { list;
        window_max: T![f64; 4@X, 1], x.window_max::<S![1, 6]>(), ux.window_max([1, 6]);
        window_max_with: T![f64; 4@X, 6], x.window_max_with::<S![1, 9], _, _>(Strides::<S![1, 1]>::same()), ux.window_max_with([1, 9], every([1, 1]).padding(Padding::Same));
    }
}

pub(crate) fn products(o: &Operands, list: &mut Vec<Twin>) {
    let Operands { x, v, u, square, .. } = o;
    let (ux, uv) = (x.as_untyped(), v.as_untyped());
    each!(list, x => T![f64; 4@X], (v) (uv); matmul dot);
    let narrow = x.reshard(P![_, X]);
    let row = v.reshard(P![X]);
    twins! { list;
        matmul_to: T![f64; 4@X], narrow.matmul_to(&row, P![X]), ux.reshard(p![_, "X"]).matmul_to(uv.reshard(p!["X"]), p!["X"]);
        dot_to: T![f64; 4], narrow.dot_to(&row, P![_]), ux.reshard(p![_, "X"]).dot_to(uv.reshard(p!["X"]), p![]);
    }
    let _ = (u, square);
}

pub(crate) fn linalg(o: &Operands, list: &mut Vec<Twin>) {
    use atmesh::typed::rules::matrices::{FullMatrices, ThinMatrices};
    let Operands { a, tall, .. } = o;
    let (ua, ut) = (a.as_untyped(), tall.as_untyped());
    let one = a.sum(D0);
    each!(list, a => T![f64; 4@X, 3, 3], () (); cholesky cholesky_upper inv expm);
    each!(list, one => T![f64; 3, 3], (3) (3); matrix_power);
    each!(list, a => T![f64; 4@X], () (); det);
    each!(list, a => T![f64; 4@X, 3], () (); eigvalsh);
    each!(list, tall => T![f64; 4@X, 2], () (); svdvals);
    each!(list, tall => T![f64; 4@X, 2, 3], (None) (None); pinv);
    each!(list, tall => T![i32; 4@X], (None) (None); matrix_rank);
    each!(list, a => T![f64; 4@X, 3, 2], (tall) (ut); solve);
    each!(list, tall => T![f64; 4@X, 2, 3], (a, None) (ua, None); lstsq);
    twins! { list;
        slogdet: T![f64; 4@X], a.slogdet().0, ua.slogdet().0;
        slogdet: T![f64; 4@X], a.slogdet().1, ua.slogdet().1;
        lu: T![f64; 4@X, 3, 2], tall.lu().0, ut.lu().0;
        lu: T![i32; 4@X, 2], tall.lu().1, ut.lu().1;
        lu: T![i32; 4@X, 3], tall.lu().2, ut.lu().2;
        qr: T![f64; 4@X, 3, 2], tall.qr(ThinMatrices).0, ut.qr(false).0;
        qr: T![f64; 4@X, 2, 2], tall.qr(ThinMatrices).1, ut.qr(false).1;
        qr: T![f64; 4@X, 3, 3], tall.qr(FullMatrices).0, ut.qr(true).0;
        qr: T![f64; 4@X, 3, 2], tall.qr(FullMatrices).1, ut.qr(true).1;
        eigh: T![f64; 4@X, 3], a.eigh().0, ua.eigh().0;
        eigh: T![f64; 4@X, 3, 3], a.eigh().1, ua.eigh().1;
        svd: T![f64; 4@X, 3, 2], tall.svd(ThinMatrices).0, ut.svd(false).0;
        svd: T![f64; 4@X, 2], tall.svd(ThinMatrices).1, ut.svd(false).1;
        svd: T![f64; 4@X, 2, 2], tall.svd(ThinMatrices).2, ut.svd(false).2;
        svd: T![f64; 4@X, 3, 3], tall.svd(FullMatrices).0, ut.svd(true).0;
    }
}
