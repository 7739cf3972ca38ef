//! The states of values in per-device code: what each operation makes of them.

use crate::error_checks::Unquoted as _;
use crate::{X, mesh, near, placed_pair, read};
use atmesh::prelude::*;
use atmesh::{ErrorKind, PcastTo};
use std::cell::RefCell;

/// An operation of a varying, an invarying, an unreduced and a reduced value.
type Operation = fn(&Array, &Array, &Array, &Array) -> Array;

fn first_row(x: &Array) -> Array {
    x.slice(ix![..1])
}
fn zeros_but_first(x: &Array) -> Array {
    axis_index("X").eq(0).select(x, x.zeros_like())
}

/// Returns the operations that give another state than expected: V for varying, I for invarying, R
/// for reduced, P for unreduced (partial), or `reject`.
fn judge(list: &[(&str, &str, Operation)]) -> Vec<String> {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let k = Key::new(1);
    let v = k.normal([16, 4]).put(&mesh, p!["X"]);
    let i = k.normal([4, 4]).put(&mesh, p![]);
    let u = k.normal([4, 4]).put(&mesh, p![; U: "X"]);
    let r = k.normal([4, 4]).put(&mesh, p![; R: "X"]);
    let mut wrong = Vec::new();
    for (name, want, f) in list {
        let got = RefCell::new(String::new());
        let specs = (p!["X"], p![], p![; U: "X"], p![; R: "X"]);
        let body = |v: &Array, i: &Array, u: &Array, r: &Array| {
            *got.borrow_mut() = match f(v, i, u, r).ty() {
                Ok(ty) if !ty.varying.is_empty() => "V".into(),
                Ok(ty) if !ty.spec.unreduced_axes().is_empty() => "P".into(),
                Ok(ty) if !ty.spec.reduced_axes().is_empty() => "R".into(),
                Ok(_) => "I".into(),
                Err(e) if e.kind() == ErrorKind::Internal => format!("{e}"),
                Err(_) => "reject".into(),
            };
            i.clone()
        };
        let _ = shard_map(&mesh, specs, p![], body).trace((&v, &i, &u, &r));
        let got = got.into_inner();
        if got != *want {
            wrong.push(format!("{name}: {got}, not {want}"));
        }
    }
    wrong
}

