//! Random operations on operands with random shardings, which are errors: each help is parsed and
//! followed, repeatedly if it takes several steps.
//!
//! `FIXITS_SEED=7 FIXITS=100000 cargo test --test fixits` tries other cases.

use crate::{between, error_checks};
use atmesh::array::{Contraction, DimIndex, Index};
use atmesh::prelude::*;
use atmesh::{Axes, Error, einsum_to, type_of};

/// A generator of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// The change that a fix makes to a value.
#[derive(Clone, Debug)]
enum Change {
    Reshard(Spec),
    Put(Spec),
    Astype(DType),
}

/// The differences between the program as written and as fixed.
#[derive(Clone, Debug, Default)]
struct Said {
    /// The requested sharding of the result.
    out: Option<Spec>,
    /// True if positions are written as arrays.
    arrays: bool,
    /// The changes at the end of a loop's body, or of a branch.
    end: Vec<Change>,
    /// The sharding of a scalar that is written as a placed array.
    number: Option<Spec>,
    /// True if blocks are derived from the arguments' own types.
    inferred: bool,
    /// True if the program runs on one device, without shardings.
    alone: bool,
}

type Program = Box<dyn Fn(&[Array], &Said) -> Array>;

struct Case {
    name: String,
    operands: Vec<Array>,
    run: Program,
    /// The operation whose body contains this one.
    body_of: Option<&'static str>,
}

fn mesh() -> Mesh {
    Mesh::new([("X", 2), ("Y", 4)]).unwrap()
}

/// Returns small integers, whose sums are exact.
fn filled(shape: &[usize], seed: usize) -> Array {
    let n: usize = shape.iter().product();
    Array::from((0..n).map(|i| ((i * 7 + seed * 3) % 5) as f32).collect::<Vec<_>>()).reshape(shape)
}

/// Returns a random sharding of this shape, sometimes unreduced or reduced over an axis.
fn spec(dice: &mut Dice, shape: &[usize], sets: bool) -> Spec {
    let mut dims = vec![Axes::none(); shape.len()];
    let mut spare = Vec::new();
    for (axis, n) in dice.of(&[[("X", 2), ("Y", 4)], [("Y", 4), ("X", 2)]]) {
        let d = dice.below(shape.len() + 2);
        let ways: usize = match d < shape.len() {
            true => dims[d].iter().map(|a| mesh().axis_size(a).unwrap()).product(),
            false => 1,
        };
        match d < shape.len() && shape[d].is_multiple_of(ways * n) {
            true => dims[d].push(axis.into()),
            false => spare.push(axis),
        }
    }
    let sharding = Spec::from_dims(dims);
    match (dice.below(6), spare.first()) {
        (0, Some(axis)) if sets => sharding.unreduced(*axis),
        (1, Some(axis)) if sets => sharding.reduced(*axis),
        _ => sharding,
    }
}

fn placed(dice: &mut Dice, shape: &[usize], sets: bool) -> Array {
    let sharding = spec(dice, shape, sets);
    filled(shape, dice.below(5)).put(&mesh(), sharding)
}

fn whole(a: &Array) -> Array {
    match a.sharding() {
        Ok(Some(_)) => a.reshard(Spec::replicated(a.ty().unwrap().rank())),
        _ => a.clone(),
    }
}

fn changed(a: &Array, changes: &[Change]) -> Array {
    changes.iter().fold(a.clone(), |a, change| match change {
        Change::Reshard(to) => a.reshard(*to),
        Change::Put(to) => a.put(&mesh(), *to),
        Change::Astype(to) => a.astype(*to),
    })
}

fn dtype(word: &str) -> DType {
    let all = [F32, F64, BF16, F16, I32, I64, U8, Bool];
    all.into_iter().find(|d| format!("{d:?}") == word).unwrap_or_else(|| panic!("{word}"))
}

/// Parses the changes that a help suggests, in order.
fn changes(help: &str) -> Vec<Change> {
    let spec = |to: &str| to.parse().unwrap_or_else(|e| panic!("{help}: {e}"));
    let mut all = Vec::new();
    for (at, _) in help.match_indices('.') {
        let rest = &help[at..];
        if rest.starts_with(".reshard(") {
            all.extend(between(rest, ".reshard(", "])").map(|to| Change::Reshard(spec(&format!("{to}]")))));
        } else if rest.starts_with(".put(&mesh, ") {
            all.extend(between(rest, ".put(&mesh, ", "])").map(|to| Change::Put(spec(&format!("{to}]")))));
        } else if rest.starts_with(".astype(") {
            all.extend(between(rest, ".astype(", ")").map(|to| Change::Astype(dtype(to))));
        }
    }
    all
}

