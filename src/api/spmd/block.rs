//! Parameters and results of device code: views of blocks in, ndarray arrays or scalars out.

use super::Device;
use crate::api::{array::Array, tree::Tree};
use crate::core::{DType, Element, Error, ErrorKind, Fault, Result, Shape};
use crate::exec::runtime::{ArrayData, try_collect};
use ndarray::{Array as NdArray, ArrayView, ArrayViewD, Dimension, IxDyn, ShapeBuilder};
use std::ops::Range;
use std::sync::OnceLock;

/// One device's block of an argument.
#[derive(Debug)]
pub struct BlockData {
    slab: ArrayData,
    /// The offset of the block in elements, its shape, and its strides in elements.
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// A contiguous copy of the elements, made on demand if the block is not contiguous.
    packed: OnceLock<ArrayData>,
}

impl BlockData {
    /// Returns the block at these index ranges of an array.
    pub(super) fn new(slab: &ArrayData, index: &[Range<usize>]) -> BlockData {
        let mut strides = vec![1; index.len()];
        for d in (1..index.len()).rev() {
            strides[d - 1] = strides[d] * slab.shape()[d];
        }
        let offset = index.iter().zip(&strides).map(|(r, s)| r.start * s).sum();
        let shape = index.iter().map(|r| r.len()).collect();
        BlockData { slab: slab.clone(), offset, shape, strides, packed: OnceLock::new() }
    }
    fn parameter_mismatch(&self, want: String) -> Error {
        let dtype = self.slab.dtype();
        let fault = fault!(
            Dtype,
            "a device's block is {dtype}{}, but its parameter is {want}",
            Shape::from(self.shape.clone())
        );
        let fault =
            Fault { kind: if want.contains("dimension") { ErrorKind::Shape } else { fault.kind }, ..fault };
        fault.help("the parameter's element type and rank are those of the array").into()
    }
    fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        if self.slab.dtype() != T::DTYPE.storage() {
            return Err(self.parameter_mismatch(format!("a view of {}", T::DTYPE)));
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
                let elements = try_collect(view.iter().copied(), view.len())?;
                let slab = ArrayData::from_elements([elements.len()].into(), &elements)?;
                self.packed.get_or_init(|| slab)
            }
        };
        Ok(packed.elements())
    }
}

/// A parameter of device code: an ndarray view of the block, or a slice of its elements.
///
/// Views have a fixed or dynamic rank, and share the argument's memory. A slice does so if the
/// block is contiguous, and is a copy otherwise.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of device code",
    label = "expected an ndarray view such as `ArrayView1<f32>`, or a slice such as `&[f32]`"
)]
pub trait BlockParam {
    /// The parameter, borrowed from the block.
    type Item<'a>;
    /// Creates the parameter. Returns an error if the block has another element type or rank.
    fn from_block(block: &BlockData) -> Result<Self::Item<'_>>;
}
impl<T: Element, D: Dimension> BlockParam for ArrayView<'_, T, D> {
    type Item<'a> = ArrayView<'a, T, D>;
    fn from_block(block: &BlockData) -> Result<ArrayView<'_, T, D>> {
        let view = block.view::<T>()?;
        view.into_dimensionality::<D>().map_err(|_| {
            let rank = D::NDIM.unwrap_or(0);
            block
                .parameter_mismatch(format!("a view of {rank} dimension{}", if rank == 1 { "" } else { "s" }))
        })
    }
}
impl<T: Element> BlockParam for &[T] {
    type Item<'a> = &'a [T];
    fn from_block(block: &BlockData) -> Result<&[T]> {
        block.slice()
    }
}

/// A vector of elements whose type is erased.
trait ErasedElements: Send + Sync {
    fn bytes(&self) -> &[u8];
}
impl<T: Element> ErasedElements for Vec<T> {
    fn bytes(&self) -> &[u8] {
        // SAFETY: an `Element` has no padding (the trait is sealed), and the slice covers exactly
        // the vector's elements, which `self` borrows.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self.as_slice())) }
    }
}

