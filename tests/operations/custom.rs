//! Custom operations: typed, sharded, mapped and differentiated like the crate's own, with errors
//! that say where they are wrong.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{CustomOp, EngineKind, Error, ErrorKind, Spec, custom_op, einsum_to, nd};

const ENGINES: [EngineKind; 3] = [EngineKind::Reference, EngineKind::Lockstep, EngineKind::Threads];

/// Defines an operation that multiplies each row of a matrix by a matrix; the second result is the
/// sum of each row.
fn times() -> CustomOp {
    custom_op("times", "ij,jk->ik,i", |ins, outs| {
        let (row, m) = (ins[0].view::<f32>(), ins[1].view::<f32>());
        let m = m.into_dimensionality::<nd::Ix2>().unwrap();
        for (k, y) in outs[0].view::<f32>().iter_mut().enumerate() {
            *y = row.iter().zip(m.column(k)).map(|(a, b)| a * b).sum();
        }
        outs[1].view::<f32>()[[]] = row.sum();
    })
    .over("i")
    .derivative(|ins, _, cts| {
        let rows = einsum("ik,jk->ij", [&cts[0], &ins[1]]);
        let sums = cts[1].expand_dims(1);
        vec![rows + sums, (ins[0].expand_dims(2) * cts[0].expand_dims(1)).sum(0)]
    })
}

/// An operation on arrays in a kernel is the same error on every engine, and computes nothing.
#[test]
fn kernels_have_no_global_arrays() -> Result<()> {
    static ERRORS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let op = custom_op("inner", "...j->...j", |ins, outs| {
        let row = Array::from(ins[0].view::<f32>().iter().copied().collect::<Vec<_>>());
        let again = jit(|x: &Array| x * 2.0).call(&row).map(|_| ());
        for made in [(&row + 1.0).ty().map(|_| ()), (&row + 1.0).ty().map(|_| ()), again] {
            let text = made.map_or_else(|e| e.diagnostics()[0].fault.message.clone(), |()| "no error".into());
            ERRORS.lock().unwrap().push(text);
        }
        outs[0].view::<f32>().assign(&ins[0].view::<f32>());
    });
    for engine in ENGINES {
        let inner = op.clone();
        let y = jit(move |x: &Array| inner.call(x)).engine(engine).call(Array::ones([2, 3]))?;
        assert_eq!(values(&y), [1.0; 6]);
        let errors = std::mem::take(&mut *ERRORS.lock().unwrap());
        assert_eq!(errors.len(), 6, "{engine:?}: {errors:?}");
        for error in errors {
            assert_eq!(error, "an operation on arrays in a kernel", "{engine:?}");
        }
        // after the kernel, arrays are available again
        assert_eq!(values(&(&y + 1.0)), [2.0; 6]);
    }
    Ok(())
}

/// Computes the same results with the crate's operations.
fn plainly(x: &Array, m: &Array) -> Vec<Array> {
    vec![x.dot(m), x.sum(1)]
}

fn numbers(shape: &[usize]) -> Array {
    let n: usize = shape.iter().product();
    Array::from((0..n).map(|i| ((i * 37 + 11) % 23) as f32 / 4.0 - 2.0).collect::<Vec<_>>()).reshape(shape)
}
fn values(x: &Array) -> Vec<f32> {
    x.to_vec::<f32>().unwrap_or_else(|e| panic!("{e}"))
}
fn close(a: &Array, b: &Array, what: &str) {
    assert_eq!(a.shape().unwrap_or_else(|e| panic!("{what}: {e}")), b.shape().unwrap(), "{what}");
    let near = |(a, b): (f32, f32)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
    assert!(values(a).into_iter().zip(values(b)).all(near), "{what}: {a} and {b}");
}

