//! Several processes: each sums its part of the data, and all of them gather the sums.
//!
//! `cargo run --example processes` is one process; `scripts/processes 4 processes` starts four.
use atmesh::distributed::{Cluster, init};
use atmesh::prelude::*;

const N: usize = 1000;

/// Returns the total over all processes; `None` if no plugin connects their devices.
#[cfg(feature = "xla")]
fn total(cluster: &Cluster, own: f32) -> Result<Option<f32>> {
    let Some(client) = cluster.client() else { return Ok(None) };
    // One block on each device of this process: its sum, and zeros.
    let devices = client.own_devices();
    let put = |device: &usize| {
        let element = if *device == devices[0] { own } else { 0.0 };
        client.put(&element.to_ne_bytes(), F32, &[1], *device)
    };
    let blocks = devices.iter().map(put).collect::<Result<Vec<_>>>()?;
    let bytes = client.gather(&blocks)?;
    Ok(Some(bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).sum()))
}
#[cfg(not(feature = "xla"))]
fn total(_: &Cluster, _: f32) -> Result<Option<f32>> {
    Ok(None)
}

fn main() -> Result<()> {
    let cluster = init()?;
    let (process, processes) = (cluster.process(), cluster.processes());
    // This array is in this process only: every `processes`-th element, from `process` on.
    let part: Vec<f32> = (process..N).step_by(processes).map(|k| k as f32).collect();
    let own = Array::from(part).sum(..).item::<f32>()?;
    println!("process {process} of {processes}: the sum of its part is {own}");
    match total(&cluster, own)? {
        Some(total) => println!("the sum of all parts is {total}"),
        None if processes == 1 => println!("there is one part"),
        None => println!("the parts stay apart: ATMESH_PJRT_PLUGIN names no plugin (feature `xla`)"),
    }
    cluster.barrier("the end")
}
