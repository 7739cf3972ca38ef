"""Writes display.txt: arrays and the text that numpy prints for them. A case is a line `case dtype shape how values…`, the text, and a line `end`.

`how` is `list` (the values follow) or `hash` (seed and scale: element i is (i*2654435761 + seed) mod 2^32 / 2^32 - 0.5, times scale).
"""
import numpy as np

cases = []


def show(x):
    if np.isnan(x):
        return "nan"
    if np.isinf(x):
        return "inf" if x > 0 else "-inf"
    return repr(float(x))


def case(dtype, shape, values):
    a = np.array(values, dtype).reshape(shape)
    flat = a.ravel().tolist()
    text = " ".join(str(int(v)) if a.dtype.kind in "biu" else show(v) for v in flat)
    put(dtype, shape, "list " + text, a)


def hashed(dtype, shape, seed, scale):
    n = int(np.prod(shape))
    h = np.array([((i * 2654435761 + seed) % 2**32) / 2**32 - 0.5 for i in range(n)]) * scale
    put(dtype, shape, f"hash {seed} {scale!r}", h.astype(dtype).reshape(shape))


def put(dtype, shape, how, a):
    size = ",".join(map(str, shape))
    cases.append(f"case {dtype} [{size}] {how}\n{str(a)}\nend\n")


for x in [0.0, -0.0, 1.0, -2.5, 0.1, 1e-4, 1e-5, 1e15, 1e16, 123456789.0, np.nan, np.inf, -np.inf, 3.4028235e38, 1e-45]:
    case("float32", (), x)
    case("float64", (), x)
for x in [1.0, 0.1, 65504.0, 6e-8]:
    case("float16", (), x)
case("int32", (), -7)
case("bool", (), True)
case("float32", (3,), [1, 2, 3])
case("float32", (4,), [0.1, 0.25, -1.5, 100])
case("float32", (3,), [1e-5, 1, 2])
case("float32", (3,), [1e6, 1, 2])
case("float32", (3,), [999999, 999, 1000])
case("float64", (2,), [1e8, 1e6])
case("float64", (3,), [99999999.0, 1e5, 99999])
case("float32", (2,), [1e-4, 1e-3])
case("float64", (2,), [1e-4, 1e-3])
case("float32", (2,), [1000.0, 1.0])
case("float32", (2,), [1001.0, 1.0])
case("float64", (2,), [1.0 / 3, 2.0 / 3])
case("float32", (2,), [1.0 / 3, 2.0 / 3])
case("float64", (3,), [np.nan, 1, np.inf])
case("float32", (3,), [np.nan, 1.25, -np.inf])
case("float32", (2,), [np.nan, np.nan])
case("float32", (2,), [np.inf, -np.inf])
case("float32", (3,), [-np.inf, 1e10, np.nan])
case("float64", (3,), [1e-300, 1e300, -1.5])
case("float64", (2,), [1.123456789012, 12345.678901234567])
case("float64", (3,), [0.5, 0.125, 0.000244140625])
case("float32", (2,), [0.0, -0.0])
case("float16", (3,), [0.1, 1.5, 999])
case("float16", (3,), [0.1, 1.5, 1000])
case("float64", (0,), [])
case("float32", (2, 0, 3), [])
case("bool", (3,), [True, False, True])
case("bool", (2, 2), [True, False, False, False])
case("int32", (5,), [1, -20, 300, 0, 5])
case("int8", (2, 2), [-128, 127, 0, 1])
case("uint8", (3,), [0, 255, 7])
case("uint64", (2,), [18446744073709551615, 1])
case("int64", (2,), [-9223372036854775808, 1])
case("int32", (4, 2), range(8))
case("int32", (2, 3, 4), range(24))
case("int32", (1, 1, 1, 1), [5])
case("int32", (30,), range(30))
case("float32", (16,), range(16))
case("float32", (4, 8), range(32))
hashed("float32", (4, 8), 7, 1.0)
hashed("float32", (3, 40), 1, 2.0)
hashed("float64", (2, 9), 3, 1000.0)
hashed("float64", (2, 3), 3, 1e-7)
hashed("float32", (40, 40), 5, 10.0)
hashed("float32", (1001,), 9, 1.0)
hashed("float32", (1000,), 9, 1.0)
hashed("float64", (100, 20), 2, 1e5)
hashed("float32", (11, 11, 11), 2, 1.0)
hashed("float32", (2, 3, 200), 2, 1.0)
hashed("int32", (50, 50), 2, 1e6)
hashed("int32", (2, 2, 300), 2, 1e3)
hashed("float32", (2000, 2), 2, 1.0)
hashed("float32", (7, 200), 2, 1.0)
hashed("float32", (1, 1, 4, 4), 2, 1.0)

with open(__file__.replace(".py", ".txt"), "w") as f:
    f.write(f"numpy {np.__version__}\n")
    f.writelines(cases)