#[test]
fn it_is_the_same_bits_on_any_mesh_and_engine() {
    let (x, m) = (numbers(&[12, 5]), numbers(&[5, 3]));
    let wanted = times().call_all((&x, &m));
    for (y, z) in wanted.iter().zip(plainly(&x, &m)) {
        close(y, &z, "at once");
    }
    for n in [1, 2, 4, 5, 8] {
        let mesh = Mesh::auto([("X", n), ("Y", 2)]).unwrap();
        for spec in [p![], p!["X"], p![_, "X"], p!["X", "Y"], p!["Y", "X"], p![("X", "Y")]] {
            for other in [p![], p!["X"], p!["Y", "X"]] {
                let (x, m) = (x.put(&mesh, spec), m.put(&mesh, other));
                if x.ty().is_err() || m.ty().is_err() {
                    continue;
                }
                for engine in ENGINES {
                    let f = jit(|x: &Array, m: &Array| times().call_all((x, m))).engine(engine);
                    let got = f.call((&x, &m)).unwrap_or_else(|e| panic!("{n}, {spec}, {engine}: {e}"));
                    for (got, wanted) in got.iter().zip(&wanted) {
                        assert_eq!(values(got), values(wanted), "{n} devices, {spec}, {other}, {engine}");
                    }
                }
            }
        }
    }
}

#[test]
fn it_is_typed_as_its_letters_say() -> Result<()> {
    let mesh = Mesh::new([("X", 4), ("Y", 2)])?;
    let (x, m) = (numbers(&[8, 6]).put(&mesh, p!["X"]), numbers(&[6, 4]).put(&mesh, p![]));
    let both = times().call_all((&x, &m));
    assert_eq!(type_of(&both), "(float32[8@X,4], float32[8@X])");
    assert_collectives!(jit(|x: &Array, m: &Array| times().call_all((x, m))).lower((&x, &m))?,);
    // A dimension that the kernel processes as a whole must be unsharded.
    let error_text = |x: Spec, m: Spec| {
        let (x, m) = (numbers(&[8, 6]).put(&mesh, x), numbers(&[6, 4]).put(&mesh, m));
        let e = times().call_all((&x, &m)).swap_remove(0).ty().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Sharding);
        e.unquoted()
    };
    let text = error_text(p![_, "Y"], p![]);
    assert!(text.contains("times") && text.contains("dimension 1 of operand 0, 6@Y,"), "{text}");
    assert!(text.contains(".reshard(p![_, _])"), "{text}");
    assert!(error_text(p![], p![_, "X"]).contains("dimension 1 of operand 1, 4@X,"));
    // In auto mode it is gathered.
    let mesh = Mesh::auto([("X", 4)])?;
    let (x, m) = (numbers(&[8, 8]).put(&mesh, p![_, "X"]), numbers(&[8, 4]));
    let got = jit(|x: &Array, m: &Array| times().call_all((x, m))).call((&x, &m))?;
    close(&got[0], &numbers(&[8, 8]).dot(&m), "auto");
    Ok(())
}

#[test]
fn its_rule_is_its_derivative() -> Result<()> {
    let (x, m) = (numbers(&[4, 3]), numbers(&[3, 2]));
    let loss = |y: Vec<Array>| (y[0].sin().sum(..) + y[1].cos().sum(..)).sum(..);
    let wanted = grad((&x, &m), |(x, m)| loss(plainly(&x, &m)));
    for n in [1, 2, 4] {
        for mesh in [Mesh::auto([("X", n)])?, Mesh::new([("X", n)])?] {
            let (x, m) = (x.put(&mesh, p!["X"]), m.put(&mesh, p![]));
            for engine in ENGINES {
                let f = |x: &Array, m: &Array| {
                    let (x, m) = grad((x, m), |(x, m)| loss(times().call_all((&x, &m))));
                    vec![x, m]
                };
                let got = jit(f).engine(engine).call((&x, &m))?;
                close(&got[0], &wanted.0, "of x");
                close(&got[1], &wanted.1, "of m");
            }
            // Differentiate with respect to one operand, through one of the results.
            let g = grad(&m, |m| times().call_all((&x, &m))[0].square().sum(..));
            close(&g, &grad(&m, |m| x.dot(&m).square().sum(..)), "of one operand");
            let g = grad(&x, |x| times().call_all((&x, &m))[1].square().sum(..));
            close(&g, &grad(&x, |x| x.sum(1).square().sum(..)), "of one result");
        }
    }
    // Forward mode, and second derivatives.
    let (_, t) = jvp((&x, &m), (&x, &m), |(x, m)| times().call_all((&x, &m)));
    let (_, u) = jvp((&x, &m), (&x, &m), |(x, m)| plainly(&x, &m));
    close(&t[0], &u[0], "tangents");
    close(&t[1], &u[1], "tangents");
    let twice = |f: &dyn Fn(&Array) -> Array| grad(&m, |m| grad(&m, |m: Array| f(&m)).square().sum(..));
    let own = twice(&|m| loss(times().call_all((&x, m))));
    close(&own, &twice(&|m| loss(plainly(&x, m))), "twice");
    // In loops and branches, with recomputation.
    let looped = |f: &dyn Fn(&Array) -> Array| {
        grad(&x, |x| fori_loop(0..3, &x, |_, x: Array| checkpoint(&x, |x| f(&x))).sum(..))
    };
    let square = numbers(&[3, 3]);
    let own = looped(&|x| times().call_all((x, &square)).swap_remove(0).sin());
    close(&own, &looped(&|x| x.dot(&square).sin()), "in a loop");
    Ok(())
}

