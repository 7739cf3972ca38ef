//! Matrix products: `dot`, `matmul` and `dot_general`.
//!
//! Each has a `_to` variant that takes the result's sharding, for operands whose shardings leave it
//! ambiguous. All of them apply the `dot_general` primitive.

use super::operand::{self, Term};
use super::{Array, contraction::Contraction, errors, prims};
use crate::api::trace::apply1;
use crate::core::{ArrayType, DType, Precision, Spec};
use crate::ir::program::{CallSite, UserOperand};
use std::borrow::Borrow;

/// Options of matrix products and einsums: the result's sharding, the accumulation type and the
/// precision.
///
/// They are built by chaining: `x.matmul_with(&w, DotOptions::default().accum_dtype(F32))`.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::ones([2, 2]).astype(BF16);
/// let y = x.matmul_with(&x, DotOptions::default().accum_dtype(F32));
/// assert_eq!(type_of(&y), "float32[2,2]");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DotOptions {
    /// The result's sharding, possibly unreduced; `None` if it follows from the operands.
    pub out_sharding: Option<Spec>,
    /// The accumulation and result type (JAX's `preferred_element_type`).
    ///
    /// `None` means the operands' type.
    pub accum_dtype: Option<DType>,
    /// The precision of float32 products on XLA's accelerators.
    ///
    /// `None` means the process's [default](crate::default_matmul_precision).
    pub precision: Option<Precision>,
}

impl DotOptions {
    setters! {
        /// Sets the result's sharding; it may leave the result unreduced.
        ///
        /// ```
        /// use atmesh::{DotOptions, prelude::*};
        /// let options = DotOptions::default().out_sharding(p!["X"]).accum_dtype(F32);
        /// assert_eq!((options.out_sharding, options.accum_dtype), (Some(p!["X"]), Some(F32)));
        /// ```
        pub fn out_sharding(out: Spec) = out_sharding: Some(out);
        /// Sets the element type of the accumulation and of the result.
        #[doc(alias = "preferred_element_type")]
        pub fn accum_dtype(dtype: DType) = accum_dtype: Some(dtype);
        /// Sets the precision of float32 products on XLA's accelerators.
        ///
        /// ```
        /// use atmesh::{DotOptions, Precision, prelude::*};
        /// let fast = DotOptions::default().precision(Precision::Default);
        /// let f = jit(move |x: &Array| x.matmul_with(x, fast.clone()));
        /// assert!(f.trace(F32.array_type([2, 2]))?.to_string().contains("precision=default"));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn precision(precision: Precision) = precision: Some(precision);
    }
    /// Returns options with this result sharding and default types.
    pub(super) fn with_out_sharding(out_sharding: Option<Spec>) -> DotOptions {
        DotOptions { out_sharding, ..DotOptions::default() }
    }
}

