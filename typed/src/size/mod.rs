//! Sizes of dimensions as types: numbers, named sizes, sizes known at run time only, and what one device has of them.

mod decimal;
mod door;
mod split;

pub use decimal::{DividePrime, MultiplyPrime, Prime, R};
pub use door::{IntoSize, IntoTypenum, TypenumOfName};
pub use split::{
    DivideBy, Even, Factors, GatherBy, GatherImpl, GathersOver, MultiplyBy, SplitBy, SplitImpl, SplitsOver,
    Tiles,
};

use crate::axis::MeshAxis;
use core::fmt;
use core::marker::PhantomData;

/// A size that the type system knows: a number, a named dimension, one device's share of one, or one known at run time only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a size of a dimension",
    label = "not a size",
    note = "a size is a number, a name made by `dim!`, `?`, `{{ constant }}`, or a type parameter with the bound `Size`"
)]
pub trait Size: 'static {
    /// How arithmetic on it is done: [`Number`], [`Named`] or [`Symbol`].
    type Kind;
    /// The number, where it is known when compiling.
    const VALUE: Option<usize>;
    /// Writes it as types are printed: the number, or the name of what is known at run time only.
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// The numbers 0 to 999: `Num<128>`.
pub struct Num<const A: u16>;
/// Thousands and ones: `K<11, 8>` is 11,008.
pub struct K<const A: u16, const B: u16>;
/// Millions, thousands and ones: `M<1, 48, 576>` is 1,048,576.
pub struct M<const A: u16, const B: u16, const C: u16>;

/// The kind of numbers.
pub struct Number;
/// The kind of names for numbers.
pub struct Named;
/// The kind of sizes whose number is known at run time only.
pub struct Symbol;

/// A size whose number is known when compiling.
#[diagnostic::on_unimplemented(
    message = "the size `{Self}` is not known when compiling",
    label = "an array is made from nothing with sizes that are known",
    note = "make it in the dynamic layer and state its type: `Array::zeros(..).typed::<T![..]>()?`"
)]
pub trait KnownSize: Size {}
#[diagnostic::do_not_recommend]
impl<S: Size> KnownSize for S where S::Kind: KnownKind {}
/// [`Number`] or [`Named`].
pub trait KnownKind {}
impl KnownKind for Number {}
impl KnownKind for Named {}

macro_rules! number { ($([$($g:tt)*] $t:ty = $value:expr;)*) => { $(
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
}

/// A size known at run time only: `?`. Any two go together in types; the arrays are compared when an operation runs.
pub struct Unknown;
impl Size for Unknown {
    type Kind = Symbol;
    const VALUE: Option<usize> = None;
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("?")
    }
}

/// One device's share of `S` along mesh axis `A`, where the number is not known: `Per<Batch, X>`.
pub struct Per<S, A>(PhantomData<fn() -> (S, A)>);
impl<S: Size, A: MeshAxis> Size for Per<S, A> {
    type Kind = Symbol;
    const VALUE: Option<usize> = match (S::VALUE, A::SIZE) {
        (Some(n), Some(a)) if a > 0 => Some(n / a),
        _ => None,
    };
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(n) = Self::VALUE {
            return write!(f, "{n}");
        }
        S::show(f)?;
        write!(f, "/{}", A::NAME)
    }
}

/// A name for a number: `dim!(Hidden = 11008)`.
pub trait NamedSize: Size<Kind = Named> {
    /// The number.
    type Number: Size<Kind = Number>;
}

/// What a computed size (`{ 4096 * 3 }`) is made of; [`Trim`] makes the number of it.
pub struct Limbs<const COUNT: u8, const A: u16, const B: u16, const C: u16>;
/// Drops leading groups of zeros.
pub trait Trim {
    /// [`Num`], [`K`] or [`M`].
    type Out: Size;
}
impl<const A: u16, const B: u16, const C: u16> Trim for Limbs<1, A, B, C> {
    type Out = Num<C>;
}
impl<const A: u16, const B: u16, const C: u16> Trim for Limbs<2, A, B, C> {
    type Out = K<B, C>;
}
impl<const A: u16, const B: u16, const C: u16> Trim for Limbs<3, A, B, C> {
    type Out = M<A, B, C>;
}
/// How many groups of three digits a number has.
pub const fn limb_count(n: usize) -> u8 {
    match n {
        0..1000 => 1,
        1000..1_000_000 => 2,
        _ => 3,
    }
}
/// One group of three digits of a number, the last one first.
pub const fn limb(n: usize, place: u32) -> u16 {
    assert!(n < 1_000_000_000, "sizes go up to 999,999,999");
    (n / 1000usize.pow(place) % 1000) as u16
}
