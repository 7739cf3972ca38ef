//! Element types.

use half::{bf16, f16};
use num_complex::Complex;
use std::fmt;

/// The element type of an array.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::ones([2]).astype(BF16);
/// assert_eq!((x.dtype()?, DType::from_name("f32")), (BF16, Some(F32)));
/// assert_eq!((F64.size(), F64.name()), (8, "float64"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each name says it")]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    #[default]
    F32,
    F64,
    /// A complex number of two float32 values.
    C64,
    /// A complex number of two float64 values.
    C128,
    /// A key of the random number generator: two 32-bit words.
    Key,
}

const DTYPE_TABLE: [(DType, &str, &str, usize); 16] = [
    (DType::Bool, "bool", "bool", 1),
    (DType::I8, "int8", "i8", 1),
    (DType::I16, "int16", "i16", 2),
    (DType::I32, "int32", "i32", 4),
    (DType::I64, "int64", "i64", 8),
    (DType::U8, "uint8", "u8", 1),
    (DType::U16, "uint16", "u16", 2),
    (DType::U32, "uint32", "u32", 4),
    (DType::U64, "uint64", "u64", 8),
    (DType::F16, "float16", "f16", 2),
    (DType::BF16, "bfloat16", "bf16", 2),
    (DType::F32, "float32", "f32", 4),
    (DType::F64, "float64", "f64", 8),
    (DType::C64, "complex64", "c64", 8),
    (DType::C128, "complex128", "c128", 16),
    (DType::Key, "key<fry>", "key<fry>", 8),
];

impl DType {
    /// Returns all element types.
    pub fn all() -> impl Iterator<Item = DType> {
        DTYPE_TABLE.iter().map(|n| n.0)
    }
    /// Returns the long name, as printed types show it: `float32`.
    pub fn name(self) -> &'static str {
        DTYPE_TABLE[self as usize].1
    }
    /// Returns the short name: `f32`.
    pub fn short_name(self) -> &'static str {
        DTYPE_TABLE[self as usize].2
    }
    /// Returns the element type with this long or short name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<DType> {
        DTYPE_TABLE.iter().find(|n| n.1 == name || n.2 == name).map(|n| n.0)
    }
    /// Returns the size of an element, in bytes.
    pub fn size(self) -> usize {
        DTYPE_TABLE[self as usize].3
    }
    /// Returns true for floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }
    /// Returns true for complex types.
    pub fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }
    /// Returns true for floating-point and complex types, which have derivatives.
    pub fn is_inexact(self) -> bool {
        self.is_float() || self.is_complex()
    }
    /// Returns the type of the parts of a complex type. Any other type is returned unchanged.
    pub fn real(self) -> DType {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            real => real,
        }
    }
    /// Returns the complex type whose parts have this type. A complex type is returned unchanged.
    ///
    /// Returns `None` if there is no such type.
    pub fn complex(self) -> Option<DType> {
        match self {
            DType::F32 | DType::C64 => Some(DType::C64),
            DType::F64 | DType::C128 => Some(DType::C128),
            _ => None,
        }
    }
    /// Returns true for integer types, signed or unsigned.
    pub fn is_integer(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }
    /// Returns true for signed integer types.
    pub fn is_signed(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }
    /// Returns true for unsigned integer types.
    pub fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }
    /// Returns true for types with arithmetic: floating-point, complex and integer types.
    pub fn is_number(self) -> bool {
        self.is_inexact() || self.is_integer()
    }
    /// Returns the type of the elements in memory.
    /// A key is a uint64 whose lower half is the first word.
    pub fn storage(self) -> DType {
        if self == DType::Key { DType::U64 } else { self }
    }
}
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Evaluates an expression with `$T` as the Rust type of an element type (`u64` for a key).
/// It takes one expression for each class of element types, one for all classes, or, with `real`,
/// one for all non-complex types.
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $e:expr) => {
        $crate::types::with_dtype!($dtype, {
            Bool => { type $T = bool; $e },
            Int $T => $e,
            Half $T => $e,
            Float $T => $e,
            Complex $T => $e,
        })
    };
    ($dtype:expr, real $T:ident => $e:expr) => {
        $crate::types::with_dtype!($dtype, {
            Bool => { type $T = bool; $e },
            Int $T => $e,
            Half $T => $e,
            Float $T => $e,
            Complex C => unreachable!("complex numbers were rejected: {}", size_of::<C>()),
        })
    };
    ($dtype:expr, {
        Bool => $bool:expr,
        Int $I:ident => $int:expr,
        Half $H:ident => $half:expr,
        Float $F:ident => $float:expr,
        Complex $C:ident => $complex:expr $(,)?
    }) => {
        match $dtype {
            $crate::types::DType::Bool => $bool,
            $crate::types::DType::I8 => { type $I = i8; $int }
            $crate::types::DType::I16 => { type $I = i16; $int }
            $crate::types::DType::I32 => { type $I = i32; $int }
            $crate::types::DType::I64 => { type $I = i64; $int }
            $crate::types::DType::U8 => { type $I = u8; $int }
            $crate::types::DType::U16 => { type $I = u16; $int }
            $crate::types::DType::U32 => { type $I = u32; $int }
            $crate::types::DType::U64 | $crate::types::DType::Key => { type $I = u64; $int }
            $crate::types::DType::F16 => { type $H = half::f16; $half }
            $crate::types::DType::BF16 => { type $H = half::bf16; $half }
            $crate::types::DType::F32 => { type $F = f32; $float }
            $crate::types::DType::F64 => { type $F = f64; $float }
            $crate::types::DType::C64 => { type $C = num_complex::Complex<f32>; $complex }
            $crate::types::DType::C128 => { type $C = num_complex::Complex<f64>; $complex }
        }
    };
}
pub(crate) use with_dtype;