#[test]
fn examples_are_lines_too() {
    let (x, m) = (numbers(&[5, 4, 3]), numbers(&[3, 2]));
    let one = |x: &Array, m: &Array| times().call_all((x, m)).swap_remove(0);
    let each: Vec<f32> = x.unstack(0).iter().flat_map(|x| values(&one(x, &m))).collect();
    assert_eq!(values(&vmap(&x, |x| one(&x, &m))), each);
    let ms = numbers(&[5, 3, 2]);
    close(&vmap((&x, &ms), |(x, m)| one(&x, &m)), &vmap((&x, &ms), |(x, m)| x.dot(&m)), "both");
    close(&vmap(&ms, |m| one(&x.slice(ix![0]), &m)), &vmap(&ms, |m| x.slice(ix![0]).dot(&m)), "the second");
    let twice = |f: &dyn Fn(&Array, &Array) -> Array| vmap(&x, |x| vmap(&ms, |m| f(&x, &m)));
    close(&twice(&one), &twice(&|x, m| x.dot(m)), "twice");
    // Gradients per example, and gradients of values that all examples share.
    let g = |f: &dyn Fn(&Array, &Array) -> Array| {
        grad(&m, |m| vmap(&x, |x| f(&x, &m).sin()).sum(..))
            + vmap(&x, |x| grad(&m, |m| f(&x, &m).sum(..))).sum(0)
    };
    close(&g(&one), &g(&|x, m| x.dot(m)), "gradients");
    let mesh = Mesh::new([("X", 5)]).unwrap();
    let split = x.put(&mesh, p!["X"]);
    let y = vmap(&split, |x| one(&x, &m));
    assert_eq!(type_of(&y), "float32[5@X,4,2]");
    assert_eq!(values(&y), each);
    let h = grad(&m.put(&mesh, p![]), |m| vmap(&split, |x| one(&x, &m).sin()).sum(..));
    close(&h, &grad(&m, |m| vmap(&x, |x| x.dot(&m).sin()).sum(..)), "split examples");
}

#[test]
fn it_runs_in_device_code() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let (x, m) = (numbers(&[8, 3]), numbers(&[3, 2]));
    let f = |one: fn(&Array, &Array) -> Array| {
        move |x: &Array, m: &Array| {
            let g = grad(m, |m| one(x, &m).sin().sum(..).psum("X"));
            (one(x, m), g)
        }
    };
    let run = |one| shard_map(&mesh, (p!["X"], p![]), (p!["X"], p![]), f(one)).call((&x, &m));
    let (own, plain) = (run(|x, m| times().call_all((x, m)).swap_remove(0))?, run(|x, m| x.dot(m))?);
    close(&own.0, &plain.0, "values");
    close(&own.1, &plain.1, "gradients");
    Ok(())
}

