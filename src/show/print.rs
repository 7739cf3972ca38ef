//! What a program prints while it runs.

use super::format;
use crate::diagnostic::Fault;
use crate::mesh::{Axes, Mesh};
use crate::runtime::Slab;
use crate::types::{DType, Shape};
use std::sync::Arc;

/// A value to print.
pub(crate) struct Shown {
    /// What is stored of it.
    pub(crate) slab: Slab,
    /// Its element type.
    pub(crate) dtype: DType,
    /// The manual axes of its leading dimensions.
    pub(crate) hidden: Axes,
}

/// The text of a print step: `template` with each `{}` replaced by a value.
///
/// Under `manual` axes a value is the list of all devices' blocks, in the mesh's order; its leading dimensions are those of
/// `hidden`. Elsewhere it is the array.
fn text(template: &str, values: &[Shown], manual: &Axes, mesh: Option<&Mesh>) -> String {
    let mut parts = template.split("{}");
    let mut text = parts.next().unwrap_or_default().to_string();
    let mut values = values.iter();
    for after in parts {
        match (values.next(), mesh) {
            (Some(v), Some(mesh)) if !manual.is_empty() => text += &blocks(v, manual, mesh),
            (Some(v), _) => text += &format::slab(v.dtype, &v.slab),
            (None, _) => text += "{}",
        }
        text += after;
    }
    text
}

/// The same of values that had to be copied: where there was no memory for it, that.
pub(crate) fn text_of(
    template: &str,
    values: Result<Vec<Shown>, Fault>,
    manual: &Axes,
    mesh: Option<&Mesh>,
) -> String {
    match values {
        Ok(values) => text(template, &values, manual, mesh),
        Err(refused) => format!("{template}: {}\n", refused.message),
    }
}

fn blocks(value: &Shown, manual: &Axes, mesh: &Mesh) -> String {
    let Shown { slab, dtype, hidden } = value;
    let shape: Shape = slab.shape().iter().skip(hidden.len()).copied().collect();
    let bytes = shape.elements() * slab.dtype().size();
    let axes: Vec<_> = mesh.axis_names().iter().copied().filter(|a| manual.contains(*a)).collect();
    let names: Vec<_> = axes.iter().map(|a| a.name()).collect();
    let mut list = Vec::new();
    for position in 0..mesh.size() {
        let coordinates = mesh.coordinates(position);
        let at = |axis| mesh.find(axis).map_or(0, |i| coordinates[i]);
        let block = mesh.rank_along(hidden, &coordinates);
        let places: Arc<[usize]> = if bytes == 0 { [].into() } else { [block * bytes].into() };
        let block = slab.select(slab.dtype(), shape.clone(), bytes.max(1), &places);
        let device = mesh.devices().get(position).map_or_else(|| format!("{position}"), ToString::to_string);
        let numbers: Vec<_> = axes.iter().map(|a| at(*a).to_string()).collect();
        list.push(format!(
            "On {device} at mesh coordinates ({},) = ({},):\n{}\n",
            names.join(", "),
            numbers.join(", "),
            block.map_or_else(|refused| refused.message, |block| format::slab(*dtype, &block))
        ));
    }
    list.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Mesh;

    fn shown(slab: Slab, hidden: Axes) -> Shown {
        Shown { dtype: slab.dtype(), slab, hidden }
    }

    #[test]
    fn blocks_are_listed_in_device_order() {
        let mesh = Mesh::new([("i", 2)]).unwrap();
        let slab = Slab::from_elements([2, 2].into(), &[3, 1, 4, 1]).unwrap();
        let text = text("BEFORE:\n{}", &[shown(slab, "i".into())], &"i".into(), Some(&mesh));
        let want = "BEFORE:\nOn CPU 0 at mesh coordinates (i,) = (0,):\n[3 1]\n\n\
                    On CPU 1 at mesh coordinates (i,) = (1,):\n[4 1]\n";
        assert_eq!(text, want);
    }

    #[test]
    fn keys_are_their_two_words() {
        let slab = Slab::from_elements([2].into(), &[7u64 << 32, 5]).unwrap();
        let keys = |hidden| [Shown { slab: slab.clone(), dtype: DType::Key, hidden }];
        assert_eq!(text("{}", &keys(Axes::none()), &Axes::none(), None), "[[0 7]\n [5 0]]");
        let mesh = Mesh::new([("i", 2)]).unwrap();
        let blocks = text("{}", &keys("i".into()), &"i".into(), Some(&mesh));
        assert!(blocks.contains("(0,):\n[0 7]\n") && blocks.contains("(1,):\n[5 0]\n"), "{blocks}");
    }

    #[test]
    fn outside_manual_mode_the_array_is_printed() {
        let slab = Slab::from_elements([2].into(), &[1.5f32, 2.0]).unwrap();
        assert_eq!(text("x: {}!", &[shown(slab, Axes::none())], &Axes::none(), None), "x: [1.5 2. ]!");
    }
}
