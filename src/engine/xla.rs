//! The XLA engine: the placed program as a StableHLO module, compiled and run by a PJRT plugin (feature `xla`).
//!
//! Each device is given its blocks of the arguments, and gives its blocks of the results: a call copies them in and out. XLA decides
//! what is communicated and in which order sums are taken, so that results differ from our own engines' in the last places.

use super::{Engine, Executable, Failure, Job, RunReport};
use crate::diagnostic::{Error, Fault, Place, Result};
use crate::export::{self, Given, Options};
use crate::pjrt::{self, Client, DeviceBuffer};
use crate::program::{Input, Placement, Program};
use crate::runtime::host::{block, put_block};
use crate::runtime::{Buffer, Slab, fits};
use crate::sharding::atoms::{Atom, ways};
use crate::types::{ArrayType, DType, Number, Scalar, Shape, with_dtype};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs programs by the plugin that `ATMESH_PJRT_PLUGIN` names.
pub(crate) struct Xla;

impl Engine for Xla {
    fn compile(&self, job: Job<'_>) -> Result<Arc<dyn Executable>> {
        let program = job.placed;
        let place = program.equations.first().and_then(|e| e.place);
        let at = |e: Error| match place {
            Some(place) => e.located("the engine xla", place),
            None => e,
        };
        let devices = program.mesh.as_ref().map_or(1, |m| m.size());
        let given: Vec<Given> = (0..program.inputs.len())
            .map(|k| Given::Argument { donated: job.donated.get(k) == Some(&true) })
            .collect();
        let module = export::write(program, &given, Options::default().locations(true)).map_err(at)?;
        let inner = client(devices)
            .and_then(|client| Ok((client.compile(&module.text, devices)?, client)))
            .map_err(at);
        let (executable, client) = inner?;
        let of_input = |v: &crate::program::Var| {
            let info = &program.vars[v.index()];
            Port::new(&info.ty, info.placement.as_ref(), devices)
        };
        let of_output = |out: &Input| Port::new(&program.input_type(out), placement(program, out), devices);
        Ok(Arc::new(Module {
            arguments: program.inputs.iter().map(of_input).collect(),
            results: program.outputs.iter().map(of_output).collect(),
            text: module.text,
            executable,
            client,
            place,
        }))
    }
}

fn placement<'a>(program: &'a Program, out: &Input) -> Option<&'a Placement> {
    match out {
        Input::Var(v) => program.vars[v.index()].placement.as_ref(),
        Input::Lit(_) => None,
    }
}

/// A client of at least so many devices; those that there are serve all programs.
fn client(devices: usize) -> Result<Client> {
    static CLIENTS: Mutex<Vec<Client>> = Mutex::new(Vec::new());
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = clients.iter().find(|c| c.devices() >= devices) {
        return Ok(client.clone());
    }
    let client = Client::from_env(devices)?;
    clients.push(client.clone());
    Ok(client)
}

/// An argument or a result: its type, and what each device holds of it.
struct Port {
    ty: ArrayType,
    blocks: Vec<Vec<Range<usize>>>,
    /// In how many parts it is; the module has their sum.
    parts: usize,
}

