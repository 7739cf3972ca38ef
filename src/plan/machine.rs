//! What a plan knows of a machine: rates of one device, and its links.

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::elements::DType;
use crate::mesh::{Axes, Axis, Mesh};

/// A machine as a plan sees it: what one device computes, reads and holds, and what the links along each mesh axis bring it.
///
/// Rates are operations and bytes **per second and device**. A preset is a vendor's data sheet; links are yours to say, since they depend on
/// how devices are wired, and on which mesh axis runs along which wires.
///
/// ```
/// use atmesh::plan::{Link, Machine};
/// use atmesh::prelude::*;
/// let gpu = Machine::h100().link("model", Link::NVLINK_4).links(Link::switch(50e9).latency(5e-6));
/// let own = Machine::new("ours").arithmetic(F32, 2e12).elementwise(5e11).memory(64e9, 2e11);
/// assert_eq!((gpu.name(), own.name()), ("H100 SXM", "ours"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    name: String,
    /// Operations per second of products, by element type.
    products: Vec<(DType, f64)>,
    pub(super) elementwise: f64,
    pub(super) memory: Option<f64>,
    pub(super) bandwidth: f64,
    /// Seconds before each kernel.
    pub(super) start: f64,
    links: Vec<(Axis, Link)>,
    others: Option<Link>,
    pub(super) overlaps: bool,
}

/// How devices along a mesh axis are wired, and how quick that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub(super) ring: bool,
    pub(super) bandwidth: f64,
    pub(super) latency: f64,
}

impl Link {
    /// NVLink of the fourth generation: 450 GB/s into each device through a switch (NVIDIA H100 data sheet: 900 GB/s in both directions together).
    pub const NVLINK_4: Link = Link { ring: false, bandwidth: 450e9, latency: 0.0 };
    /// NVLink of the third generation: 300 GB/s into each device through a switch (NVIDIA A100 data sheet: 600 GB/s in both directions together).
    pub const NVLINK_3: Link = Link { ring: false, bandwidth: 300e9, latency: 0.0 };

    /// Each device reaches each other directly: `bandwidth` bytes per second into each device.
    pub fn switch(bandwidth: f64) -> Link {
        Link { ring: false, bandwidth, latency: 0.0 }
    }
    /// Each device reaches its two neighbours, as along a dimension of a torus: `bandwidth` bytes per second into each device, from both
    /// neighbours together.
    pub fn ring(bandwidth: f64) -> Link {
        Link { ring: true, bandwidth, latency: 0.0 }
    }
    /// The same with a latency: the seconds that a message takes however short it is. No data sheet has it; without this it is 0.
    pub fn latency(self, seconds: f64) -> Link {
        Link { latency: seconds, ..self }
    }
}

