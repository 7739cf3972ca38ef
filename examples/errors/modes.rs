//! Errors of manual and auto mode.
use crate::{fixed, rejected};
use atmesh::prelude::*;

pub(crate) fn errors() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;

    // ANCHOR: varying
    let sums = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..));
    rejected("a result that varies, returned as replicated", sums.call(Array::ones([8])))?;
    let sums = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..).psum("X"));
    fixed(sums.call(Array::ones([8]))?)?;
    // ANCHOR_END: varying

    // ANCHOR: outside
    rejected("a collective outside of shard_map", Array::ones([8]).psum("X").ty())?;
    let sums = shard_map(&mesh, p!["X"], p![], |x: &Array| x.psum("Q"));
    rejected("a collective over an axis that is not there", sums.call(Array::ones([8])))?;
    // ANCHOR_END: outside

    // ANCHOR: permutation
    let moves = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", [(0, 1), (1, 1)]));
    rejected("two devices that send to one", moves.call(Array::ones([8])))?;
    let moves = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", [(0, 1), (1, 0)]));
    fixed(moves.call(Array::ones([8]))?)?;
    // ANCHOR_END: permutation

    // ANCHOR: scatter
    let parts = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.psum_scatter("X", CollectiveDim::tiled(0)));
    rejected("a block of a size that is not divisible", parts.call(Array::ones([6])))?;
    fixed(parts.call(Array::ones([8]))?)?;
    // ANCHOR_END: scatter

    // ANCHOR: boundary
    let x = Array::ones([8]).put(&mesh, p!["Y"]);
    let same = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x * 2.0);
    rejected("an argument with another sharding", same.call(&x))?;
    fixed(same.call(x.reshard(p!["X"]))?)?;
    let two = shard_map(&mesh, (p!["X"],), p!["X"], |x: &Array, y: &Array| x + y);
    rejected("fewer specs than arguments", two.call((&x, &x)))?;
    // ANCHOR_END: boundary

    // ANCHOR: manual
    let moves = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.reshard(p!["X"]));
    rejected("a manual axis in a reshard", moves.call(Array::ones([8])))?;
    let y = auto_axes(&x, p!["X"], |x| x.reshard(p!["X"]) * 2.0);
    rejected("an auto axis in a reshard", y.ty())?;
    fixed(auto_axes(&x, p!["X"], |x| x.constrain(p!["X"]) * 2.0))?;
    // ANCHOR_END: manual

    // ANCHOR: branches
    let odd =
        shard_map(&mesh, p!["X"], p!["X"], |x: &Array| cond(x.sum(..).gt(1.0), || x.psum("X"), || x.clone()));
    rejected("a collective that not all devices may reach", odd.call(Array::ones([8])))?;
    let even = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        let sum = x.psum("X").pvary("X");
        cond(x.sum(..).gt(1.0), || sum.clone(), || x.clone())
    });
    fixed(even.call(Array::ones([8]))?)?;
    // ANCHOR_END: branches
    Ok(())
}
