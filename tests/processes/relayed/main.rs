//! Modules that several processes run together, on the relay (`tests/relay`).
//!
//! `ATMESH_RELAY` names the library of the relay, and `ATMESH_RELAY_PLUGIN` a plugin for CPUs.

#![cfg(unix)]

mod array_failures;
mod array_tests;
mod arrays;
#[cfg(feature = "safetensors")]
mod beyond;
mod book;
#[path = "../../examples/built.rs"]
mod built;
#[path = "../../error_checks/mod.rs"]
mod error_checks;
mod failures;
#[cfg(feature = "safetensors")]
mod files;
mod launchers;
mod laws;
#[cfg(feature = "safetensors")]
#[path = "../../../examples/mlp_layouts.rs"]
#[expect(dead_code, reason = "tests do not call `main`")]
mod mlp_layouts;
mod programs;
#[cfg(feature = "safetensors")]
#[path = "../../../examples/beyond/programs.rs"]
#[expect(dead_code, reason = "modules are not saved here")]
mod programs_beyond;
#[path = "../../laws/programs.rs"]
#[expect(dead_code, reason = "the laws use more")]
mod programs_of_laws;
mod results;
#[path = "../../laws/rng.rs"]
mod rng;
#[path = "../../soak/mod.rs"]
mod soak;
#[path = "../supervisor.rs"]
mod supervisor;

