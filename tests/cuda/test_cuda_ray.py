#!/usr/bin/env python3
"""llm_serve in the two workers of a local Ray, a rank in each, on the emulated CUDA library (LLM_CUDA_LIBRARY): the answers are those of one process. Needs `pip install ray`."""
import os
import subprocess
import sys

from test_cuda_nodes import BASE, CUDA, SERVE, Server, answers, check, checkpoint, finish, free_port, near, skip

try: import ray
except ImportError: ray = None


class Worker:
    """What Ray Train's workers do: they get torchrun's variables before their function runs. Here that starts llm_serve and gives its first line."""

    def place(self): return ray.util.get_node_ip_address(), free_port()

    def serve(self, environment, command):
        os.environ.update(environment)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return self.process.stdout.readline()

    def end(self, stop):
        if stop: self.process.terminate()
        return self.process.wait(20)


def main():
    path = str(checkpoint("llama"))
    plain = Server("--device", "cpu", model=path, base=BASE)
    want = answers(plain, True)
    plain.stop()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": ":".join(map(os.path.abspath, sys.path))}})
    workers = [ray.remote(num_cpus=1)(Worker).remote() for _ in range(2)]
    address, port = ray.get(workers[0].place.remote())
    command = [os.path.abspath(SERVE), "--model", os.path.abspath(path), "--port", "0", *BASE, *CUDA[:3], os.path.abspath(CUDA[3]), "-tp", "2", "--distributed-executor-backend", "ray"]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0", "MASTER_ADDR": address, "MASTER_PORT": port, "LLM_NODES_SECRET": "of this test"}
    lines = [w.serve.remote({**common, "RANK": str(r), "LOCAL_RANK": str(r)}, command) for r, w in enumerate(workers)]
    first, server = ray.get(lines[0]), Server.__new__(Server)  # its process is another's child
    check("Ray: rank 0 listens", first.startswith("listening on "), first)
    server.port = int(first.rsplit(":", 1)[1])
    got = answers(server, True)
    for key in want: check(f"Ray: {key}", near(want[key], got[key]), (want[key], got[key]))
    check("Ray: both end well", ray.get([w.end.remote(r == 0) for r, w in enumerate(workers)]) == [0, 0])
    ray.shutdown()


if __name__ == "__main__":
    if ray: main()
    else: skip("llm_serve in Ray's workers", "Ray is not there: pip install ray")
    finish()
