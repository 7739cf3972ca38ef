//! Tile programs over flat rows.

use super::flat_rows::FlatRows;
use super::segments::{CodegenRequest, SegmentBuilder};
use super::tile_program::{SegmentBox, TileProgram};
use crate::core::Result;
use crate::exec::compile::fusion::FusionPlan;
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};

/// Generates the tile program of a group over flat rows.
///
/// Its last two dimensions are the rows and the elements of a row. Returns `None` if the space is
/// not one segment, or if an access does not fit.
pub(crate) fn flat_tile_program(
    g: &FusionPlan<'_, '_>,
    group: usize,
    ask: &CodegenRequest<'_>,
    rows: FlatRows,
) -> Result<Option<TileProgram>> {
    let mut c = SegmentBuilder::new(g, group, ask);
    if c.cuts().iter().any(|c| c.len() != 2) {
        return Ok(None);
    }
    c.flatten(rows);
    let ext = c.dim_sizes();
    let deferred = c.deferred_stores();
    let Some((segment, ns_per_element, registers, tile)) = c.build_segment(&deferred)? else {
        return Ok(None);
    };
    let stored = segment.mems.iter().filter(|m| deferred.iter().any(|l| l.overwrites == Some(m.slot)));
    if c.is_irregular() || rows.row_len() > tile || stored.into_iter().any(|m| m.strides[rows.dim + 1] < 0) {
        return Ok(None);
    }
    let (d, many) = (rows.dim, ext[rows.dim]);
    let mut t = TileProgram {
        transposed_dim: None,
        rank: d + 2,
        ext: [1; MAX_LOOPS],
        boxes: Vec::new(),
        num_registers: registers,
        max_operands: 0,
        tile_elements: tile,
        stream: ask.stream,
        ns_per_element,
        is_flat: true,
    };
    t.ext[..d].copy_from_slice(&ext[..d]);
    t.ext[d] = (many + rows.step - 1) / rows.step;
    t.ext[d + 1] = rows.row_len();
    // all whole rows, then the last one
    let whole = many / rows.chunk;
    for (from, to, n) in [(0, whole, rows.chunk), (whole, whole + 1, many % rows.chunk)] {
        if n > 0 && from < to {
            let (mut lo, mut hi): (LoopVec, LoopVec) = ([0; MAX_LOOPS], [1; MAX_LOOPS]);
            hi[..d].copy_from_slice(&ext[..d]);
            (lo[d], hi[d]) = (from, to);
            let mut segment = segment.clone();
            (segment.lo, segment.hi) = (0, n * rows.inner);
            t.boxes.push(SegmentBox { lo, hi, segments: vec![segment] });
        }
    }
    super::emit::number_memory_operands(&mut t);
    Ok(Some(t))
}
