//! Products: dot, matmul, dot_general, and their twins that take the result's sharding.

use super::operand::{self, Term};
use super::{Array, prims, refusals};
use crate::diagnostic::{ErrorKind, Fault};
use crate::program::{Call, Source};
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison};
use crate::types::{ArrayType, DType};
use std::borrow::Borrow;

/// Which dimensions of the two operands of a product are summed, and which are run over together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contraction {
    /// Pairs of dimensions that are summed.
    pub contracting: Vec<(usize, usize)>,
    /// Pairs of dimensions that both have and the result too, in front.
    pub batch: Vec<(usize, usize)>,
}

/// How a product is made: `x.matmul_with(&w, ProductOptions::default().sums(F32))`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ProductOptions {
    /// How the result is sharded, or over which axes it is left unreduced; else by the rules.
    pub out: Option<Spec>,
    /// The element type of the sums and of the result; else that of the operands.
    pub sums: Option<DType>,
}

impl ProductOptions {
    /// The same; the result is sharded so, or left unreduced so.
    ///
    /// ```
    /// use atmesh::{ProductOptions, prelude::*};
    /// let options = ProductOptions::default().out(p!["X"]).sums(F32);
    /// assert_eq!((options.out, options.sums), (Some(p!["X"]), Some(F32)));
    /// ```
    pub fn out(self, out: Spec) -> ProductOptions {
        ProductOptions { out: Some(out), ..self }
    }
    /// The same; sums and result are of this element type.
    pub fn sums(self, dtype: DType) -> ProductOptions {
        ProductOptions { sums: Some(dtype), ..self }
    }
    pub(super) fn lying(out: Option<Spec>) -> ProductOptions {
        ProductOptions { out, sums: None }
    }
}

