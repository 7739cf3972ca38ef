//! What rows of a segment come to, and how many there are.

use super::indexing::{At, IndexOptions, explicit, integers, vectors};
use super::operand::{self, Operand};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::Axes;
use crate::ops::elementwise::Binary;
use crate::ops::indexing::Places;
use crate::program::Call;
use crate::program::sentence::{Beyond, Combine};
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison};
use crate::types::{DType, Scalar, Shape};

/// Ways to reduce the rows of a segment.
#[derive(Clone, Copy)]
enum Segment {
    Sum,
    Prod,
    Max,
    Min,
}

macro_rules! segments { ($($(#[$doc:meta])* $name:ident $to:ident $with:ident $kind:ident;)*) => {
    impl Array {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, ids: &Array, count: usize) -> Array {
            let call = Call::here(stringify!($name)).twin(concat!("x.", stringify!($to), "(&ids, count, {})"));
            self.segment(Segment::$kind, ids, count, IndexOptions::default(), call)
        }
        #[doc = concat!("[`Array::", stringify!($name), "`] with the result sharded so.")]
        #[track_caller]
        pub fn $to(&self, ids: &Array, count: usize, out: Spec) -> Array {
            let options = IndexOptions::default().out(out);
            self.segment(Segment::$kind, ids, count, options, Call::here(stringify!($to)))
        }
        #[doc = concat!("[`Array::", stringify!($name), "`] with all that may be said.")]
        #[track_caller]
        pub fn $with(&self, ids: &Array, count: usize, options: IndexOptions) -> Array {
            self.segment(Segment::$kind, ids, count, options, Call::here(stringify!($with)))
        }
    )*}
} }

segments! {
    /// The sums of rows by segment: row s of the result is the sum of the rows whose id is s, 0 where there are none. Ids are integers, one for each
    /// row, in any order; those below 0 or beyond the last segment are dropped.
    ///
    /// Rows and ids are unsharded, else [`Array::segment_sum_to`] says how the result is sharded: each device sums its own rows, then the sums are
    /// added, or are left unreduced over the axes over which the rows are sharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4], [5, 6]]);
    /// let ids = Array::from([1, 0, 1]);
    /// assert_eq!(x.segment_sum(&ids, 3).to_vec::<i32>()?, [3, 4, 6, 8, 0, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_sum segment_sum_to segment_sum_with Sum;
    /// The products of rows by segment, as [`Array::segment_sum`]; 1 where there are none.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, ids) = (Array::from([2, 3, 4]), Array::from([1, 0, 1]));
    /// assert_eq!(x.segment_prod(&ids, 3).to_vec::<i32>()?, [3, 8, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_prod segment_prod_to segment_prod_with Prod;
    /// The greatest of rows by segment, as [`Array::segment_sum`]; the least value of the element type where there are none.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, ids) = (Array::from([2.0, 3.0, 4.0]), Array::from([1, 0, 1]));
    /// assert_eq!(x.segment_max(&ids, 3).to_vec::<f64>()?, [3.0, 4.0, f64::NEG_INFINITY]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_max segment_max_to segment_max_with Max;
    /// The least of rows by segment, as [`Array::segment_sum`]; the greatest value of the element type where there are none.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, ids) = (Array::from([2.0, 3.0, 4.0]), Array::from([1, 0, 1]));
    /// assert_eq!(x.segment_min(&ids, 3).to_vec::<f64>()?, [3.0, 2.0, f64::INFINITY]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_min segment_min_to segment_min_with Min;
}