/// Faulty kernels give errors.
#[test]
fn bad_kernels_are_errors() {
    let x = Array::ones([3, 4]);
    let error_text = |op: CustomOp, engine: EngineKind| {
        let f = jit(move |x: &Array| op.call(x)).engine(engine);
        let e = f.call(&x).expect_err("it is wrong");
        assert_eq!(e.kind(), ErrorKind::User, "{e}");
        assert!(e.unquoted().contains("custom.rs:"), "{e}");
        e.unquoted()
    };
    for engine in ENGINES {
        let panics = custom_op("panics", "...j->...j", |ins, _| assert!(ins.is_empty(), "out of luck"));
        assert!(error_text(panics, engine).contains("the kernel of panics panicked: out of luck"));
        let fails = custom_op("fails", "...j->...j", |_, _| Err::<(), _>("no root"));
        assert!(error_text(fails, engine).contains("the kernel of fails failed: no root"));
        let idle = custom_op("idle", "...j->...j", |_, _| ());
        let text = error_text(idle, engine);
        assert!(text.contains("the kernel of idle did not write result 0"), "{text}");
        assert!(text.contains("outs[0].view::<f32>()"), "{text}");
        let half = custom_op("half", "...j->...j,...", |_, outs| drop(outs[0].view::<f32>()));
        let half = jit(move |x: &Array| half.call_all(x).swap_remove(0)).engine(engine).call(&x);
        assert!(half.unwrap_err().unquoted().contains("did not write result 1"));
        let shape = custom_op("shape", "...j->...j", |_, outs| {
            outs[0].view::<f32>().assign(&nd::ArrayD::<f32>::zeros(vec![5]));
        });
        assert!(error_text(shape, engine).contains("the kernel of shape panicked"));
        let dtype = custom_op("dtype", "...j->...j", |ins, _| drop(ins[0].view::<f64>()));
        assert!(error_text(dtype, engine).contains("the kernel of dtype panicked"));
        let far = custom_op("far", "...j->...j", |ins, outs| {
            outs[0].view::<f32>()[[0]] = ins[0].view::<f32>()[[4]];
        });
        assert!(error_text(far, engine).contains("the kernel of far panicked"));
        // Elements that a kernel does not write are zeros.
        let first = custom_op("first", "...j->...j", |_, outs| outs[0].view::<f32>()[[0]] = 1.0);
        let y = jit(move |x: &Array| first.call(x)).engine(engine).call(&x).unwrap();
        assert_eq!(values(&y), [1.0, 0.0, 0.0, 0.0].repeat(3));
        // Swapping the result buffers is harmless.
        let swap = custom_op("swap", "...j->...j,...", |_, outs| {
            outs.swap(0, 1);
            outs[0].view::<f32>().fill(1.0);
            outs[1].view::<f32>().fill(2.0);
        });
        let y = jit(move |x: &Array| swap.call_all(x)).engine(engine).call(&x).unwrap();
        assert_eq!((values(&y[0]), values(&y[1])), (vec![2.0; 12], vec![1.0; 3]));
    }
}

