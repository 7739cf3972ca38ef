//! Twins of elementwise operations, of moves of dims, and of conversions.

use crate::operands::*;
use crate::twins::{Twin, each, twins};
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use atmesh::{Complex, PadMode, array};

pub(crate) fn elementwise(o: &Operands, list: &mut Vec<Twin>) {
    let Operands { x, y, k, m, z, .. } = o;
    macro_rules! scalar_functions {
        ([] methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* } $($rest:tt)*) => {
            each!(list, x => T![f64; 4@X, 6], () (); $($name)*);
        };
    }
    atmesh::scalar_functions!(scalar_functions);
    each!(list, x => T![f64; 4@X, 6], () ();
        reciprocal relu silu softplus gelu gelu_exact square stop_gradient rint nan_to_num zeros_like ones_like);
    let above = x + 1.0;
    each!(list, above => T![f64; 4@X, 6], () (); acosh);
    each!(list, x => T![bool; 4@X, 6], () (); is_finite is_nan is_inf);
    each!(list, k => T![i32; 4@X, 6], () (); sign abs square);
    each!(list, x => T![f64; 4@X, 6], (3) (3); powi);
    each!(list, x => T![f64; 4@X, 6], (0.2, 0.5) (0.2, 0.5); clamp);
    each!(list, x => T![f64; 4@X, 6], (0.5) (0.5); full_like);
    each!(list, x => T![f64; 4@X, 6], ("x") ("x"); checkpoint_name);
    each!(list, x => T![f64; 4@X, 6], (y) (y.as_untyped());
        pow atan2 hypot xlogy nextafter maximum minimum floor_divide remainder);
    each!(list, k => T![i32; 4@X, 6], (3) (3); floor_divide remainder maximum minimum);
    each!(list, x => T![bool; 4@X, 6], (y) (y.as_untyped()); eq ne lt le gt ge isclose);
    each!(list, x => T![bool; 4@X, 6], (y, 0.1, 0.1) (y.as_untyped(), 0.1, 0.1); isclose_with);
    each!(list, k => T![i32; 4@X, 6], (k) (k.as_untyped()); shift_left shift_right_logical shift_right_arithmetic);
    each!(list, m => T![f64; 4@X, 6], (x, y) (x.as_untyped(), y.as_untyped()); select);
    each!(list, z => T![f64; 4@X, 6], () (); real imag angle);
    each!(list, z => T![Complex<f64>; 4@X, 6], () (); conj);
    each!(list, x => T![Complex<f64>; 4@X, 6], (y) (y.as_untyped()); complex);
    twins! { list;
        convert: T![f32; 4@X, 6], x.convert::<f32>(), x.as_untyped().astype(F32);
        bitcast: T![u64; 4@X, 6], x.bitcast::<u64>(), x.as_untyped().bitcast(U64);
        frexp: T![f64; 4@X, 6], x.frexp().0, x.as_untyped().frexp().0;
        frexp: T![i32; 4@X, 6], x.frexp().1, x.as_untyped().frexp().1;
    }
}

