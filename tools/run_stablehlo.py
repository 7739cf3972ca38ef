#!/usr/bin/env python3
"""Runs a program that atmesh saved as StableHLO on JAX's devices (CPU, GPU or TPU), in one process or on a cluster.

    run_stablehlo.py step/ x.npy w.npy --out results/         arguments in order, as program.json lists them
    run_stablehlo.py step/ weights.safetensors --out new.safetensors     arguments by name
    run_stablehlo.py step/ x.npy w.npy --repeat 100 --carry 1=0          a training loop: result 0 becomes argument 1 of the next call
    run_stablehlo.py --check folder1/ folder2/ ...            runs argument0.npy, ... and compares with expected0.npy, ...

To simulate several devices on a CPU: --cpu-devices 8. On a cluster, run it in each process with
--coordinator HOST:PORT --processes N --process K, or with --cluster under SLURM, on GKE or on a TPU pod.

Needs only JAX: pip install jax (CPU), jax[cuda13] (NVIDIA), jax[tpu]. Each process reads only the blocks of its devices from the
files, and process 0 writes the results. A wrong argument prints one line to stderr and exits with status 2.
"""
import argparse, json, os, re, struct, sys, time


def parser():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", help="what `save` wrote: program.mlir and program.json")
    p.add_argument("arguments", nargs="*", help=".npy files in order, or one .safetensors file by name; with --check more folders")
    p.add_argument("--out", help="a folder for result0.npy, ..., or a .safetensors file")
    p.add_argument("--repeat", type=int, default=0, help="more calls, timed; results stay on the devices")
    p.add_argument("--carry", default="", help="ARGUMENT=RESULT,...: what the next call takes from the last one")
    p.add_argument("--collectives", action="store_true", help="what XLA communicates")
    p.add_argument("--hlo", help="a file for XLA's compiled program")
    p.add_argument("--check", action="store_true", help="compare with expected0.npy, ... in each folder")
    p.add_argument("--cpu-devices", type=int, help="make so many devices of the CPU")
    p.add_argument("--coordinator"), p.add_argument("--processes", type=int), p.add_argument("--process", type=int)
    p.add_argument("--cluster", action="store_true", help="processes as the cluster's scheduler says")
    return p


class Wrong(Exception):
    """An error that the user can fix."""


def split(text):
    """Splits at commas outside brackets."""
    parts, depth, word = [], 0, ""
    for c in text:
        depth += (c in "<[({") - (c in ">])}")
        if c == "," and depth == 0:
            parts.append(word)
            word = ""
        else:
            word += c
    return [w.strip() for w in parts + [word] if w.strip()]


class Port:
    """An argument or a result: its name, shape, element type and sharding."""

    def __init__(self, row):
        self.name, self.type, self.file = row["name"], row["type"], row["file"]
        dims, dtype = re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", row["tensor"]).groups()
        self.shape, self.dtype = tuple(int(n) for n in dims.split("x") if n), np.dtype(DTYPES[dtype])
        self.mesh, self.dims = None, []
        if row["sharding"]:
            mesh, dims = re.fullmatch(r"<@(\S+), \[(.*)\]>", row["sharding"]).groups()
            self.mesh, self.dims = mesh, [split(d[1:-1]) for d in split(dims)]

    def words(self):
        return f"{self.dtype}{list(self.shape)}"


