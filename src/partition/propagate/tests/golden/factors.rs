//! Golden factors of each primitive, in comparison with Shardy's.
//!
//! They follow Shardy's table of operation classes, reshapes, gathers and scatters. Where they
//! differ from Shardy's, a comment gives the reason.
//!
//! The notation is `[i,k],[k,j]->[i,j] k 4 reduction`: the loops of each dimension, then the loops
//! that are not passed through, with their size and kind. The kinds are Shardy's `reduction`,
//! `permutation` and `need_replication`. `(ij)` is a dimension with two loops, major first. `'i` is
//! a dimension that is broadcast, `~i` one that is dynamically indexed and not propagated (Shardy:
//! blocked), and `+i` one with an offset or stride.
//!
//! Propagation uses the loops that dimensions share, and whether they are passed through. The other
//! kinds matter for explicit types only: communication follows from what an operation computes,
//! element by element.
//!
//! These classes of the table have no primitive here: loops, branches and calls are edges of the
//! dataflow (rows 36 to 38), a custom operation has the factors in its subscripts
//! (`tests/operations/custom.rs`), batch normalization is a composition, and there are no optimization
//! barriers.

use crate::ArrayType;
use crate::DType::{Bool, F32, I32};
use crate::core::Scalar;
use crate::ir::ops::indexing::{DynamicSlice, DynamicUpdateSlice, Gather, GatherDims, Scatter};
use crate::ir::ops::shape::{BroadcastInDim, Reshape};
use crate::ir::ops::windows::{Conv, Window};
use crate::ir::program::{Dim, DimMap, FactorKind, OutOfBounds, Prim, Reducer, TypedOperand};
use crate::ir::{
    ops::PRIMITIVES, ops::along_axis::Sort, ops::dot_general::DotGeneral, ops::elementwise::Select,
    ops::slicing::UpdateSlice,
};
use std::sync::Arc;

const LETTERS: [char; 10] = ['i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r'];

/// Prints a primitive's factors, with the sizes of all loops or only of those not passed through.
fn shown(prim: &Prim, types: &[ArrayType], sizes: bool) -> String {
    let operands: Vec<TypedOperand> = types.iter().cloned().map(TypedOperand::from).collect();
    let results = prim.shapes(&operands).unwrap();
    let f = prim.factors(types, &results);
    let dim = |d: &Dim| {
        let letters: String = d.loops.iter().map(|l| LETTERS[*l]).collect();
        let mark = match d.map {
            DimMap::Identity => "",
            DimMap::Broadcast => "'",
            DimMap::Dynamic => "~",
            DimMap::Affine { .. } => "+",
        };
        if d.loops.len() == 1 { format!("{mark}{letters}") } else { format!("{mark}({letters})") }
    };
    let tensor = |dims: &Vec<Dim>| format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(","));
    let tensors = |list: &[Vec<Dim>]| list.iter().map(tensor).collect::<Vec<_>>().join(",");
    let mut text = format!("{}->{}", tensors(&f.operands), tensors(&f.results));
    for (l, x) in f.loops.iter().enumerate() {
        let kind = match f.kind(l) {
            FactorKind::PassThrough => "",
            FactorKind::Reduction => " reduction",
            FactorKind::Permutation => " permutation",
            FactorKind::NeedReplication => " need_replication",
        };
        let no_propagation = if x.no_propagation { " no_propagation" } else { "" };
        if sizes || !kind.is_empty() || x.no_propagation {
            text += &format!(" {} {}{kind}{no_propagation}", LETTERS[l], x.size);
        }
    }
    text
}