/// # Products
impl Array {
    forward! {
        /// Multiplies arrays of rank 1 or 2: inner, matrix-vector and matrix-matrix products.
        ///
        /// If both contracted dimensions are sharded, the result's sharding is ambiguous, which is
        /// an error: use [`Array::dot_to`].
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
        /// assert_eq!(x.dot(&Array::from([1.0f32, 1.0])).to_vec::<f32>()?, [3.0, 7.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn dot(b: impl Borrow<Array>) = dot_at(b.borrow(), None), or "x.dot_to(&w, {})";
        /// Computes [`Array::dot`] with the result sharded (or left unreduced) as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
        /// let w = Array::ones([8, 2]).put(&mesh, p!["X", _]);
        /// assert_eq!(type_of(x.dot_to(&w, p!["X", _])), "float32[4@X,2]");
        /// assert_eq!(type_of(x.dot_to(&w, p![_, _; U: "X"])), "float32[4,2]{U:X}");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn dot_to(b: impl Borrow<Array>, out: Spec) = dot_at(b.borrow(), Some(out));
        /// Multiplies matrices, or stacks of matrices, like NumPy's `matmul`.
        ///
        /// The last two dimensions are the matrices; leading dimensions broadcast. An array of rank
        /// 1 is treated as a vector. If both contracted dimensions are sharded, it is an error: use
        /// [`Array::matmul_to`].
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::ones([5, 4, 8]);
        /// assert_eq!(x.matmul(Array::ones([8, 2])).shape()?, [5, 4, 2]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn matmul(b: impl Borrow<Array>)
            = matmul_at(b.borrow(), DotOptions::default()), or "x.matmul_to(&w, {})";
        /// Computes [`Array::matmul`] with the result sharded (or left unreduced) as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::ones([3, 4, 8]).put(&mesh, p![_, _, "X"]);
        /// let w = Array::ones([8, 2]).put(&mesh, p!["X", _]);
        /// assert_eq!(type_of(x.matmul_to(&w, p![_, "X"])), "float32[3,4@X,2]");
        /// assert!(x.matmul(&w).ty().is_err(), "the result could be sharded in several ways");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn matmul_to(b: impl Borrow<Array>, out: Spec)
            = matmul_at(b.borrow(), DotOptions::with_out_sharding(Some(out)));
        /// Computes [`Array::matmul`] with options: the result's sharding and the accumulation
        /// type.
        ///
        /// ```
        /// use atmesh::{DotOptions, prelude::*};
        /// let x = Array::ones(BF16.array_type([1, 1000]));
        /// let in_f32 = DotOptions::default().accum_dtype(F32);
        /// assert_eq!(type_of(x.matmul_with(x.t(), in_f32)), "float32[1,1]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn matmul_with(b: impl Borrow<Array>, options: DotOptions)
            = matmul_at(b.borrow(), options), or "x.matmul_with(&w, how.out_sharding({}))";
    }
    /// Implements [`Array::dot`].
    fn dot_at(&self, b: &Array, out: Option<Spec>, call: CallSite<'_>) -> Array {
        for ty in ok_or_return!(operand::types([self, b])) {
            if !(1..=2).contains(&ty.rank()) {
                let fault =
                    fault!(Shape, "an array has rank {}: `dot` takes arrays of rank 1 or 2", ty.rank());
                let fault = match ty.rank() {
                    0 => fault.help("multiply by a scalar: `a * b`"),
                    _ => fault.help("use `matmul` for stacks of matrices, or `einsum`"),
                };
                return operand::reject(fault, &operand_pair(self, b), call);
            }
        }
        self.matmul_at(b, DotOptions::with_out_sharding(out), call)
    }
    /// Implements [`Array::matmul`].
    pub(super) fn matmul_at(&self, b: &Array, options: DotOptions, call: CallSite<'_>) -> Array {
        let [ta, tb] = ok_or_return!(operand::types([self, b]));
        let reject = |fault| operand::reject(fault, &operand_pair(self, b), call);
        if ta.rank() == 0 || tb.rank() == 0 {
            let fault = fault!(Shape, "`{}` takes arrays of rank 1 and more", call.op);
            return reject(fault.help("multiply by a scalar: `a * b`"));
        }
        let (a_mat, b_mat) = (ta.rank() > 1, tb.rank() > 1);
        let a_lead = &ta.shape[..ta.rank() - 1 - usize::from(a_mat)];
        let b_lead = &tb.shape[..tb.rank() - 1 - usize::from(b_mat)];
        let lead = a_lead.len().max(b_lead.len());
        // the result's dimensions: batch, then left, then right, in the order of `dot_general`
        let (mut batch, mut a_other, mut b_other) = (Vec::new(), Vec::new(), Vec::new());
        let (mut a_ones, mut b_ones) = (Vec::new(), Vec::new());
        let mut pairs = Vec::new();
        for i in 0..lead {
            let at = |dims: &[usize]| (i + dims.len()).checked_sub(lead).map(|d| (d, dims[d]));
            match (at(a_lead), at(b_lead)) {
                (None, _) => b_other.push(i),
                (_, None) => a_other.push(i),
                (Some((d, 1)), Some(_)) if ta.spec.dim(d).is_empty() => {
                    b_other.push(i);
                    a_ones.push(d);
                }
                (Some(_), Some((e, 1))) if tb.spec.dim(e).is_empty() => {
                    a_other.push(i);
                    b_ones.push(e);
                }
                (Some((d, n)), Some((e, m))) if n == m => {
                    if ta.spec.dim(d) != tb.spec.dim(e) {
                        return reject(errors::sharding_mismatch((0, ta, d), (1, tb, e)));
                    }
                    pairs.push((batch.len() + a_other.len(), batch.len() + b_other.len()));
                    batch.push(i);
                }
                (Some((d, 1)), Some(_)) => return reject(errors::sharded_unit_dim(0, ta, d)),
                (Some(_), Some((e, 1))) => return reject(errors::sharded_unit_dim(1, tb, e)),
                (Some((d, n)), Some((e, m))) => {
                    let fault = fault!(
                        Shape,
                        "dimension {d} of operand 0 has size {n}, dimension {e} of operand 1 size {m}: leading dimensions must be equal, or one of them 1"
                    );
                    let help = "make them equal: `slice`, `pad`; a size of 1 is repeated";
                    return reject(fault.highlight_dim(0, d).highlight_dim(1, e).help(help));
                }
            }
        }
        let (x, y) = (self.squeeze_at(&a_ones, call), b.squeeze_at(&b_ones, call));
        let (ra, rb) = (ta.rank() - a_ones.len(), tb.rank() - b_ones.len());
        if a_mat {
            a_other.push(lead);
        }
        if b_mat {
            b_other.push(lead + usize::from(a_mat));
        }
        let made: Vec<usize> = batch.iter().chain(&a_other).chain(&b_other).copied().collect();
        let how = Contraction { contracting: vec![(ra - 1, rb - 1 - usize::from(b_mat))], batch: pairs };
        let kept = |ty: &ArrayType, ones: &[usize]| (0..ty.rank()).filter(|d| !ones.contains(d)).collect();
        let dims: [Vec<usize>; 2] = [kept(ta, &a_ones), kept(tb, &b_ones)];
        let of = |number: usize, ty| UserOperand { index: number, ty: Some(ty), dims: Some(&dims[number]) };
        let describe = || operand::describe_all(&operand_pair(self, b));
        x.contract_into(&y, &how, &made, options, call.with_operands(&describe, &[of(0, ta), of(1, tb)]))
    }
    /// Contracts this array with `b` and transposes the product.
    ///
    /// Dimension k of the product becomes dimension `made[k]` of the result; `options.out_sharding`
    /// refers to the result.
    pub(super) fn contract_into(
        &self,
        b: &Array,
        how: &Contraction,
        made: &[usize],
        options: DotOptions,
        call: CallSite<'_>,
    ) -> Array {
        let sorted = made.iter().copied().eq(0..made.len());
        let out = options.out_sharding.map(|spec| {
            let dims = spec.dims();
            if sorted || dims.len() > made.len() {
                return spec;
            }
            spec.with_dims(made.iter().map(|d| dims.get(*d).cloned().unwrap_or_default()).collect())
        });
        let args = [self.into(), b.into()];
        let product = apply1(
            prims::dot_general(how, out, options.accum_dtype, options.precision),
            &args,
            call.permuted(made),
        );
        if sorted {
            return product;
        }
        let mut perm = vec![0; made.len()];
        for (k, d) in made.iter().enumerate() {
            perm[*d] = k;
        }
        apply1(prims::transpose(&perm), &[product.into()], call)
    }
    /// Computes a general product with the contracting and batch dimensions given by `dims`.
    ///
    /// The result has the batch dimensions first, then the remaining dimensions of this array, then
    /// those of `b`. `accum_dtype` is the accumulation and result type; `None` means the operands'
    /// type.
    ///
    /// ```
    /// use atmesh::{array::Contraction, prelude::*};
    /// let (x, y) = (Array::ones(I8.array_type([3, 100])), Array::ones(I8.array_type([5, 100])));
    /// let how = Contraction { contracting: vec![(1, 1)], ..Contraction::default() };
    /// assert_eq!(type_of(x.dot_general(&y, &how, Some(I32))), "int32[3,5]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_general(
        &self,
        b: impl Borrow<Array>,
        dims: &Contraction,
        accum_dtype: Option<DType>,
    ) -> Array {
        let args = [self.into(), b.borrow().into()];
        let call = CallSite::here("dot_general").with_explicit_form("x.dot_general_to(&w, &how, None, {})");
        apply1(prims::dot_general(dims, None, accum_dtype, None), &args, call)
    }
    /// Computes [`Array::dot_general`] with the result sharded (or left unreduced) as `out`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::array::Contraction;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
    /// let how = Contraction { contracting: vec![(1, 1)], ..Contraction::default() };
    /// assert_eq!(type_of(x.dot_general_to(&x, &how, None, p![_, _; U: "X"])),
    ///     "float32[4,4]{U:X}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_general_to(
        &self,
        b: impl Borrow<Array>,
        dims: &Contraction,
        accum_dtype: Option<DType>,
        out: Spec,
    ) -> Array {
        let args = [self.into(), b.borrow().into()];
        apply1(
            prims::dot_general(dims, Some(out), accum_dtype, None),
            &args,
            CallSite::here("dot_general_to"),
        )
    }
}

/// Returns both arrays as operands.
fn operand_pair(a: &Array, b: &Array) -> [Term; 2] {
    [Term::Array(a.clone()), Term::Array(b.clone())]
}