#[test]
fn what_does_not_fit_is_rejected_with_words() {
    let x = Array::ones([3, 4]);
    let op = |dims: &str| custom_op("op", dims, |_, _| ());
    let error_text = |y: Array, kind: ErrorKind, words: &[&str]| {
        let e = y.ty().expect_err("it is rejected");
        assert_eq!(e.kind(), kind, "{e}");
        let text = e.unquoted();
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
    };
    error_text(op("ij").call(&x), ErrorKind::Syntax, &["no `->`"]);
    error_text(
        op("i->i").call(&x),
        ErrorKind::Shape,
        &["operand 0 of op has 2 dimensions", "but `i` names 1"],
    );
    error_text(op("...ijk->...i").call(&x), ErrorKind::Shape, &["`...ijk` names at least 3"]);
    error_text(op("ij,jk->ik").call(&x), ErrorKind::Shape, &["op takes 2 operands", "but got 1"]);
    let sizes = ["dimension 0 of operand 1 of op has size 3", "dimension 1 of operand 0 has 4", "`j`"];
    error_text(op("ij,jk->ik").call((&x, &x)), ErrorKind::Shape, &sizes);
    error_text(op("ij->ik").call(&x), ErrorKind::Shape, &["size of 'k'", ".size('k', …)"]);
    error_text(op("ij->ij").over("k").call(&x), ErrorKind::Syntax, &["cannot run over 'k'"]);
    error_text(op("ij->j").over("i").call(&x), ErrorKind::Syntax, &["cannot run over 'i'"]);
    error_text(op("ij->j").size('j', 3).call(&x), ErrorKind::Syntax, &["given the size of 'j'"]);
    error_text(op("ij->j,j").call(&x), ErrorKind::Shape, &["op has 2 results", ".call_all(…)"]);
    error_text(
        op("ij->j").takes([F64]).call(&x),
        ErrorKind::Dtype,
        &["is float32, and it takes float64", ".astype(F64)"],
    );
    error_text(
        op("ij->j").returns([F64, F32]).call(&x),
        ErrorKind::Syntax,
        &["2 element types for 1 result"],
    );
    assert_eq!(op("ij->j,i").takes([F64]).call_all(&x).len(), 2);
    // Differentiation.
    let y = grad(&x, |x| op("ij->ij").call(&x).sum(..));
    error_text(y, ErrorKind::Unsupported, &["op has no derivative", ".derivative(", ".stop_gradient()"]);
    let ones = custom_op("ones", "ij->ij", |_, outs| outs[0].view::<f32>().fill(1.0));
    let g = grad(&x, |x| (ones.call(x.stop_gradient()) * &x).sum(..));
    assert!(g.ty().is_ok(), "{g}");
    let w = Array::ones([3, 4]);
    let outside = op("ij->ij").derivative(move |_, _, cts| &cts[0] * &w);
    error_text(
        grad(&x, |x| outside.call(&x).sum(..)),
        ErrorKind::Trace,
        &["reads float32[3,4] from outside"],
    );
    let many = op("ij->ij").derivative(|_, _, cts| vec![cts[0].clone(), cts[0].clone()]);
    error_text(
        grad(&x, |x| many.call(&x).sum(..)),
        ErrorKind::Shape,
        &["returns 2 cotangents, but op has 1 operand"],
    );
    let other = op("ij->ij").derivative(|_, _, cts| cts[0].sum(0));
    error_text(grad(&x, |x| other.call(&x).sum(..)), ErrorKind::Shape, &["returns float32[4] for operand 0"]);
    let curved = op("ij->ij").derivative(|_, _, cts| cts[0].square());
    error_text(
        jvp(&x, &x, |x| curved.call(&x)).1,
        ErrorKind::Unsupported,
        &["goes backward only", "use `grad`"],
    );
}

/// The derivative rule may call another kernel.
#[test]
fn the_way_back_may_be_a_kernel() {
    let back = || {
        custom_op("cube_back", "...,...->...", |ins, outs| {
            let (x, ct) = (ins[0].view::<f64>()[[]], ins[1].view::<f64>()[[]]);
            outs[0].view::<f64>()[[]] = 3.0 * x * x * ct;
        })
    };
    let cube = custom_op("cube", "...->...", |ins, outs| {
        outs[0].view::<f64>()[[]] = ins[0].view::<f64>()[[]].powi(3);
    })
    .derivative(move |ins, _, cts| back().call((&ins[0], &cts[0])));
    let x = Array::from([1.0, 2.0]);
    assert_eq!(grad(&x, |x| cube.call(&x).sum(..)).to_vec::<f64>().unwrap(), [3.0, 12.0]);
    let e = jvp(&x, &x, |x| cube.call(&x)).1.ty().unwrap_err();
    assert!(e.unquoted().contains("the derivative of cube goes backward only"), "{e}");
}