/// A Rust type that is an element type.
///
/// ```
/// use atmesh::{Array, Element, Result};
/// fn first<T: Element>(x: &Array) -> Result<T> {
///     Ok(x.to_vec::<T>()?[0])
/// }
/// assert_eq!(first::<i32>(&Array::from([5, 6]))?, 5);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub trait Element: Copy + PartialEq + Send + Sync + fmt::Debug + sealed::SealedElement + 'static {
    /// The corresponding element type.
    const DTYPE: DType;
    /// Returns the nearest float64.
    /// `true` is 1; a complex number gives its real part.
    ///
    /// ```
    /// use atmesh::Element;
    /// assert_eq!((3u8.to_f64(), true.to_f64(), (-2.5f32).to_f64()), (3.0, 1.0, -2.5));
    /// ```
    fn to_f64(self) -> f64;
}
mod sealed {
    /// Restricts implementations of [`Element`](super::Element) to this crate.
    /// Kernels read and write the bytes of elements according to their type.
    pub trait SealedElement {}
}
macro_rules! elements { ($($t:ty as $d:ident $x:ident => $to_f64:expr;)*) => {$(
    impl sealed::SealedElement for $t {}
    impl Element for $t {
        const DTYPE: DType = DType::$d;
        fn to_f64(self) -> f64 {
            let $x = self;
            $to_f64
        }
    }
)*} }
elements! {
    bool as Bool x => u8::from(x).into();
    i8 as I8 x => x.into(); i16 as I16 x => x.into(); i32 as I32 x => x.into(); i64 as I64 x => x as f64;
    u8 as U8 x => x.into(); u16 as U16 x => x.into(); u32 as U32 x => x.into(); u64 as U64 x => x as f64;
    f16 as F16 x => x.into(); bf16 as BF16 x => x.into(); f32 as F32 x => x.into(); f64 as F64 x => x;
    Complex<f32> as C64 x => x.re.into(); Complex<f64> as C128 x => x.re;
}
