//! Tests of gathers, scatters and row kernels.
//!
//! These use raw memory, so the sizes are small enough for Miri.

use super::*;
use crate::ir::program::{
    DynamicIndex, OutOfBounds, ParallelRowKernel, RowInput, RowKernel, RowKernelCall, RowOutput, RowOutputs,
};
use crate::kernels;
use std::ops::Range;

/// One element type of each width, since rows are moved as bytes.
/// Miri, which needs minutes for each type, only runs one of an unusual width.
const TYPES: &[DType] = match cfg!(miri) {
    true => &[DType::F16],
    false => &[DType::F32, DType::F64, DType::F16, DType::I8, DType::U64],
};

impl SampleBuilder {
    /// Adds int32 indices from −11 to 11.
    pub(super) fn indices(&mut self, n: usize) -> Slot {
        let i = DType::I32;
        let s = self.slot_of(i, &[n], &[1], &[]);
        self.p.ins.push(s);
        let code = ScalarCode::single(
            ScalarOp::Rem,
            i,
            i,
            &[ScalarArg::Access(0), ScalarArg::Const(Scalar::Int(12))],
        );
        let r = self.read_all(s);
        self.local(&[n], &[1], vec![r], i, code)
    }
}

pub(super) fn bound(
    index: usize,
    by: usize,
    most: i64,
    beyond: OutOfBounds,
    window: Option<usize>,
) -> Vec<DynamicIndex> {
    vec![DynamicIndex { loop_id: index, operand: by, max_start: most, mode: beyond, window }]
}

