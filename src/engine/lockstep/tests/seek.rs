//! Takes and puts at numbers, and functions of whole lines: what moves through raw memory, in sizes that Miri runs.

use super::*;
use crate::program::sentence::{Beyond, Bound, Lines};
use crate::program::{In, Line, Out, Outs, Stages};
use std::ops::Range;

/// Rows are moved as the bytes of their type: one of each width. Miri, which takes minutes for each, has one of the odd widths.
const TYPES: &[DType] = match cfg!(miri) {
    true => &[DType::F16],
    false => &[DType::F32, DType::F64, DType::F16, DType::I8, DType::U64],
};

impl Make {
    /// Numbers of int32 from −11 to 11.
    pub(super) fn indices(&mut self, n: usize) -> Slot {
        let i = DType::I32;
        let s = self.slot_of(i, &[n], &[1], &[]);
        self.p.ins.push(s);
        let code = Code::one(Fun::Rem, i, i, &[Arg::Read(0), Arg::Const(Scalar::Int(12))]);
        let r = self.id(s);
        self.local(&[n], &[1], vec![r], i, code)
    }
}

pub(super) fn bound(index: usize, by: usize, most: i64, beyond: Beyond, window: Option<usize>) -> Vec<Bound> {
    vec![Bound { index, by, most, beyond, window }]
}

