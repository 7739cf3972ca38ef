//! Random typed arrays, drawn from keys.

use super::sets::{CompleteFor, JoinOf, JoinRhs, Sets};
use super::shape::{DimAccess, DimNumber, Formed, KnownShape, Shape};
use super::{Float, Integer, Typed, creation::Place, op, rules::reshape_dims::UnshardedDim};
use crate::api::{array::Operand, random::Key};
use crate::core::{DType, Element};
use atmesh_typed::sealed::Seal;
use std::marker::PhantomData;
use std::ops::Range;

/// A random number generator key in a `shard_map` body: what a [`Key`] among its arguments becomes.
///
/// `V` is the set of mesh axes over which the devices' keys vary. At first all devices have the
/// same key, and draw the same numbers. A key varies after [`BlockKey::fold_in`] of a value that
/// varies, such as the device's position.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
/// let noise: T![f32; 8@X] = Pod.shard_map((Key::new(0), ThisDevice), P![X], |(key, device)| {
///     let same: T![f32; 4; in Pod] = Typed::normal(&device, &key);
///     let own: T![f32; 4; V: X] = Typed::normal(&device, &key.fold_in(device.axis_index(X)));
///     same + own
/// });
/// # noise.to_vec()?;
/// # Ok::<(), atmesh::Error>(())
/// ```
pub struct BlockKey<V> {
    key: Key,
    marker: PhantomData<fn() -> V>,
}
impl<V> Clone for BlockKey<V> {
    fn clone(&self) -> Self {
        BlockKey::new(self.key.clone())
    }
}
impl<V> std::fmt::Debug for BlockKey<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.key, f)
    }
}
impl<V> BlockKey<V> {
    pub(super) fn new(key: Key) -> Self {
        BlockKey { key, marker: PhantomData }
    }
    /// Returns `N` independent keys: `let [a, b] = key.split();`.
    #[track_caller]
    pub fn split<const N: usize>(&self) -> [BlockKey<V>; N] {
        self.key.split().map(BlockKey::new)
    }
    /// Derives a new key from this key and an integer: a number, such as the index of a step, or a
    /// typed scalar, such as the device's position.
    ///
    /// The new key varies over the mesh axes over which this key or the integer varies.
    #[track_caller]
    pub fn fold_in<I: KeyFold<V>>(&self, x: I) -> BlockKey<I::Sets> {
        BlockKey::new(self.key.fold_in(x.term()))
    }
}
/// An integer that a key with the sets `V` can be combined with: a `u32`, or a typed scalar.
#[diagnostic::on_unimplemented(
    message = "a key cannot be combined with `{Self}`",
    label = "expected a number, or a typed integer of rank 0: `device.axis_index(X)`"
)]
pub trait KeyFold<V>: Operand {
    #[doc(hidden)]
    const SEAL: Seal;
    /// The sets of the new key.
    type Sets;
}
impl<V> KeyFold<V> for u32 {
    const SEAL: Seal = Seal;
    type Sets = V;
}
impl<V, T: Integer, W: JoinRhs<V>> KeyFold<V> for Typed<T, (), W> {
    const SEAL: Seal = Seal;
    type Sets = JoinOf<V, W>;
}
impl<V, T: Integer, W: JoinRhs<V>> KeyFold<V> for &Typed<T, (), W> {
    const SEAL: Seal = Seal;
    type Sets = JoinOf<V, W>;
}

/// A key that arrays with the sets `V` are drawn from: a [`Key`], or in a `shard_map` body a
/// [`BlockKey`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key from which an array with the sets `{V}` can be drawn",
    label = "outside of `shard_map` a key is a `Key`; in a body it is a `BlockKey`, which varies as the drawn array does",
    note = "pass the key to `shard_map` as an argument: `Pod.shard_map((x, key), .., |(x, key)| ..)`",
    note = "so that devices along `X` draw different numbers: `key.fold_in(device.axis_index(X))`"
)]
pub trait SampleKey<V>: sealed::SealedKey {
    /// Returns the untyped key.
    #[doc(hidden)]
    fn untyped_key(&self) -> &Key;
}
mod sealed {
    pub trait SealedKey {}
    impl SealedKey for super::Key {}
    impl<V> SealedKey for super::BlockKey<V> {}
}
impl SampleKey<()> for Key {
    fn untyped_key(&self) -> &Key {
        self
    }
}
impl<V> SampleKey<V> for BlockKey<V> {
    fn untyped_key(&self) -> &Key {
        &self.key
    }
}

/// An element type of random bits: an unsigned integer.
#[diagnostic::on_unimplemented(
    message = "random bits are unsigned integers, not `{Self}`",
    label = "expected `u8`, `u16`, `u32` or `u64`",
    note = "integers of a range are drawn by `randint`"
)]
pub trait Unsigned: Element {}
macro_rules! unsigned { ($($t:ident)*) => { $( impl Unsigned for $t {} )* } }
unsigned!(u8 u16 u32 u64);

