//! The factors of each primitive, written out: the reference's table of classes of operations, its reshapes, gathers and scatters. Where
//! ours are others the reason is beside them.
//!
//! `[i,k],[k,j]->[i,j] k 4 sum`: the loops of each dimension, then what the loops are that do not pass: summed (the reference's reduction), moved (its
//! permutation), whole (its need for replication). `(ij)` is one dimension of two loops, major first; `'i` one that is read again at each step; `~i`
//! one at a place known at run time, which propagation does not read (what the reference calls blocked); `+i` one whose steps are elsewhere or apart.
//!
//! Propagation reads which dimensions share a loop, and whether it passes. Whether one that does not is summed, moved or whole is read by explicit
//! types only: what is communicated follows from what the operation computes, element by element.
//!
//! Of that table's classes these have no primitive: loops, branches and calls pass values on by edges (rows 36 to 38), a user's operation has what its
//! letters say (`tests/custom.rs`), batch normalization is made of others, and there are no optimization barriers.

use crate::ArrayType;
use crate::DType::{Bool, F32, I32};
use crate::ops::PRIMITIVES;
use crate::ops::elementwise::Select;
use crate::ops::indexing::{DynamicSlice, DynamicUpdateSlice, Gather, Places, Scatter};
use crate::ops::lines::Sort;
use crate::ops::product::DotGeneral;
use crate::ops::shape::{BroadcastInDim, Reshape};
use crate::ops::slicing::UpdateSlice;
use crate::ops::windows::{Conv, Window};
use crate::program::factors::{At, Dim, Role};
use crate::program::sentence::{Beyond, Combine};
use crate::program::{Operand, Prim};
use crate::types::Scalar;
use std::sync::Arc;

const LETTERS: [char; 10] = ['i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r'];

/// A primitive's factors as text; with the sizes of all loops, or of those that do not pass.
fn shown(prim: &Prim, types: &[ArrayType], sizes: bool) -> String {
    let operands: Vec<Operand> = types.iter().cloned().map(Operand::from).collect();
    let results = prim.shapes(&operands).unwrap();
    let f = prim.factors(types, &results);
    let dim = |d: &Dim| {
        let letters: String = d.loops.iter().map(|l| LETTERS[*l]).collect();
        let mark = match d.at {
            At::Same => "",
            At::Stretched => "'",
            At::Window => "~",
            At::Affine { .. } => "+",
        };
        if d.loops.len() == 1 { format!("{mark}{letters}") } else { format!("{mark}({letters})") }
    };
    let tensor = |dims: &Vec<Dim>| format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(","));
    let tensors = |list: &[Vec<Dim>]| list.iter().map(tensor).collect::<Vec<_>>().join(",");
    let mut text = format!("{}->{}", tensors(&f.operands), tensors(&f.results));
    for (l, x) in f.loops.iter().enumerate() {
        let role = match f.role(l) {
            Role::Pass => "",
            Role::Sum => " sum",
            Role::Moved => " moved",
            Role::Whole => " whole",
        };
        let quiet = if x.quiet { " quiet" } else { "" };
        if sizes || !role.is_empty() || x.quiet {
            text += &format!(" {} {}{role}{quiet}", LETTERS[l], x.size);
        }
    }
    text
}

