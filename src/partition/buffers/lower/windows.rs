//! Finds the loop nests by which the derivative of an extreme over windows is computed.
//!
//! One nest finds the first step of each window that has the extreme element, and the other one
//! places an element of each window at such a step. As reductions over the steps they would read
//! copies that are padded, or spread. As an operation they read elements where they are stored.

use super::ProgramLowering;
use crate::core::types::{DType, Scalar};
use crate::ir::ops::windows::{extreme_code, picked_step};
use crate::ir::program::loop_nest::{
    Access, AccessPiece, AffineExpr, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarInst, ScalarOp, Source,
};
use crate::partition::Slot;
use crate::partition::buffers::{WindowOp, WindowOpKind, WindowedDim};

/// Returns an argument of integer code as a function of loop indices; `None` if it is not affine.
fn affine(code: &[ScalarInst], arg: &ScalarArg) -> Option<AffineExpr> {
    let inst = match arg {
        ScalarArg::Const(Scalar::Int(n)) => return Some(AffineExpr::constant(i64::try_from(*n).ok()?)),
        ScalarArg::Index(l) => return Some(AffineExpr::linear(0, *l, 1)),
        ScalarArg::Inst(k) => &code[*k],
        ScalarArg::Const(_) | ScalarArg::Access(_) => return None,
    };
    let a = affine(code, inst.args.first()?)?;
    if matches!(inst.op, ScalarOp::Copy | ScalarOp::Convert) {
        return Some(a);
    }
    let b = affine(code, inst.args.get(1)?)?;
    let scaled = |x: &AffineExpr, by: i64| AffineExpr {
        constant: x.constant * by,
        terms: x.terms.iter().map(|(l, c)| (*l, c * by)).collect(),
    };
    match inst.op {
        ScalarOp::Add | ScalarOp::Sub => {
            let b = scaled(&b, if inst.op == ScalarOp::Add { 1 } else { -1 });
            Some(AffineExpr {
                constant: a.constant + b.constant,
                terms: a.terms.into_iter().chain(b.terms).collect(),
            })
        }
        ScalarOp::Mul if b.terms.is_empty() => Some(scaled(&a, b.constant)),
        _ => None,
    }
}

/// Returns true if a nest finds steps of extreme elements; the step is an argument of its `select`.
fn finds_steps(nest: &LoopNest, code: &ScalarCode) -> bool {
    let [x, filled, _] = &nest.accesses[..] else { return false };
    let none = ScalarArg::Const(Scalar::Int(i32::MAX.into()));
    let last = code
        .insts
        .last()
        .is_some_and(|i| i.op == ScalarOp::Select && i.args[0] == ScalarArg::Inst(6) && i.args[2] == none);
    let (start, _) = extreme_code(x.dtype);
    last && x.pieces == filled.pieces && x.fill != filled.fill && code.insts.starts_with(&start.insts)
}

