//! Self-grading exercises: `cargo test --test exercises -- --nocapture` compares `mine.rs` with the
//! tasks.
//!
//! An exercise is solved if the elements are right, the result has the requested type, and the
//! report lists exactly the requested collectives. The tests assert that the solutions pass and
//! that wrong answers do not.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod mine;
mod solutions;

use atmesh::prelude::*;
use atmesh::{CollectiveKind, Error};
use error_checks::Unquoted as _;

type One = fn(&Array) -> Result<Array>;
type Two = fn(&Array, &Array) -> Result<Array>;
type Three = fn(&Array, &Array, &Array) -> Result<Array>;

/// The answers of one file.
struct Answers {
    column_sums: One,
    normalized: One,
    two_layers: Three,
    gram: One,
    turned: One,
    late_sum: Two,
    smoothed: One,
    own_mean: One,
    step: Two,
    power: Two,
}

const NOTHING: &str = "nothing is written yet";

/// Returns an error: this exercise has no answer yet.
fn todo() -> Result<Array> {
    Err(Error::other(NOTHING))
}

/// The kind, count and bytes per device of each collective.
type Sent = Vec<(CollectiveKind, u64, u64)>;

/// The grade of an exercise.
#[derive(Clone, Debug, PartialEq)]
enum Grade {
    Solved,
    Nothing,
    /// The answer is wrong in this respect.
    Wrong(String),
}

/// A task: the elements, the type, and the kind, count and bytes per device of each collective.
struct Task {
    name: &'static str,
    right: Array,
    ty: &'static str,
    collectives: &'static [(CollectiveKind, u64, u64)],
    answer: Result<(Array, Sent)>,
}

impl Task {
    fn grade(&self) -> Result<Grade> {
        let (result, sent) = match &self.answer {
            Ok(answer) => answer,
            Err(e) if e.unquoted().contains(NOTHING) => return Ok(Grade::Nothing),
            Err(e) => return Ok(Grade::Wrong(format!("it is an error:\n{e}"))),
        };
        if type_of(result) != self.ty {
            return Ok(Grade::Wrong(format!(
                "the type is {}, and {} is asked for",
                type_of(result),
                self.ty
            )));
        }
        if !result.allclose_with(&self.right, 1e-4, 1e-5)? {
            return Ok(Grade::Wrong("the numbers are not right".into()));
        }
        let described = |all: &[(CollectiveKind, u64, u64)]| {
            let each = all.iter().map(|(kind, times, bytes)| format!("{times} × {kind} of {bytes} bytes"));
            let each: Vec<String> = each.collect();
            if each.is_empty() { "nothing".to_string() } else { each.join(", ") }
        };
        if sent != self.collectives {
            let (asked, sent) = (described(self.collectives), described(sent));
            return Ok(Grade::Wrong(format!("each device receives {sent}, and {asked} is asked for")));
        }
        Ok(Grade::Solved)
    }
}

/// Runs an answer; returns its result and its collectives.
fn run<I: Tree>(
    program: Result<atmesh::Lowered<I, Array>>,
    call: impl FnOnce(atmesh::Lowered<I, Array>) -> Result<Array>,
) -> Result<(Array, Sent)> {
    let program = program?;
    let sent = program.collectives().iter().map(|c| (c.kind, c.count, c.bytes_per_device)).collect();
    Ok((call(program)?, sent))
}
fn one(f: One, x: &Array) -> Result<(Array, Sent)> {
    run(jit(f).lower(x), |p| p.compile()?.call(x))
}
fn two(f: Two, x: &Array, y: &Array) -> Result<(Array, Sent)> {
    run(jit(f).lower((x, y)), |p| p.compile()?.call((x, y)))
}
fn three(f: Three, x: &Array, y: &Array, z: &Array) -> Result<(Array, Sent)> {
    run(jit(f).lower((x, y, z)), |p| p.compile()?.call((x, y, z)))
}