/// The factors of the examples of all primitives that are not elementwise.
const LISTED: &[(&str, &str)] = &[
    // Shardy's rule does not name the reducer; this partitioner takes it from the primitive
    ("reduce_sum", "[i,j]->[i] j 4 reduction"),
    ("reduce_max", "[i,j]->[i] j 4 reduction"),
    ("reduce_min", "[i,j]->[i] j 4 reduction"),
    ("reduce_prod", "[i,j]->[i] j 4 reduction"),
    ("reduce_and", "[i,j]->[i] j 4 reduction"),
    ("reduce_or", "[i,j]->[i] j 4 reduction"),
    ("dot_general", "[i,k],[k,j]->[i,j] k 4 reduction"),
    ("ragged_dot", "[i,l],[i,k],[k,l,j]->[i,j] k 2 reduction l 4 reduction"),
    ("ragged_dot_per_group", "[l,j],[l,i],[l,k]->[i,j,k] l 8 reduction"),
    // this is also tested below, in Shardy's dimension order
    (
        "conv_general_dilated",
        "[i,+j,+k,o],[m,n,o,l]->[i,j,k,l] j 4 permutation k 4 permutation m 2 reduction n 3 reduction o 2 reduction",
    ),
    // a window loop has the size of the longer side, in Shardy that of the result: both sides are
    // split along it
    ("reduce_window_sum", "[i,+j]->[i,j] j 6 permutation"),
    ("reduce_window_max", "[i,+j]->[i,j] j 6 permutation"),
    ("reduce_window_min", "[i,+j]->[i,j] j 6 permutation"),
    ("reduce_window_prod", "[i,+j]->[i,j] j 6 permutation"),
    ("reduce_window_and", "[i,+j]->[i,j] j 6 permutation"),
    ("reduce_window_or", "[i,+j]->[i,j] j 6 permutation"),
    // select_and_scatter is `window_extreme` and `window_place`: the source is split with the
    // windows, where Shardy gathers it
    ("window_extreme", "[i,+j],[i,j]->[i,j] j 6 permutation"),
    ("window_pick", "[i,j],[i,+j]->[i,j] j 6 permutation"),
    ("window_place", "[i,+j],[i,+j]->[i,j] j 6 permutation"),
    // without operands there is nothing to propagate: loops of the result alone have no effect
    ("full", "->[i,j]"),
    ("iota", "->[i,j]"),
    // a key is a scalar here; Shardy's state is an array that must be replicated
    ("random_bits", "[]->[i,j]"),
    ("random_split", "[]->[i]"),
    ("random_fold_in", "[],[]->[]"),
    ("random_key_data", "[i]->[i,j]"),
    ("random_wrap", "[i,j]->[i] j 2 need_replication"),
    ("broadcast_in_dim", "[k,'i]->[i,j,k]"),
    ("reshape", "[i,j,m]->[(ik),l] j 3 need_replication m 4 need_replication"),
    ("transpose", "[i,j,k]->[k,i,j]"),
    ("squeeze", "[i,j,k]->[i,k] j 1 reduction"),
    ("expand_dims", "[j,l]->[i,j,k,l]"),
    ("rev", "[i,+j]->[i,j] j 3 permutation"),
    ("roll", "[i,+j]->[i,j] j 3 permutation"),
    // scans need replication, where Shardy has a permutation, so that explicit types reject a
    // sharded dimension; auto axes behave alike (row 33)
    ("cumsum", "[i,j]->[i,j] j 4 need_replication"),
    ("cumprod", "[i,j]->[i,j] j 4 need_replication"),
    ("cummax", "[i,j]->[i,j] j 4 need_replication"),
    ("cummin", "[i,j]->[i,j] j 4 need_replication"),
    ("cumlogsumexp", "[i,j]->[i,j] j 4 need_replication"),
    ("recurrence", "[i,j],[i,j]->[i,j] j 4 need_replication"),
    ("sort", "[i,j],[i,j]->[i,j],[i,j] j 4 need_replication"),
    ("argsort", "[i,j]->[i,j] j 4 need_replication"),
    ("fft", "[i,j]->[i,j] j 6 need_replication"),
    ("ifft", "[i,j]->[i,j] i 4 need_replication j 6 need_replication"),
    ("rfft", "[i,j]->[i,~j] j 4 need_replication"),
    ("irfft", "[i,j]->[i,~j] j 4 need_replication"),
    // the results have a separate loop along the row: nothing is passed, as where Shardy blocks
    // propagation
    ("top_k", "[i,j]->[i,k],[i,k] j 4 need_replication"),
    // factors share no loop with their matrix, so that only consumers split them: JAX has the same
    // rule for its LAPACK calls
    ("cholesky", "[i,j,k]->[i,l,m] j 2 need_replication k 2 need_replication"),
    // columns of the right-hand side are passed, as each is solved separately; Shardy replicates
    // them. Rows of the matrix and the result share a loop
    ("triangular_solve", "[i,j,k],[i,k,l]->[i,j,l] k 3 need_replication"),
    ("lu", "[i,j,k]->[i,l,m],[i,n],[i,o] j 2 need_replication k 3 need_replication"),
    ("qr", "[i,j,k]->[i,l,m],[i,n,o] j 3 need_replication k 2 need_replication"),
    // Shardy passes the matrices of eigh, but an eigenvector depends on all of its matrix
    ("eigh", "[i,j,k]->[i,l],[i,m,n] j 2 need_replication k 2 need_replication"),
    ("eigvalsh", "[i,j,k]->[i,l] j 2 need_replication k 2 need_replication"),
    ("svd", "[i,j,k]->[i,l,m],[i,n],[i,o,p] j 3 need_replication k 2 need_replication"),
    ("svdvals", "[i,j,k]->[i,l] j 3 need_replication k 2 need_replication"),
    (
        "solve",
        "[i,j,k],[i,l,m]->[i,n,o] j 3 need_replication k 3 need_replication l 3 need_replication m 2 need_replication",
    ),
    ("inv", "[i,j,k]->[i,l,m] j 2 need_replication k 2 need_replication"),
    ("det", "[i,j,k]->[i] j 2 need_replication k 2 need_replication"),
    ("slogdet", "[i,j,k]->[i],[i] j 2 need_replication k 2 need_replication"),
    ("cofactors", "[i,j,k]->[i,l,m] j 3 need_replication k 3 need_replication"),
    ("pinv", "[i,j,k]->[i,l,m] j 3 need_replication k 2 need_replication"),
    ("slice", "[+i,j]->[i,j] i 9 permutation"),
    // the size is that of the longer side, in Shardy that of the operand
    ("pad", "[i,j]->[+i,+j] i 8 permutation j 3 permutation"),
    // the loop is a permutation for all operands; Shardy replicates them except for slices of one
    // array (rows 21, 22 and 49)
    ("concatenate", "[i,+j],[i,+j],[i,+j]->[i,j] j 8 permutation"),
    ("update_slice", "[i,j],[+i,+j]->[i,j] i 4 permutation j 6 permutation"),
    ("dynamic_slice", "[i,j],[],[]->[~i,j] i 8 permutation"),
    ("dynamic_update_slice", "[i,j],[i,~j],[]->[i,j] j 4 permutation"),
    ("gather", "[k,j],[i,l]->[i,j] k 8 reduction l 1 need_replication"),
    ("scatter", "[i,j],[k,j],[k,l]->[i,j] k 3 need_replication l 1 need_replication"),
    ("scatter_add", "[i,j],[k,j],[k,l]->[i,j] k 3 reduction l 1 need_replication"),
    // the loop is a reduction only if the reducer is a sum: types can say unreduced for sums only;
    // Shardy has reductions here too, by a rule that does not name the reducer
    ("scatter_mul", "[i,j],[k,j],[k,l]->[i,j] k 3 need_replication l 1 need_replication"),
    ("scatter_max", "[i,j],[k,j],[k,l]->[i,j] k 3 need_replication l 1 need_replication"),
    ("scatter_min", "[i,j],[k,j],[k,l]->[i,j] k 3 need_replication l 1 need_replication"),
    ("reshard", "[i,j]->[i,j]"),
    ("constrain", "[i,j]->[i,j]"),
    ("copy", "[i]->[i]"),
    ("psum", "[i,j]->[i,j]"),
    ("pmax", "[i,j]->[i,j]"),
    ("pmin", "[i,j]->[i,j]"),
    ("all_gather", "[i,j]->[i,k] j 4 need_replication"),
    ("psum_scatter", "[i,j]->[i,k] j 4 need_replication"),
    ("own_part", "[i,j]->[j] i 2 need_replication"),
    ("all_to_all", "[i,j]->[k,l] i 2 need_replication j 4 need_replication"),
    ("ppermute", "[i,j]->[i,j]"),
    ("pbroadcast", "[i,j]->[i,j]"),
    ("axis_index", "->[]"),
    ("pvary", "[i,j]->[i,j]"),
    ("pcast", "[i,j]->[i,j]"),
];