impl ProgramLowering<'_> {
    /// Returns the operation of a nest that finds steps of windows, or places elements there.
    ///
    /// `None` if the nest is another one, or if elements of windows with strides of 1 are placed.
    pub(super) fn window_op(
        &self,
        out: Slot,
        nest: &LoopNest,
        reducer: Reducer,
        code: &ScalarCode,
        at: Slot,
    ) -> Option<WindowOp> {
        let (windows, step, kind) = match (reducer, nest.dtype) {
            (Reducer::Min, DType::I32) if finds_steps(nest, code) => {
                let select = code.insts.last()?;
                (&nest.accesses[0], affine(&code.insts, &select.args[1])?, WindowOpKind::Find)
            }
            (Reducer::Add, DType::F32 | DType::F64) => {
                let (code, step) = picked_step(nest)?;
                (&nest.accesses[1], affine(&code.insts, &step)?, WindowOpKind::Place)
            }
            _ => return None,
        };
        let dtype = windows.dtype;
        let reads = match kind {
            WindowOpKind::Find => [self.whole_value(windows, at)?, self.whole_value(&nest.accesses[2], at)?],
            WindowOpKind::Place => [self.whole_value(&nest.accesses[0], at)?, self.whole_value(windows, at)?],
        };
        let is_whole = |s: &Slot| self.program.values[*s].num_partials == 1;
        if !matches!(dtype, DType::F32 | DType::F64) || !reads.iter().chain([&out]).all(is_whole) {
            return None;
        }
        let dims = match kind {
            WindowOpKind::Find => {
                let [piece] = &windows.pieces[..] else { return None };
                let y = AffineExpr::identity(nest.rank);
                let [of_result] = &nest.accesses[2].pieces[..] else { return None };
                if !is_full(piece, nest) || !is_full(of_result, nest) || of_result.map != y {
                    return None;
                }
                self.window_dims(nest, &step, reads[0], piece.map.iter().map(|m| (1, m)))?
            }
            WindowOpKind::Place => {
                let (a, b) = (&nest.accesses[0], windows);
                let (_, found) = self.spread_positions_of(a, &nest.extents, at)?;
                let (_, placed) = self.spread_positions_of(b, &nest.extents, at)?;
                if found != placed {
                    return None;
                }
                self.window_dims(nest, &step, reads[1], placed.iter().map(|p| (p.scale, &p.map)))?
            }
        };
        Some(WindowOp { out, kind, reads, dtype, dims, first_step: step.constant })
    }

    /// Returns the value that all pieces of an access read.
    fn whole_value(&self, r: &Access, at: Slot) -> Option<Slot> {
        let Source::Value(slot) = r.pieces.first()?.source else { return None };
        r.pieces.iter().all(|p| p.source == Source::Value(slot)).then_some(slot + at)
    }

    /// Returns the dimensions of windows over `value`, or over the result.
    ///
    /// `maps` has, for each dimension of `value`, the position that is read at each index, in an
    /// array whose elements are this number of positions apart. It may be more than 1 if elements
    /// of windows are placed.
    fn window_dims<'a>(
        &self,
        nest: &LoopNest,
        step: &AffineExpr,
        value: Slot,
        maps: impl Iterator<Item = (i64, &'a AffineExpr)>,
    ) -> Option<Vec<WindowedDim>> {
        let places = nest.dtype != DType::I32;
        let mut used = 0;
        let dims: Option<Vec<WindowedDim>> = maps
            .enumerate()
            .map(|(d, (scale, map))| {
                let (inside, result) = (self.program.values[value].shape[d] as i64, nest.extents[d] as i64);
                let (mut own, mut tap) = (0, None);
                for (l, c) in &map.terms {
                    match *l == d {
                        true => own += c,
                        false if tap.is_none() && *l >= nest.rank => tap = Some((*l, *c)),
                        false => return None,
                    }
                }
                let taps = tap.map_or(1, |(l, _)| nest.extents[l] as i64);
                let step_of = |l: usize| step.terms.iter().filter(|t| t.0 == l).map(|t| t.1).sum();
                used += usize::from(tap.is_some());
                let (dilation, step) = tap.map_or((0, 0), |(l, c)| (c, step_of(l)));
                let dim = if places {
                    let (windows, elements) = (inside, result);
                    let (stride, offset) = (scale, -map.constant);
                    WindowedDim { windows, elements, stride, offset, taps, dilation: -dilation, step }
                } else {
                    let (windows, elements) = (result, inside);
                    WindowedDim { windows, elements, stride: own, offset: map.constant, taps, dilation, step }
                };
                (own > 0 && (!places || own == 1)).then_some(dim)
            })
            .collect();
        dims.filter(|d| d.len() == nest.rank && used == nest.extents.len() - nest.rank)
    }
}

/// Returns true if a piece covers all indices of a nest.
fn is_full(p: &AccessPiece, nest: &LoopNest) -> bool {
    p.ranges.iter().zip(&nest.extents).all(|(s, n)| s.lo == 0 && s.step == 1 && s.hi == *n as i64)
}
