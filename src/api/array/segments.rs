//! Segment reductions, counts of integers, and histograms.
//!
//! A segment reduction combines the rows of an array that have the same integer id. It is a scatter
//! with a reducer onto an array of neutral elements.

use super::operand::{self, Operand};
use super::take::{GatherIndices, IndexOptions, check_integers, explicit_spec, index_vectors};
use super::{Array, prims};
use crate::api::trace::apply1;
use crate::core::{Axes, DType, ErrorKind, Fault, Scalar, Shape, Spec};
use crate::ir::program::{CallSite, OutOfBounds, Reducer};
use crate::ir::{ops::elementwise::Binary, ops::indexing::GatherDims};

/// The reducer of a segment reduction.
#[derive(Clone, Copy)]
enum SegmentReduction {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The maximum.
    Max,
    /// The minimum.
    Min,
}

macro_rules! segments { ($($(#[$doc:meta])* $name:ident $to:ident $with:ident $kind:ident;)*) => {
    impl Array {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, ids: &Array, count: usize) -> Array {
            let call = CallSite::here(stringify!($name)).with_explicit_form(concat!("x.", stringify!($to), "(&ids, count, {})"));
            self.segment_at(SegmentReduction::$kind, ids, count, IndexOptions::default(), call)
        }
        #[doc = concat!("Computes [`Array::", stringify!($name), "`] with the result sharded as `out_sharding`.")]
        #[track_caller]
        pub fn $to(&self, ids: &Array, count: usize, out_sharding: Spec) -> Array {
            let options = IndexOptions::default().out_sharding(out_sharding);
            self.segment_at(SegmentReduction::$kind, ids, count, options, CallSite::here(stringify!($to)))
        }
        #[doc = concat!("Computes [`Array::", stringify!($name), "`] with options: the index mode and the result's sharding.")]
        #[track_caller]
        pub fn $with(&self, ids: &Array, count: usize, options: IndexOptions) -> Array {
            self.segment_at(SegmentReduction::$kind, ids, count, options, CallSite::here(stringify!($with)))
        }
    )*}
} }

segments! {
    /// Sums rows by segment: row s of the result is the sum of the rows whose id is s.
    ///
    /// `ids` is an integer vector with one id per row, in any order. The result has `count` rows;
    /// empty segments are 0. Ids outside of `0..count` are dropped.
    ///
    /// Rows and ids must be unsharded; otherwise use [`Array::segment_sum_to`] to give the result's
    /// sharding. Each device then sums the rows it holds, and the sums are added, or left unreduced
    /// over the axes that shard the rows.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4], [5, 6]]);
    /// let ids = Array::from([1, 0, 1]);
    /// assert_eq!(x.segment_sum(&ids, 3).to_vec::<i32>()?, [3, 4, 6, 8, 0, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_sum segment_sum_to segment_sum_with Sum;
    /// Multiplies rows by segment, like [`Array::segment_sum`]; empty segments are 1.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, ids) = (Array::from([2, 3, 4]), Array::from([1, 0, 1]));
    /// assert_eq!(x.segment_prod(&ids, 3).to_vec::<i32>()?, [3, 8, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_prod segment_prod_to segment_prod_with Prod;
    /// Returns the maximum of rows by segment, like [`Array::segment_sum`].
    ///
    /// Empty segments are the lowest value of the element type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, ids) = (Array::from([2.0, 3.0, 4.0]), Array::from([1, 0, 1]));
    /// assert_eq!(x.segment_max(&ids, 3).to_vec::<f64>()?, [3.0, 4.0, f64::NEG_INFINITY]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_max segment_max_to segment_max_with Max;
    /// Returns the minimum of rows by segment, like [`Array::segment_sum`].
    ///
    /// Empty segments are the highest value of the element type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, ids) = (Array::from([2.0, 3.0, 4.0]), Array::from([1, 0, 1]));
    /// assert_eq!(x.segment_min(&ids, 3).to_vec::<f64>()?, [3.0, 2.0, f64::INFINITY]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_min segment_min_to segment_min_with Min;
}

