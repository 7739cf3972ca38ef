//! Lowers branches.
//!
//! If all devices choose the same branch, one nested program runs. If the choice varies over
//! devices, all branches run and each device selects its results.

use crate::core::{Axis, DType, Error, Result, Scalar, Shape};
use crate::ir::program::{Access, Equation, LoopNest, Program, ScalarArg, ScalarCode, ScalarOp};
use crate::partition::lower::equations::{LoweredValue, Lowering};
use crate::partition::program::{Slot, Step, StoredValue};
use crate::partition::{layout::Layout, lower::control::NestedInput, lower::varying::varying_axes};

impl Lowering {
    /// Lowers a `cond` equation, and returns its results.
    pub(crate) fn lower_branches(
        &mut self,
        program: &Program,
        e: &Equation,
        branches: &[std::sync::Arc<Program>],
        operands: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        let Some((which, rest)) = operands.split_first() else {
            return Err(Error::internal("cond has no operands"));
        };
        if !which.hidden().is_empty() {
            return self.select_branches(program, e, branches, which, rest);
        }
        let dtype = match which {
            LoweredValue::Lit(l) => l.dtype,
            LoweredValue::Slot(s, _) => self.draft.slots[*s].dtype,
        };
        let unsharded = Layout { dims: Vec::new(), partial: None };
        let which = self.store_as(which, dtype, &[], &unsharded);
        let axes: Vec<Vec<Axis>> = rest.iter().map(|v| v.hidden().to_vec()).collect();
        let mut hidden: Vec<Vec<Axis>> = vec![Vec::new(); e.outputs.len()];
        for b in branches {
            self.extend_hidden(&mut hidden, &varying_axes(b, axes.clone()));
        }
        let results: Vec<StoredValue> = (e.outputs.iter().zip(&hidden))
            .map(|(var, hidden)| {
                let info = &program.vars[var.index()];
                let shape: Shape =
                    self.axis_sizes(hidden).into_iter().chain(info.ty.shape.iter().copied()).collect();
                StoredValue { dtype: info.ty.dtype.storage(), shape, layout: self.layout_of(info, hidden) }
            })
            .collect();
        let mut slots = Vec::new();
        let (mut list, mut inside) = (Vec::new(), Vec::new());
        for b in branches {
            slots.clear();
            let ins: Vec<NestedInput> = rest.iter().map(|v| self.nested_input(v, &mut slots)).collect();
            let done = self.lower_nested(ins, (0..0, 1), |inner, vals| {
                let outs = inner.run(b, vals.to_vec())?;
                Ok(inner.store_carries(&outs, &results, &hidden))
            })?;
            let done = done.partitioned;
            list.push(done.program);
            inside.push((done.collectives, 1));
        }
        let out: Vec<Slot> =
            results.into_iter().map(|r| self.draft.add_slot(r.dtype, r.shape, r.layout)).collect();
        let step = Step::Branch { selector: which, branches: list, ins: slots, out: out.clone() };
        if let Some(item) = self.push_step(step) {
            item.info.nested_collectives = inside;
        }
        Ok(out.into_iter().zip(hidden).map(|(s, h)| LoweredValue::Slot(s, h)).collect())
    }

    /// Lowers branches whose selector varies over devices.
    /// All branches run, and each device selects its results.
    fn select_branches(
        &mut self,
        program: &Program,
        e: &Equation,
        branches: &[std::sync::Arc<Program>],
        which: &LoweredValue,
        rest: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        let mut results: Vec<Vec<LoweredValue>> = Vec::new();
        for b in branches {
            results.push(self.run(b, rest.to_vec())?);
        }
        let number = self.as_slot(which);
        let dtype = self.draft.slots[number].dtype;
        let mut outs = Vec::new();
        for (k, var) in e.outputs.iter().enumerate() {
            let info = &program.vars[var.index()];
            let all = results.iter().map(|r| &r[k]).chain([which]);
            let hidden = self.in_order(all.flat_map(|v| v.hidden().iter().copied()));
            let layout = self.layout_of(info, &hidden);
            let d = info.ty.dtype;
            // start with the results of the last branch; branch `b` replaces them where the clamped
            // selector is at most `b` (branch 0 where a bool selector is true)
            let mut kept = results[branches.len() - 1][k].clone();
            for b in (0..branches.len() - 1).rev() {
                let holds = self.branch_is_at_most(which, dtype, b);
                let choice = [&holds, &results[b][k], &kept];
                let slot = self.select(choice, &info.ty.shape, d, &hidden, &layout);
                kept = LoweredValue::Slot(slot, hidden.clone());
            }
            outs.push(kept);
        }
        Ok(outs)
    }

    /// Computes whether the selector is at most `b`.
    /// A bool selector is returned unchanged.
    fn branch_is_at_most(&mut self, which: &LoweredValue, dtype: DType, b: usize) -> LoweredValue {
        if dtype == DType::Bool {
            return which.clone();
        }
        let reads = vec![Access::from_loops(0, dtype, &[], &[])];
        let code = ScalarCode::single(
            ScalarOp::Le,
            dtype,
            DType::Bool,
            &[ScalarArg::Access(0), ScalarArg::Const(Scalar::from(b))],
        );
        let s = LoopNest::map(Vec::new(), DType::Bool, reads, code);
        let hidden = which.hidden().to_vec();
        let s = self.with_hidden_dims(s, std::slice::from_ref(which), &hidden);
        let layout = match which {
            LoweredValue::Slot(slot, _) => self.draft.slots[*slot].layout.clone(),
            LoweredValue::Lit(_) => Layout { dims: Vec::new(), partial: None },
        };
        LoweredValue::Slot(self.emit(s, layout, false), hidden)
    }
}