#[test]
fn of_each_primitive() {
    for entry in PRIMITIVES {
        let (prim, types) = (entry.example)();
        let is = shown(&prim, &types, false);
        let expected = if entry.family == "elementwise" {
            let operand = |t: &ArrayType| if t.rank() == 0 { "[]" } else { "[i,j]" };
            format!("{}->[i,j]", types.iter().map(operand).collect::<Vec<_>>().join(","))
        } else {
            let row = LISTED.iter().find(|row| row.0 == entry.name);
            row.unwrap_or_else(|| panic!("a row for {}: \"{is}\"", entry.name)).1.to_string()
        };
        assert_eq!(is, expected, "{}", entry.name);
    }
}

fn is(prim: impl crate::ir::program::Primitive + 'static, types: &[ArrayType], expected: &str) {
    let prim: Prim = Arc::new(prim);
    assert_eq!(shown(&prim, types, false), expected, "{} {}", prim.name(), prim.params());
}

/// Tests the classes of which a primitive's example does not cover all forms.
#[test]
fn of_classes_in_their_other_forms() {
    let full = F32.array_type([8, 4]);
    is(Select, &[Bool.array_type([]), full.clone(), full.clone()], "[],[i,j],[i,j]->[i,j]");
    let broadcast = |dims: &[usize]| BroadcastInDim {
        shape: [16, 8].into(),
        broadcast_dimensions: dims.to_vec(),
        out_sharding: None,
    };
    is(broadcast(&[1]), &[F32.array_type([8])], "[j]->[i,j]");
    is(broadcast(&[0, 1]), &[F32.array_type([1, 8])], "['i,j]->[i,j]");
    let batched =
        DotGeneral { contracting: [vec![2], vec![1]], batch: [vec![0], vec![0]], ..DotGeneral::default() };
    is(
        batched,
        &[F32.array_type([2, 8, 4]), F32.array_type([2, 4, 3])],
        "[i,j,l],[i,l,k]->[i,j,k] l 4 reduction",
    );
    // this is not blocked, unlike in Shardy: see row 32
    is(Sort { axis: 0, keys: 1 }, &[F32.array_type([8])], "[i]->[i] i 8 need_replication");
    let slice = DynamicSlice { sizes: [3, 4].into(), dims: vec![0], batch_dims: vec![], out_sharding: None };
    is(slice, &[full.clone(), I32.array_type([])], "[i,j],[]->[~i,j] i 8 permutation");
    let update = DynamicUpdateSlice { dims: vec![0], batch_dims: vec![], reducer: None, out_sharding: None };
    is(
        update,
        &[full.clone(), F32.array_type([2, 4]), I32.array_type([])],
        "[i,j],[~i,j],[]->[i,j] i 8 permutation",
    );
    // if the indices are known while tracing, the update has the sharding of the operand's rows
    let update = UpdateSlice { start: vec![2, 0] };
    is(update, &[full, F32.array_type([2, 4])], "[i,j],[+i,j]->[i,j] i 8 permutation");
    let around = Window { padding_low: 1, padding_high: 1, ..Window::default() };
    let images = super::images();
    // window taps are reduction loops that no other operand shares, so they are as private as in
    // Shardy
    is(
        images.clone(),
        &[F32.array_type([8, 4, 16, 16]), F32.array_type([6, 4, 3, 3])],
        "[i,o,+k,+l],[j,o,m,n]->[i,j,k,l] k 16 permutation l 16 permutation m 3 reduction n 3 reduction o 4 reduction",
    );
    // groups are a separate dimension here; Shardy's features are one dimension of two loops
    let groups = Conv {
        batch: [vec![1], vec![0]],
        contracting: [vec![2], vec![2]],
        spatial: [vec![3], vec![3]],
        windows: vec![around],
        output_order: vec![1, 0, 3, 2],
        ..images
    };
    is(
        groups,
        &[F32.array_type([8, 5, 4, 16]), F32.array_type([5, 6, 4, 3])],
        "[i,j,n,+l],[j,k,n,m]->[i,j,k,l] l 16 permutation m 3 reduction n 4 reduction",
    );
}

