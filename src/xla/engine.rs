//! The XLA engine: compiles the placed program as a StableHLO module and runs it on a PJRT plugin.
//!
//! Each device receives its blocks of the arguments and produces its blocks of the results. Results
//! stay on the devices and are copied to the host when they are read. A later call uses them in
//! place if it needs the same blocks; all other arguments are copied to the devices. XLA chooses
//! the collectives and the order in which sums are evaluated, so results may differ from those of
//! the built-in engines in the last digits. (Feature `xla`.)

use crate::core::{
    ArrayType, DType, Diagnostic, Error, ErrorKind, Fault, Result, Scalar, ScalarElement, Shape,
    SourceLocation, SubAxis, sharding::sub_axes::num_shards, types::with_dtype,
};
use crate::exec::engine::{self, CompileRequest, Engine, Executable, ExecutionReport, Failure, XlaEngine};
use crate::exec::runtime::parallel_copy::{extract_block, write_block};
use crate::exec::runtime::{
    ArrayData, BlockFn, Buffer, ForeignValue, ProcessDevices, check_available, compares_replicas,
    process_devices, register_process_devices, stable_hash,
};
use crate::ir::program::{Input, Placement, Program};
use crate::xla::pjrt::{self, Client, DeviceBuffer};
use crate::xla::stablehlo::{self, ModuleInput, Options};
use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Runs programs on the plugin that `ATMESH_PJRT_PLUGIN` names.
pub(crate) struct Xla;

/// Makes the engine available to [`EngineKind::Xla`](engine::EngineKind::Xla).
pub(crate) fn register() {
    engine::register_xla(XlaEngine { engine: &Xla, is_device_resident });
}

impl Engine for Xla {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        let program = job.placed;
        let place = program.equations.first().and_then(|e| e.location);
        let at = |e: Error| match location_in_error(&e, program).or(place) {
            Some(location) => e.with_location("the engine xla", location),
            None => e,
        };
        let devices = program.mesh.as_ref().map_or(1, |m| m.size());
        let given: Vec<ModuleInput> = (0..program.inputs.len())
            .map(|k| ModuleInput::Argument { donated: job.donated.get(k) == Some(&true) })
            .collect();
        let module = stablehlo::write(program, &given, Options::default().locations(true));
        let module = module.map_err(|e| at(for_processes(e)))?;
        let caller = place.unwrap_or(Location::caller());
        let inner = client(devices)
            .and_then(|client| Ok((client.compile_at(&module.text, devices, caller)?, client)))
            .map_err(at);
        let (executable, client) = inner?;
        if executable.num_results() != program.outputs.len() {
            let (has, wanted) = (executable.num_results(), program.outputs.len());
            return Err(at(Error::new(
                fault!(Device, "the plugin compiled a module of {wanted} results to one of {has}"),
                "the engine xla",
                Vec::new(),
                None,
            )));
        }
        let own = executable.own_devices();
        let of_input = |v: &crate::ir::program::Var| {
            let info = &program.vars[v.index()];
            BoundaryLayout::new(&info.ty, info.placement.as_ref(), devices, own)
        };
        let of_output = |out: &Input| {
            BoundaryLayout::new(&program.input_type(out), placement(program, out), devices, own)
        };
        Ok(Arc::new(XlaExecutable {
            arguments: program.inputs.iter().map(of_input).collect(),
            results: program.outputs.iter().map(|out| Arc::new(of_output(out))).collect(),
            donated: job.donated.to_vec(),
            atmesh_collectives: job.collectives.to_string(),
            text: module.text,
            executable,
            client,
            location: place,
        }))
    }
}

/// Returns the error of a program that XLA does not run, with what to do if there are several
/// processes: no other engine runs it then.
fn for_processes(error: Error) -> Error {
    if error.kind() != ErrorKind::Unsupported || process_devices().is_none() {
        return error;
    }
    let explained = |d: &Diagnostic| {
        let mut d = d.clone();
        d.fault.help.retain(|help| !help.contains("EngineKind::"));
        d.fault.help.push(
            "or compute it in each process, on arrays that the process holds whole: `x.process_allgather()`"
                .into(),
        );
        Error::from(d)
    };
    Error::combine(error.diagnostics().iter().map(explained))
}

