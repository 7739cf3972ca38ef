//! `spmd`: the user's own Rust code, run on a thread for each device.
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
mod exchanges;
#[cfg(all(test, shuttle))]
#[path = "tests/shuttle.rs"]
mod shuttle_tests;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use block::{BlockData, BlockOut, BlockParam, DeviceFn, DeviceResult};
pub use device::{Device, Peer};
pub use exchanges::RowRanges;

use crate::api::tree::{CallArgs, NamedSizes, Path, SpecTree, Specs, Tree, resolve};
use crate::api::{array::Array, trace::Repr, trace::runs_device_code};
use crate::core::sharding::{blocks_unchecked, check_divides, check_spec};
use crate::core::{
    ArrayType, Axes, AxisType, Block as Held, Error, ErrorKind, Fault, Mesh, Result, Shape, Sharding,
    SourceLocation, Spec,
};
use crate::exec::runtime::device_threads::{CallerHooks, DevicePanic, catch_panic, on_threads};
use crate::exec::runtime::mailbox::Network;
use crate::exec::runtime::sync::atomic::AtomicUsize;
use crate::exec::runtime::sync::atomic::Ordering::Relaxed;
use crate::exec::runtime::thread_pool::thread_pool;
use crate::exec::runtime::{ArrayData, Buffer, process_devices};
use crate::ir::program::CallSite;
use crate::kernels;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

/// The user's closure, type-erased: it maps a device and its blocks to the device's results.
type DeviceCode<'f> = Box<dyn Fn(&Device, &[BlockData]) -> Result<Vec<DeviceResult>> + Sync + 'f>;

/// Code that runs on one operating-system thread per device, created by [`spmd`].
///
/// ```
/// use atmesh::{Spmd, nd, prelude::*};
/// let mesh = Mesh::new([("X", 2)])?;
/// let double = |_: &Device, x: nd::ArrayView1<i32>| Ok(x.mapv(|v| 2 * v));
/// let doubled: Spmd<Array, Array> = spmd(&mesh, p!["X"], p!["X"], double);
/// assert_eq!(doubled.call(Array::from([1, 2]))?.to_vec::<i32>()?, [2, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[must_use = "call it"]
pub struct Spmd<'f, I, O> {
    mesh: Mesh,
    axes: Axes,
    in_specs: SpecTree,
    out_specs: SpecTree,
    checked: bool,
    location: SourceLocation,
    code: DeviceCode<'f>,
    types: PhantomData<fn(I) -> O>,
}