#[test]
fn takes() {
    for &dtype in TYPES {
        for beyond in [Beyond::Clip, Beyond::Nothing] {
            for (rows, columns) in [(1, 1), (8, 1), (1, 2)] {
                let mut m = Make::new(dtype);
                let (x, i) = (m.input(&[8, 6], &[rows, columns]), m.indices(5));
                // rows at numbers; parts of rows where they are split
                let extents = [5, 6, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Body::Take { at: bound(2, 1, 7, beyond, None) };
                let row = m.fold(&extents, 2, &[1, columns, rows], reads, body);
                // three rows from each number on
                let extents = [5, 3, 6, 8];
                let reads = vec![
                    m.read(x, &extents, &[(Some(3), 0), (Some(2), 0)]),
                    m.read(i, &extents, &[(Some(0), 0)]),
                ];
                let body = Body::Take { at: bound(3, 1, 5, beyond, Some(1)) };
                let window = m.fold(&extents, 3, &[1, 1, columns, rows], reads, body);
                check("take", &m.done(&[row, window]), 0.0);
            }
        }
    }
}

#[test]
fn puts() {
    for &dtype in TYPES {
        for (k, combine) in [None, Some(Combine::Add), Some(Combine::Max)].into_iter().enumerate() {
            for ways in [[1, 1], [8, 1], [1, 2]]
                .into_iter()
                .skip(if cfg!(miri) { k } else { 0 })
                .step_by(if cfg!(miri) { 3 } else { 1 })
            {
                let mut m = Make::new(dtype);
                let (x, i) = (m.input(&[8, 6], &ways), m.indices(5));
                let (u, line) = (m.input(&[5, 2, 6], &[1, 1, 1]), m.input(&[6], &[1]));
                // two rows from each number on; onto what was there, onto a row for all, onto nothing
                let extents = [8, 6, 5, 2];
                let layout = [ways[0], ways[1], 1, 1];
                let outs = [0, 1, 2].map(|base| {
                    let mut was = match base {
                        0 => m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                        _ => m.read(line, &extents, &[(Some(1), 0)]),
                    };
                    if base == 2 {
                        was.parts.clear();
                    }
                    let reads = vec![
                        was,
                        m.read(u, &extents, &[(Some(2), 0), (Some(3), 0), (Some(1), 0)]),
                        m.read(i, &extents, &[(Some(2), 0)]),
                    ];
                    let body = Body::Put { at: bound(0, 2, 6, Beyond::Nothing, Some(3)), combine };
                    m.fold(&extents, 2, &layout, reads, body)
                });
                check("put", &m.done(&outs), 1e-2);
            }
        }
    }
}

#[test]
fn many_rows() {
    // some batches, the last one not full
    let (n, [r, c]) = if cfg!(miri) { (70, [2, 4]) } else { (150, [8, 6]) };
    for &dtype in TYPES {
        for (rows, columns) in [(1, 1), (r, 1), (1, 2)].into_iter().take(if cfg!(miri) { 2 } else { 3 }) {
            let mut m = Make::new(dtype);
            let (x, i) = (m.input(&[r, c], &[rows, columns]), m.indices(n));
            let (u, v) = (m.input(&[n, c], &[1, columns]), m.input(&[n], &[1]));
            let extents = [n, c, r];
            let reads = vec![
                m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                m.read(i, &extents, &[(Some(0), 0)]),
            ];
            let body = Body::Take { at: bound(2, 1, r as i64 - 1, Beyond::Nothing, None) };
            let mut outs = vec![m.fold(&extents, 2, &[1, columns, rows], reads, body)];
            for combine in [None, Some(Combine::Add), Some(Combine::Max)] {
                let extents = [r, c, n];
                let reads = vec![
                    m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                    m.read(u, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                let body = Body::Put { at: bound(0, 2, r as i64 - 1, Beyond::Nothing, None), combine };
                outs.push(m.fold(&extents, 2, &[rows, columns, 1], reads, body));
                // single elements, at numbers in two dimensions
                let reads = vec![
                    m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                    m.read(v, &extents, &[(Some(2), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                let mut at = bound(0, 2, r as i64 - 1, Beyond::Nothing, None);
                at.extend(bound(1, 2, c as i64 - 1, Beyond::Clip, None));
                outs.push(m.fold(&extents, 2, &[rows, columns, 1], reads, Body::Put { at, combine }));
            }
            check("many rows", &m.done(&outs), 1e-2);
        }
    }
}

/// One row at one number, as in a step of a loop; and single elements, each at its number.
#[test]
fn one_row_and_single_elements() {
    let (r, c) = (8, 6);
    for &dtype in TYPES {
        for (n, beyond) in
            [(1, Beyond::Nothing), (1, Beyond::Clip), (70, Beyond::Nothing), (70, Beyond::Clip)]
                .into_iter()
                .step_by(if cfg!(miri) { 3 } else { 1 })
        {
            let mut m = Make::new(dtype);
            let (x, line, i) = (m.input(&[r, c], &[1, 1]), m.input(&[r], &[1]), m.indices(n));
            let (u, v) = (m.input(&[n, c], &[1, 1]), m.input(&[n], &[1]));
            let at = |index: usize, by: usize| bound(index, by, r as i64 - 1, beyond, None);
            let extents = [n, c, r];
            let reads = vec![
                m.read(x, &extents, &[(Some(2), 0), (Some(1), 0)]),
                m.read(i, &extents, &[(Some(0), 0)]),
            ];
            let mut outs = vec![m.fold(&extents, 2, &[1, 1, 1], reads, Body::Take { at: at(2, 1) })];
            let reads = vec![m.read(line, &[n, r], &[(Some(1), 0)]), m.read(i, &[n, r], &[(Some(0), 0)])];
            outs.push(m.fold(&[n, r], 1, &[1, 1], reads, Body::Take { at: at(1, 1) }));
            for combine in [None, Some(Combine::Add), Some(Combine::Max)] {
                let extents = [r, c, n];
                let reads = vec![
                    m.read(x, &extents, &[(Some(0), 0), (Some(1), 0)]),
                    m.read(u, &extents, &[(Some(2), 0), (Some(1), 0)]),
                    m.read(i, &extents, &[(Some(2), 0)]),
                ];
                outs.push(m.fold(&extents, 2, &[1, 1, 1], reads, Body::Put { at: at(0, 2), combine }));
                let extents = [r, n];
                let reads = vec![
                    m.read(line, &extents, &[(Some(0), 0)]),
                    m.read(v, &extents, &[(Some(1), 0)]),
                    m.read(i, &extents, &[(Some(1), 0)]),
                ];
                outs.push(m.fold(&extents, 1, &[1, 1], reads, Body::Put { at: at(0, 2), combine }));
            }
            check("one row, single elements", &m.done(&outs), 1e-2);
        }
    }
}

/// Sums so far, and the line turned round.
#[derive(Debug)]
struct Toy;

impl Line for Toy {
    fn key(&self) -> String {
        "toy".into()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        Ok(vec![operands[0].clone(); 2])
    }
    fn cost(&self, elements: usize) -> f64 {
        // enough for several tasks
        1e5 * elements as f64
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
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
    fn stages(&self, _: &[DType], _: usize, asked: &[bool]) -> Option<Arc<dyn Stages>> {
        (*asked == [false, true]).then(|| Arc::new(Turned) as Arc<dyn Stages>)
    }
}

/// The line turned round by runs of even length: what they read is copied first.
#[derive(Debug)]
struct Turned;

impl Stages for Turned {
    fn step(&self) -> usize {
        2
    }
    fn reverse(&self) -> bool {
        true
    }
    fn room(&self, places: usize) -> (DType, usize) {
        (DType::F32, places)
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        let x = ins[0].view::<f32>();
        places.zip(&mut room.view::<f32>()).for_each(|(k, to)| *to = x[k]);
    }
    fn then(&self, _: usize, places: Range<usize>, _: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>) {
        // the last run is the line's begin
        let line: Vec<f32> = rooms.iter().rev().flat_map(|r| r.view::<f32>().to_owned()).collect();
        let Some(mut y) = outs.take(1) else { return };
        places.zip(&mut y.view::<f32>()).for_each(|(k, y)| *y = line[line.len() - 1 - k]);
    }
}

#[test]
fn lines_by_runs() {
    for (shape, at) in [(&[7][..], &[(Some(1), 0)][..]), (&[7, 1], &[(Some(2), 0), (Some(1), 0)])] {
        let mut m = Make::new(F);
        let ways = vec![1; shape.len()];
        let x = m.input(shape, &ways);
        let extents: Vec<usize> = shape.iter().copied().chain([7]).collect();
        let reads = vec![m.read(x, &extents, at)];
        let of = Lines { of: Arc::new(Toy), result: 1, along: [0].into_iter().collect() };
        let layout = vec![1; extents.len()];
        let y = m.fold(&extents, shape.len(), &layout, reads, Body::Lines(of));
        check("lines by runs", &m.done(&[y]), 0.0);
    }
}

#[test]
fn lines() {
    for (along, ways) in [(0, [1, 2]), (1, [4, 1]), (1, [1, 1])] {
        let mut m = Make::new(F);
        let x = m.input(&[4, 6], &ways);
        let extents = [4, 6, [4, 6][along]];
        let at = [0, 1].map(|d| (Some(if d == along { 2 } else { d }), 0));
        let outs = [0, 1].map(|result| {
            let reads = vec![m.read(x, &extents, &at)];
            let of = Lines { of: Arc::new(Toy), result, along: [along].into_iter().collect() };
            m.fold(&extents, 2, &[ways[0], ways[1], 1], reads, Body::Lines(of))
        });
        check("lines", &m.done(&outs), 1e-6);
    }
}
