//! The operands of the twins: typed arrays with varied elements, sharded over two axes.

use atmesh::Complex;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { pub(crate) struct Pod { X: 2, Y: 2 } }

/// Typed arrays, one for each form of operand.
#[derive(Clone, Tree)]
pub(crate) struct Operands {
    /// Floats between 0.1 and 0.9.
    pub(crate) x: T![f64; 4@X, 6],
    pub(crate) y: T![f64; 4@X, 6],
    /// Small non-negative integers.
    pub(crate) k: T![i32; 4@X, 6],
    pub(crate) m: T![bool; 4@X, 6],
    pub(crate) z: T![Complex<f64>; 4@X, 6],
    /// Vectors: sharded, unsharded, and of sorted points.
    pub(crate) s: T![f64; 4@X],
    pub(crate) r: T![f64; 6@Y],
    pub(crate) v: T![f64; 6],
    pub(crate) w: T![f64; 6],
    pub(crate) points: T![f64; 5],
    pub(crate) ids: T![i32; 6],
    /// Unsharded matrices.
    pub(crate) u: T![f64; 3, 5],
    pub(crate) n: T![f64; 3, 5],
    /// Stacks of matrices: positive definite, and of three rows and two columns.
    pub(crate) a: T![f64; 4@X, 3, 3],
    pub(crate) tall: T![f64; 4@X, 3, 2],
    /// Square matrices with sharded dims.
    pub(crate) square: T![f64; 4@X, 4@Y],
    /// Images and filters.
    pub(crate) images: T![f32; 4@X, 3, 10, 10@Y],
    pub(crate) filters: T![f32; 6, 3, 3, 3],
    pub(crate) features: T![f32; 4, 4@X, 8],
    pub(crate) taps: T![f32; 6, 4@X, 3],
    /// Indices and updates of a scatter.
    pub(crate) places: T![i32; 2, 1],
    pub(crate) rows: T![f64; 2, 5],
}

/// Returns an array of distinct elements between 0.1 and 0.9 in no order.
fn floats(shape: &[usize], seed: i64) -> Array {
    let n: usize = shape.iter().product();
    let at = |i: usize| 0.1 + 0.8 * ((i as i64 * 37 + seed * 11 + 5) % 101) as f64 / 101.0;
    Array::from((0..n).map(at).collect::<Vec<f64>>()).reshape(shape)
}
fn place<A: TypedArray>(x: Array, spec: Spec) -> A {
    x.put(&atmesh::Mesh::new([("X", 2), ("Y", 2)]).unwrap(), spec).typed().unwrap_or_else(|e| panic!("{e}"))
}

impl Operands {
    pub(crate) fn new() -> Self {
        let (x, y) = (floats(&[4, 6], 1), floats(&[4, 6], 2));
        let small = |x: &Array| (x * 7.0).astype(DType::I32);
        let eye = Array::eye(DType::F64.array_type([3, 3]), 0);
        Operands {
            k: place(small(&x), p!["X"]),
            m: place(x.gt(0.4), p!["X"]),
            z: place(x.complex(&y), p!["X"]),
            x: place(x, p!["X"]),
            y: place(y, p!["X"]),
            s: place(floats(&[4], 3), p!["X"]),
            r: place(floats(&[6], 4), p!["Y"]),
            v: place(floats(&[6], 5), p![]),
            w: place(floats(&[6], 6), p![]),
            points: place(floats(&[5], 7).sort(0), p![]),
            ids: place(small(&floats(&[6], 8)), p![]),
            u: place(floats(&[3, 5], 9), p![]),
            n: place(floats(&[3, 5], 10), p![]),
            a: place(floats(&[4, 3, 3], 11) * 0.1 + eye, p!["X"]),
            tall: place(floats(&[4, 3, 2], 12), p!["X"]),
            square: place(floats(&[4, 4], 13), p!["X", "Y"]),
            images: place(floats(&[4, 3, 10, 10], 14).astype(DType::F32), p!["X", _, _, "Y"]),
            filters: place(floats(&[6, 3, 3, 3], 15).astype(DType::F32), p![]),
            features: place(floats(&[4, 4, 8], 16).astype(DType::F32), p![_, "X"]),
            taps: place(floats(&[6, 4, 3], 17).astype(DType::F32), p![_, "X"]),
            places: place(Array::from([[2], [0]]), p![]),
            rows: place(floats(&[2, 5], 18), p![]),
        }
    }
}
