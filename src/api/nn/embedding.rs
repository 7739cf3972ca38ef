//! Lookups of rows in tables.

use super::call::{LayerCall, dims_spec};
use crate::api::array::Array;
use crate::core::Axes;

/// Returns the rows of a table at integer ids: the first layer of a language model.
///
/// The result has the dimensions of `ids` and then those of a row, sharded as the ids and as the
/// rows are. On explicit axes:
///
/// * If the table is unsharded, each device looks up its own ids, and nothing moves. The gradient
///   of the table is summed by one all-reduce.
/// * If the table is `{R}` over the axes of the ids, its gradient is `{U}`: the sum can follow
///   later, once for many batches.
/// * If the rows are sharded (a table `float32[vocab@model,d]`), each device looks up the ids that
///   it holds, and an all-reduce combines the results.
///
/// As in [`take`](Array::take), negative ids count from the end, and an id that is out of range
/// gives a row of NaN (the minimum of a signed integer type, …) and no gradient.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let mesh = Mesh::new([("data", 2)])?;
/// let table = Array::arange(0.0..8.0f32).reshape([4, 2]).put(&mesh, p![]);
/// let ids = Array::from([[3, 0], [1, 3]]).put(&mesh, p!["data"]);
/// let rows = nn::embed(&table, &ids);
/// assert_eq!(type_of(&rows), "float32[2@data,2,2]");
/// assert_eq!(rows.to_vec::<f32>()?, [6.0, 7.0, 0.0, 1.0, 2.0, 3.0, 6.0, 7.0]);
/// // one all-reduce sums the gradient, or none if the table is reduced
/// let g = grad(table.reshard(p![; R: "data"]), |t| nn::embed(&t, &ids).sum(..));
/// assert_eq!(type_of(&g), "float32[4,2]{U:data}");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("Embed", "Embedding", "lookup"))]
#[track_caller]
pub fn embed(table: &Array, ids: &Array) -> Array {
    let call = ok_or_return!(LayerCall::new("embed", &[("table", table), ("ids", ids)]));
    ok_or_return!(call.check_integers(1));
    let (t, i) = (call.ty(0), call.ty(1));
    if t.rank() == 0 {
        return call.reject(
            fault!(Shape, "`table` has no dimensions, and must have one row for each id")
                .help("give it rows: `table.reshape([vocab, features])`"),
        );
    }
    if call.explicit_mesh().is_none() {
        return table.take(ids, 0);
    }
    let used: Axes = (0..i.rank()).flat_map(|d| call.axes(1, d).iter().collect::<Vec<_>>()).collect();
    ok_or_return!(call.check_free(0, 1..t.rank(), &used, "ids"));
    let dims = (0..i.rank()).map(|d| call.axes(1, d)).chain((1..t.rank()).map(|d| call.axes(0, d)));
    table.take_to(ids, 0, dims_spec(dims))
}
