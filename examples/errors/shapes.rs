//! Errors of shapes: reshape, concatenation, dimension numbers and slices.
use crate::{fixed, rejected};
use atmesh::prelude::*;

pub(crate) fn errors() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let ones = |shape: [usize; 2], spec: Spec| Array::ones(shape).put(&mesh, spec);

    // ANCHOR: reshape
    let x = ones([3, 8], p![_, "X"]);
    rejected("a reshape that would move elements", x.reshape([24]).ty())?;
    fixed(x.reshape_to([24], p!["X"]))?;
    let x = Array::ones([12]).put(&mesh, p!["Y"]);
    rejected("parts that the axis does not divide", x.reshape([3, 4]).ty())?;
    fixed(x.reshape_to([3, 4], p![_, "Y"]))?;
    // ANCHOR_END: reshape

    // ANCHOR: concat
    let (a, b) = (ones([8, 3], p!["X", _]), ones([8, 3], p![]));
    rejected("joined arrays that are split differently", concat([&a, &b], 1).ty())?;
    fixed(concat([&a, &b.reshard(p!["X", _])], 1))?;
    rejected("joined arrays whose sizes differ", concat([&ones([8, 3], p![]), &ones([8, 4], p![])], 0).ty())?;
    fixed(concat([&ones([8, 3], p![]), &ones([8, 4], p![])], 1))?;
    // ANCHOR_END: concat

    // ANCHOR: stack
    let (a, b) = (Array::ones([8]).put(&mesh, p!["X"]), Array::ones([8]).put(&mesh, p!["Y"]));
    rejected("stacked arrays that are split differently", stack([&a, &b], 0).ty())?;
    fixed(stack([&a, &b.reshard(p!["X"])], 0))?;
    // ANCHOR_END: stack

    // ANCHOR: dims
    let x = Array::ones([4, 3]);
    rejected("a dimension that is not there", x.sum(2).ty())?;
    rejected("a dimension twice", x.sum([0, -2]).ty())?;
    rejected("a permutation that leaves a dimension out", x.transpose([1]).ty())?;
    fixed(x.transpose([1, 0]))?;
    rejected("a dropped dimension that is not 1", x.squeeze(0).ty())?;
    rejected("the maximum of no elements", Array::ones([0, 3]).argmax(0).ty())?;
    // ANCHOR_END: dims

    // ANCHOR: broadcast
    rejected("a size that does not broadcast", x.broadcast_to([5, 4, 2]).ty())?;
    rejected("a vector that is meant to run down the rows", (&x + Array::ones([4])).ty())?;
    fixed(&x + Array::ones([4]).reshape([4, 1]))?;
    rejected("dimensions that go nowhere", x.broadcast_in_dim([4, 3], [0, 2]).ty())?;
    fixed(x.broadcast_in_dim([4, 5, 3], [0, 2]))?;
    // ANCHOR_END: broadcast

    // ANCHOR: slice
    let x = Array::ones([8]).put(&mesh, p!["Y"]);
    rejected("an index out of range", x.slice(ix![8]).ty())?;
    rejected("a part that does not divide", x.slice(ix![..3]).ty())?;
    fixed(x.at(ix![..3]).out_sharding(p![_]).get())?;
    // ANCHOR_END: slice

    // ANCHOR: update
    rejected("a value that does not fit", x.at(ix![..4]).set(Array::ones([3])).ty())?;
    let rows = ones([8, 4], p!["X", _]);
    rejected("a value that is split differently", rows.at(ix![.., 1]).set(&x).ty())?;
    fixed(rows.at(ix![.., 1]).set(x.reshard(p!["X"])))?;
    // ANCHOR_END: update
    Ok(())
}