impl Machine {
    /// A machine of which nothing is known yet but that its kernels and messages run side by side.
    pub fn new(name: impl Into<String>) -> Machine {
        Machine {
            name: name.into(),
            products: Vec::new(),
            elementwise: f64::INFINITY,
            memory: None,
            bandwidth: f64::INFINITY,
            start: 0.0,
            links: Vec::new(),
            others: None,
            overlaps: true,
        }
    }
    /// NVIDIA H100 SXM: 989 TFLOP/s in 16 bits (dense), 494 in float32's products (TF32), 67 elementwise, 80 GB at 3.35 TB/s. Source: NVIDIA H100
    /// Tensor Core GPU data sheet, whose figures of tensor cores are with sparsity: half of them are meant here.
    pub fn h100() -> Machine {
        Machine::new("H100 SXM")
            .arithmetic(DType::BF16, 989e12)
            .arithmetic(DType::F16, 989e12)
            .arithmetic(DType::F32, 494e12)
            .arithmetic(DType::F64, 67e12)
            .elementwise(67e12)
            .memory(80e9, 3.35e12)
    }
    /// NVIDIA A100 SXM of 80 GB: 312 TFLOP/s in 16 bits, 156 in float32's products (TF32), 19.5 elementwise, 2.039 TB/s. Source: NVIDIA A100 Tensor
    /// Core GPU data sheet.
    pub fn a100() -> Machine {
        Machine::new("A100 SXM 80GB")
            .arithmetic(DType::BF16, 312e12)
            .arithmetic(DType::F16, 312e12)
            .arithmetic(DType::F32, 156e12)
            .arithmetic(DType::F64, 19.5e12)
            .elementwise(19.5e12)
            .memory(80e9, 2.039e12)
    }
    /// Google TPU v5p: 459 TFLOP/s in bfloat16, 95 GB at 2.765 TB/s; each axis of its torus brings a chip 200 GB/s, of the 600 (4,800 Gbit/s) of its six
    /// links. Source: Google Cloud's page on TPU v5p. Of its elementwise rate no figure is published: it counts as unlimited.
    pub fn tpu_v5p() -> Machine {
        Machine::new("TPU v5p")
            .arithmetic(DType::BF16, 459e12)
            .memory(95e9, 2.765e12)
            .links(Link::ring(200e9))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The operations per second of products of this element type, a multiplication and an addition being two. Products of an element type
    /// without a figure run at the elementwise rate.
    pub fn arithmetic(mut self, dtype: DType, per_second: f64) -> Machine {
        self.products.retain(|p| p.0 != dtype);
        self.products.push((dtype, per_second));
        self
    }
    /// The operations per second of everything else.
    pub fn elementwise(self, per_second: f64) -> Machine {
        Machine { elementwise: per_second, ..self }
    }
    /// The bytes of a device's memory, and how many of them it reads or writes per second.
    pub fn memory(self, bytes: f64, per_second: f64) -> Machine {
        Machine { memory: Some(bytes), bandwidth: per_second, ..self }
    }
    /// The seconds that a kernel takes before it does anything.
    pub fn kernel_start(self, seconds: f64) -> Machine {
        Machine { start: seconds, ..self }
    }
    /// The link along a mesh axis.
    pub fn link(mut self, axis: impl Into<Axis>, link: Link) -> Machine {
        let axis = axis.into();
        self.links.retain(|l| l.0 != axis);
        self.links.push((axis, link));
        self
    }
    /// The link along every axis that has none of its own.
    pub fn links(self, link: Link) -> Machine {
        Machine { others: Some(link), ..self }
    }
    /// Whether messages travel while kernels run that do not wait for them: true unless said otherwise.
    pub fn overlaps(self, overlaps: bool) -> Machine {
        Machine { overlaps, ..self }
    }

    /// How many elements of products in this element type a device computes while one byte reaches it: half of the rate of products (an
    /// element is a multiplication and an addition) by the bandwidth of the slowest link along the mesh's axes. It is what a byte costs where
    /// [`jit(f).priced_for(&machine, dtype)`](crate::Jit::priced_for) is lowered.
    ///
    /// ```
    /// use atmesh::plan::{Link, Machine};
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("data", 64), ("model", 8)])?;
    /// let gpus = Machine::h100().link("model", Link::NVLINK_4).links(Link::switch(50e9));
    /// assert_eq!(gpus.work_per_byte(BF16, &mesh)?, 989e12 / 2.0 / 50e9); // 9,890
    /// let threads = Machine::new("threads").arithmetic(F32, 64e9).links(Link::switch(1e9));
    /// assert_eq!(threads.work_per_byte(F32, &mesh)?, 32.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// A figure of the machine that is none, no rate of such products, or a mesh axis of several devices along which there is no link.
    pub fn work_per_byte(&self, dtype: DType, mesh: &Mesh) -> Result<f64> {
        self.check()?;
        let rate = self.product_rate(dtype);
        if rate.is_infinite() {
            let message = format!("machine \"{}\" has no rate of products in {}", self.name, dtype.name());
            let help = format!("say how many operations per second: `.arithmetic(DType::{dtype:?}, 1e12)`");
            return Err(refused(Fault::new(ErrorKind::Data, message).help(help)));
        }
        let wide = mesh.axis_names().iter().copied().filter(|a| mesh.extent(*a) > 1).collect();
        let links = self.along(&wide, Some(mesh))?;
        let slowest = links.iter().map(|(link, _)| link.bandwidth).fold(f64::INFINITY, f64::min);
        Ok(rate / 2.0 / slowest)
    }

    pub(super) fn product_rate(&self, dtype: DType) -> f64 {
        self.products.iter().find(|p| p.0 == dtype).map_or(self.elementwise, |p| p.1)
    }
    /// The links along these axes, with the size of each.
    pub(super) fn along(&self, axes: &Axes, mesh: Option<&Mesh>) -> Result<Vec<(Link, usize)>> {
        let one = |axis: Axis| {
            let of = self.links.iter().find(|l| l.0 == axis).map(|l| l.1).or(self.others);
            let link = of.ok_or_else(|| {
                let message = format!("machine \"{}\" has no link along mesh axis \"{axis}\"", self.name);
                let help = format!(
                    "say how quick it is, in bytes per second into each device: `.link(\"{axis}\", Link::switch(50e9))`"
                );
                refused(Fault::new(ErrorKind::Mesh, message).help(help))
            })?;
            Ok((link, mesh.and_then(|m| m.axis_size(axis).ok()).unwrap_or(1)))
        };
        axes.iter().map(one).collect()
    }
    /// Whether all its figures are ones.
    pub(super) fn check(&self) -> Result<()> {
        let figures = [("elementwise rate", self.elementwise), ("bandwidth of memory", self.bandwidth)];
        let products =
            self.products.iter().map(|(d, rate)| (format!("rate of products in {}", d.name()), *rate));
        let links = self.links.iter().map(|(a, l)| (format!("link along \"{a}\""), *l));
        let links = links.chain(self.others.map(|l| ("link along other axes".into(), l)));
        let links: Vec<(String, Link)> = links.collect();
        let rates = links.iter().map(|(what, l)| (format!("bandwidth of the {what}"), l.bandwidth));
        let memory = self.memory.iter().map(|bytes| ("memory".to_string(), *bytes));
        let figures = figures.into_iter().map(|(what, rate)| (what.to_string(), rate));
        for (what, rate) in figures.chain(products).chain(rates).chain(memory) {
            if rate.is_nan() || rate < 1.0 {
                return Err(self.bad(&what, rate, "1 or more"));
            }
        }
        let waits = links.iter().map(|(what, l)| (format!("latency of the {what}"), l.latency));
        for (what, seconds) in waits.chain([("start of a kernel".to_string(), self.start)]) {
            if !(0.0..=1e6).contains(&seconds) {
                return Err(self.bad(&what, seconds, "0 or more seconds, a million at most"));
            }
        }
        Ok(())
    }
    fn bad(&self, what: &str, is: f64, wanted: &str) -> Error {
        let message = format!("the {what} of machine \"{}\" is {is}", self.name);
        refused(Fault::new(ErrorKind::Data, message).help(format!("give it {wanted}")))
    }
}

fn refused(fault: Fault) -> Error {
    Error::at(fault, "plan", Vec::new(), None)
}