/// The factors of the list's examples, but for elementwise primitives.
const LISTED: &[(&str, &str)] = &[
    // the reference's rule does not say what reduces; our partitioner reads it of the primitive
    ("reduce_sum", "[i,j]->[i] j 4 sum"),
    ("reduce_max", "[i,j]->[i] j 4 sum"),
    ("reduce_min", "[i,j]->[i] j 4 sum"),
    ("reduce_prod", "[i,j]->[i] j 4 sum"),
    ("reduce_and", "[i,j]->[i] j 4 sum"),
    ("reduce_or", "[i,j]->[i] j 4 sum"),
    ("dot_general", "[i,k],[k,j]->[i,j] k 4 sum"),
    // below, in the reference's layout
    ("conv_general_dilated", "[i,+j,+k,o],[m,n,o,l]->[i,j,k,l] j 4 moved k 4 moved m 2 sum n 3 sum o 2 sum"),
    // a loop of windows has the size of the longer side, where the reference's has the result's: both sides are split by it
    ("reduce_window_sum", "[i,+j]->[i,j] j 6 moved"),
    ("reduce_window_max", "[i,+j]->[i,j] j 6 moved"),
    ("reduce_window_min", "[i,+j]->[i,j] j 6 moved"),
    ("reduce_window_prod", "[i,+j]->[i,j] j 6 moved"),
    ("reduce_window_and", "[i,+j]->[i,j] j 6 moved"),
    ("reduce_window_or", "[i,+j]->[i,j] j 6 moved"),
    // select_and_scatter is `window_extreme` and `window_place`: the source runs with the windows, where the reference gathers it
    ("window_extreme", "[i,+j],[i,j]->[i,j] j 6 moved"),
    ("window_pick", "[i,j],[i,+j]->[i,j] j 6 moved"),
    ("window_place", "[i,+j],[i,+j]->[i,j] j 6 moved"),
    // without operands there is nothing to pass: loops of the result alone are as good as no rule
    ("full", "->[i,j]"),
    ("iota", "->[i,j]"),
    // a key is a scalar here, where the reference's state is an array that is needed whole
    ("random_bits", "[]->[i,j]"),
    ("random_split", "[]->[i]"),
    ("random_fold_in", "[],[]->[]"),
    ("random_key_data", "[i]->[i,j]"),
    ("random_wrap", "[i,j]->[i] j 2 whole"),
    ("broadcast_in_dim", "[k,'i]->[i,j,k]"),
    ("reshape", "[i,j,m]->[(ik),l] j 3 whole m 4 whole"),
    ("transpose", "[i,j,k]->[k,i,j]"),
    ("squeeze", "[i,j,k]->[i,k] j 1 sum"),
    ("expand_dims", "[j,l]->[i,j,k,l]"),
    ("rev", "[i,+j]->[i,j] j 3 moved"),
    // whole, where the reference's is moved: explicit types refuse them along a sharded dimension. Over auto axes both pass alike (row 33)
    ("cumsum", "[i,j]->[i,j] j 4 whole"),
    ("cumprod", "[i,j]->[i,j] j 4 whole"),
    ("cummax", "[i,j]->[i,j] j 4 whole"),
    ("cummin", "[i,j]->[i,j] j 4 whole"),
    ("cumlogsumexp", "[i,j]->[i,j] j 4 whole"),
    ("recurrence", "[i,j],[i,j]->[i,j] j 4 whole"),
    ("sort", "[i,j],[i,j]->[i,j],[i,j] j 4 whole"),
    ("argsort", "[i,j]->[i,j] j 4 whole"),
    ("fft", "[i,j]->[i,j] j 6 whole"),
    ("ifft", "[i,j]->[i,j] i 4 whole j 6 whole"),
    ("rfft", "[i,j]->[i,~j] j 4 whole"),
    ("irfft", "[i,j]->[i,~j] j 4 whole"),
    // a loop of its own for the best: nothing passes, as where the reference blocks
    ("top_k", "[i,j]->[i,k],[i,k] j 4 whole"),
    // matrices share nothing with their factors, so that these are split by who reads them only: as the rule that JAX gives its calls of LAPACK
    ("cholesky", "[i,j,k]->[i,l,m] j 2 whole k 2 whole"),
    // columns on the right pass, each is solved by itself; the reference needs them whole. Rows of the matrix and of the result share a loop
    ("triangular_solve", "[i,j,k],[i,k,l]->[i,j,l] k 3 whole"),
    ("lu", "[i,j,k]->[i,l,m],[i,n],[i,o] j 2 whole k 3 whole"),
    ("qr", "[i,j,k]->[i,l,m],[i,n,o] j 3 whole k 2 whole"),
    // the reference's table has the matrices of eigh pass, but an eigenvector reads all of its matrix
    ("eigh", "[i,j,k]->[i,l],[i,m,n] j 2 whole k 2 whole"),
    ("eigvalsh", "[i,j,k]->[i,l] j 2 whole k 2 whole"),
    ("svd", "[i,j,k]->[i,l,m],[i,n],[i,o,p] j 3 whole k 2 whole"),
    ("svdvals", "[i,j,k]->[i,l] j 3 whole k 2 whole"),
    ("solve", "[i,j,k],[i,l,m]->[i,n,o] j 3 whole k 3 whole l 3 whole m 2 whole"),
    ("inv", "[i,j,k]->[i,l,m] j 2 whole k 2 whole"),
    ("det", "[i,j,k]->[i] j 2 whole k 2 whole"),
    ("slogdet", "[i,j,k]->[i],[i] j 2 whole k 2 whole"),
    ("cofactors", "[i,j,k]->[i,l,m] j 3 whole k 3 whole"),
    ("pinv", "[i,j,k]->[i,l,m] j 3 whole k 2 whole"),
    ("slice", "[+i,j]->[i,j] i 9 moved"),
    // the size of the longer side, where the reference's is the operand's
    ("pad", "[i,j]->[+i,+j] i 8 moved j 3 moved"),
    // moved for all operands, where the reference needs them whole but for slices of one array (rows 21, 22 and 49)
    ("concatenate", "[i,+j],[i,+j],[i,+j]->[i,j] j 8 moved"),
    ("update_slice", "[i,j],[+i,+j]->[i,j] i 4 moved j 6 moved"),
    ("dynamic_slice", "[i,j],[],[]->[~i,j] i 8 moved"),
    ("dynamic_update_slice", "[i,j],[i,~j],[]->[i,j] j 4 moved"),
    ("gather", "[k,j],[i,l]->[i,j] k 8 sum l 1 whole"),
    ("scatter", "[i,j],[k,j],[k,l]->[i,j] k 3 whole l 1 whole"),
    ("scatter_add", "[i,j],[k,j],[k,l]->[i,j] k 3 sum l 1 whole"),
    // summed for sums only: a type says unreduced of sums, and has no word for partial results of other kinds; the reference sums here too, by a rule
    // that does not say of which kind they are
    ("scatter_mul", "[i,j],[k,j],[k,l]->[i,j] k 3 whole l 1 whole"),
    ("scatter_max", "[i,j],[k,j],[k,l]->[i,j] k 3 whole l 1 whole"),
    ("scatter_min", "[i,j],[k,j],[k,l]->[i,j] k 3 whole l 1 whole"),
    ("reshard", "[i,j]->[i,j]"),
    ("constrain", "[i,j]->[i,j]"),
    ("copy", "[i]->[i]"),
    ("psum", "[i,j]->[i,j]"),
    ("pmax", "[i,j]->[i,j]"),
    ("pmin", "[i,j]->[i,j]"),
    ("all_gather", "[i,j]->[i,k] j 4 whole"),
    ("psum_scatter", "[i,j]->[i,k] j 4 whole"),
    ("own_part", "[i,j]->[j] i 2 whole"),
    ("all_to_all", "[i,j]->[k,l] i 2 whole j 4 whole"),
    ("ppermute", "[i,j]->[i,j]"),
    ("axis_index", "->[]"),
    ("pvary", "[i,j]->[i,j]"),
    ("pcast", "[i,j]->[i,j]"),
];