/// Two custom operations are equal if their names, labels and code are.
#[test]
fn an_operation_is_its_name_and_its_code() {
    fn plus(n: f64) -> CustomOp {
        custom_op("plus", "...->...", move |ins, outs| {
            outs[0].view::<f64>()[[]] = ins[0].view::<f64>()[[]] + n;
        })
    }
    let x = Array::from([1.0, 2.0]);
    let twice = custom_op("plus", "...->...", |ins, outs| {
        outs[0].view::<f64>()[[]] = 2.0 * ins[0].view::<f64>()[[]];
    });
    let f = |op: &CustomOp| op.call(&x).to_vec::<f64>().unwrap();
    assert_eq!((f(&plus(1.0)), f(&plus(5.0)), f(&twice)), (vec![2.0, 3.0], vec![6.0, 7.0], vec![2.0, 4.0]));
    let both = jit({
        let (a, b) = (plus(1.0), plus(2.0));
        move |x: &Array| a.call(x) * b.call(x)
    });
    assert_eq!(both.call(&x).unwrap().to_vec::<f64>().unwrap(), [6.0, 12.0]);
    // An operation whose kernel captures nothing is compiled once.
    assert_eq!(
        atmesh::jit(|x: &Array| times().call_all((x, x))).trace(&numbers(&[2, 2])).unwrap().program(),
        atmesh::jit(|x: &Array| times().call_all((x, x))).trace(&numbers(&[2, 2])).unwrap().program()
    );
}

/// Loops without iterations, and rows without elements.
#[test]
fn nothing_is_a_size_too() {
    let (x, m) = (Array::zeros([0, 3]), Array::ones([3, 2]));
    assert_eq!(times().call_all((&x, &m))[0].shape().unwrap(), [0, 2]);
    let y = times().call_all((&Array::zeros([2, 0]), &Array::ones([0, 3])));
    assert_eq!(values(&y[0]), [0.0; 6]);
}

/// Defines x², where each element is a row.
fn square() -> CustomOp {
    custom_op("square", "...->...", |ins, outs| {
        let x = ins[0].view::<f32>()[[]];
        outs[0].view::<f32>()[[]] = x * x;
    })
    .derivative(|ins, _, cts| vec![&ins[0] * &cts[0] * 2.0])
}

/// Derivatives are taken through all control flow, and combined with `vmap` and `jit` in any order.
/// In forward mode, a reverse-only operation is an error with an explanation. Nothing panics.
#[test]
fn derivatives_go_through_loops_branches_and_examples() {
    let x = Array::from([0.5f32, -1.5, 2.0]);
    let once = |x: &Array| square().call(x);
    let looped = |x: &Array| fori_loop(0..3, x, |_, x| square().call(&x) * 0.5);
    let plain = |x: &Array| fori_loop(0..3, x, |_, x| &x * &x * 0.5);
    let branched = |x: &Array| cond(x.sum(..).gt(0.0), || square().call(x), || x * 3.0);
    close(&grad(&x, |x| looped(&x).sum(..)), &grad(&x, |x| plain(&x).sum(..)), "a loop");
    close(&grad(&x, |x| branched(&x).sum(..)), &(2.0 * &x), "a branch");
    close(&vmap(&x, |x| grad(x, |x| once(&x))), &(2.0 * &x), "examples of gradients");
    close(&vmap(&x, |x| grad(x, |x| looped(&x))), &grad(&x, |x| plain(&x).sum(..)), "examples of loops");
    close(&grad(&x, |x| vmap(&x, |x| once(&x)).sum(..)), &(2.0 * &x), "gradients of examples");
    let twice = jit(|x: &Array| grad(x, |x| grad(x, |x| once(&x).sum(..)).sum(..)));
    close(&twice.call(&x).unwrap_or_else(|e| panic!("{e}")), &(2.0 * Array::ones([3])), "twice");
    // Forward mode is right or an error that names the operation: alone, mapped, twice, over and
    // under reverse mode, and in a loop.
    let one = || Array::ones([3]);
    let forward: [(&str, Array, f32); 5] = [
        ("jvp", jvp(&x, one(), |x| once(&x)).1, 2.0),
        ("mapped", vmap(&x, |x| jvp(x, Array::ones([]), |x| once(&x)).1), 2.0),
        ("forward over reverse", jvp(&x, one(), |x| grad(x, |x| once(&x).sum(..))).1, 0.0),
        ("reverse over forward", grad(&x, |x| jvp(x, one(), |x| once(&x)).1.sum(..)), 0.0),
        ("a loop", jvp(&x, one(), |x| looped(&x)).1, -1.0),
    ];
    for (what, y, kind) in forward {
        match y.to_vec::<f32>() {
            Ok(_) if kind > 0.0 => close(&y, &(&x * kind), what),
            Ok(_) if kind == 0.0 => close(&y, &(2.0 * one()), what),
            Ok(_) => close(&y, &jvp(&x, one(), |x| plain(&x)).1, what),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unsupported, "{what}: {e}");
                assert!(e.unquoted().contains("square"), "{what}: {e}");
            }
        }
    }
}

