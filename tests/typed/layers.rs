//! Layers of typed arrays have the numbers of the untyped ones.

use crate::error_checks::Unquoted as _;
use atmesh::nn as untyped;
use atmesh::prelude::*;
use atmesh::typed::{nn, prelude::*};

mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Features);

type Rows<B> = T![f32; B@X, 8@Y];

/// A norm in a function that is generic in the size of the batch.
fn normalized<B: Size>(x: &Rows<B>, scale: &T![f32; 8@Y]) -> Rows<B> {
    nn::rms_norm(x, scale)
}

#[test]
fn norms_are_those_of_untyped_arrays() -> Result<()> {
    let pod = Pod::mesh()?;
    let x = Key::new(0).normal([4, 8]).put(&pod, p!["X", "Y"]);
    let [scale, bias] = [1, 2].map(|i| Key::new(i).normal([8]).put(&pod, p!["Y"]));
    let typed = x.typed::<T![f32; 4@X, 8@Y]>()?;
    let [s, b] = [scale.typed::<T![f32; 8@Y]>()?, bias.typed::<T![f32; 8@Y]>()?];
    let y = normalized(&typed, &s);
    assert!(y.untyped().array_equal(&untyped::rms_norm(&x, &scale))?);
    let y: T![f32; 4@X, 8@Y] = nn::layer_norm(&typed, &s, &b);
    assert!(y.untyped().array_equal(&untyped::layer_norm(&x, &scale, &bias))?);
    let y = nn::layer_norm(&typed, 2.0, 0.5);
    assert!(y.untyped().array_equal(&untyped::layer_norm(&x, 2.0, 0.5))?);
    Ok(())
}

/// A dim of size 1 that has a name is not repeated.
#[test]
fn sizes_that_are_known_at_run_time_are_compared() -> Result<()> {
    let pod = Pod::mesh()?;
    let x = Array::ones([4, 8]).put(&pod, p![]).typed::<T![f32; 4, Features]>()?;
    let scale = Array::ones([1]).put(&pod, p![]).typed::<T![f32; Features]>()?;
    let error = nn::rms_norm(&x, &scale).untyped().ty().unwrap_err().unquoted();
    assert!(error.contains("rms_norm"), "{error}");
    Ok(())
}
