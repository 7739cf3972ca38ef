//! Arrays as text: the implementations of `Display` and `Debug`.

use super::Array;
use crate::api::trace::Repr;
use crate::core::{ArrayType, Mesh, Result};
use crate::exec::display::format;
use crate::exec::runtime::process_devices;
use std::fmt::{self, Alignment};
use std::ops::Range;
use std::panic::Location;

/// Prints the elements like NumPy, a traced value as its type, and an error as its message.
///
/// Printing never waits for other processes: if this process does not hold all elements, the type
/// is printed, and the blocks of this process's devices with their index ranges.
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
            Repr::Concrete(c) if process_devices().is_some() && self.needs_others() => {
                match self.own_blocks_text(f.precision()) {
                    Ok(text) => write!(f, "{} of {} processes{text}", c.ty, mesh_processes(&c.ty)),
                    Err(e) => write!(f, "{e}"),
                }
            }
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

fn mesh_processes(ty: &ArrayType) -> usize {
    ty.mesh.as_ref().map_or(1, Mesh::processes)
}

impl Array {
    /// Returns true if reading the elements takes a program that all processes run.
    fn needs_others(&self) -> bool {
        self.array_data("print", Location::caller()).is_ok_and(|x| !x.is_local() || x.num_partials() > 1)
    }
    /// Returns the distinct blocks of this process as text, each after its index ranges.
    fn own_blocks_text(&self, precision: Option<usize>) -> Result<String> {
        let dtype = self.dtype()?;
        let mut text = String::new();
        let mut shown: Vec<Vec<Range<usize>>> = Vec::new();
        for block in self.own_blocks("print", Location::caller())? {
            if !shown.contains(&block.index) {
                let elements = format::array_data_with(dtype, &block.data()?, precision);
                let ranges: Vec<String> = block.index.iter().map(|r| format!("{r:?}")).collect();
                text += &format!("\n[{}] on {}:\n{elements}", ranges.join(", "), block.device);
                shown.push(block.index);
            }
        }
        Ok(text)
    }
}