#[test]
fn of_reshapes() {
    for (from, to, expected) in [
        (&[2, 4, 32][..], &[8, 32][..], "[i,j,k]->[(ij),k] i 2 j 4 k 32"),
        (&[8, 4], &[2, 16], "[(ij),k]->[i,(jk)] i 2 j 4 k 4"),
        // Shardy also shares a minor loop of 2, after loops of 2 and 3 that this reshape does not
        // pass. A loop that follows one not fully split stays unsplit, so it would matter only if
        // something else had split both of these
        (&[6, 4], &[4, 6], "[(ij),m]->[(ik),l] i 2 j 3 need_replication k 2 l 6 m 4 need_replication"),
        (&[12], &[3, 4], "[(ij)]->[i,j] i 3 j 4"),
        (
            &[5, 3, 7],
            &[3, 35],
            "[i,l,m]->[j,k] i 5 need_replication j 3 k 35 l 3 need_replication m 7 need_replication",
        ),
        (&[8, 4], &[8, 1, 4], "[i,j]->[i,k,j] i 8 j 4 k 1"),
    ] {
        let prim: Prim = Arc::new(Reshape { new_sizes: to.into(), out_sharding: None });
        assert_eq!(shown(&prim, &[F32.array_type(from)], true), expected, "{from:?} {to:?}");
    }
}

