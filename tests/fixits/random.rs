//! Random operations on operands with random shardings, which are errors: each help is parsed and
//! followed, repeatedly if it takes several steps.
//!
//! `FIXITS_SEED=7 FIXITS=100000 cargo test --test fixits` tries other cases.

use crate::programs::{KINDS, program};
use crate::{between, error_checks};
use atmesh::prelude::*;
use atmesh::{Axes, Axis, Error, type_of};

/// A generator of pseudo-random numbers.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
    pub(crate) fn choose<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// The change that a fix makes to a value.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Reshard(Spec),
    Put(Spec),
    Astype(DType),
    Pvary(Axes),
}

/// The differences between the program as written and as fixed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// The requested sharding of the result.
    pub(crate) out: Option<Spec>,
    /// True if positions are written as arrays.
    pub(crate) arrays: bool,
    /// The changes at the end of a loop's body, or of the second branch.
    pub(crate) end: Vec<Change>,
    /// The changes at the end of the first branch.
    pub(crate) first_end: Vec<Change>,
    /// The changes of the point of a derivative.
    pub(crate) point: Vec<Change>,
    /// The sharding of a scalar that is written as a placed array.
    pub(crate) number: Option<Spec>,
    /// True if blocks are derived from the arguments' own types.
    pub(crate) inferred: bool,
    /// The sharding of the result of a region of auto axes, in which the program runs.
    island: Option<Spec>,
    /// True if the program runs on one device, without shardings.
    pub(crate) alone: bool,
}

pub(crate) type Program = Box<dyn Fn(&[Array], &Said) -> Array>;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) operands: Vec<Array>,
    pub(crate) run: Program,
    /// The operation whose body contains this one.
    pub(crate) body_of: Option<&'static str>,
}

impl Case {
    /// Runs the program, in a region of auto axes if a help said so.
    fn run(&self, operands: &[Array], said: &Said) -> Array {
        match said.island {
            Some(out) => auto_axes(operands.to_vec(), out, |operands| (self.run)(&operands, said)),
            None => (self.run)(operands, said),
        }
    }
}

pub(crate) fn mesh() -> Mesh {
    Mesh::new([("X", 2), ("Y", 4)]).unwrap()
}

/// Returns small integers, whose sums are exact.
pub(crate) fn filled(shape: &[usize], seed: usize) -> Array {
    let n: usize = shape.iter().product();
    Array::from((0..n).map(|i| ((i * 7 + seed * 3) % 5) as f32).collect::<Vec<_>>()).reshape(shape)
}

/// Returns a random sharding of this shape, sometimes unreduced or reduced over an axis.
pub(crate) fn spec(dice: &mut Dice, shape: &[usize], sets: bool) -> Spec {
    let mut dims = vec![Axes::none(); shape.len()];
    let mut spare = Vec::new();
    for (axis, n) in dice.choose(&[[("X", 2), ("Y", 4)], [("Y", 4), ("X", 2)]]) {
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

pub(crate) fn placed(dice: &mut Dice, shape: &[usize], sets: bool) -> Array {
    let sharding = spec(dice, shape, sets);
    filled(shape, dice.below(5)).put(&mesh(), sharding)
}

pub(crate) fn whole(a: &Array) -> Array {
    match a.sharding() {
        Ok(Some(_)) => a.reshard(Spec::replicated(a.ty().unwrap().rank())),
        _ => a.clone(),
    }
}

pub(crate) fn changed(a: &Array, changes: &[Change]) -> Array {
    changes.iter().fold(a.clone(), |a, change| match change {
        Change::Reshard(to) => a.reshard(*to),
        Change::Put(to) => a.put(&mesh(), *to),
        Change::Astype(to) => a.astype(*to),
        Change::Pvary(axes) => a.pvary(axes.clone()),
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
        } else if rest.starts_with(".pvary(") {
            let quoted = between(rest, ".pvary(", ")").expect("a closed parenthesis");
            all.push(Change::Pvary(quoted.split('"').skip(1).step_by(2).map(Axis::from).collect()));
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
    } else if let Some(out) = between(help, "`auto_axes(&x, ", ", |x| x.") {
        said.island = Some(out.parse().unwrap());
    } else if help.contains("`Inferred`") {
        said.inferred = true;
    } else if help.contains("on the result where it") {
        for part in help.split(", and ") {
            let end = match part.contains("where it holds") {
                true => &mut said.first_end,
                false => &mut said.end,
            };
            end.extend(changes(part));
        }
    } else if help.starts_with("make the value vary too") {
        said.point.extend(changes(help));
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
    let Err(error) = case.run(operands, said).ty() else { return 0 };
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
        let second = ["the loop takes one slice", "the mapped dimensions", "the tangent", "the cotangent"];
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
        let fixed = case.run(&operands, &said);
        if fixed.ty().is_err() {
            count += follow(case, &operands, &said, steps - 1, wrong);
            continue;
        }
        let alone: Vec<Array> = operands.iter().map(whole).collect();
        let end = said.end.iter().filter(|c| matches!(c, Change::Astype(_))).cloned().collect();
        let plain = Said { arrays: said.arrays, end, alone: true, ..Said::default() };
        let want = case.run(&alone, &plain);
        match (numbers(&fixed), numbers(&want)) {
            (Ok(got), Ok(want)) if near(&got, &want) => {}
            (Err(e), _) => wrong.push(format!("`{help}` does not run: {e}\n of {rejected}")),
            (Ok(got), want) => wrong.push(format!("`{help}` gives {got:?}, not {want:?}\n of {rejected}")),
        }
        // the result of a derivative is not that of the operation whose sharding was requested
        let of_op = !case.name.starts_with("grad");
        if let Some(out) =
            said.out.filter(|_| of_op).filter(|_| d.fault.out_shardings.iter().any(|c| Some(c.1) == said.out))
        {
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

pub(crate) fn case(
    name: &str,
    operands: Vec<Array>,
    run: impl Fn(&[Array], &Said) -> Array + 'static,
) -> Case {
    let types: Vec<String> = operands.iter().map(|a| type_of(a).to_string()).collect();
    Case { name: format!("{name} of {}", types.join(", ")), operands, run: Box::new(run), body_of: None }
}

#[test]
fn every_help_of_random_programs_leads_on() {
    let set = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (mut dice, cases) = (Dice(set("FIXITS_SEED").unwrap_or(1)), set("FIXITS").unwrap_or(400));
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
