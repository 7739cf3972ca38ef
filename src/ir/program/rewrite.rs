//! Queries and rewrites of loop nests.

use super::loop_nest::{
    Access, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, Source, StridedRange,
};
use crate::core::{DType, Scalar};
use smallvec::SmallVec;

impl Access {
    /// Returns the operands that the access reads, each once, in order of occurrence.
    pub fn sources(&self) -> SmallVec<[usize; 2]> {
        let mut slots = SmallVec::new();
        // a set, because a concatenation may have a large number of pieces
        let mut seen = std::collections::HashSet::new();
        let many = self.pieces.len() > 32;
        for p in &self.pieces {
            if let Source::Value(s) = p.source
                && (if many { seen.insert(s) } else { !slots.contains(&s) })
            {
                slots.push(s);
            }
        }
        slots
    }
    /// Returns true if the access reads one full value, with dimension d at the index of loop d.
    pub fn is_identity(&self, extents: &[usize], shape: &[usize]) -> bool {
        let [piece] = &self.pieces[..] else { return false };
        matches!(piece.source, Source::Value(_))
            && extents == shape
            && piece.ranges.iter().zip(extents).all(|(s, n)| *s == StridedRange::full(*n))
            && piece.map.iter().enumerate().all(|(d, m)| {
                // a dimension of size 1 may be read at a constant position
                m.constant == 0
                    && (m.terms[..] == [(d, 1)] || shape[d] == 1 && m.terms.iter().all(|t| extents[t.0] == 1))
            })
    }
}

impl LoopNest {
    /// Returns the operand that the loop nest copies unchanged; `None` if it does anything else.
    pub(crate) fn copied_operand(&self) -> Option<usize> {
        let code = self.compute.elementwise()?;
        let [read] = &self.accesses[..] else { return None };
        let [piece] = &read.pieces[..] else { return None };
        match piece.source {
            Source::Value(slot) if *code == ScalarCode::copy(self.dtype) => Some(slot),
            _ => None,
        }
    }
    /// Returns the operation that combines partial results.
    ///
    /// Partial results arise if loops are split further than the result's type says. For a gather,
    /// one partial result has the element, and all others have the minimum, so that the maximum
    /// preserves the element exactly, even a negative zero or NaN.
    pub(crate) fn partial_reducer(&self) -> Reducer {
        match &self.compute {
            Compute::Gather { .. } if self.dtype.storage() == DType::Bool => Reducer::Or,
            Compute::Gather { .. } => Reducer::Max,
            body => body.partial_reducer(),
        }
    }
    /// Returns true if an operand selects one step of the loop.
    pub(crate) fn is_dynamic_loop(&self, l: usize) -> bool {
        self.compute.dynamic_indices().iter().any(|b| b.loop_id == l)
    }
    /// Replaces source `from` by `to` in all accesses.
    pub(crate) fn replace_source(&mut self, from: usize, to: usize) {
        for p in self.accesses.iter_mut().flat_map(|r| &mut r.pieces) {
            if p.source == Source::Value(from) {
                p.source = Source::Value(to);
            }
        }
    }
    /// Turns an elementwise loop nest into one with `n` partial results.
    /// The first partial result is the value, and the others are zero.
    pub(crate) fn into_partials(mut self, n: usize) -> LoopNest {
        let Compute::Map(mut code) = self.compute else { return self };
        let index = self.extents.len();
        self.extents.push(n);
        for p in self.accesses.iter_mut().flat_map(|r| &mut r.pieces) {
            p.ranges.push(StridedRange::full(n));
        }
        let value = ScalarArg::Inst(code.insts.len() - 1);
        let at = [ScalarArg::Index(index), ScalarArg::Const(Scalar::Int(0))];
        let first = code.push(ScalarOp::Eq, DType::I64, DType::Bool, &at);
        code.push(
            ScalarOp::Select,
            self.dtype,
            self.dtype,
            &[first, value, ScalarArg::Const(Scalar::zero(self.dtype))],
        );
        self.compute = Compute::Reduce { reducer: Reducer::Add, code };
        self
    }
}
