//! Compares derivatives of programs with finite differences, and tests the derived programs: the
//! values that loops save, recomputation, and errors.

#[path = "../error_checks/mod.rs"]
mod error_checks;

#[path = "../typing/evaluate.rs"]
#[expect(dead_code, reason = "the machine runs loop nests itself")]
mod evaluate;
#[path = "../typing/machine.rs"]
mod machine;
#[path = "../../src/exec/engine/reference/scalar.rs"]
mod scalar;

mod structure;

use atmesh::Mesh;
use atmesh::grad::{jvp_program, vjp_program};
use atmesh::program::{Builder, Control, Loop, Program, Value};
use atmesh::types::DType::{Bool, F64, I32};
use atmesh::types::{ArrayType, Scalar};
use expect_test::{Expect, expect};
use machine::{Held, Machine};
use std::sync::Arc;

/// Returns the results of a program whose inputs and results are floats.
fn run(program: &Program, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let held = |x: &Vec<f64>| Held::from_data(x.iter().map(|x| Scalar::Float(*x)).collect());
    let mesh = program.mesh.clone().unwrap_or_else(|| Mesh::without_devices([("one", 1)]).unwrap());
    let outs = Machine { mesh }.run(program, &inputs.iter().map(held).collect::<Vec<_>>());
    outs.iter().map(|o| o.at(0).iter().map(|x| x.to_f64()).collect()).collect()
}
/// Returns `n` distinct elements between 0.2 and 0.9.
fn sample(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| 0.2 + 0.7 * ((i * 37 + seed * 29 + 7) % 97) as f64 / 97.0).collect()
}
fn samples(program: &Program) -> Vec<Vec<f64>> {
    let sizes = program.inputs.iter().map(|v| program.ty(*v).shape.num_elements());
    sizes.enumerate().map(|(k, n)| sample(n, k)).collect()
}
fn near(got: f64, want: f64, what: &str) {
    assert!((got - want).abs() < 1e-6 * (1.0 + want.abs()), "{what}: {got}, not {want}");
}

/// Returns the gradient with respect to inputs `wrt` of a program whose only result is a scalar, as
/// a program of the same inputs.
fn gradient(program: &Program, wrt: &[usize]) -> Program {
    let vjp = vjp_program(program, wrt).unwrap();
    let mut b = Builder::new();
    let ins: Vec<Value> = program.inputs.iter().map(|v| b.input(program.ty(*v).clone(), None)).collect();
    let mut outs = b.inline(&vjp.forward, &ins);
    let mut operands = outs.split_off(1);
    operands.push(Value::literal(F64, 1.0));
    let cts = b.inline(&vjp.backward, &operands);
    b.finish(&cts)
}

/// Compares the gradient and the tangent of a program whose only result is a scalar with finite
/// differences.
fn check(program: &Program, wrt: &[usize]) {
    let point = samples(program);
    let back = run(&gradient(program, wrt), &point);
    let active: Vec<bool> = (0..point.len()).map(|i| wrt.contains(&i)).collect();
    let jvp = jvp_program(program, &active).unwrap();
    for (k, i) in wrt.iter().enumerate() {
        for j in 0..point[*i].len() {
            let at = |step: f64| {
                let mut p = point.clone();
                p[*i][j] += step;
                run(program, &p)[0][0]
            };
            let want = (at(1e-6) - at(-1e-6)) / 2e-6;
            near(back[k][j], want, &format!("gradient by input {i}, element {j}"));
            let mut tangents: Vec<Vec<f64>> = wrt.iter().map(|i| vec![0.0; point[*i].len()]).collect();
            tangents[k][j] = 1.0;
            let mut all = point.clone();
            all.extend(tangents);
            near(run(&jvp.program, &all)[1][0], want, &format!("tangent along input {i}, element {j}"));
        }
    }
}

