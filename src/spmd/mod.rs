//! `spmd`: the user's own Rust on every device thread.
//!
//! ```
//! use atmesh::prelude::*;
//! use ndarray::ArrayView1;
//! let mesh = Mesh::new([("x", 4)])?;
//! let x = Array::from((0..8).map(|i| i as f32).collect::<Vec<_>>());
//! let sums = spmd(&mesh, p!["x"], p!["x"], |dev: &Device, x: ArrayView1<f32>| {
//!     let total = dev.psum_scalar(x.sum(), "x")?;
//!     Ok(vec![x.sum(), total])
//! });
//! assert_eq!(sums.call(&x)?.to_vec::<f32>()?, [1.0, 28.0, 5.0, 28.0, 9.0, 28.0, 13.0, 28.0]);
//! # Ok::<(), atmesh::Error>(())
//! ```

mod block;
mod collectives;
mod device;
#[cfg(all(test, shuttle))]
mod orders;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use block::{Block, BlockData, BlockOut, DeviceFn, Returned};
pub use device::{Device, Peer};

use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::{Axes, AxisType, Mesh};
use crate::runtime::devices::{Caller, Panicked, guarded, on_threads};
use crate::runtime::kernels;
use crate::runtime::network::Network;
use crate::runtime::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::runtime::workers::team;
use crate::runtime::{Buffer, Slab, on_device_thread};
use crate::sharding::{Block as Held, Sharding, Spec, blocks_of, check_divides, check_spec};
use crate::trace::Repr;
use crate::tree::{Args, Path, SpecTree, Specs, Tree, resolve};
use crate::types::{ArrayType, Shape};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

/// Code on blocks, its types erased.
type Code<'f> = Box<dyn Fn(&Device, &[BlockData]) -> Result<Vec<Returned>> + Sync + 'f>;

/// Code that runs on one operating-system thread per device, as [`spmd`] makes it.
#[must_use = "call it"]
pub struct Spmd<'f, I, O> {
    mesh: Mesh,
    axes: Axes,
    in_specs: SpecTree,
    out_specs: SpecTree,
    checked: bool,
    place: Place,
    code: Code<'f>,
    types: PhantomData<fn(I) -> O>,
}

/// Runs a closure on every device of a mesh, each on a thread of its own, with ndarray views of the device's blocks.
///
/// `in_specs` say how arguments are cut, `out_specs` how results are put together; both have the shape of the arguments and results, and
/// one spec is for all below it. The closure may borrow: a call returns when all devices are done. Where a device panics,
/// returns an error, or waits in vain, the call is an error that names the device, its coordinates and the line. While others still
/// compute it waits for them: nobody can end a thread; after some seconds a line on stderr says what failed and who still runs.
/// In a program built with `panic = "abort"` a panic ends the process.
#[track_caller]
pub fn spmd<'f, M, F: DeviceFn<M, Out: BlockOut> + Sync + 'f>(
    mesh: &Mesh,
    in_specs: impl Specs,
    out_specs: impl Specs,
    f: F,
) -> Spmd<'f, F::In, <F::Out as BlockOut>::Arrays> {
    Spmd {
        mesh: mesh.clone(),
        axes: mesh.axis_names().into(),
        in_specs: in_specs.spec_tree(),
        out_specs: out_specs.spec_tree(),
        checked: true,
        place: Location::caller(),
        code: Box::new(move |device, blocks| {
            let mut results = Vec::new();
            f.apply(device, blocks)?.give(&mut results);
            Ok(results)
        }),
        types: PhantomData,
    }
}

impl<I, O> std::fmt::Debug for Spmd<'_, I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "spmd over {} on {}", self.axes, self.mesh)
    }
}

