//! Machines as JSON, so that a file can describe one.

use super::{DeviceLayout, MEMORY_RESERVE, Machine, link::Link};
use crate::core::{Axis, Error, Result, SourceLocation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

/// Writes a value as JSON, with a line for each field.
pub(crate) fn to_json_lines(value: &impl Serialize) -> String {
    // only maps whose keys are not texts, and failing implementations, are errors
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Returns the error for a text that is not the JSON of a machine or a plan.
pub(crate) fn json_error(op: &str, noun: &str, why: &dyn fmt::Display, at: SourceLocation) -> Error {
    let type_name = op.split("::").next().unwrap_or_default();
    let fault = fault!(Data, "the text is not the JSON of a {noun}: {why}")
        .help(format!("see `{type_name}::to_json` for the form: it writes the fields that are read"));
    Error::new(fault, op, Vec::new(), Some(at))
}

/// The fields of a machine in JSON. All but the name are optional.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFields {
    name: String,
    #[serde(default)]
    flops: BTreeMap<String, f64>,
    elementwise: Option<f64>,
    memory: Option<f64>,
    bandwidth: Option<f64>,
    memory_reserve: Option<f64>,
    launch_overhead: Option<f64>,
    #[serde(default)]
    axes: BTreeMap<String, Link>,
    links: Option<Link>,
    wiring: Option<DeviceLayout>,
    overlaps: Option<bool>,
    prefetches: Option<bool>,
}

impl Machine {
    /// Returns the machine as JSON, which [`from_json`](Machine::from_json) reads.
    pub fn to_json(&self) -> String {
        let finite = |rate: f64| rate.is_finite().then_some(rate);
        to_json_lines(&MachineFields {
            name: self.name.clone(),
            flops: self.matmul_flops.iter().map(|(d, rate)| (d.name().into(), *rate)).collect(),
            elementwise: finite(self.elementwise),
            memory: self.memory,
            bandwidth: finite(self.bandwidth),
            memory_reserve: Some(self.memory_reserve),
            launch_overhead: Some(self.launch_overhead),
            axes: self.links.iter().map(|(a, link)| (a.name().into(), *link)).collect(),
            links: self.default_link,
            wiring: self.layout.clone(),
            overlaps: Some(self.overlaps),
            prefetches: Some(self.prefetches),
        })
    }

    /// Reads a machine from JSON, in the form that [`to_json`](Machine::to_json) writes.
    ///
    /// Only the name must be there. The other fields have the names and defaults of the methods:
    /// `flops` (by element type), `elementwise`, `memory` and `bandwidth`, `memory_reserve`,
    /// `launch_overhead`, `axes` (a link for each axis, as [`link`](Machine::link) sets), `links`,
    /// `wiring` ([`nodes`](Machine::nodes) or [`torus`](Machine::torus)), `overlaps` and
    /// `prefetches`. A rate that is missing or `null` is unlimited. A link has a `bandwidth`, a
    /// `latency` (0 if missing), and `"ring": true` if devices reach only their neighbours.
    ///
    /// # Errors
    /// The text is not JSON, a field is unknown or has another type, or a rate, size or latency is
    /// invalid.
    ///
    /// ```
    /// use atmesh::plan::{Link, Machine};
    /// use atmesh::prelude::*;
    /// let machine = Machine::from_json(r#"{
    ///     "name": "ours",
    ///     "flops": {"bfloat16": 989e12, "float32": 494e12},
    ///     "memory": 80e9,
    ///     "bandwidth": 3.35e12,
    ///     "wiring": {"nodes": {
    ///         "size": 8,
    ///         "inside": {"bandwidth": 450e9},
    ///         "outside": {"bandwidth": 50e9, "latency": 5e-6}
    ///     }}
    /// }"#)?;
    /// let same = Machine::new("ours").flops(F32, 494e12).flops(BF16, 989e12);
    /// let same = same.memory(80e9, 3.35e12);
    /// let same = same.nodes(8, Link::NVLINK_4, Link::switch(50e9).latency(5e-6));
    /// assert_eq!(machine, same);
    /// assert_eq!(Machine::from_json(&machine.to_json())?, machine);
    ///
    /// let error = Machine::from_json(r#"{"name": "ours", "speed": 1e12}"#).unwrap_err();
    /// assert!(error.to_string().contains("unknown field `speed`"), "{error}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn from_json(text: &str) -> Result<Machine> {
        let location = Location::caller();
        let fields: MachineFields = serde_json::from_str(text)
            .map_err(|why| json_error("Machine::from_json", "machine", &why, location))?;
        let mut machine = Machine {
            elementwise: fields.elementwise.unwrap_or(f64::INFINITY),
            memory: fields.memory,
            bandwidth: fields.bandwidth.unwrap_or(f64::INFINITY),
            memory_reserve: fields.memory_reserve.unwrap_or(MEMORY_RESERVE),
            launch_overhead: fields.launch_overhead.unwrap_or(0.0),
            default_link: fields.links,
            layout: fields.wiring,
            overlaps: fields.overlaps.unwrap_or(true),
            prefetches: fields.prefetches.unwrap_or(true),
            ..Machine::new(fields.name)
        };
        for (dtype, rate) in fields.flops {
            machine = machine.flops(dtype.parse()?, rate);
        }
        for (axis, link) in fields.axes {
            if !axis.chars().all(Axis::is_valid_char) {
                let why = format!("\"{axis}\" is not the name of a mesh axis");
                return Err(json_error("Machine::from_json", "machine", &why, location));
            }
            machine = machine.link(&*axis, link);
        }
        machine.check()?;
        Ok(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;

    /// Tests that machines with random figures are read as they were written.
    #[test]
    fn machines_are_read_as_they_were_written() {
        let mut random = fastrand::Rng::with_seed(20);
        for _ in 0..300 {
            let mut figure = |least: f64| least + random.f64() * 10f64.powi(random.i32(0..16));
            let rates = [figure(1.0), figure(1.0), figure(1.0), figure(1.0), figure(1.0)];
            let link = Link::ring(figure(1.0)).latency(figure(0.0) / 1e15);
            let mut machine = Machine::new(format!("m\"{}", rates[0])).memory(rates[1], rates[2]);
            let dtypes: Vec<DType> = DType::all().filter(|_| random.bool()).collect();
            for dtype in dtypes {
                machine = machine.flops(dtype, rates[3] + f64::from(random.u8(..)));
            }
            for axis in ["Y", "größe", "X"].into_iter().filter(|_| random.bool()) {
                machine = machine.link(axis, link);
            }
            machine = match random.u8(..3) {
                0 => machine.nodes(random.usize(1..9), link, Link::switch(rates[4])).adapters(2),
                1 => machine.torus([random.usize(1..9), 4]).links(link),
                _ => machine.elementwise(rates[4]).prefetches(false).memory_reserve(random.f64()),
            };
            assert_eq!(Machine::from_json(&machine.to_json()).unwrap(), machine);
        }
    }

    #[test]
    fn invalid_texts_are_rejected() {
        let link = r#"{"bandwidth": 1e9}"#;
        for (text, why) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("[1]", "expected a string"),
            ("{}", "missing field `name`"),
            (r#"{"name": "m", "memory": "80 GB"}"#, "invalid type: string \"80 GB\""),
            (r#"{"name": "m", "flops": {"float": 1e12}}"#, "`float` is not an element type"),
            (r#"{"name": "m", "bandwidth": 0}"#, "the memory bandwidth of machine \"m\" is 0"),
            (
                r#"{"name": "m", "axes": {"a b": {"bandwidth": 1e9}}}"#,
                "\"a b\" is not the name of a mesh axis",
            ),
            (r#"{"name": "m", "links": {"bandwidth": 1e9, "speed": 1}}"#, "unknown field `speed`"),
            (r#"{"name": "m", "wiring": {"grid": [4]}}"#, "unknown variant `grid`"),
            (r#"{"name": "m", "wiring": {"torus": [-4]}}"#, "invalid value: integer `-4`"),
            (
                &format!(
                    r#"{{"name": "m", "wiring": {{"nodes": {{"size": 0, "inside": {link}, "outside": {link}}}}}}}"#
                ),
                "number of devices of a node",
            ),
        ] {
            let error = Machine::from_json(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
