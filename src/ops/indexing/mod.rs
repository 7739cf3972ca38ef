//! Parts of arrays at places known at run time only: numbers say where they are.
//!
//! Their sentences bind loops to the numbers. The transposes are each other.

mod dynamic;
mod gather;
mod places;
mod scatter;

pub use dynamic::{DynamicSlice, DynamicUpdateSlice};
pub use gather::{Gather, nothing};
pub use places::Places;
pub use scatter::Scatter;

use crate::diagnostic::{ErrorKind, Fault, Result, Spot};
use crate::ops::creation::Full;
use crate::program::sentence::{Beyond, Bound, Combine, Read};
use crate::program::{Builder, Input, Op, Operand, Prim, Value};
use crate::types::{ArrayType, DType, Scalar};

/// A read of operand k that has one loop for each of its dimensions.
fn read(k: usize, dtype: DType, extents: &[usize], loops: impl IntoIterator<Item = usize>) -> Read {
    let loops: Vec<Option<usize>> = loops.into_iter().map(Some).collect();
    Read::plain(k, dtype, extents, &loops)
}

/// How far back a put is looked for.
const NEAR: usize = 256;

impl Builder {
    /// The sum of what is there and a cotangent. Where that is windows put onto zeros, they are put onto what is there: a sum in a loop then
    /// costs what is put, and not the whole array.
    pub fn accumulated(&mut self, sum: &Value, ct: &Value) -> Result<Value> {
        let made = match ct.input {
            Input::Var(v) => {
                self.program().equations.iter().rev().take(NEAR).find(|e| e.outputs[..] == [v]).cloned()
            }
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
        let adds = prim.downcast_ref::<Scatter>().is_some_and(|s| s.combine == Some(Combine::Add))
            || prim.downcast_ref::<DynamicUpdateSlice>().is_some_and(|s| s.combine == Some(Combine::Add));
        let value = |b: &Builder, i: &Input| Value { input: *i, ty: b.program().input_type(i) };
        if !adds || !self.onto_zeros(&inputs[0]) {
            return self.add(sum, ct);
        }
        let base = value(self, &inputs[0]);
        let onto = self.accumulated(sum, &base)?;
        let rest: Vec<Value> = inputs[1..].iter().map(|i| value(self, i)).collect();
        let args: Vec<Value> = std::iter::once(onto).chain(rest).collect();
        self.emit1(prim, &args)
    }
    /// Whether a value is zeros, or windows put onto zeros one after another.
    fn onto_zeros(&self, input: &Input) -> bool {
        let Input::Var(v) = input else { return false };
        let Some(e) = self.program().equations.iter().rev().take(NEAR).find(|e| e.outputs[..] == [*v]) else {
            return false;
        };
        let Op::Prim(prim) = &e.op else { return false };
        if let Some(full) = prim.downcast_ref::<Full>() {
            return full.value == Scalar::zero(full.ty.dtype);
        }
        let adds = prim.downcast_ref::<Scatter>().is_some_and(|s| s.combine == Some(Combine::Add))
            || prim.downcast_ref::<DynamicUpdateSlice>().is_some_and(|s| s.combine == Some(Combine::Add));
        adds && self.onto_zeros(&e.inputs[0])
    }
}

/// Refuses sizes that are not one for each dimension.
fn same_rank(name: &str, sizes: usize, x: &ArrayType) -> Result<(), Fault> {
    if sizes == x.rank() {
        return Ok(());
    }
    let message = format!("{name} speaks of {sizes} dimensions, but the array has {}", x.rank());
    Err(crate::ops::view::shape_fault(message))
}

/// Refuses numbers that say where and are no integers.
fn integers(operands: &[Operand], first: usize) -> Result<(), Fault> {
    match operands.iter().enumerate().skip(first).find(|(_, o)| !o.ty.dtype.is_integer()) {
        None => Ok(()),
        Some((k, o)) => {
            let message =
                format!("operand {} says where, and is {}: indices are integers", o.number(k), o.ty.dtype);
            Err(Fault::new(ErrorKind::Dtype, message)
                .help("convert it: `.astype(I32)`")
                .mark(o.number(k), Spot::Dtype))
        }
    }
}

/// Refuses an update of another element type than the array.
fn one_type(x: &ArrayType, u: &ArrayType) -> Result<(), Fault> {
    if x.dtype == u.dtype {
        return Ok(());
    }
    let message = format!("the update is {}, but the array {}", u.dtype, x.dtype);
    Err(Fault::new(ErrorKind::Dtype, message)
        .help(format!("convert the update: `.astype({:?})`", x.dtype))
        .mark(0, Spot::Dtype)
        .mark(1, Spot::Dtype))
}
