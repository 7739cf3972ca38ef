//! Errors of products, and of values that are left unreduced.
use crate::{fixed, rejected};
use atmesh::prelude::*;

pub(crate) fn errors() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let ones = |shape: [usize; 2], spec: Spec| Array::ones(shape).put(&mesh, spec);

    // ANCHOR: ambiguous
    let (a, b) = (ones([8, 16], p![_, "X"]), ones([16, 4], p!["X", _]));
    rejected("both contracted dimensions are split", a.dot(&b).ty())?;
    fixed(a.dot_to(&b, p![]))?;
    fixed(a.dot_to(&b, p!["X", _]))?;
    // ANCHOR_END: ambiguous

    // ANCHOR: twice
    let (a, b) = (ones([8, 16], p!["X", _]), ones([16, 4], p![_, "X"]));
    rejected("one axis would split two dimensions", a.dot(&b).ty())?;
    fixed(a.dot(b.reshard(p![])))?;
    // ANCHOR_END: twice

    // ANCHOR: sizes
    let (a, b) = (Array::ones([16, 8]), Array::ones([16, 4]));
    rejected("contracted sizes that differ", a.dot(&b).ty())?;
    fixed(a.t().dot(&b))?;
    // ANCHOR_END: sizes

    // ANCHOR: batch
    let stack = |spec| Array::ones([8, 4, 4]).put(&mesh, spec);
    let (a, b) = (stack(p!["X"]), stack(p!["Y"]));
    rejected("stacks of matrices that are split differently", a.matmul(&b).ty())?;
    fixed(a.matmul(b.reshard(p!["X", _, _])))?;
    // ANCHOR_END: batch

    // ANCHOR: einsum
    let (a, b) = (ones([8, 16], p![_, "X"]), ones([16, 4], p!["X", _]));
    rejected("subscripts that cannot be read", einsum("ij,jk>ki", [&a, &b]).ty())?;
    rejected("subscripts that do not fit", einsum("ij,jk->kz", [&a, &b]).ty())?;
    rejected("a result with several possible shardings", einsum("ij,jk->ki", [&a, &b]).ty())?;
    fixed(atmesh::einsum_to("ij,jk->ki", [&a, &b], p![_, "X"]))?;
    // ANCHOR_END: einsum

    // ANCHOR: unreduced
    let parts = a.dot_to(&b, p![; U: "X"]);
    rejected("a sine of an unreduced value", parts.sin().ty())?;
    fixed(parts.reshard(p![_, _]).sin())?;
    let bias = ones([8, 4], p![]);
    rejected("an unreduced and a reduced operand", (&parts + &bias).ty())?;
    fixed(&parts + bias.reshard(p![_, _; U: "X"]))?;
    rejected("a literal times an unreduced value", (3.0 * &parts).ty())?;
    fixed(Array::from(3.0f32).put(&mesh, p![; R: "X"]) * &parts)?;
    // ANCHOR_END: unreduced

    // ANCHOR: partial
    rejected("a result unreduced over an axis not summed over", a.dot_to(&b, p![; U: "Y"]).ty())?;
    fixed(a.dot_to(&b, p![; U: "X"]))?;
    // ANCHOR_END: partial
    Ok(())
}