/// Runs a closure on every device of a mesh, each on its own thread.
///
/// The closure gets ndarray views of the device's blocks. `in_specs` say how arguments are split,
/// `out_specs` how results are assembled. Both have the structure of the arguments and results, and
/// one spec applies to a whole subtree. The closure may borrow: a call returns when all devices are
/// done.
///
/// If a device panics, returns an error, or waits for a message that cannot come, the call returns
/// an error that names the device, its coordinates and the source location. The call then waits for
/// devices that still compute, since threads cannot be killed; after some seconds a line on stderr
/// says which device failed and which still run. In a program built with `panic = "abort"` a panic
/// ends the process.
#[doc(alias("io_callback", "MPI_Init", "MPI_Scatter", "MPI_Gather"))]
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
        location: Location::caller(),
        code: Box::new(move |device, blocks| {
            let mut results = Vec::new();
            f.apply(device, blocks)?.push_results(&mut results);
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
    /// Runs over these axes only. Specs and collectives cannot name other axes; devices along other
    /// axes do the same work.
    pub fn over(mut self, axes: impl Into<Axes>) -> Self {
        self.axes = axes.into();
        self
    }
    /// Skips the check that devices which hold the same block of a result return the same bits.
    pub fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }
    /// Runs the code on all devices, and returns when all are done.
    pub fn call<A: CallArgs<I>>(&self, args: A) -> Result<O> {
        self.run(args.into_tree()).map_err(|e| self.with_location(e))
    }
    fn with_location(&self, error: Error) -> Error {
        match error.diagnostics() {
            [d] if d.location.is_none() && d.op.is_empty() => {
                Error::new(d.fault.clone(), "spmd", d.operands.clone(), Some(self.location))
            }
            _ => error,
        }
    }
    fn run(&self, args: I) -> Result<O> {
        if runs_device_code() {
            return Err(fault!(Trace, "`spmd` is called by code that runs on a device")
                .help("devices communicate by collectives; call `spmd` from outside")
                .into());
        }
        if self.mesh.is_abstract() {
            return Err(fault!(Mesh, "an abstract mesh has no devices to run on").into());
        }
        if let Some(devices) = process_devices() {
            let n = devices.processes();
            return Err(fault!(
                Unsupported,
                "`spmd` runs device code on threads of one process, and {} is one of {n} processes",
                self.mesh
            )
            .help("write the code as a `shard_map`, which all processes run together")
            .into());
        }
        // inside device code all axes are manual
        let mut manual = self.mesh.clone();
        for axis in self.axes.iter() {
            manual = manual.with_axis_types(axis, AxisType::Manual)?;
        }
        NamedSizes::of(&args, "argument").check(CallSite::new("spmd", self.location))?;
        let inputs = self.input_blocks(&args, &manual)?;
        let template = O::filled_with(&Error::internal("no result"));
        let results = self.run_on_devices(&inputs)?;
        let specs = resolve(&self.out_specs, &template, "out_specs")?;
        check_agreement(&results, specs.len())?;
        let arrays: Vec<Array> = (specs.into_iter().enumerate())
            .map(|(k, spec)| self.assemble_output(k, spec, &results, &manual))
            .collect::<Result<_>>()?;
        let mut arrays = arrays.into_iter();
        let mut path = Path::default();
        Ok(template.rebuild(&mut path, &mut |_, was| arrays.next().unwrap_or_else(|| was.clone())))
    }
    /// Returns the data of each argument, and the block of it that each device gets.
    fn input_blocks(&self, args: &I, manual: &Mesh) -> Result<Vec<(ArrayData, Vec<Held>)>> {
        let specs = resolve(&self.in_specs, args, "in_specs")?;
        let mut leaves: Vec<Array> = Vec::new();
        args.visit(&mut Path::default(), &mut |_, leaf| leaves.push(leaf.clone()));
        let cut = |leaf: &Array, spec: Option<Spec>| -> Result<(ArrayData, Vec<Held>)> {
            if let Repr::Traced(_) = leaf.repr() {
                return Err(fault!(
                    Trace,
                    "device code needs concrete data, but this is a value of a traced program"
                )
                .help("call `spmd` outside `jit`, or write the code as a `shard_map`, which is traced")
                .into());
            }
            let ty = leaf.ty()?;
            let slab = leaf.array_data("spmd", self.location)?;
            slab.contiguous()?;
            if slab.num_partials() > 1 {
                let summed = ty.spec.unreduced(Axes::none());
                return Err(fault!(Sharding, "{ty} is still unreduced")
                    .help(format!("sum it first: `.reshard({summed})`"))
                    .into());
            }
            let own =
                || if ty.mesh.as_ref() == Some(&self.mesh) { ty.spec } else { Spec::replicated(ty.rank()) };
            let spec = check_spec(manual, spec.unwrap_or_else(own), ty.rank(), &[AxisType::Manual])?;
            check_divides(manual, spec, &ty.shape)?;
            let sharding = Sharding { mesh: self.mesh.clone(), spec };
            Ok((slab, blocks_unchecked(&sharding, &ty.shape)))
        };
        leaves.iter().zip(specs).map(|(leaf, spec)| cut(leaf, spec)).collect()
    }
    /// Runs the code on all devices, and returns their results in device order.
    fn run_on_devices(&self, inputs: &[(ArrayData, Vec<Held>)]) -> Result<Vec<Vec<DeviceResult>>> {
        let n = self.mesh.size();
        let network = Arc::new(Network::new(n, Some(self.mesh.clone())));
        let caller =
            CallerHooks { wakeup: Arc::default(), on_wake: &|| (), on_timeout: &network.timeout_reporter() };
        let ends = on_threads(n, &caller, &|position| {
            // marks the device as finished even if the code below panics
            let _ended = network.end_on_drop(position);
            let device = Device::new(&self.mesh, &self.axes, network.mailbox(position));
            let blocks: Vec<_> =
                inputs.iter().map(|(slab, held)| BlockData::new(slab, &held[position].index)).collect();
            let end = match catch_panic(|| (self.code)(&device, &blocks)) {
                Ok(Ok(results)) => Ok(results),
                // the run was aborted: the original cause is reported instead
                _ if device.mail.borrow().knows_verdict() => Err(None),
                Ok(Err(error)) => Err(Some(self.code_error(&network, position, &error))),
                Err(panic) => Err(Some(self.panic_error(&network, position, panic))),
            };
            if let Err(Some(error)) = &end {
                network.stop(error.clone());
            }
            end
        })?;
        let mut results = Vec::with_capacity(n);
        for (position, end) in ends.into_iter().enumerate() {
            match end.unwrap_or_else(|panic| Err(Some(self.panic_error(&network, position, panic)))) {
                Ok(r) => results.push(r),
                // if several devices fail, report the first one in device order, not the fastest
                Err(Some(error)) => return Err(error),
                Err(None) => {}
            }
        }
        network.detector.stopped().map_or(Ok(results), |verdict| Err(verdict.clone()))
    }
    /// Returns the error for a device whose code panicked.
    fn panic_error(&self, network: &Network, position: usize, panic: DevicePanic) -> Error {
        let name = network.detector.name(position);
        let at = panic.location.as_ref().map_or(String::new(), |p| format!(" at {p}"));
        let text = format!("{name} panicked{at}: {}", panic.into_message());
        Error::new(Fault::new(ErrorKind::Device, text), "spmd", Vec::new(), Some(self.location))
    }
    /// Returns the error for a device whose code returned an error.
    fn code_error(&self, network: &Network, position: usize, error: &Error) -> Error {
        let name = network.detector.name(position);
        Error::combine(error.diagnostics().iter().enumerate().map(|(i, d)| {
            let mut d = d.clone();
            if i == 0 {
                d.fault.message = match d.fault.kind {
                    ErrorKind::User => format!("{name} returned an error: {}", d.fault.message),
                    _ => format!("on {name}: {}", d.fault.message),
                };
                if d.fault.kind == ErrorKind::User {
                    d.fault.kind = ErrorKind::Device;
                }
                if d.op.is_empty() {
                    d.op = "spmd".into();
                }
                d.location = d.location.or(Some(self.location));
            }
            Error::from(d)
        }))
    }
    /// Assembles the global array of result `k`.
    fn assemble_output(
        &self,
        k: usize,
        spec: Option<Spec>,
        results: &[Vec<DeviceResult>],
        manual: &Mesh,
    ) -> Result<Array> {
        let first = &results[0][k];
        let spec = spec.unwrap_or_else(|| Spec::replicated(first.shape.rank()));
        let spec = check_spec(manual, spec, first.shape.rank(), &[AxisType::Manual])?;
        let num_shards = |d: usize| spec.dim(d).iter().map(|a| self.mesh.extent(*a)).product::<usize>();
        let shape: Shape = first.shape.iter().enumerate().map(|(d, n)| n * num_shards(d)).collect();
        let sharding = Sharding { mesh: self.mesh.clone(), spec };
        let held = blocks_unchecked(&sharding, &shape);
        let size = first.dtype.size();
        let mut buffer = Buffer::allocate(shape.num_elements().saturating_mul(size))?;
        let output = GlobalOutput { start: buffer.as_mut_ptr(), shape: &shape, size };
        let differing = first_failing(results.len(), shape.num_elements() * size, &|p| {
            let bytes = results[p][k].bytes();
            if held[p].replica == 0 {
                // SAFETY: `held[p].index` is a block of `shape`, and `bytes` are its elements
                // (`shape` was computed from the results' shapes, which were compared). Blocks with
                // different indices do not overlap, and of the devices that hold the same block
                // only the one with `replica == 0` writes.
                unsafe { output.write(&held[p], bytes) };
                return true;
            }
            let same = |q: usize| held[q].replica == 0 && held[q].index == held[p].index;
            let origin = (0..p).find(|q| same(*q)).unwrap_or(p);
            !self.checked || results[origin][k].bytes() == bytes
        });
        if let Some(p) = differing {
            let origin = (0..p).find(|q| held[*q].index == held[p].index).unwrap_or(0);
            return Err(fault!(Varying, "result {k} is the same on devices {origin} and {p} by its spec {spec}, but they return different values")
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
        Ok(Array::concrete(ArrayData::new(first.dtype, shape, 1, Arc::new(buffer)), ty, Some(sharding)))
    }
}

/// Returns an error unless each device returned `n` results, of the same element types and shapes.
fn check_agreement(results: &[Vec<DeviceResult>], n: usize) -> Result<(), Fault> {
    let first = results.first().ok_or_else(|| fault!(Device, "no device has returned"))?;
    for (p, own) in results.iter().enumerate() {
        if own.len() != n {
            let message = format!("device {p} returns {} results, but its type makes {n} arrays", own.len());
            return Err(Fault::new(ErrorKind::Tree, message)
                .help("`BlockOut::push_results` gives one result for each array of `Arrays`"));
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

/// A global array under construction, written by several threads.
struct GlobalOutput<'a> {
    start: *mut u8,
    shape: &'a Shape,
    size: usize,
}
// SAFETY: threads only call `write`, whose contract requires that they write disjoint parts of the
// array.
unsafe impl Sync for GlobalOutput<'_> {}
impl GlobalOutput<'_> {
    /// Writes the block of one device.
    ///
    /// # Safety
    /// `held.index` must be inside the array, no other thread may access that part meanwhile, and
    /// `bytes` must be the elements of the block in row-major order.
    unsafe fn write(&self, held: &Held, bytes: &[u8]) {
        let ranges = &held.index;
        if bytes.is_empty() {
            return;
        }
        // dimensions after `run` are unsharded, so that each run is contiguous
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
            // SAFETY: `held.index` is inside the array, and no other thread accesses it (caller
            // contract of `write`). So the run of `length` bytes at offset `at` is inside the array
            // and not part of `bytes`; `piece` has `length` bytes.
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

/// Calls `part` on `0..n`, and returns the first index for which it is false, if any. The calls run
/// in parallel if there are at least 2^20 `bytes` of data.
fn first_failing(n: usize, bytes: usize, part: &(dyn Fn(usize) -> bool + Sync)) -> Option<usize> {
    if bytes < 1 << 20 {
        return (0..n).find(|p| !part(*p));
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let run = thread_pool().run(&|_| {
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
