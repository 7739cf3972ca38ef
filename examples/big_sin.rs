//! One function on three shardings of its argument, with first and second derivatives.
use atmesh::prelude::*;

// ANCHOR: layouts
fn big_sin(x: &Array) -> Array {
    x.sin()
}

fn main() -> Result<()> {
    let x = Array::arange(1.0..1601.0f32).reshape([40, 40]);
    let f = jit(big_sin);
    let whole = f.call(&x)?;
    println!("{whole}");

    let rows = x.put(&Mesh::auto([("x", 4), ("y", 1)])?, p!["x", _]);
    let y = f.call(&rows)?; // compiled again for the new sharding
    println!("{}\nthe same: {}", y.visualize(), y.allclose(&whole)?);

    let both = x.put(&Mesh::auto([("x", 2), ("y", 2)])?, p!["x", "y"]);
    let y = f.call(&both)?;
    println!("{}\nthe same: {}", y.visualize(), y.allclose(&whole)?);
    // ANCHOR_END: layouts

    // ANCHOR: gradients
    // The gradient is sharded like the point at which it is taken.
    let g = jit(|x: &Array| value_and_grad(x, |x| big_sin(&x).sum(..)));
    let (value, cos) = g.call(&both)?;
    println!("value {value}\n{}\ncos: {}", cos.visualize(), cos.allclose(&both.cos())?);
    assert_collectives!(g.lower(&both)?, AllReduce(("x", "y")) x 1); // the sum in the value

    // `vjp` pulls any cotangent back, not only that of a scalar loss.
    let (_, pull) = vjp(&both, |x| big_sin(&x));
    let weighted = pull.call(2.0 * Array::ones([40, 40]));
    println!("2 cos: {}", weighted.allclose(&(2.0 * both.cos()))?);

    // The second derivative takes forward mode over reverse mode.
    let (_, minus_sin) = jvp(&x, Array::ones([40, 40]), |x| grad(x, |x| big_sin(&x).sum(..)));
    println!("-sin: {}", minus_sin.allclose(&-x.sin())?);
    // ANCHOR_END: gradients
    Ok(())
}
