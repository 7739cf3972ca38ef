//! The XLA engine: compiles the placed program as a StableHLO module and runs it on a PJRT plugin.
//!
//! Each device receives its blocks of the arguments and produces its blocks of the results. Results
//! stay on the devices and are copied to the host when they are read. A later call uses them in
//! place if it needs the same blocks; all other arguments are copied to the devices. XLA chooses
//! the collectives and the order in which sums are evaluated, so results may differ from those of
//! the built-in engines in the last digits. (Feature `xla`.)

mod device_values;

pub(crate) use device_values::{check_no_client, use_cluster_client};

use crate::core::{Diagnostic, Error, ErrorKind, Result, SourceLocation};
use crate::exec::engine::{self, CompileRequest, Engine, Executable, ExecutionReport, Failure, XlaEngine};
use crate::exec::runtime::{ArrayData, ProcessDevices, compares_replicas, process_devices, stable_hash};
use crate::ir::program::{Input, Placement, Program};
use crate::xla::pjrt::{self, Client, DeviceBuffer};
use crate::xla::stablehlo::{self, ModuleInput, Options};
use device_values::{BoundaryLayout, DeviceResident, client, is_device_resident};
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

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
    /// Returns the blocks of an argument if they are on the devices, as the module takes them.
    fn resident<'a>(&self, port: &BoundaryLayout, slab: &'a ArrayData) -> Option<&'a DeviceResident> {
        let held = slab.foreign_as::<DeviceResident>()?;
        (held.client.is_same(&self.client) && held.layout.has_blocks_of(port)).then_some(held)
    }
    /// Returns the indices of the donated arguments on the devices that keep their values, since
    /// they have other handles, and whether any other argument loses its value.
    fn kept_arguments(&self, args: &mut [ArrayData]) -> (Vec<i64>, bool) {
        let (mut kept, mut lost) = (Vec::new(), false);
        for (k, (port, slab)) in self.arguments.iter().zip(args).enumerate() {
            if self.donated.get(k) == Some(&true) && self.resident(port, slab).is_some() {
                if slab.is_unique() { lost = true } else { kept.push(k as i64) }
            }
        }
        (kept, lost)
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
        let (kept, lost) = self.kept_arguments(args);
        let mut copied: Vec<(usize, Vec<DeviceBuffer>)> = Vec::new();
        for (k, (port, slab)) in self.arguments.iter().zip(args.iter()).enumerate() {
            if self.resident(port, slab).is_none() {
                let blocks = port.copy_to_devices(&self.client, slab).map_err(|e| at(e, true))?;
                copied.push((k, blocks));
            }
        }
        let block = |d: usize, k: usize| match copied.binary_search_by_key(&k, |(k, _)| *k) {
            Ok(i) => &copied[i].1[d],
            // `copied` has every other argument
            Err(_) => &args[k].foreign_as::<DeviceResident>().expect("blocks on the devices").blocks[d],
        };
        let caller = self.location.unwrap_or(Location::caller());
        let devices = self.executable.own_devices().len();
        let (mut made, mut blocks) = (Vec::with_capacity(self.results.len()), Vec::new());
        let run = self.executable.run_with(args.len(), &block, &kept, caller, &mut |_, block| {
            blocks.reserve_exact(if blocks.is_empty() { devices } else { 0 });
            blocks.push(block);
            if blocks.len() == devices {
                made.push(self.results[made.len()].into_value(&self.client, std::mem::take(&mut blocks))?);
            }
            Ok(())
        });
        run.map_err(|e| at(e, !lost))?;
        Ok(made)
    }
    fn report(&self) -> ExecutionReport {
        let block = |p: &BoundaryLayout, device: usize| {
            p.blocks[device].iter().map(Range::len).product::<usize>() * p.ty.dtype.size()
        };
        let processes = process_devices().map_or(0, ProcessDevices::processes);
        let bytes = |p: &BoundaryLayout| match processes {
            0 => p.ty.nbytes() * p.num_partials,
            _ => p.own.iter().map(|device| block(p, *device)).sum(),
        };
        let held = |p: &BoundaryLayout| p.own.first().map_or(0, |device| block(p, *device));
        let results = || self.results.iter().map(|p| &**p);
        ExecutionReport {
            engine: "xla",
            workers: self.executable.devices(),
            processes,
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
    use crate::core::Fault;

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
            let error = Error::from(Fault::new(ErrorKind::Unsupported, words));
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
