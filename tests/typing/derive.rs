//! Derivative rules: tangents against finite differences, cotangents against tangents, and the
//! types of both.

use crate::evaluate::{Data, evaluate};
use atmesh::mesh::AxisType;
use atmesh::ops::dot_general::DotGeneral;
use atmesh::ops::elementwise::{Binary, Clamp, Convert, Select, Unary};
use atmesh::ops::reduce::{Reduce, Reduction};
use atmesh::program::typing::cotangent_type;
use atmesh::program::{Builder, JvpArgs, Prim, TransposeArgs, Value};
use atmesh::types::{ArrayType, DType, Scalar};
use atmesh::{Mesh, p};
use std::sync::Arc;

fn mesh() -> Mesh {
    Mesh::without_devices([("X", 2), ("Y", 2)]).unwrap()
}
fn ty(text: &str) -> ArrayType {
    ArrayType::parse(text, &mesh()).unwrap()
}
fn floats(data: &[f64]) -> Data {
    data.iter().map(|x| Scalar::Float(*x)).collect()
}
/// Returns distinct elements between 0.15 and 0.85.
fn sample(ty: &ArrayType, seed: usize) -> Vec<f64> {
    let n = ty.shape.num_elements();
    (0..n).map(|i| 0.15 + 0.7 * ((i * 37 + seed * 11 + 5) % 101) as f64 / 101.0).collect()
}
fn dot(a: &Data, b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x.to_f64() * y).sum()
}

/// Returns the tangent along operand `wrt`, as a program of the operands and the operand's tangent,
/// and its type.
fn tangent(prim: &Prim, types: &[ArrayType], wrt: usize, points: &[Data], t: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut b = Builder::new();
    let operands: Vec<Value> = types.iter().map(|t| b.input(t.clone(), None)).collect();
    let along = b.input(types[wrt].clone(), None);
    let outputs = b.emit(prim.clone(), &operands).unwrap();
    let mut tangents = vec![None; types.len()];
    tangents[wrt] = Some(along);
    let result = prim
        .jvp(JvpArgs { builder: &mut b, operands: &operands, tangents: &tangents, outputs: &outputs })
        .unwrap();
    let zero = b.zeros(&outputs[0].ty).unwrap();
    let result = result[0].clone().unwrap_or(zero);
    assert_eq!(result.ty, outputs[0].ty, "the tangent of {} along operand {wrt}", prim.key());
    let program = b.finish(&[outputs[0].clone(), result]);
    let mut inputs = points.to_vec();
    inputs.push(floats(t));
    let both = evaluate(&program, &inputs);
    let list = |d: &Data| d.iter().map(|x| x.to_f64()).collect();
    (list(&both[0]), list(&both[1]))
}

/// Compares tangents with central differences.
pub(crate) fn check_jvp(prim: Prim, types: &[&str], wrt: &[usize], shift: f64) {
    let types: Vec<ArrayType> = types.iter().map(|t| ty(t)).collect();
    let points: Vec<Vec<f64>> =
        types.iter().enumerate().map(|(k, t)| sample(t, k).iter().map(|x| x + shift).collect()).collect();
    for &k in wrt {
        let t: Vec<f64> = sample(&types[k], 7).iter().map(|x| x - 0.5).collect();
        let data: Vec<Data> = points.iter().map(|p| floats(p)).collect();
        let (_, got) = tangent(&prim, &types, k, &data, &t);
        let step = 1e-6;
        let at = |sign: f64| {
            let mut data = data.clone();
            data[k] = points[k].iter().zip(&t).map(|(x, t)| Scalar::Float(x + sign * step * t)).collect();
            tangent(&prim, &types, k, &data, &t).0
        };
        for (i, ((hi, lo), got)) in at(1.0).iter().zip(at(-1.0)).zip(&got).enumerate() {
            let want = (hi - lo) / (2.0 * step);
            assert!(
                (got - want).abs() < 1e-7 + 1e-6 * want.abs(),
                "{} along operand {k}, element {i}: {got}, not {want}",
                prim.key()
            );
        }
    }
}

