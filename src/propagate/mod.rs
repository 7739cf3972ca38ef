//! Auto mode: the placement of values that the user left open.
//!
//! Every equation reads its [`Factors`](crate::program::Factors) in both directions: what one operand or result has for a loop, the
//! others may take. Equations speak by priority (cheap elementwise ones first, broadcasts last), then by how near they are to the
//! inputs, until nothing changes; those that are equally near speak of one state, so that neither the order of lines nor that of a sum's operands
//! decides anything. Dimensions are only ever split further; so no program fails, and the work depends on the program and not on
//! the number of devices. Explicit axes enter as facts: auto axes are appended to them. Nested programs are part of one system:
//! a loop's carry inside, its first value and its result speak about the same thing.

#[cfg(test)]
mod golden;
mod graph;
mod instance;
mod output;
mod pieces;
mod rule;
mod solve;
#[cfg(test)]
mod tests;

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Mesh;
use crate::program::{Op, Placement, Program};
use graph::Graph;

/// The program with every variable placed: explicit axes as typed, auto axes by propagation to a fixed point.
///
/// Inputs are placed already (one that is not is placed as its users suggest). `outputs` asks for placements of results (`None`: as
/// propagated); where a result cannot be placed so itself, a copy that is placed so is returned.
pub fn propagate(program: &Program, outputs: &[Option<Placement>]) -> Result<Program> {
    let mut meshes = Vec::new();
    same_devices(program, &mut meshes)?;
    let mut graph = Graph::new(graph::decides(program));
    let instance = graph.program(program, None, &[]);
    for (k, wanted) in outputs.iter().enumerate() {
        if let Some(wanted) = wanted {
            graph.wanted(program, &instance, k, wanted);
        }
    }
    graph.settle_asked();
    graph.system.solve();
    let mut placed = instance.place(program, &graph.system.values);
    output::settle(&mut placed, outputs);
    Ok(placed)
}

/// Checks that all meshes of a program are over the same devices in the same order: digits of the position mean the same in each.
fn same_devices(program: &Program, meshes: &mut Vec<Mesh>) -> Result<()> {
    for mesh in program.mesh.iter().chain(program.vars.iter().filter_map(|v| v.ty.mesh.as_ref())) {
        if meshes.contains(mesh) {
            continue;
        }
        let differs = |m: &&Mesh| {
            let concrete = !m.is_abstract() && !mesh.is_abstract();
            m.size() != mesh.size() || concrete && m.devices() != mesh.devices()
        };
        if let Some(other) = meshes.iter().find(differs) {
            let (what, size) = if other.size() == mesh.size() {
                ("the same devices in another order", mesh.size())
            } else {
                ("other devices", mesh.size())
            };
            let fault = Fault::new(
                ErrorKind::Mesh,
                format!("one program is on {other} and on {mesh}, which has {what}"),
            );
            return Err(Error::from(fault.help(format!(
                "meshes of one program may differ in their axes, but must list the same {size} devices in the same order"
            ))));
        }
        meshes.push(mesh.clone());
    }
    for equation in &program.equations {
        if let Op::Control(control) = &equation.op {
            control.bodies().into_iter().try_for_each(|b| same_devices(b, meshes))?;
        }
    }
    Ok(())
}
