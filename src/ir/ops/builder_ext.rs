//! Methods of `Builder` that emit primitives, for derivative rules and composite operations.
//!
//! This module has the elementwise operations and constants. Other families of primitives add their
//! methods to [`Builder`] in their own modules.

use super::elementwise::{Binary, Bitcast, Clamp, Convert, Select, Unary};
use super::shape::BroadcastInDim;
use crate::core::{ArrayType, Axes, AxisType, DType, Result, Scalar, Shape, Spec};
use crate::ir::program::{Builder, Input, Prim, Value, typing::cotangent_type};
use std::sync::Arc;

/// Returns the reduced axes of a type if any of them is manual, and no axes otherwise.
///
/// A literal cannot be multiplied with a value that is reduced over manual axes.
fn manual_reduced_axes(ty: &ArrayType) -> Axes {
    let manual = |a| ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Manual));
    let r = ty.spec.reduced_axes();
    if r.iter().any(manual) { r.clone() } else { Axes::none() }
}

/// Emits elementwise operations.
impl Builder {
    /// Emits a primitive with one operand.
    fn emit_unary(&mut self, prim: Prim, x: &Value) -> Result<Value> {
        self.emit1(prim, std::slice::from_ref(x))
    }
    /// Emits an elementwise function of one operand.
    pub fn unary(&mut self, f: Unary, x: &Value) -> Result<Value> {
        self.emit_unary(Arc::new(f), x)
    }
    /// Emits an elementwise function of two operands.
    pub fn binary(&mut self, f: Binary, x: &Value, y: &Value) -> Result<Value> {
        self.emit1(Arc::new(f), &[x.clone(), y.clone()])
    }
    /// Emits `x + y`.
    pub fn add(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Add, x, y)
    }
    /// Emits `x - y`.
    pub fn sub(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Sub, x, y)
    }
    /// Emits `x · y`.
    pub fn mul(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Mul, x, y)
    }
    /// Emits `x / y`.
    pub fn div(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Div, x, y)
    }
    /// Emits the elementwise maximum of two values.
    pub fn max(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Max, x, y)
    }
    /// Emits the elementwise minimum of two values.
    pub fn min(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Min, x, y)
    }
    /// Emits an elementwise test for equality.
    pub fn eq(&mut self, x: &Value, y: &Value) -> Result<Value> {
        self.binary(Binary::Eq, x, y)
    }
    /// Emits `-x`.
    pub fn neg(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Neg, x)
    }
    /// Emits e raised to the power `x`.
    pub fn exp(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Exp, x)
    }
    /// Emits the natural logarithm.
    pub fn log(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Log, x)
    }
    /// Emits the sine.
    pub fn sin(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Sin, x)
    }
    /// Emits the cosine.
    pub fn cos(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Cos, x)
    }
    /// Emits the square.
    pub fn square(&mut self, x: &Value) -> Result<Value> {
        self.unary(Unary::Square, x)
    }
    /// Emits `x + c`.
    pub fn add_scalar(&mut self, x: &Value, c: f64) -> Result<Value> {
        let c = self.constant_like(&x.ty, c)?;
        self.add(x, &c)
    }
    /// Emits `x · c`.
    pub fn mul_scalar(&mut self, x: &Value, c: f64) -> Result<Value> {
        let c = self.constant_like(&x.ty, c)?;
        self.mul(x, &c)
    }
    /// Emits `x` where `which` is true and `y` elsewhere.
    pub fn select(&mut self, which: &Value, x: &Value, y: &Value) -> Result<Value> {
        self.emit1(Arc::new(Select), &[which.clone(), x.clone(), y.clone()])
    }
    /// Emits `x` limited to the range from `lo` to `hi`.
    pub fn clamp(&mut self, lo: &Value, x: &Value, hi: &Value) -> Result<Value> {
        self.emit1(Arc::new(Clamp), &[lo.clone(), x.clone(), hi.clone()])
    }
    /// Converts a value to another element type; returns it unchanged if it has that type.
    pub fn convert(&mut self, x: &Value, dtype: DType) -> Result<Value> {
        if x.ty.dtype == dtype { Ok(x.clone()) } else { self.emit_unary(Arc::new(Convert { dtype }), x) }
    }
    /// Reinterprets the bits of a value as another element type of the same width.
    pub fn bitcast(&mut self, x: &Value, dtype: DType) -> Result<Value> {
        self.emit_unary(Arc::new(Bitcast { dtype }), x)
    }
}

