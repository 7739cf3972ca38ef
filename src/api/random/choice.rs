//! Random choices of elements.

use super::Key;
use crate::api::array::{Array, resolve_dim};
use crate::api::trace::{carried_errors, poison};
use crate::core::{DType, Fault, Shape};
use crate::ir::program::CallSite;

/// Options of [`Key::choice_with`]: `ChoiceOptions::default().without_replacement()`.
///
/// ```
/// use atmesh::{prelude::*, random::ChoiceOptions};
/// let (x, p) = (Array::from([[1, 2, 3], [4, 5, 6]]), Array::from([0.5f32, 0.0, 0.5]));
/// // two columns, of which the middle one is never chosen
/// let options = ChoiceOptions::default().dim(1).p(&p).without_replacement();
/// let y = Key::new(0).choice_with(&x, [2], options);
/// assert_eq!(y.sort(1).to_vec::<i32>()?, [1, 3, 4, 6]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChoiceOptions {
    /// True if a slice may be chosen several times. Defaults to true.
    pub replace: bool,
    /// The probability of each slice; `None` if all are equally likely.
    pub p: Option<Array>,
    /// The dimension along which slices are chosen. Defaults to 0.
    pub dim: i32,
}

impl Default for ChoiceOptions {
    fn default() -> ChoiceOptions {
        ChoiceOptions { replace: true, p: None, dim: 0 }
    }
}

impl ChoiceOptions {
    setters! {
        /// Chooses each slice at most once.
        pub fn without_replacement() = replace: false;
        /// Sets the probability of each slice, a vector.
        pub fn p(p: &Array) = p: Some(p.clone());
        /// Sets the dimension along which slices are chosen.
        pub fn dim(d: i32) = dim: d;
    }
}

impl Key {
    /// Chooses elements of a vector, or rows of an array, with replacement.
    ///
    /// The result has `shape` instead of dimension 0. The draws are those of JAX. Dimension 0 must
    /// be unsharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([10, 20, 30]);
    /// let y = Key::new(0).choice(&x, [2, 4]);
    /// assert_eq!(type_of(&y), "int32[2,4]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn choice(&self, x: &Array, shape: impl Into<Shape>) -> Array {
        self.choice_at(x, shape.into(), ChoiceOptions::default(), CallSite::here("choice"))
    }
    /// Computes [`Key::choice`] with options: replacement, probabilities, and the dimension.
    ///
    /// ```
    /// use atmesh::{prelude::*, random::ChoiceOptions};
    /// let x = Array::arange(0..10);
    /// let some = Key::new(0).choice_with(&x, [5], ChoiceOptions::default().without_replacement());
    /// let sorted = some.sort(0).to_vec::<i32>()?;
    /// assert!(sorted.windows(2).all(|w| w[0] < w[1]));
    /// let p = Array::from([0.0f32, 1.0]);
    /// let y = Key::new(0).choice_with(&Array::from([1, 2]), [3], ChoiceOptions::default().p(&p));
    /// assert_eq!(y.to_vec::<i32>()?, [2, 2, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn choice_with(&self, x: &Array, shape: impl Into<Shape>, options: ChoiceOptions) -> Array {
        self.choice_at(x, shape.into(), options, CallSite::here("choice_with"))
    }
    #[track_caller]
    fn choice_at(&self, x: &Array, shape: Shape, options: ChoiceOptions, call: CallSite<'_>) -> Array {
        if let Some(error) = carried_errors([x].into_iter().chain(&options.p)) {
            return poison(error);
        }
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let reject = |fault: Fault| x.reject(fault, call);
        let d = ok_or_return!(resolve_dim(options.dim.into(), ty.rank()), |fault| reject(fault));
        let (n, draws) = (ty.shape[d], shape.num_elements());
        if n == 0 && draws > 0 {
            return reject(
                fault!(Shape, "dimension {d} is empty: there is nothing to choose").highlight_dim(0, d),
            );
        }
        if !options.replace && draws > n {
            let fault = fault!(Shape, "{draws} of {n} slices cannot be chosen without replacement");
            return reject(fault.help("choose fewer, or with replacement: `ChoiceOptions::default()`"));
        }
        if let Some(fault) = options.p.as_ref().and_then(|p| probabilities_fault(p, n)) {
            return reject(fault);
        }
        let dim = d as i32;
        let rows = match &options.p {
            None if options.replace => self.randint(shape.clone(), 0..n as i64),
            None => {
                let all = self.permutation(x, dim);
                let index = Array::arange(0..draws as i32).reshape(shape);
                return all.take(&index, dim);
            }
            Some(p) if options.replace => {
                let sums = p.cumsum(0);
                let last = sums.take(&Array::from(n as i32 - 1), 0);
                let drawn = p.dtype().unwrap_or(DType::F32).array_type(shape.clone());
                sums.searchsorted(&(last * (1.0 - self.uniform(drawn))), false)
            }
            Some(p) => {
                // the largest of logarithms with Gumbel noise are a sample without replacement
                let drawn = p.dtype().unwrap_or(DType::F32).array_type([n]);
                (self.gumbel(drawn) + p.log()).top_k(draws, 0).1.reshape(shape.clone())
            }
        };
        x.take(&rows.astype(DType::I32), dim)
    }
}

/// Returns the fault of probabilities that are not a vector of n floats.
fn probabilities_fault(p: &Array, n: usize) -> Option<Fault> {
    let ty = p.type_ref().ok()?;
    if !ty.dtype.is_float() {
        return Some(
            fault!(Dtype, "the probabilities are {}, not floats", ty.dtype)
                .help("convert them: `p.astype(F32)`"),
        );
    }
    (ty.shape[..] != [n]).then(|| {
        fault!(Shape, "the probabilities have shape {}, for {n} slices", ty.shape)
            .help(format!("give one for each slice: a vector of {n}"))
    })
}