use atmesh::distributed::{Cluster, init};
use atmesh::pjrt::{Client, DeviceBuffer, LoadedExecutable};
use atmesh::types::DType;
use atmesh::{Mesh, Result};
use error_checks::Unquoted as _;
pub(crate) use rng::Rng;
use std::time::Duration;
use supervisor::{Ended, Process, free_port, now_ms, start_all, variables, wait_all};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns the variables of the relay; `None` (and a notice) without one.
fn relay() -> Option<Vec<(&'static str, String)>> {
    let (Ok(relay), Ok(_)) = (std::env::var("ATMESH_RELAY"), std::env::var("ATMESH_RELAY_PLUGIN")) else {
        println!("**** SKIPPED: ATMESH_RELAY and ATMESH_RELAY_PLUGIN name no relay and no plugin");
        return None;
    };
    Some(vec![("ATMESH_PJRT_PLUGIN", relay), ("TF_CPP_MIN_LOG_LEVEL", "2".into())])
}
/// Starts processes with devices on the relay.
fn start(role: &str, processes: usize, devices: usize) -> Option<Vec<Process>> {
    start_with(role, processes, devices, &[])
}
/// Starts processes with devices on the relay, and with more variables.
fn start_with(
    role: &str,
    processes: usize,
    devices: usize,
    more: &[(&'static str, String)],
) -> Option<Vec<Process>> {
    let more = [&relay()?, more, &[("ATMESH_DEVICES", devices.to_string())]].concat();
    let port = free_port();
    Some(
        (0..processes)
            .map(|k| Process::start(role, &[variables(k, processes, port), more.clone()].concat()))
            .collect(),
    )
}

/// The program of a child process.
#[test]
fn child() {
    let Ok(role) = std::env::var(supervisor::ROLE) else { return };
    let result = match &*role {
        "sums" => sums(),
        "loop" => sum_until_it_fails(),
        "compile" => compile_until_it_fails(),
        "differ" => failures::different_programs(),
        "order" => failures::another_order(),
        "run order" => failures::another_order_of_runs(),
        "lines" => failures::different_lines(),
        "compile failure" => failures::one_compilation_fails(),
        "array loop" => array_failures::train_until_it_fails(),
        "array compile" => array_failures::compile_until_it_fails(),
        "array idle" => array_failures::idle_until_it_fails(),
        "array rate" => array_failures::different_constants(),
        "array order" => array_failures::another_order(),
        "array one more" => array_failures::one_step_more(),
        "array read" => array_failures::one_read_more(),
        "array steps" => array_failures::train_for_some_time(),
        "array left" => array_failures::the_cluster_is_dropped(),
        "one more" => one_call_more(),
        "layers" => arrays::layers(),
        "own blocks" => arrays::own_blocks(),
        "control flow" => programs::control_flow(),
        "placements" => programs::placements(),
        "texts" => programs::texts(),
        "local parts" => programs::local_parts(),
        "refusals" => programs::refusals(),
        "own programs" => programs::own_programs(),
        "dropped" => programs::dropped(),
        "different data" => programs::different_data(),
        "one read" => arrays::one_read_more(),
        "join" => init().map(drop),
        "alone" => sums_of_one_process(),
        "gather" => gathers(),
        "slow" => one_process_is_late(),
        "early end" => one_call_less(),
        "failure" => one_run_fails(),
        "meshes" => meshes(),
        "program first" => array_failures::a_program_before_joining(),
        "random programs" => laws::random_programs(),
        #[cfg(feature = "safetensors")]
        "beyond" => beyond::programs(),
        #[cfg(feature = "safetensors")]
        "save" => files::save(),
        #[cfg(feature = "safetensors")]
        "load" => files::load(),
        #[cfg(feature = "safetensors")]
        "save until killed" => files::save_until_it_fails(),
        #[cfg(feature = "safetensors")]
        "save much" => files::save_much(),
        #[cfg(feature = "safetensors")]
        "load much" => files::load_much(),
        "mesh first" => Mesh::new([("X", 4)]).and_then(|_| init().map(drop)),
        _ => panic!("there is no role {role}"),
    };
    if let Err(error) = result {
        println!("failed at {}: {error}", now_ms());
        std::process::exit(3);
    }
}

fn client(cluster: &Cluster) -> &Client {
    cluster.client().expect("a client of several processes")
}
/// Returns a module that adds blocks of `n` elements of all devices.
fn psum(devices: usize, n: usize) -> String {
    let all = devices * n;
    let group: Vec<String> = (0..devices).map(|d| d.to_string()).collect();
    let group = group.join(", ");
    format!(
        r#"module {{
  sdy.mesh @m = <["x"={devices}]>
  func.func public @main(%x: tensor<{all}xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"x"}}]>}})
      -> (tensor<{all}xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"x"}}]>}}) {{
    %r = sdy.manual_computation(%x) in_shardings=[<@m, [{{"x"}}]>] out_shardings=[<@m, [{{"x"}}]>] manual_axes={{"x"}}
        (%a: tensor<{n}xf32>) {{
      %s = "stablehlo.all_reduce"(%a) <{{
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[{group}]]> : tensor<1x{devices}xi64>, use_global_device_ids
      }}> ({{
        ^bb0(%u: tensor<f32>, %v: tensor<f32>):
          %t = stablehlo.add %u, %v : tensor<f32>
          stablehlo.return %t : tensor<f32>
      }}) : (tensor<{n}xf32>) -> tensor<{n}xf32>
      sdy.return %s : tensor<{n}xf32>
    }} : (tensor<{all}xf32>) -> tensor<{all}xf32>
    return %r : tensor<{all}xf32>
  }}
}}"#
    )
}
/// Puts a block on each own device, and returns the results of a module of one result.
#[track_caller]
fn run(
    module: &LoadedExecutable,
    client: &Client,
    block: impl Fn(usize) -> Vec<f32>,
) -> Result<Vec<Vec<f32>>> {
    let put = |device: &usize| {
        let bytes: Vec<u8> = block(*device).iter().flat_map(|x| x.to_ne_bytes()).collect();
        client.put(&bytes, DType::F32, &[bytes.len() / 4], *device)
    };
    let blocks: Vec<DeviceBuffer> = client.own_devices().iter().map(put).collect::<Result<_>>()?;
    let results = module.run(&blocks.iter().map(|b| vec![b]).collect::<Vec<_>>())?;
    let read = |list: &Vec<DeviceBuffer>| {
        let bytes = list[0].read()?;
        Ok(bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect())
    };
    results.iter().map(read).collect()
}

