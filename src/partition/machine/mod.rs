//! Descriptions of machines: the rates of one device, the links between devices, and their wiring.

#[cfg(feature = "json")]
mod json;
mod link;
mod wiring;

use crate::core::{
    Axes, Axis, DType, Error, ErrorKind, Fault, Mesh, Result, sharding::sub_axes::from_axes, util::small_sort,
};
use crate::partition::collective::CollectiveKind;
#[cfg(feature = "json")]
pub(crate) use json::{json_error, to_json_lines};
pub use link::Link;
use wiring::Wiring;
pub(crate) use wiring::{LinkPrice, MeshLinks};

/// A machine as plans model it: the rates and memory of one device, and the links between devices.
///
/// Rates are operations or bytes **per second and device**. A preset contains the numbers of a
/// vendor's data sheet. How the devices are wired is not in it: say it with [`nodes`](Self::nodes)
/// or [`torus`](Self::torus), and the links of each mesh axis follow from its place in the mesh.
/// [`link`](Self::link) sets the link of one axis instead, and [`links`](Self::links) one link for
/// all axes.
///
/// All times that follow from a machine are estimates, in seconds.
///
/// ```
/// use atmesh::plan::{Link, Machine};
/// use atmesh::prelude::*;
/// let gpu = Machine::h100().nodes(8, Link::NVLINK_4, Link::switch(50e9).latency(5e-6));
/// let own = Machine::new("ours").flops(F32, 2e12).elementwise(5e11).memory(64e9, 2e11);
/// assert_eq!((gpu.name(), own.name()), ("H100 SXM", "ours"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    name: String,
    /// The matmul operations per second, by element type.
    matmul_flops: Vec<(DType, f64)>,
    pub(in crate::partition) elementwise: f64,
    pub(in crate::partition) memory: Option<f64>,
    /// The share of the memory that is held back.
    memory_reserve: f64,
    pub(in crate::partition) bandwidth: f64,
    /// The launch overhead of each kernel, in seconds.
    pub(in crate::partition) launch_overhead: f64,
    links: Vec<(Axis, Link)>,
    default_link: Option<Link>,
    layout: Option<DeviceLayout>,
    pub(in crate::partition) overlaps: bool,
    /// True if a step of a loop overlaps with the communication of the next one.
    pub(in crate::partition) prefetches: bool,
}

/// The arrangement of the devices of a machine.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "lowercase", deny_unknown_fields))]
enum DeviceLayout {
    /// Nodes of `size` devices, with the links inside and between them.
    Nodes { size: usize, inside: Link, outside: Link, adapters: Option<usize> },
    /// A torus, whose dimensions have the default link.
    Torus(Vec<usize>),
}

/// The share of a device's memory that is held back unless a machine says otherwise.
const MEMORY_RESERVE: f64 = 0.1;