/// Checks ⟨ct, f(t)⟩ = ⟨fᵀ(ct), t⟩ where f is linear in operand `wrt`, and the type of the
/// cotangent.
pub(crate) fn check_transpose(prim: Prim, types: &[&str], wrt: usize) {
    let types: Vec<ArrayType> = types.iter().map(|t| ty(t)).collect();
    let mut points: Vec<Data> = types.iter().enumerate().map(|(k, t)| floats(&sample(t, k))).collect();
    for (p, t) in points.iter_mut().zip(&types).filter(|(_, t)| t.dtype == DType::Bool) {
        *p = (0..t.shape.num_elements()).map(|i| Scalar::Bool(i % 3 == 1)).collect();
    }
    let t = sample(&types[wrt], 3);
    points[wrt] = floats(&t);
    let (out, forward) = {
        let mut b = Builder::new();
        let operands: Vec<Value> = types.iter().map(|t| b.input(t.clone(), None)).collect();
        let y = b.emit1(prim.clone(), &operands).unwrap();
        let (out, program) = (y.ty.clone(), b.finish(&[y]));
        // Subtract the contribution of the other operands.
        let mut origin = points.clone();
        origin[wrt] = vec![Scalar::Float(0.0); t.len()];
        let (at, from) =
            (evaluate(&program, &points).swap_remove(0), evaluate(&program, &origin).swap_remove(0));
        let less = at.iter().zip(from).map(|(a, b)| Scalar::Float(a.to_f64() - b.to_f64()));
        (out, less.collect::<Data>())
    };
    let ct = sample(&out, 9);
    let mut b = Builder::new();
    let values: Vec<Value> = types.iter().map(|t| b.input(t.clone(), None)).collect();
    let of = b.input(cotangent_type(&out), None);
    let known: Vec<Option<Value>> =
        values.into_iter().enumerate().map(|(k, v)| (k != wrt).then_some(v)).collect();
    let result = prim
        .transpose(TransposeArgs {
            builder: &mut b,
            operands: &known,
            types: &types,
            cotangents: &[Some(of)],
        })
        .unwrap();
    let result = result[wrt].clone().unwrap();
    assert_eq!(result.ty, cotangent_type(&types[wrt]), "the cotangent of operand {wrt} of {}", prim.key());
    points.push(floats(&ct));
    let back = evaluate(&b.finish(&[result]), &points).swap_remove(0);
    let (one, two) = (dot(&forward, &ct), dot(&back, &t));
    let tol = if types.iter().any(|t| t.dtype == DType::F32) { 1e-6 } else { 1e-12 };
    assert!((one - two).abs() < tol * (1.0 + one.abs()), "{}: {one}, not {two}", prim.key());
}

#[test]
fn unary_functions() {
    use Unary::{Angle, Conj, Imag, IsFinite, Not, Real, StopGradient};
    let other = |f: &&Unary| !matches!(f, Not | IsFinite | StopGradient | Real | Imag | Conj | Angle);
    for f in Unary::PLAIN.iter().filter(other) {
        let shift = if *f == Unary::Acosh { 1.0 } else { 0.0 };
        check_jvp(Arc::new(*f), &["float64[4@X,2]"], &[0], shift);
    }
    check_jvp(Arc::new(Unary::Relu), &["float64[4@X,2]"], &[0], -0.5);
    check_jvp(Arc::new(Unary::Abs), &["float64[4@X,2]"], &[0], -0.5);
    for approximate in [false, true] {
        check_jvp(Arc::new(Unary::Gelu { approximate }), &["float64[4@X,2]{R:Y}"], &[0], -0.4);
    }
    for y in [-3, -1, 0, 1, 2, 5] {
        check_jvp(Arc::new(Unary::IntegerPow(y)), &["float64[4@X,2]"], &[0], 0.0);
    }
    check_transpose(Arc::new(Unary::Neg), &["float64[4@X,2]{R:Y}"], 0);
    check_transpose(Arc::new(Convert { dtype: DType::F64 }), &["float32[4@X]"], 0);
}

#[test]
fn binary_functions() {
    use Binary::{Add, Atan2, Div, Max, Min, Mul, Pow, Rem, Sub};
    for f in [Add, Sub, Mul, Div, Rem, Max, Min, Pow, Atan2] {
        check_jvp(Arc::new(f), &["float64[4@X,2]", "float64[4@X,2]"], &[0, 1], 0.0);
        // Different ranks, broadcast dimensions, and one that only the other operand shards.
        check_jvp(Arc::new(f), &["float64[4,1]", "float64[3,4@X,2@Y]"], &[0, 1], 0.0);
    }
    for f in [Add, Sub, Mul] {
        for k in [0, 1] {
            check_transpose(Arc::new(f), &["float64[4@X,2]", "float64[4@X,2]"], k);
            check_transpose(Arc::new(f), &["float64[4,1]", "float64[3,4@X,2@Y]"], k);
            check_transpose(Arc::new(f), &["float64[2]", "float64[4@X,2@Y]"], k);
            check_transpose(Arc::new(f), &["float64[]", "float64[4@X,2@Y]"], k);
            check_transpose(Arc::new(f), &["float64[4@Y,2]{R:X}", "float64[2]{R:X}"], k);
        }
    }
    check_transpose(Arc::new(Add), &["float64[4@Y,2]{U:X}", "float64[2]{U:X}"], 1);
    check_transpose(Arc::new(Mul), &["float64[4@Y,2]{U:X}", "float64[2]{R:X}"], 0);
    check_transpose(Arc::new(Mul), &["float64[4@Y,2]{U:X}", "float64[2]{R:X}"], 1);
    check_transpose(Arc::new(Div), &["float64[4,1]", "float64[4@X,2@Y]"], 0);
    check_transpose(Arc::new(Div), &["float64[4@Y]{R:X}", "float64[4@Y]{R:X}"], 0);
}

