//! Operations element by element, and random numbers.

use super::{Options, uniform};
use atmesh::prelude::*;

pub(crate) fn elementwise(o: &Options) -> Result<()> {
    let (rows, n) = (o.scaled(4096), o.fixed(4096));
    let x = || uniform(1, &[rows, n]);
    unary!(o, "elementwise/gelu", x(), |x: &Array| x.gelu());
    unary!(o, "elementwise/exp", x(), |x: &Array| x.exp());
    unary!(o, "elementwise/tanh", x(), |x: &Array| x.tanh());
    unary!(o, "elementwise/log1p_exp", x(), |x: &Array| x.exp().log1p());
    unary!(o, "elementwise/select", x(), |x: &Array| { x.gt(0.0).select(x * 2.0, x - 1.0).maximum(-0.9) });
    let (rows, n) = (o.scaled(2048), o.fixed(2048));
    let (x, y) = (uniform(1, &[rows, n]) + 1.0, uniform(2, &[rows, n]));
    binary!(o, "elementwise/pow", x, y, |x: &Array, y: &Array| x.pow(y));
    let (rows, n) = (o.scaled(4096), o.fixed(4096));
    binary!(o, "elementwise/outer", uniform(1, &[rows]), uniform(2, &[n]), move |x: &Array, y: &Array| {
        x.reshape([rows, 1]) * y.reshape([1, n])
    });
    Ok(())
}

pub(crate) fn random(o: &Options) -> Result<()> {
    let n = o.scaled(1 << 22);
    o.time("random/normal", || Key::new(7).normal([n]).ready().map(drop))?;
    o.time("random/uniform", || Key::new(7).uniform([n]).ready().map(drop))
}
