//! The columns of the table of scalar functions.
//!
//! A row starts with the function that describes its kind (`function`, `arithmetic`, `bitwise`,
//! `movement`), which fills the columns with the usual values. The methods after it change
//! single columns.

use crate::core::dtype::{DType, DTypeClass};

/// All that the compiler knows about a scalar function, apart from its kernels and derivative.
#[derive(Clone, Copy, Debug)]
pub struct ScalarOpInfo {
    /// The name, which is also that of the primitive and the method, if there are any.
    pub name: &'static str,
    /// The number of operands.
    pub arity: usize,
    /// The element types of operands. The first operand of `Select` is a bool.
    pub operands: DTypeClass,
    /// The element type of the result.
    pub result: ResultDType,
    /// The cost of an element of four bytes on vectors, in nanoseconds: of floats, of complex
    /// numbers, and of other types.
    ns_per_element: [f64; 3],
    /// The number of floating-point operations that the function counts as in a plan.
    pub flops: f64,
    /// The form of the function in StableHLO.
    pub stablehlo: StableHloForm,
    /// Results that may be subnormal in the flush mode, although no operand is.
    pub subnormals: SubnormalResults,
    /// The maximum error in float32 and in float64, in units in the last place. A function whose
    /// results are rounded once has 0.5.
    pub max_ulps: [f64; 2],
    /// The definition on floats, which the reference engine computes in float64.
    definition: FloatDefinition,
}

/// The element type of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultDType {
    /// The element type of the operands.
    Operand,
    /// A bool.
    Bool,
    /// The type of the parts of a complex operand; the type of other operands.
    Part,
    /// The complex type whose parts have the type of the operands.
    Complex,
    /// Any type of the same width; only a bool is reinterpreted as a bool.
    SameWidth,
    /// Any type that is complex if and only if the operand is.
    SameKind,
}