#[test]
fn of_each_primitive() {
    for entry in PRIMITIVES {
        let (prim, types) = (entry.example)();
        let is = shown(&prim, &types, false);
        let want = if entry.family == "elementwise" {
            let operand = |t: &ArrayType| if t.rank() == 0 { "[]" } else { "[i,j]" };
            format!("{}->[i,j]", types.iter().map(operand).collect::<Vec<_>>().join(","))
        } else {
            let row = LISTED.iter().find(|row| row.0 == entry.name);
            row.unwrap_or_else(|| panic!("a row for {}: \"{is}\"", entry.name)).1.to_string()
        };
        assert_eq!(is, want, "{}", entry.name);
    }
}

fn is(prim: impl crate::program::Primitive + 'static, types: &[ArrayType], want: &str) {
    let prim: Prim = Arc::new(prim);
    assert_eq!(shown(&prim, types, false), want, "{} {}", prim.name(), prim.params());
}

/// Rows of which the list's example is not all.
#[test]
fn of_classes_in_their_other_forms() {
    let whole = F32.of([8, 4]);
    is(Select, &[Bool.of([]), whole.clone(), whole.clone()], "[],[i,j],[i,j]->[i,j]");
    let broadcast = |dims: &[usize]| BroadcastInDim {
        shape: [16, 8].into(),
        broadcast_dimensions: dims.to_vec(),
        out: None,
    };
    is(broadcast(&[1]), &[F32.of([8])], "[j]->[i,j]");
    is(broadcast(&[0, 1]), &[F32.of([1, 8])], "['i,j]->[i,j]");
    let batched =
        DotGeneral { contracting: [vec![2], vec![1]], batch: [vec![0], vec![0]], ..DotGeneral::default() };
    is(batched, &[F32.of([2, 8, 4]), F32.of([2, 4, 3])], "[i,j,l],[i,l,k]->[i,j,k] l 4 sum");
    // not blocked, where the reference's is: see row 32
    is(Sort { axis: 0, keys: 1 }, &[F32.of([8])], "[i]->[i] i 8 whole");
    let slice = DynamicSlice { sizes: [3, 4].into(), dims: vec![0], lead: vec![], out: None };
    is(slice, &[whole.clone(), I32.of([])], "[i,j],[]->[~i,j] i 8 moved");
    let update = DynamicUpdateSlice { dims: vec![0], lead: vec![], combine: None, out: None };
    is(update, &[whole.clone(), F32.of([2, 4]), I32.of([])], "[i,j],[~i,j],[]->[i,j] i 8 moved");
    // at places known while tracing the update is where the operand's rows are
    let update = UpdateSlice { start: vec![2, 0] };
    is(update, &[whole, F32.of([2, 4])], "[i,j],[+i,j]->[i,j] i 8 moved");
    let around = Window { low: 1, high: 1, ..Window::default() };
    let images = super::images();
    // steps of windows are loops that are summed and that no other operand has: as private as the reference's
    is(
        images.clone(),
        &[F32.of([8, 4, 16, 16]), F32.of([6, 4, 3, 3])],
        "[i,o,+k,+l],[j,o,m,n]->[i,j,k,l] k 16 moved l 16 moved m 3 sum n 3 sum o 4 sum",
    );
    // groups have a dimension of their own, where the reference's features are one dimension of two loops
    let groups = Conv {
        batch: [vec![1], vec![0]],
        contracting: [vec![2], vec![2]],
        spatial: [vec![3], vec![3]],
        windows: vec![around],
        order: vec![1, 0, 3, 2],
        ..images
    };
    is(
        groups,
        &[F32.of([8, 5, 4, 16]), F32.of([5, 6, 4, 3])],
        "[i,j,n,+l],[j,k,n,m]->[i,j,k,l] l 16 moved m 3 sum n 4 sum",
    );
}

