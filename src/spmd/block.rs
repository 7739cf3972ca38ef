//! What device code takes and returns.

use super::Device;
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::runtime::{Slab, listed};
use crate::tree::Tree;
use crate::types::{DType, Element, Shape};
use ndarray::{Array as NdArray, ArrayView, ArrayViewD, Dimension, IxDyn, ShapeBuilder};
use std::ops::Range;
use std::sync::OnceLock;

/// One device's block of an argument.
#[derive(Debug)]
pub struct BlockData {
    slab: Slab,
    /// Elements before the block, its sizes, and the distances between neighbours.
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// The elements one after the other, where they are not stored so.
    packed: OnceLock<Slab>,
}

impl BlockData {
    /// The part of a slab in these ranges.
    pub(super) fn new(slab: &Slab, index: &[Range<usize>]) -> BlockData {
        let mut strides = vec![1; index.len()];
        for d in (1..index.len()).rev() {
            strides[d - 1] = strides[d] * slab.shape()[d];
        }
        let offset = index.iter().zip(&strides).map(|(r, s)| r.start * s).sum();
        let shape = index.iter().map(|r| r.len()).collect();
        BlockData { slab: slab.clone(), offset, shape, strides, packed: OnceLock::new() }
    }
    fn wrong(&self, want: String) -> Error {
        let dtype = self.slab.dtype();
        let fault = Fault::new(
            ErrorKind::Dtype,
            format!(
                "a device's block is {dtype}{}, but its parameter is {want}",
                Shape::from(self.shape.clone())
            ),
        );
        let fault =
            Fault { kind: if want.contains("dimension") { ErrorKind::Shape } else { fault.kind }, ..fault };
        fault.help("the parameter's element type and rank are those of the array").into()
    }
    fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        if self.slab.dtype() != T::DTYPE.storage() {
            return Err(self.wrong(format!("a view of {}", T::DTYPE)));
        }
        let elements = self.slab.elements::<T>();
        if self.shape.contains(&0) {
            let shape = IxDyn(&self.shape);
            return ArrayViewD::from_shape(shape, &[]).map_err(Error::internal);
        }
        let shape = IxDyn(&self.shape).strides(IxDyn(&self.strides));
        ArrayViewD::from_shape(shape, &elements[self.offset..]).map_err(Error::internal)
    }
    fn slice<T: Element>(&self) -> Result<&[T]> {
        let view = self.view::<T>()?;
        if let Some(slice) = view.to_slice() {
            return Ok(slice);
        }
        let packed = match self.packed.get() {
            Some(packed) => packed,
            None => {
                let elements = listed(view.iter().copied(), view.len())?;
                let slab = Slab::from_elements([elements.len()].into(), &elements)?;
                self.packed.get_or_init(|| slab)
            }
        };
        Ok(packed.elements())
    }
}

/// A parameter of device code: an ndarray view of the device's block, of fixed or free rank, or a slice of its elements in order.
///
/// Views share the argument's memory. A slice does where the block is contiguous there, and is copied where it is not.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of device code",
    label = "expected an ndarray view such as `ArrayView1<f32>`, or a slice such as `&[f32]`"
)]
pub trait Block {
    /// The parameter, borrowed from the block.
    type Item<'a>;
    /// Makes the parameter, or refuses a block of another element type or rank.
    fn lend(block: &BlockData) -> Result<Self::Item<'_>>;
}
impl<T: Element, D: Dimension> Block for ArrayView<'_, T, D> {
    type Item<'a> = ArrayView<'a, T, D>;
    fn lend(block: &BlockData) -> Result<ArrayView<'_, T, D>> {
        let view = block.view::<T>()?;
        view.into_dimensionality::<D>().map_err(|_| {
            let rank = D::NDIM.unwrap_or(0);
            block.wrong(format!("a view of {rank} dimension{}", if rank == 1 { "" } else { "s" }))
        })
    }
}
impl<T: Element> Block for &[T] {
    type Item<'a> = &'a [T];
    fn lend(block: &BlockData) -> Result<&[T]> {
        block.slice()
    }
}

/// Elements in memory, of any type.
trait Bytes: Send + Sync {
    fn bytes(&self) -> &[u8];
}
impl<T: Element> Bytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        // SAFETY: elements are plain numbers without padding
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self.as_slice())) }
    }
}

