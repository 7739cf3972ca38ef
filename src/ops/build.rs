//! Short names for primitives on a program under construction, for derivative rules and for operations made of several.
//!
//! Families add their own methods to [`Builder`] in blocks of their own.

use super::elementwise::{Binary, Bitcast, Clamp, Convert, Select, Unary};
use super::shape::BroadcastInDim;
use crate::diagnostic::{Error, Result};
use crate::mesh::{Axes, AxisType};
use crate::program::{Builder, Input, Prim, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// The type of a value's cotangent: its own with the unreduced and the reduced set traded.
pub fn cotangent_type(ty: &ArrayType) -> ArrayType {
    let spec = ty.spec;
    let traded = spec.unreduced(spec.reduced_axes()).reduced(spec.unreduced_axes());
    ArrayType { spec: traded, ..ty.clone() }
}

/// The error of transposing an operation along an operand in which it is not linear.
pub fn not_linear(name: &str) -> Error {
    Error::internal(format!("{name} is not linear in an operand whose cotangent is asked for"))
}

/// Axes over which the type is reduced and a literal beside it would not join: manual ones.
fn strict(ty: &ArrayType) -> Axes {
    let manual = |a| ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Manual));
    let r = ty.spec.reduced_axes();
    if r.iter().any(manual) { r.clone() } else { Axes::none() }
}

/// Elementwise.
impl Builder {
    fn one(&mut self, prim: Prim, x: &Value) -> Result<Value> {
        self.emit1(prim, std::slice::from_ref(x))
    }
    /// A function of one operand.
    pub fn unary(&mut self, f: Unary, x: &Value) -> Result<Value> {
        self.one(Arc::new(f), x)
    }
    /// A function of two operands.
    pub fn binary(&mut self, f: Binary, x: &Value, y: &Value) -> Result<Value> {
        self.emit1(Arc::new(f), &[x.clone(), y.clone()])
    }
    /// x + y
    pub fn add(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Add, x, y)
    }
    /// x - y
    pub fn sub(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Sub, x, y)
    }
    /// x · y
    pub fn mul(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Mul, x, y)
    }
    /// x / y
    pub fn div(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Div, x, y)
    }
    /// The greater of the two.
    pub fn max(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Max, x, y)
    }
    /// The lesser of the two.
    pub fn min(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Min, x, y)
    }
    /// Where they are equal.
    pub fn eq(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Eq, x, y)
    }
    /// -x
    pub fn neg(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Neg, x)
    }
    /// e to the x
    pub fn exp(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Exp, x)
    }
    /// The natural logarithm.
    pub fn log(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Log, x)
    }
    /// The sine.
    pub fn sin(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Sin, x)
    }
    /// The cosine.
    pub fn cos(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Cos, x)
    }
    /// The square.
    pub fn square(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Square, x)
    }
    /// x + c
    pub fn plus(&mut self, x: &Value, c: f64) -> Result<Value> {
        let c = self.number(&x.ty, c)?;
        self.add(x, &c)
    }
    /// x · c
    pub fn times(&mut self, x: &Value, c: f64) -> Result<Value> {
        let c = self.number(&x.ty, c)?;
        self.mul(x, &c)
    }
    /// x where `which` holds, else y.
    pub fn select(&mut self, which: &Value, x: &Value, y: &Value) -> Result<Value> {
        self.emit1(Arc::new(Select), &[which.clone(), x.clone(), y.clone()])
    }
    /// x, but not below `lo` and not above `hi`.
    pub fn clamp(&mut self, lo: &Value, x: &Value, hi: &Value) -> Result<Value> {
        self.emit1(Arc::new(Clamp), &[lo.clone(), x.clone(), hi.clone()])
    }
    /// As another element type; itself where it has it.
    pub fn convert(&mut self, x: &Value, dtype: DType) -> Result<Value> {
        if x.ty.dtype == dtype {
            return Ok(x.clone());
        }
        self.one(Arc::new(Convert { dtype }), x)
    }
    /// Its bits as another element type.
    pub fn bitcast(&mut self, x: &Value, dtype: DType) -> Result<Value> {
        self.one(Arc::new(Bitcast { dtype }), x)
    }
}

