//! What a sentence reads, and sentences made of others.

use super::sentence::{Arg, Body, Code, Combine, Fun, Read, Sentence, Source, Span};
use crate::types::{DType, Scalar};
use smallvec::SmallVec;

impl Read {
    /// The values that it touches, each once, in order.
    pub fn sources(&self) -> SmallVec<[usize; 2]> {
        let mut slots = SmallVec::new();
        // a concatenation may have very many parts
        let mut seen = std::collections::HashSet::new();
        let many = self.parts.len() > 32;
        for p in &self.parts {
            if let Source::Value(s) = p.from
                && (if many { seen.insert(s) } else { !slots.contains(&s) })
            {
                slots.push(s);
            }
        }
        slots
    }
    /// Whether it is all of a value, dimension by dimension at the result's loops, and nothing else.
    pub fn is_identity(&self, extents: &[usize], shape: &[usize]) -> bool {
        let [part] = &self.parts[..] else { return false };
        matches!(part.from, Source::Value(_))
            && extents == shape
            && part.span.iter().zip(extents).all(|(s, n)| *s == Span::all(*n))
            && part.map.iter().enumerate().all(|(d, m)| {
                // a dimension of size 1 may be read at a constant
                m.at == 0
                    && (m.terms[..] == [(d, 1)] || shape[d] == 1 && m.terms.iter().all(|t| extents[t.0] == 1))
            })
    }
}

impl Sentence {
    /// The value whose read it is, unchanged.
    pub(crate) fn copied(&self) -> Option<usize> {
        let code = self.body.elementwise()?;
        let [read] = &self.reads[..] else { return None };
        let [part] = &read.parts[..] else { return None };
        match part.from {
            Source::Value(slot) if *code == Code::copy(self.dtype) => Some(slot),
            _ => None,
        }
    }
    /// How its parts are put together where its loops are split beyond what its type says. Of what is taken one part has the element, and
    /// the others what is least: so it arrives as it is, a negative zero and NaN too.
    pub(crate) fn combine(&self) -> Combine {
        match &self.body {
            Body::Take { .. } if self.dtype.storage() == DType::Bool => Combine::Or,
            Body::Take { .. } => Combine::Max,
            body => body.combine(),
        }
    }
    /// The loop, if any, that a number binds.
    pub(crate) fn binds(&self, l: usize) -> bool {
        self.body.bound().iter().any(|b| b.index == l)
    }
    /// Reads `to` wherever it reads `from`.
    pub(crate) fn replace(&mut self, from: usize, to: usize) {
        for p in self.reads.iter_mut().flat_map(|r| &mut r.parts) {
            if p.from == Source::Value(from) {
                p.from = Source::Value(to);
            }
        }
    }
    /// A sentence over elements as one in `n` parts: the first is the value, the others are zero.
    pub(crate) fn in_parts(mut self, n: usize) -> Sentence {
        let Body::Map(mut code) = self.body else { return self };
        let index = self.extents.len();
        self.extents.push(n);
        for p in self.reads.iter_mut().flat_map(|r| &mut r.parts) {
            p.span.push(Span::all(n));
        }
        let value = Arg::Inst(code.insts.len() - 1);
        let at = [Arg::Index(index), Arg::Const(Scalar::Int(0))];
        let first = code.push(Fun::Eq, DType::I64, DType::Bool, &at);
        code.push(Fun::Select, self.dtype, self.dtype, &[first, value, Arg::Const(Scalar::zero(self.dtype))]);
        self.body = Body::Fold { combine: Combine::Add, code };
        self
    }
}
