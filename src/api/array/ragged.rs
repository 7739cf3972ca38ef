//! Products of rows with the matrices of their groups: `ragged_dot`.
//!
//! The sizes of the groups become a mask of rows and groups, which the primitive reads. So rows
//! may be sharded: each device compares the indices of its rows with the bounds of the groups.

use super::creation::create_sharded;
use super::operand::{self, Term};
use super::products::DotOptions;
use super::{Array, prims};
use crate::api::trace::apply1;
use crate::core::{ArrayType, Axes, DType, ErrorKind, Fault, Spec};
use crate::ir::ops::{along_axis::CumulativeOp, dot_general::accumulation_dtype, elementwise::Binary};
use crate::ir::program::{CallSite, UserOperand};
use std::borrow::Borrow;

/// # Products of groups of rows
impl Array {
    forward! {
        /// Multiplies consecutive groups of rows by one matrix per group.
        ///
        /// This array is `[m, k]`, `w` is `[g, k, n]`, and `group_sizes` has g integers. The first
        /// `group_sizes[0]` rows are multiplied by `w[0]`, the next `group_sizes[1]` rows by
        /// `w[1]`, and so on. The result is `[m, n]`; rows after those of the last group are zero.
        /// A negative size counts as 0, and groups end at row m if the sizes add up to more.
        ///
        /// It takes m·k·n multiplications for any number of groups, and has derivatives by both
        /// factors. 16-bit floats are summed in float32. A use is a mixture of experts: rows are
        /// sorted by expert, and `w` has a matrix for each expert.
        ///
        /// Rows, and columns of `w`, may be sharded in any way. If `w` is sharded by groups, each
        /// device multiplies the rows of its groups, and the results are added. If the contracted
        /// dimensions of both factors are sharded, the result is ambiguous, which is an error: use
        /// [`Array::ragged_dot_to`]. The sizes must be unsharded.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1.0f32, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 2.0]]);
        /// let w = Array::from([[1.0f32, 2.0], [10.0, 20.0]]).reshape([2, 2, 1]);
        /// let y = x.ragged_dot(&w, Array::from([1, 2]));
        /// assert_eq!(y.to_vec::<f32>()?, [1.0, 20.0, 30.0, 0.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias = "ragged_dot_general", alias = "grouped_matmul")]
        pub fn ragged_dot(w: impl Borrow<Array>, group_sizes: impl Borrow<Array>)
            = ragged_dot_at(w.borrow(), group_sizes.borrow(), DotOptions::default()),
            or "x.ragged_dot_to(&w, &group_sizes, {})";
        /// Computes [`Array::ragged_dot`] with the result sharded (or left unreduced) as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::ones([8, 4]).put(&mesh, p![_, "X"]);
        /// let w = Array::ones([2, 4, 6]).put(&mesh, p![_, "X"]);
        /// let sizes = Array::from([3, 5]);
        /// assert!(x.ragged_dot(&w, &sizes).ty().is_err(), "it could be sharded in several ways");
        /// assert_eq!(type_of(x.ragged_dot_to(&w, &sizes, p!["X"])), "float32[8@X,6]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn ragged_dot_to(w: impl Borrow<Array>, group_sizes: impl Borrow<Array>, out: Spec)
            = ragged_dot_at(w.borrow(), group_sizes.borrow(), DotOptions::with_out_sharding(Some(out)));
        /// Computes [`Array::ragged_dot`] with options: the result's sharding, the accumulation
        /// type and the precision.
        ///
        /// With an accumulation type, both factors are converted to it first.
        ///
        /// ```
        /// use atmesh::{DotOptions, prelude::*};
        /// let x = Array::ones(BF16.array_type([4, 2]));
        /// let w = Array::ones(BF16.array_type([3, 2, 5]));
        /// let in_f32 = DotOptions::default().accum_dtype(F32);
        /// let y = x.ragged_dot_with(&w, Array::from([1, 1, 2]), in_f32);
        /// assert_eq!(type_of(y), "float32[4,5]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn ragged_dot_with(w: impl Borrow<Array>, group_sizes: impl Borrow<Array>, options: DotOptions)
            = ragged_dot_at(w.borrow(), group_sizes.borrow(), options),
            or "x.ragged_dot_with(&w, &group_sizes, how.out_sharding({}))";
    }
    /// Implements [`Array::ragged_dot`].
    fn ragged_dot_at(&self, w: &Array, sizes: &Array, options: DotOptions, call: CallSite<'_>) -> Array {
        let [tx, tw, ts] = ok_or_return!(operand::types([self, w, sizes]));
        let terms = || [self, w, sizes].map(|a| Term::Array(a.clone()));
        let checked = check_operands([tx, tw, ts])
            .and_then(|()| accumulation_dtype(tx.dtype, options.accum_dtype).map(|_| ()));
        if let Err(fault) = checked {
            return operand::reject(fault, &terms(), call);
        }
        if options.out_sharding.is_some_and(|out| tx.mesh.as_ref().is_some_and(|m| m.uses_logical(out))) {
            return self.with_resolved_out(options.out_sharding, call, |out_sharding| {
                self.ragged_dot_at(w, sizes, DotOptions { out_sharding, ..options }, call)
            });
        }
        let describe = || operand::describe_all(&terms());
        let of = |index, ty, dims| UserOperand { index, ty: Some(ty), dims };
        // the mask has the rows of the first operand, and no sharding that comes from the sizes
        let sources = [of(0, tx, None), of(0, tx, Some(&[0])), of(1, tw, None)];
        let of_mask = [of(2, ts, None), of(2, ts, None)];
        let mask_call = call.with_operands(&describe, &of_mask).intermediate();
        let mask = sizes.group_mask([tx, tw], options.out_sharding, mask_call);
        let converted = |x: &Array| match options.accum_dtype {
            Some(dtype) => x.astype_at(dtype, call),
            None => x.clone(),
        };
        let prim = prims::ragged_dot(options.out_sharding, options.precision);
        let args = [(&converted(self)).into(), (&mask).into(), (&converted(w)).into()];
        apply1(prim, &args, call.with_operands(&describe, &sources))
    }
    /// Returns the mask `[m, g]` that is true where a row of `x` is in a group of these sizes.
    fn group_mask(&self, [x, w]: [&ArrayType; 2], out: Option<Spec>, call: CallSite<'_>) -> Array {
        let m = x.shape[0];
        let sizes = match self.type_ref() {
            // (larger elements than those of int64 would become negative)
            Ok(ty) if ty.dtype == DType::U64 => self.clone(),
            _ => self.astype_at(DType::I64, call),
        };
        let sizes = sizes.binary_with(Binary::Max, 0, call).binary_with(Binary::Min, m, call);
        let sizes = sizes.astype_at(DType::I64, call);
        let ends = apply1(prims::scan(CumulativeOp::Sum, 0, false), &[(&sizes).into()], call);
        let starts = ends.binary_with(Binary::Sub, &sizes, call);
        let (rows, groups) = (Axes::from(x.spec.dim(0)), Axes::from(w.spec.dim(0)));
        let mut of = DType::I64.array_type([m, 1]);
        of.mesh = x.mesh.clone().or_else(|| w.mesh.clone());
        of.spec = Spec::from_dims(vec![rows.clone(), Axes::none()]);
        let row = create_sharded(of, call, |of| apply1(prims::iota(of, 0), &[], call));
        let started = row.binary_with(Binary::Ge, &starts, call);
        let mask = started.binary_with(Binary::And, row.binary_with(Binary::Lt, &ends, call), call);
        // a result that is unreduced over groups needs both sides sharded by groups
        let unreduced = |out: Spec| out.unreduced_axes().iter().any(|a| groups.contains(a));
        match out.is_some_and(unreduced) && !rows.iter().any(|a| groups.contains(a)) {
            true => mask.reshard_at(Spec::from_dims(vec![rows, groups]), call),
            false => mask,
        }
    }
}

