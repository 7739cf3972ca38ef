//! Host data: arrays from and to `Vec`, slices and ndarray arrays, pieces, files.

use super::sharding::{no_devices, placed};
use super::{Array, prims};
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::Axes;
use crate::ops::elementwise::broadcast_shapes;
use crate::program::Call;
use crate::runtime::host::{all_pairs, converted, copied, dense, put_runs, rows};
use crate::runtime::{Buffer, Slab, fits};
use crate::sharding::{Sharding, blocks_of, check_parts};
use crate::trace::{Repr, apply1, poison};
use crate::types::{ArrayType, DType, Element, Shape, with_dtype};
use ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};
use std::ops::{Deref, Range};
use std::panic::Location;
use std::sync::Arc;

#[track_caller]
fn whole<T: Element>(shape: Shape, data: &[T]) -> Array {
    slab_of(T::DTYPE.of(&shape), || Slab::from_elements(shape, data))
}
#[track_caller]
fn slab_of(ty: ArrayType, numbers: impl FnOnce() -> Result<Slab, Fault>) -> Array {
    // sizes beside an empty dimension may be of any size
    match ty.addressable().and_then(|()| numbers()) {
        Ok(slab) => Array::concrete(slab, ty, None),
        Err(fault) => poison(Error::at(fault, "from", vec![ty.to_string()], Some(Location::caller()))),
    }
}

impl<T: Element> From<T> for Array {
    fn from(x: T) -> Array {
        whole(Shape::scalar(), &[x])
    }
}
impl<T: Element> From<Vec<T>> for Array {
    fn from(x: Vec<T>) -> Array {
        whole([x.len()].into(), &x)
    }
}
impl<T: Element> From<&[T]> for Array {
    fn from(x: &[T]) -> Array {
        whole([x.len()].into(), x)
    }
}
impl<T: Element, const N: usize> From<[T; N]> for Array {
    fn from(x: [T; N]) -> Array {
        whole([N].into(), &x)
    }
}
impl<T: Element, const N: usize, const M: usize> From<[[T; M]; N]> for Array {
    fn from(x: [[T; M]; N]) -> Array {
        whole([N, M].into(), x.as_flattened())
    }
}
/// The elements as an array of rank 1.
impl<T: Element> FromIterator<T> for Array {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Array {
        Array::from(all.into_iter().collect::<Vec<T>>())
    }
}
/// As [`Array::to_vec`].
impl<T: Element> TryFrom<&Array> for Vec<T> {
    type Error = Error;
    #[track_caller]
    fn try_from(x: &Array) -> Result<Vec<T>> {
        x.to_vec()
    }
}
/// As [`Array::to_ndarray`].
impl<T: Element> TryFrom<&Array> for ArrayD<T> {
    type Error = Error;
    #[track_caller]
    fn try_from(x: &Array) -> Result<ArrayD<T>> {
        x.to_ndarray()
    }
}
/// Of any strides; copied in row-major order.
impl<T: Element, S: Data<Elem = T>, D: Dimension> From<ArrayBase<S, D>> for Array {
    #[track_caller]
    fn from(x: ArrayBase<S, D>) -> Array {
        let shape: Shape = x.shape().into();
        match x.as_slice() {
            Some(data) => whole(shape, data),
            None => slab_of(T::DTYPE.of(&shape), || dense(x.view())),
        }
    }
}
impl<T: Element, S: Data<Elem = T>, D: Dimension> From<&ArrayBase<S, D>> for Array {
    #[track_caller]
    fn from(x: &ArrayBase<S, D>) -> Array {
        x.view().into()
    }
}

/// The numbers of an array, borrowed from it without a copy: a slice in row-major order, and an ndarray view.
#[derive(Clone, Debug)]
pub struct View<T> {
    slab: Slab,
    element: std::marker::PhantomData<T>,
}
impl<T: Element> View<T> {
    /// As an ndarray view.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.view::<i32>()?.array().sum(), 10);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn array(&self) -> ArrayViewD<'_, T> {
        ArrayViewD::from_shape(IxDyn(self.slab.shape()), self)
            .expect("a slab has as many elements as its shape")
    }
}
impl<T: Element> Deref for View<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.slab.elements()
    }
}

