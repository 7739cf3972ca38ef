//! Fourier transforms of complex64 and float32 arrays.

use super::{Options, uniform};
use atmesh::prelude::*;

pub(crate) fn transforms(o: &Options) -> Result<()> {
    let complex = |shape: &[usize]| uniform(1, shape).complex(uniform(2, shape));
    let (rows, n) = (o.scaled(1024), o.fixed(1024));
    let matrix = || complex(&[rows, n]);
    unary!(o, "fft/rows", matrix(), |x: &Array| x.fft(1));
    unary!(o, "fft/columns", matrix(), |x: &Array| x.fft(0));
    unary!(o, "fft/matrix", matrix(), |x: &Array| x.fftn(2));
    unary!(o, "fft/real_rows", uniform(1, &[rows, n]), |x: &Array| x.rfft(1));
    unary!(o, "fft/short", complex(&[o.scaled(1 << 18), 4]), |x: &Array| x.fft(1));
    unary!(o, "fft/composite", complex(&[rows, 1050]), |x: &Array| x.fft(1));
    unary!(o, "fft/prime", complex(&[rows, 1021]), |x: &Array| x.fft(1));
    unary!(o, "fft/long", complex(&[o.scaled(1 << 20)]), |x: &Array| x.fft(0));
    Ok(())
}
