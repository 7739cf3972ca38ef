//! Random per-device code, on our engine and on XLA.

use atmesh::prelude::*;
use atmesh::{CollectiveDim, PcastTo, Permutation};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

/// An operation on a block of 4×4 that varies over both axes; its result has the same type.
#[derive(Clone, Copy, Debug)]
enum Step {
    Sin,
    Turn,
    Own,
    Times(i32),
    Sum(&'static str),
    Most(&'static str),
    Next(&'static str, i64),
    Gather(&'static str),
    Scatter(&'static str),
    Exchange(&'static str),
    Product,
}

fn steps() -> impl Strategy<Value = Step> {
    let axis = || select(vec!["x", "y"]);
    prop_oneof![
        Just(Step::Sin),
        Just(Step::Turn),
        Just(Step::Own),
        Just(Step::Product),
        (-2..3).prop_map(Step::Times),
        axis().prop_map(Step::Sum),
        axis().prop_map(Step::Most),
        (axis(), 1i64..4).prop_map(|(a, n)| Step::Next(a, n)),
        axis().prop_map(Step::Gather),
        axis().prop_map(Step::Scatter),
        axis().prop_map(Step::Exchange),
    ]
}

impl Step {
    fn apply(self, b: &Array, sizes: [i32; 2]) -> Array {
        let varying = |y: Array, axis: &'static str| y.pcast(axis, PcastTo::Varying);
        let size = |axis: &str| if axis == "x" { sizes[0] } else { sizes[1] };
        match self {
            Step::Sin => b.sin(),
            Step::Turn => b.t(),
            Step::Own => b + (axis_index("x") * 2 + axis_index("y")).astype(F32),
            Step::Times(k) => b * k as f32,
            Step::Sum(axis) => varying(b.psum(axis), axis) / size(axis) as f32,
            Step::Most(axis) => varying(b.pmax(axis), axis) - b,
            Step::Next(axis, n) => b.ppermute(axis, Permutation::ring(n)),
            Step::Gather(axis) => b.all_gather(axis, CollectiveDim::tiled(0)).slice(ix![..4]),
            Step::Scatter(axis) => {
                let part = b.psum_scatter(axis, CollectiveDim::tiled(1));
                part.all_gather(axis, CollectiveDim::tiled(1)) * 0.5
            }
            Step::Exchange(axis) => b.all_to_all(axis, AllToAll::split(0).concat(1)).reshape([4, 4]),
            Step::Product => b.dot(b) / 4.0,
        }
    }
}

#[test]
fn random_manual_programs_agree_with_ours() {
    if !crate::plugin() {
        return;
    }
    let programs = (select(vec![[2, 2], [2, 4], [4, 2], [1, 2]]), prop::collection::vec(steps(), 1..=5));
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&programs, |(sizes, steps)| {
        let mesh = Mesh::new([("x", sizes[0] as usize), ("y", sizes[1] as usize)]).unwrap();
        let (rows, columns) = (4 * sizes[0], 4 * sizes[1]);
        let x = (Array::arange(0..rows * columns).astype(F32) * 0.37)
            .sin()
            .reshape([rows as usize, columns as usize]);
        let x = x.put(&mesh, p!["x", "y"]);
        let body = |b: &Array| steps.iter().fold(b.clone(), |b, step| step.apply(&b, sizes));
        let on = |engine| {
            let f = shard_map(&mesh, p!["x", "y"], p!["x", "y"], &body).engine(engine);
            f.call(&x).map_err(|e| TestCaseError::fail(format!("{engine}, {steps:?}: {e}")))
        };
        let (ours, theirs) = (on(Lockstep)?, on(EngineKind::Xla)?);
        prop_assert_eq!(type_of(&ours).to_string(), type_of(&theirs).to_string());
        let apart = crate::apart(&ours, &theirs);
        prop_assert!(apart <= 2e-5, "{:?} on {:?}: {}", steps, sizes, apart);
        Ok(())
    });
    if let Err(why) = ran {
        panic!("{why}");
    }
}