/// # Numbers on the host
impl Array {
    /// The numbers in global row-major order: those of an unreduced array summed.
    pub(crate) fn numbers(&self, op: &'static str, place: Place) -> Result<Slab> {
        let mut slab = self.slab(op, place)?;
        let ty = self.type_ref().map_err(Error::clone)?;
        if let (2.., Some(mesh)) = (slab.copies(), &ty.mesh) {
            let spec = ty.spec.unreduced(Axes::none());
            slab =
                apply1(prims::reshard(mesh, spec), &[self.into()], Call::new(op, place)).slab(op, place)?;
        }
        slab.dense().map_err(|fault| self.no_room(fault, op, place))?;
        Ok(slab)
    }
    /// What says that there is no memory for its numbers.
    fn no_room(&self, fault: Fault, op: &str, place: Place) -> Error {
        Error::at(fault, op, self.type_ref().map(|ty| ty.to_string()).into_iter().collect(), Some(place))
    }
    fn of_element<T: Element>(&self, op: &'static str, place: Place) -> Result<Slab> {
        let ty = self.ty()?;
        if ty.dtype != T::DTYPE {
            let fault = Fault::new(ErrorKind::Dtype, format!("the array is {}, not {}", ty.dtype, T::DTYPE));
            let fault = match ty.dtype {
                DType::Key => fault.help("a key's two words: `key.data()`"),
                _ => fault.help(format!("convert it first: `.astype({:?})`", T::DTYPE)),
            };
            return Err(Error::at(fault, op, vec![ty.to_string()], Some(place)));
        }
        self.numbers(op, place)
    }
    /// The numbers, row-major.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.to_vec::<i32>()?, [1, 2, 3, 4]);
    /// assert!(x.to_vec::<f32>().is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let place = Location::caller();
        let slab = self.of_element::<T>("to_vec", place)?;
        copied(slab.elements()).map_err(|fault| self.no_room(fault, "to_vec", place))
    }
    /// The numbers as an ndarray array.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::arange(0..6).reshape([2, 3]).to_ndarray::<i32>()?;
    /// assert_eq!((x.shape(), x[[1, 2]]), (&[2, 3][..], 5));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let place = Location::caller();
        let slab = self.of_element::<T>("to_ndarray", place)?;
        let data = copied(slab.elements());
        let data = data.map_err(|fault| self.no_room(fault, "to_ndarray", place))?;
        Ok(ArrayD::from_shape_vec(IxDyn(slab.shape()), data)
            .expect("a slab has as many elements as its shape"))
    }
    /// The numbers without a copy, as a slice and an ndarray view.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// let view = x.view::<i32>()?;
    /// assert_eq!(view.array()[[1, 0]], 3);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn view<T: Element>(&self) -> Result<View<T>> {
        let slab = self.of_element::<T>("view", Location::caller())?;
        Ok(View { slab, element: std::marker::PhantomData })
    }
    /// The number of an array of one element.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).sum(..).item::<i32>()?, 6);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let place = Location::caller();
        let slab = self.of_element::<T>("item", place)?;
        match slab.elements() {
            [x] => Ok(*x),
            all => {
                let fault =
                    Fault::new(ErrorKind::Shape, format!("`item` of an array of {} elements", all.len()))
                        .help("`to_vec` gives all of them");
                Err(Error::at(fault, "item", vec![self.ty()?.to_string()], Some(place)))
            }
        }
    }
    /// Its element type; or the error that it carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1u8]).dtype()?, U8);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn dtype(&self) -> Result<DType> {
        self.type_ref().map(|t| t.dtype).map_err(Error::clone)
    }
    /// How many elements it has.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::ones([4, 2]);
    /// assert_eq!((x.size()?, x.nbytes()?), (8, 32));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn size(&self) -> Result<usize> {
        self.type_ref().map(|t| t.shape.elements()).map_err(Error::clone)
    }
    /// Bytes of the whole array.
    pub fn nbytes(&self) -> Result<usize> {
        self.type_ref().map(ArrayType::nbytes).map_err(Error::clone)
    }
    /// Whether all numbers are close to those of another array: |a − b| ≤ 1e-8 + 1e-5·|b|. Shapes broadcast.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 2.0]);
    /// assert!(x.allclose(&(&x + 1e-6))? && !x.allclose(&(&x + 1e-3))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn allclose(&self, other: &Array) -> Result<bool> {
        self.allclose_by(other, 1e-5, 1e-8)
    }
    /// Whether all numbers are close: |a − b| ≤ absolute + relative·|b|. Shapes broadcast; NaN is close to nothing.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 2.0]);
    /// assert!(x.allclose_by(&(&x * 1.1), 0.2, 0.0)?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn allclose_by(&self, other: &Array, relative: f64, absolute: f64) -> Result<bool> {
        let place = Location::caller();
        let complex = |x: &Array| x.type_ref().is_ok_and(|ty| ty.dtype.is_complex());
        if complex(self) || complex(other) {
            return self.allclose_complex(other, [relative, absolute], place);
        }
        let (a, b) = (self.floats(place)?, other.floats(place)?);
        let (ta, tb) = (self.ty()?, other.ty()?);
        let shape = broadcast_shapes([(0, &*ta.shape), (1, &*tb.shape)])
            .map_err(|f| Error::at(f, "allclose", vec![ta.to_string(), tb.to_string()], Some(place)))?;
        let whole = "broadcasting was checked";
        let (a, b) = (a.broadcast(IxDyn(&shape)).expect(whole), b.broadcast(IxDyn(&shape)).expect(whole));
        let close = |a: &f64, b: &f64| a == b || (a - b).abs() <= absolute + relative * b.abs();
        Ok(all_pairs(a, b, close))
    }
    /// The numbers as f64.
    fn floats(&self, place: Place) -> Result<ArrayD<f64>> {
        let slab = self.numbers("allclose", place)?;
        let data = with_dtype!(self.dtype()?, T => converted(slab.elements::<T>(), T::to_f64));
        let data = data.map_err(|fault| self.no_room(fault, "allclose", place))?;
        Ok(ArrayD::from_shape_vec(IxDyn(slab.shape()), data)
            .expect("a slab has as many elements as its shape"))
    }
    /// An array made of pieces: `pieces[k]` is what the k-th device of the mesh holds, each of the block's shape.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let sharding = Sharding::new(&mesh, p!["X"], &[4])?;
    /// let x = Array::from_shards([4], &sharding, [Array::from([1, 2]), Array::from([3, 4])])?;
    /// assert_eq!(type_of(&x), "int32[4@X]");
    /// assert!(Array::from_shards([4], &sharding, [Array::from([1, 2])]).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn from_shards<A: Into<Array>>(
        shape: impl Into<Shape>,
        sharding: &Sharding,
        pieces: impl IntoIterator<Item = A>,
    ) -> Result<Array> {
        let place = Location::caller();
        let pieces: Vec<Array> = pieces.into_iter().map(Into::into).collect();
        let (given, devices) = (pieces.len(), sharding.mesh.size());
        if given > devices {
            let fault = Fault::new(
                ErrorKind::Data,
                format!("there are {given} pieces, but {} has {devices} devices", sharding.mesh),
            )
            .help("give one piece for each device, in the mesh's order");
            return Err(Error::at(fault, "from_shards", Vec::new(), Some(place)));
        }
        assemble("from_shards", shape.into(), sharding, place, |k, _| Ok(pieces.get(k).cloned()))
    }
    /// An array made piece by piece: `f` gets the position of a block, and makes it. It is called once for each different block.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let sharding = Sharding::new(&mesh, p!["X"], &[8])?;
    /// let x = Array::from_fn([8], &sharding, |index| Array::arange(index[0].start as i32..index[0].end as i32))?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 1, 2, 3, 4, 5, 6, 7]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn from_fn<A: Into<Array>>(
        shape: impl Into<Shape>,
        sharding: &Sharding,
        mut f: impl FnMut(&[Range<usize>]) -> A,
    ) -> Result<Array> {
        let place = Location::caller();
        let mut made: Vec<(Vec<Range<usize>>, Array)> = Vec::new();
        assemble("from_fn", shape.into(), sharding, place, |_, index| {
            if let Some((_, known)) = made.iter().find(|m| m.0 == index) {
                return Ok(Some(known.clone()));
            }
            let piece = f(index).into().ready()?;
            made.push((index.to_vec(), piece.clone()));
            Ok(Some(piece))
        })
    }
}