impl<I: Tree, O: Tree> Spmd<'_, I, O> {
    /// Over these axes only: specs and collectives name no others, and the devices along the others do the same work.
    pub fn over(mut self, axes: impl Into<Axes>) -> Self {
        self.axes = axes.into();
        self
    }
    /// Without the check that devices which hold the same part of a result return the same bits.
    pub fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }
    /// Runs the code on all devices, and returns when all are done.
    pub fn call<A: Args<Owned = I>>(&self, args: A) -> Result<O> {
        self.run(args.into_tree()).map_err(|e| self.located(e))
    }
    fn located(&self, error: Error) -> Error {
        match error.diagnostics() {
            [d] if d.place.is_none() && d.op.is_empty() => {
                Error::at(d.fault.clone(), "spmd", d.operands.clone(), Some(self.place))
            }
            _ => error,
        }
    }
    fn run(&self, args: I) -> Result<O> {
        if on_device_thread() {
            return Err(Fault::new(ErrorKind::Trace, "`spmd` is called by code that runs on a device")
                .help("devices meet by collectives; call `spmd` from outside")
                .into());
        }
        if self.mesh.is_abstract() {
            return Err(Fault::new(ErrorKind::Mesh, "an abstract mesh has no devices to run on").into());
        }
        // here all axes are the code's own
        let mut manual = self.mesh.clone();
        for axis in self.axes.iter() {
            manual = manual.retyped(axis, AxisType::Manual)?;
        }
        let inputs = self.inputs(&args, &manual)?;
        let template = O::filled_with(&Error::internal("no result"));
        let results = self.on_devices(&inputs)?;
        let specs = resolve(&self.out_specs, &template, "out_specs")?;
        agree(&results, specs.len())?;
        let arrays: Vec<Array> = (specs.into_iter().enumerate())
            .map(|(k, spec)| self.output(k, spec, &results, &manual))
            .collect::<Result<_>>()?;
        let mut arrays = arrays.into_iter();
        let mut path = Path::default();
        Ok(template.rebuild(&mut path, &mut |_, was| arrays.next().unwrap_or_else(|| was.clone())))
    }
    /// The arguments' numbers, and the part of each device.
    fn inputs(&self, args: &I, manual: &Mesh) -> Result<Vec<(Slab, Vec<Held>)>> {
        let specs = resolve(&self.in_specs, args, "in_specs")?;
        let mut leaves: Vec<Array> = Vec::new();
        args.visit(&mut Path::default(), &mut |_, leaf| leaves.push(leaf.clone()));
        let cut = |leaf: &Array, spec: Option<Spec>| -> Result<(Slab, Vec<Held>)> {
            if let Repr::Traced(_) = leaf.repr() {
                return Err(Fault::new(
                    ErrorKind::Trace,
                    "device code needs numbers, but this is a value of a traced program",
                )
                .help("call `spmd` outside `jit`, or write the code as a `shard_map`, which is traced")
                .into());
            }
            let ty = leaf.ty()?;
            let slab = leaf.slab("spmd", self.place)?;
            slab.dense()?;
            if slab.copies() > 1 {
                return Err(Fault::new(ErrorKind::Sharding, format!("{ty} is still unreduced"))
                    .help("reshard it first")
                    .into());
            }
            let own = || if ty.mesh.as_ref() == Some(&self.mesh) { ty.spec } else { Spec::whole(ty.rank()) };
            let spec = check_spec(manual, spec.unwrap_or_else(own), ty.rank(), &[AxisType::Manual])?;
            check_divides(manual, spec, &ty.shape)?;
            let sharding = Sharding { mesh: self.mesh.clone(), spec };
            Ok((slab, blocks_of(&sharding, &ty.shape)))
        };
        leaves.iter().zip(specs).map(|(leaf, spec)| cut(leaf, spec)).collect()
    }
    /// Runs the code on all devices; their results in device order.
    fn on_devices(&self, inputs: &[(Slab, Vec<Held>)]) -> Result<Vec<Vec<Returned>>> {
        let n = self.mesh.size();
        let network = Arc::new(Network::new(n, Some(self.mesh.clone())));
        let caller = Caller { bell: Arc::default(), heed: &|| (), late: &network.late() };
        let ends = on_threads(n, &caller, &|position| {
            // also where what follows panics
            let _ended = network.end(position);
            let device = Device::new(&self.mesh, &self.axes, network.mailbox(position));
            let blocks: Vec<_> =
                inputs.iter().map(|(slab, held)| BlockData::new(slab, &held[position].index)).collect();
            let end = match guarded(|| (self.code)(&device, &blocks)) {
                Ok(Ok(results)) => Ok(results),
                // the run had ended, and that is why
                _ if device.mail.borrow().told() => Err(None),
                Ok(Err(error)) => Err(Some(self.failed(&network, position, &error))),
                Err(panic) => Err(Some(self.panicked(&network, position, panic))),
            };
            if let Err(Some(error)) = &end {
                network.stop(error.clone());
            }
            end
        })?;
        let mut results = Vec::with_capacity(n);
        for (position, end) in ends.into_iter().enumerate() {
            match end.unwrap_or_else(|panic| Err(Some(self.panicked(&network, position, panic)))) {
                Ok(r) => results.push(r),
                // of several devices that fail by themselves the first one speaks, whichever was faster
                Err(Some(error)) => return Err(error),
                Err(None) => {}
            }
        }
        network.board.stopped().map_or(Ok(results), |verdict| Err(verdict.clone()))
    }
    /// The error of a device whose code panicked.
    fn panicked(&self, network: &Network, position: usize, panic: Panicked) -> Error {
        let name = network.board.name(position);
        let at = panic.place.as_ref().map_or(String::new(), |p| format!(" at {p}"));
        let text = format!("{name} panicked{at}: {}", panic.message());
        Error::at(Fault::new(ErrorKind::Device, text), "spmd", Vec::new(), Some(self.place))
    }
    /// The error of a device's own code.
    fn failed(&self, network: &Network, position: usize, error: &Error) -> Error {
        let name = network.board.name(position);
        Error::all(error.diagnostics().iter().enumerate().map(|(i, d)| {
            let mut d = d.clone();
            if i == 0 {
                d.fault.message = match d.fault.kind {
                    ErrorKind::Other => format!("{name} returned an error: {}", d.fault.message),
                    _ => format!("on {name}: {}", d.fault.message),
                };
                if d.fault.kind == ErrorKind::Other {
                    d.fault.kind = ErrorKind::Device;
                }
                if d.op.is_empty() {
                    d.op = "spmd".into();
                }
                d.place = d.place.or(Some(self.place));
            }
            Error::from(d)
        }))
    }
    /// The global array of result k.
    fn output(
        &self,
        k: usize,
        spec: Option<Spec>,
        results: &[Vec<Returned>],
        manual: &Mesh,
    ) -> Result<Array> {
        let first = &results[0][k];
        let spec = spec.unwrap_or_else(|| Spec::whole(first.shape.rank()));
        let spec = check_spec(manual, spec, first.shape.rank(), &[AxisType::Manual])?;
        let ways = |d: usize| spec.dim(d).iter().map(|a| self.mesh.extent(*a)).product::<usize>();
        let shape: Shape = first.shape.iter().enumerate().map(|(d, n)| n * ways(d)).collect();
        let sharding = Sharding { mesh: self.mesh.clone(), spec };
        let held = blocks_of(&sharding, &shape);
        let size = first.dtype.size();
        let mut buffer = Buffer::asked(shape.elements().saturating_mul(size))?;
        let whole = Whole { start: buffer.as_mut_ptr(), shape: &shape, size };
        let differing = each(results.len(), shape.elements() * size, &|p| {
            let bytes = results[p][k].bytes();
            if held[p].replica == 0 {
                // SAFETY: blocks of different index are apart, and equal ones are written by the first of their devices only
                unsafe { whole.write(&held[p], bytes) };
                return true;
            }
            let same = |q: usize| held[q].replica == 0 && held[q].index == held[p].index;
            let origin = (0..p).find(|q| same(*q)).unwrap_or(p);
            !self.checked || results[origin][k].bytes() == bytes
        });
        if let Some(p) = differing {
            let origin = (0..p).find(|q| held[*q].index == held[p].index).unwrap_or(0);
            return Err(Fault::new(
                ErrorKind::Vma,
                format!("result {k} is the same on devices {origin} and {p} by its spec {spec}, but they return different values"),
            )
            .help("name in out_specs the axes over which it differs, or sum it with `psum`")
            .help("`.unchecked()` takes the value of the first device")
            .into());
        }
        let ty = ArrayType {
            dtype: first.dtype,
            shape: shape.clone(),
            mesh: Some(self.mesh.clone()),
            spec: sharding.explicit(),
            varying: Axes::none(),
        };
        Ok(Array::concrete(Slab::new(first.dtype, shape, 1, Arc::new(buffer)), ty, Some(sharding)))
    }
}

