//! Classes of element types: which types a function accepts.

use super::DType;

/// A class of element types that a primitive or a scalar function accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeClass {
    /// All element types, including keys.
    Any,
    /// Floats, complex numbers and integers.
    Number,
    /// Floats and integers.
    Real,
    /// Floats.
    Float,
    /// Floats and complex numbers.
    Inexact,
    /// Complex numbers.
    Complex,
    /// The floats that can be the real and imaginary parts of complex numbers.
    Parts,
    /// Floats, complex numbers and signed integers.
    Signed,
    /// Integers and bool.
    Bits,
    /// Integers.
    Integer,
    /// The type uint64, in which keys are stored.
    Word,
    /// Floats, integers and bool.
    Ordered,
    /// All element types except keys.
    Plain,
}

impl DTypeClass {
    /// Returns true if an element type is in the class.
    pub fn contains(self, d: DType) -> bool {
        match self {
            DTypeClass::Any => true,
            DTypeClass::Number => d.is_number(),
            DTypeClass::Real => d.is_number() && !d.is_complex(),
            DTypeClass::Float => d.is_float(),
            DTypeClass::Inexact => d.is_inexact(),
            DTypeClass::Complex => d.is_complex(),
            DTypeClass::Parts => d.is_float() && d.complex().is_some(),
            DTypeClass::Signed => d.is_inexact() || d.is_signed(),
            DTypeClass::Bits => d.is_integer() || d == DType::Bool,
            DTypeClass::Integer => d.is_integer(),
            DTypeClass::Word => d == DType::U64,
            DTypeClass::Ordered => d != DType::Key && !d.is_complex(),
            DTypeClass::Plain => d != DType::Key,
        }
    }
    /// Describes the class, for messages.
    pub(crate) fn description(self) -> &'static str {
        match self {
            DTypeClass::Any => "any element type",
            DTypeClass::Number => "numbers",
            DTypeClass::Real => "floats and integers",
            DTypeClass::Float => "floats",
            DTypeClass::Inexact => "floats and complex numbers",
            DTypeClass::Complex => "complex numbers",
            DTypeClass::Parts => "float32 and float64",
            DTypeClass::Signed => "floats, complex numbers and signed integers",
            DTypeClass::Bits => "integers and bool",
            DTypeClass::Integer => "integers",
            DTypeClass::Word => "uint64",
            DTypeClass::Ordered => "floats, integers and bool",
            DTypeClass::Plain => "numbers and bool",
        }
    }
}
