//! Sharding propagation: places the values that the user left open, in auto mode.
//!
//! Each equation applies its factors (`Factors`) in both directions: the sharding of a loop in one
//! operand or result may be adopted by the others. Equations are applied in five priority levels:
//! elementwise operations and views come first, and broadcasts from operand to result come last
//! (see `rule`). Within a level, equations are applied in the order of their distance from the
//! inputs, repeatedly, until nothing changes. Equations at the same distance see the same state, so
//! that the result depends neither on the order of equations nor on that of commutative operands.
//!
//! Dimensions are only ever split further. Propagation therefore always succeeds, and its cost
//! depends on the program and not on the number of devices. Explicit axes are fixed; auto axes are
//! appended to them. Nested programs belong to the same system: the carry of a loop, its initial
//! value and its result are placed alike.

mod graph;
mod instance;
mod output_copies;
mod rule;
mod solve;
mod sub_axes;
#[cfg(test)]
mod tests;

use crate::core::{Error, Mesh, Result};
use crate::ir::program::{Op, Placement, Program};
use graph::SystemBuilder;

/// Returns the program with every variable placed.
///
/// Explicit axes are placed as typed, auto axes by propagation to a fixed point. Inputs keep their
/// placement; an input without placement is placed as its consumers suggest.
/// `outputs` requests placements of results; `None` leaves a result as propagated. If a result
/// cannot have the requested placement itself, a copy that has it is returned.
///
/// Returns an error if meshes of the program have different devices or device orders.
pub fn propagate(program: &Program, outputs: &[Option<Placement>]) -> Result<Program> {
    let mut meshes = Vec::new();
    same_devices(program, &mut meshes)?;
    let mut graph = SystemBuilder::new(graph::has_auto_axes(program));
    let instance = graph.program(program, None, &[]);
    for (k, requested) in outputs.iter().enumerate() {
        if let Some(requested) = requested {
            graph.request_output(program, &instance, k, requested);
        }
    }
    graph.apply_requests();
    graph.system.solve();
    let mut placed = instance.place_program(program, &graph.system.values);
    output_copies::add_copies(&mut placed, outputs);
    Ok(placed)
}

/// Checks that all meshes of a program have the same devices in the same order.
///
/// Sub-axes of a device position then mean the same in each mesh.
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
            let fault = fault!(Mesh, "one program is on {other} and on {mesh}, which has {what}");
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
