//! Suggested fixes for conflicting shardings, all of them for all pairs of shardings, and fixes
//! that are described in words.

use crate::between;
use crate::error_checks::Unquoted as _;
use atmesh::array::Contraction;
use atmesh::prelude::*;
use atmesh::{Axes, type_of};

fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Follows each suggested fix of a rejected operation, and each fix of the resulting errors: all of
/// them end in an accepted program with the same results. Returns the number of fixes followed.
fn follow(op: &dyn Fn(&[Array], Option<Spec>) -> Array, operands: &[Array], depth: usize) -> usize {
    follow_in(6, op, operands, depth)
}

/// Follows fixes, at most `steps` one after another.
fn follow_in(
    most: usize,
    op: &dyn Fn(&[Array], Option<Spec>) -> Array,
    operands: &[Array],
    depth: usize,
) -> usize {
    let Err(error) = op(operands, None).ty() else { return 0 };
    let whole = |a: &Array| a.reshard(Spec::replicated(a.ty().unwrap().rank()));
    let want = numbers(&op(&operands.iter().map(whole).collect::<Vec<_>>(), None));
    let same = |fixed: Array, how: &str| assert_eq!(numbers(&fixed), want, "{how} for\n{error}");
    let d = &error.diagnostics()[0];
    assert!(depth < most, "fixits lead nowhere:\n{error}");
    assert!(!d.fault.help.is_empty() || !d.fault.out_shardings.is_empty(), "no fixit:\n{error}");
    let mut followed = 0;
    for (_, out) in &d.fault.out_shardings {
        let made = op(operands, Some(*out)).ty();
        assert_eq!(made.as_ref().map(|t| t.spec.dims()).ok(), Some(out.dims()), "{out} for\n{error}");
        same(op(operands, Some(*out)), &out.to_string());
        followed += 1;
    }
    for help in &d.fault.help {
        let mut operands = operands.to_vec();
        if let Some(to) = between(help, "`Array::from(…).put(&mesh, ", ")`") {
            // The operation creates a scalar itself, until it is given one with this sharding.
            let mesh = operands[0].ty().unwrap().mesh.unwrap();
            operands.push(Array::from(3.0f32).put(&mesh, spec(to)));
        } else if help.contains(" by `.reshard(") {
            for each in help.split("operand ").skip(1) {
                let (k, to) = (each.split(' ').next().unwrap(), between(each, ".reshard(", ")`").unwrap());
                let k: usize = k.parse().unwrap_or_else(|_| panic!("{help}"));
                operands[k] = operands[k].reshard(spec(to));
            }
        } else if let (Some(k), Some(to)) = (between(help, "operand ", ":"), between(help, ".reshard(", ")`"))
        {
            let k: usize = k.trim_end_matches(" first").parse().unwrap_or_else(|_| panic!("{help}"));
            // In an operation of an array and a scalar, the other operand is the array.
            let k = k.min(operands.len() - 1);
            operands[k] = operands[k].reshard(spec(to));
            operands[k].ty().unwrap_or_else(|e| panic!("{help}:\n{e}"));
        } else if let Some(to) = between(help, ".reshard(", ")`") {
            operands[0] = operands[0].reshard(spec(to));
        } else if let Some(out) = between(help, "_to([", ")`").and_then(|t| t.split_once("], ")) {
            same(op(&operands, Some(spec(out.1))), help);
            followed += 1;
            continue;
        } else {
            panic!("a fixit that this test does not read: {help}");
        }
        let fixed = op(&operands, None);
        if fixed.ty().is_ok() {
            same(fixed, help);
            followed += 1;
        } else {
            followed += 1 + follow_in(most, op, &operands, depth + 1);
        }
    }
    followed
}

fn numbers(x: &Array) -> Vec<f32> {
    x.to_vec().unwrap_or_else(|e| panic!("{e}"))
}

/// Returns small integers, whose sums are exact.
fn filled(shape: &[usize]) -> Array {
    let n: usize = shape.iter().product();
    Array::from((0..n).map(|i| (i * 7 % 5) as f32).collect::<Vec<_>>()).reshape(shape)
}

/// Returns all specs of this rank whose dimensions have these entries, and no axis twice.
fn all_specs(entries: &[Axes], rank: usize) -> Vec<Spec> {
    let mut all = vec![Vec::new()];
    for _ in 0..rank {
        all = all
            .into_iter()
            .flat_map(|s: Vec<Axes>| entries.iter().map(move |e| [s.clone(), vec![e.clone()]].concat()))
            .collect();
    }
    all.retain(|s| {
        let axes: Vec<_> = s.iter().flat_map(Axes::iter).collect();
        (1..axes.len()).all(|i| !axes[..i].contains(&axes[i]))
    });
    all.into_iter().map(Spec::from_dims).collect()
}

