"""CUDA's multi-process service, for processes that are given its environment."""

import os
import subprocess


def start(directory):
    """Starts it, with its files in a directory, and returns the environment of who is to use it."""
    os.makedirs(directory, exist_ok=True)
    env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=directory, CUDA_MPS_LOG_DIRECTORY=directory)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True, timeout=20)
    return env


def stop(env):
    subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=env, timeout=60)
