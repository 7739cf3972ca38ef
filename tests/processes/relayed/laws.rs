//! The random programs of `tests/laws`, on 3 processes of 2 devices: operation by operation, and
//! compiled.

use super::programs_of_laws::{Program, Written};
use super::results::{Digests, compare_with, print_digests, same_digests};
use super::soak::runs_all;
use super::supervisor::wait_all;
use super::{LIMIT, Rng, start_with};
use atmesh::distributed::init;
use atmesh::prelude::*;
use atmesh::{AxisType, Error, ErrorKind};

/// The number of programs that are compared.
fn count() -> usize {
    std::env::var("ATMESH_TEST_PROGRAMS").map_or(12, |n| n.parse().unwrap())
}

/// Returns the program of a seed, for 6 devices.
fn program(seed: u64) -> (Program, Mesh) {
    let mut rng = Rng::new(seed);
    let mut program = Program::new(&mut rng);
    let sizes: [&[usize]; 4] = [&[6], &[3, 2], &[2, 3], &[6, 1]];
    program.sizes = rng.choose(&sizes).to_vec();
    let axes = ["x", "y"].into_iter().zip(program.sizes.clone());
    let types = axes
        .map(|(name, size)| (name, size, if rng.once_in(2) { AxisType::Auto } else { AxisType::Explicit }));
    let mesh = Mesh::with_types(types.collect::<Vec<_>>()).unwrap();
    (program, mesh)
}

/// Returns true if an error says that XLA does not run the program, such as one of uneven sizes.
fn is_refused(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported
}

/// Returns, for each result, all values that it is computed from, in this process alone.
fn sources_of_results(program: &Program, xs: &[Array]) -> Result<Vec<Vec<Array>>> {
    let values = program.values(xs, None, Written::default())?;
    let sources = |result: usize| {
        let (mut sources, mut next) = (vec![result], 0);
        while let Some(v) = sources.get(next) {
            let line = v.checked_sub(program.inputs.len()).map(|k| &program.lines[k]);
            sources.extend(line.map_or(vec![], |line| line.reads()));
            next += 1;
        }
        sources.into_iter().skip(1).filter_map(|v| values[v].clone()).collect()
    };
    Ok(program.results().into_iter().map(sources).collect())
}

/// Runs programs in this process and in all of them.
pub(crate) fn random_programs() -> Result<()> {
    let cluster = init()?;
    let (mut digests, mut done, mut refused) = (Digests::new(), 0, 0);
    for seed in 1.. {
        if done == count() {
            break;
        }
        let (mut program, mesh) = program(seed);
        if program.lines.iter().any(|line| line.what.prints()) {
            continue;
        }
        let xs = program.numbers(0);
        let one = program.run(&xs, None, Written::default())?;
        let sources = sources_of_results(&program, &xs)?;
        let placed = program.placed(&xs, &mesh);
        // each line by itself, which also finds the operands to replicate
        let eager = match program.accept(&placed, &mesh) {
            Err(error) if is_refused(&error) => {
                refused += 1;
                continue;
            }
            eager => eager.map_err(|e| Error::other(format!("seed {seed}: {e}\n{program:?}")))?,
        };
        for (k, (many, one)) in eager.iter().zip(&one).enumerate() {
            let name = format!("seed {seed}, result {k}, line by line");
            compare_with(&name, many, one, &sources[k], &mut digests)
                .map_err(|e| Error::other(format!("{e}\n{program:?}")))?;
        }
        let compiled = jit(|xs: &Vec<Array>| program.run(xs, Some(&mesh), Written::default()));
        let compiled = match compiled.call(&placed) {
            Err(error) if is_refused(&error) => Vec::new(),
            compiled => compiled.map_err(|e| Error::other(format!("seed {seed}: {e}\n{program:?}")))?,
        };
        for (k, (many, one)) in compiled.iter().zip(&one).enumerate() {
            let name = format!("seed {seed}, result {k}, compiled");
            compare_with(&name, many, one, &sources[k], &mut digests)
                .map_err(|e| Error::other(format!("{e}\n{program:?}")))?;
        }
        done += 1;
        if done % 20 == 0 {
            println!("{done} programs agree so far");
        }
    }
    print_digests(&digests);
    println!("{done} programs agree, {refused} are refused");
    cluster.barrier("all programs agree")
}

#[test]
fn random_programs_agree_with_one_process() {
    let programs = if runs_all() { "200" } else { "12" };
    let Some(all) = start_with("random programs", 3, 2, &[("ATMESH_TEST_PROGRAMS", programs.into())]) else {
        return;
    };
    let all = wait_all(all, LIMIT * if runs_all() { 120 } else { 2 });
    all.iter().for_each(|ended| ended.assert_success());
    let blocks = same_digests(all.iter().map(|ended| &*ended.stdout));
    let summary = all[0].stdout.lines().find(|line| line.contains(" programs agree, ")).unwrap();
    println!("{summary}: {blocks} blocks");
}
