//! The output of print steps (`debug_print!`) of a running program.

use super::format;
use crate::core::{Axes, DType, Fault, Mesh, Shape};
use crate::exec::runtime::ArrayData;
use std::sync::Arc;

/// A value to print.
pub(crate) struct PrintArgument {
    /// The data of the value, as stored.
    pub(crate) data: ArrayData,
    /// The element type.
    pub(crate) dtype: DType,
    /// The manual axes of the leading dimensions.
    pub(crate) leading_axes: Axes,
}

/// Formats the text of a print step: `template` with each `{}` replaced by a value.
///
/// Under `manual` axes a value is the list of all devices' blocks, in the order of the mesh; the
/// leading dimensions of its data are those of `leading_axes`. Otherwise it is the array.
fn text(template: &str, values: &[PrintArgument], manual: &Axes, mesh: Option<&Mesh>) -> String {
    let mut pieces = template.split("{}");
    let mut text = pieces.next().unwrap_or_default().to_string();
    let mut values = values.iter();
    for after in pieces {
        match (values.next(), mesh) {
            (Some(v), Some(mesh)) if !manual.is_empty() => text += &blocks(v, manual, mesh),
            (Some(v), _) => text += &format::array_data(v.dtype, &v.data),
            (None, _) => text += "{}",
        }
        text += after;
    }
    text
}

/// Formats the text of a print step, or the error if there was no memory to copy its values.
pub(crate) fn print_text(
    template: &str,
    values: Result<Vec<PrintArgument>, Fault>,
    manual: &Axes,
    mesh: Option<&Mesh>,
) -> String {
    let values = ok_or_return!(values, |error| format!("{template}: {}\n", error.message));
    text(template, &values, manual, mesh)
}

fn blocks(value: &PrintArgument, manual: &Axes, mesh: &Mesh) -> String {
    let PrintArgument { data: slab, dtype, leading_axes: hidden } = value;
    let shape: Shape = slab.shape().iter().skip(hidden.len()).copied().collect();
    let bytes = shape.num_elements() * slab.dtype().size();
    let axes: Vec<_> = mesh.axis_names().iter().copied().filter(|a| manual.contains(*a)).collect();
    let names: Vec<_> = axes.iter().map(|a| a.name()).collect();
    let mut list = Vec::new();
    for position in 0..mesh.size() {
        let coordinates = mesh.coordinates(position);
        let at = |axis| mesh.find(axis).map_or(0, |i| coordinates[i]);
        let block = mesh.rank_along(hidden, &coordinates);
        let places: Arc<[usize]> = if bytes == 0 { [].into() } else { [block * bytes].into() };
        let block = slab.select_blocks(slab.dtype(), shape.clone(), bytes.max(1), &places);
        let device = mesh.devices().get(position).map_or_else(|| format!("{position}"), ToString::to_string);
        let numbers: Vec<_> = axes.iter().map(|a| at(*a).to_string()).collect();
        list.push(format!(
            "On {device} at mesh coordinates ({},) = ({},):\n{}\n",
            names.join(", "),
            numbers.join(", "),
            block.map_or_else(|error| error.message, |block| format::array_data(*dtype, &block))
        ));
    }
    list.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::mesh::Mesh;

    fn shown(slab: ArrayData, hidden: Axes) -> PrintArgument {
        PrintArgument { dtype: slab.dtype(), data: slab, leading_axes: hidden }
    }

    #[test]
    fn blocks_are_listed_in_device_order() {
        let mesh = Mesh::new([("i", 2)]).unwrap();
        let slab = ArrayData::from_elements([2, 2].into(), &[3, 1, 4, 1]).unwrap();
        let text = text("BEFORE:\n{}", &[shown(slab, "i".into())], &"i".into(), Some(&mesh));
        let expected = "BEFORE:\nOn CPU 0 at mesh coordinates (i,) = (0,):\n[3 1]\n\n\
                    On CPU 1 at mesh coordinates (i,) = (1,):\n[4 1]\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn keys_are_their_two_words() {
        let slab = ArrayData::from_elements([2].into(), &[7u64 << 32, 5]).unwrap();
        let keys = |hidden| [PrintArgument { data: slab.clone(), dtype: DType::Key, leading_axes: hidden }];
        assert_eq!(text("{}", &keys(Axes::none()), &Axes::none(), None), "[[0 7]\n [5 0]]");
        let mesh = Mesh::new([("i", 2)]).unwrap();
        let blocks = text("{}", &keys("i".into()), &"i".into(), Some(&mesh));
        assert!(blocks.contains("(0,):\n[0 7]\n") && blocks.contains("(1,):\n[5 0]\n"), "{blocks}");
    }

    #[test]
    fn outside_manual_mode_the_array_is_printed() {
        let slab = ArrayData::from_elements([2].into(), &[1.5f32, 2.0]).unwrap();
        assert_eq!(text("x: {}!", &[shown(slab, Axes::none())], &Axes::none(), None), "x: [1.5 2. ]!");
    }
}
