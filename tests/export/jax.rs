//! Modules of the programs that `benches/stablehlo.rs` measures, next to the modules that JAX
//! writes for the same programs (`benches/peers/stablehlo.py`).

#[expect(dead_code, reason = "the benchmark also runs the programs")]
#[path = "../../benches/peers/stablehlo/programs.rs"]
mod programs;

use programs::{cases, count};

/// A module has at most as many operations that convert or move elements as the module of JAX.
#[test]
fn modules_have_no_more_operations_than_those_of_jax() {
    let cases = cases().unwrap();
    for case in &cases {
        for op in ["convert", "transpose", "sharding_constraint", "dot_general"] {
            let [ours, theirs] = [&case.ours, &case.theirs].map(|text| count(text, op));
            assert!(ours <= theirs, "{}: {ours} times {op}, JAX has {theirs}\n{}", case.name, case.ours);
        }
    }
    // the programs differ from each other, and the counts are those of whole modules
    let all = |op: &str| cases.iter().map(|case| count(&case.ours, op)).collect::<Vec<_>>();
    assert_eq!(all("dot_general"), [0, 0, 5, 45, 45, 0]);
    assert_eq!(
        cases.iter().map(|case| case.ours.matches("stablehlo.convolution(").count()).sum::<usize>(),
        5
    );
}
