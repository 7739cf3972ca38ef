//! Golden tests of the fusion stage: the printed plan of ten programs, in shared memory.

use crate::partition::buffers::{HalfMatmuls, lower::lower};
use crate::partition::fusion::{fuse, row_groups::RowConstraints, rows::fuse_rows};
use crate::prelude::*;
use expect_test::{Expect, expect};

/// Compares the program and the fusion plan of a function with the expected text.
fn check<const N: usize>(shapes: [&[usize]; N], f: fn(&[Array]) -> Array, expected: &Expect) {
    let operands: Vec<Array> = shapes.iter().map(|s| Array::ones(s.to_vec())).collect();
    let lowered = jit(move |x: &Vec<Array>| f(x)).lower(&operands).expect("the program is valid");
    let buffers = lower(lowered.spmd(), HalfMatmuls::Widened).expect("it has few loops");
    let mut plan = fuse(&buffers);
    let constraints = RowConstraints::of_unplaced_values(&plan);
    fuse_rows(&mut plan, &constraints);
    // The origins of steps are left out, because they have line numbers.
    let program = lowered.spmd().to_string();
    let steps = program.lines().map(|l| l.split("  // ").next().unwrap_or(l));
    let program = steps.fold(String::new(), |text, line| text + line + "\n");
    expected.assert_eq(&format!("{program}\n{plan}"));
}