#[test]
fn of_reshapes() {
    for (from, to, want) in [
        (&[2, 4, 32][..], &[8, 32][..], "[i,j,k]->[(ij),k] i 2 j 4 k 32"),
        (&[8, 4], &[2, 16], "[(ij),k]->[i,(jk)] i 2 j 4 k 4"),
        // the reference shares a minor loop of 2 too, behind loops of 2 and of 3 that this reshape passes nothing to. What is behind a loop that is not
        // split to the end stays unsplit, so it would pass only where something else has split both of these
        (&[6, 4], &[4, 6], "[(ij),m]->[(ik),l] i 2 j 3 whole k 2 l 6 m 4 whole"),
        (&[12], &[3, 4], "[(ij)]->[i,j] i 3 j 4"),
        (&[5, 3, 7], &[3, 35], "[i,l,m]->[j,k] i 5 whole j 3 k 35 l 3 whole m 7 whole"),
        (&[8, 4], &[8, 1, 4], "[i,j]->[i,k,j] i 8 j 4 k 1"),
    ] {
        let prim: Prim = Arc::new(Reshape { new_sizes: to.into(), out: None });
        assert_eq!(shown(&prim, &[F32.of(from)], true), want, "{from:?} {to:?}");
    }
}

#[test]
fn of_gathers() {
    let rows = || Places::rows(2, 0, 1, Beyond::Clip);
    let gather = |at, sizes: &[usize], table: &[usize], numbers: &[usize], want: &str| {
        let prim = Gather { at, sizes: sizes.into(), fill: Scalar::Float(0.0), out: None };
        is(prim, &[F32.of(table), I32.of(numbers)], want);
    };
    // one row of many; all of what is across; numbers with what is gathered; index vectors whole
    gather(rows(), &[1, 4], &[8, 4], &[3, 1], "[k,j],[i,l]->[i,j] k 8 sum l 1 whole");
    // a dimension of which windows have a part passes nothing: at the reference a part of 1 is summed, with the number's own, a longer one blocked
    gather(rows(), &[1, 1], &[8, 4], &[3, 1], "[k,j],[i,l]->[i,~j] j 4 moved k 8 sum l 1 whole");
    gather(rows(), &[1, 2], &[8, 4], &[3, 1], "[k,j],[i,l]->[i,~j] j 4 moved k 8 sum l 1 whole");
    // the only row: summed too, where the reference needs it whole; of size 1 it is not split
    gather(rows(), &[1, 4], &[1, 4], &[3, 1], "[k,j],[i,l]->[i,j] k 1 sum l 1 whole");
    let along = Places { of: vec![1], collapsed: vec![1], batching: vec![(0, 0)], ..Places::default() };
    gather(along, &[1, 1], &[8, 4], &[8, 3, 1], "[i,k],[i,j,l]->[i,j] k 4 sum l 1 whole");
}