/// Returns the source location that a plugin's error message names, if it is one of the program's.
/// The message may say `"src/main.rs":12` or `src/main.rs:12`.
fn location_in_error(error: &Error, program: &Program) -> Option<SourceLocation> {
    let words = &error.diagnostics().first()?.fault.message;
    let names = |location: &SourceLocation| {
        let (file, line) = (location.file(), location.line());
        [format!("{file:?}:{line}"), format!("{file}:{line}")].iter().any(|name| {
            // the text `main.rs:12` does not name line 1
            let mut ends = words.match_indices(name.as_str()).map(|(at, _)| &words[at + name.len()..]);
            ends.any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    program.equations.iter().filter_map(|e| e.location).find(names)
}

fn placement<'a>(program: &'a Program, out: &Input) -> Option<&'a Placement> {
    match out {
        Input::Var(v) => program.vars[v.index()].placement.as_ref(),
        Input::Lit(_) => None,
    }
}

/// The client of several processes, if this one has joined others.
static CLUSTER_CLIENT: OnceLock<Client> = OnceLock::new();

/// Makes all programs on meshes run on the devices of this client, which several processes share.
pub(crate) fn use_cluster_client(client: &Client, processes: usize) {
    register();
    // a process joins once
    let _ = CLUSTER_CLIENT.set(client.clone());
    register_process_devices(ClusterDevices { client: client.clone(), processes });
}

/// Returns a client with at least this many devices.
/// All programs share the clients that exist already.
fn client(devices: usize) -> Result<Client> {
    if let Some(client) = CLUSTER_CLIENT.get() {
        return Ok(client.clone());
    }
    static CLIENTS: Mutex<Vec<Client>> = Mutex::new(Vec::new());
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = clients.iter().find(|c| c.devices() >= devices) {
        return Ok(client.clone());
    }
    let client = Client::from_env(devices)?;
    clients.push(client.clone());
    Ok(client)
}

/// The layout of an argument or a result: its type, and the block that each device holds.
#[derive(Debug)]
struct BoundaryLayout {
    ty: ArrayType,
    /// The block of each device, of all processes.
    blocks: Vec<Vec<Range<usize>>>,
    /// The indices of the devices of this process.
    own: Vec<usize>,
    /// The number of partial values outside the module. Inside the module, the value is their sum.
    num_partials: usize,
}

impl BoundaryLayout {
    fn new(ty: &ArrayType, at: Option<&Placement>, devices: usize, own: &[usize]) -> BoundaryLayout {
        let dim = |d: usize, n: usize, position: usize| {
            let sub_axes: &[SubAxis] =
                at.and_then(|at| at.dims.get(d)).map_or(&[], |digits| digits.as_slice());
            let rank = sub_axes.iter().fold(0, |r, a| r * a.size + a.index_of(position));
            // uneven shardings were rejected when the module was written
            let size = n / num_shards(sub_axes);
            rank * size..(rank + 1) * size
        };
        let block = |position| ty.shape.iter().enumerate().map(|(d, n)| dim(d, *n, position)).collect();
        BoundaryLayout {
            blocks: (0..devices).map(block).collect(),
            own: own.to_vec(),
            num_partials: at.map_or(1, |at| num_shards(&at.partial)),
            ty: ty.clone(),
        }
    }
    /// Returns the element type and shape of a block inside the module.
    /// A PRNG key is a pair of 32-bit words, which is also its layout in memory.
    fn block_type(&self, block: &[Range<usize>]) -> (DType, Shape) {
        let sizes = block.iter().map(Range::len);
        match self.ty.dtype {
            DType::Key => (DType::U32, sizes.chain([2]).collect()),
            dtype => (dtype, sizes.collect()),
        }
    }
    /// Iterates over the devices of this process, each with its block.
    fn own_blocks(&self) -> impl Iterator<Item = (usize, &Vec<Range<usize>>)> {
        self.own.iter().map(|device| (*device, &self.blocks[*device]))
    }
    /// Returns true if the devices of this process hold all elements.
    fn is_local(&self) -> bool {
        self.own.len() == self.blocks.len()
            || self.blocks.iter().all(|block| self.own_blocks().any(|(_, own)| own == block))
    }
    /// Copies the block of each device of this process to that device.
    fn copy_to_devices(&self, client: &Client, slab: &ArrayData) -> Result<Vec<DeviceBuffer>> {
        let full = if slab.num_partials() > 1 { sum_partials(slab)? } else { slab.clone() };
        let mut cut: Vec<(usize, ArrayData)> = Vec::new();
        let mut made = Vec::new();
        for (device, index) in self.own_blocks() {
            let known = cut.iter().find(|(other, _)| self.blocks[*other] == *index);
            let block = match known {
                Some((_, block)) => block.clone(),
                None => extract_block(&full, 0, index)?,
            };
            let (dtype, shape) = self.block_type(index);
            made.push(client.put(block.bytes()?, dtype, &shape, device)?);
            cut.push((device, block));
        }
        Ok(made)
    }
    /// Returns true if `other` has the same blocks on the same devices.
    ///
    /// The number of partial values does not matter, since the module has their sum.
    fn has_blocks_of(&self, other: &BoundaryLayout) -> bool {
        self.blocks == other.blocks && self.ty.dtype == other.ty.dtype && self.ty.shape == other.ty.shape
    }
    /// Returns an error if the types of the blocks on the devices differ from this layout.
    fn check(&self, made: &[DeviceBuffer]) -> Result<()> {
        for ((device, index), block) in self.own_blocks().zip(made) {
            let (dtype, shape) = self.block_type(index);
            if (block.dtype(), block.shape()) != (dtype, &shape) {
                let (has, wanted) = (block.dtype().array_type(block.shape()), dtype.array_type(&shape));
                let message =
                    format!("the plugin returned {has} on device {device}, but the program needs {wanted}");
                return Err(Fault::new(ErrorKind::Device, message).into());
            }
        }
        Ok(())
    }
    /// Copies the blocks from the devices and assembles them into one buffer.
    ///
    /// # Errors
    /// The devices of this process do not hold all elements.
    fn copy_from_devices(&self, made: &[DeviceBuffer]) -> Result<Buffer> {
        if !self.is_local() {
            let fault = fault!(Device, "this process holds only some blocks of {}", self.ty);
            return Err(fault.help("gather it in all processes: `x.process_allgather()`").into());
        }
        let (storage, shape) = (self.ty.dtype.storage(), &self.ty.shape);
        let one = shape.num_elements() * storage.size();
        check_available(one.saturating_mul(self.num_partials))?;
        // if the value is unreduced, the first partial value is the sum, and the others are zero
        let mut buffer = match self.num_partials {
            1 => Buffer::allocate(one)?,
            num_partials => Buffer::zeroed(one * num_partials)?,
        };
        let mut written: Vec<&Vec<Range<usize>>> = Vec::new();
        for ((_, index), block) in self.own_blocks().zip(made) {
            if !written.contains(&index) {
                write_block(&block.read()?, shape, index, storage.size(), &mut buffer);
                written.push(index);
            }
        }
        Ok(buffer)
    }
    /// Wraps the blocks as an array whose data stay on the devices.
    fn into_value(
        self: &Arc<BoundaryLayout>,
        client: &Client,
        blocks: Vec<DeviceBuffer>,
    ) -> Result<ArrayData> {
        let (storage, shape) = (self.ty.dtype.storage(), self.ty.shape.clone());
        if shape.num_elements() == 0 {
            // XLA shards some empty arrays and leaves others unsharded
            return Ok(ArrayData::new(storage, shape, self.num_partials, Arc::new(Buffer::allocate(0)?)));
        }
        self.check(&blocks)?;
        let value = DeviceResident { layout: self.clone(), client: client.clone(), blocks };
        Ok(ArrayData::from_foreign(storage, shape, self.num_partials, value))
    }
}

/// A result whose blocks are on the devices.
#[derive(Debug)]
struct DeviceResident {
    layout: Arc<BoundaryLayout>,
    client: Client,
    /// The blocks, one for each device of this process.
    blocks: Vec<DeviceBuffer>,
}

/// Returns true if a value's blocks are on the devices of a plugin.
fn is_device_resident(value: &ArrayData) -> bool {
    value.foreign_as::<DeviceResident>().is_some()
}

impl ForeignValue for DeviceResident {
    fn fetch(&self) -> Result<Buffer, Fault> {
        self.layout.copy_from_devices(&self.blocks).map_err(|e| e.diagnostics()[0].fault.clone())
    }
    fn is_local(&self) -> bool {
        self.layout.is_local()
    }
    fn has_blocks_of(&self, ty: &ArrayType, at: &Placement) -> bool {
        let layout = &self.layout;
        layout.has_blocks_of(&BoundaryLayout::new(ty, Some(at), layout.blocks.len(), &layout.own))
    }
    fn block(&self, position: usize) -> Result<ArrayData, Fault> {
        let layout = &self.layout;
        let Some(k) = layout.own.iter().position(|device| *device == position) else {
            return Err(fault!(Device, "device {position} is not one of this process"));
        };
        let (storage, index) = (layout.ty.dtype.storage(), &layout.blocks[position]);
        let shape: Shape = index.iter().map(Range::len).collect();
        let mut buffer = Buffer::allocate(shape.num_elements() * storage.size())?;
        let read = self.blocks[k].read_into(buffer.fill_zeros());
        read.map_err(|e| e.diagnostics()[0].fault.clone())?;
        Ok(ArrayData::new(storage, shape, 1, Arc::new(buffer)))
    }
}

/// The devices of a client of several processes.
struct ClusterDevices {
    client: Client,
    processes: usize,
}

impl ProcessDevices for ClusterDevices {
    fn processes(&self) -> usize {
        self.processes
    }
    fn own(&self) -> &[usize] {
        self.client.own_devices()
    }
    fn place(&self, ty: &ArrayType, at: &Placement, block: &mut BlockFn<'_>) -> Result<ArrayData> {
        let client = &self.client;
        let layout = Arc::new(BoundaryLayout::new(ty, Some(at), client.devices(), client.own_devices()));
        let mut made = Vec::new();
        for (device, index) in layout.own_blocks() {
            let data = block(device, index)?;
            if ty.shape.num_elements() == 0 {
                continue;
            }
            let (dtype, shape) = layout.block_type(index);
            made.push(client.put(data.bytes()?, dtype, &shape, device)?);
        }
        layout.into_value(client, made)
    }
    fn check_equal(&self, what: &str, bytes: &[u8], location: SourceLocation) -> Result<()> {
        self.client.check_equal(what, bytes, location)
    }
    fn exchange(&self, what: &str, bytes: &[u8], location: SourceLocation) -> Result<Vec<Vec<u8>>> {
        (0..self.processes).map(|process| self.client.broadcast(what, (process, bytes), location)).collect()
    }
}

/// The blocks of an argument, on the devices.
enum ArgumentBlocks<'a> {
    /// Blocks that were copied to the devices for one call.
    Copied(Vec<DeviceBuffer>),
    /// The blocks of an earlier result, used in place.
    Resident(&'a DeviceResident),
}

impl ArgumentBlocks<'_> {
    fn buffers(&self) -> &[DeviceBuffer] {
        match self {
            ArgumentBlocks::Copied(blocks) => blocks,
            ArgumentBlocks::Resident(value) => &value.blocks,
        }
    }
}