#[test]
fn elementwise_operations_are_one_group() {
    check(
        [&[8, 4], &[8, 4]],
        |x| ((&x[0] + &x[1]).sin() * 2.0).exp(),
        &expect![[r#"
        (%0: f32[8,4], %1: f32[8,4]) {
          %2: f32[8,4] = add(%0[i,j], %1[i,j]) over [8,4]
          %3: f32[8,4] = sin(%2[i,j]) over [8,4]
          %4: f32[8,4] = mul(%3[i,j], 2.0) over [8,4]
          %5: f32[8,4] = exp(%4[i,j]) over [8,4]
          return %5
        }

        level 1, group 0: elementwise computes %2 %3 %4 stores %5
    "#]],
    );
}

#[test]
fn a_value_that_a_sort_reads_is_stored() {
    check(
        [&[8, 4]],
        |x| (x[0].exp().sort(0) + 1.0).sin(),
        &expect![[r#"
        (%0: f32[8,4]) {
          %1: f32[8,4] = exp(%0[i,j]) over [8,4]
          %2: f32[8,4] = sort of 1 by 1 of %1[k,j] over [8,4; 8]
          %3: f32[8,4] = add(%2[i,j], 1.0) over [8,4]
          %4: f32[8,4] = sin(%3[i,j]) over [8,4]
          return %4
        }

        level 1, group 0: elementwise stores %1
        level 2, group 1: row kernel %2 stores %2
        level 3, group 2: elementwise computes %3 stores %4
    "#]],
    );
}

#[test]
fn a_sum_absorbs_what_only_it_reads() {
    check(
        [&[8, 4], &[8, 4]],
        |x| (&x[0] * &x[1]).tanh().sum(..),
        &expect![[r#"
        (%0: f32[8,4], %1: f32[8,4]) {
          %2: f32[8,4] = mul(%0[i,j], %1[i,j]) over [8,4]
          %3: f32[8,4] = tanh(%2[i,j]) over [8,4]
          %4: f32[] = sum of %3[i,j] over [; 8,4]
          return %4
        }

        level 1, group 1: reduction %4 computes %2 %3 stores %4
    "#]],
    );
}

#[test]
fn a_matmul_computes_its_epilogue() {
    check(
        [&[64, 32], &[32, 16], &[16]],
        |x| (x[0].dot(&x[1]) + &x[2]).tanh(),
        &expect![[r#"
        (%0: f32[64,32], %1: f32[32,16], %2: f32[16]) {
          %3: f32[64,16] = sum of %0[i,k] · %1[k,j] over [64,16; 32]
          %4: f32[64,16] = add(%3[i,j], %2[j]) over [64,16]
          %5: f32[64,16] = tanh(%4[i,j]) over [64,16]
          return %5
        }

        level 1, group 0: matmul %3 computes %4 stores %5
    "#]],
    );
}

#[test]
fn two_matmuls_are_stored_before_their_sum() {
    check(
        [&[64, 32], &[32, 64]],
        |x| x[0].dot(&x[1]) + x[1].t().dot(x[0].t()),
        &expect![[r#"
        (%0: f32[64,32], %1: f32[32,64]) {
          %2: f32[64,64] = sum of %0[i,k] · %1[k,j] over [64,64; 32]
          %5: f32[64,64] = sum of %1[k,i] · %0[j,k] over [64,64; 32]
          %6: f32[64,64] = add(%2[i,j], %5[i,j]) over [64,64]
          return %6
        }

        level 1, group 0: matmul %2 stores %2
        level 1, group 1: matmul %5 stores %5
        level 2, group 2: elementwise stores %6
    "#]],
    );
}

#[test]
fn shifted_reads_join_a_group() {
    check(
        [&[64]],
        |x| x[0].sin().slice(ix![..62]) + x[0].sin().slice(ix![2..]),
        &expect![[r#"
        (%0: f32[64]) {
          %1: f32[64] = sin(%0[i]) over [64]
          %3: f32[64] = sin(%0[i]) over [64]
          %5: f32[62] = add(%1[i], %3[i+2]) over [62]
          return %5
        }

        level 1, group 0: elementwise stores %1
        level 1, group 1: elementwise stores %3
        level 2, group 2: elementwise stores %5
    "#]],
    );
}

#[test]
fn softmax_runs_by_rows() {
    check(
        [&[64, 128]],
        |x| x[0].softmax(-1),
        &expect![[r#"
        (%0: f32[64,128]) {
          %1: f32[64] = max of %0[i,j] over [64; 128]
          %3: f32[64,128] = sub(%0[i,j], %1[i]) over [64,128]
          %4: f32[64,128] = exp(%3[i,j]) over [64,128]
          %5: f32[64] = sum of %4[i,j] over [64; 128]
          %7: f32[64,128] = div(%4[i,j], %5[i]) over [64,128]
          return %7
        }

        level 1, group 0: reduction %1 stores %1
        level 1, group 1: elementwise computes %3 stores %4
        level 1, group 2: reduction %5 stores %5
        level 1, group 3: elementwise stores %7
        64 rows: groups 0 1 2 3; in cache %1 %4 %5
    "#]],
    );
}

#[test]
fn layernorm_runs_by_rows() {
    let f = |x: &[Array]| {
        let centered = &x[0] - x[0].mean(Dims::keep(-1));
        &centered * (centered.square().mean(Dims::keep(-1)) + 1e-5).rsqrt() * &x[1]
    };
    check(
        [&[64, 128], &[128]],
        f,
        &expect![[r#"
        (%0: f32[64,128], %1: f32[128]) {
          %2: f32[64] = sum of %0[i,j] over [64; 128]
          %4: f32[64,1] = div(%2[i], 128.0) over [64,1]
          %5: f32[64,128] = sub(%0[i,j], %4[i,0]) over [64,128]
          %6: f32[64,128] = mul(%5[i,j], %5[i,j]) over [64,128]
          %7: f32[64] = sum of %6[i,j] over [64; 128]
          %9: f32[64,1] = div(%7[i], 128.0) over [64,1]
          %10: f32[64,1] = add(%9[i,j], 1e-5) over [64,1]
          %11: f32[64,1] = rsqrt(%10[i,j]) over [64,1]
          %12: f32[64,128] = mul(%5[i,j], %11[i,0]) over [64,128]
          %13: f32[64,128] = mul(%12[i,j], %1[j]) over [64,128]
          return %13
        }

        level 1, group 0: reduction %2 stores %2
        level 1, group 1: elementwise stores %4
        level 1, group 2: elementwise stores %5 %6
        level 1, group 3: reduction %7 stores %7
        level 1, group 4: elementwise computes %9 %10 stores %11
        level 1, group 5: elementwise computes %12 stores %13
        64 rows: groups 0 1 2 3 4 5; in cache %2 %4 %5 %6 %7 %11
    "#]],
    );
}

#[test]
fn attention_keeps_its_scores_in_cache() {
    let f = |x: &[Array]| {
        let weights = (einsum("hqd,hkd->hqk", [&x[0], &x[1]]) * 0.25).softmax(-1);
        einsum("hqk,hkd->hqd", [&weights, &x[2]])
    };
    check(
        [&[4, 128, 16], &[4, 128, 16], &[4, 128, 16]],
        f,
        &expect![[r#"
        (%0: f32[4,128,16], %1: f32[4,128,16], %2: f32[4,128,16]) {
          %3: f32[4,128,128] = sum of %0[i,j,l] · %1[i,k,l] over [4,128,128; 16]
          %4: f32[4,128,128] = mul(%3[i,j,k], 0.25) over [4,128,128]
          %5: f32[4,128] = max of %4[i,j,k] over [4,128; 128]
          %7: f32[4,128,128] = sub(%4[i,j,k], %5[i,j]) over [4,128,128]
          %8: f32[4,128,128] = exp(%7[i,j,k]) over [4,128,128]
          %9: f32[4,128] = sum of %8[i,j,k] over [4,128; 128]
          %11: f32[4,128,128] = div(%8[i,j,k], %9[i,j]) over [4,128,128]
          %12: f32[4,128,16] = sum of %11[i,j,l] · %2[i,l,k] over [4,128,16; 128]
          return %12
        }

        level 2, group 0: matmul %3 stores %4
        level 2, group 1: reduction %5 stores %5
        level 2, group 2: elementwise computes %7 stores %8
        level 2, group 3: reduction %9 stores %9
        level 2, group 4: elementwise stores %11
        level 2, group 5: matmul %12 stores %12
        512 rows: groups 0 1 2 3 4 5; in cache %5 %8 %9 %11 %4
    "#]],
    );
}

#[test]
fn a_transposed_matmul_has_its_loops_permuted() {
    check(
        [&[64, 32], &[32, 16]],
        |x| x[0].dot(&x[1]).t() * 2.0,
        &expect![[r#"
        (%0: f32[64,32], %1: f32[32,16]) {
          %2: f32[64,16] = sum of %0[i,k] · %1[k,j] over [64,16; 32]
          %4: f32[16,64] = mul(%2[j,i], 2.0) over [16,64]
          return %4
        }

        level 1, group 0: matmul %5 stores %4
    "#]],
    );
}

#[test]
fn equal_reductions_are_computed_once() {
    // the variance computes the mean again
    let step = jit(|x: &Array| (x - x.mean(0)) * x.var(0));
    let lowered = step.lower(&Array::ones([8, 4])).expect("the program is valid");
    let buffers = lower(lowered.spmd(), HalfMatmuls::Widened).expect("it has few loops");
    let plan = fuse(&buffers).to_string();
    assert_eq!(plan.matches("reduction").count(), 2, "{plan}");
}