/// The values that the reference defines at kinks and corners.
#[test]
fn kinks() {
    let at = |prim: Prim, x: [f64; 3], y: Option<[f64; 3]>, k: usize| {
        let types = vec![ty("float64[3]"); 1 + usize::from(y.is_some())];
        let points: Vec<Data> = [Some(x), y].iter().flatten().map(|d| floats(d)).collect();
        tangent(&prim, &types, k, &points, &[1.0; 3]).1
    };
    assert_eq!(at(Arc::new(Unary::Relu), [-1.0, 0.0, 1.0], None, 0), [0.0, 0.0, 1.0]);
    assert_eq!(at(Arc::new(Unary::Abs), [-1.0, 0.0, 1.0], None, 0), [-1.0, 0.0, 1.0]);
    assert_eq!(at(Arc::new(Binary::Max), [1.0, 2.0, 3.0], Some([2.0; 3]), 0), [0.0, 0.5, 1.0]);
    assert_eq!(at(Arc::new(Binary::Min), [1.0, 2.0, 3.0], Some([2.0; 3]), 1), [0.0, 0.5, 1.0]);
    assert_eq!(at(Arc::new(Binary::Pow), [0.0, 0.0, 2.0], Some([2.0, 0.0, 0.0]), 0), [0.0, 0.0, 0.0]);
    assert_eq!(at(Arc::new(Binary::Pow), [0.0, 1.0, 1.0], Some([2.0, 3.0, 0.0]), 1), [0.0, 0.0, 0.0]);
    let shared = at(Arc::new(Reduce::new(Reduction::Max, &[0], None)), [2.0, 1.0, 2.0], None, 0);
    assert_eq!(shared, [1.0]);
    let product = |x: [f64; 3]| {
        (0..3)
            .map(|i| {
                let mut t = [0.0; 3];
                t[i] = 1.0;
                let prim: Prim = Arc::new(Reduce::new(Reduction::Prod, &[0], None));
                tangent(&prim, &[ty("float64[3]")], 0, &[floats(&x)], &t).1[0]
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(product([2.0, 3.0, 4.0]), [12.0, 8.0, 6.0]);
    assert_eq!(product([2.0, 0.0, 4.0]), [0.0, 8.0, 0.0]);
    assert_eq!(product([0.0, 0.0, 4.0]), [0.0, 0.0, 0.0]);
}

#[test]
fn select_and_clamp() {
    check_jvp(Arc::new(Clamp), &["float64[]", "float64[4@X,2]", "float64[]"], &[0, 1, 2], 0.0);
    for k in [1, 2] {
        check_transpose(Arc::new(Select), &["bool[4@X,2]", "float64[4@X,2]", "float64[4@X,2]"], k);
        check_transpose(Arc::new(Select), &["bool[]", "float64[4@X,2]{R:Y}", "float64[4@X,2]{R:Y}"], k);
        check_transpose(Arc::new(Select), &["bool[]", "float64[4@X,2]{U:Y}", "float64[4@X,2]{U:Y}"], k);
    }
}

#[test]
fn reductions() {
    for kind in [Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Prod] {
        for axes in [&[0][..], &[1], &[0, 2], &[0, 1, 2], &[]] {
            check_jvp(Arc::new(Reduce::new(kind, axes, None)), &["float64[2@X,3,4@Y]"], &[0], 0.0);
        }
    }
    for axes in [&[0][..], &[1], &[0, 2], &[0, 1, 2], &[]] {
        check_transpose(Arc::new(Reduce::new(Reduction::Sum, axes, None)), &["float64[2@X,3,4@Y]"], 0);
        check_transpose(Arc::new(Reduce::new(Reduction::Sum, axes, None)), &["float64[2@X,3,4]{R:Y}"], 0);
        check_transpose(Arc::new(Reduce::new(Reduction::Sum, axes, None)), &["float64[2@X,3,4]{U:Y}"], 0);
    }
    for (axes, ty) in [
        (&[0][..], "float64[7]"),
        (&[0], "float64[0,3]"),
        (&[0, 1], "float64[6@X,5]"),
        (&[0], "float64[2@X]"),
    ] {
        check_jvp(Arc::new(Reduce::new(Reduction::Prod, axes, None)), &[ty], &[0], 0.0);
    }
    let unreduced = Reduce::new(Reduction::Sum, &[2], Some(p!["X", _; U: "Y"]));
    check_transpose(Arc::new(unreduced.clone()), &["float64[2@X,3,4@Y]"], 0);
    check_jvp(Arc::new(unreduced), &["float64[2@X,3,4@Y]"], &[0], 0.0);
    let scattered = Reduce::new(Reduction::Sum, &[2], Some(p!["X", _,]));
    check_transpose(Arc::new(scattered), &["float64[2@Y,3,4@X]"], 0);
}

/// The contracting and batch dimensions, the requested sharding, and the types of the operands.
type Product<'a> = ([Vec<usize>; 2], [Vec<usize>; 2], Option<atmesh::Spec>, [&'a str; 2]);

#[test]
fn products() {
    let cases: [Product<'_>; 9] = [
        ([vec![1], vec![0]], [vec![], vec![]], None, ["float64[4@X,2]", "float64[2,6@Y]"]),
        ([vec![1], vec![0]], [vec![], vec![]], None, ["float64[4@X,2@Y]", "float64[2,6]"]),
        // Weights that are gathered before use.
        ([vec![1], vec![0]], [vec![], vec![]], None, ["float64[4@X,2]", "float64[2@X,6]"]),
        ([vec![1], vec![0]], [vec![], vec![]], Some(p!["X", _]), ["float64[4@X,2@Y]", "float64[2@Y,6]"]),
        (
            [vec![1], vec![0]],
            [vec![], vec![]],
            Some(p!["X", _; U: "Y"]),
            ["float64[4@X,2@Y]", "float64[2@Y,6]"],
        ),
        // Weights whose gradient stays unreduced.
        ([vec![1], vec![0]], [vec![], vec![]], None, ["float64[4@X,2]", "float64[2,6]{R:X}"]),
        // Several dimensions of each kind, out of order.
        (
            [vec![3, 1], vec![0, 2]],
            [vec![2, 0], vec![3, 1]],
            None,
            ["float64[2@X,3,4,5,2]", "float64[5,2,3,4,6@Y]"],
        ),
        ([vec![], vec![]], [vec![], vec![]], None, ["float64[4@X]", "float64[6@Y]"]),
        ([vec![0, 1], vec![1, 0]], [vec![], vec![]], None, ["float64[4@X,2]", "float64[2@Y,4]"]),
    ];
    for (contracting, batch, out, types) in cases {
        let prim = Arc::new(DotGeneral { contracting, batch, out_sharding: out, ..DotGeneral::default() });
        check_jvp(prim.clone(), &types, &[0, 1], 0.0);
        check_transpose(prim.clone(), &types, 0);
        check_transpose(prim, &types, 1);
    }
    let wide = DotGeneral { accum_dtype: Some(DType::F64), ..DotGeneral::matmul() };
    check_transpose(Arc::new(wide), &["float32[4@X,2]", "float32[2,6@Y]"], 1);
}

/// Inside shard_map: an operand that is reduced over a manual axis, next to scalars, which would
/// not be cast to it by themselves.
#[test]
fn reduced_over_manual_axes() {
    let inner = mesh().with_axis_types(["X", "Y"], AxisType::Manual).unwrap();
    let x = ArrayType::parse("float32[4]{R:X}", &inner).unwrap();
    for f in [Unary::Tanh, Unary::Logistic, Unary::Relu, Unary::Square, Unary::IntegerPow(3)] {
        let mut b = Builder::new();
        let (v, t) = (b.input(x.clone(), None), b.input(x.clone(), None));
        let y = b.unary(f, &v).unwrap();
        let prim: Prim = Arc::new(f);
        let dy = prim
            .jvp(JvpArgs {
                builder: &mut b,
                operands: &[v],
                tangents: &[Some(t)],
                outputs: std::slice::from_ref(&y),
            })
            .unwrap();
        assert_eq!(dy[0].as_ref().unwrap().ty, x, "{}", prim.name());
    }
}
