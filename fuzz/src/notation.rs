//! The notation of element types, types and specs.

use atmesh::{ArrayType, AxisType, DType, Mesh, Spec};

/// Parses the text in each notation. What parses is printed and parsed again.
pub fn check(text: &str) {
    if let Ok(dtype) = text.parse::<DType>() {
        assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype, "{text:?}");
    }
    if let Ok(spec) = text.parse::<Spec>() {
        let printed = spec.to_string();
        let again = printed.parse::<Spec>();
        assert_eq!(again.ok(), Some(spec), "{text:?} is printed as {printed:?}");
    }
    let axes = [("X", 2, AxisType::Explicit), ("Y", 4, AxisType::Explicit), ("Z", 2, AxisType::Manual)];
    let mesh = Mesh::with_types(axes).unwrap();
    if let Ok(ty) = ArrayType::parse(text, &mesh) {
        for printed in [ty.to_string(), ty.short_text()] {
            let again = ArrayType::parse(&printed, &mesh);
            assert_eq!(again.ok().as_ref(), Some(&ty), "{text:?} is printed as {printed:?}");
        }
    }
}