#[test]
fn fixits_of_products_of_groups_work() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let entries = [Axes::none(), "X".into(), "Y".into()];
    let sizes = || Array::from([3, 1, 0, 2]);
    let op = |x: &[Array], out: Option<Spec>| match out {
        None => x[0].ragged_dot(&x[1], sizes()),
        Some(out) => x[0].ragged_dot_to(&x[1], sizes(), out),
    };
    let mut followed = 0;
    for a in all_specs(&entries, 2) {
        for b in all_specs(&entries, 3) {
            let operands = [filled(&[8, 4]).put(&mesh, a), filled(&[4, 4, 8]).put(&mesh, b)];
            followed += follow(&op, &operands, 0);
        }
    }
    assert!(followed > 50, "{followed}");
}

#[test]
fn fixits_of_conflicting_shardings_work() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let entries: [Axes; 5] = [Axes::none(), "X".into(), "Y".into(), ["X", "Y"].into(), ["Y", "X"].into()];
    let specs = |rank: usize| all_specs(&entries, rank);
    let two = specs(2);
    let mut followed = 0;
    type Op = Box<dyn Fn(&[Array], Option<Spec>) -> Array>;
    let binary: Vec<Op> = vec![
        Box::new(|x, _| &x[0] + &x[1]),
        Box::new(|x, out| out.map_or_else(|| x[0].dot(&x[1]), |out| x[0].dot_to(&x[1], out))),
        Box::new(|x, out| {
            out.map_or_else(|| einsum("ij,jk->ki", x), |out| atmesh::einsum_to("ij,jk->ki", x, out))
        }),
        Box::new(|x, out| {
            let how = Contraction { contracting: vec![(1, 1)], batch: vec![(0, 0)] };
            out.map_or_else(
                || x[0].dot_general(&x[1], &how, None),
                |out| x[0].dot_general_to(&x[1], &how, None, out),
            )
        }),
        Box::new(|x, _| concat([&x[0], &x[1]], 0)),
        Box::new(|x, _| stack([&x[0], &x[1]], 1)),
    ];
    for op in &binary[..] {
        for a in &two {
            for b in &two {
                let operands = [*a, *b].map(|s| filled(&[8, 8]).put(&mesh, s));
                followed += follow(op, &operands, 0);
            }
        }
    }
    let broadcast: Op = Box::new(|x, _| &x[0] + &x[1]);
    for a in &two {
        for b in specs(1) {
            followed += follow(&broadcast, &[filled(&[8, 8]).put(&mesh, *a), filled(&[8]).put(&mesh, b)], 0);
        }
        for (from, to) in
            [([8, 8], vec![64]), ([8, 8], vec![2, 32]), ([8, 24], vec![4, 6, 8]), ([16, 8], vec![8, 16])]
        {
            let reshape: Op = Box::new(move |x, out| match out {
                None => x[0].reshape(&to[..]),
                Some(out) => x[0].reshape_to(&to[..], out),
            });
            followed += follow(&reshape, &[filled(&from).put(&mesh, *a)], 0);
        }
    }
    assert!(followed > 1000, "{followed}");
}

#[test]
fn fixits_of_unreduced_values_work() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let ones = |s: Spec| filled(&[8, 8]).put(&mesh, s);
    let values = [
        ones(p![]),
        ones(p!["Y"]),
        ones(p!["X"]),
        ones(p![_, "X"]),
        ones(p![_, _; U: "X"]),
        ones(p![_, _; R: "X"]),
        ones(p!["Y", _; U: "X"]),
        ones(p![_, _; U: "Y"]),
        ones(p![_, _; U: ["X", "Y"]]),
    ];
    type Two = fn(&[Array], Option<Spec>) -> Array;
    let binary: [Two; 3] = [|x, _| &x[0] + &x[1], |x, _| &x[0] * &x[1], |x, _| concat([&x[0], &x[1]], 0)];
    let unary: [fn(&Array) -> Array; 3] = [|x| x.sin(), |x| x.max(0), |x| &x.square() + 1.0];
    // An array and a scalar, or the scalar that a fix created.
    let numbers: [Two; 4] = [
        |x, _| x.get(1).map_or_else(|| &x[0] + 3.0, |n| &x[0] + n),
        |x, _| x.get(1).map_or_else(|| 3.0 - &x[0], |n| n - &x[0]),
        |x, _| x.get(1).map_or_else(|| &x[0] * 3.0, |n| &x[0] * n),
        |x, _| x.get(1).map_or_else(|| 3.0 * &x[0], |n| n * &x[0]),
    ];
    let mut followed = 0;
    for a in &values {
        for f in unary {
            followed += follow(&|x, _| f(&x[0]), std::slice::from_ref(a), 0);
        }
        for f in numbers {
            let fixits = follow(&f, std::slice::from_ref(a), 0);
            let parts = !a.ty().unwrap().spec.unreduced_axes().is_empty();
            assert_eq!(fixits, if parts { 2 } else { 0 }, "{}", type_of(a));
            followed += fixits;
        }
        for b in &values {
            for f in binary {
                followed += follow(&f, &[a.clone(), b.clone()], 0);
            }
        }
    }
    assert!(followed > 50, "{followed}");
}