#[test]
fn of_gathers() {
    let rows = || GatherDims::rows(2, 0, 1, OutOfBounds::Clip);
    let gather = |at, sizes: &[usize], table: &[usize], numbers: &[usize], expected: &str| {
        let prim =
            Gather { dims: at, slice_sizes: sizes.into(), fill: Scalar::Float(0.0), out_sharding: None };
        is(prim, &[F32.array_type(table), I32.array_type(numbers)], expected);
    };
    // one of many rows is read; full columns are passed; indices are passed to the result; index
    // vectors are replicated
    gather(rows(), &[1, 4], &[8, 4], &[3, 1], "[k,j],[i,l]->[i,j] k 8 reduction l 1 need_replication");
    // a dimension with partial windows is not passed: Shardy reduces a window of size 1 together
    // with the indexed dimension, and blocks a longer one
    gather(
        rows(),
        &[1, 1],
        &[8, 4],
        &[3, 1],
        "[k,j],[i,l]->[i,~j] j 4 permutation k 8 reduction l 1 need_replication",
    );
    gather(
        rows(),
        &[1, 2],
        &[8, 4],
        &[3, 1],
        "[k,j],[i,l]->[i,~j] j 4 permutation k 8 reduction l 1 need_replication",
    );
    // a single row is reduced too, where Shardy replicates it; a dimension of size 1 is not split
    // in any case
    gather(rows(), &[1, 4], &[1, 4], &[3, 1], "[k,j],[i,l]->[i,j] k 1 reduction l 1 need_replication");
    let along = GatherDims {
        start_index_map: vec![1],
        collapsed_dims: vec![1],
        batching_dims: vec![(0, 0)],
        ..GatherDims::default()
    };
    gather(along, &[1, 1], &[8, 4], &[8, 3, 1], "[i,k],[i,j,l]->[i,j] k 4 reduction l 1 need_replication");
}

#[test]
fn of_scatters() {
    let rows = || GatherDims::rows(2, 0, 1, OutOfBounds::Drop);
    let scatter = |at, combine, updates: &[usize], numbers: &[usize], expected: &str| {
        is(
            Scatter { dims: at, reducer: combine, out_sharding: None },
            &[F32.array_type([8, 4]), F32.array_type(updates), I32.array_type(numbers)],
            expected,
        );
    };
    let add = Some(Reducer::Add);
    // rows of the operand are passed to the result only; columns are passed; updates are summed
    // along their indices; index vectors are replicated
    scatter(rows(), add, &[3, 4], &[3, 1], "[i,j],[k,j],[k,l]->[i,j] k 3 reduction l 1 need_replication");
    // overwriting: the last update wins, so that all are needed
    scatter(
        rows(),
        None,
        &[3, 4],
        &[3, 1],
        "[i,j],[k,j],[k,l]->[i,j] k 3 need_replication l 1 need_replication",
    );
    // partial columns are replicated in the updates, and passed in the operand, where Shardy
    // replicates them
    scatter(
        rows(),
        add,
        &[3, 2],
        &[3, 1],
        "[i,j],[l,k],[l,m]->[i,j] k 2 need_replication l 3 reduction m 1 need_replication",
    );
    let along = GatherDims {
        start_index_map: vec![1],
        collapsed_dims: vec![1],
        batching_dims: vec![(0, 0)],
        ..GatherDims::default()
    };
    scatter(along, add, &[8, 3], &[8, 3, 1], "[i,j],[i,k],[i,k,l]->[i,j] k 3 reduction l 1 need_replication");
}