impl Machine {
    /// Returns a machine with unlimited rates, no links, and overlapping communication.
    pub fn new(name: impl Into<String>) -> Machine {
        Machine {
            name: name.into(),
            matmul_flops: Vec::new(),
            elementwise: f64::INFINITY,
            memory: None,
            memory_reserve: MEMORY_RESERVE,
            bandwidth: f64::INFINITY,
            launch_overhead: 0.0,
            links: Vec::new(),
            default_link: None,
            layout: None,
            overlaps: true,
            prefetches: true,
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
    /// Returns a Google TPU v5e.
    ///
    /// Its matmuls run at 197 TFLOP/s in bfloat16, and it has 16 GB of memory at 819 GB/s. Each of
    /// the two axes of the torus brings a chip 100 GB/s of the 200 GB/s (1,600 Gbit/s) of its four
    /// links. Source: Google Cloud's page on TPU v5e. No elementwise rate is published, so it
    /// counts as unlimited.
    ///
    /// ```
    /// use atmesh::plan::Machine;
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("X", 16), ("Y", 16)])?;
    /// let x = BF16.array_type([16384, 1024]).on(&mesh, p![("X", "Y")]);
    /// let gathered = jit(|x: &Array| x.reshard(p![])).lower(x)?;
    /// let plan = gathered.plan(&Machine::tpu_v5e().torus([16, 16]))?;
    /// // both axes of the torus bring data at the same time
    /// let bytes = 2.0 * 16384.0 * 1024.0 * 255.0 / 256.0;
    /// assert!((plan.seconds() / (bytes / 200e9) - 1.0).abs() < 1e-9);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn tpu_v5e() -> Machine {
        Machine::new("TPU v5e").flops(DType::BF16, 197e12).memory(16e9, 8.19e11).links(Link::ring(100e9))
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
        // machines are equal if they were given the same rates in another order
        small_sort::sort_by_key(&mut self.matmul_flops, |p| p.0);
        self
    }
    setters! {
        /// Sets the rate of all other operations, in operations per second.
        pub fn elementwise(per_second: f64) = elementwise: per_second;
        /// Sets a device's memory in bytes, and its memory bandwidth in bytes per second.
        pub fn memory(bytes: f64, per_second: f64) = memory: Some(bytes), bandwidth: per_second;
        /// Sets the share of a device's memory that plans hold back, from 0 to 1. Defaults to 0.1.
        ///
        /// It is for what a plan does not count: the runtime's own memory, fragments between
        /// values, and values that are fetched for the next step of a loop.
        ///
        /// ```
        /// use atmesh::plan::Machine;
        /// use atmesh::prelude::*;
        /// let lowered = jit(|x: &Array| x * 2.0).lower(F32.array_type([1000]))?; // 8,000 bytes
        /// let machine = Machine::new("small").elementwise(1e9).memory(8500.0, 1e9);
        /// assert_eq!(lowered.plan(&machine)?.fits(), Some(false));
        /// assert_eq!(lowered.plan(&machine.memory_reserve(0.05))?.fits(), Some(true));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn memory_reserve(share: f64) = memory_reserve: share;
        /// Sets the launch overhead of a kernel, in seconds. Defaults to 0.
        pub fn launch_overhead(seconds: f64) = launch_overhead: seconds;
    }
    /// Sets the link along a mesh axis, whatever the wiring of the machine.
    pub fn link(mut self, axis: impl Into<Axis>, link: Link) -> Machine {
        let axis = axis.into();
        self.links.retain(|l| l.0 != axis);
        self.links.push((axis, link));
        small_sort::sort_by_key(&mut self.links, |l| l.0);
        self
    }
    /// Sets the default link, for all mesh axes without a link, and for the dimensions of a torus.
    pub fn links(self, link: Link) -> Machine {
        Machine { default_link: Some(link), ..self }
    }
    /// Wires the devices in nodes of `size`, in the order of the mesh.
    ///
    /// The devices of a node are connected by `inside`. Each device also has an adapter to all
    /// other nodes, the link `outside`. The links of a mesh axis follow from its place in the mesh.
    /// With nodes of 8, the last axis of a mesh 16×4 is inside a node, and along the first axis,
    /// pairs of devices share a node. A collective moves within the nodes first, and only the
    /// remainder between nodes, through all adapters ([`adapters`](Self::adapters)).
    ///
    /// ```
    /// use atmesh::plan::{Link, Machine};
    /// use atmesh::prelude::*;
    /// let machine = Machine::h100().nodes(8, Link::NVLINK_4, Link::switch(50e9));
    /// // a gather over 64 devices, on one axis or on two
    /// let seconds = |mesh: Mesh, spec| -> Result<f64> {
    ///     let x = BF16.array_type([4096, 4096]).on(&mesh, spec);
    ///     Ok(jit(|x: &Array| x.reshard(p![])).lower(x)?.plan(&machine)?.seconds())
    /// };
    /// let one = seconds(Mesh::without_devices([("X", 64)])?, p!["X"])?;
    /// let two = seconds(Mesh::without_devices([("X", 8), ("Y", 8)])?, p![("X", "Y")])?;
    /// assert_eq!(one, two);
    /// // 7 of 64 blocks come from other nodes, 56 from the own node
    /// let block = 2.0 * 4096.0 * 4096.0 / 64.0;
    /// assert!((one / f64::max(7.0 * block / 50e9, 56.0 * block / 450e9) - 1.0).abs() < 1e-9);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn nodes(self, size: usize, inside: Link, outside: Link) -> Machine {
        let adapters = match self.layout {
            Some(DeviceLayout::Nodes { adapters, .. }) => adapters,
            Some(DeviceLayout::Torus(_)) | None => None,
        };
        Machine { layout: Some(DeviceLayout::Nodes { size, inside, outside, adapters }), ..self }
    }
    /// Sets how many of a node's adapters a collective uses. Defaults to one for each device.
    ///
    /// It has no effect without [`nodes`](Self::nodes), which comes first.
    ///
    /// ```
    /// use atmesh::plan::{Link, Machine};
    /// use atmesh::prelude::*;
    /// let machine = Machine::h100().nodes(8, Link::NVLINK_4, Link::switch(50e9));
    /// let mesh = Mesh::without_devices([("X", 64)])?;
    /// let x = BF16.array_type([4096, 4096]).on(&mesh, p!["X"]);
    /// let gathered = jit(|x: &Array| x.reshard(p![])).lower(x)?;
    /// let [all, one] = [gathered.plan(&machine)?, gathered.plan(&machine.adapters(1))?];
    /// assert!((one.seconds() / all.seconds() - 8.0).abs() < 1e-9);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn adapters(mut self, number: usize) -> Machine {
        if let Some(DeviceLayout::Nodes { adapters, .. }) = &mut self.layout {
            *adapters = Some(number);
        }
        self
    }
    setters! {
        /// Wires the devices in a torus of these sizes, in the order of the mesh.
        ///
        /// Consecutive devices are neighbours in the last dimension. Each dimension is a ring of
        /// the default link ([`links`](Self::links)), which presets of TPUs have. A mesh axis may
        /// be one dimension, several, or a part of one. A collective uses all dimensions of its
        /// axes at once; a part of a ring has no link from its last device to its first, and half
        /// of the bandwidth.
        ///
        /// ```
        /// use atmesh::plan::Machine;
        /// use atmesh::prelude::*;
        /// let pod = Machine::tpu_v5p().torus([16, 16, 16]);
        /// let mesh = Mesh::without_devices([("fsdp", 1024), ("tensor", 4)])?;
        /// let x = BF16.array_type([4096, 4096]).on(&mesh, p!["fsdp", "tensor"]);
        /// let over = |spec: Spec| -> Result<f64> {
        ///     Ok(jit(move |x: &Array| x.reshard(spec)).lower(x.clone())?.plan(&pod)?.seconds())
        /// };
        /// // a quarter of the last dimension: half of a ring's bandwidth
        /// let bytes = 2.0 * 4096.0 * 4096.0 / 1024.0 * 3.0 / 4.0;
        /// assert!((over(p!["fsdp"])? / (bytes / 100e9) - 1.0).abs() < 1e-9);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn torus(sizes: impl Into<Vec<usize>>) = layout: Some(DeviceLayout::Torus(sizes.into()));
        /// Sets whether communication overlaps with kernels that do not depend on it. Defaults to
        /// true.
        pub fn overlaps(overlaps: bool) = overlaps: overlaps;
        /// Sets whether communication for the next step of a loop overlaps with this step. Defaults
        /// to true.
        ///
        /// Only what does not depend on values that the steps pass on is fetched ahead, such as the
        /// weights of the next layer in a [`scan`](crate::scan). It has no effect if communication
        /// does not [overlap](Self::overlaps) with kernels.
        ///
        /// ```
        /// use atmesh::plan::{Link, Machine};
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::without_devices([("X", 8)])?;
        /// let layer = |x: Array, w: Array| (x.dot(w.reshard(p![])), ());
        /// let layers = |x: &Array, ws: &Array| scan(x, ws, layer).0;
        /// let (x, ws) = (F32.array_type([8192, 512]), F32.array_type([40, 512, 512]));
        /// let lowered = jit(layers).lower((x.on(&mesh, p!["X"]), ws.on(&mesh, p![_, "X"])))?;
        /// let machine = Machine::new("ours").flops(F32, 1e12).links(Link::switch(2e9));
        /// let seconds = |m: &Machine| lowered.plan(m).map(|plan| plan.seconds());
        /// assert!(seconds(&machine)? < 0.6 * seconds(&machine.clone().prefetches(false))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn prefetches(prefetches: bool) = prefetches: prefetches;
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
        let links = self.mesh_links(mesh)?;
        self.check_links(&links, mesh, &mesh.axis_names().iter().copied().collect())?;
        Ok(rate / 2.0 / links.slowest_bytes_per_second())
    }

    pub(in crate::partition) fn matmul_rate(&self, dtype: DType) -> f64 {
        self.matmul_flops.iter().find(|p| p.0 == dtype).map_or(self.elementwise, |p| p.1)
    }
    /// Returns the bytes of a device's memory that a program may use, if the machine states them.
    pub(in crate::partition) fn usable_memory(&self) -> Option<f64> {
        self.memory.map(|bytes| bytes * (1.0 - self.memory_reserve))
    }
    /// Returns the links of a mesh.
    pub(crate) fn mesh_links(&self, mesh: &Mesh) -> Result<MeshLinks> {
        let wiring = match (&self.layout, self.default_link) {
            (Some(DeviceLayout::Nodes { size, inside, outside, adapters }), _) => Some(Wiring::Nodes {
                size: *size,
                inside: *inside,
                outside: *outside,
                adapters: adapters.unwrap_or(*size),
            }),
            (Some(DeviceLayout::Torus(sizes)), Some(link)) => {
                let places = sizes.iter().fold(1, |n: usize, size| n.saturating_mul(*size));
                if mesh.size() > places {
                    let message = format!(
                        "the torus of machine \"{}\" has {places} devices, and the mesh {}",
                        self.name,
                        mesh.size()
                    );
                    let help = "give the sizes of a torus with all devices: `.torus([16, 16, 16])`";
                    return Err(plan_error(Fault::new(ErrorKind::Mesh, message).help(help)));
                }
                Some(Wiring::Torus { sizes: sizes.clone(), link })
            }
            (Some(DeviceLayout::Torus(_)) | None, None) => None,
            (None, Some(link)) => Some(Wiring::Same(link)),
        };
        Ok(MeshLinks::new(mesh, &self.links, wiring))
    }
    /// Returns the price of a collective over these axes of a mesh.
    pub(in crate::partition) fn price(
        &self,
        links: &MeshLinks,
        mesh: &Mesh,
        kind: CollectiveKind,
        axes: &Axes,
    ) -> Result<LinkPrice> {
        self.check_links(links, mesh, axes)?;
        Ok(links.price(kind, &from_axes(mesh, axes.iter())))
    }
    /// Returns an error if one of these axes has several devices and no link.
    fn check_links(&self, links: &MeshLinks, mesh: &Mesh, axes: &Axes) -> Result<()> {
        let Some(axis) = links.unlinked(&from_axes(mesh, axes.iter())) else { return Ok(()) };
        let message = format!("machine \"{}\" has no link along mesh axis \"{axis}\"", self.name);
        let help = format!(
            "give its bandwidth, in bytes per second into each device: `.link(\"{axis}\", Link::switch(50e9))`"
        );
        Err(plan_error(Fault::new(ErrorKind::Mesh, message).help(help)))
    }
    /// Returns an error if a rate, size or latency is invalid.
    pub(in crate::partition) fn check(&self) -> Result<()> {
        let figures = [("elementwise rate", self.elementwise), ("memory bandwidth", self.bandwidth)];
        let products =
            self.matmul_flops.iter().map(|(d, rate)| (format!("matmul rate for {}", d.name()), *rate));
        let links = self.links.iter().map(|(a, l)| (format!("link along \"{a}\""), *l));
        let links = links.chain(self.default_link.map(|l| ("link along other axes".into(), l)));
        let mut links: Vec<(String, Link)> = links.collect();
        match &self.layout {
            Some(DeviceLayout::Nodes { size, inside, outside, adapters }) => {
                links.push(("link inside nodes".into(), *inside));
                links.push(("link between nodes".into(), *outside));
                for (what, n) in
                    [("number of devices of a node", *size), ("number of adapters", adapters.unwrap_or(1))]
                {
                    if n == 0 {
                        return Err(self.bad_figure(what, 0.0, "1 or more"));
                    }
                }
            }
            Some(DeviceLayout::Torus(sizes)) if sizes.contains(&0) => {
                return Err(self.bad_figure("size of a dimension of the torus", 0.0, "1 or more"));
            }
            Some(DeviceLayout::Torus(_)) | None => {}
        }
        if !(0.0..=1.0).contains(&self.memory_reserve) {
            return Err(self.bad_figure(
                "share of memory in reserve",
                self.memory_reserve,
                "a share from 0 to 1",
            ));
        }
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
