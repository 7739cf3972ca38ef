//! Computes contractions that sum nothing, such as outer products, element by element.
//!
//! Each element of such a contraction is one product. A matmul of one term runs once for each
//! matrix of a batch and packs its operands, while an elementwise operation streams through memory
//! and can be fused with others.

use crate::core::types::{DType, Scalar};
use crate::ir::program::loop_nest::{ScalarArg, ScalarCode, ScalarOp, Source};
use crate::partition::buffers::index::{MAX_LOOPS, NO_LOOP};
use crate::partition::buffers::{AccessBox, BufferOp, BufferProgram, ElementwiseOp, ReductionLoops};
use std::borrow::Cow;

/// Replaces each contraction whose elements are single products by an elementwise operation.
///
/// Products of complex numbers remain contractions, which round their real and imaginary parts in
/// another way.
pub(super) fn expand_outer_products(flow: &mut BufferProgram<'_>) {
    for op in &mut flow.ops {
        if let BufferOp::Contraction(f) = op
            && has_single_terms(f)
        {
            *op = BufferOp::Elementwise(elementwise_product(f));
        }
    }
}

/// Returns true if each element of a contraction is one product of real numbers.
fn has_single_terms(f: &ReductionLoops) -> bool {
    let ([_], [_, _]) = (&f.partials[..], &f.reads[..]) else { return false };
    let mut boxes = f.filled_boxes();
    let (Some(only), None) = (boxes.next(), boxes.next()) else { return false };
    let is_full = |l: usize| only.lo[l] == 0 && only.hi[l] == f.ext[l];
    let reads_value = |p: &AccessBox| matches!(p.source, Source::Value(_)) && p.covers(&f.ext, f.num_loops);
    !f.dtype.is_complex()
        && (f.rank..f.num_loops).all(|l| f.ext[l] == 1)
        && (0..f.num_loops).all(is_full)
        && f.reads.iter().all(|r| matches!(&r.boxes[..], [p] if reads_value(p)))
}

/// Returns the elementwise operation that computes such a contraction.
fn elementwise_product(f: &ReductionLoops) -> ElementwiseOp<'static> {
    let mut reads = f.reads.clone();
    for p in reads.iter_mut().flat_map(|r| &mut r.boxes) {
        // the contracted loops have one index
        p.strides[f.rank..].fill(0);
        p.dim_loops.iter_mut().filter(|l| usize::from(**l) >= f.rank).for_each(|l| *l = NO_LOOP);
        (p.lo, p.hi) = ([0; MAX_LOOPS], f.ext);
    }
    let code = Cow::Owned(product_code([reads[0].dtype, reads[1].dtype], f.dtype));
    ElementwiseOp { out: f.out, num_loops: f.rank, ext: f.ext, reads, code, code_loop_base: 0 }
}

/// Returns the code of the sum of one product of operands of these types, as `dtype`.
///
/// A sum of floats starts with 0 and rounds once. So a product with a zero is 0 and not -0, but a
/// negative product that underflows is -0.
fn product_code(operands: [DType; 2], dtype: DType) -> ScalarCode {
    let mut code = ScalarCode { insts: Vec::new() };
    let mut factor = |k: usize| match operands[k] {
        own if own == dtype => ScalarArg::Access(k),
        own => code.push(ScalarOp::Convert, own, dtype, &[ScalarArg::Access(k)]),
    };
    let factors = [factor(0), factor(1)];
    let product = code.push(ScalarOp::Mul, dtype, dtype, &factors);
    if dtype.is_float() {
        let zero = ScalarArg::Const(Scalar::Float(0.0));
        let sum = code.push(ScalarOp::Add, dtype, dtype, &[product, zero]);
        let is_zero = factors.map(|x| code.push(ScalarOp::Eq, dtype, DType::Bool, &[x, zero]));
        let has_zero = code.push(ScalarOp::Or, DType::Bool, DType::Bool, &is_zero);
        code.push(ScalarOp::Select, dtype, dtype, &[has_zero, sum, product]);
    }
    code
}
