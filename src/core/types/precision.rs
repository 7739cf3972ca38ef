//! The precision of float32 products on hardware that has faster, less precise multipliers.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// The precision of the multiplications in products and convolutions of float32 (and complex64).
///
/// It only matters on XLA's accelerators, whose matrix units may round float32 operands to TF32 or
/// bfloat16. The other engines always multiply with full precision. Element types other than
/// float32 and complex64 are not affected. The levels are those of XLA's `PrecisionConfig`.
///
/// ```
/// use atmesh::{Precision, prelude::*};
/// let options = DotOptions::default().precision(Precision::Default);
/// let f = jit(move |x: &Array| x.matmul_with(x, options));
/// assert!(f.trace(F32.array_type([2, 2]))?.to_string().contains("precision=default"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// The fastest multiplication of the hardware, for example TF32 on GPUs.
    Default,
    /// More precise than `Default` where the hardware has a level in between.
    High,
    /// Full float32 precision, so that a sharded program computes what the unsharded one computes.
    #[default]
    Highest,
}

impl Precision {
    /// Returns XLA's name of the level.
    pub(crate) fn xla_name(self) -> &'static str {
        ["DEFAULT", "HIGH", "HIGHEST"][self as usize]
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(["default", "high", "highest"][*self as usize])
    }
}

/// The process-wide default, as the number of a level.
static DEFAULT_PRECISION: AtomicU8 = AtomicU8::new(Precision::Highest as u8);

/// Returns the precision of products and convolutions that do not specify one.
///
/// It is [`Precision::Highest`] until [`set_default_matmul_precision`] changes it.
///
/// ```
/// use atmesh::{Precision, default_matmul_precision};
/// println!("products use {}", default_matmul_precision());
/// # let _: Precision = default_matmul_precision();
/// ```
pub fn default_matmul_precision() -> Precision {
    match DEFAULT_PRECISION.load(Ordering::Relaxed) {
        0 => Precision::Default,
        1 => Precision::High,
        _ => Precision::Highest,
    }
}

/// Sets the precision, for the whole process, of products that do not specify one.
///
/// The same holds for convolutions.
///
/// It is read when an operation is traced, so functions that were compiled before keep theirs.
///
/// ```
/// use atmesh::{Precision, default_matmul_precision, prelude::*, set_default_matmul_precision};
/// set_default_matmul_precision(Precision::Default);
/// let product = jit(|x: &Array| x.dot(x)).trace(F32.array_type([2, 2]))?;
/// assert!(product.to_string().contains("precision=default"));
/// set_default_matmul_precision(Precision::Highest);
/// assert_eq!(default_matmul_precision(), Precision::Highest);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "jax_default_matmul_precision")]
pub fn set_default_matmul_precision(precision: Precision) {
    DEFAULT_PRECISION.store(precision as u8, Ordering::Relaxed);
}
