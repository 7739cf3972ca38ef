//! Tests of loops and branches.

use super::*;

#[test]
fn loops() {
    for &n in if cfg!(miri) { &[24][..] } else { &[104, 1003] } {
        for &steps in if cfg!(miri) { &[2][..] } else { &[0, 1, 2, 7] } {
            check("heat 1-D", &heat1d(n, steps), 1e-5);
        }
    }
    let (n, steps) = if cfg!(miri) { (9, 2) } else { (70, 5) };
    check("heat 2-D", &heat2d(n, steps), 1e-5);
}

fn body(f: impl FnOnce(&mut SampleBuilder) -> Vec<Slot>) -> Box<SpmdProgram> {
    let mut b = SampleBuilder::new(F32_DTYPE);
    let outs = f(&mut b);
    Box::new(b.finish(&outs))
}
#[test]
fn scans() {
    for (length, reverse) in
        [(2, false), (0, false), (1, true), (5, true)].into_iter().take(if cfg!(miri) { 1 } else { 4 })
    {
        // two carries change places, one of them updated, and the third is constant; an old carry,
        // the updated one and the slice of `xs` are stacked
        let b = body(|b| {
            let t = b.slot_of(DType::I32, &[], &[], &[]);
            b.p.ins.push(t);
            let w = b.input(&[4], &[1]);
            let (p, q, k) = (b.input(&[4], &[1]), b.input(&[4], &[1]), b.input(&[4], &[1]));
            let x = b.input(&[4], &[1]);
            let r = b.broadcast(t, &[4]);
            let n = b.local(
                &[4],
                &[1],
                vec![r],
                F32_DTYPE,
                ScalarCode::single(ScalarOp::Convert, DType::I32, F32_DTYPE, &[ScalarArg::Access(0)]),
            );
            let a = b.binary(ScalarOp::Mul, p, w);
            let a = b.binary(ScalarOp::Add, a, x);
            let a = b.binary(ScalarOp::Add, a, n);
            vec![q, a, k, p, a, x]
        });
        let mut m = SampleBuilder::new(F32_DTYPE);
        let w = m.input(&[4], &[1]);
        let carry: Vec<Slot> = (0..3).map(|_| m.input(&[4], &[1])).collect();
        let xs = m.input(&[length, 4], &[1, 1]);
        let out: Vec<Slot> = (0..3).map(|_| m.slot(&[4], &[1])).collect();
        let ys: Vec<Slot> = (0..3).map(|_| m.slot(&[length, 4], &[1, 1])).collect();
        m.p.steps.push(Step::Loop {
            body: b,
            start: 3,
            length,
            reverse,
            fixed: vec![w],
            carry,
            xs: vec![xs],
            out: out.clone(),
            ys: ys.clone(),
        });
        let after = m.binary(ScalarOp::Add, out[0], out[2]);
        check("scan", &m.finish(&[out, ys, vec![after]].concat()), 1e-5);
    }
}
#[test]
fn loops_in_loops_while_and_branches() {
    const N: usize = if cfg!(miri) { 20 } else { 600 };
    // while the first element is below 40: a loop of three iterations, then a branch with two arms
    let inner = body(|b| {
        let t = b.slot_of(DType::I32, &[], &[], &[]);
        b.p.ins.push(t);
        let x = b.input(&[N], &[1]);
        vec![b.scale(x, 1.25, 0.5)]
    });
    let arm = |c: f64| {
        *body(|b| {
            let x = b.input(&[N], &[1]);
            vec![b.scale(x, 1.0, c)]
        })
    };
    let step = body(|b| {
        let x = b.input(&[N], &[1]);
        let i = b.slot_of(DType::I32, &[], &[], &[]);
        b.p.ins.push(i);
        let y = b.slot(&[N], &[1]);
        b.p.steps.push(Step::Loop {
            body: inner.clone(),
            start: 0,
            length: 3,
            reverse: false,
            fixed: vec![],
            carry: vec![x],
            xs: vec![],
            out: vec![y],
            ys: vec![],
        });
        let z = b.slot(&[N], &[1]);
        b.p.steps.push(Step::Branch {
            selector: i,
            branches: vec![arm(1.0), arm(-2.0), arm(4.0)],
            ins: vec![y],
            out: vec![z],
        });
        let id = b.read_all(i);
        let one = ScalarArg::Const(Scalar::Int(1));
        let n = b.local(
            &[],
            &[],
            vec![id],
            DType::I32,
            ScalarCode::single(ScalarOp::Add, DType::I32, DType::I32, &[ScalarArg::Access(0), one]),
        );
        vec![z, n]
    });
    let cond = body(|b| {
        let x = b.input(&[N], &[1]);
        let i = b.slot_of(DType::I32, &[], &[], &[]);
        b.p.ins.push(i);
        let r = b.read(x, &[], &[(None, 0)]);
        let top = ScalarArg::Const(Scalar::Float(40.0));
        vec![b.local(
            &[],
            &[],
            vec![r],
            DType::Bool,
            ScalarCode::single(ScalarOp::Lt, F32_DTYPE, DType::Bool, &[ScalarArg::Access(0), top]),
        )]
    });
    let mut m = SampleBuilder::new(F32_DTYPE);
    let x = m.input(&[N], &[1]);
    let i = m.slot_of(DType::I32, &[], &[], &[]);
    m.p.ins.push(i);
    let (y, n) = (m.slot(&[N], &[1]), m.slot_of(DType::I32, &[], &[], &[]));
    m.p.steps.push(Step::While {
        cond,
        body: step,
        cond_fixed: vec![],
        body_fixed: vec![],
        carry: vec![x, i],
        out: vec![y, n],
    });
    check("while", &m.finish(&[y, n]), 1e-4);
}
/// Checks a branch of which each device takes its own arm.
#[test]
fn branches_by_device() {
    for of in [DType::Bool, DType::I32] {
        let arm = |c: f64| {
            *body(|b| {
                let x = b.input(&[8, 5], &[8, 1]);
                vec![b.scale(x, c, c)]
            })
        };
        let mut branches = vec![arm(1.0), arm(-2.0)];
        if of == DType::I32 {
            branches.push(arm(3.0));
        }
        let mut m = SampleBuilder::new(F32_DTYPE);
        let x = m.input(&[8, 5], &[8, 1]);
        let which = m.slot_of(of, &[8], &[8], &[]);
        m.p.ins.push(which);
        let y = m.slot(&[8, 5], &[8, 1]);
        m.p.steps.push(Step::Branch { selector: which, branches, ins: vec![x], out: vec![y] });
        check("by device", &m.finish(&[y]), 1e-6);
    }
}
