"""Writes scipy.json: the points that SciPy finds for the problems of fits.rs.

    python tests/training/scipy_numbers.py > tests/training/scipy.json   (SciPy 1.17.1)
"""
import json

import numpy as np
from scipy import optimize

out = {}


def put(name, x):
    out[name] = [float(f"{v:.12g}") for v in np.ravel(x)]


# the function of Rosenbrock in 8 dimensions
def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


put("rosenbrock", optimize.minimize(rosenbrock, np.linspace(0.5, 1.5, 8), method="BFGS", jac=optimize.rosen_der, options={"gtol": 1e-10}).x)

# a logistic regression with a penalty: 24 examples of 4 features, weights and a bias
k = np.arange(96.0)
features = np.sin(1.3 * k + 0.2 * k**1.5).reshape(24, 4)
labels = np.where(np.cos(2.1 * np.arange(24.0)) > 0, 1.0, -1.0)


def logistic(p):
    return np.mean(np.logaddexp(0, -labels * (features @ p[:4] + p[4]))) + 0.05 * np.sum(p**2)


put("logistic", optimize.minimize(logistic, np.zeros(5), method="BFGS", options={"gtol": 1e-9, "xrtol": 1e-12}).x)

# the decay a * exp(-b t) + c of 12 measurements
t = np.arange(12.0) / 4
y = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.05 * np.sin(9 * t)
decay = lambda p: p[0] * np.exp(-p[1] * t) + p[2] - y
put("decay", optimize.least_squares(decay, [1.0, 0.5, 0.0], xtol=1e-15, ftol=1e-15, gtol=1e-14).x)

# a circle through 10 points: its center and its radius
angle = np.arange(10.0)
points = np.stack([3 + 2 * np.cos(angle) + 0.1 * np.sin(5 * angle), -1 + 2 * np.sin(angle) + 0.1 * np.cos(3 * angle)])
circle = lambda p: np.hypot(points[0] - p[0], points[1] - p[1]) - p[2]
put("circle", optimize.least_squares(circle, [0.0, 0.0, 1.0], xtol=1e-15, ftol=1e-15, gtol=1e-14).x)

# two equations of SciPy's documentation
pair = lambda x: [x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]]
put("pair", optimize.root(pair, [0.0, 0.0], tol=1e-14).x)

# the equation of Bratu, u'' + exp(u) = 0 with u = 0 at both ends, on 15 points
bratu = lambda u: np.diff(np.concatenate([[0], u, [0]]), 2) * 256 + np.exp(u)
put("bratu", optimize.root(bratu, np.zeros(15), tol=1e-14).x)

# SciPy's documentation of fixed_point, and a layer that is applied to its own result
put("fraction", optimize.fixed_point(lambda x: np.sqrt(np.array([10, 12.0]) / (x + np.array([3, 5.0]))), [1.2, 1.3], xtol=1e-14))
w = 0.3 * np.sin(np.arange(16.0)).reshape(4, 4)
put("layer", optimize.fixed_point(lambda x: np.tanh(w @ x + np.cos(np.arange(4.0))), np.zeros(4), method="iteration", xtol=1e-14))

print("{\n" + ",\n".join(json.dumps(n) + ":" + json.dumps(v, separators=(",", ":")) for n, v in out.items()) + "\n}")