/// # Sums by segment, and counts
impl Array {
    fn segment(
        &self,
        kind: Segment,
        ids: &Array,
        count: usize,
        options: IndexOptions,
        call: Call<'_>,
    ) -> Array {
        if let Some(error) = carried([self, ids].into_iter()) {
            return poison(error);
        }
        let (Ok(ty), Ok(of)) = (self.type_ref(), ids.type_ref()) else { return self.clone() };
        let refuse = |fault| operand::refuse(fault, &[self.into(), ids.into()], call);
        if let Err(fault) = integers(ids) {
            return refuse(fault);
        }
        if of.rank() != 1 || ty.rank() == 0 || of.shape[0] != ty.shape[0] {
            let rows = ty.shape.first().copied().unwrap_or(1);
            let message =
                format!("there are {rows} rows, and ids of shape {}: one id for each row", of.shape);
            return refuse(Fault::new(ErrorKind::Shape, message).help(format!("give ids of shape [{rows}]")));
        }
        let combine = match kind {
            Segment::Sum => Combine::Add,
            Segment::Prod => Combine::Mul,
            Segment::Max => Combine::Max,
            Segment::Min => Combine::Min,
        };
        let shape: Shape = std::iter::once(count).chain(ty.shape[1..].iter().copied()).collect();
        // onto what changes nothing, sharded as the rows are
        let mut base = ty.dtype.of(shape.clone());
        base.mesh.clone_from(&ty.mesh);
        let rows = std::iter::once(Axes::none());
        let own = Spec::of(rows.chain((1..ty.rank()).map(|d| Axes::from(ty.spec.dim(d)))).collect());
        let own = own.unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes());
        base.spec = match options.out {
            Some(_) if ty.mesh.is_some() => Spec::whole(shape.rank()),
            _ => own,
        };
        if let (Some(out), true) = (options.out, ty.mesh.is_some()) {
            base.spec = Spec::of(out.padded(shape.rank()).dims().to_vec());
        }
        let base = apply1(prims::full(base, combine.neutral(ty.dtype)), &[], call);
        let at = At {
            places: Places::rows(ty.rank(), 0, 1, options.beyond()),
            numbers: vectors(std::slice::from_ref(ids), call),
        };
        base.scattered(&at, self, Some(combine), options.out, call)
    }
    /// How often each of the numbers 0, 1, … below `count` occurs, as int32. Other numbers are dropped.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 0, 1, 7, -1]).bincount(3).to_vec::<i32>()?, [1, 2, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bincount(&self, count: usize) -> Array {
        let call = Call::here("bincount");
        let ones = Array::from(1i32);
        self.counted_by(&ones, count, call)
    }
    /// The sums of weights, one for each number, by number: as [`Array::bincount`], of the weights' element type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let weights = Array::from([0.5, 2.0, 1.0]);
    /// assert_eq!(Array::from([1, 0, 1]).bincount_of(&weights, 3).to_vec::<f64>()?, [2.0, 1.5, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bincount_of(&self, weights: &Array, count: usize) -> Array {
        self.counted_by(weights, count, Call::here("bincount_of"))
    }
    fn counted_by(&self, weights: &Array, count: usize, call: Call<'_>) -> Array {
        if let Some(error) = carried([self, weights].into_iter()) {
            return poison(error);
        }
        let (Ok(ty), Ok(of)) = (self.type_ref(), weights.type_ref()) else { return self.clone() };
        let refuse = |fault| operand::refuse(fault, &[self.into(), weights.into()], call);
        if let Err(fault) = integers(self) {
            return refuse(fault);
        }
        if of.rank() > 0 && of.shape != ty.shape {
            let message =
                format!("there are numbers of shape {}, and weights of shape {}", ty.shape, of.shape);
            return refuse(Fault::new(ErrorKind::Shape, message).help("give one weight for each number"));
        }
        let like = ty.mesh.clone().map(|mesh| (mesh, ty.spec)).filter(|_| of.mesh.is_none());
        let weights = weights.spread(&ty.shape, like.as_ref(), call);
        // the counts are whole, wherever the numbers are
        let out = explicit(ty, Spec::whole(1));
        let mut base = of.dtype.of([count]);
        base.mesh.clone_from(&ty.mesh);
        let base = apply1(prims::full(base, Scalar::zero(of.dtype)), &[], call);
        let numbers = vectors(std::slice::from_ref(self), call);
        let (of, collapsed) = (vec![0], vec![0]);
        let places =
            Places { of, collapsed, batching: Vec::new(), windows: Vec::new(), beyond: Beyond::Nothing };
        base.scattered(&At { places, numbers }, &weights, Some(Combine::Add), out, call)
    }
    /// How many numbers are in each of `bins` equal parts of a range, as int32, and the ends of the parts: one more than there are. Each part is without
    /// its end, but the last one. Numbers outside of the range, and NaN, are dropped. The parts are those of float64, whatever the numbers are.
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
        let call = Call::here("histogram");
        let Ok(ty) = self.type_ref() else { return (self.clone(), self.clone()) };
        let refuse = |fault: Fault| {
            let refused = self.refuse(fault, call);
            (refused.clone(), refused)
        };
        if !ty.dtype.is_float() {
            let fault =
                Fault::new(ErrorKind::Dtype, format!("a histogram is of floats, not of {}", ty.dtype));
            return refuse(fault.help("convert it: `.astype(F32)`"));
        }
        let Some(count) = i32::try_from(bins).ok().filter(|n| *n > 0) else {
            let fault = Fault::new(ErrorKind::Shape, format!("a range is not cut into {bins} parts"));
            return refuse(fault.help("give from 1 to 2³¹ − 1 parts"));
        };
        if range.start.partial_cmp(&range.end) != Some(std::cmp::Ordering::Less) {
            let message = format!("there are no parts of the range {} to {}", range.start, range.end);
            let fault = Fault::new(ErrorKind::Shape, message);
            return refuse(fault.help("give a range from less to more"));
        }
        let most = count - 1;
        // few bits would not tell many parts apart
        let wide = self.astype_at(DType::F64, call);
        let ends = Array::linspace_of(DType::F64.of([bins + 1]), range.start, range.end, true);
        let width = (range.end - range.start) / bins as f64;
        // where it falls by arithmetic, and one to either side by the ends themselves
        let place = wide.with(Binary::Sub, range.start, call).with(Binary::Div, width, call).floor();
        let place = place
            .with(Binary::Max, 0.0, call)
            .with(Binary::Min, f64::from(most), call)
            .astype_at(DType::I32, call);
        let end = |k: i32| {
            let at = place.with(Binary::Add, k, call);
            let out = explicit(ty, ty.spec);
            let options = IndexOptions { out, ..IndexOptions::default() };
            ends.take_at(&at, 0, options, call)
        };
        let below = wide.with(Binary::Lt, end(0), call).astype_at(DType::I32, call);
        let above = wide.with(Binary::Ge, end(1), call).astype_at(DType::I32, call);
        let place = place.with(Binary::Sub, &below, call).with(Binary::Add, &above, call);
        let place = place.with(Binary::Max, 0, call).with(Binary::Min, most, call);
        let inside = wide.with(Binary::Ge, range.start, call).with(
            Binary::And,
            wide.with(Binary::Le, range.end, call),
            call,
        );
        let place = inside.select_at(place.term(), (-1).term(), call);
        (place.counted_by(&Array::from(1i32), bins, call), ends.astype_at(ty.dtype, call))
    }
}
