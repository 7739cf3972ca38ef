//! The XLA engine: the placed program as a StableHLO module, compiled and run by a PJRT plugin (feature `xla`).
//!
//! Each device is given its blocks of the arguments, and has its blocks of the results, which stay there: they are copied to the host when
//! they are read. A call takes them as they are where it wants the same blocks; others are copied in. XLA decides what is communicated and in
//! which order sums are taken, so that results differ from our own engines' in the last places.

use super::{Engine, Executable, Failure, Job, RunReport};
use crate::diagnostic::{Error, Fault, Place, Result};
use crate::export::{self, Given, Options};
use crate::pjrt::{self, Client, DeviceBuffer};
use crate::program::{Input, Placement, Program};
use crate::runtime::host::{block, put_block};
use crate::runtime::{Buffer, Elsewhere, Slab, fits};
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
        let at = |e: Error| match named(&e, program).or(place) {
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
            results: program.outputs.iter().map(|out| Arc::new(of_output(out))).collect(),
            donated: job.donated.to_vec(),
            ours: job.collectives.to_string(),
            text: module.text,
            executable,
            client,
            place,
        }))
    }
}

/// The line of the program that an error of the plugin names: as `"src/main.rs":12`, or `src/main.rs:12`.
fn named(error: &Error, program: &Program) -> Option<Place> {
    let words = &error.diagnostics().first()?.fault.message;
    let names = |place: &Place| {
        let (file, line) = (place.file(), place.line());
        [format!("{file:?}:{line}"), format!("{file}:{line}")].iter().any(|name| {
            // line 1 is not named by line 12
            let mut ends = words.match_indices(name.as_str()).map(|(at, _)| &words[at + name.len()..]);
            ends.any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    program.equations.iter().filter_map(|e| e.place).find(names)
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
#[derive(Debug)]
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
    /// Whether its blocks are those of another, on the same devices; the sum of parts is one value however many they are.
    fn is(&self, other: &Port) -> bool {
        self.blocks == other.blocks && self.ty.dtype == other.ty.dtype && self.ty.shape == other.ty.shape
    }
    /// Whether the blocks that the devices have are its own.
    fn check(&self, made: &[DeviceBuffer]) -> Result<()> {
        for (device, (index, block)) in self.blocks.iter().zip(made).enumerate() {
            let (dtype, shape) = self.outside(index);
            if (block.dtype(), block.shape()) != (dtype, &shape) {
                let (has, wanted) = (block.dtype().of(block.shape()), dtype.of(&shape));
                return Err(Error::internal(format!("XLA has {has} on device {device}, wanted is {wanted}")));
            }
        }
        Ok(())
    }
    /// The value whose blocks are on the devices.
    fn get(&self, made: &[DeviceBuffer]) -> Result<Buffer> {
        let (storage, shape) = (self.ty.dtype.storage(), &self.ty.shape);
        let one = shape.elements() * storage.size();
        fits(one.saturating_mul(self.parts))?;
        // an unreduced value: the first part is the sum, and the others are zeros
        let mut buffer = match self.parts {
            1 => Buffer::asked(one)?,
            parts => Buffer::zeroed(one * parts)?,
        };
        for (device, (index, block)) in self.blocks.iter().zip(made).enumerate() {
            if !self.blocks[..device].contains(index) {
                put_block(&block.read()?, shape, index, storage.size(), &mut buffer);
            }
        }
        Ok(buffer)
    }
    /// The blocks that the devices have as a value, which stays there.
    fn held(self: &Arc<Port>, client: &Client, blocks: Vec<DeviceBuffer>) -> Result<Slab> {
        let (storage, shape) = (self.ty.dtype.storage(), self.ty.shape.clone());
        if shape.elements() == 0 {
            // of empty arrays XLA cuts some and others not
            return Ok(Slab::new(storage, shape, self.parts, Arc::new(Buffer::asked(0)?)));
        }
        self.check(&blocks)?;
        let value = OnDevices { port: self.clone(), client: client.clone(), blocks };
        Ok(Slab::elsewhere(storage, shape, self.parts, value))
    }
}

/// A result on its devices.
#[derive(Debug)]
struct OnDevices {
    port: Arc<Port>,
    client: Client,
    /// One of each device.
    blocks: Vec<DeviceBuffer>,
}

/// Whether a value is on the devices of a plugin.
pub(crate) fn holds(value: &Slab) -> bool {
    value.held_by::<OnDevices>().is_some()
}

impl Elsewhere for OnDevices {
    fn fetch(&self) -> Result<Buffer, Fault> {
        self.port.get(&self.blocks).map_err(|e| e.diagnostics()[0].fault.clone())
    }
}

/// The blocks of an argument.
enum Blocks<'a> {
    /// Copied there for one call.
    Put(Vec<DeviceBuffer>),
    /// Those of a result of an earlier one.
    Held(&'a OnDevices),
}

impl Blocks<'_> {
    fn all(&self) -> &[DeviceBuffer] {
        match self {
            Blocks::Put(blocks) => blocks,
            Blocks::Held(value) => &value.blocks,
        }
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
    /// What our own engines would communicate.
    ours: String,
    executable: pjrt::Executable,
    client: Client,
    arguments: Vec<Port>,
    results: Vec<Arc<Port>>,
    /// Arguments whose memory the module may write over; missing ones it may not.
    donated: Vec<bool>,
    /// The program's first line.
    place: Option<Place>,
}

impl Module {
    /// XLA's collectives beside ours.
    fn communicated(&self) -> String {
        let mut text = String::from("collectives of XLA:");
        match self.executable.collectives() {
            None => text += " the plugin does not tell\n",
            Some([]) => text += " none\n",
            Some(all) => {
                text += "\n";
                all.iter().for_each(|c| text += &format!("  {c}\n"));
            }
        }
        text += "collectives of our own engines, of which assert_collectives! speaks:\n";
        self.ours.lines().for_each(|line| text += &format!("  {line}\n"));
        text
    }
}

impl Executable for Module {
    fn call(&self, args: &mut [Slab]) -> Result<Vec<Slab>, Failure> {
        let at = |error: Error, before: bool| {
            let error = self.place.map_or(error.clone(), |place| error.located("the engine xla", place));
            Failure { error, before }
        };
        // a donated argument that somebody still holds stays as it is
        let alone: Vec<bool> = args.iter_mut().map(Slab::alone).collect();
        let (mut lists, mut kept, mut lost) = (Vec::new(), Vec::new(), false);
        for (k, (port, slab)) in self.arguments.iter().zip(args.iter()).enumerate() {
            let held = slab.held_by::<OnDevices>();
            let held = held.filter(|value| value.client.same(&self.client) && value.port.is(port));
            if held.is_some() && self.donated.get(k) == Some(&true) {
                if alone[k] { lost = true } else { kept.push(k as i64) }
            }
            lists.push(match held {
                Some(value) => Blocks::Held(value),
                None => Blocks::Put(port.put(&self.client, slab).map_err(|e| at(e, true))?),
            });
        }
        let device = |d: usize| lists.iter().map(|list| &list.all()[d]).collect();
        let given: Vec<Vec<&DeviceBuffer>> = (0..self.executable.devices()).map(device).collect();
        let made = self.executable.run_keeping(&given, &kept).map_err(|e| at(e, !lost))?;
        let mut blocks: Vec<Vec<DeviceBuffer>> = self.results.iter().map(|_| Vec::new()).collect();
        for list in made {
            blocks.iter_mut().zip(list).for_each(|(of, block)| of.push(block));
        }
        let result =
            |(port, blocks): (&Arc<Port>, _)| port.held(&self.client, blocks).map_err(|e| at(e, !lost));
        self.results.iter().zip(blocks).map(result).collect()
    }
    fn report(&self) -> RunReport {
        let bytes = |p: &Port| p.ty.nbytes() * p.parts;
        let held = |p: &Port| p.blocks[0].iter().map(Range::len).product::<usize>() * p.ty.dtype.size();
        let results = || self.results.iter().map(|p| &**p);
        RunReport {
            engine: "xla",
            workers: self.executable.devices(),
            arguments: self.arguments.iter().map(bytes).sum(),
            results: results().map(bytes).sum(),
            device_bytes: self.arguments.iter().chain(results()).map(held).sum(),
            collectives: self.communicated(),
            text: self.text.clone(),
            ..RunReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::transform::jit;

    #[test]
    fn the_line_that_a_plugin_names_is_the_errors() -> Result<()> {
        let traced = jit(|x: &Array| {
            let y = x + 1.0;
            y.exp()
        })
        .trace(Array::ones([2]))?;
        let program = traced.program();
        let places: Vec<Place> = program.equations.iter().filter_map(|e| e.place).collect();
        let (first, last) = (places[0], places[places.len() - 1]);
        assert_ne!(first.line(), last.line());
        let said = |words: String| {
            let error = Error::from(Fault::new(crate::diagnostic::ErrorKind::Unsupported, words));
            named(&error, program).map(|place| place.line())
        };
        let (file, line) = (last.file(), last.line());
        assert_eq!(said(format!("loc({file:?}:{line}:9): no such thing")), Some(line));
        assert_eq!(said(format!("{file}:{line}: no such thing")), Some(line));
        assert_eq!(said(format!("{file}:{line}0:3: another line")), None);
        assert_eq!(said("no line".into()), None);
        Ok(())
    }
}
