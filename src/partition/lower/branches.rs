//! Lowering of branches: one program runs on all devices, or, where devices choose differently, all run and each takes its own.

use crate::diagnostic::{Error, Result};
use crate::mesh::Axis;
use crate::partition::layout::Layout;
use crate::partition::lower::control::Inner;
use crate::partition::lower::equations::{Lower, Val};
use crate::partition::lower::varying::varying;
use crate::partition::program::{Slot, Step, Stored, Why};
use crate::program::sentence::{Arg, Body, Code, Fun, Read, Sentence};
use crate::program::{Equation, Program};
use crate::types::{DType, Scalar, Shape};

impl Lower {
    pub(crate) fn branches(
        &mut self,
        program: &Program,
        e: &Equation,
        branches: &[std::sync::Arc<Program>],
        operands: &[Val],
        why: &Why,
    ) -> Result<Vec<Val>> {
        let Some((which, rest)) = operands.split_first() else {
            return Err(Error::internal("cond has no operands"));
        };
        if !which.hidden().is_empty() {
            return self.chosen(program, e, branches, which, rest, why);
        }
        let dtype = match which {
            Val::Lit(l) => l.dtype,
            Val::Slot(s, _) => self.draft.slots[*s].dtype,
        };
        let whole = Layout { dims: Vec::new(), partial: None };
        let which = self.stored(which, dtype, &[], &whole, why);
        let axes: Vec<Vec<Axis>> = rest.iter().map(|v| v.hidden().to_vec()).collect();
        let mut hidden: Vec<Vec<Axis>> = vec![Vec::new(); e.outputs.len()];
        for b in branches {
            self.grow(&mut hidden, &varying(b, axes.clone()));
        }
        let results: Vec<Stored> = (e.outputs.iter().zip(&hidden))
            .map(|(var, hidden)| {
                let info = &program.vars[var.index()];
                let shape: Shape =
                    self.sizes(hidden).into_iter().chain(info.ty.shape.iter().copied()).collect();
                Stored { dtype: info.ty.dtype.storage(), shape, layout: self.layout(info, hidden) }
            })
            .collect();
        let mut slots = Vec::new();
        let (mut list, mut inside) = (Vec::new(), Vec::new());
        for b in branches {
            slots.clear();
            let ins: Vec<Inner> = rest.iter().map(|v| self.fixed(v, &mut slots)).collect();
            let done = self.nested(ins, (0..0, 1), |inner, vals| {
                let outs = inner.run(b, vals.to_vec())?;
                Ok(inner.carried(&outs, &results, &hidden, why))
            })?;
            let done = done.localised;
            list.push(done.program);
            inside.push((done.collectives, 1));
        }
        let out: Vec<Slot> =
            results.into_iter().map(|r| self.draft.slot(r.dtype, r.shape, r.layout)).collect();
        let step = Step::Branch { which, branches: list, ins: slots, out: out.clone() };
        if let Some(item) = self.push(step, why) {
            item.inside = inside;
        }
        Ok(out.into_iter().zip(hidden).map(|(s, h)| Val::Slot(s, h)).collect())
    }

    /// Branches that devices take apart: all are run, and each device keeps its own one's results.
    fn chosen(
        &mut self,
        program: &Program,
        e: &Equation,
        branches: &[std::sync::Arc<Program>],
        which: &Val,
        rest: &[Val],
        why: &Why,
    ) -> Result<Vec<Val>> {
        let mut results: Vec<Vec<Val>> = Vec::new();
        for b in branches {
            results.push(self.run(b, rest.to_vec())?);
        }
        let number = self.as_slot(which, why);
        let dtype = self.draft.slots[number].dtype;
        let mut outs = Vec::new();
        for (k, var) in e.outputs.iter().enumerate() {
            let info = &program.vars[var.index()];
            let all = results.iter().map(|r| &r[k]).chain([which]);
            let hidden = self.in_order(all.flat_map(|v| v.hidden().iter().copied()));
            let layout = self.layout(info, &hidden);
            let d = info.ty.dtype;
            // of n branches the k-th where the (clamped) number is at most k; a bool: 0 is true's
            let mut kept = results[branches.len() - 1][k].clone();
            for b in (0..branches.len() - 1).rev() {
                let holds = self.compared(which, dtype, b, why);
                let choice = [&holds, &results[b][k], &kept];
                let slot = self.select(choice, &info.ty.shape, d, &hidden, &layout, why);
                kept = Val::Slot(slot, hidden.clone());
            }
            outs.push(kept);
        }
        Ok(outs)
    }

    /// Whether a branch number is at most `b`; of a bool, the bool itself.
    fn compared(&mut self, which: &Val, dtype: DType, b: usize, why: &Why) -> Val {
        if dtype == DType::Bool {
            return which.clone();
        }
        let reads = vec![Read::plain(0, dtype, &[], &[])];
        let code = Code::one(Fun::Le, dtype, DType::Bool, &[Arg::Read(0), Arg::Const(Scalar::from(b))]);
        let s = Sentence { extents: Vec::new(), rank: 0, dtype: DType::Bool, reads, body: Body::Map(code) };
        let hidden = which.hidden().to_vec();
        let s = self.batched(s, std::slice::from_ref(which), &hidden);
        let layout = match which {
            Val::Slot(slot, _) => self.draft.slots[*slot].layout.clone(),
            Val::Lit(_) => Layout { dims: Vec::new(), partial: None },
        };
        Val::Slot(self.emit(s, layout, why, false), hidden)
    }
}
