//! Tests rows with gathers and scatters, row kernels, windows, and nested programs.

use super::*;
use crate::DType::{Bool, F32, I32};
use crate::core::Scalar;
use crate::ir::ops::along_axis::{CumulativeOp, CumulativeScan, Sort};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::ops::indexing::{DynamicSlice, DynamicUpdateSlice, Gather, GatherDims, Scatter};
use crate::ir::program::{Control, Loop, OutOfBounds, Placement, Reducer};
use crate::{ArrayType, Mesh};

/// Emits a primitive and returns its first result.
fn emit(r: &mut PropagationTest, prim: Prim, inputs: &[&Value]) -> Value {
    let inputs: Vec<Value> = inputs.iter().map(|v| (*v).clone()).collect();
    r.b.emit(prim, &inputs).unwrap().remove(0)
}
/// Adds an input of indices.
fn places(r: &mut PropagationTest, shape: &[usize], spec: Spec) -> Value {
    let ty = ArrayType { mesh: Some(r.mesh.clone()), ..I32.array_type(shape) };
    let dims = crate::core::sharding::sub_axes::from_spec(&r.mesh, spec.padded(shape.len()));
    r.b.input(ty, Some(Placement { dims, ..Placement::default() }))
}

#[test]
fn places_known_at_run_time() {
    row("25", &M, |r| {
        let (a, at) = (r.arg(&[8, 16], p![X, Y]), places(r, &[], p![]));
        let prim =
            DynamicSlice { sizes: [4, 16].into(), dims: vec![0], batch_dims: vec![], out_sharding: None };
        let c = emit(r, Arc::new(prim), &[&a, &at]);
        r.want(&c, "-,Y");
    });
    row("26", &M, |r| {
        let (a, u, at) = (r.arg(&[8, 16], p![X, Y]), r.free(&[4, 16]), places(r, &[], p![]));
        let prim =
            DynamicUpdateSlice { dims: vec![0], batch_dims: vec![], reducer: None, out_sharding: None };
        let c = emit(r, Arc::new(prim), &[&a, &u, &at]);
        r.want(&c, "X,Y");
        r.want(&u, "-,Y");
    });
    let take = |name, table: Spec, at: Spec, expected: &str| {
        row(name, &M, |r| {
            let (t, i) = (r.arg(&[64, 16], table), places(r, &[16, 1], at));
            let rows = GatherDims::rows(2, 0, 1, OutOfBounds::Clip);
            let prim = Gather {
                dims: rows,
                slice_sizes: [1, 16].into(),
                fill: Scalar::Float(0.0),
                out_sharding: None,
            };
            let c = emit(r, Arc::new(prim), &[&t, &i]);
            r.want(&c, expected);
        });
    };
    take("27", p![X, Y], p![Y], "-,Y");
    take("28", p![_, Y], p![X], "X,Y");
    row("29", &M, |r| {
        let (t, i, u) = (r.arg(&[64, 16], p![X]), places(r, &[16, 1], p![Y]), r.arg(&[16, 16], p![Y]));
        let at = GatherDims::rows(2, 0, 1, OutOfBounds::Drop);
        let prim = Scatter { dims: at, reducer: Some(Reducer::Add), out_sharding: None };
        let c = emit(r, Arc::new(prim), &[&t, &u, &i]);
        r.want(&c, "X,-");
    });
}