fn sums() -> Result<()> {
    let cluster = init()?;
    let client = client(&cluster);
    let (n, each) = (client.devices(), client.own_devices().len());
    assert_eq!(n, cluster.processes() * each);
    for device in 0..n {
        let owner = client.process_of(device).unwrap();
        assert_eq!(owner, device / each);
        assert_eq!(client.own_devices().contains(&device), owner == cluster.process());
    }
    assert_eq!(client.process_of(n), None);
    let sum = client.compile(&psum(n, 4), n)?;
    assert_eq!(sum.own_devices(), client.own_devices());
    let total: f32 = (0..n).map(|d| d as f32).sum();
    for round in 0..10 {
        let results = run(&sum, client, |d| vec![d as f32, 10.0 * d as f32, 1.0, round as f32])?;
        for result in results {
            assert_eq!(result, [total, 10.0 * total, n as f32, n as f32 * round as f32]);
        }
    }
    // what this process must not do
    let other = (client.own_devices()[0] + each) % n;
    if other != client.own_devices()[0] {
        let error = client.put(&[0; 4], DType::F32, &[1], other).unwrap_err().unquoted();
        assert!(error.contains(&format!("device {other} is one of process")), "{error}");
    }
    let error = client.compile(&psum(1, 4), 1).unwrap_err().unquoted();
    assert!(n == 1 || error.contains("and all of them run it"), "{error}");
    println!("done");
    Ok(())
}

/// Process 1 needs 3 s of host code between two runs.
fn one_process_is_late() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    let sum = client.compile(&psum(n, 4), n)?;
    run(&sum, client, |_| vec![1.0; 4])?;
    if cluster.process() == 1 {
        std::thread::sleep(Duration::from_secs(3));
    }
    run(&sum, client, |_| vec![1.0; 4])?;
    Ok(())
}

/// Process 1 does not run a program, and ends.
fn one_call_less() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    let sum = client.compile(&psum(n, 4), n)?;
    if cluster.process() != 1 {
        run(&sum, client, |_| vec![1.0; 4])?;
    }
    Ok(())
}

/// The relay fails to run a module in a process with the variable `ATMESH_RELAY_FAILS`.
fn one_run_fails() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    let sum = client.compile(&psum(n, 4), n)?;
    println!("compiled");
    run(&sum, client, |_| vec![1.0; 4])?;
    cluster.barrier("the end")
}

/// Meshes have the devices of all processes.
fn meshes() -> Result<()> {
    let cluster = init()?;
    assert_eq!((cluster.devices(), cluster.local_devices()), (4, 2));
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let owners: Vec<usize> = mesh.devices().iter().map(|device| device.process()).collect();
    assert_eq!(owners, [0, 0, 1, 1]);
    assert!(Mesh::without_devices([("X", 64)]).is_ok());
    for n in [1, 2, 8] {
        let error = Mesh::new([("X", n)]).unwrap_err().unquoted();
        assert!(error.contains("but the 2 processes have 4 devices (2 each)"), "{error}");
    }
    Ok(())
}

/// Reads blocks of several types, each twice.
fn gathers() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    for (dtype, shape, bytes) in [
        (DType::F32, vec![2, 3], 24),
        (DType::U8, vec![4], 4),
        (DType::Bool, vec![1, 2], 2),
        (DType::C64, vec![3], 24),
    ] {
        let block = |device: usize| (0..bytes).map(|k| (device + k) as u8 % 2).collect::<Vec<u8>>();
        for _ in 0..2 {
            let put = |device: &usize| client.put(&block(*device), dtype, &shape, *device);
            let blocks: Vec<DeviceBuffer> = client.own_devices().iter().map(put).collect::<Result<_>>()?;
            assert_eq!(client.gather(&blocks)?, (0..n).flat_map(block).collect::<Vec<u8>>(), "{dtype}");
        }
    }
    let error = client.gather(&[]).unwrap_err().unquoted();
    assert!(error.contains("one block for each device"), "{error}");
    // only process 1 reads: an error in all
    let blocks = [client.put(&[1], DType::U8, &[1], client.own_devices()[0])?];
    if cluster.process() == 1 { client.gather(&blocks).map(drop) } else { cluster.barrier("no read") }
}

/// A client of one process, on several devices.
fn sums_of_one_process() -> Result<()> {
    let cluster = init()?;
    assert!(cluster.client().is_none());
    let client = Client::from_env(4)?;
    let sum = client.compile(&psum(4, 2), 4)?;
    assert_eq!((client.own_devices(), sum.own_devices()), (&[0, 1, 2, 3][..], &[0, 1, 2, 3][..]));
    assert_eq!(run(&sum, &client, |d| vec![d as f32, 1.0])?, vec![vec![6.0, 4.0]; 4]);
    Ok(())
}