/// Returns the sum of a value's partial values.
fn sum_partials(slab: &ArrayData) -> Result<ArrayData, Fault> {
    let n = slab.shape().num_elements();
    with_dtype!(slab.dtype(), T => {
        let all = slab.elements::<T>();
        let sum = |k: usize| {
            let partials = (0..slab.num_partials()).map(|part| all[part * n + k].to_scalar());
            T::from_scalar(match slab.dtype().is_inexact() {
                true => Scalar::from(partials.map(Scalar::to_c128).sum::<num_complex::Complex<f64>>()),
                false => Scalar::Int(partials.fold(0, |sum: i128, x| sum.wrapping_add(x.to_i128()))),
            })
        };
        let sums: Vec<T> = (0..n).map(sum).collect();
        ArrayData::from_elements(slab.shape().clone(), &sums)
    })
}

/// A program that XLA has compiled.
struct XlaExecutable {
    text: String,
    /// The collectives that the built-in engines would run, as text.
    atmesh_collectives: String,
    executable: pjrt::LoadedExecutable,
    client: Client,
    arguments: Vec<BoundaryLayout>,
    results: Vec<Arc<BoundaryLayout>>,
    /// For each argument, whether the module may overwrite it. Missing entries mean `false`.
    donated: Vec<bool>,
    /// The source location of the program's first equation.
    location: Option<SourceLocation>,
}