/// Defines an operation that multiplies each row of a matrix by a matrix, with a sum over the
/// contracted label.
fn contracted() -> CustomOp {
    custom_op("contracted", "ij,jk->ik", |ins, outs| {
        let (row, m) = (ins[0].view::<f32>(), ins[1].view::<f32>());
        let m = m.into_dimensionality::<nd::Ix2>().unwrap();
        for (k, y) in outs[0].view::<f32>().iter_mut().enumerate() {
            *y = row.iter().zip(m.column(k)).map(|(a, b)| a * b).sum();
        }
    })
    .over("i")
    .sums_over("j")
    .derivative(|ins, _, cts| {
        // The result is sharded like the operands.
        let spec = |x: &Array| x.ty().map(|ty| ty.spec);
        let x = einsum_to("ik,jk->ij", [&cts[0], &ins[1]], spec(&ins[0])?);
        Ok::<_, Error>(vec![x, einsum_to("ij,ik->jk", [&ins[0], &cts[0]], spec(&ins[1])?)])
    })
}

#[test]
fn blocks_of_what_is_summed_over_are_added() -> Result<()> {
    let (x, m) = (numbers(&[8, 12]), numbers(&[12, 4]));
    let wanted = x.dot(&m);
    for n in [1, 2, 4, 5] {
        let mesh = Mesh::auto([("X", n), ("Y", 2)])?;
        for spec in [p![], p!["X"], p![_, "X"], p!["X", "Y"], p!["Y", "X"], p![_, ("X", "Y")]] {
            for other in [p![], p!["X"], p!["Y", "X"], p![("Y", "X")]] {
                let (x, m) = (x.put(&mesh, spec), m.put(&mesh, other));
                if x.ty().is_err() || m.ty().is_err() {
                    continue;
                }
                let f = |x: &Array, m: &Array| contracted().call((x, m));
                let bits = jit(f).call((&x, &m))?;
                close(&bits, &wanted, "blocks");
                for engine in ENGINES {
                    assert_eq!(values(&jit(f).engine(engine).call((&x, &m))?), values(&bits), "{engine}");
                }
                // A batch of examples.
                let both = |x: &Array, m: &Array| vmap(x, |x| contracted().call((&x.expand_dims(0), m)));
                close(&jit(both).call((&x, &m))?.reshape([8, 4]), &wanted, "examples");
            }
        }
    }
    // One all-reduce of the result, or a gather if the result is the larger one.
    let mesh = Mesh::auto([("X", 4)])?;
    let (x, m) = (x.put(&mesh, p![_, "X"]), m.put(&mesh, p!["X"]));
    let f = |x: &Array, m: &Array| contracted().call((x, m)).constrain(p![]);
    assert_collectives!(jit(f).lower((&x, &m))?, AllReduce("X") x 1);
    let f = |x: &Array, m: &Array| contracted().call((x, m)).constrain(p!["X"]);
    assert_collectives!(jit(f).lower((&x, &m))?, ReduceScatter("X") x 1);
    let (x, m) = (numbers(&[64, 4]).put(&mesh, p![_, "X"]), numbers(&[4, 64]).put(&mesh, p!["X"]));
    let lowered = jit(|x: &Array, m: &Array| contracted().call((x, m)).constrain(p![])).lower((&x, &m))?;
    assert!(lowered.collectives().total_bytes() <= 2 * 64 * 4 * 3 * 4, "{}", lowered.collectives());
    Ok(())
}

