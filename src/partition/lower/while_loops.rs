//! Lowers `while` loops.
//!
//! If the condition varies over manual axes, each device runs its own loop. The loop then carries
//! one flag for each device, which is true while that device continues: the condition is computed
//! once before the loop and at the end of each iteration, and a device whose flag is false keeps
//! its carries. No device waits for another one, so nothing is communicated.

use crate::core::{Axes, Axis, DType, Result};
use crate::ir::program::{
    Access, Equation, LoopNest, Program, Reducer, ScalarArg, ScalarCode, ScalarOp, VarInfo, collective_over,
};
use crate::partition::assign::pipeline::PlannedProgram;
use crate::partition::layout::Layout;
use crate::partition::lower::control::NestedInput;
use crate::partition::lower::equations::{LoweredValue, Lowering};
use crate::partition::lower::varying::varying_axes;
use crate::partition::program::{Slot, Step, StoredValue};

/// The trip count of a `while` loop that costs are computed with.
const ASSUMED_WHILE_TRIPS: u64 = 16;

/// A program of a loop, with the number of its loop-invariant operands.
type LoopPart<'a> = (&'a Program, usize);

/// The stored carries of a loop, and the manual axes that each of them varies over.
struct StoredCarries {
    values: Vec<StoredValue>,
    hidden: Vec<Vec<Axis>>,
}

impl StoredCarries {
    fn inputs(&self) -> impl Iterator<Item = NestedInput> {
        self.values.iter().zip(&self.hidden).map(|(s, h)| s.clone().into_nested_input(h))
    }
}

impl Lowering {
    /// Lowers a `while` loop, and returns its results.
    pub(crate) fn lower_while(
        &mut self,
        program: &Program,
        e: &Equation,
        (cond, cond_fixed): LoopPart<'_>,
        (body, body_fixed): LoopPart<'_>,
        operands: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        let (for_cond, rest) = operands.split_at(cond_fixed);
        let (for_body, carry) = rest.split_at(body_fixed);
        let axes_of = |vals: &[LoweredValue]| vals.iter().map(|v| v.hidden().to_vec()).collect::<Vec<_>>();
        let mut hidden = axes_of(carry);
        let test = loop {
            let test = varying_axes(cond, [axes_of(for_cond), hidden.clone()].concat()).swap_remove(0);
            let mut outs = varying_axes(body, [axes_of(for_body), hidden.clone()].concat());
            // if devices stop after different numbers of iterations, their carries differ
            outs.iter_mut().for_each(|o| o.extend(&test));
            if !self.extend_hidden(&mut hidden, &outs) {
                break self.in_order(test);
            }
        };
        let mut carries =
            StoredCarries { values: self.carry_values(body, &body.inputs[body_fixed..], &hidden), hidden };
        let mut carry_slots = Vec::new();
        for (k, v) in carry.iter().enumerate() {
            let stored = &carries.values[k];
            carry_slots.push(self.store_as(v, stored.dtype, &carries.hidden[k], &stored.layout));
        }
        let (cond_slots, body_slots, tested, stepped);
        if test.is_empty() {
            (cond_slots, tested) = self.lower_condition(cond, for_cond, &carries)?;
            (body_slots, stepped) = self.lower_body(body, for_body, &carries)?;
        } else {
            let flag = self.device_flag(&test);
            let now = carry_slots.iter().zip(&carries.hidden).map(|(s, h)| LoweredValue::Slot(*s, h.clone()));
            let first = self.run(cond, for_cond.iter().cloned().chain(now).collect())?.swap_remove(0);
            carry_slots.push(self.store_as(&first, DType::Bool, &test, &flag.layout));
            carries.values.push(flag);
            carries.hidden.push(test.clone());
            let axes: Axes = test.into_iter().collect();
            // unchecked code may have collectives in such a loop: its devices iterate together
            let together = [cond, body].into_iter().any(|p| collective_over(p, &axes).is_some());
            (cond_slots, tested) = (Vec::new(), self.lower_flag(&carries, together)?);
            (body_slots, stepped) = self.lower_device_body((cond, for_cond), (body, for_body), &carries)?;
        }
        let add = |c: &StoredValue| self.draft.add_slot(c.dtype, c.shape.clone(), c.layout.clone());
        let out: Vec<Slot> = carries.values.iter().map(add).collect();
        let (tested, stepped) = (tested.partitioned, stepped.partitioned);
        let step = Step::While {
            cond: Box::new(tested.program),
            body: Box::new(stepped.program),
            cond_fixed: cond_slots,
            body_fixed: body_slots,
            carry: carry_slots,
            out: out.clone(),
        };
        if let Some(item) = self.push_step(step) {
            item.info.nested_collectives.push((tested.collectives.per_iteration(), 1));
            item.info.nested_collectives.push((stepped.collectives.per_iteration(), 1));
        }
        let mut placed = Vec::new();
        for ((slot, hidden), var) in out.into_iter().zip(carries.hidden).zip(&e.outputs) {
            placed.push(self.with_placement(LoweredValue::Slot(slot, hidden), &program.vars[var.index()]));
        }
        Ok(placed)
    }