#[test]
fn of_scatters() {
    let rows = || Places::rows(2, 0, 1, Beyond::Nothing);
    let scatter = |at, combine, updates: &[usize], numbers: &[usize], want: &str| {
        is(Scatter { at, combine, out: None }, &[F32.of([8, 4]), F32.of(updates), I32.of(numbers)], want);
    };
    let add = Some(Combine::Add);
    // rows of the operand pass to the result only; what is across passes; updates are summed with their numbers; index vectors whole
    scatter(rows(), add, &[3, 4], &[3, 1], "[i,j],[k,j],[k,l]->[i,j] k 3 sum l 1 whole");
    // overwritten: the last one counts, so all are needed
    scatter(rows(), None, &[3, 4], &[3, 1], "[i,j],[k,j],[k,l]->[i,j] k 3 whole l 1 whole");
    // updates of a part of what is across: whole in the updates; in the operand it passes, where the reference needs it whole
    scatter(rows(), add, &[3, 2], &[3, 1], "[i,j],[l,k],[l,m]->[i,j] k 2 whole l 3 sum m 1 whole");
    let along = Places { of: vec![1], collapsed: vec![1], batching: vec![(0, 0)], ..Places::default() };
    scatter(along, add, &[8, 3], &[8, 3, 1], "[i,j],[i,k],[i,k,l]->[i,j] k 3 sum l 1 whole");
}
