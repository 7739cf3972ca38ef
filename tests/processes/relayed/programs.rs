//! What users do with arrays, in several processes.

use super::arrays::{compare, mesh};
use super::error_checks::Unquoted;
use atmesh::distributed::init;
use atmesh::prelude::*;

/// Control flow, manual code and derivatives, in and outside of `jit`.
pub(crate) fn control_flow() -> Result<()> {
    let cluster = init()?;
    let (mesh, n) = (mesh(&cluster)?, cluster.devices());
    let host = Key::new(7).normal([2 * n, 3]);
    let x = host.put(&mesh, p!["X"]);
    let total = |x: &Array| {
        scan(Array::zeros([2 * n, 3]), (0..4).collect::<Array>(), |sum: Array, k: Array| {
            let next = &sum + x * k.astype(F32);
            (next.clone(), next.sum(..))
        })
    };
    let on = |x: &Array| {
        scan(x.zeros_like(), (0..4).collect::<Array>(), |sum: Array, k: Array| {
            let next = &sum + x * k.astype(F32);
            (next.clone(), next.sum(..))
        })
    };
    let (one, sums) = total(&host);
    let (many, many_sums) = jit(|x: &Array| on(x)).call(&x)?;
    compare("scan", &many, &one)?;
    compare("scan's rows", &many_sums, &sums)?;
    compare("scan, eagerly", &on(&x).0, &one)?;
    let halve = |x: &Array| while_loop(x.clone(), |x: &Array| x.abs().max(..).gt(0.1), |x: Array| x * 0.5);
    compare("while_loop", &jit(|x: &Array| halve(x)).call(&x)?, &halve(&host))?;
    compare("while_loop, eagerly", &halve(&x), &halve(&host))?;
    let choose = |x: &Array| cond(x.sum(..).gt(0.0), || x + 1.0, || x - 1.0);
    compare("cond", &jit(|x: &Array| choose(x)).call(&x)?, &choose(&host))?;
    compare("cond, eagerly", &choose(&x), &choose(&host))?;
    let mean = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(0).psum("X") / n as f32);
    compare("shard_map", &mean.call(&x)?, &(host.sum(0) / n as f32))?;
    compare(
        "gradient, eagerly",
        &grad(&x, |x| x.sin().square().sum(..)),
        &grad(&host, |x| x.sin().square().sum(..)),
    )?;
    cluster.barrier("all results are right")
}

/// Donated and captured arrays, unreduced values, and auto axes.
pub(crate) fn placements() -> Result<()> {
    let cluster = init()?;
    let n = cluster.devices();
    let mesh = mesh(&cluster)?;
    let host = Key::new(8).normal([2 * n, 4]);
    let x = host.put(&mesh, p!["X"]);
    // donation
    let step = jit(|w: &Array, x: &Array| w - 0.5 * x).donate(0);
    let w = step.call((&host.put(&mesh, p!["X"]), &x))?;
    let v = step.call((&w, &x))?;
    compare("donated twice", &v, &(&host * 0.0))?;
    let gone = w.to_vec::<f32>().unwrap_err().unquoted();
    assert!(gone.contains("the array was donated"), "{gone}");
    // captures, on the mesh and on none
    let bias = Array::from([1.0f32, 2.0, 3.0, 4.0]);
    let captured = jit(|y: &Array| y + &x + &bias);
    compare("captured", &captured.call(&x)?, &(&host * 2.0 + &bias))?;
    // unreduced values
    let w = Key::new(9).normal([2 * n, 2]);
    let product = x.transpose(..).dot_to(w.put(&mesh, p!["X"]), p![_, _; U: "X"]);
    assert_eq!(type_of(&product), "float32[4,2]{U:X}");
    let expected = host.transpose(..).dot(&w);
    compare("unreduced", &product, &expected)?;
    compare("unreduced, summed", &product.reshard(p![]), &expected)?;
    let shown = product.to_string();
    assert!(shown.starts_with("float32[4,2]{U:X} of "), "{shown}");
    // auto axes, and both kinds
    for mesh in [
        Mesh::auto([("X", n / 2), ("Y", 2)])?,
        Mesh::with_types([("X", n / 2, AxisType::Auto), ("Y", 2, AxisType::Explicit)])?,
    ] {
        let x = host.put(&mesh, p!["X", "Y"]);
        assert_eq!(x.sharding()?.map(|s| s.spec), Some(p!["X", "Y"]));
        compare("auto", &x, &host)?;
        compare("auto, in a program", &jit(|x: &Array| x.exp() + 1.0).call(&x)?, &(host.exp() + 1.0))?;
        compare("auto, moved", &x.put(&mesh, p![_, "X"]), &host)
            .or_else(|e| if n > 4 { Ok(()) } else { Err(e) })?;
        let zeros = Array::zeros(F32.array_type([2 * n, 4]).on(&mesh, p!["X"]));
        assert_eq!(zeros.shards()?[0].data.shape()?[0], 4);
        compare("zeros over auto axes", &zeros, &(&host * 0.0))?;
        let counted = Array::iota(I32.array_type([2 * n, 4]).on(&mesh, p!["X", "Y"]), 0);
        compare("iota over auto axes", &counted, &Array::iota(I32.array_type([2 * n, 4]), 0))?;
    }
    cluster.barrier("all results are right")
}

