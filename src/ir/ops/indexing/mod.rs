//! Primitives that read and write at indices known only at run time.
//!
//! In the loop nests of these primitives, index operands select a step of a loop. Gather and
//! scatter-add are transposes of each other, and so are `dynamic_slice` and `dynamic_update_slice`
//! with addition.

mod dimension_numbers;
mod dynamic_slice;
mod gather;
mod scatter;

pub use dimension_numbers::GatherDims;
pub use dynamic_slice::{DynamicSlice, DynamicUpdateSlice};
pub use gather::{Gather, fill_value};
pub use scatter::Scatter;

use crate::core::{ArrayType, DType, Fault, Result, Scalar, TypePart};
use crate::ir::ops::creation::Full;
use crate::ir::program::{
    Access, Builder, DynamicIndex, Input, Op, OutOfBounds, Prim, Reducer, TypedOperand, Value,
};

/// Returns an access of operand `k` with one loop for each of its dimensions.
fn access(k: usize, dtype: DType, extents: &[usize], loops: impl IntoIterator<Item = usize>) -> Access {
    let loops: Vec<Option<usize>> = loops.into_iter().map(Some).collect();
    Access::from_loops(k, dtype, extents, &loops)
}

/// The maximum number of equations to search backward for the scatter that computed a value.
const MAX_LOOKBACK_EQUATIONS: usize = 256;

impl Builder {
    /// Adds a cotangent to a sum of cotangents.
    ///
    /// If the cotangent is a scatter-add onto zeros, its update is scattered onto `sum` instead.
    /// The cost of a sum in a loop is then proportional to the updates, and not to the whole array.
    pub fn accumulate_cotangent(&mut self, sum: &Value, ct: &Value) -> Result<Value> {
        let made = match ct.input {
            Input::Var(v) => self
                .program()
                .equations
                .iter()
                .rev()
                .take(MAX_LOOKBACK_EQUATIONS)
                .find(|e| e.outputs[..] == [v])
                .cloned(),
            Input::Lit(_) => None,
        };
        let Some((Op::Prim(prim), inputs)) = made.map(|e| (e.op, e.inputs)) else { return self.add(sum, ct) };
        let zeros =
            |prim: &Prim| prim.downcast_ref::<Full>().is_some_and(|f| f.value == Scalar::zero(f.ty.dtype));
        if sum.ty != ct.ty {
            return self.add(sum, ct);
        }
        if zeros(&prim) {
            return Ok(sum.clone());
        }
        let adds = prim.downcast_ref::<Scatter>().is_some_and(|s| s.reducer == Some(Reducer::Add))
            || prim.downcast_ref::<DynamicUpdateSlice>().is_some_and(|s| s.reducer == Some(Reducer::Add));
        let value = |b: &Builder, i: &Input| Value { input: *i, ty: b.program().input_type(i) };
        if !adds || !self.is_scatter_onto_zeros(&inputs[0]) {
            return self.add(sum, ct);
        }
        let base = value(self, &inputs[0]);
        // a scatter that makes partial values starts from zeros that are not partial
        if base.ty != ct.ty {
            return self.add(sum, ct);
        }
        let onto = self.accumulate_cotangent(sum, &base)?;
        let rest: Vec<Value> = inputs[1..].iter().map(|i| value(self, i)).collect();
        let args: Vec<Value> = std::iter::once(onto).chain(rest).collect();
        self.emit1(prim, &args)
    }
    /// Returns true if a value is zeros, or the result of scatter-adds onto zeros.
    fn is_scatter_onto_zeros(&self, input: &Input) -> bool {
        let Input::Var(v) = input else { return false };
        let Some(e) = self
            .program()
            .equations
            .iter()
            .rev()
            .take(MAX_LOOKBACK_EQUATIONS)
            .find(|e| e.outputs[..] == [*v])
        else {
            return false;
        };
        let Op::Prim(prim) = &e.op else { return false };
        if let Some(full) = prim.downcast_ref::<Full>() {
            return full.value == Scalar::zero(full.ty.dtype);
        }
        let adds = prim.downcast_ref::<Scatter>().is_some_and(|s| s.reducer == Some(Reducer::Add))
            || prim.downcast_ref::<DynamicUpdateSlice>().is_some_and(|s| s.reducer == Some(Reducer::Add));
        adds && self.is_scatter_onto_zeros(&e.inputs[0])
    }
}

/// Returns an error if the number of sizes is not the rank of the array.
fn check_rank(name: &str, sizes: usize, x: &ArrayType) -> Result<(), Fault> {
    if sizes == x.rank() {
        return Ok(());
    }
    let message = format!("{name} has sizes for {sizes} dimensions, but the array has {}", x.rank());
    Err(crate::ir::ops::dim_check::shape_fault(message))
}

/// Returns an error if an index operand is not an integer.
fn check_integer_indices(operands: &[TypedOperand], first: usize) -> Result<(), Fault> {
    match operands.iter().enumerate().skip(first).find(|(_, o)| !o.ty.dtype.is_integer()) {
        None => Ok(()),
        Some((k, o)) => Err(fault!(
            Dtype,
            "operand {} is an index, but has type {}: indices must be integers",
            o.user_index(k),
            o.ty.dtype
        )
        .help("convert it: `.astype(I32)`")
        .highlight(o.user_index(k), TypePart::Dtype)),
    }
}

/// Returns an error if the update has another element type than the array.
fn check_update_dtype(x: &ArrayType, u: &ArrayType) -> Result<(), Fault> {
    if x.dtype == u.dtype {
        return Ok(());
    }
    Err(fault!(Dtype, "the update is {}, but the array {}", u.dtype, x.dtype)
        .help(format!("convert the update: `.astype({:?})`", x.dtype))
        .highlight(0, TypePart::Dtype)
        .highlight(1, TypePart::Dtype))
}
