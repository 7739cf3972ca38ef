//! Random arrays drawn from explicit keys, with a counter-based generator.
//!
//! The generator is Threefry-2x32, and keys and samplers reproduce JAX's values bit for bit. A key
//! is an explicit value with no hidden state: equal keys give equal arrays, and a program derives
//! new keys with [`Key::split`] and [`Key::fold_in`]. Samples depend on the key, the shape and the
//! element type, and never on devices or shardings.
//!
//! ```
//! use atmesh::prelude::*;
//! let [a, b] = Key::new(0).split();
//! assert_eq!(a.normal([2]).to_vec::<f32>()?, a.normal([2]).to_vec::<f32>()?);
//! assert_ne!(a.normal([2]).to_vec::<f32>()?, b.normal([2]).to_vec::<f32>()?);
//! # Ok::<(), atmesh::Error>(())
//! ```

mod choice;
mod order;
mod samplers;

pub use choice::ChoiceOptions;
pub(crate) use samplers::{check_floats, round_to_dtype};

use crate::api::array::{Array, Operand};
use crate::api::trace::apply1;
use crate::core::{ArrayType, DType, Fault, Result, Shape};
use crate::exec::runtime::ArrayData;
use crate::ir::ops::random::{RandomBits, RandomFoldIn, RandomKeyData, RandomSplit, RandomWrap};
use crate::ir::program::CallSite;
use std::sync::Arc;

/// A random number generator key.
///
/// Sampling does not change a key: the same key and type always give the same array. Derive
/// independent keys with [`Key::split`] or [`Key::fold_in`], and use each key once.
///
/// ```
/// use atmesh::prelude::*;
/// let [a, b] = Key::new(0).split();
/// let x = a.normal([2, 3]);
/// assert_eq!(type_of(&x), "float32[2,3]");
/// assert_ne!(x.to_vec::<f32>()?, b.normal([2, 3]).to_vec::<f32>()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("PRNGKey", "default_rng"))]
#[derive(Clone, Debug)]
pub struct Key(Array);

