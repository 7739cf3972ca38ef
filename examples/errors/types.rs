//! Errors of element types, specs and meshes.
use crate::{fixed, rejected};
use atmesh::prelude::*;

pub(crate) fn errors() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let ones = |shape: [usize; 2], spec: Spec| Array::ones(shape).put(&mesh, spec);

    // ANCHOR: conflict
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p!["Y", _]));
    rejected("two operands are split differently", (&a + &b).ty())?;
    fixed(&a + b.reshard(p!["X", _]))?;
    // ANCHOR_END: conflict

    // ANCHOR: doubled
    let (rows, row) = (ones([8, 8], p!["X", _]), Array::ones([8]).put(&mesh, p!["X"]));
    rejected("broadcasting would split two dimensions over one axis", (&rows + &row).ty())?;
    fixed(&rows + row.reshard(p![]))?;
    // ANCHOR_END: doubled

    // ANCHOR: divide
    rejected("a dimension that does not divide", Array::ones([6]).put(&mesh, p!["Y"]).ty())?;
    fixed(Array::ones([8]).put(&mesh, p!["Y"]))?;
    // ANCHOR_END: divide

    // ANCHOR: unknown
    rejected("an axis that the mesh does not have", Array::ones([8]).put(&mesh, p!["Z"]).ty())?;
    rejected("an axis twice", Array::ones([8, 8]).put(&mesh, p!["X", "X"]).ty())?;
    rejected("more entries than dimensions", Array::ones([8]).put(&mesh, p!["X", "Y"]).ty())?;
    // ANCHOR_END: unknown

    // ANCHOR: auto
    let mixed = mesh.with_auto("Y")?;
    let x = Array::ones([8, 8]).put(&mixed, p!["X", _]);
    rejected("an auto axis where explicit ones are named", x.reshard(p!["X", "Y"]).ty())?;
    fixed(x.constrain(p![_, "Y"]))?;
    // ANCHOR_END: auto

    // ANCHOR: meshes
    let other = Mesh::new([("X", 4)])?;
    let there = Array::ones([8, 8]).put(&other, p!["X", _]);
    rejected("two meshes in one operation", (ones([8, 8], p!["X", _]) + &there).ty())?;
    fixed(ones([8, 8], p!["X", _]) + there.put(&mesh, p!["X", _]))?;
    rejected("more devices than are given", Mesh::of_devices(&atmesh::devices(6)?, [("X", 2), ("Y", 4)]))?;
    // ANCHOR_END: meshes

    // ANCHOR: dtypes
    rejected("two element types", (Array::ones([4]) + Array::arange(0..4)).ty())?;
    fixed(Array::ones([4]) + Array::arange(0..4).astype(F32))?;
    rejected("a number that the element type does not hold", (Array::arange(0..4) + 1.5).ty())?;
    fixed(Array::arange(0..4).astype(F32) + 1.5)?;
    // ANCHOR_END: dtypes

    // ANCHOR: kinds
    rejected("a shift of floats", Array::ones([4]).shift_left(1).ty())?;
    fixed(Array::ones([4]).astype(I32).shift_left(1))?;
    rejected("bits of another width", Array::ones([4]).bitcast(F64).ty())?;
    fixed(Array::ones([2, 2]).bitcast(F64))?;
    rejected("a key as a number", Key::new(1).array().astype(F32).ty())?;
    fixed(Key::new(1).data().astype(F32))?;
    // ANCHOR_END: kinds

    // ANCHOR: select
    let x = Array::ones([8]);
    rejected("a choice between shapes that differ", x.gt(0.0).select(&x, Array::ones([3])).ty())?;
    rejected("a choice by numbers", x.select(&x, 0.0).ty())?;
    fixed(x.ne(0).select(&x, 0.0))?;
    // ANCHOR_END: select
    Ok(())
}