    /// Returns a bool for each device along these axes, as a stored value.
    fn device_flag(&self, axes: &[Axis]) -> StoredValue {
        let info = VarInfo { ty: DType::Bool.array_type([]), placement: None };
        let shape = self.axis_sizes(axes).into_iter().collect();
        StoredValue { dtype: DType::Bool, shape, layout: self.layout_of(&info, axes) }
    }

    /// Lowers a condition that is equal on all devices.
    /// Returns its loop-invariant operands too.
    fn lower_condition(
        &mut self,
        cond: &Program,
        fixed: &[LoweredValue],
        carries: &StoredCarries,
    ) -> Result<(Vec<Slot>, PlannedProgram)> {
        self.lower_while_program(fixed, carries, |inner, vals| {
            let outs = inner.run(cond, vals.to_vec())?;
            Ok(vec![inner.any_device(&outs[0])])
        })
    }

    /// Lowers a body that all devices run equally often.
    /// Returns its loop-invariant operands too.
    fn lower_body(
        &mut self,
        body: &Program,
        fixed: &[LoweredValue],
        carries: &StoredCarries,
    ) -> Result<(Vec<Slot>, PlannedProgram)> {
        self.lower_while_program(fixed, carries, |inner, vals| {
            let next = inner.run(body, vals.to_vec())?;
            Ok(inner.store_carries(&next, &carries.values, &carries.hidden))
        })
    }

    /// Lowers a condition or body, which reads loop-invariant operands and then the carries.
    /// Returns its loop-invariant operands too.
    fn lower_while_program(
        &mut self,
        fixed: &[LoweredValue],
        carries: &StoredCarries,
        run: impl FnOnce(&mut Self, &[LoweredValue]) -> Result<Vec<Slot>>,
    ) -> Result<(Vec<Slot>, PlannedProgram)> {
        let mut slots = Vec::new();
        let mut ins: Vec<NestedInput> = fixed.iter().map(|v| self.nested_input(v, &mut slots)).collect();
        ins.extend(carries.inputs());
        let planned = self.lower_nested(ins, (0..slots.len(), ASSUMED_WHILE_TRIPS), run)?;
        self.adopt_inputs(&planned, 0, &mut slots);
        Ok((slots, planned))
    }

    /// Lowers the condition of a loop whose last carry says which devices continue.
    /// If they iterate `together`, the result is one bool for all devices.
    fn lower_flag(&mut self, carries: &StoredCarries, together: bool) -> Result<PlannedProgram> {
        let ins = carries.inputs().collect();
        self.lower_nested(ins, (0..0, ASSUMED_WHILE_TRIPS), |inner, vals| {
            let flag = &vals[vals.len() - 1];
            Ok(vec![if together { inner.any_device(flag) } else { inner.as_slot(flag) }])
        })
    }