pub(crate) fn shapes(o: &Operands, list: &mut Vec<Twin>) {
    let Operands { x, k, u, v, s, square, tall, .. } = o;
    let (ux, uu) = (x.as_untyped(), u.as_untyped());
    each!(list, x => T![f64; 6, 4@X], () (); t);
    each!(list, x => T![f64; 6, 4@X], (D0, D1) (0, 1); swapaxes);
    each!(list, tall => T![f64; 2, 3, 4@X], (D0, D2) (0, 2); swapaxes);
    each!(list, tall => T![f64; 3, 2, 4@X], (D0, D2) (0, 2); moveaxis);
    each!(list, tall => T![f64; 2, 4@X, 3], (D2, D0) (2, 0); moveaxis);
    each!(list, tall => T![f64; 2, 4@X, 3], ((D2, D0, D1)) ([2, 0, 1]); transpose);
    each!(list, u => T![f64; 15], () (); ravel);
    each!(list, x => T![f64; 4@X, 6], (D0) (0); flip);
    each!(list, tall => T![f64; 4@X, 3, 2], (-1) (-1); tril triu);
    each!(list, x => T![f64; 4@X, 6], (1, D0) (1, 0); roll);
    each!(list, x => T![f64; 4@X, 6], (-1, D0, 0.5) (-1, 0, 0.5); shift);
    each!(list, x => T![f64; 4@X, 6], (0.5, D0) (0.5, 0); gradient);
    each!(list, x => T![f64; 4@X, 6], (D1) (1); fftshift ifftshift);
    each!(list, square => T![f64; 4@X, 4@Y], (D0) (0); fftshift ifftshift);
    each!(list, square => T![f64; 4@Y], () (0); diagonal);
    each!(list, square => T![f64; 4@Y], () (0); diag);
    each!(list, s => T![f64; 4, 4@X], () (0); diag);
    each!(list, square => T![f64;], (1) (1); trace);
    each!(list, k => T![i32;], (0) (0); trace);
    let one = x.max(keep(D1));
    let halves = x.unstack(D1);
    twins! { list;
        expand_dims: T![f64; 4@X, ~, 6], x.expand_dims(D1), ux.expand_dims(1);
        squeeze: T![f64; 4@X], one.squeeze(D1), one.as_untyped().squeeze(1);
        broadcast_to: T![f64; 3, 4@X, 6], x.broadcast_to::<S![3, 4@X, 6]>(), ux.broadcast_to([3, 4, 6]);
        reshape: T![f64; 5, 3], u.reshape::<S![5, 3]>(), uu.reshape([5, 3]);
        reshard: T![f64; 4, 6@Y], x.reshard(P![_, Y]), ux.reshard(p![_, "Y"]);
        repeat: T![f64; 8@X, 6], x.repeat::<N![2], _>(D0), ux.repeat(2, 0);
        repeat_by: T![f64; 4@X, 9], x.repeat_by::<N![9], _, _>(&o.ids, D1), ux.repeat_by(o.ids.as_untyped(), 9, 1);
        diff: T![f64; 4@X, 4], x.diff::<N![2], _>(D1), ux.diff(2, 1);
        diff: T![f64; 4@X, 0], x.diff::<N![6], _>(D1), ux.diff(6, 1);
        unstack: T![f64; 4@X], halves[2].clone(), ux.unstack(1)[2].clone();
        pad: T![f64; 4@X, 9], x.pad::<N![1], N![2], _>(D1, 0.5), ux.pad(0.5, [(0, 0, 0), (1, 2, 0)]);
        pad_with: T![f64; 4@X, 9], x.pad_with::<N![1], N![2], _>(D1, PadMode::Edge), ux.pad_with([(0, 0), (1, 2)], PadMode::Edge);
        tile: T![f64; 4@X, 12], x.tile::<N![2], _>(D1), ux.tile([1, 2]);
        slice: T![f64; 4@X, 3], x.slice::<N![1], N![4], _>(D1), ux.slice(ix![.., 1..4]);
        split: T![f64; 4@X, 2], x.split::<N![2], N![4], _>(D1).0, ux.split([2, 4], 1)[0].clone();
        concat: T![f64; 4@X, 12], x.concat(x, D1), array::concat([ux, ux], 1);
        stack: T![f64; 4@X, 2, 6], x.stack(x, D1), array::stack([ux, ux], 1);
        take: T![f64; 4@X, 6], x.take(&o.ids, D1), ux.take(o.ids.as_untyped(), 1);
        take_to: T![f64; 4@X, 6@Y], x.take_to(&o.ids.reshard(P![Y]), D1, P![X, Y]), ux.take_to(&o.ids.as_untyped().reshard(p!["Y"]), 1, p!["X", "Y"]);
        take_along_axis: T![f64; 4@X, 6], x.take_along_axis(k, D1), ux.take_along_axis(k.as_untyped(), 1);
        take_along_axis_to: T![f64; 4@X, 6@Y], x.take_along_axis_to(k, D1, P![X, Y]), ux.take_along_axis_to(k.as_untyped(), 1, p!["X", "Y"]);
        at: T![f64; 4@X, 6], x.at(&o.ids, D1).add(1.0), ux.at(ix![.., o.ids.as_untyped()]).add(1.0);
        one_hot_to: T![f32; 4@X, 6, 8@Y], k.one_hot_to::<N![8], _>(P![X, _, Y]), k.as_untyped().one_hot_to(8, p!["X", _, "Y"]);
        one_hot: T![f32; 4@X, 6, 8], k.one_hot::<N![8]>(), k.as_untyped().one_hot(8);
        fft: T![Complex<f64>; 4@X, 6], x.fft(D1), ux.fft(1);
        fft: T![Complex<f64>; 4@X, 4@Y], square.fft(D0), square.as_untyped().fft(0);
        ifft: T![Complex<f64>; 4@X, 6], o.z.ifft(D1), o.z.as_untyped().ifft(1);
        fftn: T![Complex<f64>; 4@X, 6], x.fftn(2), ux.fftn(2);
        ifftn: T![Complex<f64>; 4@X, 6], o.z.ifftn(2), o.z.as_untyped().ifftn(2);
        rfft: T![Complex<f64>; 4@X, 4], x.rfft(D1), ux.rfft(1);
        rfft: T![Complex<f64>; 3, 3], u.rfft(D1), uu.rfft(1);
        irfft: T![f64; 4@X, 11], o.z.irfft::<N![11], _>(D1), o.z.as_untyped().irfft(1, 11);
        irfft: T![f64; 4@X, 10], o.z.irfft::<N![10], _>(D1), o.z.as_untyped().irfft(1, 10);
    }
    let _ = v;
}