/// One result of one device.
pub struct DeviceResult {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    data: Box<dyn ErasedElements>,
}
impl DeviceResult {
    fn new<T: Element>(shape: Shape, data: Vec<T>) -> DeviceResult {
        DeviceResult { dtype: T::DTYPE, shape, data: Box::new(data) }
    }
    /// Returns the bytes of the elements, in row-major order.
    pub(super) fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }
}
impl std::fmt::Debug for DeviceResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// A result of device code: an array, a vector, a scalar, or a tuple of them.
#[diagnostic::on_unimplemented(
    message = "device code returns ndarray arrays or numbers, but this returns `{Self}`",
    note = "a view borrows the device's block: return `x.to_owned()`"
)]
pub trait BlockOut: Send {
    /// The global arrays that are assembled from the devices' results.
    type Arrays: Tree;
    /// Appends the results to `to`, in order.
    fn push_results(self, to: &mut Vec<DeviceResult>);
}
impl<T: Element, D: Dimension> BlockOut for NdArray<T, D> {
    type Arrays = Array;
    fn push_results(self, to: &mut Vec<DeviceResult>) {
        let shape = Shape::from(self.shape());
        let data = if self.is_standard_layout() {
            let (data, offset) = self.into_raw_vec_and_offset();
            let (mut data, from) = (data, offset.unwrap_or(0));
            data.truncate(from + shape.num_elements());
            data.drain(..from);
            data
        } else {
            self.iter().copied().collect()
        };
        to.push(DeviceResult::new(shape, data));
    }
}
impl<T: Element> BlockOut for Vec<T> {
    type Arrays = Array;
    fn push_results(self, to: &mut Vec<DeviceResult>) {
        to.push(DeviceResult::new([self.len()].into(), self));
    }
}
macro_rules! scalars { ($($t:ty)*) => {$(
    impl BlockOut for $t {
        type Arrays = Array;
        fn push_results(self, to: &mut Vec<DeviceResult>) {
            to.push(DeviceResult::new(Shape::scalar(), vec![self]));
        }
    }
)*} }
scalars!(bool i8 i16 i32 i64 u8 u16 u32 u64 half::f16 half::bf16 f32 f64 num_complex::Complex<f32> num_complex::Complex<f64>);
macro_rules! tuples { ($(($($T:ident)*))*) => {$(
    impl<$($T: BlockOut),*> BlockOut for ($($T,)*) {
        type Arrays = ($($T::Arrays,)*);
        #[allow(non_snake_case, unused_variables)]
        fn push_results(self, to: &mut Vec<DeviceResult>) {
            let ($($T,)*) = self;
            $( $T.push_results(to); )*
        }
    }
)*} }
tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

/// Code that devices run: a closure of the device and its blocks.
///
/// `M` is `fn(A, B, ..) -> R`, found by type inference.
#[diagnostic::on_unimplemented(
    message = "this function cannot run on device threads",
    label = "expected `|dev: &Device, x: ArrayViewD<f32>, ..| -> Result<..>`",
    note = "parameters are ndarray views or slices, with their types written out; the result is a `Result`",
    note = "every device thread runs it at once, so it cannot change captured variables"
)]
pub trait DeviceFn<M> {
    /// The arguments: an array, or a tuple of arrays.
    type In: Tree;
    /// The `Ok` type of the closure's result.
    type Out;
    /// Calls the closure on a device with its blocks.
    fn apply(&self, device: &Device, blocks: &[BlockData]) -> Result<Self::Out>;
}
// the second bound lets a parameter borrow for any lifetime
macro_rules! device_fns {
    ($T:ident $n:tt) => { device_fns! { @ Array: $T $n } };
    ($($T:ident $n:tt)*) => { device_fns! { @ ($(device_fns!(@array $n),)*): $($T $n)* } };
    (@array $n:tt) => { Array };
    (@ $In:ty: $($T:ident $n:tt)*) => {
        impl<Fun, R, $($T: BlockParam),*> DeviceFn<fn($($T),*) -> R> for Fun
        where Fun: Fn(&Device, $($T),*) -> Result<R>, for<'a> &'a Fun: Fn(&Device, $($T::Item<'a>),*) -> Result<R> {
            type In = $In;
            type Out = R;
            #[allow(non_snake_case, unused_variables)]
            fn apply(&self, device: &Device, blocks: &[BlockData]) -> Result<R> {
                #[allow(clippy::too_many_arguments)]
                fn call<R, $($T),*>(f: impl Fn(&Device, $($T),*) -> Result<R>, device: &Device, $($T: $T),*) -> Result<R> {
                    f(device, $($T),*)
                }
                call(self, device, $($T::from_block(&blocks[$n])?),*)
            }
        }
    };
}
prefixes! { device_fns [] (A 0) (B 1) (C 2) (D 3) (E 4) (F 5) (G 6) (H 7) }