/// Returns all exercises, with these answers.
fn tasks(a: &Answers) -> Result<Vec<Task>> {
    use CollectiveKind::{AllGather, AllReduce, AllToAll, Halo, ReduceScatter};
    let mesh = Mesh::new([("X", 8)])?;
    let auto = Mesh::auto([("X", 8)])?;
    let [xk, uk, dk, vk] = Key::new(2026).split();
    let x = xk.normal([64, 32]);
    let (up, down) = (uk.normal([32, 64]), dk.normal([64, 32]));
    let (v, m) = (vk.uniform([64]), dk.uniform([64, 64]));
    let rows = x.put(&mesh, p!["X", _]);
    let few = x.slice(ix![..16]).put(&mesh, p![]);
    let (left, right) = (down.t().slice(ix![..8]), down.slice(ix![.., ..8]));
    let w = uk.normal([32, 8]);
    let all = p![];
    Ok(vec![
        Task {
            name: "column_sums",
            right: x.sum(0),
            ty: "float32[32@X]",
            collectives: &[(ReduceScatter, 1, 112)],
            answer: one(a.column_sums, &rows),
        },
        Task {
            name: "normalized",
            right: &x / x.square().sum(Dims::keep(1)).sqrt(),
            ty: "float32[64@X,32]",
            collectives: &[],
            answer: one(a.normalized, &rows),
        },
        Task {
            name: "two_layers",
            right: x.slice(ix![..16]).dot(&up).relu().dot(&down),
            ty: "float32[16,32]",
            collectives: &[(AllReduce, 1, 3584)],
            answer: three(a.two_layers, &few, &up.put(&mesh, all), &down.put(&mesh, all)),
        },
        Task {
            name: "gram",
            right: x.t().dot(&x),
            ty: "float32[32@X,32]",
            collectives: &[(ReduceScatter, 1, 3584)],
            answer: one(a.gram, &rows),
        },
        Task {
            name: "turned",
            right: x.clone(),
            ty: "float32[64,32@X]",
            collectives: &[(AllToAll, 1, 896)],
            answer: one(a.turned, &rows),
        },
        Task {
            name: "late_sum",
            right: 3.0 * left.dot(&right),
            ty: "float32[8,8]",
            collectives: &[(AllReduce, 1, 448)],
            answer: two(a.late_sum, &left.put(&mesh, p![_, "X"]), &right.put(&mesh, p!["X", _])),
        },
        Task {
            name: "smoothed",
            right: (v.roll(1, 0) + &v + v.roll(-1, 0)) / 3.0,
            ty: "float32[64]",
            collectives: &[(Halo, 1, 8)],
            answer: one(a.smoothed, &v.put(&auto, p!["X"])),
        },
        Task {
            name: "own_mean",
            right: &v - v.mean(..),
            ty: "float32[64@X]",
            collectives: &[(AllReduce, 1, 12)],
            answer: one(a.own_mean, &v.put(&mesh, p!["X"])),
        },
        Task {
            name: "step",
            right: &w - 0.2 * x.t().dot(x.dot(&w)),
            ty: "float32[32,8]",
            collectives: &[(AllReduce, 1, 1792)],
            answer: two(a.step, &w.put(&mesh, all), &rows),
        },
        Task {
            name: "power",
            right: (0..10).fold(v.clone(), |v, _| {
                let v = m.dot(&v);
                &v / v.square().sum(..).sqrt()
            }),
            ty: "float32[64@X]",
            collectives: &[(AllGather, 10, 224), (AllReduce, 10, 12)],
            answer: two(a.power, &m.put(&mesh, p!["X", _]), &v.put(&mesh, p!["X"])),
        },
    ])
}

/// Returns the report on all answers, and the number of wrong ones.
fn described(a: &Answers) -> Result<(String, usize)> {
    let (mut text, mut wrong) = (String::new(), 0);
    for task in tasks(a)? {
        text += &match task.grade()? {
            Grade::Solved => format!("{:12} solved\n", task.name),
            Grade::Nothing => format!("{:12} {NOTHING}\n", task.name),
            Grade::Wrong(why) => {
                wrong += 1;
                format!("{:12} not yet: {why}\n", task.name)
            }
        };
    }
    Ok((text, wrong))
}

/// Grades `mine.rs`. A missing answer does not fail the test.
#[test]
fn mine() -> Result<()> {
    let (text, wrong) = described(&mine::ANSWERS)?;
    println!("{text}");
    assert!(wrong == 0, "{wrong} answers are not right yet:\n{text}");
    Ok(())
}

#[test]
fn solutions_are_solved() -> Result<()> {
    for task in tasks(&solutions::ANSWERS)? {
        assert_eq!(task.grade()?, Grade::Solved, "{}", task.name);
    }
    Ok(())
}

/// Grades answers that are each wrong in one way: none, elements, type, collectives, or an error.
/// The book shows the report.
#[test]
fn wrong_answers_are_found_out() -> Result<()> {
    let half = Answers {
        column_sums: |_| todo(),
        normalized: |x| Ok(x / x.square().sum(Dims::keep(1))),
        two_layers: |x, up, down| Ok(x.dot(up).relu().dot(down)),
        gram: |x| Ok(x.t().dot_to(x, p![]).reshard(p!["X", _])),
        turned: |x| Ok(x.clone()),
        late_sum: |a, b| Ok(a.dot_to(b, p![]) + a.dot_to(2.0 * b, p![])),
        step: |w, x| Ok(w - 0.1 * grad(w, |w| x.dot_to(w, p![_, "X"]).square().sum(..))),
        ..solutions::ANSWERS
    };
    let (text, wrong) = described(&half)?;
    for (name, part) in [
        ("column_sums", NOTHING),
        ("normalized", "the numbers are not right"),
        ("two_layers", "each device receives nothing, and 1 × all_reduce of 3584 bytes is asked for"),
        ("turned", "the type is float32[64@X,32], and float32[64,32@X] is asked for"),
        ("smoothed", "solved"),
    ] {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        assert!(line.contains(part), "{name}: {line}");
    }
    assert!(wrong >= 4, "{text}");
    let path = format!("{}/tests/golden/exercises.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::write(&path, &text).map_err(Error::other)?;
    }
    assert_eq!(text, std::fs::read_to_string(&path).map_err(Error::other)?);
    Ok(())
}