class Module:
    def __init__(self, folder):
        self.folder = folder
        try:
            self.text = open(os.path.join(folder, "program.mlir")).read()
            table = json.load(open(os.path.join(folder, "program.json")))
        except (OSError, ValueError) as e:
            raise Wrong(f"{folder} is no folder that `save` wrote: {e}")
        self.devices = table["devices"]
        self.arguments, self.results = [[Port(r) for r in table[k]] for k in ("arguments", "results")]
        self.meshes = {
            name: [(a, int(n)) for a, n in re.findall(r'"([^"]*)"=(\d+)', axes)]
            for name, axes in re.findall(r"sdy\.mesh @(\S+) = <\[(.*?)\]>", self.text)
        }

    def sharding(self, port, devices):
        """Returns the JAX sharding of an argument or a result. Sub-axes, such as "x":(2)4, become axes of a finer mesh."""
        axes = self.meshes.get(port.mesh)
        if not axes:
            return NamedSharding(Mesh(np.array(devices), ("devices",)), PartitionSpec())
        cuts = {name: {1, size} for name, size in axes}
        wanted = []
        for entry in [e for d in port.dims for e in d if e != "?"]:
            name, before, size = re.fullmatch(r'"([^"]*)"(?::\((\d+)\)(\d+))?', entry).groups()
            low = int(before) if before else 1
            high = low * int(size) if before else dict(axes)[name]
            cuts[name] |= {low, high}
            wanted.append((name, low, high))
        shape, names = [], []
        for name, size in axes:
            edges = sorted(cuts[name])
            for low, high in list(zip(edges, edges[1:])) or [(1, 1)]:
                names.append((name, low, high))
                shape.append(high // low)
        mesh = Mesh(np.array(devices).reshape(shape), [str(n) for n in names])
        take = iter(wanted)

        def pieces(dim):
            found = []
            for _ in [e for e in dim if e != "?"]:
                name, low, high = next(take)
                found += [str(n) for n in names if n[0] == name and low <= n[1] and n[2] <= high and n[1] < n[2]]
            return tuple(found) or None

        return NamedSharding(mesh, PartitionSpec(*[pieces(d) for d in port.dims]))

    def compile(self, devices):
        """Compiles the module to a function of sharded jax.Arrays."""
        ids = np.array([[d.id for d in devices]])  # one replica, one partition per device
        options = backend.get_compile_options(num_replicas=1, num_partitions=len(devices), device_assignment=ids)
        exe = backend.get_backend().compile_and_load(self.text, devices, options)
        shardings = [self.sharding(p, devices) for p in self.results]

        def call(arguments):
            shards = exe.execute_sharded(list(arguments)).disassemble_into_single_device_arrays()
            made = zip(self.results, shardings, shards)
            return [jax.make_array_from_single_device_arrays(p.shape, s, pieces) for p, s, pieces in made]

        call.executable = exe
        return call


def tensors(path):
    """Returns the arrays of a .safetensors file by name, memory-mapped."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        if size > os.path.getsize(path):
            raise Wrong(f"{path} is no .safetensors file")
        head = json.loads(f.read(size))
    made = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        (begin, end), dtype = t["data_offsets"], np.dtype(SAFE[t["dtype"]])
        flat = np.memmap(path, dtype, "r", 8 + size + begin, ((end - begin) // dtype.itemsize,)) if end > begin else np.zeros(0, dtype)
        made[name] = flat.reshape(t["shape"])
    return made


def safetensors(arrays):
    """Returns the bytes of a .safetensors file."""
    head, at = {}, 0
    for name, a in arrays.items():
        head[name] = {"dtype": next(k for k, v in SAFE.items() if np.dtype(v) == a.dtype), "shape": a.shape, "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())


def replace(path, write):
    """Writes a temporary file and renames it, so that the target is never incomplete."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as f:
            write(f)
        os.replace(part, path)
    except OSError as e:
        raise Wrong(f"{path}: {e}")


def given(module, files):
    """Yields each argument and its data, read from files."""
    mine = [p for p in module.arguments if not p.file]
    if len(files) == 1 and files[0].endswith(".safetensors"):
        try:
            found = tensors(files[0])
        except (OSError, ValueError, KeyError, struct.error) as e:
            raise Wrong(f"{files[0]}: {e}")
        lacking = [p.name for p in mine if p.name not in found]
        if lacking:
            raise Wrong(f"{files[0]} has no tensor {lacking[0]!r}; it has {sorted(found)}")
        source = {p.name: (files[0], found[p.name]) for p in mine}
    else:
        if len(files) != len(mine):
            takes = ", ".join(f"{p.name}: {p.type}" for p in mine)
            raise Wrong(f"the program takes {len(mine)} arguments ({takes}), and {len(files)} are given")
        source = {p.name: (path, opened(path)) for p, path in zip(mine, files)}
    for p in module.arguments:
        path, data = source[p.name] if not p.file else (p.file, opened(os.path.join(module.folder, p.file)))
        if data.dtype != p.dtype and data.dtype.kind in "Vu" and data.dtype.itemsize == p.dtype.itemsize and p.dtype.name == "bfloat16":
            data = data.view(p.dtype)
        if data.dtype != p.dtype or data.shape != p.shape:
            raise Wrong(f"{path} is {data.dtype}{list(data.shape)}, and argument {p.name} of the program is {p.words()}")
        yield p, data


def opened(path):
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as e:
        raise Wrong(f"{path}: {e}")


def collectives(exe):
    found = {}
    kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    for m in re.finditer(rf"= .*? ({kinds})(?:-start)?\(", exe.get_hlo_text()):
        found[m[1]] = found.get(m[1], 0) + 1
    return ", ".join(f"{k} x {n}" for k, n in sorted(found.items())) or "none"


def whole(array):
    if jax.process_count() == 1:
        return np.asarray(array)
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(array, tiled=True)


def differs(ours, theirs):
    """Returns the maximum difference relative to the maximum element; None if it is within rounding."""
    if ours.dtype != theirs.dtype:
        ours = ours.view(theirs.dtype)
    if theirs.dtype.kind in "biu":
        return None if np.array_equal(ours, theirs) else "other numbers"
    near = {2: 2e-2 if theirs.dtype.name == "bfloat16" else 3e-3, 4: 3e-6, 8: 3e-6 if theirs.dtype.kind == "c" else 1e-12, 16: 1e-12}
    wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide), theirs.astype(wide)
    finite = np.abs(a[np.isfinite(a)])
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b) / (finite.max(initial=0) or 1))
    worst = apart.max(initial=0)
    return None if worst <= near[theirs.dtype.itemsize] else f"{worst:.1e} of the greatest element"


