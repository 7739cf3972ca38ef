//! The options that a plugin takes when a client is created, and the text form of them.

use super::{fault, op_error};
use crate::core::{Error, ErrorKind, Result};

/// The environment variable with the options of the plugin.
pub const PLUGIN_OPTIONS: &str = "ATMESH_PJRT_OPTIONS";

/// The value of a plugin's option (`PJRT_NamedValue`).
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A list of integers.
    IntList(Vec<i64>),
    /// A number with a fractional part.
    Float(f32),
    /// Any other text.
    Text(String),
}

/// The options of a plugin, which it reads when a client is created.
///
/// XLA's GPU plugin has, for example, `preallocate` (a bool), `memory_fraction` (a float from 0
/// to 1) and `visible_devices` (a list of integers). The environment variable
/// `ATMESH_PJRT_OPTIONS` has the same options as text.
///
/// ```
/// use atmesh::pjrt::{ClientOptions, OptionValue};
/// let options = ClientOptions::parse("preallocate=false; memory_fraction=0.5; visible_devices=[0]")?;
/// let same = ClientOptions::default()
///     .with("preallocate", OptionValue::Bool(false))
///     .with("memory_fraction", OptionValue::Float(0.5))
///     .with("visible_devices", OptionValue::IntList(vec![0]));
/// assert_eq!(options, same);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientOptions(Vec<(String, OptionValue)>);

impl ClientOptions {
    /// Returns the options with one more; a later value replaces an earlier one of the same name.
    pub fn with(mut self, name: impl Into<String>, value: OptionValue) -> ClientOptions {
        let name = name.into();
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value));
        self
    }
    /// Iterates over the options, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &OptionValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
    /// Parses options as `ATMESH_PJRT_OPTIONS` has them: `name=value`, separated by semicolons.
    ///
    /// A value is `true` or `false`, an integer of 64 bits, a finite number with a decimal point or
    /// an exponent, a list of integers in brackets, or else text.
    ///
    /// # Errors
    /// An option has no name or no `=`, or a list contains something other than integers.
    pub fn parse(text: &str) -> Result<ClientOptions> {
        let mut options = ClientOptions::default();
        for option in text.split(';').map(str::trim).filter(|option| !option.is_empty()) {
            let split = option.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            let Some((name, value)) = split.filter(|(name, _)| !name.is_empty()) else {
                return Err(syntax_error(format!("`{option}` is no option of a plugin")));
            };
            options = options.with(name, parse_value(value)?);
        }
        Ok(options)
    }
    /// Returns the options of the environment variable `ATMESH_PJRT_OPTIONS`.
    pub(super) fn from_env() -> Result<ClientOptions> {
        std::env::var_os(PLUGIN_OPTIONS).map_or_else(
            || Ok(ClientOptions::default()),
            |text| ClientOptions::parse(&text.to_string_lossy()),
        )
    }
}

fn parse_value(text: &str) -> Result<OptionValue> {
    if let Some(list) = text.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        let numbers = list.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::parse);
        return numbers
            .collect::<std::result::Result<_, _>>()
            .map(OptionValue::IntList)
            .map_err(|_| syntax_error(format!("`{text}` is no list of integers")));
    }
    // Rust also reads names such as `nan` and `infinity`, and integers, as floats
    let float = text.contains(['.', 'e', 'E']).then(|| text.parse().ok()).flatten();
    Ok(match (text.parse(), text.parse(), float.filter(|x: &f32| x.is_finite())) {
        (Ok(yes), _, _) => OptionValue::Bool(yes),
        (_, Ok(n), _) => OptionValue::Int(n),
        (_, _, Some(x)) => OptionValue::Float(x),
        _ => OptionValue::Text(text.into()),
    })
}

fn syntax_error(message: String) -> Error {
    let help = format!(
        "separate options by semicolons: `{PLUGIN_OPTIONS}=\"preallocate=false; memory_fraction=0.5\"`"
    );
    op_error("pjrt::ClientOptions", fault(ErrorKind::Syntax, message).help(help))
}

/// Returns true if a plugin's message says that the memory of a device is full.
///
/// The GPU plugin says "All configs failed" if no memory is left to try algorithms in.
pub(super) fn is_out_of_memory(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["out of memory", "out_of_memory", "resource_exhausted", "all configs failed", "failed to allocate"]
        .iter()
        .any(|sign| message.contains(sign))
}

/// The help of an error on a device whose memory is full.
pub(super) fn out_of_memory_help() -> String {
    format!(
        "free the memory of the device: if another process reserved it, start that one, or both, with \
         `{PLUGIN_OPTIONS}=\"preallocate=false\"` or a smaller `memory_fraction`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_type_that_their_text_shows() {
        let parse = |text: &str| ClientOptions::parse(text).map(|o| o.0.into_iter().next());
        for (text, value) in [
            ("a=true", OptionValue::Bool(true)),
            ("a = -3", OptionValue::Int(-3)),
            ("a=0.25;", OptionValue::Float(0.25)),
            ("a=[1, 2]", OptionValue::IntList(vec![1, 2])),
            ("a=[]", OptionValue::IntList(vec![])),
            ("a=1e-3", OptionValue::Float(1e-3)),
            ("a=platform", OptionValue::Text("platform".into())),
            ("a=infinity", OptionValue::Text("infinity".into())),
            ("a=NaN", OptionValue::Text("NaN".into())),
            ("a=1e400", OptionValue::Text("1e400".into())),
            ("a=9223372036854775808", OptionValue::Text("9223372036854775808".into())),
            ("a=", OptionValue::Text(String::new())),
            ("a=1; a=2", OptionValue::Int(2)),
        ] {
            assert_eq!(parse(text).unwrap(), Some(("a".into(), value)), "{text}");
        }
        assert_eq!(parse(" ; ").unwrap(), None);
        for wrong in ["preallocate", "=1", "a=[1, x]"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(
                error.contains(wrong.trim_start_matches("a=")) && error.contains(PLUGIN_OPTIONS),
                "{error}"
            );
        }
    }

    #[test]
    fn messages_of_full_devices_are_recognized() {
        for message in
            ["RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "INTERNAL: All configs failed"]
        {
            assert!(is_out_of_memory(message), "{message}");
        }
        assert!(!is_out_of_memory("INVALID_ARGUMENT: expected 2 operands"));
    }
}