impl XlaExecutable {
    /// Compares the arguments on no mesh among the processes, if the user asks for it.
    fn compare_arguments(&self, args: &[ArrayData]) -> Result<()> {
        let Some(devices) = process_devices().filter(|_| compares_replicas()) else { return Ok(()) };
        let location = self.location.unwrap_or(Location::caller());
        for (layout, data) in self.arguments.iter().zip(args).filter(|(_, data)| data.foreign().is_none()) {
            let what = format!("an argument {} on no mesh", layout.ty);
            devices.check_equal(&what, &stable_hash(data.bytes()?), location)?;
        }
        Ok(())
    }
    /// Lists XLA's collectives, followed by those of the built-in engines.
    fn describe_collectives(&self) -> String {
        let mut text = String::from("collectives of XLA:");
        match self.executable.collectives() {
            None => text += " not reported by the plugin\n",
            Some([]) => text += " none\n",
            Some(all) => {
                text += "\n";
                all.iter().for_each(|c| text += &format!("  {c}\n"));
            }
        }
        text += "collectives of the built-in engines, which assert_collectives! checks:\n";
        self.atmesh_collectives.lines().for_each(|line| text += &format!("  {line}\n"));
        text
    }
}

impl Executable for XlaExecutable {
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
        let at = |error: Error, before: bool| {
            let error = self
                .location
                .map_or(error.clone(), |location| error.with_location("the engine xla", location));
            Failure { error, inputs_intact: before }
        };
        self.compare_arguments(args).map_err(|e| at(e, true))?;
        // a donated argument that has other handles keeps its value
        let alone: Vec<bool> = args.iter_mut().map(ArrayData::is_unique).collect();
        let (mut lists, mut kept, mut lost) = (Vec::new(), Vec::new(), false);
        for (k, (port, slab)) in self.arguments.iter().zip(args.iter()).enumerate() {
            let held = slab.foreign_as::<DeviceResident>();
            let held =
                held.filter(|value| value.client.is_same(&self.client) && value.layout.has_blocks_of(port));
            if held.is_some() && self.donated.get(k) == Some(&true) {
                if alone[k] { lost = true } else { kept.push(k as i64) }
            }
            lists.push(match held {
                Some(value) => ArgumentBlocks::Resident(value),
                None => {
                    ArgumentBlocks::Copied(port.copy_to_devices(&self.client, slab).map_err(|e| at(e, true))?)
                }
            });
        }
        let device = |d: usize| lists.iter().map(|list| &list.buffers()[d]).collect();
        let given: Vec<Vec<&DeviceBuffer>> = (0..self.executable.own_devices().len()).map(device).collect();
        let caller = self.location.unwrap_or(Location::caller());
        let made = self.executable.run_without_donating(&given, &kept, caller).map_err(|e| at(e, !lost))?;
        let mut blocks: Vec<Vec<DeviceBuffer>> = self.results.iter().map(|_| Vec::new()).collect();
        for list in made {
            blocks.iter_mut().zip(list).for_each(|(of, block)| of.push(block));
        }
        let result = |(port, blocks): (&Arc<BoundaryLayout>, _)| {
            port.into_value(&self.client, blocks).map_err(|e| at(e, !lost))
        };
        self.results.iter().zip(blocks).map(result).collect()
    }
    fn report(&self) -> ExecutionReport {
        let bytes = |p: &BoundaryLayout| p.ty.nbytes() * p.num_partials;
        let held =
            |p: &BoundaryLayout| p.blocks[0].iter().map(Range::len).product::<usize>() * p.ty.dtype.size();
        let results = || self.results.iter().map(|p| &**p);
        ExecutionReport {
            engine: "xla",
            workers: self.executable.devices(),
            argument_bytes: self.arguments.iter().map(bytes).sum(),
            result_bytes: results().map(bytes).sum(),
            device_bytes: self.arguments.iter().chain(results()).map(held).sum(),
            collectives: self.describe_collectives(),
            listing: self.text.clone(),
            ..ExecutionReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::array::Array;
    use crate::api::transform::jit;

    #[test]
    fn the_line_that_a_plugin_names_is_the_errors() -> Result<()> {
        let traced = jit(|x: &Array| {
            let y = x + 1.0;
            y.exp()
        })
        .trace(Array::ones([2]))?;
        let program = traced.program();
        let places: Vec<SourceLocation> = program.equations.iter().filter_map(|e| e.location).collect();
        let (first, last) = (places[0], places[places.len() - 1]);
        assert_ne!(first.line(), last.line());
        let said = |words: String| {
            let error = Error::from(Fault::new(crate::core::diagnostic::ErrorKind::Unsupported, words));
            location_in_error(&error, program).map(|location| location.line())
        };
        let (file, line) = (last.file(), last.line());
        assert_eq!(said(format!("loc({file:?}:{line}:9): no such thing")), Some(line));
        assert_eq!(said(format!("{file}:{line}: no such thing")), Some(line));
        assert_eq!(said(format!("{file}:{line}0:3: another line")), None);
        assert_eq!(said("no line".into()), None);
        Ok(())
    }
}