impl Key {
    /// Creates the key of a seed.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Key::new(42).data().to_vec::<u32>()?, [0, 42]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("manual_seed"))]
    pub fn new(seed: u64) -> Key {
        // word 0 of the key is the upper half of the seed, but is stored in the lower half
        let words = seed.rotate_left(32);
        Key(match ArrayData::from_elements(Shape::scalar(), &[words]) {
            Ok(slab) => Array::concrete(slab, DType::Key.array_type([]), None),
            Err(fault) => Array::poisoned(fault.into()),
        })
    }
    /// Wraps an array of rank 0 and dtype `key`, such as one element of [`Key::split_array`].
    pub fn from_array(array: Array) -> Key {
        Key(array)
    }
    /// Returns the key as an array of rank 0 and dtype `key`.
    pub fn array(&self) -> &Array {
        &self.0
    }
    /// Returns `N` independent keys: `let [a, b] = key.split();`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let [a, b] = Key::new(0).split();
    /// assert_ne!(a.data().to_vec::<u32>()?, b.data().to_vec::<u32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split<const N: usize>(&self) -> [Key; N] {
        let keys = self.split_vec(N);
        std::array::from_fn(|i| keys[i].clone())
    }
    /// Returns `n` independent keys.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Key::new(0).split_vec(5).len(), 5);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split_vec(&self, n: usize) -> Vec<Key> {
        let keys = self.split_array([n]).unstack(0);
        let mut keys: Vec<Key> = keys.into_iter().map(Key).collect();
        // on an error `unstack` returns one array: return the same error `n` times
        if let Some(first) = keys.first().cloned() {
            keys.resize(n, first);
        }
        keys
    }
    /// Returns an array of independent keys, of the given shape and dtype `key`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let keys = Key::new(0).split_array([4]);
    /// assert_eq!(type_of(vmap(&keys, |k| Key::from_array(k).normal([3]))), "float32[4,3]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split_array(&self, shape: impl Into<Shape>) -> Array {
        self.split_into(DType::Key.array_type(shape), CallSite::here("split_array"))
    }
    /// Returns independent keys as an array of this type.
    pub(crate) fn split_into(&self, ty: ArrayType, call: CallSite<'_>) -> Array {
        apply1(Arc::new(RandomSplit { ty, num_key_dims: 0 }), &[(&self.0).into()], call)
    }
    /// Derives a new key from this key and an integer, such as a step or device index.
    ///
    /// The integer is a `uint32` scalar, or an array of any integer type of at most 32 bits. A
    /// 64-bit integer array is an error (`ErrorKind::Dtype`).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let key = Key::new(0);
    /// assert_ne!(key.fold_in(1).data().to_vec::<u32>()?, key.fold_in(2).data().to_vec::<u32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn fold_in(&self, x: impl Operand) -> Key {
        let call = CallSite::here("fold_in");
        let reject = |Fault { kind, message, .. }: Fault, help: &str| {
            Key(self.0.reject(Fault::new(kind, message).help(help), call))
        };
        let term = x.term();
        // dropping the upper bits would map different integers to the same key
        if let Some(wide) = term.dtype().filter(|d| d.is_integer() && d.size() == 8) {
            let fault = fault!(Dtype, "`fold_in` takes integers of at most 32 bits, not {wide}");
            return reject(fault, "convert it: `.astype(U32)`; or fold in both halves, one after the other");
        }
        match term.arg(DType::U32) {
            Ok(x) => Key(apply1(Arc::new(RandomFoldIn), &[(&self.0).into(), x], call)),
            Err(fault) => reject(fault, "give an integer that fits into uint32: `key.fold_in(3)`"),
        }
    }
    /// Returns the two words of the key, as an array of type `uint32[2]`.
    #[track_caller]
    pub fn data(&self) -> Array {
        apply1(Arc::new(RandomKeyData), &[(&self.0).into()], CallSite::here("data"))
    }
    /// Creates a key from its two words, an array of shape `[2]` and dtype uint32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let key = Key::new(7);
    /// assert_eq!(Key::from_data(&key.data()).normal([]).item::<f32>()?,
    ///     key.normal([]).item::<f32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn from_data(words: &Array) -> Key {
        Key(apply1(Arc::new(RandomWrap), &[words.into()], CallSite::here("from_data")))
    }
    /// Draws uniformly distributed random bits of an unsigned integer type.
    ///
    /// A bare shape means uint32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(type_of(Key::new(0).bits(U8.array_type([4]))), "uint8[4]");
    /// assert_eq!(type_of(Key::new(0).bits([4])), "uint32[4]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bits(&self, ty: impl Into<BitsArrayType>) -> Array {
        let call = CallSite::here("bits");
        crate::api::array::create_sharded(ty.into().0, call, |ty| {
            apply1(Arc::new(RandomBits { ty, num_key_dims: 0 }), &[(&self.0).into()], call)
        })
    }
}

/// The type of an array of integers, converted from an [`ArrayType`] or from a shape (int32).
#[derive(Clone, Debug)]
pub struct IntegerArrayType(ArrayType);
impl IntegerArrayType {
    /// Returns the type of the array.
    pub(crate) fn into_array_type(self) -> ArrayType {
        self.0
    }
}
/// The type of an array of random bits, converted from an [`ArrayType`] or from a shape (uint32).
#[derive(Clone, Debug)]
pub struct BitsArrayType(ArrayType);
macro_rules! asked { ($($name:ident $dtype:ident),*) => {$(
    impl From<ArrayType> for $name {
        fn from(ty: ArrayType) -> $name {
            $name(ty)
        }
    }
    impl<S: Into<Shape>> From<S> for $name {
        fn from(shape: S) -> $name {
            $name(DType::$dtype.array_type(shape))
        }
    }
)*} }
asked!(IntegerArrayType I32, BitsArrayType U32);

impl Key {
    /// Returns the key, or the error that it carries.
    pub fn ready(self) -> Result<Key> {
        self.0.ready().map(Key)
    }
}