/// Returns one step of the heat equation: `u.at(1..n-1).set(u[1..n-1] + c·(u[2..] − 2u[1..n-1] +
/// u[..n-2]))`.
fn heat_step(n: usize) -> Program {
    let mut b = Builder::new();
    b.input(I32.array_type([]), None);
    let u = b.input(F64.array_type([n]), None);
    let mid = b.slice(&u, &[1], &[n - 1]).unwrap();
    let right = b.slice(&u, &[2], &[n]).unwrap();
    let left = b.slice(&u, &[0], &[n - 2]).unwrap();
    let twice = b.mul_scalar(&mid, 2.0).unwrap();
    let d = b.sub(&right, &twice).unwrap();
    let d = b.add(&d, &left).unwrap();
    let d = b.mul_scalar(&d, 0.1).unwrap();
    let new = b.add(&mid, &d).unwrap();
    let next = b.update_slice(&u, &new, &[1]).unwrap();
    b.finish(&[next])
}

/// Returns a loop with one float array as its carry. Its inputs are the loop-invariant values, the
/// carry, and the sliced arrays; the result is the sum of the squares of the final carry.
fn looped(body: Program, fixed: usize, length: usize) -> Program {
    let mut b = Builder::new();
    let types: Vec<ArrayType> = body.inputs[1..].iter().map(|v| body.ty(*v).clone()).collect();
    let stacked = |ty: &ArrayType| {
        let sizes: Vec<usize> = std::iter::once(length).chain(ty.shape.iter().copied()).collect();
        ty.dtype.array_type(sizes)
    };
    let ins: Vec<Value> = types
        .iter()
        .enumerate()
        .map(|(k, ty)| b.input(if k > fixed { stacked(ty) } else { ty.clone() }, None))
        .collect();
    let results: Vec<ArrayType> = body
        .output_types()
        .iter()
        .enumerate()
        .map(|(k, ty)| if k > 0 { stacked(ty) } else { ty.clone() })
        .collect();
    let l = Loop { body: Arc::new(body), start: 2, length, reverse: false, fixed, carry: 1 };
    let outs = b.control(Control::Loop(l), &ins, results);
    let mut total: Option<Value> = None;
    for out in outs {
        let y = b.square(&out).unwrap();
        let dims: Vec<usize> = (0..out.ty.rank()).collect();
        let y = b.reduce_sum(&y, &dims, None).unwrap();
        total = b.add_optional(total, Some(y)).unwrap();
    }
    b.finish(&[total.unwrap()])
}

fn print(program: &Program, want: Expect) {
    want.assert_eq(&program.to_string());
}