    /// Lowers the body of a loop whose last carry says which devices continue.
    /// Returns its loop-invariant operands too.
    fn lower_device_body(
        &mut self,
        (cond, for_cond): (&Program, &[LoweredValue]),
        (body, for_body): (&Program, &[LoweredValue]),
        carries: &StoredCarries,
    ) -> Result<(Vec<Slot>, PlannedProgram)> {
        let mut slots = Vec::new();
        let fixed = for_body.iter().chain(for_cond);
        let mut ins: Vec<NestedInput> = fixed.map(|v| self.nested_input(v, &mut slots)).collect();
        ins.extend(carries.inputs());
        let StoredCarries { values, hidden } = carries;
        let planned = self.lower_nested(ins, (0..slots.len(), ASSUMED_WHILE_TRIPS), |inner, vals| {
            let (for_body, rest) = vals.split_at(for_body.len());
            let (for_cond, rest) = rest.split_at(for_cond.len());
            let (flag, carry) = rest.split_last().expect("a flag is the last carry");
            let next = inner.run(body, [for_body, carry].concat())?;
            let mut now = Vec::new();
            for (k, slot) in inner.store_carries(&next, values, hidden).into_iter().enumerate() {
                let next = LoweredValue::Slot(slot, hidden[k].clone());
                let block = &values[k].shape[hidden[k].len()..];
                let choice = [flag, &next, &carry[k]];
                let slot = inner.select(choice, block, values[k].dtype, &hidden[k], &values[k].layout);
                now.push(LoweredValue::Slot(slot, hidden[k].clone()));
            }
            let holds = inner.run(cond, [for_cond, &now].concat())?.swap_remove(0);
            let last = values.len() - 1;
            let holds = inner.store_as(&holds, DType::Bool, &hidden[last], &values[last].layout);
            Ok(now.iter().map(|v| inner.as_slot(v)).chain([holds]).collect())
        })?;
        self.adopt_inputs(&planned, 0, &mut slots);
        Ok((slots, planned))
    }

    /// Computes `choice[1]` where `choice[0]` is true, and `choice[2]` elsewhere.
    /// The result is stored with the given hidden dimensions.
    pub(crate) fn select(
        &mut self,
        choice: [&LoweredValue; 3],
        block: &[usize],
        dtype: DType,
        hidden: &[Axis],
        layout: &Layout,
    ) -> Slot {
        let all: Vec<_> = (0..block.len()).map(Some).collect();
        let reads = vec![
            Access::from_loops(0, DType::Bool, block, &[]),
            Access::from_loops(1, dtype, block, &all),
            Access::from_loops(2, dtype, block, &all),
        ];
        let code = ScalarCode::single(
            ScalarOp::Select,
            dtype,
            dtype,
            &[ScalarArg::Access(0), ScalarArg::Access(1), ScalarArg::Access(2)],
        );
        let s = LoopNest::map(block.to_vec(), dtype, reads, code);
        let operands: Vec<LoweredValue> = choice.into_iter().cloned().collect();
        let s = self.with_hidden_dims(s, &operands, hidden);
        self.emit(s, layout.clone(), false)
    }

    /// Computes whether a bool is true on any device.
    fn any_device(&mut self, v: &LoweredValue) -> Slot {
        let unsharded = Layout { dims: Vec::new(), partial: None };
        let slot = self.as_slot(v);
        let extents = self.axis_sizes(v.hidden());
        if extents.is_empty() {
            return self.draft.with_layout(slot, unsharded, &self.origin);
        }
        let all: Vec<_> = (0..extents.len()).map(Some).collect();
        let reads = vec![Access::from_loops(slot, DType::Bool, &extents, &all)];
        let (bool, code) = (DType::Bool, ScalarCode::copy(DType::Bool));
        let s = LoopNest::reduce(extents, 0, bool, reads, Reducer::Or, code);
        self.emit(s, unsharded, false)
    }
}
