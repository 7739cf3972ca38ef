//! Descriptions of machines for plans: the rates of one device, and the links between devices.

use crate::core::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::core::dtype::DType;
use crate::core::mesh::{Axes, Axis, Mesh};

/// A machine as plans model it: the rates and memory of one device, and the links between devices.
///
/// Rates are operations or bytes **per second and device**. A preset contains the numbers of a
/// vendor's data sheet, without links: add these yourself, since they depend on how the devices are
/// wired and which mesh axis uses which wires.
///
/// ```
/// use atmesh::plan::{Link, Machine};
/// use atmesh::prelude::*;
/// let gpu = Machine::h100().link("model", Link::NVLINK_4).links(Link::switch(50e9).latency(5e-6));
/// let own = Machine::new("ours").flops(F32, 2e12).elementwise(5e11).memory(64e9, 2e11);
/// assert_eq!((gpu.name(), own.name()), ("H100 SXM", "ours"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    name: String,
    /// The matmul operations per second, by element type.
    matmul_flops: Vec<(DType, f64)>,
    pub(super) elementwise: f64,
    pub(super) memory: Option<f64>,
    pub(super) bandwidth: f64,
    /// The launch overhead of each kernel, in seconds.
    pub(super) launch_overhead: f64,
    links: Vec<(Axis, Link)>,
    default_link: Option<Link>,
    pub(super) overlaps: bool,
}

/// The wiring of the devices along a mesh axis, with its bandwidth and latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub(super) ring: bool,
    pub(super) bandwidth: f64,
    pub(super) latency: f64,
}

impl Link {
    /// Fourth-generation NVLink: 450 GB/s into each device through a switch.
    ///
    /// Source: NVIDIA H100 data sheet (900 GB/s in both directions together).
    pub const NVLINK_4: Link = Link { ring: false, bandwidth: 450e9, latency: 0.0 };
    /// Third-generation NVLink: 300 GB/s into each device through a switch.
    ///
    /// Source: NVIDIA A100 data sheet (600 GB/s in both directions together).
    pub const NVLINK_3: Link = Link { ring: false, bandwidth: 300e9, latency: 0.0 };

    /// Returns a link on which each device reaches every other device directly.
    ///
    /// `bandwidth` is in bytes per second into each device.
    pub fn switch(bandwidth: f64) -> Link {
        Link { ring: false, bandwidth, latency: 0.0 }
    }
    /// Returns a link on which each device reaches only its two neighbours directly.
    ///
    /// Each dimension of a torus is such a link.
    ///
    /// `bandwidth` is in bytes per second into each device, from both neighbours together.
    pub fn ring(bandwidth: f64) -> Link {
        Link { ring: true, bandwidth, latency: 0.0 }
    }
    /// Sets the latency: the seconds that a message takes regardless of its size.
    ///
    /// Defaults to 0, since data sheets do not state it.
    pub fn latency(self, seconds: f64) -> Link {
        Link { latency: seconds, ..self }
    }
}