/// One suggested fix is enough for elementwise operands: it states the shardings of all of them.
#[test]
fn one_mend_is_enough_for_operands_that_meet() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let specs = [p![], p!["X"], p![_, "Y"], p!["X", "Y"], p!["Y", "X"], p![["X", "Y"]]];
    type Op = fn(&[Array], Option<Spec>) -> Array;
    let select: Op = |x, _| x[0].gt(2.0).select(&x[1], &x[2]);
    let clamp: Op = |x, _| x[0].clamp(&x[1], &x[2]);
    let mut followed = 0;
    for a in specs {
        let x = filled(&[8, 8]).put(&mesh, a);
        followed += follow_in(1, &|x, _| &x[0] + &x[1], &[x.clone(), x.t()], 0);
        for b in specs {
            for c in specs {
                let operands = [a, b, c].map(|s| filled(&[8, 8]).put(&mesh, s));
                followed += follow_in(1, &select, &operands, 0) + follow_in(1, &clamp, &operands, 0);
                if c.dims().len() < 2 {
                    let row = filled(&[8]).put(&mesh, c);
                    followed += follow(&select, &[operands[0].clone(), operands[1].clone(), row], 0);
                }
            }
        }
    }
    assert!(followed > 200, "{followed}");
    // An exchange where that is enough, instead of a gather.
    let x = filled(&[8, 8]).put(&mesh, p!["X", "Y"]);
    let error = (&x + x.t()).ty().unwrap_err();
    assert!(error.unquoted().contains(r#"reshard operand 0: `.reshard(p!["Y", "X"])`"#), "{error}");
}

/// Slices of a sharded dimension: the suggested form is accepted, and gives the same result.
#[test]
fn fixits_of_parts_work() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let plain = filled(&[8, 8]);
    let x = plain.put(&mesh, p!["X", "Y"]);
    let rejected = |y: Array, help: &str| {
        let error = y.ty().unwrap_err();
        assert!(error.unquoted().contains(help), "{error}");
        assert_eq!(error.diagnostics()[0].operands[0], "float32[8@X,8@Y]", "{error}");
    };
    rejected(x.slice(ix![5]), "x.at(ix![5]).out_sharding(p![\"Y\"]).get()");
    let row = x.at(ix![5]).out_sharding(p!["Y"]).get();
    assert_eq!(numbers(&row), numbers(&plain.slice(ix![5])));
    rejected(x.slice(ix![.., 1..4]), "x.at(ix![.., 1..4]).out_sharding(p![\"X\", _]).get()");
    let part = x.at(ix![.., 1..4]).out_sharding(p!["X", _]).get();
    assert_eq!(numbers(&part), numbers(&plain.slice(ix![.., 1..4])));
    // Updates need no fix.
    let three = &Array::from(3);
    assert_eq!(numbers(&x.at(ix![3]).set(1.0)), numbers(&plain.at(ix![3]).set(1.0)));
    assert_eq!(numbers(&x.at(ix![three]).add(1.0)), numbers(&plain.at(ix![3]).add(1.0)));
    // Also for arrays with one dimension.
    let (line, plain) = (filled(&[8]).put(&mesh, p!["X"]), filled(&[8]));
    rejected_line(&line);
    assert_eq!(numbers(&line.slice(ix![three])), numbers(&plain.slice(ix![3])));
    assert_eq!(numbers(&line.at(ix![3]).set(9.0)), numbers(&plain.at(ix![3]).set(9.0)));
}

fn rejected_line(line: &Array) {
    let error = line.slice(ix![3]).ty().unwrap_err();
    assert!(error.unquoted().contains("dimension 0 is sharded over X"), "{error}");
    assert_eq!(line.unstack(0).len(), 8, "as many as are needed, each with the error");
}

#[test]
fn what_is_written_instead_of_an_index() {
    let x = filled(&[4, 3]);
    let ids = Array::from([2, 0, 3]);
    let rows = vmap(&ids, |i| x.slice(ix![&i]));
    assert_eq!(numbers(&rows), numbers(&x.slice(ix![&ids])));
    let mask = x.slice(ix![x.gt(2.0)]).ty().unwrap_err().unquoted();
    assert!(mask.contains("`mask.select(&x, 0)`"), "{mask}");
    let asked = jit(|x: &Array| x.sum(..).item::<f32>().map(|_| x.clone())).call(&x).unwrap_err().unquoted();
    assert!(asked.contains("`cond`") && asked.contains("select"), "{asked}");
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let mean = shard_map(&mesh, p!["X"], p![], |x: &Array| x.mean(..)).call(&x).unwrap_err().unquoted();
    assert!(mean.contains("`.pmean(\"X\")`"), "{mean}");
    let keys = Key::new(0).split_array([4]);
    let at = |i: i32| Key::from_array(keys.slice(ix![&Array::from(i)])).data().to_vec::<u32>().unwrap();
    assert_eq!(at(2), Key::from_array(keys.slice(ix![2])).data().to_vec::<u32>().unwrap());
    assert_ne!(at(1), at(2));
}