/// The beginnings of helps that leave a choice to the user.
const OPEN: [&str; 7] = [
    // Concerns a value in the body of a region.
    "cast it first: `.pcast(…",
    // Needs another program: other sizes, or other numbers of devices.
    "make the axis auto",
    "or make the axis auto",
    // Needs another size.
    "or, for a stencil, keep the size",
    "the nearest multiples",
    // Changes the result.
    "or leave out",
    "or, if all are the same",
];

/// Returns the case with the help applied; `None` if the help leaves a choice.
fn followed(
    case: &Case,
    operands: &[Array],
    said: &Said,
    help: &str,
    about: usize,
) -> std::result::Result<Option<(Vec<Array>, Said)>, String> {
    let (mut operands, mut said) = (operands.to_vec(), said.clone());
    if OPEN.iter().any(|o| help.starts_with(o)) {
        return Ok(None);
    }
    if let Some(to) = between(help, "`Array::from(…).put(&mesh, ", ")`") {
        said.number = Some(to.parse().unwrap());
    } else if help.contains("&Array::from(") {
        said.arrays = true;
    } else if let Some(out) = between(help, ").out_sharding(", ").get()`") {
        said.out = Some(out.parse().unwrap());
    } else if help.contains("`Inferred`") {
        said.inferred = true;
    } else if help.contains("at the end of the body")
        || ["cond", "switch"].iter().any(|op| case.name.starts_with(op))
    {
        said.end.extend(changes(help));
    } else {
        // The operands are named by position, or the operation has only one.
        let mut pieces: Vec<&str> = help.split("operand ").collect();
        let before = pieces.remove(0);
        if pieces.is_empty() {
            pieces.push(before);
        }
        for piece in pieces {
            let number: String = piece.chars().take_while(char::is_ascii_digit).collect();
            let k = if number.is_empty() { about } else { number.parse().unwrap() };
            let todo = changes(piece);
            if todo.is_empty() || k >= operands.len() {
                return Err(format!("a help that this test does not read, or of no operand: {help}"));
            }
            operands[k] = changed(&operands[k], &todo);
        }
    }
    Ok(Some((operands, said)))
}

fn numbers(x: &Array) -> std::result::Result<Vec<f64>, Error> {
    x.astype(F64).to_vec::<f64>()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || (a - b).abs() <= 1e-5 * (1.0 + b.abs()))
}

/// Follows each help of an error, and each help of the resulting errors. Returns the faults, and
/// the number of helps followed.
fn follow(case: &Case, operands: &[Array], said: &Said, steps: usize, wrong: &mut Vec<String>) -> usize {
    let Err(error) = (case.run)(operands, said).ty() else { return 0 };
    let rejected = format!("{} {said:?}:\n{error}", case.name);
    wrong.extend(error_checks::flaw(&error));
    let d = &error.diagnostics()[0];
    // An error of an operation in a body concerns values of the body; these operations have kinds
    // of their own.
    if case.body_of.is_some_and(|op| d.op != op) {
        return 0;
    }
    if d.fault.help.is_empty() && d.fault.out_shardings.is_empty() {
        wrong.push(format!("no help: {rejected}"));
    }
    if steps == 0 {
        wrong.push(format!("helps lead nowhere: {rejected}"));
        return 0;
    }
    let mut ways: Vec<(String, Vec<Array>, Said)> = Vec::new();
    for (what, out) in &d.fault.out_shardings {
        ways.push((format!("{what} {out}"), operands.to_vec(), Said { out: Some(*out), ..said.clone() }));
    }
    for help in &d.fault.help {
        // A scan reports only the sliced array, a map the one that differs from the first.
        let second = ["the loop takes one slice", "the mapped dimensions"];
        let about = usize::from(second.iter().any(|s| d.fault.message.starts_with(s)));
        match followed(case, operands, said, help, about) {
            Ok(way) => ways.extend(way.map(|(ops, said)| (help.clone(), ops, said))),
            Err(why) => wrong.push(format!("{why}\n of {rejected}")),
        }
    }
    let mut count = 0;
    for (help, operands, said) in ways {
        count += 1;
        if let Some(e) = operands.iter().find_map(|a| a.ty().err()) {
            wrong.push(format!("`{help}` is itself rejected: {e}\n of {rejected}"));
            continue;
        }
        let fixed = (case.run)(&operands, &said);
        if fixed.ty().is_err() {
            count += follow(case, &operands, &said, steps - 1, wrong);
            continue;
        }
        let alone: Vec<Array> = operands.iter().map(whole).collect();
        let end = said.end.iter().filter(|c| matches!(c, Change::Astype(_))).cloned().collect();
        let plain = Said { arrays: said.arrays, end, alone: true, ..Said::default() };
        let want = (case.run)(&alone, &plain);
        match (numbers(&fixed), numbers(&want)) {
            (Ok(got), Ok(want)) if near(&got, &want) => {}
            (Err(e), _) => wrong.push(format!("`{help}` does not run: {e}\n of {rejected}")),
            (Ok(got), want) => wrong.push(format!("`{help}` gives {got:?}, not {want:?}\n of {rejected}")),
        }
        if let Some(out) = said.out.filter(|_| d.fault.out_shardings.iter().any(|c| Some(c.1) == said.out)) {
            let is = fixed.ty().unwrap().spec;
            let set = |spec: Spec| {
                spec.unreduced_axes().iter().map(|a| a.to_string()).collect::<std::collections::BTreeSet<_>>()
            };
            if is.dims() != out.padded(fixed.ty().unwrap().rank()).dims() || set(is) != set(out) {
                wrong.push(format!("`{help}` gives {}\n of {rejected}", type_of(&fixed)));
            }
        }
    }
    count
}