#[test]
fn lines_and_windows() {
    let sort = |r: &mut PropagationTest, a: &Value| emit(r, Arc::new(Sort { axis: 0, keys: 1 }), &[a]);
    one("32", &M, &[16, 32], p![X, Y], "X,Y", sort);
    // Shardy blocks a single row: no other dimension could be split, and its result would be
    // replicated. Here it stays split: each device gathers the operand in any case, keeps its piece
    // of the sorted row, and later steps are split
    one("32, of one line", &M, &[16], p![X], "X", sort);
    one("33", &M, &[16, 32], p![X, Y], "X,Y", |r, a| {
        emit(r, Arc::new(CumulativeScan { kind: CumulativeOp::Sum, axis: 0, reverse: false }), &[a])
    });
    let conv = super::images();
    let two = |name, x: Spec, w: Spec, expected: &str| {
        row(name, &M, |r| {
            let (x, w) = (r.arg(&[8, 4, 16, 16], x), r.arg(&[8, 4, 3, 3], w));
            let c = emit(r, Arc::new(conv.clone()), &[&x, &w]);
            assert_eq!(c.ty.shape[..], [8, 8, 16, 16]);
            r.want(&c, expected);
        });
    };
    two("34", p![Y, _, X, _], p![], "Y,-,X,-");
    two("35", p![_, Y, _, _], p![X, Y, _, _], "-,X,-,-");
}

#[test]
fn factorizations() {
    one("51", &M, &[8, 16, 16], p![X, _, Y], "X,-,-", |r, a| {
        emit(r, Arc::new(crate::ir::ops::linalg::Cholesky), &[a])
    });
}

#[test]
fn loops_and_branches() {
    let ty = |mesh: &Mesh, shape: &[usize]| ArrayType { mesh: Some(mesh.clone()), ..F32.array_type(shape) };
    row("36, a loop of so many steps", &M, |r| {
        let c = r.arg(&[16, 32], p![X, Y]);
        let body = r.body(&[&[], &[16, 32]], |r, a| vec![r.b.sin(&a[1]).unwrap()]);
        let control = Control::Loop(Loop { body, start: 0, length: 5, reverse: false, fixed: 0, carry: 1 });
        let types = vec![ty(&r.mesh, &[16, 32])];
        let outs = r.b.control(control, &[c], types);
        r.want(&outs[0], "X,Y");
    });
    row("36, a loop while", &M, |r| {
        let c = r.arg(&[16, 32], p![X, Y]);
        let body = r.body(&[&[16, 32]], |r, a| vec![r.b.sin(&a[0]).unwrap()]);
        let cond = r.body(&[&[16, 32]], |r, a| {
            let sum = r.b.reduce_sum(&a[0], &[0, 1], None).unwrap();
            vec![r.b.binary(Binary::Lt, &sum, &Value::literal(F32, 1.0)).unwrap()]
        });
        let control = Control::While { cond, body, cond_fixed: 0, body_fixed: 0 };
        let types = vec![ty(&r.mesh, &[16, 32])];
        let outs = r.b.control(control, &[c], types);
        r.want(&outs[0], "X,Y");
    });
    row("37", &M, |r| {
        let (c, w) = (r.arg(&[16, 32], p![X]), r.arg(&[5, 32, 32], p![_, _, Y]));
        let body = r.body(&[&[], &[16, 32], &[32, 32]], |r, a| {
            let h = dot(r, &a[1], &a[2]);
            vec![r.b.unary(Unary::Tanh, &h).unwrap()]
        });
        let control = Control::Loop(Loop { body, start: 0, length: 5, reverse: false, fixed: 0, carry: 1 });
        let types = vec![ty(&r.mesh, &[16, 32])];
        let outs = r.b.control(control, &[c, w], types);
        r.want(&outs[0], "X,Y");
    });
    row("38", &M, |r| {
        let (a, b) = (r.arg(&[16, 32], p![X]), r.arg(&[16, 32], p![_, Y]));
        let branches =
            (0..2).map(|k| r.body(&[&[16, 32], &[16, 32]], |r, a| vec![r.b.sin(&a[k]).unwrap()])).collect();
        let which = r.b.input(Bool.array_type([]), None);
        let types = vec![ty(&r.mesh, &[16, 32])];
        let outs = r.b.control(Control::Cond { branches }, &[which, a, b], types);
        r.want(&outs[0], "X,Y");
    });
}