impl Port {
    fn new(ty: &ArrayType, at: Option<&Placement>, devices: usize) -> Port {
        let dim = |d: usize, n: usize, position: usize| {
            let digits: &[Atom] = at.and_then(|at| at.dims.get(d)).map_or(&[], |digits| digits.as_slice());
            let rank = digits.iter().fold(0, |r, a| r * a.size + a.digit(position));
            // what the module was written for is even
            let size = n / ways(digits);
            rank * size..(rank + 1) * size
        };
        let block = |position| ty.shape.iter().enumerate().map(|(d, n)| dim(d, *n, position)).collect();
        Port {
            blocks: (0..devices).map(block).collect(),
            parts: at.map_or(1, |at| ways(&at.partial)),
            ty: ty.clone(),
        }
    }
    /// The element type and the sizes of a block as the module has it: a key is its two words, in memory too.
    fn outside(&self, block: &[Range<usize>]) -> (DType, Shape) {
        let sizes = block.iter().map(Range::len);
        match self.ty.dtype {
            DType::Key => (DType::U32, sizes.chain([2]).collect()),
            dtype => (dtype, sizes.collect()),
        }
    }
    /// Each device's block of an argument, on the device.
    fn put(&self, client: &Client, slab: &Slab) -> Result<Vec<DeviceBuffer>> {
        let whole = if slab.copies() > 1 { summed(slab)? } else { slab.clone() };
        let mut cut: Vec<(usize, Slab)> = Vec::new();
        let mut made = Vec::new();
        for (device, index) in self.blocks.iter().enumerate() {
            let known = cut.iter().find(|(other, _)| self.blocks[*other] == *index);
            let block = match known {
                Some((_, block)) => block.clone(),
                None => block(&whole, 0, index)?,
            };
            let (dtype, shape) = self.outside(index);
            made.push(client.put(block.bytes()?, dtype, &shape, device)?);
            cut.push((device, block));
        }
        Ok(made)
    }
    /// The value whose blocks are on the devices.
    fn get(&self, made: &[&DeviceBuffer]) -> Result<Slab> {
        let (storage, shape) = (self.ty.dtype.storage(), &self.ty.shape);
        let one = shape.elements() * storage.size();
        fits(one.saturating_mul(self.parts))?;
        // an unreduced value: the first part is the sum, and the others are zeros
        let mut buffer = match self.parts {
            1 => Buffer::asked(one)?,
            parts => Buffer::zeroed(one * parts)?,
        };
        // (of empty arrays XLA cuts some and others not)
        let blocks = if one == 0 { 0 } else { made.len() };
        for (device, (index, block)) in self.blocks.iter().zip(&made[..blocks]).enumerate() {
            if self.blocks[..device].contains(index) {
                continue;
            }
            if (block.dtype(), block.shape()) != (self.outside(index).0, &self.outside(index).1) {
                let (has, wanted) = (block.dtype().of(block.shape()), self.outside(index));
                let wanted = wanted.0.of(&wanted.1);
                return Err(Error::internal(format!("XLA has {has} on device {device}, wanted is {wanted}")));
            }
            put_block(&block.read()?, shape, index, storage.size(), &mut buffer);
        }
        Ok(Slab::new(storage, shape.clone(), self.parts, Arc::new(buffer)))
    }
}

/// The sum of a value's parts.
fn summed(slab: &Slab) -> Result<Slab, Fault> {
    let n = slab.shape().elements();
    with_dtype!(slab.dtype(), T => {
        let all = slab.elements::<T>();
        let sum = |k: usize| {
            let parts = (0..slab.copies()).map(|part| all[part * n + k].scalar());
            T::of_scalar(match slab.dtype().is_inexact() {
                true => Scalar::from(parts.map(Scalar::to_c128).sum::<num_complex::Complex<f64>>()),
                false => Scalar::Int(parts.fold(0, |sum: i128, x| sum.wrapping_add(x.to_i128()))),
            })
        };
        let sums: Vec<T> = (0..n).map(sum).collect();
        Slab::from_elements(slab.shape().clone(), &sums)
    })
}

/// A program that XLA has compiled.
struct Module {
    text: String,
    executable: pjrt::Executable,
    client: Client,
    arguments: Vec<Port>,
    results: Vec<Port>,
    /// The program's first line.
    place: Option<Place>,
}

impl Executable for Module {
    fn call(&self, args: &mut [Slab]) -> Result<Vec<Slab>, Failure> {
        let at = |error: Error, before: bool| {
            let error = self.place.map_or(error.clone(), |place| error.located("the engine xla", place));
            Failure { error, before }
        };
        let mut lists: Vec<Vec<DeviceBuffer>> = Vec::new();
        for (port, slab) in self.arguments.iter().zip(args.iter()) {
            lists.push(port.put(&self.client, slab).map_err(|e| at(e, true))?);
        }
        let device = |d: usize| lists.iter().map(|list| &list[d]).collect();
        let given: Vec<Vec<&DeviceBuffer>> = (0..self.executable.devices()).map(device).collect();
        let made = self.executable.run(&given).map_err(|e| at(e, true))?;
        let result = |(k, port): (usize, &Port)| {
            let blocks: Vec<&DeviceBuffer> = made.iter().map(|list| &list[k]).collect();
            port.get(&blocks).map_err(|e| at(e, true))
        };
        self.results.iter().enumerate().map(result).collect()
    }
    fn report(&self) -> RunReport {
        let bytes = |ports: &[Port]| ports.iter().map(|p| p.ty.nbytes() * p.parts).sum();
        let held = |ports: &[Port]| -> usize {
            let block = |p: &Port| p.blocks[0].iter().map(Range::len).product::<usize>() * p.ty.dtype.size();
            ports.iter().map(block).sum()
        };
        RunReport {
            engine: "xla",
            workers: self.executable.devices(),
            arguments: bytes(&self.arguments),
            results: bytes(&self.results),
            device_bytes: held(&self.arguments) + held(&self.results),
            text: self.text.clone(),
            ..RunReport::default()
        }
    }
}