fn case(name: &str, operands: Vec<Array>, run: impl Fn(&[Array], &Said) -> Array + 'static) -> Case {
    let types: Vec<String> = operands.iter().map(|a| type_of(a).to_string()).collect();
    Case { name: format!("{name} of {}", types.join(", ")), operands, run: Box::new(run), body_of: None }
}

/// Returns an index into an array with two dimensions of size 8.
fn index(kinds: [usize; 2], at: [i32; 2], arrays: bool) -> Index {
    let pick = |(kind, at): (usize, i32)| match kind {
        0 if arrays => DimIndex::from(&Array::from(at)),
        0 => DimIndex::from(at),
        1 => DimIndex::from(at / 2..8),
        2 => DimIndex::from(0..4),
        3 => DimIndex::range(None, None, Some(2)),
        _ => DimIndex::from(..),
    };
    kinds.into_iter().zip(at).map(pick).collect::<Vec<_>>().into()
}

const KINDS: usize = 45;

/// Returns indices into 8 positions, with one of these shapes.
fn indices(dice: &mut Dice, shapes: &[&[usize]]) -> Array {
    let shape = dice.of(shapes);
    placed(dice, shape, false).astype(I32)
}

/// Returns a program of this kind on operands with random shardings; many are errors.
fn program(kind: usize, dice: &mut Dice) -> Case {
    let square = |dice: &mut Dice| placed(dice, &[8, 8], true);
    let (x, y) = (square(dice), square(dice));
    let d = dice.below(2) as i32;
    let at = [dice.below(8) as i32, dice.below(8) as i32];
    let kinds = [dice.below(5), dice.below(5)];
    let one = |name: &str, x: &Array, f: fn(&Array, i32) -> Array| {
        case(name, vec![x.clone()], move |a, _| f(&a[0], d))
    };
    let two = |name: &str, f: fn(&Array, &Array, i32) -> Array| {
        case(name, vec![x.clone(), y.clone()], move |a, _| f(&a[0], &a[1], d))
    };
    match kind {
        0 => case(&format!("slice {kinds:?} {at:?}"), vec![x], move |a, said| match said.out {
            Some(out) => a[0].at(index(kinds, at, false)).out_sharding(out).get(),
            None => a[0].slice(index(kinds, at, said.arrays)),
        }),
        1 => case(&format!("at.get {kinds:?} {at:?}"), vec![x], move |a, said| match said.out {
            Some(out) => a[0].at(index(kinds, at, false)).out_sharding(out).get(),
            None => a[0].at(index(kinds, at, said.arrays)).get(),
        }),
        2 => case(&format!("at.set {kinds:?} {at:?} of 3"), vec![x], move |a, said| {
            let part = a[0].at(index(kinds, at, said.arrays));
            said.number.map_or_else(
                || part.clone().set(3.0),
                |to| part.clone().set(Array::from(3f32).put(&mesh(), to)),
            )
        }),
        3 => case(&format!("at.add {kinds:?} {at:?} of 3"), vec![x], move |a, said| {
            let part = a[0].at(index(kinds, at, said.arrays));
            said.number.map_or_else(
                || part.clone().add(3.0),
                |to| part.clone().add(Array::from(3f32).put(&mesh(), to)),
            )
        }),
        4 | 5 => {
            let plain = filled(&[8, 8], 0).slice(index(kinds, at, false));
            let value = placed(dice, &plain.shape().unwrap(), kind == 5);
            case(
                &format!("at.{} {kinds:?} {at:?}", if kind == 4 { "set" } else { "mul" }),
                vec![x, value],
                move |a, said| {
                    let part = a[0].at(index(kinds, at, said.arrays));
                    if kind == 4 { part.set(&a[1]) } else { part.mul(&a[1]) }
                },
            )
        }
        6 => {
            let to = dice.of(&[vec![64], vec![2, 32], vec![4, 2, 8], vec![16, 4], vec![8, 2, 4]]);
            case(&format!("reshape to {to:?}"), vec![x], move |a, said| match said.out {
                Some(out) => a[0].reshape_to(&to[..], out),
                None => a[0].reshape(&to[..]),
            })
        }
        7 => case("ravel", vec![x], |a, said| match said.out {
            Some(out) => a[0].reshape_to([64], out),
            None => a[0].ravel(),
        }),
        8 => {
            let reps = dice.of(&[vec![2], vec![2, 1], vec![2, 2], vec![2, 1, 2], vec![1, 3]]);
            case(&format!("tile {reps:?}"), vec![x], move |a, _| a[0].tile(&reps))
        }
        9 => one("roll", &x, |x, d| x.roll(3, d)),
        10 => one("flip", &x, |x, d| x.flip(d)),
        11 => one("pad", &x, |x, _| x.pad(0.0, [(1, 2, 0), (0, 0, 1)])),
        12 => one("split", &x, |x, d| x.split([3, 5], d).swap_remove(1)),
        13 => one("unstack", &x, |x, d| x.unstack(d).swap_remove(5)),
        14 => one("softmax", &x, |x, d| x.softmax(d)),
        15 => one("logsumexp", &x, |x, d| x.logsumexp(d)),
        16 => one("argmax", &x, |x, d| x.argmax(d)),
        17 => one("max", &x, |x, d| x.max(d)),
        18 => one("mean and var", &x, |x, d| x.mean(d) + x.var(d)),
        19 => one("sum", &x, |x, d| x.sum(d)),
        20 => one("prod", &x, |x, d| x.prod(d)),
        21 => one("convert", &x, |x, _| x.astype(I32)),
        22 => one("one_hot", &x, |x, _| x.astype(I32).one_hot(4)),
        23 => one("triu", &x, |x, _| x.triu(1)),
        24 => two("add", |x, y, _| x + y),
        25 => case("add turned", vec![x.clone(), x.t()], |a, _| &a[0] + &a[1]),
        26 => two("mul", |x, y, _| x * y),
        27 => two("concat", |x, y, d| concat([x, y], d)),
        28 => two("stack", |x, y, d| stack([x, y], d)),
        29 => {
            let spec = dice.of(&[
                "ij,jk->ik",
                "ij,jk->ki",
                "ij,ij->i",
                "ij,kj->ikj",
                "ij,jk->",
                "ij,ji->j",
                "ij,kl->ikjl",
            ]);
            case(&format!("einsum {spec}"), vec![x, y], move |a, said| match said.out {
                Some(out) => einsum_to(spec, a, out),
                None => einsum(spec, a),
            })
        }
        30 => case("dot", vec![x, y], |a, said| match said.out {
            Some(out) => a[0].dot_to(&a[1], out),
            None => a[0].dot(&a[1]),
        }),
        31 => {
            let (x, y) = (placed(dice, &[4, 8, 8], true), placed(dice, &[4, 8, 2], true));
            case("matmul", vec![x, y], |a, said| match said.out {
                Some(out) => a[0].matmul_to(&a[1], out),
                None => a[0].matmul(&a[1]),
            })
        }
        32 => case("dot_general", vec![x, y], |a, said| {
            let how = Contraction { contracting: vec![(1, 1)], batch: vec![(0, 0)] };
            match said.out {
                Some(out) => a[0].dot_general_to(&a[1], &how, None, out),
                None => a[0].dot_general(&a[1], &how, None),
            }
        }),
        33 => {
            let to = spec(dice, &[8, 8], false);
            case(&format!("constrain {to}"), vec![x], move |a, said| match said.alone {
                true => a[0].clone(),
                false => a[0].constrain(to),
            })
        }
        34 => {
            let to = spec(dice, &[4, 8, 8], false);
            case(&format!("broadcast as {to}"), vec![x], move |a, said| match said.alone {
                true => a[0].broadcast_to([4, 8, 8]),
                false => a[0].broadcast_as([4, 8, 8], to),
            })
        }
        35 => {
            let z = placed(dice, &[8], true);
            case("select with a row", vec![x, y, z], |a, _| a[0].gt(2.0).select(&a[1], &a[2]))
        }
        36 => {
            let body: fn(&Array) -> Array = dice.of(&[
                |x| x.t(),
                |x| x.astype(F64),
                |x| x + x.max(0).expand_dims(0),
                |x| x.dot(x.t()) * 0.01,
            ]);
            let body_of = Some("fori_loop");
            let case = case("fori_loop", vec![x], move |a, said| {
                let end = said.end.clone();
                fori_loop(0..2, &a[0], move |_, x| changed(&body(&x), &end))
            });
            Case { body_of, ..case }
        }
        37 => {
            let case = case("scan", vec![x, y], |a, said| {
                let end = said.end.clone();
                let body = |c: Array, x: Array| (changed(&(&c + x.expand_dims(0)), &end), x);
                scan(&a[0], &a[1], body).0
            });
            Case { body_of: Some("scan"), ..case }
        }
        38 => case("cond", vec![x, y], |a, said| {
            let end = said.end.clone();
            let or = || changed(&a[1], &end);
            cond(Array::from(false), || a[0].clone(), or)
        }),
        39 => case("switch", vec![x, y], |a, said| {
            let end = said.end.clone();
            let or = || changed(&a[1], &end);
            switch(Array::from(1), &[&|| a[0].clone(), &or])
        }),
        40 => {
            let f: fn(&Array, &Array) -> Array =
                dice.of(&[|x, y| x + y, |x, y| x.dot(y), |x, y| x.at(ix![1]).set(y.max(0))]);
            let case = case("vmap", vec![x, y], move |a, _| vmap((&a[0], &a[1]), |(x, y)| f(&x, &y)));
            Case { body_of: Some("vmap"), ..case }
        }
        41 => {
            let ids = indices(dice, &[&[4], &[2, 4]]);
            case("take", vec![x, ids], move |a, said| match said.out {
                Some(out) => a[0].take_to(&a[1], d, out),
                None => a[0].take(&a[1], d),
            })
        }
        42 => {
            let ids = indices(dice, &[&[4], &[4, 2]]);
            case("slice by an array", vec![x, ids], |a, said| match said.out {
                Some(out) => a[0].at(ix![&a[1]]).out_sharding(out).get(),
                None => a[0].slice(ix![&a[1]]),
            })
        }
        43 => {
            let ids = indices(dice, &[&[8, 8]]);
            case("take_along_axis", vec![x, ids], move |a, said| match said.out {
                Some(out) => a[0].take_along_axis_to(&a[1], d, out),
                None => a[0].take_along_axis(&a[1], d),
            })
        }
        _ => {
            let takes = spec(dice, &[8, 8], false);
            let case = case(&format!("shard_map of {takes}"), vec![x], move |a, said| {
                let body = |x: &Array| x * 2.0;
                let placed = a[0].ty().unwrap().spec;
                let done = if said.alone {
                    Ok(body(&a[0]))
                } else if said.inferred {
                    shard_map(&mesh(), Inferred, placed, body).call(&a[0])
                } else {
                    shard_map(&mesh(), takes, takes, body).call(&a[0])
                };
                done.unwrap_or_else(|e| Array::filled_with(&e))
            });
            Case { body_of: Some("shard_map"), ..case }
        }
    }
}

#[test]
fn every_help_of_random_programs_leads_on() {
    let set = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (mut dice, cases) = (Dice(set("FIXITS_SEED").unwrap_or(1)), set("FIXITS").unwrap_or(4000));
    let (mut wrong, mut counts) = (Vec::new(), [0; KINDS]);
    for n in 0..cases as usize {
        let case = program(n % KINDS, &mut dice);
        counts[n % KINDS] += follow(&case, &case.operands, &Said::default(), 6, &mut wrong);
    }
    wrong.dedup();
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n\n")
    );
    // Rolls, flips, sums and triangles accept all operands here; updates by scalars accept all but
    // unreduced ones.
    let none: Vec<usize> = (0..KINDS).filter(|k| counts[*k] == 0 && ![9, 10, 19, 23].contains(k)).collect();
    assert!(cases < 4000 || none.is_empty(), "no help was followed of {none:?}: {counts:?}");
}