fn sum_until_it_fails() -> Result<()> {
    let cluster = init()?;
    let client = client(&cluster);
    let sum = client.compile(&psum(client.devices(), 256), client.devices())?;
    println!("compiled");
    loop {
        run(&sum, client, |d| vec![d as f32; 256])?;
    }
}

/// Process 1 runs a program once more than the others.
fn one_call_more() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    let sum = client.compile(&psum(n, 4), n)?;
    for _ in 0..if cluster.process() == 1 { 2 } else { 1 } {
        run(&sum, client, |d| vec![d as f32; 4])?;
        println!("ran once");
    }
    cluster.barrier("the end")
}

fn compile_until_it_fails() -> Result<()> {
    let cluster = init()?;
    let client = client(&cluster);
    println!("compiled");
    for n in 1.. {
        client.compile(&psum(client.devices(), n), client.devices())?;
        cluster.check()?;
    }
    Ok(())
}

#[test]
fn processes_run_a_module_together() {
    for (processes, devices) in [(2, 4), (4, 2), (8, 1)] {
        let Some(all) = start("sums", processes, devices) else { return };
        for ended in wait_all(all, LIMIT) {
            ended.assert_success();
            assert!(ended.stdout.contains("done"), "{ended:#?}");
        }
    }
}

#[test]
fn meshes_have_the_devices_of_all_processes() {
    let Some(all) = start("meshes", 2, 2) else { return };
    wait_all(all, LIMIT).iter().for_each(Ended::assert_success);
    let Some(all) = start("mesh first", 2, 2) else { return };
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("has made a mesh before it joins the others"), "{error}");
        assert!(error.contains("the mesh is made here"), "{error}");
    }
    // alone, meshes have any size, also before `init`
    Process::start("mesh first", &[]).wait(LIMIT).assert_success();
}

#[test]
fn a_late_process_is_reported_and_an_error_with_patience() {
    let Some(all) = start("slow", 3, 1) else { return };
    let all = wait_all(all, LIMIT);
    all.iter().for_each(Ended::assert_success);
    let reports: Vec<&str> =
        all.iter().flat_map(|e| e.stderr.lines()).filter(|l| l.starts_with("atmesh: ")).collect();
    assert!(reports.len() == 1 && reports[0].contains("call 3 (program "), "{reports:#?}");
    assert!(reports[0].contains("for process 1 ("), "{reports:#?}");
    let (port, Some(more)) = (free_port(), relay()) else { return };
    let more = [more, vec![("ATMESH_PATIENCE", "2".into())]].concat();
    let all =
        (0..3).map(|k| Process::start("slow", &[variables(k, 3, port), more.clone()].concat())).collect();
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(
            error.contains("did not come to call 3 (program ") && error.contains("process 1 ("),
            "{error}"
        );
    }
}

#[test]
fn a_process_that_ends_before_a_run_is_an_error() {
    let Some(all) = start("early end", 3, 1) else { return };
    let all = wait_all(all, LIMIT);
    for k in [0, 2] {
        let error = all[k].error().1;
        assert!(
            error.contains("process 1 (") && error.contains("has ended, and does not come to program "),
            "{error}"
        );
    }
    all[1].assert_success();
}

#[test]
fn a_run_that_fails_in_one_process_is_an_error_in_all() {
    for victim in [0, 1] {
        let (port, Some(relay)) = (free_port(), relay()) else { return };
        let failing = |k| if k == victim { vec![("ATMESH_RELAY_FAILS", "run".to_string())] } else { vec![] };
        let start =
            |k| Process::start("failure", &[variables(k, 3, port), relay.clone(), failing(k)].concat());
        let all: Vec<Process> = (0..3).map(start).collect();
        all.iter().for_each(|process| process.wait_for("compiled"));
        let started = now_ms();
        for ended in wait_all(all, LIMIT) {
            let (time, error) = ended.error();
            assert!(error.contains("RESOURCE_EXHAUSTED"), "{error}");
            assert!(time - started < 2500, "{} ms: {error}", time - started);
        }
    }
}