macro_rules! samplers { ($($(#[$doc:meta])* $name:ident($($arg:ident: $of:ty),*);)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<W>(place: &impl Place<S, W>, key: &impl SampleKey<V> $(, $arg: $of)*) -> Self
        where
            T: Float,
            S: KnownShape + Formed,
            W: JoinRhs<V>,
        {
            Typed::from_rule_result(key.untyped_key().$name(place.array_type(T::DTYPE) $(, $arg)*))
        }
    )* }
} }
samplers! {
    /// Draws floats uniformly distributed in [0, 1), like [`Key::uniform`].
    ///
    /// The numbers are those of the untyped function, and do not depend on the sharding.
    uniform();
    /// Draws floats uniformly distributed in `range`, like [`Key::uniform_in`].
    uniform_in(range: Range<f64>);
    /// Draws normally distributed floats of mean 0 and standard deviation 1, like [`Key::normal`].
    ///
    /// The numbers are those of the untyped function, and do not depend on the sharding.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let (pod, key) = (Pod::mesh()?, Key::new(1));
    /// let w = <T![f32; 8@X, 16]>::normal(&pod, &key);
    /// let untyped = key.normal([8, 16]);
    /// assert_eq!(w.to_vec()?, untyped.to_vec::<f32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    normal();
    /// Draws from the standard normal distribution, truncated to `lower..=upper`, like
    /// [`Key::truncated_normal`].
    truncated_normal(lower: f64, upper: f64);
    /// Draws exponentially distributed floats of mean 1, like [`Key::exponential`].
    exponential();
    /// Draws floats from the standard Gumbel distribution, like [`Key::gumbel`].
    gumbel();
}
impl<S: Shape, V: Sets> Typed<bool, S, V> {
    /// Draws booleans that are `true` with probability `p`, like [`Key::bernoulli`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let (pod, key) = (Pod::mesh()?, Key::new(1));
    /// // dropout: each element is kept with probability 0.9
    /// let x = <T![f32; 8@X, 16]>::ones(&pod);
    /// let kept = <T![bool; 8@X, 16]>::bernoulli(&pod, &key, 0.9);
    /// let x = x * kept.convert::<f32>() * (1.0 / 0.9);
    /// # x.to_vec()?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bernoulli<W>(place: &impl Place<S, W>, key: &impl SampleKey<V>, p: f64) -> Self
    where
        S: KnownShape + Formed,
        W: JoinRhs<V>,
    {
        Typed::from_rule_result(key.untyped_key().bernoulli(place.array_type(DType::F32), p))
    }
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Draws integers uniformly distributed in `range`, like [`Key::randint`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let dice = <T![i32; 100@X]>::randint(&Pod::mesh()?, &Key::new(0), 1..7);
    /// assert_eq!((dice.min(..).item()?, dice.max(..).item()?), (1, 6));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn randint<W>(place: &impl Place<S, W>, key: &impl SampleKey<V>, range: Range<i64>) -> Self
    where
        T: Integer,
        S: KnownShape + Formed,
        W: JoinRhs<V>,
    {
        Typed::from_rule_result(key.untyped_key().randint(place.array_type(T::DTYPE), range))
    }
    /// Draws uniformly distributed random bits, like [`Key::bits`].
    #[track_caller]
    pub fn bits<W>(place: &impl Place<S, W>, key: &impl SampleKey<V>) -> Self
    where
        T: Unsigned,
        S: KnownShape + Formed,
        W: JoinRhs<V>,
    {
        Typed::from_rule_result(key.untyped_key().bits(place.array_type(T::DTYPE)))
    }
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Draws indices along a dim with the probabilities softmax(`self`), like
        /// [`Key::categorical`].
        ///
        /// The result has the dims of the logits without this dim.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let logits = <T![f32; 4@X, 3]>::zeros(&Pod::mesh()?);
        /// let drawn: T![i32; 4@X] = logits.categorical(&Key::new(0), D1);
        /// assert!(drawn.to_vec()?.iter().all(|i| (0..3).contains(i)));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn categorical[I: DimNumber, W: JoinRhs<V>](&self, key: &impl SampleKey<W>, along: I)
            -> Typed<i32, S::Removed, JoinOf<V, W>>
        where [T: Float, V: CompleteFor<op::categorical>, S: DimAccess<I::D>]
            = key.untyped_key().categorical(&self.array, I::NUMBER as i32);
        /// Shuffles the slices along an unsharded dim, like [`Key::permutation`].
        ///
        /// The type does not change, except that the result also varies over the axes of the key.
        pub fn permutation[I: DimNumber, W: JoinRhs<V>](&self, key: &impl SampleKey<W>, along: I)
            -> Typed<T, S, JoinOf<V, W>>
        where [V: CompleteFor<op::permutation>, S: DimAccess<I::D, Dim: UnshardedDim>]
            = key.untyped_key().permutation(&self.array, I::NUMBER as i32);
    }
}
