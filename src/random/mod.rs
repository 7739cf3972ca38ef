//! Random numbers: threefry keys and samplers, bit for bit those of the reference. They depend on the key and the shape, not on
//! devices or shardings.

mod order;
mod samplers;

use crate::array::{Array, Operand};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::random::{RandomBits, RandomFoldIn, RandomKeyData, RandomSplit, RandomWrap};
use crate::program::Call;
use crate::runtime::Slab;
use crate::trace::apply1;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// A key: what random numbers are made of. The same key makes the same numbers; [`Key::split`] makes independent ones of it.
///
/// ```
/// use atmesh::prelude::*;
/// let [a, b] = Key::new(0).split();
/// let x = a.normal([2, 3]);
/// assert_eq!(type_of(&x), "float32[2,3]");
/// assert_ne!(x.to_vec::<f32>()?, b.normal([2, 3]).to_vec::<f32>()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Key(Array);

impl Key {
    /// The key of a seed.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Key::new(42).data().to_vec::<u32>()?, [0, 42]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn new(seed: u64) -> Key {
        // the first word, the upper half of the seed, is the lower half of what is stored
        let words = seed.rotate_left(32);
        Key(match Slab::from_elements(Shape::scalar(), &[words]) {
            Ok(slab) => Array::concrete(slab, DType::Key.of([]), None),
            Err(fault) => Array::poisoned(fault.into()),
        })
    }
    /// The key of an array of one key.
    pub fn of(array: Array) -> Key {
        Key(array)
    }
    /// As an array of one key.
    pub fn array(&self) -> &Array {
        &self.0
    }
    /// As many independent keys as the pattern asks for: `let [a, b] = key.split();`.
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
    /// `n` independent keys.
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
        // a key that carries an error gives as many that do
        if let Some(first) = keys.first().cloned() {
            keys.resize(n, first);
        }
        keys
    }
    /// An array of independent keys.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let keys = Key::new(0).split_array([4]);
    /// assert_eq!(type_of(vmap(&keys, |k| Key::of(k).normal([3]))), "float32[4,3]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split_array(&self, shape: impl Into<Shape>) -> Array {
        let ty = DType::Key.of(shape);
        apply1(Arc::new(RandomSplit { ty, keys: 0 }), &[(&self.0).into()], Call::here("split_array"))
    }
    /// The key made of this one and a whole number: one of uint32, or an array of an integer type of at most 32 bits.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let key = Key::new(0);
    /// assert_ne!(key.fold_in(1).data().to_vec::<u32>()?, key.fold_in(2).data().to_vec::<u32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn fold_in(&self, x: impl Operand) -> Key {
        let call = Call::here("fold_in");
        let refuse = |Fault { kind, message, .. }: Fault, help: &str| {
            Key(self.0.refuse(Fault::new(kind, message).help(help), call))
        };
        let term = x.term();
        // of more bits some would be cut, and two numbers give one key
        if let Some(wide) = term.dtype().filter(|d| d.is_integer() && d.size() == 8) {
            let fault =
                Fault::new(ErrorKind::Dtype, format!("a key takes 32 bits of a number, not those of {wide}"));
            return refuse(fault, "convert it: `.astype(U32)`; or take both halves, one after the other");
        }
        match term.arg(DType::U32) {
            Ok(x) => Key(apply1(Arc::new(RandomFoldIn), &[(&self.0).into(), x], call)),
            Err(fault) => {
                refuse(fault, "a key is made of another and a whole number of uint32: `key.fold_in(3)`")
            }
        }
    }
    /// Its two words, uint32.
    #[track_caller]
    pub fn data(&self) -> Array {
        apply1(Arc::new(RandomKeyData), &[(&self.0).into()], Call::here("data"))
    }
    /// The key of two words.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let key = Key::new(7);
    /// assert_eq!(Key::from_data(&key.data()).normal([]).item::<f32>()?, key.normal([]).item::<f32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn from_data(words: &Array) -> Key {
        Key(apply1(Arc::new(RandomWrap), &[words.into()], Call::here("from_data")))
    }
    /// Random bits, of an unsigned integer type; a bare shape is uint32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(type_of(Key::new(0).bits(U8.of([4]))), "uint8[4]");
    /// assert_eq!(type_of(Key::new(0).bits([4])), "uint32[4]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bits(&self, ty: impl Into<Words>) -> Array {
        let call = Call::here("bits");
        crate::array::made(ty.into().0, call, |ty| {
            apply1(Arc::new(RandomBits { ty, keys: 0 }), &[(&self.0).into()], call)
        })
    }
}

/// The type of an array of whole numbers; a bare shape is int32.
#[derive(Clone, Debug)]
pub struct Integers(ArrayType);
/// The type of an array of random bits; a bare shape is uint32.
#[derive(Clone, Debug)]
pub struct Words(ArrayType);
macro_rules! asked { ($($name:ident $dtype:ident),*) => {$(
    impl From<ArrayType> for $name {
        fn from(ty: ArrayType) -> $name {
            $name(ty)
        }
    }
    impl<S: Into<Shape>> From<S> for $name {
        fn from(shape: S) -> $name {
            $name(DType::$dtype.of(shape))
        }
    }
)*} }
asked!(Integers I32, Words U32);

impl Key {
    /// The key, or the error that it carries.
    pub fn ready(self) -> Result<Key> {
        self.0.ready().map(Key)
    }
}