/// Arrays as text: nobody waits for another process, which need not print.
pub(crate) fn texts() -> Result<()> {
    let cluster = init()?;
    let (mesh, n) = (mesh(&cluster)?, cluster.devices());
    let x = Array::arange(0..2 * n as i32).put(&mesh, p!["X"]);
    let sum = x.sum(0);
    let empty = Array::zeros([0, 3]).put(&mesh, p!["X"]);
    if cluster.process() == 1 {
        let own = cluster.local_devices();
        let text = format!("{x}");
        assert_eq!(text, format!("{x:?}"));
        let first = own; // one device before it for each of process 0
        let wanted = format!(
            "int32[{}@X] of {} processes\n[{}..{}] on CPU {first}:\n[{} {}]",
            2 * n,
            cluster.processes(),
            2 * first,
            2 * first + 2,
            2 * first,
            2 * first + 1
        );
        assert!(text.starts_with(&wanted), "{text}\n{wanted}");
        assert_eq!(text.matches(" on CPU ").count(), own);
        assert_eq!(format!("{sum}"), format!("{}", n * (2 * n - 1)));
        assert_eq!(format!("{empty}"), "[]");
        assert_eq!(sum.item::<i32>()?, (n * (2 * n - 1)) as i32);
    }
    assert!(!x.is_local()? && sum.is_local()? && x.process_allgather().is_local()?);
    assert_eq!(empty.shards()?.len(), cluster.local_devices());
    cluster.barrier("all texts are right")
}

/// Each process passes the rows that it has.
pub(crate) fn local_parts() -> Result<()> {
    let cluster = init()?;
    let (n, own, rank) = (cluster.devices(), cluster.local_devices(), cluster.process());
    let mesh = Mesh::new([("X", cluster.processes()), ("Y", own)])?;
    assert_eq!((mesh.processes(), mesh.local_devices().len()), (cluster.processes(), own));
    let host = Array::arange(0..(4 * n) as i32).reshape([2 * n, 2]);
    for spec in [p![("X", "Y")], p!["X"], p![], p!["Y"]] {
        let sharding = Sharding::new(&mesh, spec, &[2 * n, 2])?;
        let rows = sharding.local_index(&[2 * n, 2])?[0].clone();
        let local = host.slice(ix![rows.start..rows.end]);
        let x = Array::from_process_local_data([2 * n, 2], &sharding, local)?;
        compare(&format!("{spec}"), &x, &host)?;
    }
    let sharding = Sharding::new(&mesh, p!["X"], &[2 * n, 2])?;
    let error = Array::from_process_local_data([2 * n, 2], &sharding, host.clone()).unwrap_err().unquoted();
    assert!(
        error.contains("this process holds [") && error.contains("x.put(&mesh, p![\"X\", _])"),
        "{error}"
    );
    let error =
        Array::from_process_local_data([2 * n, 2], &sharding, Array::ones([3, 2])).unwrap_err().unquoted();
    assert!(error.contains("of shape [") && error.contains("local_index"), "{error}");
    // of 3 x 2 devices, those of process 1 are in two rows and two columns
    let turned = Mesh::new([("Y", own), ("X", cluster.processes())])?;
    let sharding = Sharding::new(&turned, p!["X", "Y"], &[2 * n, 2 * own])?;
    if (own, cluster.processes(), rank) == (2, 3, 1) {
        let error = sharding.local_index(&[2 * n, 2 * own]).unwrap_err().unquoted();
        assert!(error.contains("do not form a box") && error.contains("Array::from_fn"), "{error}");
    }
    println!("process {rank} is right");
    cluster.barrier("all results are right")
}

/// The cluster is dropped before its last use.
pub(crate) fn dropped() -> Result<()> {
    let devices = init()?.devices();
    let mesh = Mesh::new([("X", devices)])?;
    let x = Array::ones([devices]).put(&mesh, p!["X"]);
    jit(|x: &Array| x * 2.0).call(&x).map(drop)
}

