//! Mixed precision: the element types of parameters, of computations, and of results.

use crate::api::array::Array;
use crate::api::tree::{self, Tree};
use crate::core::{DType, ErrorKind, Fault, Result};
use std::fmt;
use std::str::FromStr;

/// A mixed-precision policy: the element types of parameters, of computations and of results.
///
/// The casts change arrays of floats only: integers, booleans and keys stay as they are. A cast
/// inside of a differentiated function casts the gradient back, so that the optimizer gets
/// gradients in the element type of the parameters.
///
/// ```
/// use atmesh::{nn::Policy, prelude::*};
/// let policy = Policy::new(F32, BF16, F32);
/// let w = Array::ones([4, 4]);
/// let x = Array::ones([2, 4]);
/// let g = grad(&w, |w| {
///     let (w, x) = policy.cast_to_compute(&(w, x.clone()));
///     let y = x.dot(&w);
///     assert_eq!(type_of(&y), "bfloat16[2,4]");
///     policy.cast_to_output(&y).sum(..)
/// });
/// assert_eq!(type_of(&g), "float32[4,4]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The element type in which parameters are stored and updated.
    pub param_dtype: DType,
    /// The element type of products and activations.
    pub compute_dtype: DType,
    /// The element type of results, such as logits.
    pub output_dtype: DType,
}

impl Policy {
    /// Creates a policy from the types of parameters, of computations and of results.
    ///
    /// ```
    /// use atmesh::{nn::Policy, prelude::*};
    /// let policy = Policy::new(F32, BF16, F32);
    /// assert_eq!(policy.to_string(), "params=float32,compute=bfloat16,output=float32");
    /// assert_eq!("params=float32,compute=bfloat16,output=float32".parse::<Policy>()?, policy);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub const fn new(param: DType, compute: DType, output: DType) -> Policy {
        Policy { param_dtype: param, compute_dtype: compute, output_dtype: output }
    }
    /// Casts the floats of a tree to the type of parameters.
    ///
    /// ```
    /// use atmesh::{nn::Policy, prelude::*};
    /// let stored = Policy::new(BF16, BF16, F32).cast_to_param(&(Array::ones([2]), Array::from([1, 2])));
    /// assert_eq!(type_of(&stored), "(bfloat16[2], int32[2])");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cast_to_param<T: Tree>(&self, tree: &T) -> T {
        cast_floats(tree, self.param_dtype)
    }
    /// Casts the floats of a tree to the type of computations.
    ///
    /// ```
    /// use atmesh::{nn::Policy, prelude::*};
    /// let used = Policy::new(F32, BF16, F32).cast_to_compute(&Array::ones([2]));
    /// assert_eq!(type_of(&used), "bfloat16[2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cast_to_compute<T: Tree>(&self, tree: &T) -> T {
        cast_floats(tree, self.compute_dtype)
    }
    /// Casts the floats of a tree to the type of results.
    ///
    /// ```
    /// use atmesh::{nn::Policy, prelude::*};
    /// let logits = Array::ones(BF16.array_type([2]));
    /// assert_eq!(type_of(Policy::new(F32, BF16, F32).cast_to_output(&logits)), "float32[2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn cast_to_output<T: Tree>(&self, tree: &T) -> T {
        cast_floats(tree, self.output_dtype)
    }
}

/// Returns the policy that computes everything in float32.
impl Default for Policy {
    fn default() -> Policy {
        Policy::new(DType::F32, DType::F32, DType::F32)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "params={},compute={},output={}", self.param_dtype, self.compute_dtype, self.output_dtype)
    }
}

/// Parses `params=float32,compute=bfloat16,output=float32`, or one type for all three: `float32`.
impl FromStr for Policy {
    type Err = crate::core::Error;

    fn from_str(text: &str) -> Result<Policy> {
        let dtype = |name: &str| name.trim().parse::<DType>().map_err(|_| syntax_error(text, name));
        if !text.contains('=') {
            let one = dtype(text)?;
            return Ok(Policy::new(one, one, one));
        }
        let mut policy = Policy::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| syntax_error(text, part))?;
            match name.trim() {
                "params" => policy.param_dtype = dtype(value)?,
                "compute" => policy.compute_dtype = dtype(value)?,
                "output" => policy.output_dtype = dtype(value)?,
                _ => return Err(syntax_error(text, part)),
            }
        }
        Ok(policy)
    }
}

fn syntax_error(text: &str, part: &str) -> crate::core::Error {
    Fault::new(ErrorKind::Syntax, format!("cannot read {part:?} in the policy {text:?}"))
        .help("write it so: `\"params=float32,compute=bfloat16,output=float32\"`")
        .into()
}

/// Casts the arrays of a tree that are of floats.
#[track_caller]
fn cast_floats<T: Tree>(tree: &T, dtype: DType) -> T {
    let cast = |a: &Array| if a.dtype().is_ok_and(DType::is_float) { a.astype(dtype) } else { a.clone() };
    tree::map(tree, cast)
}