/// Refuses results of the devices that do not make `n` arrays.
fn agree(results: &[Vec<Returned>], n: usize) -> Result<(), Fault> {
    let first = results.first().ok_or_else(|| Fault::new(ErrorKind::Device, "no device has returned"))?;
    for (p, own) in results.iter().enumerate() {
        if own.len() != n {
            let message = format!("device {p} returns {} results, but its type makes {n} arrays", own.len());
            return Err(Fault::new(ErrorKind::Tree, message)
                .help("`BlockOut::give` gives one result for each array of `Arrays`"));
        }
        let differing = own.iter().zip(first).position(|(a, b)| (a.dtype, &a.shape) != (b.dtype, &b.shape));
        let Some(k) = differing else { continue };
        let (a, b) = (&first[k], &own[k]);
        let (kind, what) = if a.dtype == b.dtype {
            (ErrorKind::Shape, format!("has shape {} on device 0 and {} on device {p}", a.shape, b.shape))
        } else {
            (ErrorKind::Dtype, format!("is {a:?} on device 0 and {b:?} on device {p}"))
        };
        return Err(Fault::new(kind, format!("result {k} {what}"))
            .help("all devices return blocks of one element type and shape"));
    }
    Ok(())
}

/// A global array that is being put together.
struct Whole<'a> {
    start: *mut u8,
    shape: &'a Shape,
    size: usize,
}
// SAFETY: threads write to different parts of it
unsafe impl Sync for Whole<'_> {}
impl Whole<'_> {
    /// Writes a block.
    ///
    /// # Safety
    /// Nobody else uses the block's part of the array meanwhile; `bytes` are the block's.
    unsafe fn write(&self, held: &Held, bytes: &[u8]) {
        let ranges = &held.index;
        if bytes.is_empty() {
            return;
        }
        // dimensions from `run` on are whole, so that runs of them are contiguous
        let mut run = ranges.len();
        while run > 0 && ranges[run - 1].len() == self.shape[run - 1] {
            run -= 1;
        }
        let run = run.saturating_sub(1);
        let inner: usize = self.shape[run..].iter().skip(1).product::<usize>() * self.size;
        let length = ranges.get(run).map_or(self.size, |r| r.len() * inner);
        let mut index: Vec<usize> = ranges[..run].iter().map(|r| r.start).collect();
        for piece in bytes.chunks_exact(length) {
            let row = index.iter().zip(self.shape.iter()).fold(0, |at, (i, n)| at * n + i);
            let at = match ranges.get(run) {
                Some(r) => (row * self.shape[run] + r.start) * inner,
                None => 0,
            };
            // SAFETY: within the array, by the ranges
            unsafe { kernels::copy(length, self.start.add(at), piece.as_ptr(), false) };
            for d in (0..run).rev() {
                index[d] += 1;
                if index[d] < ranges[d].end {
                    break;
                }
                index[d] = ranges[d].start;
            }
        }
    }
}

/// Runs `part(0)`, …, on the workers if there is much to do; the first for which it is false.
fn each(n: usize, bytes: usize, part: &(dyn Fn(usize) -> bool + Sync)) -> Option<usize> {
    if bytes < 1 << 20 {
        return (0..n).find(|p| !part(*p));
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let run = team().run(&|_| {
        loop {
            let p = next.fetch_add(1, Relaxed);
            if p >= n {
                break;
            }
            if !part(p) {
                failed.fetch_min(p, Relaxed);
            }
        }
    });
    if let Err(panic) = run {
        std::panic::resume_unwind(panic);
    }
    Some(failed.into_inner()).filter(|p| *p < n)
}