/// A slab from one piece a device.
fn assemble(
    op: &str,
    shape: Shape,
    sharding: &Sharding,
    place: Place,
    mut piece: impl FnMut(usize, &[Range<usize>]) -> Result<Option<Array>>,
) -> Result<Array> {
    let refuse = |kind, m: String| {
        let help =
            "give one piece for each device, of the shape and part that `shards()` of such an array shows";
        Error::at(Fault::new(kind, m).help(help), op, Vec::new(), Some(place))
    };
    let mesh = &sharding.mesh;
    let refused = |fault| Error::at(fault, op, vec![shape.to_string()], Some(place));
    if mesh.is_abstract() {
        return Err(refused(no_devices(mesh)));
    }
    let sharding = Sharding::checked(mesh, sharding.spec, &shape).map_err(refused)?;
    let parts = sharding.spec.unreduced_axes();
    let copies: usize = parts.iter().map(|a| mesh.extent(a)).product();
    let mut target: Option<(DType, Buffer)> = None;
    for (position, b) in blocks_of(&sharding, &shape).into_iter().enumerate() {
        let name = match mesh.devices().get(position) {
            Some(device) => format!("device {device}"),
            None => format!("device {position}"),
        };
        let Some(data) = piece(position, &b.index)? else {
            let m = format!("the piece of {name} is missing: it holds {:?} of {shape}", b.index);
            return Err(refuse(ErrorKind::Data, m));
        };
        let slab = data.slab(op, place)?;
        let ty = data.ty()?;
        let local: Shape = b.index.iter().map(Range::len).collect();
        if ty.shape != local {
            let m = format!(
                "the piece of {name} has shape {}, but it holds {:?} of {shape}: shape {local}",
                ty.shape, b.index
            );
            return Err(refuse(ErrorKind::Data, m));
        }
        let size = ty.dtype.size();
        check_parts(sharding.spec, ty.dtype)
            .map_err(|f| Error::at(f, op, vec![ty.to_string()], Some(place)))?;
        let (dtype, buffer) = match &mut target {
            Some(target) => target,
            empty => {
                let bytes = ty.dtype.of(&shape).nbytes().saturating_mul(copies);
                ty.dtype.of(&shape).addressable().and_then(|()| fits(bytes)).map_err(refused)?;
                empty.insert((ty.dtype, Buffer::asked(bytes).map_err(refused)?))
            }
        };
        if *dtype != ty.dtype {
            let m = format!("the piece of {name} is {}, those before are {dtype}", ty.dtype);
            return Err(refuse(ErrorKind::Data, m));
        }
        let copy = mesh.rank_along(parts, &mesh.coordinates(position));
        let base = copy * shape.elements() * size;
        let (run, starts) = rows(&shape, &b.index, size);
        let from = slab.dense().map_err(refused)?;
        // SAFETY: the piece has the block's shape, so its runs are those of the block, within both buffers; the first replica writes them
        let same = unsafe {
            let from = std::slice::from_raw_parts(from.as_ptr(), slab.nbytes());
            put_runs(from, run, buffer.as_mut_ptr().add(base), &starts, b.replica > 0)
        };
        if !same {
            let m = format!(
                "the piece of {name} differs from that of another device that holds the same part, {:?}",
                b.index
            );
            return Err(refuse(ErrorKind::Data, m));
        }
    }
    let (dtype, buffer) =
        target.ok_or_else(|| refuse(ErrorKind::Data, "a mesh without devices holds no pieces".into()))?;
    let slab = Slab::new(dtype.storage(), shape.clone(), copies, Arc::new(buffer));
    let mut ty = placed(dtype, &shape, &sharding);
    ty.spec = ty.spec.padded(shape.rank());
    Ok(Array::concrete(slab, ty, Some(sharding)))
}

