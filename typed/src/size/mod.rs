//! Sizes of dimensions as types: integers, names, run-time sizes, and one device's share of each.
//!
//! Programs write a size with [`N!`](crate::N), [`S!`](crate::S) or `T!`, and bound it by [`Size`].
//! The types [`Num`], [`K`] and [`M`] are what these macros expand to on a Rust without computed
//! constants in types: they are in messages, and in no signature that a program writes. When
//! `min_generic_const_args` is stable, `N![11008]` will expand to `Num<11008>`, with one type for
//! integers of any size, and arithmetic on sizes will be rustc's. Programs that use the macros and
//! the bounds compile as before; the names `K` and `M`, and the digits of `Num`, are not stable.

mod arithmetic;
mod convert;
pub(crate) mod count;
pub(crate) mod digits;
mod rim;
mod split;

pub(crate) use arithmetic::DifferenceNumber;
pub use arithmetic::{
    AddSize, DivideUp, MulImpl, MulSize, PiecesOf, ProductIs, SizeAtMost, SizeProduct, SizeSum, SizesAddTo,
    SubSize,
};
pub(crate) use convert::TypenumOf;
pub use convert::{IntoSize, IntoTypenum, TypenumOfName};
pub use count::{CountOf, CountSizes, NamedCount, OpenCount, SameElements};
pub(crate) use digits::Decimal;
pub use digits::{DividePrime, MultiplyPrime, Prime, R, TooLarge};
pub use rim::WithRim;
pub use split::{
    DivideBy, GatherBy, GatherImpl, GathersOver, MultiplyBy, PrimeFactors, SplitBy, SplitImpl, SplitsOver,
    Tiles, ZeroRemainders,
};

use crate::axis::MeshAxis;
use crate::sealed::{Sealed, SealedOrDeclared};
use core::fmt;
use core::marker::PhantomData;

/// A size in the type system: an integer, a named size, a share of a size, or a run-time size.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a size of a dimension",
    label = "not a size",
    note = "a size is a number, a name made by `dim!`, `?`, `{{ constant }}`, or a type parameter with the bound `Size`"
)]
pub trait Size: SealedOrDeclared + 'static {
    /// The kind of arithmetic on the size: [`Number`], [`Named`], [`Symbol`], [`Composite`] or
    /// [`Open`].
    type Kind;
    /// The value. `None` if it is known only at run time.
    const VALUE: Option<usize>;
    /// True for `?` and shares of it, which may be different sizes in different arrays.
    const IS_ANY: bool = false;
    /// Writes the size as types are printed: the value, or the name of a run-time size.
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// An integer from 0 to 999: `Num<128>`.
pub struct Num<const A: u16>;
/// An integer of two groups of three digits: `K<11, 8>` is 11,008.
pub struct K<const A: u16, const B: u16>;
/// An integer of three groups of three digits: `M<1, 48, 576>` is 1,048,576.
pub struct M<const A: u16, const B: u16, const C: u16>;
/// An integer of four groups of three digits: `G<2, 147, 483, 648>` is 2,147,483,648.
pub struct G<const A: u16, const B: u16, const C: u16, const E: u16>;

/// The kind of integers.
pub struct Number;
/// The kind of named sizes with a known value.
pub struct Named;
/// The kind of named sizes that are known only at run time, and of their shares.
pub struct Symbol;
/// The kind of products that contain a [`Symbol`].
pub struct Composite;
/// The kind of `?`.
pub struct Open;
/// The kind of [`TooLarge`].
pub struct Impossible;

/// A number: [`Num`], [`K`], [`M`] or [`G`].
pub trait WholeNumber: Size {}

/// A size that is known at compile time.
#[diagnostic::on_unimplemented(
    message = "the size `{Self}` is not known when compiling",
    label = "an array is made from nothing with sizes that are known",
    note = "make it in the dynamic layer and state its type: `Array::zeros(..).typed::<T![..]>()?`"
)]
pub trait KnownSize: Size {}
#[diagnostic::do_not_recommend]
impl<S: Size> KnownSize for S where S::Kind: KnownKind {}
/// Returns the value of a size, in constants only: a size without a value does not compile.
pub const fn value_of<S: Size>() -> usize {
    match S::VALUE {
        Some(n) => n,
        None => panic!("this size is known only at run time"),
    }
}
/// A kind whose sizes are known at compile time: [`Number`] or [`Named`].
pub trait KnownKind: Sealed {}
impl KnownKind for Number {}
impl KnownKind for Named {}

