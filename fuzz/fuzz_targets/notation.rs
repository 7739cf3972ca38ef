//! The notation of types and specs. What parses is printed and parsed again.
#![no_main]

use atmesh::{ArrayType, Mesh, Spec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(spec) = text.parse::<Spec>() {
        let printed = spec.to_string();
        assert_eq!(printed.parse::<Spec>().unwrap(), spec, "{text:?} is printed as {printed:?}");
    }
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    if let Ok(ty) = ArrayType::parse(text, &mesh) {
        let printed = ty.to_string();
        assert_eq!(ArrayType::parse(&printed, &mesh).unwrap(), ty, "{text:?} is printed as {printed:?}");
    }
});
