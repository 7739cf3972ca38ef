//! Arrays as text: the implementations of `Display` and `Debug`.

use super::Array;
use crate::api::trace::Repr;
use crate::exec::display::format;
use std::fmt::{self, Alignment};
use std::panic::Location;

/// Prints the elements like NumPy, a traced value as its type, and an error as its message.
///
/// A precision is the number of digits after the point of each float: `{:.2}` prints `[1.50 0.25]`.
/// A width pads scalars, which are aligned at the right unless the format says otherwise.
impl fmt::Display for Array {
    // without `#[track_caller]`: formatting calls this through a vtable, which has no caller's
    // location, and rustc 1.95 cannot link the table's entry to a shared library (see notebooks/dylib)
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.repr() {
            Repr::Traced(t) => write!(f, "{}", t.value.ty),
            Repr::Poisoned(e) => write!(f, "{e}"),
            Repr::Concrete(c) => match self.host_data("print", Location::caller()) {
                Ok(slab) => {
                    let text = format::array_data_with(c.ty.dtype, &slab, f.precision());
                    let padding = f.width().filter(|_| c.ty.rank() == 0).unwrap_or(0);
                    match f.align() {
                        Some(Alignment::Left) => write!(f, "{text:<padding$}"),
                        Some(Alignment::Center) => write!(f, "{text:^padding$}"),
                        Some(Alignment::Right) | None => write!(f, "{text:>padding$}"),
                    }
                }
                Err(e) => write!(f, "{e}"),
            },
        }
    }
}
debug_as_display! { [] Array }
