//! The residuals and errors of derived programs.

use super::{check, gradient, near, run, sample};
use crate::error_checks::Unquoted as _;
use atmesh::grad::{jvp_program, vjp_program, vjp_program_for_results};
use atmesh::mesh::{Axes, AxisType};
use atmesh::program::dce::dce;
use atmesh::program::{Builder, CheckpointPolicy, Control, Loop, Op, Program, ShardMapping, Value};
use atmesh::types::DType::{F32, F64, I32};
use atmesh::types::{ArrayType, DType};
use atmesh::{ErrorKind, Mesh, p};
use std::sync::Arc;

fn three_sines() -> Arc<Program> {
    let mut b = Builder::new();
    let x = b.input(F64.array_type([3]), None);
    let y = b.sin(&x).unwrap();
    let y = b.sin(&y).unwrap();
    let y = b.sin(&y).unwrap();
    Arc::new(b.finish(&[y]))
}
fn summed(control: Control, ty: ArrayType) -> Program {
    let mut b = Builder::new();
    let x = b.input(ty.clone(), None);
    let out = b.control(control, &[x], vec![ty]);
    let y = b.reduce_sum(&out[0], &[0], None).unwrap();
    b.finish(&[y])
}

/// A checkpoint saves its operands and no intermediate value.
#[test]
fn checkpoints_keep_their_operands() {
    for (keep, kept) in [(CheckpointPolicy::SaveAll, 3), (CheckpointPolicy::SaveNothing, 1)] {
        let program = summed(Control::call(three_sines(), keep), F64.array_type([3]));
        check(&program, &[0]);
        assert_eq!(vjp_program(&program, &[0]).unwrap().residuals, kept);
    }
    let program = summed(Control::call(three_sines(), CheckpointPolicy::SaveNothing), F64.array_type([3]));
    let twice = gradient(&program, &[0]);
    let mut b = Builder::new();
    let x = b.input(F64.array_type([3]), None);
    let g = b.inline(&twice, &[x]);
    let g = b.reduce_sum(&g[0], &[0], None).unwrap();
    check(&b.finish(&[g]), &[0]);
}

/// In a program with auto axes, the cotangent is placed outside in the same way as its operand.
#[test]
fn modes() {
    let mesh = Mesh::without_devices([("X", 2)]).unwrap();
    let inner = mesh.with_axis_types("X", AxisType::Auto).unwrap();
    let mut b = Builder::new();
    let x = b.input(ArrayType { mesh: Some(inner), ..F64.array_type([4]) }, None);
    let y = b.sin(&x).unwrap();
    let y = b.mul(&y, &x).unwrap();
    let body = Arc::new(b.finish(&[y]));
    let outside = ArrayType { mesh: Some(mesh), spec: p!["X"], ..F64.array_type([4]) };
    let program = summed(Control::AxisModes { body, out_specs: vec![Some(p!["X"])] }, outside.clone());
    check(&program, &[0]);
    let vjp = vjp_program(&program, &[0]).unwrap();
    assert_eq!(vjp.backward.output_types(), [outside]);
}

fn doubling() -> Program {
    let program = |f: &dyn Fn(&mut Builder, Value) -> Value| {
        let mut b = Builder::new();
        let x = b.input(F64.array_type([]), None);
        let y = f(&mut b, x);
        Arc::new(b.finish(&[y]))
    };
    let cond = program(&|b, x| {
        let ten = Value::literal(F64, 10.0);
        b.binary(atmesh::ops::elementwise::Binary::Lt, &x, &ten).unwrap()
    });
    let body = program(&|b, x| {
        let y = b.square(&x).unwrap();
        b.add_scalar(&y, 1.0).unwrap()
    });
    let mut b = Builder::new();
    let x = b.input(F64.array_type([]), None);
    let outs = b.control(
        Control::While { cond, body, cond_fixed: 0, body_fixed: 0 },
        &[x],
        vec![F64.array_type([])],
    );
    b.finish(&outs)
}

/// While loops support forward mode only; the error suggests an alternative.
#[test]
fn while_loops() {
    let program = doubling();
    let jvp = jvp_program(&program, &[true]).unwrap();
    let at = |x: f64| run(&program, &[vec![x]])[0][0];
    let got = run(&jvp.program, &[vec![0.5], vec![1.0]])[1][0];
    near(got, (at(0.5 + 1e-6) - at(0.5 - 1e-6)) / 2e-6, "tangent through a while loop");
    let error = vjp_program(&program, &[0]).unwrap_err();
    assert!(error.unquoted().contains("fori_loop with fixed bounds"), "{error}");
}