#[test]
fn sums_are_typed_as_contractions_are() -> Result<()> {
    let mesh = Mesh::new([("X", 4), ("Y", 2)])?;
    let op = contracted();
    let put = |x: Spec, m: Spec| (numbers(&[8, 12]).put(&mesh, x), numbers(&[12, 4]).put(&mesh, m));
    let wanted = numbers(&[8, 12]).dot(numbers(&[12, 4]));
    // One operand is sharded: the result is summed.
    let (x, m) = put(p!["Y", "X"], p![]);
    assert_eq!(type_of(op.call((&x, &m))), "float32[8@Y,4]");
    close(&op.call((&x, &m)), &wanted, "one");
    // Both operands are sharded: the result must be stated, and each suggestion of the error is
    // accepted.
    let (x, m) = put(p!["Y", "X"], p!["X"]);
    let e = op.call((&x, &m)).ty().unwrap_err().unquoted();
    assert!(e.contains("12@X") && e.contains("are contracted"), "{e}");
    for (out, ty) in [
        (p!["Y", _], "float32[8@Y,4]"),
        (p!["Y", "X"], "float32[8@Y,4@X]"),
        (p!["Y", _; U: "X"], "float32[8@Y,4]{U:X}"),
    ] {
        assert!(e.contains(&format!("contracted.call_to((…), {out})")), "{out} is not in {e}");
        let y = op.call_to((&x, &m), out);
        assert_eq!(type_of(&y), ty);
        for engine in ENGINES {
            let f = |x: &Array, m: &Array| op.call_to((x, m), out).reshard(p![]);
            close(&jit(f).engine(engine).call((&x, &m))?, &wanted, ty);
        }
        // Gradients, and batches of examples.
        let loss = |x: &Array, m: &Array| op.call_to((x, m), out).reshard(p!["Y"]).sin().sum(..);
        let plain = |x: &Array, m: &Array| x.dot_to(m, out).reshard(p!["Y"]).sin().sum(..);
        let (g, h) = (grad((&x, &m), |(x, m)| loss(&x, &m)), grad((&x, &m), |(x, m)| plain(&x, &m)));
        assert_eq!((type_of(&g.0), type_of(&g.1)), (type_of(&h.0), type_of(&h.1)), "{ty}");
        close(&g.0.reshard(p![]), &h.0.reshard(p![]), "of x");
        close(&g.1.reshard(p![]), &h.1.reshard(p![]), "of m");
    }
    let y = op.call_to(put(p!["Y", "X"], p![]), p!["Y"; U: "X"]);
    assert_eq!(type_of(&y), "float32[8@Y,4]{U:X}");
    close(&y.reshard(p![]), &wanted, "one operand's");
    let nothing = op.call_to(put(p!["Y"], p![]), p![_; U: "X"]).ty().unwrap_err().unquoted();
    assert!(nothing.contains("unreduced over X, but it is unreduced over no axis"), "{nothing}");
    let unlike = op.call_to(put(p![_, "X"], p!["Y"]), p![_; U: "X"]).ty().unwrap_err().unquoted();
    assert!(unlike.contains("unreduced over no axis"), "{unlike}");
    let (x, m) = put(p![_, "X"], p!["X"]);
    let unreduced = op.call((&op.call_to((&x, &m), p![; U: "X"]), &numbers(&[4, 4]).put(&mesh, p![])));
    let e = unreduced.ty().unwrap_err().unquoted();
    assert!(e.contains("is unreduced over X") && e.contains("contracted of a sum"), "{e}");
    // Operations that are not sums.
    let x = Array::ones([3, 4]);
    let op = |dims: &str| custom_op("op", dims, |_, _| ());
    let error_text = |y: Array, words: &[&str]| {
        let text = y.ty().expect_err("it is rejected").unquoted();
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
    };
    error_text(op("ij->ij").sums_over("j").call(&x), &["cannot sum over 'j' of `ij->ij`", "no result has"]);
    error_text(op("ij->i").sums_over("k").call(&x), &["cannot sum over 'k'"]);
    error_text(
        op("ij->i").sums_over("j").returns([Bool]).call(&x),
        &["result 0 of op is a sum", "bool is not a numeric type"],
    );
    error_text(op("ij->i,i").sums_over("j").call_to(&x, p![]), &["`call_to` returns one", ".call_all(…)"]);
    Ok(())
}
