//! The text of the launcher variable `ATMESH_PJRT_OPTIONS`.

use atmesh::pjrt::{ClientOptions, OptionValue};
use std::collections::HashSet;

/// Parses the text. Options that were read are written and parsed again.
pub fn check(text: &str) {
    let Ok(options) = ClientOptions::parse(text) else { return };
    let mut names = HashSet::new();
    for (name, value) in options.iter() {
        assert!(!name.is_empty() && !name.contains([';', '=']), "{text:?} has the option {name:?}");
        assert!(names.insert(name), "{text:?} sets {name:?} twice");
        if let OptionValue::Float(x) = value {
            assert!(x.is_finite(), "{text:?} has the number {x}");
        }
    }
    let written: Vec<String> = options.iter().map(|(name, value)| write(name, value)).collect();
    let again = ClientOptions::parse(&written.join("; "));
    assert_eq!(again.ok(), Some(options), "{text:?} is written as {written:?}");
}

/// Writes an option as the variable has it.
fn write(name: &str, value: &OptionValue) -> String {
    match value {
        OptionValue::Bool(yes) => format!("{name}={yes}"),
        OptionValue::Int(n) => format!("{name}={n}"),
        OptionValue::IntList(list) => format!("{name}={list:?}"),
        // a float is printed with a decimal point or an exponent
        OptionValue::Float(x) => format!("{name}={x:?}"),
        OptionValue::Text(text) => format!("{name}={text}"),
    }
}