/// The states that PyTorch's `spmd_types` tests expect, except for casts that happen implicitly and
/// collectives of values that are equal on all devices, which are sound, and for a number that
/// scales a reduced value, which JAX rejects.
#[test]
fn each_operation_has_the_state_of_its_operands() {
    let wrong = judge(&[
        // R and V
        ("linear R,V", "V", |v, _, _, r| v.dot(r)),
        ("matmul R,V", "V", |v, _, _, r| r.dot(v)),
        ("add R,V", "V", |v, _, _, r| r + v),
        ("div R,V", "V", |v, _, _, r| r / v),
        ("mul R,V", "V", |v, _, _, r| r * v),
        ("R op R add", "R", |_, _, _, r| r + r),
        ("R op R mul", "R", |_, _, _, r| r * r),
        ("R matmul R", "R", |_, _, _, r| r.dot(r)),
        ("R nonlinear exp", "R", |_, _, _, r| r.exp()),
        ("R neg", "R", |_, _, _, r| -r),
        ("R scalar add", "R", |_, _, _, r| r + 1.0),
        ("R scalar mul", "reject", |_, _, _, r| r * 2.0),
        ("R mean", "R", |_, _, _, r| r.mean(..)),
        ("R sum", "R", |_, _, _, r| r.sum(..)),
        ("R max", "R", |_, _, _, r| r.max(..)),
        ("R softmax", "R", |_, _, _, r| r.softmax(1)),
        ("R sort", "R", |_, _, _, r| r.sort(1)),
        ("R cat R", "R", |_, _, _, r| concat([r, r], 0)),
        ("R stack", "R", |_, _, _, r| stack([r, r], 0)),
        ("R reshape", "R", |_, _, _, r| r.reshape([16])),
        ("R powi", "R", |_, _, _, r| r.powi(2)),
        ("R astype", "R", |_, _, _, r| r.astype(BF16)),
        ("R narrow by I scalar", "R", |_, _, _, r| r.slice(ix![..2])),
        ("R narrow by V scalar", "V", |_, _, _, r| r.slice(ix![axis_index("X")])),
        // P
        ("add P,P", "P", |_, _, u, _| u + u),
        ("sub P,P", "P", |_, _, u, _| u - u),
        ("matmul P,P", "reject", |_, _, u, _| u.dot(u)),
        ("mul P,P", "reject", |_, _, u, _| u * u),
        ("mul P,R", "P", |_, _, u, r| u * r),
        ("matmul P,R", "P", |_, _, u, r| u.dot(r)),
        ("cat P,P", "P", |_, _, u, _| concat([u, u], 0)),
        ("stack P,P", "P", |_, _, u, _| stack([u, u], 0)),
        ("cat P,R", "reject", |_, _, u, r| concat([u, r], 0)),
        ("add P,R", "reject", |_, _, u, r| u + r),
        ("sub P,R", "reject", |_, _, u, r| u - r),
        ("add P,V", "reject", |v, _, u, _| u + v),
        ("mul P,V", "reject", |v, _, u, _| u * v),
        ("matmul P,V", "reject", |v, _, u, _| u.dot(v)),
        ("add P,scalar", "reject", |_, _, u, _| u + 1.0),
        ("sub P,scalar", "reject", |_, _, u, _| u - 1.0),
        ("add P,int scalar", "reject", |_, _, u, _| u + 1),
        ("mul P,scalar", "P", |_, _, u, _| u * 2.0),
        ("div P,scalar", "P", |_, _, u, _| u / 2.0),
        ("scalar / P", "reject", |_, _, u, _| 2.0 / u),
        ("R / P", "reject", |_, _, u, r| r / u),
        ("P / R", "P", |_, _, u, r| u / r),
        ("P / P", "reject", |_, _, u, _| u / u),
        ("mul P,I", "reject", |_, i, u, _| u * i),
        ("P * typed scalar V", "reject", |_, _, u, _| u * axis_index("X").astype(F32)),
        ("neg P", "P", |_, _, u, _| -u),
        ("cumsum P", "P", |_, _, u, _| u.cumsum(0)),
        ("sum P", "P", |_, _, u, _| u.sum(..)),
        ("mean P", "P", |_, _, u, _| u.mean(..)),
        ("reshape P", "P", |_, _, u, _| u.reshape([16])),
        ("transpose P", "P", |_, _, u, _| u.t()),
        ("squeeze P", "P", |_, _, u, _| u.expand_dims(0).squeeze(0)),
        ("expand P", "P", |_, _, u, _| u.broadcast_to([2, 4, 4])),
        ("split P", "P", |_, _, u, _| u.split([2, 2], 0).remove(0)),
        ("unstack P", "P", |_, _, u, _| u.unstack(0).remove(0)),
        ("slice P", "P", |_, _, u, _| u.slice(ix![..2])),
        ("narrow P by V", "reject", |_, _, u, _| u.slice(ix![axis_index("X")])),
        ("flip P", "P", |_, _, u, _| u.flip(0)),
        ("pad P with 0", "P", |_, _, u, _| u.pad(0.0, [(1, 1, 0), (0, 0, 0)])),
        ("pad P with 1", "reject", |_, _, u, _| u.pad(1.0, [(1, 1, 0), (0, 0, 0)])),
        ("relu P", "reject", |_, _, u, _| u.maximum(0.0)),
        ("exp P", "reject", |_, _, u, _| u.exp()),
        ("sort P", "reject", |_, _, u, _| u.sort(0)),
        ("abs P", "reject", |_, _, u, _| u.abs()),
        ("max P", "reject", |_, _, u, _| u.max(..)),
        ("clone P", "P", |_, _, u, _| u.clone()),
        ("addmm P,R,R", "reject", |_, _, u, r| u + r.dot(r)),
        ("addmm R,P,R", "reject", |_, _, u, r| r + u.dot(r)),
        ("addmm P,P,R", "P", |_, _, u, r| u + u.dot(r)),
        ("addmm R,R,R", "R", |_, _, _, r| r + r.dot(r)),
        ("addmm V,R,R", "V", |v, _, _, r| v + r.dot(r)),
        ("addmm R,P,P", "reject", |_, _, u, r| r + u.dot(u)),
        ("addmm V,V,V", "V", |v, _, _, _| v + v.dot(v)),
        ("inplace P.add_(P)", "P", |_, _, u, _| u.at(ix![..2]).add(u.slice(ix![..2]))),
        ("zeros like P", "P", |_, _, u, _| u.zeros_like()),
        // I
        ("I,scalar add", "I", |_, i, _, _| i + 1.0),
        ("I,scalar div", "I", |_, i, _, _| i / 2.0),
        ("I op I add", "I", |_, i, _, _| i + i),
        ("I op I mm", "I", |_, i, _, _| i.dot(i)),
        ("I + R", "reject", |_, i, _, r| i + r),
        ("I * R", "reject", |_, i, _, r| i * r),
        ("I mm R", "reject", |_, i, _, r| i.dot(r)),
        ("I + V", "V", |v, i, _, _| i + v),
        ("I + P", "reject", |_, i, u, _| i + u),
        ("V mm I", "V", |v, i, _, _| v.dot(i)),
        ("I + scalar V", "V", |_, i, _, _| i + axis_index("X").astype(F32)),
        // V
        ("V scalar add", "V", |v, _, _, _| v + 1.0),
        ("V scalar mul", "V", |v, _, _, _| v * 2.0),
        ("V.T", "V", |v, _, _, _| v.t()),
        ("V sort", "V", |v, _, _, _| v.sort(1)),
        ("inplace V.add_(R)", "V", |v, _, _, r| v.at(ix![..2]).add(r.slice(ix![..2]))),
        ("inplace R.add_(V)", "V", |v, _, _, r| r.at(ix![..2]).add(v.slice(ix![..2]))),
        ("inplace R.mul_(V)", "V", |v, _, _, r| r.at(ix![..2]).mul(v.slice(ix![..2]))),
        // casts without movement (reinterpret)
        ("reinterpret I->R", "R", |_, i, _, _| i.pcast("X", PcastTo::Reduced)),
        ("reinterpret R->V", "V", |_, _, _, r| r.pcast("X", PcastTo::Varying)),
        ("reinterpret V->P", "P", |v, _, _, _| v.pcast("X", PcastTo::Unreduced)),
        ("reinterpret R->P", "P", |_, _, _, r| r.pcast("X", PcastTo::Varying).pcast("X", PcastTo::Unreduced)),
        ("reinterpret I->V", "V", |_, i, _, _| i.pvary("X")),
        ("reinterpret I->P", "P", |_, i, _, _| i.pvary("X").pcast("X", PcastTo::Unreduced)),
        ("reinterpret V->R", "reject", |v, _, _, _| v.pcast("X", PcastTo::Reduced)),
        ("reinterpret P->R", "reject", |_, _, u, _| u.pcast("X", PcastTo::Reduced)),
        ("reinterpret P->V", "reject", |_, _, u, _| u.pcast("X", PcastTo::Varying)),
        // conversions with local work
        ("convert R->P", "P", |_, _, _, r| {
            zeros_but_first(&r.pcast("X", PcastTo::Varying)).pcast("X", PcastTo::Unreduced)
        }),
        ("convert I->P", "P", |_, i, _, _| zeros_but_first(&i.pvary("X")).pcast("X", PcastTo::Unreduced)),
        ("convert I->V", "V", |_, i, _, _| i.slice(ix![axis_index("X")])),
        ("convert R->V", "V", |_, _, _, r| r.pcast("X", PcastTo::Varying).slice(ix![axis_index("X")])),
        ("convert V->P", "P", |v, _, _, _| {
            v.zeros_like()
                .at(ix![axis_index("X")])
                .set(first_row(v).squeeze(0))
                .pcast("X", PcastTo::Unreduced)
        }),
        // collectives
        ("all_reduce P->I", "I", |_, _, u, _| u.psum("X")),
        ("all_reduce P->R", "R", |_, _, u, _| u.psum("X").pcast("X", PcastTo::Reduced)),
        ("all_reduce V->I", "I", |v, _, _, _| v.psum("X")),
        ("all_reduce src R", "reject", |_, _, _, r| r.psum("X")),
        ("all_reduce src I", "I", |_, i, _, _| i.psum("X")),
        ("all_gather V->R", "R", |v, _, _, _| v.all_gather("X", CollectiveDim::tiled(0).reduced())),
        ("all_gather V->I", "I", |v, _, _, _| v.all_gather("X", CollectiveDim::tiled(0).invarying())),
        ("all_gather V->R stack dim 1", "R", |v, _, _, _| {
            v.all_gather("X", CollectiveDim::stacked(1).reduced())
        }),
        ("all_gather src R", "reject", |_, _, _, r| r.all_gather("X", CollectiveDim::tiled(0))),
        ("all_gather src P", "reject", |_, _, u, _| u.all_gather("X", CollectiveDim::tiled(0))),
        ("all_gather src I", "V", |_, i, _, _| i.all_gather("X", CollectiveDim::tiled(0))),
        ("all_gather negative dim", "R", |v, _, _, _| v.all_gather("X", CollectiveDim::tiled(-1).reduced())),
        ("reduce_scatter P->V", "V", |_, _, u, _| u.psum_scatter("X", CollectiveDim::tiled(0))),
        ("reduce_scatter dim -1", "V", |_, _, u, _| u.psum_scatter("X", CollectiveDim::tiled(-1))),
        ("reduce_scatter V->V", "V", |v, _, _, _| v.psum_scatter("X", CollectiveDim::tiled(0))),
        ("reduce_scatter src R", "reject", |_, _, _, r| r.psum_scatter("X", CollectiveDim::tiled(0))),
        ("reduce_scatter src I", "V", |_, i, _, _| i.psum_scatter("X", CollectiveDim::tiled(0))),
        ("reduce_scatter indivisible", "reject", |_, _, u, _| {
            u.slice(ix![..3]).psum_scatter("X", CollectiveDim::tiled(0))
        }),
        ("all_to_all V", "V", |v, _, _, _| v.all_to_all("X", AllToAll::split(0).concat(1))),
        ("all_to_all src R", "reject", |_, _, _, r| r.all_to_all("X", AllToAll::split(0).concat(1))),
        ("all_to_all src P", "reject", |_, _, u, _| u.all_to_all("X", AllToAll::split(0).concat(1))),
        ("all_to_all src I", "V", |_, i, _, _| i.all_to_all("X", AllToAll::split(0).concat(1))),
        ("ppermute src P", "reject", |_, _, u, _| u.ppermute("X", Permutation::ring(1))),
        ("vmap of V and R", "V", |v, _, _, r| vmap((v, r), |(a, b): (Array, Array)| a + b)),
        ("vmap over R", "reject", |_, _, _, r| vmap(r, |a: Array| a * 2.0)),
        ("vmap over P", "P", |_, _, u, _| vmap(u, |a: Array| a * 2.0)),
        ("vmap captured V, mapped R", "V", |v, _, _, r| {
            let b = v.slice(ix![0]);
            vmap(r, |a: Array| a + &b)
        }),
    ]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Products of reduced values are reduced: their gradients are those of the dense program.
#[test]
fn products_of_reduced_values() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let dense = Key::new(1).normal([2, 2]);
    let r = dense.put(&mesh, p![; R: X]);
    type Product = (&'static str, fn(&Array) -> Array);
    let list: [Product; 8] = [
        ("dot", |r| r.dot(r)),
        ("einsum", |r| einsum("ij,ij->i", [r, r])),
        ("inner", |r| r.inner(r)),
        ("tensordot", |r| r.tensordot(r, 1)),
        ("conv", |r| r.reshape([1, 1, 2, 2]).conv(r.slice(ix![..1, ..1]).reshape([1, 1, 1, 1]))),
        ("mul", |r| r * r),
        ("exp", |r| r.exp()),
        ("mean", |r| (r + 1.0).mean(..) / 2.0),
    ];
    for (name, f) in list {
        for engine in [Lockstep, Threads] {
            let region = shard_map(&mesh, p![; R: X], p![; R: X], |r: &Array| f(r).sum(..)).engine(engine);
            let slope = jit(|r: &Array| grad(r, |r| region.call(&r))).call(&r)?;
            assert_eq!(slope.ty()?.to_string(), "float32[2,2]{U:X}", "{name}");
            let want = grad(&dense, |x| f(&x).sum(..));
            assert!(near(&read(&slope)?, &read(&want)?, F32), "{name}: {slope}, not {want}");
        }
    }
    let beside = shard_map(&mesh, p![; R: X], p![], |r: &Array| r.dot(Array::eye([2, 2], 0)));
    assert_eq!(beside.call(&r).map(drop).map_err(|e| e.kind()), Err(ErrorKind::Sharding));
    Ok(())
}

/// An unchecked region promises something about its own axes only.
#[test]
fn an_unchecked_region_in_a_checked_one() -> Result<()> {
    let mesh = mesh();
    let (x, _) = placed_pair(&mesh, &[4], F32, p!["X"], 1)?;
    for engine in [Lockstep, Threads] {
        let inner = || shard_map(&mesh, (), p![], || axis_index("X")).over("Y").unchecked().call(());
        let f = shard_map(&mesh, (), p![], inner).over("X").engine(engine);
        assert_eq!(f.call(()).map(drop).map_err(|e| e.kind()), Err(ErrorKind::Varying));
        let ring = |x: &Array| {
            let inner = |x: &Array| x.ppermute("X", Permutation::ring(1));
            shard_map(&mesh, p![], p![], inner).over("Y").unchecked().call(x)
        };
        let f = shard_map(&mesh, p!["X"], p![], ring).over("X").engine(engine);
        assert_eq!(f.call(&x).map(drop).map_err(|e| e.kind()), Err(ErrorKind::Varying));
        let sum = |x: &Array| {
            let inner = |x: &Array| x.psum("X");
            shard_map(&mesh, p![], p![], inner).over("Y").unchecked().call(x)
        };
        let region = shard_map(&mesh, p!["X"], p![], sum).over("X").engine(engine);
        let slope = jit(|x: &Array| grad(x, |x| region.call(&x).map(|y| y.sum(..)))).call(&x)?;
        assert_eq!(slope.to_vec::<f32>()?, [1.0; 4]);
        let both = |x: &Array| {
            let inner = |x: &Array| x.psum(["X", "Y"]);
            shard_map(&mesh, p![], p![], inner).over("Y").unchecked().call(x)
        };
        let f = shard_map(&mesh, p!["X"], p![], both).over("X").engine(engine);
        let e = f.call(&x).unwrap_err().unquoted();
        assert!(e.contains("one after the other: \"X\", then \"Y\""), "{e}");
        let apart = |x: &Array| {
            let inner = |x: &Array| x.psum("X").psum("Y");
            shard_map(&mesh, p![], p![], inner).over("Y").unchecked().call(x)
        };
        let region = shard_map(&mesh, p!["X"], p![], apart).over("X").engine(engine);
        let total = region.call(&x)?.sum(..);
        assert_eq!(total.item::<f32>()?, 2.0 * x.sum(..).item::<f32>()?);
        let slope = jit(|x: &Array| grad(x, |x| region.call(&x).map(|y| y.sum(..)))).call(&x)?;
        assert_eq!(slope.to_vec::<f32>()?, [2.0; 4]);
    }
    Ok(())
}

/// In a body, the helps say casts and sums over manual axes, and each of them is accepted.
#[test]
fn helps_of_bodies() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let value = |spec: Spec| Array::ones([2, 2]).put(&mesh, spec);
    let (i, u, r) = (value(p![]), value(p![; U: X]), value(p![; R: X]));
    // the operation that is refused, the helps of its error, and programs that follow them
    let list: [(&str, Operation, &[&str], &[Operation]); 8] = [
        (
            "R * number",
            |_, _, _, r| r * 2.0,
            &[
                r#"cast the number: `Array::from(…).pcast("X", PcastTo::Reduced)`"#,
                r#"cast operand 0: `.pcast("X", PcastTo::Varying)`"#,
            ],
            &[
                |_, _, _, r| r * Array::from(2.0f32).pcast("X", PcastTo::Reduced),
                |_, _, _, r| r.pcast("X", PcastTo::Varying) * 2.0,
            ],
        ),
        (
            "add I R",
            |_, i, _, r| i + r,
            &[
                r#"cast operand 0: `.pcast("X", PcastTo::Reduced)`"#,
                r#"cast operand 1: `.pcast("X", PcastTo::Varying)`"#,
            ],
            &[
                |_, i, _, r| i.pcast("X", PcastTo::Reduced) + r,
                |_, i, _, r| i + r.pcast("X", PcastTo::Varying),
            ],
        ),
        (
            "dot R I",
            |_, i, _, r| r.dot(i),
            &[
                r#"cast operand 1: `.pcast("X", PcastTo::Reduced)`"#,
                r#"cast operand 0: `.pcast("X", PcastTo::Varying)`"#,
            ],
            &[
                |_, i, _, r| r.dot(i.pcast("X", PcastTo::Reduced)),
                |_, i, _, r| r.pcast("X", PcastTo::Varying).dot(i),
            ],
        ),
        (
            "mul U I",
            |_, i, u, _| u * i,
            &[r#"cast operand 1: `.pcast("X", PcastTo::Reduced)`"#, r#"sum operand 0 first: `.psum("X")`"#],
            &[|_, i, u, _| u * i.pcast("X", PcastTo::Reduced), |_, i, u, _| u.psum("X") * i],
        ),
        (
            "add U I",
            |_, i, u, _| u + i,
            &[r#"sum operand 0 first: `.psum("X")`"#],
            &[|_, i, u, _| u.psum("X") + i],
        ),
        (
            "exp U",
            |_, _, u, _| u.exp(),
            &[r#"sum it first: `.psum("X")`"#],
            &[|_, _, u, _| u.psum("X").exp()],
        ),
        (
            "U + number",
            |_, _, u, _| u + 1.0,
            &[r#"sum operand 0 first: `.psum("X")`"#],
            &[|_, _, u, _| u.psum("X") + 1.0],
        ),
        (
            "mul U U",
            |_, _, u, _| u * u,
            &[r#"sum operand 1 first: `.psum("X").pcast("X", PcastTo::Reduced)`"#],
            &[|_, _, u, _| u * u.psum("X").pcast("X", PcastTo::Reduced)],
        ),
    ];
    for (name, refused, helps, fixed) in list {
        let run = |f: Operation| {
            let found = RefCell::new(None);
            let body = |i: &Array, u: &Array, r: &Array| {
                *found.borrow_mut() = Some(f(i, i, u, r).ty());
                i.clone()
            };
            let specs = (p![], p![; U: X], p![; R: X]);
            let _ = shard_map(&mesh, specs, p![], body).trace((&i, &u, &r));
            found.into_inner().expect("the body ran")
        };
        let e = run(refused).expect_err(name).unquoted();
        for help in helps {
            assert!(e.contains(help), "{name}: {help} is not in\n{e}");
        }
        assert!(!e.contains("reshard"), "{name}: a manual axis is not resharded\n{e}");
        for f in fixed {
            run(*f).map_err(|e| format!("{name}: {e}")).unwrap();
        }
    }
    Ok(())
}