/// Returns an error if the ranks, sizes or element types of the operands do not fit.
fn check_operands([x, w, sizes]: [&ArrayType; 3]) -> Result<(), Fault> {
    let shape = |text: String| Fault::new(ErrorKind::Shape, text);
    let ranks = [x, w, sizes].map(ArrayType::rank);
    if ranks != [2, 3, 1] {
        return Err(shape(format!(
            "the operands have ranks {}, {} and {}: `ragged_dot` takes rows [m, k], matrices [g, k, n] and sizes [g]",
            ranks[0], ranks[1], ranks[2]
        ))
        .help("map it over further dimensions: `vmap`"));
    }
    if !sizes.dtype.is_integer() {
        let text = format!("the sizes of groups are integers, not {}", sizes.dtype);
        return Err(Fault::new(ErrorKind::Dtype, text).help("convert them: `.astype(I32)`"));
    }
    if let [_, ..] = sizes.spec.dim(0) {
        let over = Axes::from(sizes.spec.dim(0));
        let text = format!("the sizes of groups are sharded over {over}, and each device needs all of them");
        let fault = Fault::new(ErrorKind::Sharding, text).highlight_dim(2, 0);
        return Err(fault.help("reshard operand 2: `.reshard(p![])`"));
    }
    if sizes.shape[0] != w.shape[0] {
        return Err(shape(format!(
            "there are {} sizes of groups, and {} matrices: one size for each matrix",
            sizes.shape[0], w.shape[0]
        ))
        .highlight_dim(1, 0)
        .highlight_dim(2, 0)
        .help(format!("give {} sizes", w.shape[0])));
    }
    Ok(())
}