/// # Products
impl Array {
    /// The product of two arrays of rank 1 or 2: inner product, matrix and vector, matrices.
    ///
    /// Where both contracted dimensions are sharded, the result's sharding is open: [`Array::dot_to`] takes it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.dot(&Array::from([1.0f32, 1.0])).to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot(&self, b: impl Borrow<Array>) -> Array {
        self.dot_at(b.borrow(), None, Call::here("dot").twin("x.dot_to(&w, {})"))
    }
    /// [`Array::dot`], sharded (or left unreduced) as `out` says.
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
    #[track_caller]
    pub fn dot_to(&self, b: impl Borrow<Array>, out: Spec) -> Array {
        self.dot_at(b.borrow(), Some(out), Call::here("dot_to"))
    }
    fn dot_at(&self, b: &Array, out: Option<Spec>, call: Call<'_>) -> Array {
        if let Some(error) = carried([self, b].into_iter()) {
            return poison(error);
        }
        for x in [self, b] {
            let Ok(ty) = x.type_ref() else { return x.clone() };
            if !(1..=2).contains(&ty.rank()) {
                let fault = Fault::new(
                    ErrorKind::Shape,
                    format!("an array has rank {}: `dot` takes arrays of rank 1 or 2", ty.rank()),
                );
                let fault = match ty.rank() {
                    0 => fault.help("multiply by a scalar: `a * b`"),
                    _ => fault.help("use `matmul` for stacks of matrices, or `einsum`"),
                };
                return operand::refuse(fault, &both(self, b), call);
            }
        }
        self.matmul_at(b, ProductOptions::lying(out), call)
    }
    /// The product of (stacks of) matrices, as numpy's `matmul`: leading dimensions broadcast.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::ones([5, 4, 8]);
    /// assert_eq!(x.matmul(Array::ones([8, 2])).shape()?, [5, 4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul(&self, b: impl Borrow<Array>) -> Array {
        let call = Call::here("matmul").twin("x.matmul_to(&w, {})");
        self.matmul_at(b.borrow(), ProductOptions::default(), call)
    }
    /// [`Array::matmul`], sharded (or left unreduced) as `out` says.
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
    #[track_caller]
    pub fn matmul_to(&self, b: impl Borrow<Array>, out: Spec) -> Array {
        self.matmul_at(b.borrow(), ProductOptions::lying(Some(out)), Call::here("matmul_to"))
    }
    /// [`Array::matmul`], the result's sharding and the sums' element type chosen.
    ///
    /// ```
    /// use atmesh::{ProductOptions, prelude::*};
    /// let x = Array::ones(BF16.of([1, 1000]));
    /// let in_f32 = ProductOptions::default().sums(F32);
    /// assert_eq!(type_of(x.matmul_with(x.t(), in_f32)), "float32[1,1]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul_with(&self, b: impl Borrow<Array>, options: ProductOptions) -> Array {
        let call = Call::here("matmul_with").twin("x.matmul_with(&w, how.out({}))");
        self.matmul_at(b.borrow(), options, call)
    }
    pub(super) fn matmul_at(&self, b: &Array, options: ProductOptions, call: Call<'_>) -> Array {
        let (Ok(ta), Ok(tb)) = (self.type_ref(), b.type_ref()) else {
            return carried([self, b].into_iter()).map_or_else(|| self.clone(), poison);
        };
        let refuse = |fault| operand::refuse(fault, &both(self, b), call);
        if ta.rank() == 0 || tb.rank() == 0 {
            let fault =
                Fault::new(ErrorKind::Shape, format!("`{}` takes arrays of rank 1 and more", call.op));
            return refuse(fault.help("multiply by a scalar: `a * b`"));
        }
        let (a_mat, b_mat) = (ta.rank() > 1, tb.rank() > 1);
        let a_lead = &ta.shape[..ta.rank() - 1 - usize::from(a_mat)];
        let b_lead = &tb.shape[..tb.rank() - 1 - usize::from(b_mat)];
        let lead = a_lead.len().max(b_lead.len());
        // where each kind of dimension is in the result, in the order in which the product makes them
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
                        return refuse(refusals::split_alike((0, ta, d), (1, tb, e)));
                    }
                    pairs.push((batch.len() + a_other.len(), batch.len() + b_other.len()));
                    batch.push(i);
                }
                (Some((d, 1)), Some(_)) => return refuse(refusals::split_one(0, ta, d)),
                (Some(_), Some((e, 1))) => return refuse(refusals::split_one(1, tb, e)),
                (Some((d, n)), Some((e, m))) => {
                    let fault = Fault::new(
                        ErrorKind::Shape,
                        format!(
                            "dimension {d} of operand 0 has size {n}, dimension {e} of operand 1 size {m}: leading dimensions must be equal, or one of them 1"
                        ),
                    );
                    let help = "make them equal: `slice`, `pad`; a size of 1 is repeated";
                    return refuse(fault.dim(0, d).dim(1, e).help(help));
                }
            }
        }
        let (x, y) = (self.without(&a_ones, call), b.without(&b_ones, call));
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
        let of = |number: usize, ty| Source { number, ty: Some(ty), dims: Some(&dims[number]) };
        let told = || operand::described(&both(self, b));
        x.contract_into(&y, &how, &made, options, call.on(&told, &[of(0, ta), of(1, tb)]))
    }
    /// The product whose k-th dimension is dimension `made[k]` of what is wanted; `options.out` speaks of what is wanted.
    pub(super) fn contract_into(
        &self,
        b: &Array,
        how: &Contraction,
        made: &[usize],
        options: ProductOptions,
        call: Call<'_>,
    ) -> Array {
        let sorted = made.iter().copied().eq(0..made.len());
        let out = options.out.map(|spec| {
            let dims = spec.dims();
            if sorted || dims.len() > made.len() {
                return spec;
            }
            spec.with_dims(made.iter().map(|d| dims.get(*d).cloned().unwrap_or_default()).collect())
        });
        let args = [self.into(), b.into()];
        let product = apply1(prims::dot_general(how, out, options.sums), &args, call.turned(made));
        if sorted {
            return product;
        }
        let mut perm = vec![0; made.len()];
        for (k, d) in made.iter().enumerate() {
            perm[*d] = k;
        }
        apply1(prims::transpose(&perm), &[product.into()], call)
    }
    /// The general product: batch dimensions, then the left operand's others, then the right one's. `sums` is the element type of the
    /// sums and of the result, where it is not the operands'.
    ///
    /// ```
    /// use atmesh::{array::Contraction, prelude::*};
    /// let (x, y) = (Array::ones(I8.of([3, 100])), Array::ones(I8.of([5, 100])));
    /// let how = Contraction { contracting: vec![(1, 1)], ..Contraction::default() };
    /// assert_eq!(type_of(x.dot_general(&y, &how, Some(I32))), "int32[3,5]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_general(&self, b: impl Borrow<Array>, how: &Contraction, sums: Option<DType>) -> Array {
        let args = [self.into(), b.borrow().into()];
        let call = Call::here("dot_general").twin("x.dot_general_to(&w, &how, None, {})");
        apply1(prims::dot_general(how, None, sums), &args, call)
    }
    /// [`Array::dot_general`], sharded (or left unreduced) as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::array::Contraction;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
    /// let how = Contraction { contracting: vec![(1, 1)], ..Contraction::default() };
    /// assert_eq!(type_of(x.dot_general_to(&x, &how, None, p![_, _; U: "X"])), "float32[4,4]{U:X}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_general_to(
        &self,
        b: impl Borrow<Array>,
        how: &Contraction,
        sums: Option<DType>,
        out: Spec,
    ) -> Array {
        let args = [self.into(), b.borrow().into()];
        apply1(prims::dot_general(how, Some(out), sums), &args, Call::here("dot_general_to"))
    }
}

fn both(a: &Array, b: &Array) -> [Term; 2] {
    [Term::Array(a.clone()), Term::Array(b.clone())]
}