/// A while loop that only affects integers does not prevent differentiation.
#[test]
fn what_has_no_tangent_is_no_obstacle() {
    let mut b = Builder::new();
    let (x, y) = (b.input(F64.array_type([]), None), b.input(F64.array_type([]), None));
    let z = b.inline(&doubling(), &[y]);
    let out = b.mul(&x, &z[0]).unwrap();
    let program = b.finish(&[out]);
    check(&program, &[0]);
}

#[test]
fn only_floats_are_differentiated_by() {
    let mut b = Builder::new();
    let n = b.input(I32.array_type([2]), None);
    let error = vjp_program(&b.finish(&[n]), &[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Dtype);
    assert!(error.unquoted().contains("int32[2]"), "{error}");
}

/// Inputs that a result does not depend on get zeros; a result that depends on no differentiated
/// input takes no cotangent.
#[test]
fn independent_inputs_and_results() {
    let mut b = Builder::new();
    let (x, y) = (b.input(F64.array_type([2]), None), b.input(F64.array_type([2]), None));
    let s = b.sin(&x).unwrap();
    let program = b.finish(&[s, y]);
    let vjp = vjp_program(&program, &[0]).unwrap();
    assert_eq!(vjp.depends, [true, false]);
    let mut b = Builder::new();
    let (x, _) = (b.input(F64.array_type([]), None), b.input(F64.array_type([2]), None));
    let program = b.finish(&[x]);
    assert_eq!(run(&gradient(&program, &[1, 0]), &[vec![1.0], sample(2, 0)]), [vec![0.0, 0.0], vec![1.0]]);
}

/// Nothing is saved for results that are not differentiated.
#[test]
fn results_that_take_no_cotangent() {
    let mut b = Builder::new();
    let x = b.input(F64.array_type([2]), None);
    let (y, z) = (b.mul_scalar(&x, 2.0).unwrap(), b.sin(&x).unwrap());
    let vjp = vjp_program_for_results(&b.finish(&[y, z]), &[0], &[true, false]).unwrap();
    assert_eq!((vjp.residuals, vjp.depends), (0, vec![true, false]));
}

/// Prints occur once, in the forward program.
#[test]
fn prints_stay() {
    let mut b = Builder::new();
    let x = b.input(F32.array_type([2]), None);
    let y = b.sin(&x).unwrap();
    b.control(Control::Print { template: "{}".into() }, std::slice::from_ref(&y), Vec::new());
    let y = b.sin(&y).unwrap();
    let vjp = vjp_program(&b.finish(&[y]), &[0]).unwrap();
    let prints = |p: &Program| {
        p.equations.iter().filter(|e| matches!(e.op, Op::Control(Control::Print { .. }))).count()
    };
    assert_eq!((prints(&vjp.forward), prints(&vjp.backward)), (1, 0));
}

/// Weights that are equal on all devices, used twice in each iteration of a per-device loop: their
/// gradient is summed over devices once, after the loop.
#[test]
fn gradients_are_summed_over_devices_once() {
    let mesh = Mesh::without_devices([("X", 2)]).unwrap();
    let manual = mesh.with_axis_types("X", AxisType::Manual).unwrap();
    let ty = |varying: bool| ArrayType {
        mesh: Some(manual.clone()),
        varying: if varying { "X".into() } else { Axes::none() },
        ..F64.array_type([2])
    };
    let mut b = Builder::new();
    b.input(I32.array_type([]), None);
    let (w, x) = (b.input(ty(false), None), b.input(ty(true), None));
    let y = b.mul(&x, &w).unwrap();
    let y = b.sin(&y).unwrap();
    let z = b.mul(&w, &x).unwrap();
    let next = b.add(&y, &z).unwrap();
    let body = Arc::new(b.finish(&[next]));
    let mut b = Builder::new();
    let (w, x) = (b.input(ty(false), None), b.input(ty(true), None));
    let l = Loop { body, start: 0, length: 3, reverse: false, fixed: 1, carry: 1 };
    let out = b.control(Control::Loop(l), &[w, x], vec![ty(true)]);
    let body = Arc::new(b.finish(&out));
    let global = |spec| ArrayType {
        mesh: Some(mesh.clone()),
        spec,
        ..F64.array_type([if spec == p!["X"] { 4 } else { 2 }])
    };
    let mapping = ShardMapping {
        body,
        mesh: mesh.clone(),
        axes: "X".into(),
        in_specs: vec![p![_], p!["X"]],
        out_specs: vec![p!["X"]],
        checked: true,
    };
    let mut b = Builder::new();
    let (w, x) = (b.input(global(p![_]), None), b.input(global(p!["X"]), None));
    let out = b.control(Control::ShardMap(mapping), &[w, x], vec![global(p!["X"])]);
    let out = b.reduce_sum(&out[0], &[0], None).unwrap();
    let program = b.finish(&[out]);
    check(&program, &[0, 1]);
    let backward = vjp_program(&program, &[0, 1]).unwrap().backward.to_string();
    assert_eq!(backward.matches("psum").count(), 1, "{backward}");
}

/// Cotangents have the operand's type with reduced and unreduced axes exchanged, however the
/// operand was cast.
#[test]
fn cotangents_lie_as_their_operands() {
    let mesh = Mesh::without_devices([("X", 2), ("Y", 2)]).unwrap();
    let ty = |text: &str| ArrayType::parse(text, &mesh).unwrap();
    for (a, b_) in [
        ("float64[4@X,2]", "float64[4,2]"),
        ("float64[4@X,2@Y]", "float64[2]"),
        ("float64[4@X,1]", "float64[1,2@Y]"),
        ("float64[4]", "float64[]"),
        ("float64[4@X]{R:Y}", "float64[4@X]{R:Y}"),
    ] {
        let mut b = Builder::new();
        let (x, y) = (b.input(ty(a), None), b.input(ty(b_), None));
        let z = b.mul(&x, &y).unwrap();
        let z = b.square(&z).unwrap();
        let dims: Vec<usize> = (0..z.ty.rank()).collect();
        let z = b.reduce_sum(&z, &dims, None).unwrap();
        let program = b.finish(&[z]);
        let vjp = vjp_program(&program, &[0, 1]).unwrap();
        let types: Vec<String> = vjp.backward.output_types().iter().map(|t| t.to_string()).collect();
        assert_eq!(types, [a, b_].map(|t| t.replace("{R:", "{U:")));
    }
    assert_eq!(DType::F64.array_type([]).to_string(), "float64[]");
}

/// Carries that only feed themselves are removed, together with the loop-invariant inputs, slices
/// and results that only they use. A carry that another one reads stays.
#[test]
fn what_nobody_needs_goes() {
    let f = || F64.array_type([]);
    let mut b = Builder::new();
    b.input(I32.array_type([]), None);
    let (dead_fixed, fixed) = (b.input(f(), None), b.input(f(), None));
    let (dead, x, y) = (b.input(f(), None), b.input(f(), None), b.input(f(), None));
    let (slice, dead_slice) = (b.input(f(), None), b.input(f(), None));
    let dead_next = b.mul(&dead, &dead_fixed).unwrap();
    let stacked = b.add(&dead, &dead_slice).unwrap();
    let next = b.add(&x, &y).unwrap();
    let y_next = b.mul(&y, &fixed).unwrap();
    let y_next = b.add(&y_next, &slice).unwrap();
    let body = Arc::new(b.finish(&[dead_next, next, y_next, stacked]));
    let mut b = Builder::new();
    let mut ins: Vec<Value> = (0..5).map(|_| b.input(f(), None)).collect();
    ins.extend((0..2).map(|_| b.input(F64.array_type([4]), None)));
    let l = Loop { body, start: 0, length: 4, reverse: false, fixed: 2, carry: 3 };
    let outs = b.control(Control::Loop(l), &ins, vec![f(), f(), f(), F64.array_type([4])]);
    let program = b.finish(&outs[1..2]);
    let small = dce(&program);
    let Op::Control(Control::Loop(l)) = &small.equations[0].op else { panic!("{small}") };
    assert_eq!((l.fixed, l.carry, l.body.inputs.len(), l.body.outputs.len()), (1, 2, 5, 2), "{small}");
    let point: Vec<Vec<f64>> = (0..7).map(|k| sample(if k < 5 { 1 } else { 4 }, k)).collect();
    assert_eq!(run(&small, &point), run(&program, &point));
}
