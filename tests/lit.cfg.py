# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lit suite: IR in, IR or diagnostics out."""

import importlib.util
import os
import sys

import lit.formats

config.name = "ladle"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".ladle", ".test"]
config.excludes = ["Inputs", "corpus"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.ladle_binary_dir, "tests")

# A misspelt prefix or a variable that matches too much fails the test.
config.environment["FILECHECK_OPTS"] = (
    "-enable-var-scope --allow-unused-prefixes=false"
)
config.environment["PATH"] = os.pathsep.join(
    [config.ladle_tools_dir, config.llvm_tools_dir, os.environ["PATH"]]
)

config.substitutions.append(("%examples", config.ladle_source_dir + "/examples"))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%docs", config.ladle_source_dir + "/docs"))

# A GPU that is emulated, with a simulated clock.
gpu_folder = os.path.join(config.ladle_binary_dir, "lib")
simulated = os.path.join(gpu_folder, "libladle_simulated_gpu.so")
emulated = os.path.join(gpu_folder, "libladle_emulated_gpu.so")
config.substitutions.append(
    ("%simulated_gpu", f"env LADLE_CUDA={simulated} LADLE_NVRTC={emulated}")
)
if os.path.exists(simulated):
    config.available_features.add("simulated-gpu")
# The emulated one alone: graphs run, and take as long as they do.
config.substitutions.append(
    ("%emulated_gpu", f"env LADLE_CUDA={emulated} LADLE_NVRTC={emulated}")
)
if os.path.exists(emulated):
    config.available_features.add("emulated-gpu")

# For scripts that fit.
for module in ("matplotlib", "numpy"):
    if importlib.util.find_spec(module):
        config.available_features.add(module)

# Tests of tools that this build has not made are reported as unsupported.
for tool in os.listdir(config.ladle_tools_dir):
    config.available_features.add(tool)
