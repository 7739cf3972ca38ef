//! Prints at run time.

use crate::array::Array;
use crate::diagnostic::{ErrorKind, Fault};
use crate::program::{Call, Control};
use crate::trace::{apply_control, poison};

/// Prints arrays when the program runs: `debug_print!("x: {}", x)`. Inside `shard_map` it prints each device's block, in the
/// devices' order. It is never removed.
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

/// What [`crate::debug_print!`] calls.
#[track_caller]
pub fn debug_print_values(template: &str, values: &[Array]) {
    let call = Call::here("debug_print");
    let holes = template.matches("{}").count();
    if holes != values.len() {
        let fault =
            Fault::new(ErrorKind::Shape, format!("the text has {holes} `{{}}` for {} values", values.len()))
                .help("write `{}` once for each value");
        let _ = poison(call.error(fault, Vec::new));
        return;
    }
    let control = Control::Print { template: template.into() };
    if let Err(e) = apply_control(control, values, Vec::new(), call) {
        let _ = poison(e);
    }
}
