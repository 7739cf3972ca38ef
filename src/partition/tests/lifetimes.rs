//! Golden tests of lifetimes: the levels during which values are in memory, for the compiler and the
//! memory report.

use crate::partition::Slot;
use crate::partition::buffers::{HalfMatmuls, lower::lower};
use crate::partition::fusion::{choose_views, fuse, lifetimes::value_lifetimes, order::delay_groups};
use crate::partition::fusion::{reuse::assign_donated, row_groups::RowConstraints, rows::fuse_rows};
use crate::prelude::*;
use expect_test::{Expect, expect};
use std::fmt::Write;

/// Compares the lifetimes of the values of a function with the expected text. Operands for which
/// `donated` is true may be overwritten.
fn check<const N: usize>(shape: &[usize], donated: [bool; N], f: fn(&[Array]) -> Array, expected: &Expect) {
    let operands = vec![Array::ones(shape.to_vec()); N];
    let lowered = jit(move |x: &Vec<Array>| f(x)).lower(&operands).expect("the program is valid");
    let buffers = lower(lowered.spmd(), HalfMatmuls::Widened).expect("it has few loops");
    let mut plan = fuse(&buffers);
    let (outs, skipped) = choose_views(&plan, 1);
    let reuse = assign_donated(&mut plan, &donated, &outs);
    let in_donated = |s: Slot| reuse.in_donated.iter().any(|x| x.0 == s);
    let is_placed = |s: Slot| {
        let results = buffers.outs.iter().map(|o| buffers.alias_root(*o));
        buffers.ins.iter().copied().chain(results).any(|x| x == s) || in_donated(s)
    };
    let constraints = RowConstraints {
        latest_levels: reuse.latest_levels(&plan),
        is_in_own_memory: &|s| !in_donated(s),
        is_unplaced: &|s| !is_placed(s),
        ..RowConstraints::of_unplaced_values(&plan)
    };
    fuse_rows(&mut plan, &constraints);
    delay_groups(&mut plan, &reuse, &is_placed);
    let mut text = plan.to_string();
    for l in value_lifetimes(&plan, &reuse, |k| skipped.contains(&k), is_placed) {
        let (from, to) = (l.first_level, l.last_level);
        writeln!(text, "%{}: {} bytes during levels {from} to {to}", l.value, l.bytes).expect("text");
    }
    for (k, block) in reuse.free_blocks(&plan) {
        let arg = reuse.donated[k].arg;
        writeln!(text, "argument {arg} is free after level {}", block.free_after_level).expect("text");
    }
    expected.assert_eq(&text);
}

#[test]
fn a_value_is_in_memory_until_its_last_read() {
    check(
        &[256],
        [false],
        |x| x[0].sort(0).cumsum(0).sort(0),
        &expect![[r#"
        level 1, group 0: row kernel %1 stores %1
        level 2, group 1: row kernel %2 stores %2
        level 3, group 2: row kernel %3 stores %3
        %1: 1024 bytes during levels 1 to 2
        %2: 1024 bytes during levels 2 to 3
    "#]],
    );
}

#[test]
fn a_value_that_is_needed_late_is_computed_late() {
    check(
        &[256],
        [false],
        |x| x[0].sort(0).cumsum(0).sort(0) + x[0].cumsum(0),
        &expect![[r#"
        level 1, group 0: row kernel %1 stores %1
        level 2, group 1: row kernel %2 stores %2
        level 3, group 2: row kernel %3 stores %3
        level 3, group 3: row kernel %4 stores %4
        level 4, group 4: elementwise stores %5
        %1: 1024 bytes during levels 1 to 2
        %2: 1024 bytes during levels 2 to 3
        %3: 1024 bytes during levels 3 to 4
        %4: 1024 bytes during levels 3 to 4
    "#]],
    );
}

/// A chain of rows runs its first matmul later, and reads the donated operands then.
#[test]
fn a_donated_operand_is_free_after_the_chain_that_reads_it() {
    let f = |x: &[Array]| {
        let weights = (einsum("hqd,hkd->hqk", [&x[0], &x[1]]) * 0.25).softmax(-1);
        einsum("hqk,hkd->hqd", [&weights, &x[2]]).sin().sum(1)
    };
    check(
        &[4, 128, 16],
        [true; 3],
        f,
        &expect![[r#"
        level 2, group 0: matmul %3 stores %4
        level 2, group 1: reduction %5 stores %5
        level 2, group 2: elementwise computes %7 stores %8
        level 2, group 3: reduction %9 stores %9
        level 2, group 4: elementwise stores %11
        level 2, group 5: matmul %12 stores %13
        level 7, group 6: reduction %14 stores %14
        512 rows: groups 0 1 2 3 4 5; in cache %5 %8 %9 %11 %4
        %13: 32768 bytes during levels 2 to 7
        argument 0 is free after level 2
        argument 1 is free after level 2
        argument 2 is free after level 2
    "#]],
    );
}
