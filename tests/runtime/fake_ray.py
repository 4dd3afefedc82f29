"""Replaces Ray in tests of the driver's side: requests are answered when the test says so."""

import sys
import types
from types import SimpleNamespace


class RayError(Exception):
    pass


class Call:
    """A call of a method of a remote actor."""

    def __init__(self, name, args):
        self.name, self.args, self.is_ready, self.result = name, args, False, None


class FakeRay:
    """Replaces the module ``ray``."""

    def __init__(self, processors=2):
        self.processors, self.joined, self.init_options = processors, False, []
        self.made, self.options, self.calls, self.killed, self.puts = [], [], [], [], []
        self.breaks, self.waits = False, []
        self.address = "192.0.2.1:6379"
        self.util = SimpleNamespace(get_node_ip_address=lambda: "192.0.2.1")

    def is_initialized(self):
        return self.joined

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self.address)

    def init(self, **options):
        if self.breaks:
            raise ConnectionError("no answer")
        self.init_options.append(options)
        self.joined = True

    def shutdown(self):
        self.joined = False

    def cluster_resources(self):
        return {"CPU": float(self.processors)} if self.processors else {}

    def remote(self, **options):
        self.options.append(options)

        def decorate(kind):
            return SimpleNamespace(remote=lambda *args: self._make(kind, args))

        return decorate

    def _make(self, kind, args):
        cluster = self

        class Handle:
            def __getattr__(self, name):
                def call(*args):
                    cluster.calls.append(Call(name, args))
                    return cluster.calls[-1]

                return SimpleNamespace(remote=call)

        self.made.append((kind, args))
        return Handle()

    def wait(self, calls, num_returns=1, timeout=None):
        self.waits.append(timeout)
        ready = [call for call in calls if call.is_ready]
        return ready, [call for call in calls if not call.is_ready]

    def get(self, call):
        if isinstance(call.result, Exception):
            raise call.result
        return call.result

    def put(self, value):
        self.puts.append(value)
        return f"reference {len(self.puts)}"

    def kill(self, handle):
        self.killed.append(handle)

    def named(self, name):
        return [call for call in self.calls if call.name == name]

    def answer(self, name, result):
        """Answers the oldest open call of this name."""
        call = next(call for call in self.named(name) if not call.is_ready)
        call.is_ready, call.result = True, result


def install(monkeypatch):
    """Makes ``import ray`` return a :class:`FakeRay`, which is returned."""
    fake = FakeRay()
    module = types.ModuleType("ray")
    for name in dir(fake):
        if not name.startswith("_"):
            setattr(module, name, getattr(fake, name))
    errors = types.ModuleType("ray.exceptions")
    errors.RayError = RayError
    module.exceptions = errors
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray.exceptions", errors)
    return fake