impl Machine {
    /// Returns a machine with unlimited rates, no links, and overlapping communication.
    pub fn new(name: impl Into<String>) -> Machine {
        Machine {
            name: name.into(),
            matmul_flops: Vec::new(),
            elementwise: f64::INFINITY,
            memory: None,
            bandwidth: f64::INFINITY,
            launch_overhead: 0.0,
            links: Vec::new(),
            default_link: None,
            overlaps: true,
        }
    }
    /// Returns an NVIDIA H100 SXM.
    ///
    /// Its matmuls run at 989 TFLOP/s in 16 bits (dense) and 494 TFLOP/s in float32 (TF32),
    /// elementwise operations at 67 TFLOP/s; it has 80 GB of memory at 3.35 TB/s. Source: NVIDIA
    /// H100 Tensor Core GPU data sheet, whose tensor core figures are halved here because they
    /// assume sparsity.
    pub fn h100() -> Machine {
        Machine::new("H100 SXM")
            .flops(DType::BF16, 989e12)
            .flops(DType::F16, 989e12)
            .flops(DType::F32, 494e12)
            .flops(DType::F64, 67e12)
            .elementwise(67e12)
            .memory(80e9, 3.35e12)
    }
    /// Returns an NVIDIA A100 SXM with 80 GB.
    ///
    /// Its matmuls run at 312 TFLOP/s in 16 bits and 156 TFLOP/s in float32 (TF32), elementwise
    /// operations at 19.5 TFLOP/s; its memory bandwidth is 2.039 TB/s. Source: NVIDIA A100 Tensor
    /// Core GPU data sheet.
    pub fn a100() -> Machine {
        Machine::new("A100 SXM 80GB")
            .flops(DType::BF16, 312e12)
            .flops(DType::F16, 312e12)
            .flops(DType::F32, 156e12)
            .flops(DType::F64, 19.5e12)
            .elementwise(19.5e12)
            .memory(80e9, 2.039e12)
    }
    /// Returns a Google TPU v5p.
    ///
    /// Its matmuls run at 459 TFLOP/s in bfloat16, and it has 95 GB of memory at 2.765 TB/s. Each
    /// axis of the torus brings a chip 200 GB/s of the 600 GB/s (4,800 Gbit/s) of its six links.
    /// Source: Google Cloud's page on TPU v5p. No elementwise rate is published, so it counts as
    /// unlimited.
    pub fn tpu_v5p() -> Machine {
        Machine::new("TPU v5p").flops(DType::BF16, 459e12).memory(95e9, 2.765e12).links(Link::ring(200e9))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Sets the matmul rate for an element type, in operations per second.
    ///
    /// A multiplication and an addition count as two operations. Matmuls of element types without a
    /// rate run at the elementwise rate.
    pub fn flops(mut self, dtype: DType, per_second: f64) -> Machine {
        self.matmul_flops.retain(|p| p.0 != dtype);
        self.matmul_flops.push((dtype, per_second));
        self
    }
    /// Sets the rate of all other operations, in operations per second.
    pub fn elementwise(self, per_second: f64) -> Machine {
        Machine { elementwise: per_second, ..self }
    }
    /// Sets a device's memory in bytes, and its memory bandwidth in bytes per second.
    pub fn memory(self, bytes: f64, per_second: f64) -> Machine {
        Machine { memory: Some(bytes), bandwidth: per_second, ..self }
    }
    /// Sets the launch overhead of a kernel, in seconds. Defaults to 0.
    pub fn launch_overhead(self, seconds: f64) -> Machine {
        Machine { launch_overhead: seconds, ..self }
    }
    /// Sets the link along a mesh axis.
    pub fn link(mut self, axis: impl Into<Axis>, link: Link) -> Machine {
        let axis = axis.into();
        self.links.retain(|l| l.0 != axis);
        self.links.push((axis, link));
        self
    }
    /// Sets the default link, for all mesh axes without a link.
    pub fn links(self, link: Link) -> Machine {
        Machine { default_link: Some(link), ..self }
    }
    /// Sets whether communication overlaps with kernels that do not depend on it. Defaults to true.
    pub fn overlaps(self, overlaps: bool) -> Machine {
        Machine { overlaps, ..self }
    }

    /// Returns the multiply-adds that a device computes in the time in which it receives one byte.
    ///
    /// This is half of the matmul rate for the element type (a multiply-add is two operations),
    /// divided by the bandwidth of the slowest link along the mesh's axes.
    /// [`jit(f).cost_model(&machine, dtype)`](crate::Jit::cost_model) uses it as the cost of a
    /// byte.
    ///
    /// ```
    /// use atmesh::plan::{Link, Machine};
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("data", 64), ("model", 8)])?;
    /// let gpus = Machine::h100().link("model", Link::NVLINK_4).links(Link::switch(50e9));
    /// assert_eq!(gpus.macs_per_byte(BF16, &mesh)?, 989e12 / 2.0 / 50e9); // 9,890
    /// let threads = Machine::new("threads").flops(F32, 64e9).links(Link::switch(1e9));
    /// assert_eq!(threads.macs_per_byte(F32, &mesh)?, 32.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rate, size or latency of the machine is invalid, it has no matmul rate for this element
    /// type, or it has no link along a mesh axis with several devices.
    pub fn macs_per_byte(&self, dtype: DType, mesh: &Mesh) -> Result<f64> {
        self.check()?;
        let rate = self.matmul_rate(dtype);
        if rate.is_infinite() {
            let message = format!("machine \"{}\" has no matmul rate for {}", self.name, dtype.name());
            let help = format!("give the operations per second: `.flops(DType::{dtype:?}, 1e12)`");
            return Err(plan_error(Fault::new(ErrorKind::Data, message).help(help)));
        }
        let wide = mesh.axis_names().iter().copied().filter(|a| mesh.extent(*a) > 1).collect();
        let links = self.links_along(&wide, Some(mesh))?;
        let slowest = links.iter().map(|(link, _)| link.bandwidth).fold(f64::INFINITY, f64::min);
        Ok(rate / 2.0 / slowest)
    }

    pub(super) fn matmul_rate(&self, dtype: DType) -> f64 {
        self.matmul_flops.iter().find(|p| p.0 == dtype).map_or(self.elementwise, |p| p.1)
    }
    /// Returns the links along these axes, with the size of each axis.
    pub(super) fn links_along(&self, axes: &Axes, mesh: Option<&Mesh>) -> Result<Vec<(Link, usize)>> {
        let one = |axis: Axis| {
            let of = self.links.iter().find(|l| l.0 == axis).map(|l| l.1).or(self.default_link);
            let link = of.ok_or_else(|| {
                let message = format!("machine \"{}\" has no link along mesh axis \"{axis}\"", self.name);
                let help = format!(
                    "give its bandwidth, in bytes per second into each device: `.link(\"{axis}\", Link::switch(50e9))`"
                );
                plan_error(Fault::new(ErrorKind::Mesh, message).help(help))
            })?;
            Ok((link, mesh.and_then(|m| m.axis_size(axis).ok()).unwrap_or(1)))
        };
        axes.iter().map(one).collect()
    }
    /// Returns an error if a rate, size or latency is invalid.
    pub(super) fn check(&self) -> Result<()> {
        let figures = [("elementwise rate", self.elementwise), ("memory bandwidth", self.bandwidth)];
        let products =
            self.matmul_flops.iter().map(|(d, rate)| (format!("matmul rate for {}", d.name()), *rate));
        let links = self.links.iter().map(|(a, l)| (format!("link along \"{a}\""), *l));
        let links = links.chain(self.default_link.map(|l| ("link along other axes".into(), l)));
        let links: Vec<(String, Link)> = links.collect();
        let rates = links.iter().map(|(what, l)| (format!("bandwidth of the {what}"), l.bandwidth));
        let memory = self.memory.iter().map(|bytes| ("memory".to_string(), *bytes));
        let figures = figures.into_iter().map(|(what, rate)| (what.to_string(), rate));
        for (what, rate) in figures.chain(products).chain(rates).chain(memory) {
            if rate.is_nan() || rate < 1.0 {
                return Err(self.bad_figure(&what, rate, "1 or more"));
            }
        }
        let waits = links.iter().map(|(what, l)| (format!("latency of the {what}"), l.latency));
        for (what, seconds) in
            waits.chain([("launch overhead of a kernel".to_string(), self.launch_overhead)])
        {
            if !(0.0..=1e6).contains(&seconds) {
                return Err(self.bad_figure(&what, seconds, "0 or more seconds, a million at most"));
            }
        }
        Ok(())
    }
    fn bad_figure(&self, what: &str, is: f64, wanted: &str) -> Error {
        let message = format!("the {what} of machine \"{}\" is {is}", self.name);
        plan_error(Fault::new(ErrorKind::Data, message).help(format!("give it {wanted}")))
    }
}

fn plan_error(fault: Fault) -> Error {
    Error::new(fault, "plan", Vec::new(), None)
}