/// A linear loop saves nothing per iteration, and its transpose consists of slices, pads and sums.
#[test]
fn heat_keeps_nothing() {
    let program = looped(heat_step(10), 0, 5);
    check(&program, &[0]);
    let vjp = vjp_program(&program, &[0]).unwrap();
    print(
        &vjp.backward,
        expect![[r#"
            (a: float64[10], b: float64[]) {
              c: float64[10] = broadcast_in_dim[shape=[10], dims=[]] b
              d: float64[10] = mul c a
              e: float64[10] = loop[2..7, fixed=0, carry=1, reverse] d
                (a: int32[], b: float64[10]) {
                  c: float64[8] = full[value=0.0, ty=f64[8]] 
                  d: float64[10] = update_slice[start=[1]] b c
                  e: float64[8] = slice[start=[1], limit=[9]] b
                  f: float64[8] = mul e 0.1
                  g: float64[8] = neg f
                  h: float64[8] = mul g 2.0
                  i: float64[8] = add e h
                  j: float64[10] = pad[low=[0], high=[2], value=0.0] f
                  k: float64[10] = add d j
                  l: float64[10] = pad[low=[2], high=[0], value=0.0] f
                  m: float64[10] = add k l
                  n: float64[10] = pad[low=[1], high=[1], value=0.0] i
                  o: float64[10] = add m n
                  return o
                }
              return e
            }
        "#]],
    );
}

/// Returns `x ← sin(x · cos(w)) + s_k·k`: a value that depends on w alone is computed once; slices
/// and the loop index are not saved.
fn nonlinear() -> Program {
    let mut b = Builder::new();
    let k = b.input(I32.array_type([]), None);
    let w = b.input(F64.array_type([3]), None);
    let x = b.input(F64.array_type([3]), None);
    let s = b.input(F64.array_type([3]), None);
    let c = b.cos(&w).unwrap();
    let y = b.mul(&x, &c).unwrap();
    let y = b.sin(&y).unwrap();
    let k = b.convert(&k, F64).unwrap();
    let z = b.mul(&s, &k).unwrap();
    let next = b.add(&y, &z).unwrap();
    let out = b.mul(&next, &s).unwrap();
    b.finish(&[next, out])
}

#[test]
fn a_loop_with_all_kinds_of_operands() {
    let program = looped(nonlinear(), 1, 4);
    check(&program, &[0, 1, 2]);
    check(&program, &[0]);
    check(&program, &[2]);
    let vjp = vjp_program(&program, &[0, 1, 2]).unwrap();
    print(
        &vjp.forward,
        expect![[r#"
            (a: float64[3], b: float64[3], c: float64[4,3]) {
              d: float64[3], e: float64[4,3], f: float64[4,3], g: float64[4,3], h: float64[4], i: float64[4,3] = loop[2..6, fixed=1, carry=1] a b c
                (a: int32[], b: float64[3], c: float64[3], d: float64[3]) {
                  e: float64[3] = cos b
                  f: float64[3] = mul c e
                  g: float64[3] = sin f
                  h: float64[3] = cos f
                  i: float64[] = convert_element_type[dtype=float64] a
                  j: float64[3] = mul d i
                  k: float64[3] = add g j
                  l: float64[3] = mul k d
                  return k, l, c, h, i, k
                }
              j: float64[3] = cos a
              k: float64[3] = sin a
              l: float64[3] = neg k
              m: float64[3] = square d
              n: float64[3] = mul d 2.0
              o: float64[] = reduce_sum[axes=[0]] m
              p: float64[4,3] = square e
              q: float64[4,3] = mul e 2.0
              r: float64[] = reduce_sum[axes=[0, 1]] p
              s: float64[] = add o r
              return s, c, f, g, h, i, j, l, n, q
            }
        "#]],
    );
    print(
        &vjp.backward,
        expect![[r#"
            (a: float64[4,3], b: float64[4,3], c: float64[4,3], d: float64[4], e: float64[4,3], f: float64[3], g: float64[3], h: float64[3], i: float64[4,3], j: float64[]) {
              k: float64[4,3] = broadcast_in_dim[shape=[4,3], dims=[]] j
              l: float64[4,3] = mul k i
              m: float64[3] = broadcast_in_dim[shape=[3], dims=[]] j
              n: float64[3] = mul m h
              o: float64[3] = full[value=0.0, ty=f64[3]] 
              p: float64[3], q: float64[3], r: float64[4,3] = loop[2..6, fixed=2, carry=2, reverse] f g n o b a c d e l
                (a: int32[], b: float64[3], c: float64[3], d: float64[3], e: float64[3], f: float64[3], g: float64[3], h: float64[3], i: float64[], j: float64[3], k: float64[3]) {
                  l: float64[3] = mul k j
                  m: float64[3] = mul k g
                  n: float64[3] = add d m
                  o: float64[3] = mul n i
                  p: float64[3] = add l o
                  q: float64[3] = mul n h
                  r: float64[3] = mul q f
                  s: float64[3] = mul q b
                  t: float64[3] = mul r c
                  u: float64[3] = add e t
                  return s, u, p
                }
              return q, p, r
            }
        "#]],
    );
}

/// Second derivatives: the gradient's product with a vector, computed in both ways.
#[test]
fn second_derivatives() {
    let program = looped(nonlinear(), 1, 3);
    let gradient = gradient(&program, &[0, 1]);
    let mut b = Builder::new();
    let ins: Vec<Value> = gradient.inputs.iter().map(|v| b.input(gradient.ty(*v).clone(), None)).collect();
    let cts = b.inline(&gradient, &ins);
    let mut total = None;
    for (k, ct) in cts.iter().enumerate() {
        let v = b.mul_scalar(ct, 1.0 + k as f64).unwrap();
        let v = b.mul(&v, ct).unwrap();
        let v = b.reduce_sum(&v, &[0], None).unwrap();
        total = b.add_optional(total, Some(v)).unwrap();
    }
    let along = b.finish(&[total.unwrap()]);
    check(&along, &[0, 1, 2]);
}

/// Carries without a tangent at first, integer carries, and a loop that runs in reverse.
#[test]
fn carries_of_all_kinds() {
    let mut b = Builder::new();
    b.input(I32.array_type([]), None);
    let w = b.input(F64.array_type([]), None);
    let (n, x, y) = (
        b.input(I32.array_type([]), None),
        b.input(F64.array_type([]), None),
        b.input(F64.array_type([]), None),
    );
    let s = b.input(F64.array_type([]), None);
    let one = Value::literal(I32, 1);
    let n1 = b.add(&n, &one).unwrap();
    let nf = b.convert(&n, F64).unwrap();
    // x gets a tangent from w in the first iteration, and y gets one from x in the second.
    let x1 = b.mul(&w, &nf).unwrap();
    let x1 = b.mul(&x1, &s).unwrap();
    let y1 = b.sin(&x).unwrap();
    let y1 = b.add(&y, &y1).unwrap();
    let body = Arc::new(b.finish(&[n1, x1, y1.clone(), y1]));
    let mut b = Builder::new();
    let (w, s) = (b.input(F64.array_type([]), None), b.input(F64.array_type([4]), None));
    let zero = Value::literal(F64, 0.0);
    let l = Loop { body, start: 0, length: 4, reverse: true, fixed: 1, carry: 3 };
    let types = vec![I32.array_type([]), F64.array_type([]), F64.array_type([]), F64.array_type([4])];
    let outs = b.control(Control::Loop(l), &[w, Value::literal(I32, 1), zero.clone(), zero, s], types);
    let ys = b.square(&outs[3]).unwrap();
    let ys = b.reduce_sum(&ys, &[0], None).unwrap();
    let y = b.mul(&outs[2], &ys).unwrap();
    let program = b.finish(&[y]);
    check(&program, &[0, 1]);
    check(&program, &[0]);
    check(&program, &[1]);
}

/// A branch saves the residuals that it needs; a result that depends on the input in one branch
/// only has a cotangent only there.
#[test]
fn branches() {
    let branch = |f: &dyn Fn(&mut Builder, &Value, &Value) -> Value| {
        let mut b = Builder::new();
        let (x, y) = (b.input(F64.array_type([3]), None), b.input(F64.array_type([3]), None));
        let out = f(&mut b, &x, &y);
        Arc::new(b.finish(&[out]))
    };
    let one = branch(&|b, x, y| {
        let z = b.sin(x).unwrap();
        b.mul(&z, y).unwrap()
    });
    let two = branch(&|b, x, _| {
        let z = b.exp(x).unwrap();
        b.mul(&z, &z).unwrap()
    });
    let three = branch(&|b, _, y| b.mul_scalar(y, 3.0).unwrap());
    for which in 0..3 {
        let mut b = Builder::new();
        let (x, y) = (b.input(F64.array_type([3]), None), b.input(F64.array_type([3]), None));
        let branches = vec![one.clone(), two.clone(), three.clone()];
        let out = b.control(
            Control::Cond { branches },
            &[Value::literal(I32, which), x, y],
            vec![F64.array_type([3])],
        );
        let out = b.square(&out[0]).unwrap();
        let out = b.reduce_sum(&out, &[0], None).unwrap();
        let program = b.finish(&[out]);
        check(&program, &[0, 1]);
        check(&program, &[1]);
    }
    let mut b = Builder::new();
    let (which, x) = (b.input(Bool.array_type([]), None), b.input(F64.array_type([3]), None));
    let branches = vec![two, three];
    let out = b.control(Control::Cond { branches }, &[which, x.clone(), x], vec![F64.array_type([3])]);
    let vjp = vjp_program(&b.finish(&out), &[1]).unwrap();
    assert_eq!(vjp.depends, [true]);
}