/// One result of one device.
pub struct Returned {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    data: Box<dyn Bytes>,
}
impl Returned {
    fn new<T: Element>(shape: Shape, data: Vec<T>) -> Returned {
        Returned { dtype: T::DTYPE, shape, data: Box::new(data) }
    }
    /// Its elements in order.
    pub(super) fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }
}
impl std::fmt::Debug for Returned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// What device code returns: arrays, vectors, numbers, tuples of them.
#[diagnostic::on_unimplemented(
    message = "device code returns ndarray arrays or numbers, but this returns `{Self}`",
    note = "a view borrows the device's block: return `x.to_owned()`"
)]
pub trait BlockOut: Send {
    /// The global arrays that the devices' results make.
    type Arrays: Tree;
    /// The results, in order.
    fn give(self, to: &mut Vec<Returned>);
}
impl<T: Element, D: Dimension> BlockOut for NdArray<T, D> {
    type Arrays = Array;
    fn give(self, to: &mut Vec<Returned>) {
        let shape = Shape::from(self.shape());
        let data = if self.is_standard_layout() {
            let (data, offset) = self.into_raw_vec_and_offset();
            let (mut data, from) = (data, offset.unwrap_or(0));
            data.truncate(from + shape.elements());
            data.drain(..from);
            data
        } else {
            self.iter().copied().collect()
        };
        to.push(Returned::new(shape, data));
    }
}
impl<T: Element> BlockOut for Vec<T> {
    type Arrays = Array;
    fn give(self, to: &mut Vec<Returned>) {
        to.push(Returned::new([self.len()].into(), self));
    }
}
macro_rules! scalars { ($($t:ty)*) => {$(
    impl BlockOut for $t {
        type Arrays = Array;
        fn give(self, to: &mut Vec<Returned>) {
            to.push(Returned::new(Shape::scalar(), vec![self]));
        }
    }
)*} }
scalars!(bool i8 i16 i32 i64 u8 u16 u32 u64 half::f16 half::bf16 f32 f64 num_complex::Complex<f32> num_complex::Complex<f64>);
macro_rules! tuples { ($(($($T:ident)*))*) => {$(
    impl<$($T: BlockOut),*> BlockOut for ($($T,)*) {
        type Arrays = ($($T::Arrays,)*);
        #[allow(non_snake_case, unused_variables)]
        fn give(self, to: &mut Vec<Returned>) {
            let ($($T,)*) = self;
            $( $T.give(to); )*
        }
    }
)*} }
tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

/// Code that devices run: a closure of the device and its blocks. `M` is `fn(A, B, ..) -> R`, found by inference.
#[diagnostic::on_unimplemented(
    message = "this function cannot run on device threads",
    label = "expected `|dev: &Device, x: ArrayViewD<f32>, ..| -> Result<..>`",
    note = "parameters are ndarray views or slices, with their types written out; the result is a `Result`",
    note = "every device thread runs it at once, so it cannot change captured variables"
)]
pub trait DeviceFn<M> {
    /// The arguments: an array, or a tuple of several.
    type In: Tree;
    /// What it returns, but for the `Result`.
    type Out;
    /// Calls it on a device with its blocks.
    fn apply(&self, device: &Device, blocks: &[BlockData]) -> Result<Self::Out>;
}
// the second bound lets a parameter borrow for any lifetime
macro_rules! device_fns { ($($In:ty: ($($T:ident $n:tt)*);)*) => {$(
    impl<Fun, R, $($T: Block),*> DeviceFn<fn($($T),*) -> R> for Fun
    where Fun: Fn(&Device, $($T),*) -> Result<R>, for<'a> &'a Fun: Fn(&Device, $($T::Item<'a>),*) -> Result<R> {
        type In = $In;
        type Out = R;
        #[allow(non_snake_case, unused_variables)]
        fn apply(&self, device: &Device, blocks: &[BlockData]) -> Result<R> {
            #[allow(clippy::too_many_arguments)]
            fn call<R, $($T),*>(f: impl Fn(&Device, $($T),*) -> Result<R>, device: &Device, $($T: $T),*) -> Result<R> {
                f(device, $($T),*)
            }
            call(self, device, $($T::lend(&blocks[$n])?),*)
        }
    }
)*} }
type X = Array;
device_fns! {
    (): ();
    X: (A 0);
    (X, X): (A 0 B 1);
    (X, X, X): (A 0 B 1 C 2);
    (X, X, X, X): (A 0 B 1 C 2 D 3);
    (X, X, X, X, X): (A 0 B 1 C 2 D 3 E 4);
    (X, X, X, X, X, X): (A 0 B 1 C 2 D 3 E 4 F 5);
    (X, X, X, X, X, X, X): (A 0 B 1 C 2 D 3 E 4 F 5 G 6);
    (X, X, X, X, X, X, X, X): (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
}