#[test]
fn takes() {
    for &dtype in TYPES {
        for beyond in [OutOfBounds::Clip, OutOfBounds::Drop] {
            for (rows, columns) in [(1, 1), (8, 1), (1, 2)] {
                let mut m = SampleBuilder::new(dtype);
                let (x, i) = (m.input(&[8, 6], &[rows, columns]), m.indices(5));
                // whole rows at given indices; if the rows are sharded, parts of rows
                let extents = [5, 6, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Compute::Gather { indices: bound(2, 1, 7, beyond, None) };
                let row = m.fold(&extents, 2, &[1, columns, rows], reads, body);
                // three rows starting at each index
                let extents = [5, 3, 6, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(3), 0), (Some(2), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Compute::Gather { indices: bound(3, 1, 5, beyond, Some(1)) };
                let window = m.fold(&extents, 3, &[1, 1, columns, rows], reads, body);
                check("take", &m.finish(&[row, window]), 0.0);
            }
        }
    }
}

#[test]
fn scatter_variants() {
    for &dtype in TYPES {
        for (k, combine) in [None, Some(Reducer::Add), Some(Reducer::Max)].into_iter().enumerate() {
            for num_shards in [[1, 1], [8, 1], [1, 2]]
                .into_iter()
                .skip(if cfg!(miri) { k } else { 0 })
                .step_by(if cfg!(miri) { 3 } else { 1 })
            {
                let mut m = SampleBuilder::new(dtype);
                let (x, i) = (m.input(&[8, 6], &num_shards), m.indices(5));
                let (u, line) = (m.input(&[5, 2, 6], &[1, 1, 1]), m.input(&[6], &[1]));
                // two rows starting at each index; added to an array, to a row that is broadcast,
                // or to a constant
                let extents = [8, 6, 5, 2];
                let layout = [num_shards[0], num_shards[1], 1, 1];
                let outs = [0, 1, 2].map(|base| {
                    let mut was = match base {
                        0 => m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                        _ => m.read(line, &extents, &[(Some(1), 0)]),
                    };
                    if base == 2 {
                        was.pieces.clear();
                    }
                    let reads = vec![
                        was,
                        m.read(u, &extents, &[(Some(2), 0), (Some(3), 0), (Some(1), 0)]),
                        m.read(i, &extents, &[(Some(2), 0)]),
                    ];
                    let body = Compute::Scatter {
                        indices: bound(0, 2, 6, OutOfBounds::Drop, Some(3)),
                        reducer: combine,
                    };
                    m.fold(&extents, 2, &layout, reads, body)
                });
                check("put", &m.finish(&outs), 1e-2);
            }
        }
    }
}

#[test]
fn many_rows() {
    // several batches, of which the last one is not full
    let (n, [r, c]) = if cfg!(miri) { (70, [2, 4]) } else { (150, [8, 6]) };
    for &dtype in TYPES {
        for (rows, columns) in [(1, 1), (r, 1), (1, 2)].into_iter().take(if cfg!(miri) { 2 } else { 3 }) {
            let mut m = SampleBuilder::new(dtype);
            let (x, i) = (m.input(&[r, c], &[rows, columns]), m.indices(n));
            let (u, v) = (m.input(&[n, c], &[1, columns]), m.input(&[n], &[1]));
            let extents = [n, c, r];
            let reads = vec![
                m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                m.read(i, &extents, &[(Some(0), 0)]),
            ];
            let body = Compute::Gather { indices: bound(2, 1, r as i64 - 1, OutOfBounds::Drop, None) };
            let mut outs = vec![m.fold(&extents, 2, &[1, columns, rows], reads, body)];
            for combine in [None, Some(Reducer::Add), Some(Reducer::Max)] {
                let extents = [r, c, n];
                let reads = vec![
                    m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                    m.read(u, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                let body = Compute::Scatter {
                    indices: bound(0, 2, r as i64 - 1, OutOfBounds::Drop, None),
                    reducer: combine,
                };
                outs.push(m.fold(&extents, 2, &[rows, columns, 1], reads, body));
                // single elements, at indices of two dimensions
                let reads = vec![
                    m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                    m.read(v, &extents, &[(Some(2), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                let mut at = bound(0, 2, r as i64 - 1, OutOfBounds::Drop, None);
                at.extend(bound(1, 2, c as i64 - 1, OutOfBounds::Clip, None));
                outs.push(m.fold(
                    &extents,
                    2,
                    &[rows, columns, 1],
                    reads,
                    Compute::Scatter { indices: at, reducer: combine },
                ));
            }
            check("many rows", &m.finish(&outs), 1e-2);
        }
    }
}

/// Checks a single row at a single index, as in a loop, and single elements at many indices.
#[test]
fn one_row_and_single_elements() {
    let (r, c) = (8, 6);
    for &dtype in TYPES {
        for (n, beyond) in
            [(1, OutOfBounds::Drop), (1, OutOfBounds::Clip), (70, OutOfBounds::Drop), (70, OutOfBounds::Clip)]
                .into_iter()
                .step_by(if cfg!(miri) { 3 } else { 1 })
        {
            let mut m = SampleBuilder::new(dtype);
            let (x, line, i) = (m.input(&[r, c], &[1, 1]), m.input(&[r], &[1]), m.indices(n));
            let (u, v) = (m.input(&[n, c], &[1, 1]), m.input(&[n], &[1]));
            let at = |index: usize, by: usize| bound(index, by, r as i64 - 1, beyond, None);
            let extents = [n, c, r];
            let reads = vec![
                m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                m.read(i, &extents, &[(Some(0), 0)]),
            ];
            let mut outs =
                vec![m.fold(&extents, 2, &[1, 1, 1], reads, Compute::Gather { indices: at(2, 1) })];
            let reads = vec![m.read(line, &[n, r], &[(Some(1), 0)]), m.read(i, &[n, r], &[(Some(0), 0)])];
            outs.push(m.fold(&[n, r], 1, &[1, 1], reads, Compute::Gather { indices: at(1, 1) }));
            for combine in [None, Some(Reducer::Add), Some(Reducer::Max)] {
                let extents = [r, c, n];
                let reads = vec![
                    m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                    m.read(u, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                outs.push(m.fold(
                    &extents,
                    2,
                    &[1, 1, 1],
                    reads,
                    Compute::Scatter { indices: at(0, 2), reducer: combine },
                ));
                let extents = [r, n];
                let reads = vec![
                    m.read(line, &extents, &[(Some(0), 0)]),
                    m.read(v, &extents, &[(Some(1), 0)]),
                    m.read(i, &extents, &[(Some(1), 0)]),
                ];
                outs.push(m.fold(
                    &extents,
                    1,
                    &[1, 1],
                    reads,
                    Compute::Scatter { indices: at(0, 2), reducer: combine },
                ));
            }
            check("one row, single elements", &m.finish(&outs), 1e-2);
        }
    }
}

/// Returns a program that gathers `n` rows of `[r, c]`, or adds `n` rows to such a value.
/// With `window`, each index selects the start of two rows.
fn rows_at_indices(n: usize, [r, c]: [usize; 2], is_scatter: bool, window: bool) -> SpmdProgram {
    let mut m = SampleBuilder::new(DType::F32);
    let (x, i) = (m.input(&[r, c], &[1, 1]), m.indices(n));
    let most = r as i64 - if window { 2 } else { 1 };
    if is_scatter {
        let (extents, u) = ([r, c, n], m.input(&[n, c], &[1, 1]));
        let reads = vec![
            m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
            m.read(u, &extents, &[(Some(2), 0), (Some(1), 0)]),
            m.read(i, &extents, &[(Some(2), 0)]),
        ];
        let indices = bound(0, 2, most, OutOfBounds::Drop, None);
        let body = Compute::Scatter { indices, reducer: Some(Reducer::Add) };
        let out = m.fold(&extents, 2, &[1, 1, 1], reads, body);
        return m.finish(&[out]);
    }
    let extents = if window { vec![n, 2, c, r] } else { vec![n, c, r] };
    let last = extents.len() - 1;
    let reads = vec![
        m.read(x, &extents, &[(Some(last), 0), (Some(last - 1), 0)]),
        m.read(i, &extents, &[(Some(0), 0)]),
    ];
    let body = Compute::Gather { indices: bound(last, 1, most, OutOfBounds::Drop, window.then_some(1)) };
    let out = m.fold(&extents, last, &vec![1; extents.len()], reads, body);
    m.finish(&[out])
}

/// Checks that the report says which implementation runs, and why.
#[test]
fn reports_say_how_rows_are_moved() {
    let sorts = kernels::add_sorted().is_some() && kernels::index_filter(DType::I32).is_some();
    let large =
        if sorts { "sorted updates: the result exceeds the caches" } else { "batches of contiguous rows" };
    for (p, expected) in [
        (rows_at_indices(1, [8, 6], false, false), "a single row"),
        (rows_at_indices(1, [8, 6], true, false), "a single row"),
        (rows_at_indices(70, [8, 6], false, false), "batches of contiguous rows"),
        (rows_at_indices(70, [8, 6], true, false), "batches of contiguous rows"),
        (rows_at_indices(70, [8, 6], false, true), "query by query: an index starts a window"),
        (rows_at_indices(40_000, [65_536, 16], true, false), large),
    ] {
        let listing = LockstepExecutable::new(&p, &[], None).unwrap().report().listing;
        let ends = listing.lines().filter(|l| l.ends_with(&format!("us; {expected}"))).count();
        assert_eq!(ends, 1, "not {expected}:\n{listing}");
    }
}

/// A row kernel with two results: the running sum of a row, and the row in reverse order.
#[derive(Debug)]
struct CumsumAndReverse;

impl RowKernel for CumsumAndReverse {
    fn key(&self) -> String {
        "toy".into()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        Ok(vec![operands[0].clone(); 2])
    }
    fn cost(&self, elements: usize) -> f64 {
        // a cost that is large enough for several tasks
        1e5 * elements as f64
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let x = ins[0].view::<f32>();
        let along = ndarray::Axis(x.ndim() - 1);
        let [mut sums, mut turned] = [0, 1].map(|k| outs.take(k));
        if let Some(sums) = &mut sums {
            let mut y = sums.view::<f32>();
            y.assign(&x);
            y.accumulate_axis_inplace(along, |before, x| *x += before);
        }
        if let Some(turned) = &mut turned {
            let mut x = x.view();
            x.invert_axis(along);
            turned.view::<f32>().assign(&x);
        }
    }
    fn parallel(&self, _: &[DType], _: usize, asked: &[bool]) -> Option<Arc<dyn ParallelRowKernel>> {
        (*asked == [false, true]).then(|| Arc::new(ReverseByRuns) as Arc<dyn ParallelRowKernel>)
    }
}

/// A two-pass row kernel that reverses a row by segments of even length.
/// The first pass copies the operands to scratch memory.
#[derive(Debug)]
struct ReverseByRuns;

impl ParallelRowKernel for ReverseByRuns {
    fn alignment(&self) -> usize {
        2
    }
    fn reverse(&self) -> bool {
        true
    }
    fn scratch(&self, places: usize) -> (DType, usize) {
        (DType::F32, places)
    }
    fn run_first_pass(&self, places: Range<usize>, ins: &[RowInput<'_>], scratch: &mut RowOutput<'_>) {
        let x = ins[0].view::<f32>();
        places.zip(&mut scratch.view::<f32>()).for_each(|(k, to)| *to = x[k]);
    }
    fn run_second_pass(
        &self,
        _: usize,
        places: Range<usize>,
        _: &[RowInput<'_>],
        scratch: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) {
        // the last segment becomes the start of the row
        let line: Vec<f32> = scratch.iter().rev().flat_map(|r| r.view::<f32>().to_owned()).collect();
        let Some(mut y) = outs.take(1) else { return };
        places.zip(&mut y.view::<f32>()).for_each(|(k, y)| *y = line[line.len() - 1 - k]);
    }
}

#[test]
fn lines_by_runs() {
    for (shape, at) in [(&[7][..], &[(Some(1), 0)][..]), (&[7, 1], &[(Some(2), 0), (Some(1), 0)])] {
        let mut m = SampleBuilder::new(F32_DTYPE);
        let num_shards = vec![1; shape.len()];
        let x = m.input(shape, &num_shards);
        let extents: Vec<usize> = shape.iter().copied().chain([7]).collect();
        let reads = vec![m.read(x, &extents, at)];
        let of = RowKernelCall {
            kernel: Arc::new(CumsumAndReverse),
            result_index: 1,
            row_loops: [0].into_iter().collect(),
        };
        let layout = vec![1; extents.len()];
        let y = m.fold(&extents, shape.len(), &layout, reads, Compute::RowKernel(of));
        check("lines by runs", &m.finish(&[y]), 0.0);
    }
}

#[test]
fn lines() {
    for (along, num_shards) in [(0, [1, 2]), (1, [4, 1]), (1, [1, 1])] {
        let mut m = SampleBuilder::new(F32_DTYPE);
        let x = m.input(&[4, 6], &num_shards);
        let extents = [4, 6, [4, 6][along]];
        let at = [0, 1].map(|d| (Some(if d == along { 2 } else { d }), 0));
        let outs = [0, 1].map(|result| {
            let reads = vec![m.read(x, &extents, &at)];
            let of = RowKernelCall {
                kernel: Arc::new(CumsumAndReverse),
                result_index: result,
                row_loops: [along].into_iter().collect(),
            };
            m.fold(&extents, 2, &[num_shards[0], num_shards[1], 1], reads, Compute::RowKernel(of))
        });
        check("lines", &m.finish(&outs), 1e-6);
    }
}
