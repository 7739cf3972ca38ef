//! Along a dimension: running sums and their kin.

use super::dims::dim;
use super::{Array, prims};
use crate::ops::lines::Running;
use crate::program::Call;
use crate::trace::apply1;

macro_rules! running { ($($(#[$doc:meta])* $name:ident $back:ident $kind:ident $back_doc:literal;)*) => {
    impl Array {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, d: i32) -> Array {
            self.running(Running::$kind, d, false, Call::here(stringify!($name)))
        }
        #[doc = $back_doc]
        #[track_caller]
        pub fn $back(&self, d: i32) -> Array {
            self.running(Running::$kind, d, true, Call::here(stringify!($back)))
        }
    )*}
} }

running! {
    /// The sum of what came so far along a dimension, which is unsharded; of the operand's type. Another dimension may be sharded any way.
    ///
    /// The order of addition goes by the length of the dimension alone: groups of 16, blocks of 2¹⁶. So results are the same bits on
    /// any engine, mesh and number of workers; 16-bit floats are added in float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.cumsum(1).to_vec::<i32>()?, [1, 3, 6, 4, 9, 15]);
    /// assert_eq!(x.cumsum(0).to_vec::<i32>()?, [1, 2, 3, 5, 7, 9]);
    ///
    /// let g = grad(Array::from([1.0, 2.0, 3.0]), |x| x.cumsum(0).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [3.0, 2.0, 1.0]);
    ///
    /// let mesh = Mesh::new([("X", 3)])?;
    /// let e = x.put(&mesh, p![_, "X"]).cumsum(1).ty().unwrap_err();
    /// assert_eq!(e.kind(), atmesh::ErrorKind::Sharding);
    /// assert_eq!(type_of(x.put(&mesh, p![_, "X"]).cumsum(0)), "int32[2,3@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cumsum cumsum_from_end Sum "As [`cumsum`](Array::cumsum), from the end: each element and all behind it.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 2, 3]).cumsum_from_end(0).to_vec::<i32>()?, [6, 5, 3]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// The product of what came so far along a dimension, which is unsharded; in the order of [`cumsum`](Array::cumsum). Its derivative is
    /// exact where elements are zero, too.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2, 3, 4]).cumprod(0).to_vec::<i32>()?, [1, 2, 6, 24]);
    /// let g = grad(Array::from([2.0, 0.0, 5.0]), |x| x.cumprod(0).sum(..));
    /// assert_eq!(g.to_vec::<f64>()?, [1.0, 12.0, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cumprod cumprod_from_end Prod "As [`cumprod`](Array::cumprod), from the end.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 2, 3]).cumprod_from_end(0).to_vec::<i32>()?, [6, 6, 3]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// The greatest of what came so far along a dimension, which is unsharded; NaN from the first NaN on. Of numbers and bool. Of equal
    /// elements the first one has the derivative.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 3, 2, 5]).cummax(0).to_vec::<i32>()?, [1, 3, 3, 5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "maximum.accumulate")]
    cummax cummax_from_end Max "As [`cummax`](Array::cummax), from the end.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 3, 2]).cummax_from_end(0).to_vec::<i32>()?, [3, 3, 2]);\n# Ok::<(), atmesh::Error>(())\n```";
    /// The least of what came so far along a dimension, which is unsharded; NaN from the first NaN on. Of numbers and bool. Of equal
    /// elements the first one has the derivative.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([4, 3, 5, 1]).cummin(0).to_vec::<i32>()?, [4, 3, 3, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "minimum.accumulate")]
    cummin cummin_from_end Min "As [`cummin`](Array::cummin), from the end.\n\n```\nuse atmesh::prelude::*;\nassert_eq!(Array::from([1, 3, 2]).cummin_from_end(0).to_vec::<i32>()?, [1, 2, 2]);\n# Ok::<(), atmesh::Error>(())\n```";
}

impl Array {
    fn running(&self, kind: Running, d: i32, reverse: bool, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dim(d.into(), ty.rank()) {
            Ok(axis) => apply1(prims::scan(kind, axis, reverse), &[self.into()], call),
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// hᵢ = decayᵢ·hᵢ₋₁ + xᵢ along a dimension, which is unsharded; h before the first element is 0. Both are of one type; 16-bit floats are
    /// computed in float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (x, decay) = (Array::from([1.0, 1.0, 1.0]), Array::from([0.0, 0.5, 0.5]));
    /// assert_eq!(x.recurrence(&decay, 0).to_vec::<f64>()?, [1.0, 1.5, 1.75]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("linear_scan", "ema"))]
    #[track_caller]
    pub fn recurrence(&self, decay: &Array, d: i32) -> Array {
        let call = Call::here("recurrence");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dim(d.into(), ty.rank()) {
            Ok(axis) => apply1(prims::recurrence(axis, false), &[decay.into(), self.into()], call),
            Err(fault) => self.refuse(fault, call),
        }
    }
}