def arrays(module, files, devices):
    made = []
    for p, data in given(module, files):
        at = module.sharding(p, devices)
        made.append(jax.make_array_from_callback(p.shape, at, lambda index, data=data: np.asarray(data[index])))
    return made


def check(folders):
    """Runs each folder's program on its arguments; returns the number of results that differ from the expected ones."""
    bad = ran = 0
    for folder in folders:
        module = Module(folder)
        if jax.process_count() > 1 and module.devices != jax.device_count():
            continue
        devices = enough(module)
        count = sum(not p.file for p in module.arguments)
        call = module.compile(devices)
        results = call(arrays(module, [os.path.join(folder, f"argument{k}.npy") for k in range(count)], devices))
        ran += 1
        for k, r in enumerate(results):
            why = differs(opened(os.path.join(folder, f"expected{k}.npy")), whole(r))
            if why:
                bad += 1
                print(f"{folder}: result {k} differs by {why}")
    print(f"process {jax.process_index()} of {jax.process_count()}: {ran} programs on {jax.device_count()} devices, {bad} results differ")
    return bad


def enough(module):
    devices = jax.devices()[: module.devices]
    if len(devices) < module.devices:
        raise Wrong(f"the program is for {module.devices} devices, and there are {len(devices)}: on a CPU, --cpu-devices {module.devices}")
    return devices