/// What does not run in several processes is an error in all of them, and the programs after it
/// run.
pub(crate) fn refusals() -> Result<()> {
    let cluster = init()?;
    let (mesh, n) = (mesh(&cluster)?, cluster.devices());
    let x = Key::new(8).normal([2 * n, 4]).put(&mesh, p!["X"]);
    let check = |what: &str, error: atmesh::Error, parts: &[&str]| {
        let text = error.unquoted();
        let line = text.contains("programs.rs:");
        assert!(line && parts.iter().all(|part| text.contains(part)), "{what}: {text}");
        println!("{text}");
    };
    let whole = "x.process_allgather()";
    for kind in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let error = jit(|x: &Array| x + 1.0).engine(kind).call(&x).unwrap_err();
        check("engine", error, &["processes, and the engine", "runs in one", whole]);
    }
    let error = spmd(&mesh, p!["X"], p!["X"], |_: &Device, x: ndarray::ArrayViewD<f32>| Ok(x.to_owned()))
        .call(&x)
        .unwrap_err();
    check("spmd", error, &["`spmd` runs device code on threads of one process", "shard_map"]);
    let error = jit(|x: &Array| {
        debug_print!("{}", x);
        x + 1.0
    })
    .call(&x)
    .unwrap_err();
    check("debug_print", error, &["prints have no StableHLO", "remove the print"]);
    let error = x.reshard(p![]).svd(false).1.ready().unwrap_err();
    check("svd", error, &[whole]);
    // the same in each process
    assert!(x.process_allgather().svd(false).1.ready().is_ok());
    let auto = Mesh::auto([("X", n)])?;
    let error = Array::ones([n + 1]).put(&auto, p!["X"]).ready().unwrap_err();
    check("uneven", error, &["does not divide", "pad the dimension"]);
    let sharding = Sharding::new(&mesh, p!["X"], &[2 * n])?;
    let error = Array::from_fn([2 * n], &sharding, |_| Array::ones([3])).unwrap_err();
    check("wrong block", error, &["has shape [3], but it holds"]);
    let error = Array::from_shards([2 * n], &sharding, [Array::ones([2])]);
    if cluster.local_devices() > 1 {
        check("missing block", error.unwrap_err(), &["is missing"]);
    }
    let many = vec![Array::ones([2]); cluster.local_devices() + 1];
    let error = Array::from_shards([2 * n], &sharding, many).unwrap_err();
    check("too many", error, &["devices of this process"]);
    let error = Mesh::new([("X", n + 1)]).unwrap_err();
    check("mesh", error, &["processes have"]);
    let mut turned = devices(n)?;
    turned.swap(0, 1);
    let error = Mesh::of_devices(&turned, [("X", n)]).unwrap_err();
    check("mesh", error, &["in order"]);
    compare("the program after them", &(&x + 1.0), &(x.process_allgather() + 1.0))?;
    cluster.barrier("all errors are right")
}

/// Process 1 passes other data on no mesh. The processes compare them.
pub(crate) fn different_data() -> Result<()> {
    let cluster = init()?;
    let (mesh, n) = (mesh(&cluster)?, cluster.devices());
    let own = Array::from(cluster.process() as f32);
    let x = Array::ones([n]).put(&mesh, p!["X"]);
    println!("placed");
    match std::env::var("ATMESH_TEST_DATA").as_deref() {
        Ok("argument") => jit(|x: &Array, y: &Array| x + y).call((&x, &own)).map(drop),
        Ok("placed") => own.put(&mesh, p![]).ready().map(drop),
        _ => {
            let sharding = Sharding::new(&mesh, p![], &[])?;
            Array::from_fn([], &sharding, |_| own.clone()).map(drop)
        }
    }
}

/// Processes run different numbers of programs by themselves, between those that all of them run.
///
/// All of them compile together, so the caches must hold the same programs in all of them.
pub(crate) fn own_programs() -> Result<()> {
    let cluster = init()?;
    let (mesh, n) = (mesh(&cluster)?, cluster.devices());
    let host = Key::new(9).normal([2 * n, 4]);
    let x = host.put(&mesh, p!["X"]);
    let step = jit(|x: &Array| (x * 2.0).tanh());
    compare("before", &step.call(&x)?, &(&host * 2.0).tanh())?;
    // more programs than the cache of all programs holds
    let data = Array::from(vec![1.0_f32; 4000]);
    for k in 0..3800 * cluster.process() {
        let _ = data.slice(ix![k..k + 1]);
    }
    compare("afterwards", &step.call(&x)?, &(&host * 2.0).tanh())?;
    for k in 1..=12 {
        let rate = k as f64 / 8.0;
        compare("a rate", &(&x * rate), &(&host * rate))?;
        // more operations than this thread's cache holds
        for k in 0..100 * cluster.process() {
            let _ = data.slice(ix![k..k + 1]);
        }
    }
    cluster.barrier("all results are right")
}