/// Emits constants that can be combined with another operand.
impl Builder {
    /// Returns true if a value is unreduced over an axis that is not manual.
    ///
    /// A literal cannot be multiplied with such a value, and it cannot be divided.
    pub(super) fn is_unreduced_outside(ty: &ArrayType) -> bool {
        let manual = |a| ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Manual));
        !ty.spec.unreduced_axes().iter().all(manual)
    }
    /// Returns a constant that can be combined with a value of type `like`.
    ///
    /// The constant is a literal if possible. A literal cannot be multiplied with a value that is
    /// unreduced over axes that are not manual, or reduced over manual axes. Next to such a value,
    /// the constant is a scalar that is reduced over the axes.
    pub fn constant_like(&mut self, like: &ArrayType, value: f64) -> Result<Value> {
        let value = if like.dtype.is_inexact() { Scalar::Float(value) } else { Scalar::Int(value as i128) };
        self.scalar_like(like, value)
    }
    /// Returns the scalar `value` as [`constant_like`](Builder::constant_like) does.
    fn scalar_like(&mut self, like: &ArrayType, value: Scalar) -> Result<Value> {
        let (u, r) = (like.spec.unreduced_axes(), manual_reduced_axes(like));
        let over: Axes = if Builder::is_unreduced_outside(like) || u.is_empty() {
            u.iter().chain(&r).collect()
        } else {
            Axes::none()
        };
        if over.is_empty() {
            return Ok(Value::literal(like.dtype, value));
        }
        let spec = Spec::replicated(0).reduced(over);
        let ty = ArrayType { mesh: like.mesh.clone(), spec, ..like.dtype.array_type([]) };
        self.full(&ty, value)
    }
    /// Returns a constant vector of `n` elements that can be combined with a value of type `like`.
    ///
    /// The vector can broadcast along any of the last dimensions.
    pub(super) fn vector_like(&mut self, like: &ArrayType, n: usize, value: f64) -> Result<Value> {
        let over: Axes = like.spec.unreduced_axes().iter().chain(like.spec.reduced_axes().iter()).collect();
        let ty = like.dtype.array_type([n]);
        let spec = Spec::replicated(1).reduced(over);
        self.full(&ArrayType { mesh: like.mesh.clone(), varying: like.varying.clone(), spec, ..ty }, value)
    }
    /// Emits `ct · other`, where `ct` may be unreduced and `other` may be a literal.
    pub fn mul_cotangent(&mut self, ct: &Value, other: &Value) -> Result<Value> {
        match &other.input {
            Input::Lit(l) => {
                let other = self.scalar_like(&ct.ty, l.value)?;
                self.mul(ct, &other)
            }
            Input::Var(_) => self.mul(ct, other),
        }
    }
    /// Returns a zero that can be an operand of `select` next to a value of type `ty`.
    ///
    /// The zero is a literal if possible, otherwise an array of type `ty`.
    pub fn zero_like(&mut self, ty: &ArrayType) -> Result<Value> {
        if ty.spec.unreduced_axes().is_empty() {
            return Ok(Value::literal(ty.dtype, Scalar::zero(ty.dtype)));
        }
        self.zeros(ty)
    }
    /// Emits zeros of type `expected`, which are an operand next to the cotangent `ct`.
    ///
    /// Over the manual axes over which the cotangent varies, they are in no set.
    pub(super) fn zeros_next_to(&mut self, ct: &Value, expected: &ArrayType) -> Result<Value> {
        let spec = expected.spec;
        let [u, r] = [spec.unreduced_axes(), spec.reduced_axes()].map(|axes| axes.without(&ct.ty.varying));
        self.zeros(&ArrayType { spec: spec.unreduced(u).reduced(r), ..expected.clone() })
    }
    /// Emits the sum of two optional values; `None` is zero.
    pub fn add_optional(&mut self, x: Option<Value>, y: Option<Value>) -> Result<Option<Value>> {
        match (x, y) {
            (Some(x), Some(y)) => self.add(&x, &y).map(Some),
            (x, y) => Ok(x.or(y)),
        }
    }
    /// Broadcasts a tangent to the shape and sharding of a result of type `ty`.
    pub fn broadcast_like(&mut self, t: &Value, ty: &ArrayType) -> Result<Value> {
        let dims: Vec<usize> = (ty.rank() - t.ty.rank()..ty.rank()).collect();
        self.broadcast_in_dim_to(t, &ty.shape, &dims, ty.spec)
    }
    /// Broadcasts a value to exactly the sharding `want`.
    ///
    /// The sharding is requested explicitly only if type inference would give another one.
    pub fn broadcast_in_dim_to(
        &mut self,
        x: &Value,
        shape: &Shape,
        dims: &[usize],
        want: Spec,
    ) -> Result<Value> {
        let explicit = |a| x.ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Explicit));
        if x.ty.shape == *shape && x.ty.spec.filter_axes(explicit) == want.filter_axes(explicit) {
            return Ok(x.clone());
        }
        let make = |out| {
            let broadcast_dimensions = dims.to_vec();
            Arc::new(BroadcastInDim { shape: shape.clone(), broadcast_dimensions, out_sharding: out }) as Prim
        };
        self.emit_with_sharding(&make, std::slice::from_ref(x), want)
    }
    /// Returns the cotangent of an operand of type `ty` that was broadcast to the shape of `ct`.
    ///
    /// This sums over the dimensions that were broadcast. Over explicit axes, the result has the
    /// sharding of the operand's cotangent type.
    pub fn unbroadcast(&mut self, ct: &Value, ty: &ArrayType) -> Result<Value> {
        let expected = cotangent_type(ty);
        let lead = ct.ty.rank() - expected.rank();
        let stretched = |d: usize| expected.shape[d] == 1 && ct.ty.shape[lead + d] != 1;
        let (gone, kept): (Vec<usize>, Vec<usize>) = (0..expected.rank()).partition(|d| stretched(*d));
        let axes: Vec<usize> = (0..lead).chain(gone.iter().map(|d| lead + d)).collect();
        if axes.is_empty() {
            return self.broadcast_in_dim_to(ct, &expected.shape, &kept, expected.spec);
        }
        let entries: Vec<Axes> = kept.iter().map(|d| Axes::from(expected.spec.dim(*d))).collect();
        let sum = self.reduce_sum_to(ct, &axes, Some(expected.spec.with_dims(entries)))?;
        if gone.iter().all(|d| expected.spec.dim(*d).is_empty()) {
            return self.expand_dims(&sum, &gone);
        }
        self.broadcast_in_dim_to(&sum, &expected.shape, &kept, expected.spec)
    }
}