def carried(text, module):
    pairs = []
    for pair in [t for t in text.split(",") if t]:
        m = re.fullmatch(r"(\d+)=(\d+)", pair)
        if not m or int(m[1]) >= len(module.arguments) or int(m[2]) >= len(module.results):
            raise Wrong(f"--carry {pair}: write ARGUMENT=RESULT, of {len(module.arguments)} arguments and {len(module.results)} results")
        a, r = module.arguments[int(m[1])], module.results[int(m[2])]
        if a.words() != r.words():
            raise Wrong(f"--carry {pair}: the argument is {a.words()}, the result {r.words()}")
        pairs.append((int(m[1]), int(m[2])))
    return pairs


def run(a):
    module = Module(a.folder)
    carry = carried(a.carry, module)
    devices = enough(module)
    arguments = arrays(module, a.arguments, devices)
    if a.out and not a.out.endswith(".safetensors"):
        os.makedirs(a.out, exist_ok=True)
    begin = time.perf_counter()
    call = module.compile(devices)
    print(f"compiled for {len(devices)} x {devices[0].device_kind} in {time.perf_counter() - begin:.2f} s")
    if a.collectives:
        print("collectives:", collectives(call.executable))
    if a.hlo:
        replace(a.hlo, lambda f: f.write(call.executable.get_hlo_text().encode()))
    results, times = jax.block_until_ready(call(arguments)), []
    lost = [p.name for k, p in enumerate(module.arguments) if arguments[k].is_deleted() and k not in dict(carry)]
    if a.repeat and lost:
        raise Wrong(f"argument {lost[0]} is donated: a further call needs it from a result, --carry")
    for _ in range(a.repeat):
        for to, of in carry:
            arguments[to] = results[of]
        begin = time.perf_counter()
        results = jax.block_until_ready(call(arguments))
        times.append(time.perf_counter() - begin)
    if times:
        print(f"a call: median {np.median(times) * 1e6:.0f} us, least {min(times) * 1e6:.0f} us")
    numbers = {}
    for port, r in zip(module.results, results):
        print(f"{port.name or 'result'}: {port.type}")
        if a.out:
            numbers[port.name or f"result{len(numbers)}"] = whole(r)
    if a.out and jax.process_index() == 0:
        if a.out.endswith(".safetensors"):
            replace(a.out, lambda f: f.write(safetensors(numbers)))
        else:
            for k, x in enumerate(numbers.values()):
                replace(os.path.join(a.out, f"result{k}.npy"), lambda f, x=x: np.save(f, x))
    return 0


def main():
    global np, jax, backend, Mesh, NamedSharding, PartitionSpec, DTYPES, SAFE
    a = parser().parse_args()
    if a.cpu_devices:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={a.cpu_devices}"
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import jax, ml_dtypes
        import numpy as np
        import jax.extend.backend as backend
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
    except ImportError as e:
        raise Wrong(f"{e}: pip install jax (CPU), jax[cuda13] (NVIDIA) or jax[tpu]")
    whole_numbers = {f"{u}i{n}": f"{u and 'u'}int{n}" for n in (8, 16, 32, 64) for u in ("", "u")}
    DTYPES = {"i1": "bool", "f16": "float16", "bf16": ml_dtypes.bfloat16, "f32": "float32", "f64": "float64",
              "complex<f32>": "complex64", "complex<f64>": "complex128", **whole_numbers}
    SAFE = {"BOOL": "bool", "F16": "float16", "BF16": ml_dtypes.bfloat16, "F32": "float32", "F64": "float64", "C64": "complex64",
            **{f"{u or 'I'}{n}": f"{u.lower()}int{n}" for n in (8, 16, 32, 64) for u in ("", "U")}}
    jax.config.update("jax_enable_x64", True)
    if a.coordinator or a.cluster:
        if a.coordinator and (a.processes is None or a.process is None):
            raise Wrong("--coordinator needs --processes and --process")
        jax.distributed.initialize(*([a.coordinator, a.processes, a.process] if a.coordinator else []))
    return bool(check([a.folder, *a.arguments])) if a.check else run(a)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Wrong as wrong:
        print(f"run_stablehlo: {wrong}", file=sys.stderr)
        sys.exit(2)