/// Numbers as numpy prints them; a traced value as its type; an error as itself.
impl std::fmt::Display for Array {
    #[track_caller]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.repr() {
            Repr::Traced(t) => write!(f, "{}", t.value.ty),
            Repr::Poisoned(e) => write!(f, "{e}"),
            Repr::Concrete(c) => match self.numbers("print", Location::caller()) {
                Ok(slab) => f.write_str(&crate::show::format::slab(c.ty.dtype, &slab)),
                Err(e) => write!(f, "{e}"),
            },
        }
    }
}
impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::host::block;
    use crate::{Mesh, p};

    /// Blocks of every way to split a small array are cut out of it and put together again.
    #[test]
    fn blocks_are_cut_out_and_put_together() {
        let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
        let x = Array::from(ArrayD::from_shape_vec(&[4, 3, 2][..], (0..24).collect::<Vec<i16>>()).unwrap());
        let whole = x.slab("test", Location::caller()).unwrap();
        for spec in [p![], p!["x"], p![_, "y"], p!["x", "y"], p![_, "y", "x"], p![_, _, "x"]] {
            let sharding = Sharding::new(&mesh, spec, &[4, 3, 2]).unwrap();
            let piece = |index: &[Range<usize>]| {
                let cut = block(&whole, 0, index).unwrap();
                let ty = DType::I16.of(cut.shape());
                Array::concrete(cut, ty, None)
            };
            let again = Array::from_fn([4, 3, 2], &sharding, piece).unwrap();
            assert_eq!(again.to_vec::<i16>().unwrap(), x.to_vec::<i16>().unwrap(), "{spec}");
        }
    }
}