/// The form of a function in StableHLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StableHloForm {
    /// An operation whose result has the type of its operands.
    Operation(&'static str),
    /// An operation with one operand, whose result has another element type.
    Conversion(&'static str),
    /// A comparison in this direction.
    Compare(&'static str),
    /// An operation of CHLO, a dialect that XLA expands.
    Chlo(&'static str),
    /// Several operations, which `xla/stablehlo/code.rs` writes.
    Composed,
    /// The row does not say; such a table does not compile.
    Missing,
}

/// Results that may be subnormal in the flush mode, although no operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubnormalResults {
    /// None: a result is an operand but for its sign, a whole number, not a float, or the result
    /// of an instruction of the processor, which flushes it.
    Never,
    /// Those of complex numbers, which several instructions compute.
    IfComplex,
    /// Those of conversions between inexact types.
    IfConverted,
    /// Any.
    Possible,
}

/// The definition of a function on floats.
#[derive(Clone, Copy, Debug)]
pub(super) enum FloatDefinition {
    /// The function is not defined on floats, or its result depends on more than their values.
    None,
    Unary(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
}

/// The number of operations that a function such as `exp` counts as.
const FUNCTION_FLOPS: f64 = 10.0;
/// The cost of an element of complex functions, which are computed one by one in float64.
const COMPLEX_NS: f64 = 15.0;

/// Describes a transcendental function with this cost in nanoseconds per element.
/// Its row states its errors (`ulps`).
pub(super) const fn function(ns: f64, definition: FloatDefinition) -> ScalarOpInfo {
    ScalarOpInfo { flops: FUNCTION_FLOPS, max_ulps: [f64::NAN; 2], ..arithmetic(definition) }
        .ns(ns)
        .subnormals(SubnormalResults::Possible)
}
/// Describes an operation on floats that is one instruction of the processor.
pub(super) const fn arithmetic(definition: FloatDefinition) -> ScalarOpInfo {
    let arity = if matches!(definition, FloatDefinition::Binary(_)) { 2 } else { 1 };
    ScalarOpInfo { definition, ..bitwise(arity) }
}
/// Describes an instruction of the processor with this number of operands.
pub(super) const fn bitwise(arity: usize) -> ScalarOpInfo {
    ScalarOpInfo {
        name: "",
        arity,
        operands: DTypeClass::Any,
        result: ResultDType::Operand,
        ns_per_element: [0.025; 3],
        flops: 1.0,
        stablehlo: StableHloForm::Missing,
        subnormals: SubnormalResults::Never,
        max_ulps: [0.5; 2],
        definition: FloatDefinition::None,
    }
}
/// Describes an operation that moves or reinterprets its operands.
pub(super) const fn movement(arity: usize) -> ScalarOpInfo {
    ScalarOpInfo { flops: 0.0, ..bitwise(arity) }
}

impl ScalarOpInfo {
    /// Sets the name, and the types of operands unless [`Self::on`] has set them.
    pub(super) const fn named(self, name: &'static str, operands: DTypeClass) -> Self {
        let is_set = !matches!(self.operands, DTypeClass::Any);
        Self { name, operands: if is_set { self.operands } else { operands }, ..self }
    }
    /// Accepts more element types than the primitive of this name.
    pub(super) const fn on(self, operands: DTypeClass) -> Self {
        Self { operands, ..self }
    }
    pub(super) const fn makes(self, result: ResultDType) -> Self {
        Self { result, ..self }
    }
    /// Sets the cost on all element types.
    pub(super) const fn ns(self, ns: f64) -> Self {
        Self { ns_per_element: [ns; 3], ..self }
    }
    pub(super) const fn complex_ns(self, ns: f64) -> Self {
        Self { ns_per_element: [self.ns_per_element[0], ns, self.ns_per_element[2]], ..self }
    }
    pub(super) const fn integer_ns(self, ns: f64) -> Self {
        Self { ns_per_element: [self.ns_per_element[0], self.ns_per_element[1], ns], ..self }
    }
    /// Gives complex numbers the cost of a function that is computed in float64.
    pub(super) const fn complex(self) -> Self {
        self.complex_ns(COMPLEX_NS)
    }
    /// Counts as many operations as a transcendental function.
    pub(super) const fn counts_as_function(self) -> Self {
        Self { flops: FUNCTION_FLOPS, ..self }
    }
    /// Sets the maximum error in float32 and in float64, in units in the last place.
    pub(super) const fn ulps(self, f32: f64, f64: f64) -> Self {
        Self { max_ulps: [f32, f64], ..self }
    }
    pub(super) const fn subnormals(self, subnormals: SubnormalResults) -> Self {
        Self { subnormals, ..self }
    }
    const fn stablehlo(self, stablehlo: StableHloForm) -> Self {
        Self { stablehlo, ..self }
    }
    pub(super) const fn hlo(self, name: &'static str) -> Self {
        self.stablehlo(StableHloForm::Operation(name))
    }
    pub(super) const fn typed_hlo(self, name: &'static str) -> Self {
        self.stablehlo(StableHloForm::Conversion(name))
    }
    pub(super) const fn compare(self, direction: &'static str) -> Self {
        self.stablehlo(StableHloForm::Compare(direction)).makes(ResultDType::Bool)
    }
    pub(super) const fn chlo(self, name: &'static str) -> Self {
        self.stablehlo(StableHloForm::Chlo(name))
    }
    pub(super) const fn spelled_out(self) -> Self {
        self.stablehlo(StableHloForm::Composed)
    }

    /// Stops the compilation if the row leaves out a column.
    pub(super) const fn check(&self) {
        assert!(!matches!(self.stablehlo, StableHloForm::Missing), "a row has no StableHLO form");
        assert!(!self.max_ulps[0].is_nan(), "the row of a function does not state its errors");
    }

    /// Returns true if the function maps elements of type `operand_dtype` to elements of `dtype`.
    pub fn supports_dtypes(&self, operand_dtype: DType, dtype: DType) -> bool {
        let (from, to) = (operand_dtype.storage(), dtype.storage());
        match self.result {
            // The byte of a bool is 0 or 1, so only a bool can be reinterpreted as a bool.
            ResultDType::SameWidth => from.size() == to.size() && (to != DType::Bool || from == to),
            ResultDType::SameKind => from.is_complex() == to.is_complex(),
            result => self.operands.contains(from) && result.for_operand(from) == Some(to),
        }
    }
    /// Returns the exact value on floats, up to the rounding of float64. A function of one operand
    /// ignores `b`. `None` if the function is not defined by the values of floats alone.
    pub fn exact_value(&self, a: f64, b: f64) -> Option<f64> {
        match self.definition {
            FloatDefinition::None => None,
            FloatDefinition::Unary(f) => Some(f(a)),
            FloatDefinition::Binary(f) => Some(f(a, b)),
        }
    }
    /// Returns the approximate cost on vectors, in nanoseconds per element of four bytes.
    pub fn ns_per_element(&self, operand_dtype: DType, dtype: DType) -> f64 {
        let [float, complex, other] = self.ns_per_element;
        match operand_dtype.is_complex() {
            true => complex,
            false if dtype.is_float() => float,
            false => other,
        }
    }
}

impl ResultDType {
    /// Returns the result's type for operands of this type; `None` if there is none, or several.
    pub fn for_operand(self, operand: DType) -> Option<DType> {
        match self {
            ResultDType::Operand => Some(operand),
            ResultDType::Bool => Some(DType::Bool),
            ResultDType::Part => Some(operand.real()),
            ResultDType::Complex => operand.complex(),
            ResultDType::SameWidth | ResultDType::SameKind => None,
        }
    }
}
