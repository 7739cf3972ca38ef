//! Links: what carries data between devices.

/// The wiring of the devices along a mesh axis, with its bandwidth and latency.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Link {
    #[cfg_attr(feature = "json", serde(default))]
    pub(super) ring: bool,
    pub(super) bandwidth: f64,
    #[cfg_attr(feature = "json", serde(default))]
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
    /// Each dimension of a torus is such a link. A collective over several of them uses all of
    /// them at once.
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
    /// Returns the link at another bandwidth.
    pub(super) fn at(self, bandwidth: f64) -> Link {
        Link { bandwidth, ..self }
    }
    /// Returns the figures as bits, for keys.
    pub(super) fn bits(self) -> [u64; 3] {
        [u64::from(self.ring), self.bandwidth.to_bits(), self.latency.to_bits()]
    }
}