#[test]
fn blocks_are_gathered_and_a_read_of_one_process_is_an_error() {
    let Some(all) = start("gather", 3, 1) else { return };
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(
            error.contains("processes made different calls") && error.contains("barrier `no read`"),
            "{error}"
        );
    }
}

#[test]
fn one_process_has_the_client_of_the_plugin_below() {
    let (Some(relay), Ok(plugin)) = (relay(), std::env::var("ATMESH_RELAY_PLUGIN")) else { return };
    Process::start("alone", &relay).wait(LIMIT).assert_success();
    Process::start("alone", &[("ATMESH_PJRT_PLUGIN", plugin)]).wait(LIMIT).assert_success();
}

#[test]
fn a_death_ends_the_calls_of_the_others() {
    for (role, victim) in [("loop", 0), ("loop", 1), ("loop", 3), ("compile", 0), ("compile", 2)] {
        let Some(all) = start(role, 4, 1) else { return };
        all.iter().for_each(|process| process.wait_for("compiled"));
        std::thread::sleep(Duration::from_millis(200));
        supervisor::kill_one(role, all, victim, "main.rs", LIMIT);
    }
}

#[test]
fn one_call_more_is_an_error_in_all_with_both_lines() {
    let Some(all) = start("one more", 3, 1) else { return };
    all.iter().for_each(|process| process.wait_for("ran once"));
    let started = now_ms();
    for ended in wait_all(all, LIMIT) {
        let (time, error) = ended.error();
        assert!(error.contains("processes made different calls: call 3 was "), "{error}");
        assert!(error.contains("barrier `the end`") && error.contains(" program "), "{error}");
        assert!(time - started < 3000, "{} ms: {error}", time - started);
    }
}

#[test]
fn a_stopped_process_only_delays_the_calls_of_the_others() {
    let Some(all) = start("loop", 3, 1) else { return };
    all.iter().for_each(|process| process.wait_for("compiled"));
    all[1].signal("STOP");
    std::thread::sleep(Duration::from_secs(3));
    all[1].signal("CONT");
    std::thread::sleep(Duration::from_millis(500));
    // they still run: the death of one ends them
    let pid = all[2].pid();
    let mut all = all;
    all.pop().unwrap().kill();
    let all: Vec<Ended> = wait_all(all, LIMIT);
    for ended in &all {
        assert!(ended.error().1.contains(&format!("pid {pid}) is gone")), "{ended:?}");
    }
    let reports = all[0].stderr.matches("has been silent for").count();
    assert_eq!(reports, 1, "{}", all[0].stderr);
}

#[test]
fn a_plugin_of_one_process_is_an_error() {
    let (Some(_), Ok(plugin)) = (relay(), std::env::var("ATMESH_RELAY_PLUGIN")) else { return };
    let all = start_all("join", 2, free_port(), &[("ATMESH_PJRT_PLUGIN", &plugin)]);
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(
            error.contains("has no client of 2 processes") || error.contains("is gone: it has no client"),
            "{error}"
        );
    }
    // only in process 1: the others wait for its devices
    let Some(relay) = relay() else { return };
    let port = free_port();
    let plugin_of = |k: usize| if k == 1 { vec![("ATMESH_PJRT_PLUGIN", plugin.clone())] } else { vec![] };
    let started = now_ms();
    let all = (0..3)
        .map(|k| Process::start("join", &[variables(k, 3, port), relay.clone(), plugin_of(k)].concat()));
    for (k, ended) in wait_all(all.collect(), LIMIT).iter().enumerate().filter(|(k, _)| *k != 1) {
        let (time, error) = ended.error();
        assert!(error.contains("process 1 (") && error.contains("is gone: it has no client"), "{k}: {error}");
        assert!(time - started < 10_000, "{error}");
    }
    // another plugin in one process
    let start = |k: usize, more| Process::start("join", &[variables(k, 2, 1), more].concat());
    let port = free_port();
    let at = |more: Vec<(&'static str, String)>| {
        [more, vec![("ATMESH_COORDINATOR", format!("127.0.0.1:{port}"))]].concat()
    };
    let all = vec![start(0, at(vec![("ATMESH_PJRT_PLUGIN", plugin.clone())])), start(1, at(vec![]))];
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("has the PJRT C API none, but process 0"), "{error}");
    }
}