macro_rules! number { ($([$($g:tt)*] $t:ty = $value:expr;)*) => { $(
    impl<$($g)*> WholeNumber for $t {}
    impl<$($g)*> Size for $t {
        type Kind = Number;
        const VALUE: Option<usize> = Some($value);
        fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", $value)
        }
    }
)* } }
number! {
    [const A: u16] Num<A> = A as usize;
    [const A: u16, const B: u16] K<A, B> = A as usize * 1000 + B as usize;
    [const A: u16, const B: u16, const C: u16] M<A, B, C> = (A as usize * 1000 + B as usize) * 1000 + C as usize;
    [const A: u16, const B: u16, const C: u16, const E: u16] G<A, B, C, E> =
        ((A as usize * 1000 + B as usize) * 1000 + C as usize) * 1000 + E as usize;
}

/// A size that is known only at run time: `?`.
///
/// It agrees with any size in types; the arrays are compared when an operation runs.
pub struct Unknown;
impl Size for Unknown {
    type Kind = Open;
    const VALUE: Option<usize> = None;
    const IS_ANY: bool = true;
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("?")
    }
}

/// One device's share of `S` along mesh axis `A`: `DeviceShare<Batch, X>`.
///
/// The share of a size that is an integer is an integer instead, if the axis size is known.
pub struct DeviceShare<S, A>(PhantomData<fn() -> (S, A)>);
impl<S: Size, A: MeshAxis> Size for DeviceShare<S, A> {
    type Kind = Symbol;
    const VALUE: Option<usize> = match (S::VALUE, A::SIZE) {
        (Some(n), Some(a)) if a > 0 => Some(n / a),
        _ => None,
    };
    const IS_ANY: bool = S::IS_ANY;
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(n) = Self::VALUE {
            return write!(f, "{n}");
        }
        S::show(f)?;
        write!(f, "/{}", A::NAME)
    }
}

/// A named size with a known value: `dim!(Hidden = 11008)`.
pub trait NamedSize: Size<Kind = Named> {
    /// The value.
    type Number: Size<Kind = Number>;
}

/// The digit groups of a computed size (`{ 4096 * 3 }`). [`Trim`] converts them to a size.
pub struct Limbs<const COUNT: u8, const A: u16, const B: u16, const C: u16, const E: u16>;
/// Drops leading groups of zeros.
pub trait Trim: Sealed {
    /// The size: [`Num`], [`K`], [`M`] or [`G`].
    type Out: Size;
}
rules! { Out:
    [const A: u16, const B: u16, const C: u16, const E: u16] Limbs<1, A, B, C, E>: Trim = Num<E>;
    [const A: u16, const B: u16, const C: u16, const E: u16] Limbs<2, A, B, C, E>: Trim = K<C, E>;
    [const A: u16, const B: u16, const C: u16, const E: u16] Limbs<3, A, B, C, E>: Trim
        = M<B, C, E>;
    [const A: u16, const B: u16, const C: u16, const E: u16] Limbs<4, A, B, C, E>: Trim
        = G<A, B, C, E>;
}
/// Returns the number of groups of three digits of an integer.
pub const fn limb_count(n: usize) -> u8 {
    match n as u64 {
        0..1000 => 1,
        1000..1_000_000 => 2,
        1_000_000..1_000_000_000 => 3,
        _ => 4,
    }
}
/// Returns one group of three digits of an integer; group 0 is the least significant.
pub const fn limb(n: usize, place: u32) -> u16 {
    let n = n as u64;
    assert!(n < 1_000_000_000_000, "sizes go up to 999,999,999,999");
    (n / 1000u64.pow(place) % 1000) as u16
}