/// # Segment reductions and counts
impl Array {
    /// Implements the segment reductions.
    fn segment_at(
        &self,
        kind: SegmentReduction,
        ids: &Array,
        count: usize,
        options: IndexOptions,
        call: CallSite<'_>,
    ) -> Array {
        let [ty, of] = ok_or_return!(operand::types([self, ids]));
        if options.out_sharding.is_some_and(|out| ty.mesh.as_ref().is_some_and(|m| m.uses_logical(out))) {
            return self.with_resolved_out(options.out_sharding, call, |out_sharding| {
                self.segment_at(kind, ids, count, IndexOptions { out_sharding, ..options }, call)
            });
        }
        let reject = |fault| operand::reject(fault, &[self.into(), ids.into()], call);
        if let Err(fault) = check_integers(ids) {
            return reject(fault);
        }
        if of.rank() != 1 || ty.rank() == 0 || of.shape[0] != ty.shape[0] {
            let rows = ty.shape.first().copied().unwrap_or(1);
            let message =
                format!("there are {rows} rows, and ids of shape {}: one id for each row", of.shape);
            return reject(Fault::new(ErrorKind::Shape, message).help(format!("give ids of shape [{rows}]")));
        }
        let combine = match kind {
            SegmentReduction::Sum => Reducer::Add,
            SegmentReduction::Prod => Reducer::Mul,
            SegmentReduction::Max => Reducer::Max,
            SegmentReduction::Min => Reducer::Min,
        };
        let shape: Shape = std::iter::once(count).chain(ty.shape[1..].iter().copied()).collect();
        // scatter onto neutral elements, which are sharded like the rows
        let mut base = ty.dtype.array_type(shape.clone());
        base.mesh.clone_from(&ty.mesh);
        let rows = std::iter::once(Axes::none());
        let own = Spec::from_dims(rows.chain((1..ty.rank()).map(|d| Axes::from(ty.spec.dim(d)))).collect());
        let own = own.unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes());
        base.spec = match options.out_sharding {
            Some(_) if ty.mesh.is_some() => Spec::replicated(shape.rank()),
            _ => own,
        };
        if let (Some(out), true) = (options.out_sharding, ty.mesh.is_some()) {
            base.spec = Spec::from_dims(out.padded(shape.rank()).dims().to_vec());
        }
        let base = apply1(prims::full(base, combine.neutral(ty.dtype)), &[], call);
        let at = GatherIndices {
            dims: GatherDims::rows(ty.rank(), 0, 1, options.out_of_bounds()),
            indices: index_vectors(std::slice::from_ref(ids), call),
        };
        base.scatter_windows(&at, self, Some(combine), options.out_sharding, call)
    }
    /// Counts the occurrences of each integer in `0..count`, as an int32 vector.
    ///
    /// Other integers are dropped.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 0, 1, 7, -1]).bincount(3).to_vec::<i32>()?, [1, 2, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bincount(&self, count: usize) -> Array {
        let call = CallSite::here("bincount");
        let ones = Array::from(1i32);
        self.bincount_at(&ones, count, call)
    }
    /// Sums the weights of each integer in `0..count`.
    ///
    /// `weights` has the shape of this array, or rank 0; the result has their element type. Other
    /// integers are dropped.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let weights = Array::from([0.5, 2.0, 1.0]);
    /// assert_eq!(Array::from([1, 0, 1]).bincount_weighted(&weights, 3).to_vec::<f64>()?,
    ///     [2.0, 1.5, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    #[doc(alias = "bincount")]
    pub fn bincount_weighted(&self, weights: &Array, count: usize) -> Array {
        self.bincount_at(weights, count, CallSite::here("bincount_weighted"))
    }
    /// Implements [`Array::bincount`] and [`Array::bincount_weighted`].
    fn bincount_at(&self, weights: &Array, count: usize, call: CallSite<'_>) -> Array {
        let [ty, of] = ok_or_return!(operand::types([self, weights]));
        let reject = |fault| operand::reject(fault, &[self.into(), weights.into()], call);
        if let Err(fault) = check_integers(self) {
            return reject(fault);
        }
        if of.rank() > 0 && of.shape != ty.shape {
            let message =
                format!("the elements have shape {}, but the weights have shape {}", ty.shape, of.shape);
            return reject(Fault::new(ErrorKind::Shape, message).help("give one weight for each element"));
        }
        let like = ty.mesh.clone().map(|mesh| (mesh, ty.spec)).filter(|_| of.mesh.is_none());
        let weights = weights.broadcast_like(&ty.shape, like.as_ref(), call);
        // the counts are unsharded, whatever the sharding of the elements
        let out = explicit_spec(ty, Spec::replicated(1));
        let mut base = of.dtype.array_type([count]);
        base.mesh.clone_from(&ty.mesh);
        let base = apply1(prims::full(base, Scalar::zero(of.dtype)), &[], call);
        let numbers = index_vectors(std::slice::from_ref(self), call);
        let (of, collapsed) = (vec![0], vec![0]);
        let places = GatherDims {
            start_index_map: of,
            collapsed_dims: collapsed,
            batching_dims: Vec::new(),
            offset_dims: Vec::new(),
            mode: OutOfBounds::Drop,
        };
        base.scatter_windows(
            &GatherIndices { dims: places, indices: numbers },
            &weights,
            Some(Reducer::Add),
            out,
            call,
        )
    }
    /// Counts elements in `bins` equal intervals of `range`; returns the counts and the bin edges.
    ///
    /// The counts are an int32 vector, the edges a vector of `bins + 1` elements of this array's
    /// type. Intervals exclude their upper edge, except for the last one. NaN and elements outside
    /// of the range are dropped. Edges are computed in float64 for all element types.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (counts, ends) = Array::from([0.0, 0.3, 0.9, 1.0, 7.0]).histogram(2, 0.0..1.0);
    /// assert_eq!(counts.to_vec::<i32>()?, [2, 2]);
    /// assert_eq!(ends.to_vec::<f64>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn histogram(&self, bins: usize, range: std::ops::Range<f64>) -> (Array, Array) {
        let call = CallSite::here("histogram");
        let Ok(ty) = self.type_ref() else { return (self.clone(), self.clone()) };
        let reject = |fault: Fault| {
            let poisoned = self.reject(fault, call);
            (poisoned.clone(), poisoned)
        };
        if !ty.dtype.is_float() {
            let fault = fault!(Dtype, "a histogram is of floats, not of {}", ty.dtype);
            return reject(fault.help("convert it: `.astype(F32)`"));
        }
        let Some(count) = i32::try_from(bins).ok().filter(|n| *n > 0) else {
            let fault = fault!(Shape, "a range cannot be divided into {bins} bins");
            return reject(fault.help("give from 1 to 2³¹ − 1 bins"));
        };
        if range.start.partial_cmp(&range.end) != Some(std::cmp::Ordering::Less) {
            let fault = fault!(Shape, "there are no bins in the range {} to {}", range.start, range.end);
            return reject(fault.help("give a range whose start is less than its end"));
        }
        let most = count - 1;
        // narrow floats could not separate many bins
        let wide = self.astype_at(DType::F64, call);
        let ends = Array::linspace_of(DType::F64.array_type([bins + 1]), range.start, range.end, true);
        let width = (range.end - range.start) / bins as f64;
        // estimate the bin arithmetically, then correct it by one to either side with the exact
        // edges
        let place =
            wide.binary_with(Binary::Sub, range.start, call).binary_with(Binary::Div, width, call).floor();
        let place = place
            .binary_with(Binary::Max, 0.0, call)
            .binary_with(Binary::Min, f64::from(most), call)
            .astype_at(DType::I32, call);
        let end = |k: i32| {
            let at = place.binary_with(Binary::Add, k, call);
            let out = explicit_spec(ty, ty.spec);
            let options = IndexOptions { out_sharding: out, ..IndexOptions::default() };
            ends.take_at(&at, 0, options, call)
        };
        let below = wide.binary_with(Binary::Lt, end(0), call).astype_at(DType::I32, call);
        let above = wide.binary_with(Binary::Ge, end(1), call).astype_at(DType::I32, call);
        let place = place.binary_with(Binary::Sub, &below, call).binary_with(Binary::Add, &above, call);
        let place = place.binary_with(Binary::Max, 0, call).binary_with(Binary::Min, most, call);
        let inside = wide.binary_with(Binary::Ge, range.start, call).binary_with(
            Binary::And,
            wide.binary_with(Binary::Le, range.end, call),
            call,
        );
        let place = inside.select_at(place.term(), (-1).term(), call);
        (place.bincount_at(&Array::from(1i32), bins, call), ends.astype_at(ty.dtype, call))
    }
}
