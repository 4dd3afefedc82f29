"""Nodes of a Ray cluster on this machine."""

import time


def add_node(cluster, **options):
    """A node with one processor; on a busy machine Ray may give up waiting for one."""
    for attempt in range(3):
        try:
            return cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, **options)
        except Exception:
            if attempt == 2:
                raise


def await_processors(count):
    """Waits until the nodes of the cluster have so many processors together."""
    import ray

    end = time.monotonic() + 120
    while ray.cluster_resources().get("CPU", 0) != count:
        assert time.monotonic() < end
        time.sleep(0.05)
