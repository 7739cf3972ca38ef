//! `debug_print!`, which prints values while a program runs.

use crate::api::array::Array;
use crate::api::trace::{apply_control, poison};
use crate::ir::program::{CallSite, Control};

/// Prints arrays when the program runs: `debug_print!("x: {}", x)`.
///
/// Inside `shard_map` it prints each device's block, in device order. Dead-code elimination does
/// not remove it.
///
/// ```
/// use atmesh::prelude::*;
/// let f = jit(|x: &Array| {
///     debug_print!("x: {}", x);
///     x + 1
/// });
/// f.call(1)?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[macro_export]
macro_rules! debug_print {
    ($fmt:literal $(, $x:expr)* $(,)?) => { $crate::debug_print_values($fmt, &[$($crate::Array::clone(&$x)),*]) };
}

/// Implements [`crate::debug_print!`].
///
/// ```
/// use atmesh::{Array, debug_print_values, jit};
/// // for a template and arrays that are known at run time only
/// let f = jit(|x: &Array| {
///     debug_print_values("x: {}", &[x.clone()]);
///     x + 1
/// });
/// assert_eq!(f.call(1)?.item::<i32>()?, 2);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn debug_print_values(template: &str, values: &[Array]) {
    let call = CallSite::here("debug_print");
    let holes = template.matches("{}").count();
    if holes != values.len() {
        let fault = fault!(Shape, "the text has {holes} `{{}}` for {} values", values.len())
            .help("write `{}` once for each value");
        let _ = poison(call.error(fault, Vec::new));
        return;
    }
    let control = Control::Print { template: template.into() };
    if let Err(e) = apply_control(control, values, Vec::new(), call) {
        let _ = poison(e);
    }
}