/// Numbers and zeros that join the operand beside them.
impl Builder {
    /// A number to compute with beside a value of type `like`: a literal, or where a literal would be refused (as a factor of an
    /// unreduced value; beside one that is reduced over manual axes) a scalar that is reduced over these axes.
    pub fn number(&mut self, like: &ArrayType, value: f64) -> Result<Value> {
        let value = if like.dtype.is_inexact() { Scalar::Float(value) } else { Scalar::Int(value as i128) };
        self.scalar(like, value)
    }
    fn scalar(&mut self, like: &ArrayType, value: Scalar) -> Result<Value> {
        let u = like.spec.unreduced_axes();
        let over = if u.is_empty() { strict(like) } else { u.clone() };
        if over.is_empty() {
            return Ok(Value::literal(like.dtype, value));
        }
        let spec = Spec::whole(0).reduced(over);
        let ty = ArrayType { mesh: like.mesh.clone(), spec, ..like.dtype.of([]) };
        self.full(&ty, value)
    }
    /// A vector of this number to compute with beside a value of type `like`, in any of its last dimensions.
    pub(super) fn vector_beside(&mut self, like: &ArrayType, n: usize, value: f64) -> Result<Value> {
        let over: Axes = like.spec.unreduced_axes().iter().chain(like.spec.reduced_axes().iter()).collect();
        let ty = like.dtype.of([n]);
        let spec = Spec::whole(1).reduced(over);
        self.full(&ArrayType { mesh: like.mesh.clone(), varying: like.varying.clone(), spec, ..ty }, value)
    }
    /// ct · other, where `other` may be a literal and ct unreduced.
    pub fn mul_by(&mut self, ct: &Value, other: &Value) -> Result<Value> {
        match &other.input {
            Input::Lit(l) => {
                let other = self.scalar(&ct.ty, l.value)?;
                self.mul(ct, &other)
            }
            Input::Var(_) => self.mul(ct, other),
        }
    }
    /// A zero that `select` takes beside a value of this type: a literal where it may be one.
    pub fn zero_beside(&mut self, ty: &ArrayType) -> Result<Value> {
        if ty.spec.unreduced_axes().is_empty() && strict(ty).is_empty() {
            return Ok(Value::literal(ty.dtype, Scalar::zero(ty.dtype)));
        }
        self.zeros(ty)
    }
    /// The sum of what is there; `None` is zero.
    pub fn sum_of(&mut self, x: Option<Value>, y: Option<Value>) -> Result<Option<Value>> {
        match (x, y) {
            (Some(x), Some(y)) => self.add(&x, &y).map(Some),
            (x, y) => Ok(x.or(y)),
        }
    }
    /// A tangent broadcast to the shape and sharding of its result.
    pub fn broadcast_like(&mut self, t: &Value, ty: &ArrayType) -> Result<Value> {
        let dims: Vec<usize> = (ty.rank() - t.ty.rank()..ty.rank()).collect();
        self.broadcast_in_dim_as(t, &ty.shape, &dims, ty.spec)
    }
    /// Broadcast with exactly this sharding, which is asked for only where it would come out otherwise.
    pub fn broadcast_in_dim_as(
        &mut self,
        x: &Value,
        shape: &Shape,
        dims: &[usize],
        want: Spec,
    ) -> Result<Value> {
        let explicit = |a| x.ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Explicit));
        if x.ty.shape == *shape && x.ty.spec.only(explicit) == want.only(explicit) {
            return Ok(x.clone());
        }
        let make = |out| {
            let broadcast_dimensions = dims.to_vec();
            Arc::new(BroadcastInDim { shape: shape.clone(), broadcast_dimensions, out }) as Prim
        };
        self.emit_as(make, std::slice::from_ref(x), want)
    }
    /// The cotangent of an operand of this type that was broadcast: summed over what was stretched, and sharded over explicit axes
    /// as the operand's cotangent does.
    pub fn unbroadcast(&mut self, ct: &Value, ty: &ArrayType) -> Result<Value> {
        let want = cotangent_type(ty);
        let lead = ct.ty.rank() - want.rank();
        let stretched = |d: usize| want.shape[d] == 1 && ct.ty.shape[lead + d] != 1;
        let (gone, kept): (Vec<usize>, Vec<usize>) = (0..want.rank()).partition(|d| stretched(*d));
        let axes: Vec<usize> = (0..lead).chain(gone.iter().map(|d| lead + d)).collect();
        if axes.is_empty() {
            return self.broadcast_in_dim_as(ct, &want.shape, &kept, want.spec);
        }
        let entries: Vec<Axes> = kept.iter().map(|d| Axes::from(want.spec.dim(*d))).collect();
        let sum = self.reduce_sum_as(ct, &axes, Some(want.spec.with_dims(entries)))?;
        if gone.iter().all(|d| want.spec.dim(*d).is_empty()) {
            return self.expand_dims(&sum, &gone);
        }
        self.broadcast_in_dim_as(&sum, &want.shape, &kept, want.spec)
    }
}
